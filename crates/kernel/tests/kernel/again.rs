//! Deliberate repetitions: one number, one effect, in order.

use fencepost_kernel::{
    Reply,
    fence::{
        self, DoubtOutcome, Target,
        scope::{OnLapse, Scope},
    },
};

use super::world::{
    LEASE_MS, RETAIN_MS, World, claim, claim_body, release, resolve, resolve_sealed, scope, seal, target_of,
};

fn resend(on_lapse: OnLapse, seq: u64) -> Target {
    target_of(Scope { again: Some("resendSeq".into()), ..scope(on_lapse) }, &[("id", "1")], Some(seq))
}

fn nth(seq: u64) -> Target {
    resend(OnLapse::Recover, seq)
}

fn first(on_lapse: OnLapse) -> Target {
    target_of(Scope { again: Some("resendSeq".into()), ..scope(on_lapse) }, &[("id", "1")], None)
}

#[track_caller]
fn gap(world: &mut World, seq: u64, expected: (u64, bool)) {
    match world.run(&claim(&nth(seq))) {
        Reply::Fence(fence::Reply::SequenceGap { last, sealed }) => assert_eq!((last, sealed), expected),
        other => panic!("expected a gap, got {other:?}"),
    }
}

#[test]
fn double_clicked_resend_sends_once() {
    let mut world = World::new();
    world.done(&claim(&first(OnLapse::Recover)), "0");
    let token = world.granted(&claim(&nth(1))).token;
    assert_eq!(world.say(&claim(&nth(1))), "in_flight");
    world.run(&seal(&nth(1), token, "1"));
    assert_eq!(world.say(&claim(&nth(1))), "duplicate");
    assert_eq!(world.receipt(&nth(1)).as_deref(), Some("1"));
    assert_eq!(world.receipt(&first(OnLapse::Recover)).as_deref(), Some("0"));
}

// INVARIANT no-gap
#[test]
fn no_gap_opens_in_a_sequence() {
    let mut world = World::new();
    gap(&mut world, 2, (0, true));
    for seq in 1..6 {
        gap(&mut world, seq + 1, (seq - 1, true));
        let token = world.granted(&claim(&nth(seq))).token;
        gap(&mut world, seq + 1, (seq, false));
        gap(&mut world, seq + 2, (seq, false));
        world.run(&seal(&nth(seq), token, "1"));
        gap(&mut world, seq + 2, (seq, true));
        for earlier in 1..=seq {
            assert_eq!(world.say(&claim(&nth(earlier))), "duplicate");
        }
    }
}

#[test]
fn number_that_was_never_given_out_is_refused() {
    let world = World::new();
    for seq in [0, u64::MAX - 1, u64::MAX] {
        assert!(world.decide(&claim(&nth(seq))).writes.is_empty(), "{seq} must not run");
    }
}

#[test]
fn racing_repetitions_run_once() {
    let mut world = World::new();
    let racing: Vec<_> = (0..8).map(|_| world.decide(&claim(&nth(1)))).collect();
    assert_eq!(racing.iter().filter(|decision| world.commit(&decision.writes)).count(), 1);
}

#[test]
fn released_or_lapsed_repetition_runs_under_its_own_number() {
    let mut world = World::new();
    let token = world.granted(&claim(&nth(1))).token;
    world.run(&release(&nth(1), token));
    gap(&mut world, 2, (1, false));
    world.granted(&claim(&nth(1)));
    world.pass(LEASE_MS);
    gap(&mut world, 2, (1, false));
    let granted = world.granted(&claim(&nth(1)));
    assert_eq!((granted.attempt, granted.recovering.is_some()), (3, true));
    assert_eq!(world.say(&seal(&nth(1), token, "old")), "fenced_off");
    gap(&mut world, 2, (1, false));
    world.run(&seal(&nth(1), granted.token, "1"));
    assert_eq!(world.say(&claim(&nth(2))), "new");
}

#[test]
fn repetition_in_doubt_holds_the_ones_after_it() {
    let (one, two) = (resend(OnLapse::Hold, 1), resend(OnLapse::Hold, 2));
    for (word, next) in [(resolve_sealed(&one, "1"), "new"), (resolve(&one, DoubtOutcome::Released), "sequence_gap")] {
        let mut world = World::new();
        world.granted(&claim(&one));
        world.pass(LEASE_MS);
        assert_eq!(world.say(&claim(&one)), "in_doubt");
        assert_eq!(world.say(&claim(&two)), "sequence_gap");
        assert_eq!(world.say(&word), "resolved");
        assert_eq!(world.say(&claim(&two)), next);
    }
}

#[test]
fn first_repetition_waits_for_the_effect_itself() {
    let (base, one) = (first(OnLapse::Hold), resend(OnLapse::Hold, 1));
    let mut world = World::new();
    let token = world.granted(&claim(&base)).token;
    assert_eq!(world.say(&claim(&one)), "in_flight");
    world.pass(LEASE_MS);
    assert_eq!(world.say(&claim(&one)), "in_doubt");
    world.run(&seal(&base, token, "0"));
    assert_eq!(world.say(&claim(&one)), "new");
}

#[test]
fn an_effect_that_has_not_happened_is_not_repeated() {
    let base = first(OnLapse::Recover);
    let mut world = World::new();
    let token = world.granted(&claim(&base)).token;
    world.run(&release(&base, token));
    gap(&mut world, 1, (0, false));
    let token = world.granted(&claim(&base)).token;
    world.pass(LEASE_MS);
    gap(&mut world, 1, (0, false));
    world.run(&seal(&base, token, "0"));
    assert_eq!(world.say(&claim(&nth(1))), "new");
    // A forgotten effect may have happened.
    assert_eq!(World::new().say(&claim(&nth(1))), "new");
}

#[test]
fn every_repetition_has_its_own_body() {
    let mut world = World::new();
    world.done(&claim_body(&first(OnLapse::Recover), "0"), "0");
    world.done(&claim_body(&nth(1), "1"), "1");
    assert_eq!(world.say(&claim_body(&nth(1), "0")), "conflict");
    assert_eq!(world.say(&claim_body(&nth(1), "1")), "duplicate");
    assert_eq!(world.say(&claim_body(&nth(2), "0")), "new");
}

#[test]
fn used_number_does_not_run_again_while_the_sequence_lives() {
    let mut world = World::new();
    world.done(&claim(&nth(1)), "1");
    world.pass(RETAIN_MS / 2);
    world.done(&claim(&nth(2)), "2");
    world.pass(RETAIN_MS / 2);
    world.sweep();
    assert_eq!(world.phase(&nth(1)), "absent");
    assert_eq!(world.say(&claim(&nth(1))), "stale");
    assert_eq!(world.say(&claim(&nth(2))), "duplicate");
    assert_eq!(world.say(&claim(&nth(3))), "new");
}

#[test]
fn sequence_is_forgotten_with_its_last_receipt() {
    for swept in [false, true] {
        let mut world = World::new();
        world.done(&claim(&nth(1)), "1");
        world.done(&claim(&nth(2)), "2");
        world.pass(RETAIN_MS);
        if swept {
            world.sweep();
            assert!(world.again_head(&nth(1)).is_none());
        }
        gap(&mut world, 3, (0, true));
        gap(&mut world, 2, (0, true));
        assert_eq!(world.say(&claim(&nth(1))), "new");
        gap(&mut world, 2, (1, false));
    }
}
