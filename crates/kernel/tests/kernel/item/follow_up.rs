//! Several commands over rows of one moment, as a commit of many commands and several nodes have them.

use super::desk::{Desk, said};

/// Both commands in one commit: the second one looks at the writes of the first, and at rows that the first drops.
/// The second is decided again where it is refused.
fn in_one_commit(desk: &mut Desk, first: &str, second: &str) -> bool {
    let mut view = desk.clone();
    let first = view.decide(first);
    view.world.overlay(&first);
    let decided = view.decide(second);
    assert!(desk.world.commit_also(&first.writes, &first.also).is_some());
    let at_once = desk.world.commit_also(&decided.writes, &decided.also).is_some();
    if !at_once {
        let again = desk.decide(second);
        assert_eq!(said(&again.reply), said(&decided.reply));
        assert!(desk.world.commit_also(&again.writes, &again.also).is_some());
    }
    at_once
}

#[test]
fn item_that_waits_again_in_the_commit_that_ended_its_wait_still_waits() {
    let mut desk = Desk::after("a@1 needs b");
    in_one_commit(&mut desk, "a@1", "a@2 needs b");
    assert_eq!((desk.state("a").as_str(), desk.waiting().as_str()), ("1, open 2 for b", "a for b"));
}

#[test]
fn item_that_waits_for_the_same_again_after_it_waited_for_another_still_waits() {
    let mut desk = Desk::after("a@1 needs b");
    in_one_commit(&mut desk, "a@2 needs c", "a@3 needs b");
    assert_eq!((desk.state("a").as_str(), desk.waiting().as_str()), ("none, open 3 for b", "a for b"));
}

#[test]
fn reference_that_goes_in_the_command_that_needs_it_is_waited_for_again() {
    let mut desk = Desk::after("a@1 needs b; b@1");
    assert_eq!(desk.waiting(), "a for b");
    assert_eq!(desk.ask("delete b + a@2 needs b"), "INACTIVE + QUARANTINED for b");
    assert_eq!(desk.waiting(), "a for b");
    let mut desk = Desk::after("b@1; a@1 needs b");
    assert_eq!(desk.ask("delete b + a@2 needs b"), "INACTIVE + QUARANTINED for b");
    assert_eq!((desk.state("a").as_str(), desk.waiting().as_str()), ("1, open 2 for b", "a for b"));
}

#[test]
fn commands_about_different_items_stand_together_over_rows_of_one_moment() {
    let desk = Desk::after("b@1; c@1");
    let both = [desk.decide("a@1 needs b&c"), desk.decide("d@1 needs b&c")];
    let mut store = desk.clone();
    for decision in both {
        assert!(store.world.commit_also(&decision.writes, &decision.also).is_some());
    }
    assert_eq!((store.state("a").as_str(), store.state("d").as_str()), ("1", "1"));
}

#[test]
fn lower_version_is_accepted_only_while_the_one_that_waits_is_the_one_it_was_compared_with() {
    let mut desk = Desk::after("a@3 needs b");
    let lower = desk.decide("a@1");
    // Without a version it is no longer the higher one.
    desk.ask("a needs b");
    assert_eq!(desk.world.commit_also(&lower.writes, &lower.also), None);
    assert_eq!((desk.ask("a@1").as_str(), desk.state("a").as_str()), ("ACCEPTED", "1, unversioned accepted"));
}
