//! A doubt that somebody was told of: the first to be told marks the row, and nothing that was decided before undoes it.

use fencepost_kernel::{
    Millis, Reply,
    fence::{
        self, DoubtOutcome, State, Target, Token,
        scope::{OnLapse, Scope},
    },
};

use super::world::{
    LEASE_MS, RETAIN_MS, World, claim, release, renew, resolve, resolve_sealed, scope, seal, target_in, target_of,
};

fn held() -> Target {
    target_in(scope(OnLapse::Hold), "1")
}

/// A claim whose lease has run out, and of which nobody was told.
fn lapsed(target: &Target) -> (World, Token) {
    let mut world = World::new();
    let token = world.granted(&claim(target)).token;
    world.pass(LEASE_MS);
    (world, token)
}

fn marked_at(world: &World, target: &Target) -> Option<Millis> {
    match world.fence(target).map(|fence| &fence.state) {
        Some(State::Pending { doubted_at, .. }) => *doubted_at,
        other => panic!("expected a pending fence, got {other:?}"),
    }
}

#[test]
fn first_in_doubt_marks_the_row_and_later_ones_write_nothing() {
    let target = held();
    for first in [claim(&target), renew(&target, lapsed(&target).1)] {
        let (mut world, token) = lapsed(&target);
        world.pass(5);
        let told = world.decide(&first);
        assert!(
            matches!(told.reply, Reply::Fence(fence::Reply::InDoubt { since }) if since.plus(5) == world.now),
            "{:?}",
            told.reply
        );
        assert_eq!(told.writes.len(), 1);
        assert!(world.commit(&told.writes));
        let first_told = world.now;
        assert_eq!(marked_at(&world, &target), Some(first_told));
        world.pass(RETAIN_MS);
        for again in [claim(&target), renew(&target, token)] {
            let told = world.decide(&again);
            assert!(
                matches!(told.reply, Reply::Fence(fence::Reply::InDoubt { .. })) && told.writes.is_empty(),
                "{told:?}"
            );
        }
        assert_eq!(marked_at(&world, &target), Some(first_told));
    }
}

// INVARIANT told-doubt
#[test]
fn told_doubt_is_not_ended_by_a_renewal_that_was_decided_before_it() {
    let target = held();
    let mut world = World::new();
    let token = world.granted(&claim(&target)).token;
    world.pass(LEASE_MS - 1);
    let late = world.decide(&renew(&target, token));
    assert!(matches!(late.reply, Reply::Fence(fence::Reply::Renewed { .. })));
    world.pass(1);
    assert_eq!(world.say(&claim(&target)), "in_doubt");
    assert!(!world.commit(&late.writes), "the mark has moved the row");
    assert_eq!(world.say(&renew(&target, token)), "in_doubt");
}

#[test]
fn marked_fence_is_in_doubt_for_a_node_whose_time_is_behind() {
    let target = held();
    let (mut world, token) = lapsed(&target);
    world.run(&claim(&target));
    world.now = Millis(world.now.0 - LEASE_MS);
    assert_eq!(world.phase(&target), "in_doubt");
    for command in [claim(&target), renew(&target, token)] {
        let told = world.decide(&command);
        assert!(matches!(told.reply, Reply::Fence(fence::Reply::InDoubt { .. })) && told.writes.is_empty(), "{told:?}");
    }
    assert_eq!(world.say(&resolve(&target, DoubtOutcome::Released)), "resolved");
}

#[test]
fn told_doubt_ends_with_an_outcome_or_with_a_persons_word() {
    let target = held();
    let (_, token) = lapsed(&target);
    for (word, said, then) in [
        (seal(&target, token, "1"), "sealed", "duplicate"),
        (release(&target, token), "released", "new"),
        (resolve_sealed(&target, "1"), "resolved", "duplicate"),
        (resolve(&target, DoubtOutcome::Released), "resolved", "new"),
    ] {
        let (mut world, _) = lapsed(&target);
        assert_eq!(world.say(&claim(&target)), "in_doubt");
        assert_eq!(world.say(&word), said);
        assert_eq!(world.say(&claim(&target)), then);
        if then == "new" {
            assert_eq!(marked_at(&world, &target), None, "the next attempt begins without a doubt");
        }
    }
}

fn repeated(on_lapse: OnLapse, seq: Option<u64>) -> Target {
    target_of(Scope { again: Some("resendSeq".into()), ..scope(on_lapse) }, &[("id", "1")], seq)
}

#[test]
fn claim_of_the_first_repetition_marks_its_base_and_not_itself() {
    let (base, first) = (repeated(OnLapse::Hold, None), repeated(OnLapse::Hold, Some(1)));
    let mut world = World::new();
    let token = world.granted(&claim(&base)).token;
    world.pass(LEASE_MS - 1);
    let late = world.decide(&renew(&base, token));
    world.pass(1);
    assert_eq!(world.say(&claim(&first)), "in_doubt");
    assert_eq!(marked_at(&world, &base), Some(world.now));
    assert_eq!(world.phase(&first), "absent");
    assert!(world.again_head(&first).is_none(), "the number is not used");
    assert!(!world.commit(&late.writes));
    assert!(world.decide(&claim(&first)).writes.is_empty());
    world.run(&seal(&base, token, "0"));
    assert_eq!(world.say(&claim(&first)), "new");
}

// The first repetition ran since nobody remembers the effect itself: a renewal of that from before its end would bring it back.
#[test]
fn first_repetition_of_a_forgotten_effect_keeps_a_late_renewal_of_it_out() {
    let (base, first) = (repeated(OnLapse::Recover, None), repeated(OnLapse::Recover, Some(1)));
    let mut world = World::new();
    let token = world.granted(&claim(&base)).token;
    world.pass(LEASE_MS + RETAIN_MS - 1);
    let late = [renew(&base, token), seal(&base, token, "0")].map(|command| world.decide(&command));
    world.pass(1);
    assert_eq!(world.phase(&base), "expired");
    assert_eq!(world.say(&claim(&first)), "new");
    for late in late {
        assert!(!world.commit(&late.writes), "{:?}", late.reply);
    }
    assert_eq!(world.say(&renew(&base, token)), "fenced_off");
}

#[test]
fn scope_that_changes_on_lapse_leaves_a_told_doubt_as_it_is() {
    let (hold, recover) = (held(), target_in(scope(OnLapse::Recover), "1"));
    let (mut world, token) = lapsed(&hold);
    assert_eq!(world.say(&claim(&hold)), "in_doubt");
    for command in [claim(&recover), renew(&recover, token)] {
        assert_eq!(world.say(&command), "in_doubt");
    }
    world.pass(RETAIN_MS);
    assert_eq!(world.phase(&hold), "in_doubt", "it is never forgotten");
    assert_eq!(world.say(&resolve(&recover, DoubtOutcome::Released)), "resolved");
    assert_eq!(world.say(&claim(&recover)), "new");
}

#[test]
fn claim_keeps_the_on_lapse_that_it_was_given_or_renewed_under() {
    let (hold, recover) = (held(), target_in(scope(OnLapse::Recover), "1"));
    // Granted under recover: whatever the scope says now, its lapse is no doubt.
    let (mut world, _) = lapsed(&recover);
    assert_eq!(world.say(&claim(&hold)), "new");
    // Renewed under hold: now it is one.
    let mut world = World::new();
    let token = world.granted(&claim(&recover)).token;
    assert_eq!(world.say(&renew(&hold, token)), "renewed");
    world.pass(LEASE_MS);
    assert_eq!(world.say(&claim(&recover)), "in_doubt");
    assert_eq!(marked_at(&world, &hold), Some(world.now));
}

// Seen as given back, it would be free: the next holder would not hear that an attempt lapsed whose outcome nobody knows.
#[test]
fn claim_that_was_refused_for_good_is_over_for_a_node_whose_time_is_behind() {
    let target = target_in(scope(OnLapse::Recover), "1");
    let (mut world, token) = lapsed(&target);
    world.pass(RETAIN_MS);
    assert_eq!(world.say(&renew(&target, token)), "fenced_off");
    world.now = Millis(world.now.0 - 10);
    assert_eq!(world.phase(&target), "expired");
    for command in [renew(&target, token), release(&target, token), seal(&target, token, "1")] {
        let refused = world.decide(&command);
        assert!(matches!(refused.reply, Reply::Fence(fence::Reply::FencedOff { current: None })), "{refused:?}");
    }
    let next = world.granted(&claim(&target));
    assert!(next.token > token && (next.attempt, next.first_seen) == (1, world.now), "{next:?}");
}
