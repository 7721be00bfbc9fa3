//! Verdicts on an item that is sent, by the versions that are known of it; and its history.

use fencepost_kernel::{
    RowKey,
    item::{ChangeVerdict, Item, ItemVersion, Sent},
};

use super::desk::{Desk, check, check_unchanged, id_of, put, said};

#[test]
fn item_is_accepted_when_its_version_is_above_all_accepted_ones_or_it_has_none() {
    check(&[
        ("", "a@3", "ACCEPTED", "3"),
        ("", "a", "ACCEPTED", "unversioned"),
        ("a@3", "a@4", "ACCEPTED", "4 after 3"),
        ("a@3; a@4", "a@9", "ACCEPTED", "9 after 3,4"),
        ("a", "a@1", "ACCEPTED", "1 after unversioned"),
        ("a", "a", "ACCEPTED", "unversioned after unversioned"),
        ("a@3", "a", "ACCEPTED", "unversioned after 3 floor 3"),
        ("a@3; a", "a", "ACCEPTED", "unversioned after 3,unversioned floor 3"),
        ("a@3; a", "a@4", "ACCEPTED", "4 after 3,unversioned"),
        ("a@1.9.0", "a@1.10.0", "ACCEPTED", "1.10.0 after 1.9.0"),
        ("a@2026-05-24", "a@2026-05-24T00:00:00.5Z", "ACCEPTED", "2026-05-24T00:00:00.5Z after 2026-05-24"),
        // Another item waits for it, and it is not there yet.
        ("b needs a", "a@3", "ACCEPTED", "3 wanted"),
    ]);
}

#[test]
fn versions_left_over_by_a_restore_do_not_block_a_command_that_replaces_several() {
    let mut desk = Desk::after("a@1; a@2; a@3");
    // The backup read the item before its second version came, and the replaced versions after the third.
    desk.put_item(Item::clone(&Desk::after("a@1").item("a").unwrap()));
    assert_eq!(desk.ask("a@2 + a@3"), "ACCEPTED + ACCEPTED");
    assert_eq!(desk.item("a").unwrap().seq, 3);
}

// INVARIANT item-order
#[test]
fn version_at_or_below_an_accepted_one_is_a_replay_and_writes_nothing() {
    check_unchanged(&[
        ("a@3", "a@3", "REPLAY"),
        ("a@3", "a@2", "REPLAY"),
        ("a@3; a@5", "a@4", "REPLAY"),
        ("a@1.0", "a@1.0.0=other", "REPLAY differs"),
        ("a@2026-05-24T02:00:00+02:00=x", "a@2026-05-24=y", "REPLAY differs"),
        // References are not asked for.
        ("a@3", "a@2 needs b", "REPLAY"),
        ("a@3; a", "a@3", "REPLAY"),
        ("a@3; a", "a@2", "REPLAY"),
        ("a@3; a; a", "a@3", "REPLAY"),
    ]);
}

#[test]
fn present_version_with_other_content_is_a_replay_that_differs() {
    check_unchanged(&[
        (r#"a@3={"n":1,"m":[1,2]}"#, r#"a@3={ "m":[1, 2],"n" :1.0 }"#, "REPLAY"),
        (r#"a@3={"n":1,"m":[1,2]}"#, r#"a@3={"n":1,"m":[2,1]}"#, "REPLAY differs"),
        (r#"a@3={"n":1}"#, r#"a@3={"n":"1"}"#, "REPLAY differs"),
        // Only the present version is compared.
        (r#"a@3={"n":1}"#, r#"a@2={"n":2}"#, "REPLAY"),
        (r#"a@3={"n":1}; a={"n":1}"#, r#"a@3={"n":2}"#, "REPLAY"),
    ]);
}

#[test]
fn version_of_another_form_is_rejected_and_writes_nothing() {
    check_unchanged(&[
        ("a@3", "a@1.0.0", "REJECTED"),
        ("a@1.0.0", "a@4", "REJECTED"),
        ("a@1.0.0", "a@2026-05-24", "REJECTED"),
        ("a@2026-05-24", "a@draft", "REJECTED"),
        ("a@3; a", "a@draft", "REJECTED"),
        ("a@3 needs b", "a@draft", "REJECTED"),
        ("a@3 needs b", "a@draft needs b", "REJECTED"),
        ("a@3; delete a", "a@draft", "REJECTED"),
    ]);
    let mut desk = Desk::after("a@3");
    let verdicts = desk.verdicts("a@1.0.0");
    let [ChangeVerdict::Rejected(faults)] = &verdicts[..] else { panic!("{verdicts:?}") };
    assert_eq!(faults[0].pointer, "/source_version");
    for word in ["a dotted version", "the accepted version 3", "an integer"] {
        assert!(faults[0].message.contains(word), "{}", faults[0].message);
    }
}

#[test]
fn item_that_occurs_twice_in_a_command_is_decided_in_its_order() {
    check(&[
        ("", "a@1 + a@2", "ACCEPTED + ACCEPTED", "2 after 1"),
        ("", "a@2 + a@1", "ACCEPTED + REPLAY", "2"),
        ("a@1", "a@2 + a + a@3 + a@3", "ACCEPTED + ACCEPTED + ACCEPTED + REPLAY", "3 after 1,2,unversioned"),
        ("", "a@1 + delete a + a@1 + a@2", "ACCEPTED + INACTIVE + REPLAY + ACCEPTED", "2 after 1"),
        ("", "a@1 needs b + a@2", "QUARANTINED for b + ACCEPTED", "2, 1 accepted"),
        ("", "a@1 needs b + a@2 needs c", "QUARANTINED for b + QUARANTINED for c", "none, open 2 for c"),
        ("", "a@1 needs b&c + a@2 needs c", "QUARANTINED for b&c + QUARANTINED for c", "none, open 2 for c"),
        ("", "a@1 needs b + b@1 + a@1 needs b", "QUARANTINED for b + ACCEPTED + ACCEPTED", "1, 1 accepted"),
        ("a@1", "refuse a + a@2", "REJECTED + ACCEPTED", "2 after 1"),
    ]);
}

#[test]
fn replaced_version_is_kept_under_its_number_with_what_brought_it() {
    let mut desk = Desk::new();
    let first = desk.world.now;
    desk.ask("a@1=one");
    desk.world.pass(10);
    desk.ask("delete a");
    desk.world.pass(10);
    desk.ask("a@2=two");
    let row = desk.world.record(RowKey::item_version(id_of("a"), 1)).and_then(|record| record.as_replaced()).unwrap();
    let sent = Sent { at: first, by: "ann".into(), correlation_id: "c1".into() };
    assert_eq!((&row.accepted.version, &row.accepted.from), (&Some(ItemVersion::Integer(1)), &sent));
    assert_eq!((&row.accepted.content[..], row.source_id.as_str()), (&b"one"[..], "a"));
    assert_eq!(row.accepted.retired.as_ref().map(|retired| retired.from.at), Some(first.plus(10)));
    assert_eq!(row.replaced_at, first.plus(20));
    let item = desk.item("a").unwrap();
    assert_eq!((item.seq, item.current.as_ref().unwrap().from.at), (2, first.plus(20)));
}

#[test]
fn references_hold_an_acceptance_to_the_rows_that_it_looked_at() {
    let desk = Desk::after("b@1; c@1");
    let decision = desk.decide("a@1 needs b&c");
    assert_eq!(said(&decision.reply), "ACCEPTED");
    for name in ["b", "c"] {
        let mut moved = desk.clone();
        moved.ask(&format!("delete {name}"));
        assert_eq!(moved.world.commit_also(&decision.writes, &decision.also), None, "{name} went in between");
    }
    let mut present = desk.clone();
    assert!(present.world.commit_also(&decision.writes, &decision.also).is_some());
}

#[test]
fn reference_accepted_earlier_in_the_command_counts_and_one_accepted_later_does_not() {
    check(&[
        ("", "b@1 + a@1 needs b", "ACCEPTED + ACCEPTED", "1"),
        ("", "a@1 needs b + b@1", "QUARANTINED for b + ACCEPTED", "none, open 1 for b"),
        ("b@1; delete b", "b@2 + a@1 needs b", "ACCEPTED + ACCEPTED", "1"),
        ("b@1", "delete b + a@1 needs b", "INACTIVE + QUARANTINED for b", "none, open 1 for b"),
        ("", "c@1 needs d + a@1 needs c", "QUARANTINED for d + QUARANTINED for c", "none, open 1 for c"),
        ("b@1", "b@2 + a@1 needs b", "ACCEPTED + ACCEPTED", "1"),
    ]);
    // The row that the command writes itself is not also held.
    let decision = Desk::after("b@1").decide("b@2 + a@1 needs b");
    assert_eq!(decision.also.held, []);
    assert_eq!(put("a@1 needs b").references[0].item, id_of("b"));
}

#[test]
fn forgotten_version_stays_in_the_history_and_any_version_is_accepted_after_it() {
    for (before, forgotten, then, after) in [
        ("a@7; a@999", "999", "a@8", "8 after 7,999,unversioned"),
        ("a@7", "7", "a@1.0", "1.0 after 7,unversioned"),
        ("a@999; a", "999", "a@8", "8 after 999,unversioned,unversioned"),
        ("a@999; delete a", "999", "a@8", "8 after 999,unversioned"),
    ] {
        let mut desk = Desk::after(before);
        let content = desk.item("a").unwrap().current.as_ref().unwrap().content.clone();
        assert_eq!(desk.forget_version("a", forgotten), (None, false), "{before}");
        let item = desk.item("a").unwrap();
        let current = item.current.as_ref().unwrap();
        assert_eq!((&current.version, &current.content, &*current.from.by), (&None, &content, "operator"), "{before}");
        assert_eq!((item.highest(), item.is_active()), (None, !before.contains("delete")), "{before}");
        // Again is nothing, also after the next version came.
        assert_eq!(desk.forget_version("a", forgotten), (None, true), "{before}");
        assert_eq!((desk.ask(then).as_str(), desk.state("a").as_str()), ("ACCEPTED", after), "{before}");
        let highest = desk.item("a").unwrap().highest().map(ToString::to_string);
        assert_eq!(desk.forget_version("a", forgotten), (highest, true), "{before}");
        assert_eq!(desk.state("a"), after);
    }
}
