//! The row that makes others be looked at again: when it is written, and when its follow-up is over.

use fencepost_kernel::RowKey;

use super::desk::{Case, Desk, id_of};

/// Whether `b` has an arrival after a command, and after those asked before it.
fn arrives(auto_release: bool, before: &str, command: &str) -> bool {
    let mut desk = if auto_release { Desk::releasing(before) } else { Desk::after(before) };
    let now = desk.world.now;
    for (name, arrived) in desk.arrivals() {
        desk.settle(&name, arrived);
    }
    desk.ask(command);
    match &desk.arrivals()[..] {
        [] => false,
        [(name, _)] => {
            let key = RowKey::arrival(id_of(name));
            assert_eq!((name.as_str(), desk.world.record(key).and_then(|row| row.due_at())), ("b", Some(now)));
            true
        }
        more => panic!("{more:?}"),
    }
}

// INVARIANT no-missed-arrival
#[test]
fn arrival_is_written_when_a_wanted_item_becomes_active_and_releases_are_automatic() {
    for (before, command) in [
        ("a@1 needs b", "b@1"),
        ("a@1 needs b", "b"),
        ("a@1 needs b", "c@1 + b@1"),
        // The missing item comes later in the same command.
        ("", "a@1 needs b + b@1"),
        ("b@1; delete b; a@1 needs b", "b@2"),
        ("b@1; unlist b; a@1 needs b", "b@1"),
        ("a@1 needs b; b@1 needs c; c@1", "release b@1 needs c"),
        // None waits any more, and that is found out by looking.
        ("a@1 needs b; delete a", "b@1"),
    ] {
        assert!(arrives(true, before, command), "after `{before}`, `{command}`");
        assert!(!arrives(false, before, command), "after `{before}`, `{command}` without automatic releases");
    }
}

#[test]
fn arrival_is_not_written_for_an_item_that_was_active_or_that_none_waits_for() {
    for (before, command) in [
        ("", "b@1"),
        ("a@1", "b@1"),
        ("a@1 needs b; b@1", "b@2"),
        ("a@1 needs b; b@1", "b@1"),
        ("a@1 needs b", "b@1 needs c"),
        ("a@1 needs b", "refuse b"),
        ("a@1 needs b; b@1", "delete b"),
        ("a@1 needs b; b@1; delete b", "b@1"),
    ] {
        assert!(!arrives(true, before, command), "after `{before}`, `{command}`");
    }
}

#[test]
fn settled_arrival_is_gone_and_the_item_wanted_no_more() {
    let mut desk = Desk::releasing("a@1 needs b; b@1");
    let (_, arrived) = desk.arrivals()[0].clone();
    desk.settle("b", arrived);
    assert_eq!((desk.state("b").as_str(), desk.arrivals()), ("1", vec![]));
    // Another worker followed it up, too.
    let before = desk.world.rows().count();
    desk.settle("b", arrived);
    assert_eq!((desk.state("b").as_str(), desk.world.rows().count()), ("1", before));
}

#[test]
fn settling_an_earlier_arrival_leaves_the_newer_one_and_the_item_wanted() {
    let mut desk = Desk::releasing("a@1 needs b; b@1");
    let (_, first) = desk.arrivals()[0].clone();
    desk.ask("delete b + b@2");
    let (_, second) = desk.arrivals()[0].clone();
    assert_ne!(second, first);
    desk.settle("b", first);
    assert_eq!((desk.state("b").as_str(), desk.arrivals()), ("2 after 1 wanted", vec![("b".to_owned(), second)]));
    desk.settle("b", second);
    assert_eq!((desk.state("b").as_str(), desk.arrivals()), ("2 after 1", vec![]));
}

#[test]
fn second_arrival_within_a_millisecond_is_not_settled_with_the_first() {
    let mut desk = Desk::releasing("a@1 needs b");
    desk.ask("b@1");
    let (_, first) = desk.arrivals()[0].clone();
    // All of it in the millisecond of the first arrival, once its follow-up has looked at what waits.
    desk.ask("delete b");
    desk.ask("c@1 needs b");
    desk.ask("b@2");
    desk.settle("b", first);
    assert_eq!(desk.arrivals().len(), 1, "c is not looked at");
    assert!(desk.item("b").unwrap().wanted);
}

#[test]
fn arrival_after_a_settled_one_within_a_millisecond_is_not_settled_with_it() {
    let mut desk = Desk::releasing("a@1 needs b; b@1");
    let (_, first) = desk.arrivals()[0].clone();
    desk.settle("b", first);
    // All of it in one millisecond, before another worker ends its follow-up of the first.
    for command in ["delete b", "c@1 needs b", "b@2"] {
        desk.ask(command);
    }
    desk.settle("b", first);
    assert_eq!(desk.arrivals().len(), 1, "c is not looked at");
}

#[test]
fn item_that_has_gone_again_stays_wanted_when_its_arrival_is_settled() {
    let mut desk = Desk::releasing("a@1 needs b; b@1; delete b");
    let (_, arrived) = desk.arrivals()[0].clone();
    desk.settle("b", arrived);
    assert_eq!((desk.state("b").as_str(), desk.arrivals()), ("1 deleted wanted", vec![]));
    desk.ask("c@1 needs b");
    desk.ask("b@2");
    assert_eq!(desk.arrivals().len(), 1);
}

#[test]
fn item_that_is_wanted_has_its_row_before_it_was_ever_sent() {
    let cases: [Case<'_>; 3] = [
        ("", "a@1 needs b", "QUARANTINED for b", "none wanted"),
        ("c@1 needs b", "a@1 needs b", "QUARANTINED for b", "none wanted"),
        ("b@1; delete b", "a@1 needs b", "QUARANTINED for b", "1 deleted wanted"),
    ];
    for (before, command, expected, state) in cases {
        let mut desk = Desk::after(before);
        assert_eq!((desk.ask(command).as_str(), desk.state("b").as_str()), (expected, state));
        assert_eq!(desk.item("b").unwrap().id(), id_of("b"));
    }
}
