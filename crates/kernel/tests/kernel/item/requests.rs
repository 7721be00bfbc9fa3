//! The request that changes items: its fence is claimed and sealed in the commit of the items.

use fencepost_kernel::{
    Reply, RowKey,
    fence::{self, Target, scope::OnLapse},
    item::{self, Change},
    row::Record,
};

use super::{
    super::world::{RETAIN_MS, scope, target_in},
    desk::{Desk, said},
};

fn request(id: &str) -> Target {
    target_in(scope(OnLapse::Recover), id)
}

#[test]
fn repeated_request_gets_the_sealed_answer_and_writes_nothing() {
    let (mut desk, target) = (Desk::new(), request("r1"));
    let asked = desk.request(&target, "a@1 + b@1 needs c + refuse d");
    let Reply::Item(item::Reply::Submitted { answer, expires, .. }) = desk.world.run(&asked) else { panic!() };
    assert_eq!(answer, "ACCEPTED QUARANTINED REJECTED");
    assert_eq!(expires, Some(desk.world.now.plus(RETAIN_MS)));
    assert_eq!(desk.world.phase(&target), "sealed");
    // It stays the answer of that day.
    desk.ask("a@2");
    desk.world.pass(RETAIN_MS - 1);
    let again = desk.world.decide(&asked);
    assert_eq!(again.reply.decision(), "duplicate");
    assert!(again.only_answers());
    assert_eq!(desk.world.receipt(&target).as_deref(), Some("ACCEPTED QUARANTINED REJECTED"));
    let Some(Record::Fence(fence::Record::Fence(sealed))) = desk.world.record(RowKey::fence(target.key)) else {
        panic!()
    };
    assert_eq!(sealed.effect_id(), Some("skus: 1 ACCEPTED, 1 QUARANTINED, 1 REJECTED"));
    // Once it is forgotten, the items are judged anew.
    desk.world.pass(1);
    let Reply::Item(item::Reply::Submitted { answer, .. }) = desk.world.run(&asked) else { panic!() };
    assert_eq!(answer, "REPLAY QUARANTINED REJECTED");
}

#[test]
fn request_under_a_known_id_with_another_body_is_a_conflict_and_writes_nothing() {
    let (mut desk, target) = (Desk::new(), request("r1"));
    desk.world.run(&desk.request(&target, "a@1"));
    let other = desk.world.decide(&desk.request(&target, "a@2"));
    assert_eq!(other.reply.decision(), "conflict");
    assert!(other.only_answers());
    assert_eq!(desk.state("a"), "1");
}

#[test]
fn command_without_a_claim_writes_no_fence() {
    let desk = Desk::new();
    let decision = desk.decide("a@1");
    assert_eq!(
        decision.writes.iter().map(|write| write.key.kind).collect::<Vec<_>>(),
        [fencepost_kernel::key::Kind::Item]
    );
    let Reply::Item(item::Reply::Submitted { expires, .. }) = decision.reply else { panic!() };
    assert_eq!(expires, None);
}

#[test]
fn request_about_an_unknown_item_seals_nothing_and_may_be_sent_again() {
    let (mut desk, target) = (Desk::new(), request("r1"));
    let asked = desk.request(&target, "delete a");
    let decision = desk.world.decide(&asked);
    assert_eq!(said(&decision.reply), "no_such_item");
    assert!(decision.only_answers() && decision.also.is_empty());
    desk.world.run(&asked);
    assert_eq!(desk.world.phase(&target), "absent");
    desk.ask("a@1");
    assert_eq!(said(&desk.world.run(&asked)), "INACTIVE");
    assert_eq!(desk.world.phase(&target), "sealed");
}

#[test]
fn request_whose_items_changed_in_between_is_decided_again_as_a_whole() {
    let (mut desk, target) = (Desk::after("b@1"), request("r1"));
    let asked = desk.request(&target, "c@1 + a@1 needs b");
    let decision = desk.world.decide(&asked);
    desk.ask("delete b");
    assert_eq!(desk.world.commit_also(&decision.writes, &decision.also), None);
    assert_eq!((desk.world.phase(&target), desk.state("c").as_str()), ("absent", "absent"));
    assert_eq!(said(&desk.world.run(&asked)), "ACCEPTED + QUARANTINED for b");
}

#[test]
fn request_that_changes_no_item_is_remembered_all_the_same() {
    let (mut desk, target) = (Desk::after("a@1"), request("r1"));
    for text in ["a@1 + refuse b", "a@1 + refuse b"] {
        let decision = desk.world.decide(&desk.request(&target, text));
        assert_eq!(decision.writes.len(), usize::from(desk.world.phase(&target) == "absent"));
        desk.world.commit_also(&decision.writes, &decision.also);
    }
    assert_eq!(desk.world.receipt(&target).as_deref(), Some("REPLAY REJECTED"));
}

#[test]
fn change_has_the_source_id_that_its_sender_gave() {
    let desk = Desk::after("a@1 needs b");
    for text in ["a@1", "delete a", "release a@1 needs b", "refuse a"] {
        assert_eq!(desk.command(text).changes[0].source_id(), Some("a"), "{text}");
    }
    assert_eq!(Change::Refuse { source_id: None, faults: Vec::new() }.source_id(), None);
}
