//! The audit as a table: an act that changed something has one entry, in the same writes; all else has none.

use std::sync::Arc;

use fencepost_kernel::{
    Command, Millis, Record, RowKey, Tenant, Write,
    audit::{self, AuditCommand, AuditEntry, Note, Operator, Subject},
    fence::{self, DoubtOutcome, Forget, HolderTrace, Target, scope::OnLapse},
    key::Kind,
};

use super::world::{LEASE_MS, START, World, claim, release, renew, resolve, resolve_sealed, scope, seal, target_in};

const RETAIN_MS: u64 = 1_000;

/// Steps before the command.
type Before<'a> = &'a dyn Fn(&mut World);

fn operator() -> Arc<Operator> {
    let (by, op) = ("ann".into(), "resolve".into());
    Operator { by, op, trace: Some(HolderTrace([7; 16])), retain_ms: RETAIN_MS }.into()
}

fn act(command: Command, id: u64) -> Command {
    audit::Command::Act(AuditCommand { command: command.into(), operator: operator(), id }).into()
}

fn forget(target: &Target) -> Command {
    let (target, by, why) = (target.clone(), "ann".to_owned(), "asked".to_owned());
    Command::Fence(fence::Command::Forget(Forget { target, token: None, by, why }))
}

fn entries(writes: &[Write]) -> Vec<&AuditEntry> {
    let records = writes.iter().filter_map(|write| write.put.as_ref());
    records.filter_map(|record| Some(&**record.as_audit_entry()?)).collect()
}

#[test]
fn audited_act_has_an_entry_in_its_own_writes_and_is_decided_as_without_one() {
    let held = || target_in(scope(OnLapse::Hold), "1");
    let plain = || target_in(scope(OnLapse::Recover), "2");
    let nothing = |_: &mut World| {};
    let sealed = |world: &mut World| {
        world.done(&claim(&plain()), "r");
    };
    let lapsed = |world: &mut World| {
        world.granted(&claim(&held()));
        world.pass(LEASE_MS + 1);
    };
    let table: [(&str, Before<'_>, Command, Option<&str>); 10] = [
        ("a claim", &nothing, claim(&plain()), Some("new")),
        ("a duplicate", &sealed, claim(&plain()), None),
        ("a doubt that is resolved as released", &lapsed, resolve(&held(), DoubtOutcome::Released), Some("resolved")),
        ("a doubt that is resolved as sealed", &lapsed, resolve_sealed(&held(), "r"), Some("resolved")),
        // It marks the row, and changes nothing that anybody asked for.
        ("a claim that is told of a doubt", &lapsed, claim(&held()), None),
        ("a resolution of no doubt", &sealed, resolve(&plain(), DoubtOutcome::Released), None),
        ("a seal by nobody's token", &nothing, seal(&plain(), fence::Token(5), "r"), None),
        ("what was sealed is forgotten", &sealed, forget(&plain()), Some("forgotten")),
        ("what nobody knows is forgotten", &nothing, forget(&plain()), None),
        ("a sweep of what still counts", &sealed, Command::Sweep(RowKey::fence(plain().key)), None),
    ];
    for (name, before, command, outcome) in table {
        let mut world = World::new();
        before(&mut world);
        let audited = world.decide(&act(command.clone(), 9));
        let without = world.decide(&command);
        assert_eq!(audited.reply.decision(), without.reply.decision(), "{name}");
        let found = entries(&audited.writes);
        assert_eq!(
            found.iter().map(|entry| entry.outcome.as_str()).collect::<Vec<_>>(),
            Vec::from_iter(outcome),
            "{name}"
        );
        assert_eq!(audited.writes.len(), without.writes.len() + found.len(), "{name}");
        assert_eq!(audited.also, without.also, "{name}");
    }
}

#[test]
fn refused_holder_leaves_a_mark_in_the_fence_and_no_entry() {
    let target = target_in(scope(OnLapse::Recover), "1");
    let mut world = World::new();
    let old = world.granted(&claim(&target)).token;
    world.pass(LEASE_MS + 1);
    let own = world.granted(&claim(&target)).token;
    let refused = world.decide(&act(seal(&target, old, "late"), 1));
    assert_eq!((refused.reply.decision(), refused.writes.len()), ("fenced_off", 1));
    assert!(entries(&refused.writes).is_empty());
    for command in [renew(&target, own), release(&target, own)] {
        assert_eq!(entries(&world.decide(&act(command, 1)).writes).len(), 1);
    }
}

#[test]
fn entry_says_when_who_what_on_what_and_why_and_is_swept_after_its_retention() {
    let target = target_in(scope(OnLapse::Recover), "1");
    let mut world = World::new();
    world.done(&claim(&target), "r");
    world.pass(3);
    assert_eq!(world.say(&act(forget(&target), 9)), "forgotten");
    let key = RowKey::audit(START.plus(3), 9);
    let subject = Subject {
        tenant: Some(Tenant::new("acme")),
        on: format!("BOOKING/{}", &*target.key.hex()),
        why: Some("asked".into()),
    };
    let wanted = AuditEntry {
        at: START.plus(3),
        by: "ann".into(),
        op: "resolve".into(),
        outcome: "forgotten".into(),
        subject,
        trace: Some(HolderTrace([7; 16])),
        expires: START.plus(3 + RETAIN_MS),
    };
    assert_eq!(world.record(key).and_then(Record::as_audit_entry).map(|entry| &**entry), Some(&wanted));
    world.pass(RETAIN_MS - 1);
    world.sweep();
    assert!(world.record(key).is_some());
    world.pass(1);
    world.sweep();
    assert!(world.record(key).is_none());
}

#[test]
fn note_of_an_act_outside_of_the_store_is_an_entry_alone() {
    let subject = Subject { on: "policy.yml".into(), ..Subject::default() };
    let note = Note { subject: subject.clone(), outcome: "reloaded", operator: operator(), id: 1 };
    let decision = World::new().decide(&audit::Command::Note(note.into()).into());
    let [entry] = entries(&decision.writes)[..] else { panic!("{decision:?}") };
    assert_eq!((entry.outcome.as_str(), &entry.subject), ("reloaded", &subject));
}

#[test]
fn addresses_are_in_order_of_time_with_the_newest_first_and_say_their_place() {
    let key = |at, id| RowKey::audit(Millis(at), id);
    let ordered = [key(u64::MAX, 0), key(9, u64::MAX), key(9, 0), key(8, 1), key(0, 0)];
    assert!(ordered.is_sorted());
    for (place, key) in [((9, 7), key(9, 7)), ((0, u64::MAX), key(0, u64::MAX))] {
        let (at, id) = key.audit_place();
        assert_eq!(((at.0, id), key.kind), (place, Kind::Audit));
        assert!(key.id.starts_with(RowKey::audit_prefix()));
    }
}
