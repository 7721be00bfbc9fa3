//! Items that refer to something that is missing: what is kept of them, what replaces them, and how their stay ends.

use fencepost_kernel::{
    Reply, RowKey,
    item::{self, Change, ChangeVerdict, QuarantineId, StayOutcome},
};

use super::desk::{Desk, RETAIN_MS, check, check_unchanged, id_of, put, said};

#[test]
fn item_is_quarantined_when_a_reference_is_missing_or_inactive() {
    check(&[
        ("", "a@1 needs b", "QUARANTINED for b", "none, open 1 for b"),
        ("", "a needs b", "QUARANTINED for b", "none, open unversioned for b"),
        ("b@1; delete b", "a@1 needs b", "QUARANTINED for b", "none, open 1 for b"),
        ("b@1; cancel b", "a@1 needs b", "QUARANTINED for b", "none, open 1 for b"),
        ("b@1; unlist b", "a@1 needs b", "QUARANTINED for b", "none, open 1 for b"),
        // Itself in quarantine: it was never accepted.
        ("b@1 needs c", "a@1 needs b", "QUARANTINED for b", "none, open 1 for b"),
        // One with an accepted version counts by that.
        ("b@1; b@2 needs c", "a@1 needs b", "ACCEPTED", "1"),
        ("a@1", "a@2 needs b", "QUARANTINED for b", "1, open 2 for b"),
        ("a@1", "a needs b", "QUARANTINED for b", "1, open unversioned for b"),
        ("a@1; delete a", "a@2 needs b", "QUARANTINED for b", "1 deleted, open 2 for b"),
        ("", "a@1 needs a", "QUARANTINED for a", "none wanted, open 1 for a"),
        ("a@1", "a@2 needs a", "ACCEPTED", "2 after 1"),
    ]);
}

#[test]
fn every_missing_reference_is_named_once_in_the_order_of_the_item() {
    check(&[
        ("c@1", "a@1 needs d&c&b&d&uoms/ea&b", "QUARANTINED for d&b&ea", "none, open 1 for d&b&ea"),
        // One source id in two collections is two items.
        ("ea@1", "a@1 needs ea&uoms/ea", "QUARANTINED for ea", "none, open 1 for ea"),
    ]);
    let desk = Desk::after("c@1; a@1 needs d&c&b&d");
    assert_eq!(desk.waiting(), "a for b, a for d");
    assert_eq!((desk.state("b").as_str(), desk.state("c").as_str()), ("none wanted", "1"));
    let missing = &desk.quarantined("a").unwrap().unresolved[0];
    assert_eq!((&*missing.collection, &*missing.source_id, &*missing.reason), ("skus", "d", "MISSING_DEPENDENCY"));
}

#[test]
fn wanted_row_of_what_is_missing_is_written_once_and_held_from_then_on() {
    let mut desk = Desk::after("c@1");
    let first = desk.decide("a@1 needs b&c");
    // That c is there is held; that b is not cannot be, so its row is written.
    let held =
        |decision: &fencepost_kernel::Decision| decision.also.held.iter().map(|(key, _)| *key).collect::<Vec<_>>();
    let puts =
        |decision: &fencepost_kernel::Decision| decision.writes.iter().map(|write| write.key).collect::<Vec<_>>();
    assert_eq!(held(&first), [RowKey::item(id_of("c"))]);
    assert!(puts(&first).contains(&RowKey::item(id_of("b"))));
    desk.ask("a@1 needs b&c");
    let second = desk.decide("d@1 needs b");
    assert_eq!(held(&second), [RowKey::item(id_of("b"))]);
    // Whichever of the two is first, the other one is decided again.
    let mut arrived = desk.clone();
    assert_eq!(arrived.ask("b@1"), "ACCEPTED");
    assert_eq!(arrived.world.commit_also(&second.writes, &second.also), None);
    let arrival = Desk::after("c@1").decide("b@1");
    assert_eq!(desk.world.commit_also(&arrival.writes, &arrival.also), None);
}

#[test]
fn quarantined_item_is_replaced_unless_the_new_version_is_lower() {
    check(&[
        ("a@3 needs b", "a@3=x needs c", "QUARANTINED for c", "none, open 3 for c"),
        ("a@3 needs b", "a@4 needs b&c", "QUARANTINED for b&c", "none, open 4 for b&c"),
        ("a@3 needs b", "a needs c", "QUARANTINED for c", "none, open unversioned for c"),
        ("a needs b", "a@1 needs c", "QUARANTINED for c", "none, open 1 for c"),
        ("a@3 needs b", "a@2 needs c", "QUARANTINED for c", "none, open 3 for b"),
        ("a@1; a@3 needs b", "a@2 needs c", "QUARANTINED for c", "1, open 3 for b"),
    ]);
    let mut desk = Desk::after("a@3 needs b&c");
    let before = desk.quarantined("a").unwrap();
    desk.world.pass(5);
    desk.ask("a@3=new needs c&d");
    let after = desk.quarantined("a").unwrap();
    assert_eq!((after.number, after.opened, &after.content[..]), (before.number, before.opened, &b"new"[..]));
    assert_eq!(after.from.at, desk.world.now);
    assert_eq!(desk.waiting(), "a for c, a for d");
    // A lower one writes nothing at all.
    let lower = desk.decide("a@2 needs e");
    assert!(lower.only_answers(), "{:?}", lower.writes);
}

#[test]
fn lower_version_with_all_references_is_accepted_and_leaves_the_higher_one_in_quarantine() {
    check(&[
        ("a@3 needs b", "a@2", "ACCEPTED", "2, open 3 for b"),
        ("a@1; a@3 needs b", "a@2", "ACCEPTED", "2 after 1, open 3 for b"),
        ("a@3 needs b; c@1", "a@2 needs c", "ACCEPTED", "2, open 3 for b"),
        // Then the higher one is accepted as ever.
        ("a@3 needs b; a@2; b@1", "a@3 needs b", "ACCEPTED", "3 after 2, 3 accepted"),
        // Below what is accepted is a replay, whatever waits.
        ("a@2; a@4 needs b", "a@1", "REPLAY", "2, open 4 for b"),
        ("a@3; a@3 needs b", "a@3", "REPLAY", "3"),
    ]);
    let desk = Desk::after("a@3 needs b; a@2");
    assert_eq!(desk.waiting(), "a for b");
}

#[test]
fn acceptance_ends_the_stay_in_its_own_decision_and_drops_every_row_that_waits() {
    check(&[
        ("a@3 needs b&c", "a@3", "ACCEPTED", "3, 3 accepted"),
        ("a@3 needs b&c", "a@4", "ACCEPTED", "4, 3 accepted"),
        ("a@3 needs b&c", "a", "ACCEPTED", "unversioned, 3 accepted"),
        ("a needs b&c", "a@1", "ACCEPTED", "1, unversioned accepted"),
        ("a@3 needs b; b@1", "a@3 needs b", "ACCEPTED", "3, 3 accepted"),
    ]);
    let mut desk = Desk::after("a@3 needs b&c; d@1 needs b");
    assert_eq!(desk.waiting(), "a for b, a for c, d for b");
    desk.ask("a@3");
    assert_eq!(desk.waiting(), "d for b");
    let resolved = desk.quarantined("a").unwrap().resolved.clone().unwrap();
    assert_eq!((resolved.from.at, resolved.expires), (desk.world.now, desk.world.now.plus(RETAIN_MS)));
}

// INVARIANT one-quarantine
#[test]
fn next_stay_has_a_higher_number_also_within_a_millisecond_and_once_the_last_is_dropped() {
    let mut desk = Desk::new();
    let mut number = 0;
    for (n, sweep) in [false, false, true, false].into_iter().enumerate() {
        if sweep {
            desk.world.pass(RETAIN_MS);
            desk.world.sweep();
            assert_eq!(desk.quarantined("a"), None);
        }
        assert_eq!(desk.ask(&format!("a@{} needs b", 10 * n)), "QUARANTINED for b");
        let next = desk.quarantined("a").unwrap().number;
        assert!(next > number, "{next} after {number}");
        number = next;
        assert_eq!(desk.ask(&format!("a@{}", 10 * n)), "ACCEPTED");
    }
    // One that is open is never dropped.
    desk.ask("a@99 needs b");
    desk.world.pass(100 * RETAIN_MS);
    desk.world.sweep();
    assert_eq!(desk.waiting(), "a for b");
    assert_eq!(desk.quarantined("a").unwrap().resolved, None);
}

#[test]
fn released_item_is_accepted_when_its_references_are_there_and_stays_when_not() {
    check(&[
        ("a@3 needs b; b@1", "release a@3 needs b", "ACCEPTED", "3, 3 released"),
        ("a needs b; b@1", "release a needs b", "ACCEPTED", "unversioned, unversioned released"),
        (
            "a@1; unlist a; b@1; delete b; a@1 needs b; b@2",
            "release a@1 needs b",
            "ACCEPTED reactivated",
            "1 after 1, 1 released",
        ),
        ("a@3 needs b", "release a@3 needs b", "QUARANTINED for b", "none, open 3 for b"),
        ("a@3 needs b&c; b@1", "release a@3 needs b&c", "QUARANTINED for c", "none, open 3 for c"),
        // The reference was there, and has gone since.
        ("c@1; a@3 needs b&c; b@1; delete c", "release a@3 needs b&c", "QUARANTINED for c", "none, open 3 for c"),
        ("a@3 needs b; a@2; b@1", "release a@3 needs b", "ACCEPTED", "3 after 2, 3 released"),
        ("a@3 needs b; b@1", "release a@3 needs b + release a@3 needs b", "ACCEPTED + RESOLVED", "3, 3 released"),
        (
            "b@1 needs c; a@1 needs b; c@1",
            "release b@1 needs c + release a@1 needs b",
            "ACCEPTED + ACCEPTED",
            "1, 1 released",
        ),
    ]);
    check_unchanged(&[
        ("a@3 needs b; a@3", "release a@3 needs b", "RESOLVED"),
        ("a@3 needs b; delete a", "release a@3 needs b", "RESOLVED"),
        ("a@3 needs b; b@1; a@3=x needs c", "release a@3 needs b", "QUARANTINED for c"),
        ("a@3 needs b; b@1; a@4 needs b&c", "release a@3 needs b", "QUARANTINED for c"),
        ("", "release a@3 needs b", "no_such_item"),
        ("a@3", "release a@3", "no_such_item"),
        ("b@1 needs a", "release a@3", "no_such_item"),
    ]);
}

#[test]
fn release_that_is_still_unresolved_keeps_the_number_and_the_request_that_sent_the_item() {
    let mut desk = Desk::after("a@3 needs b&c; b@1");
    let before = desk.quarantined("a").unwrap();
    desk.world.pass(5);
    desk.ask("release a@3 needs b&c");
    let after = desk.quarantined("a").unwrap();
    assert_eq!((after.number, after.opened, &after.from), (before.number, before.opened, &before.from));
    assert_eq!(desk.waiting(), "a for c");
    desk.ask("c@1");
    desk.world.pass(5);
    desk.ask("release a@3 needs b&c");
    let accepted = desk.item("a").unwrap().current.clone().unwrap();
    assert_eq!((accepted.from.at, &accepted.from.by), (desk.world.now, &before.from.by));
    assert_eq!(desk.quarantined("a").unwrap().resolved.as_ref().unwrap().how, StayOutcome::Released);
}

#[test]
fn release_of_an_earlier_stay_leaves_the_present_one_alone() {
    let mut desk = Desk::after("a@3 needs b");
    let first = desk.quarantined("a").unwrap().id();
    desk.ask("a@3");
    desk.world.pass(1);
    desk.ask("a@4 needs b");
    let second = desk.quarantined("a").unwrap().id();
    assert!(second.number > first.number);
    let release = |desk: &Desk, quarantine: QuarantineId| {
        let change = Change::Release { quarantine, put: put("a@4 needs b") };
        desk.world.decide(&Desk::of(desk.submit(vec![change])))
    };
    for number in [first.number, second.number + 1] {
        let quarantine = QuarantineId { number, ..second };
        let decision = release(&desk, quarantine);
        let Reply::Item(item::Reply::Submitted { verdicts, .. }) = &decision.reply else { panic!() };
        assert_eq!(verdicts[..], [ChangeVerdict::AlreadyResolved { quarantine }]);
        assert!(decision.only_answers());
    }
    assert_eq!(said(&release(&desk, second).reply), "QUARANTINED for b");
}

// No command leaves one behind, since whatever accepts a version at or above it ends the stay. A restore of rows that were
// read at two moments may.
#[test]
fn release_of_a_version_that_is_superseded_is_a_replay_and_ends_the_stay() {
    let mut desk = Desk::after("a@3 needs b; a@1");
    let mut item = fencepost_kernel::item::Item::clone(&desk.item("a").unwrap());
    item.current.as_mut().unwrap().version = Some(fencepost_kernel::item::ItemVersion::Integer(4));
    desk.put_item(item);
    assert_eq!(desk.ask("release a@3 needs b"), "REPLAY");
    assert_eq!((desk.state("a").as_str(), desk.waiting().as_str()), ("4, 3 released", ""));
}
