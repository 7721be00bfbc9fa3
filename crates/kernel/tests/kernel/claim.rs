//! The reply to a claim and the rows it leaves behind: tokens, attempts, earlier attempts, first bodies.

use fencepost_kernel::{
    Command, Reply, Scope,
    fence::{
        self, DoubtOutcome, Earlier, HolderTrace, Target, Token, What,
        scope::{BodyMismatch, OnLapse},
    },
};

use super::world::{
    LEASE_MS, RETAIN_MS, START, World, body, claim, claim_body, claim_with, release, renew, resolve, scope, seal,
    target, target_in,
};

fn lapse(world: &mut World) {
    world.pass(LEASE_MS);
}

fn give_back(world: &mut World, target: &Target, token: Token) {
    assert_eq!(world.say(&release(target, token)), "released");
}

// INVARIANT one-seal
#[test]
fn one_seal_survives_racing_claims() {
    let target = target();
    let mut world = World::new();
    // All of them read the same absent row before any of them commits.
    let racing: Vec<_> = (0..64).map(|_| world.decide(&claim(&target))).collect();
    let applied: Vec<bool> = racing.iter().map(|decision| world.commit(&decision.writes)).collect();
    assert_eq!(applied.iter().filter(|applied| **applied).count(), 1);
    // Those that moved are decided again, over what is there now.
    let again: Vec<_> = (1..64).map(|_| world.say(&claim(&target))).collect();
    assert!(again.iter().all(|decision| *decision == "in_flight"));

    let token = world.fence(&target).unwrap().token;
    let seals: Vec<_> = (0..8).map(|n| world.decide(&seal(&target, token, &n.to_string()))).collect();
    assert_eq!(seals.iter().filter(|decision| world.commit(&decision.writes)).count(), 1);
    assert_eq!(world.receipt(&target).as_deref(), Some("0"));
    assert_eq!(world.say(&seal(&target, token, "7")), "conflict");
    assert_eq!(world.receipt(&target).as_deref(), Some("0"));
}

// INVARIANT growing-token
#[test]
fn growing_token_across_release_lapse_expiry_and_sweep() {
    let target = target();
    let mut world = World::new();
    let mut last = Token(0);
    let mut next = |world: &mut World| {
        let token = world.granted(&claim(&target)).token;
        assert!(token > last, "{token:?} after {last:?}");
        last = token;
        token
    };
    let first = next(&mut world);
    assert_eq!(first.0, START.0, "an empty store knows no more than the time");
    give_back(&mut world, &target, first);
    next(&mut world);
    lapse(&mut world);
    let third = next(&mut world);
    world.run(&seal(&target, third, "1"));
    world.pass(RETAIN_MS);
    let fourth = next(&mut world);
    world.run(&seal(&target, fourth, "1"));
    world.pass(RETAIN_MS);
    world.sweep();
    assert_eq!(world.phase(&target), "absent");
    next(&mut world);
}

// A burst of claims within one millisecond runs ahead of the clock. Were the row dropped before the clock has caught
// up, the next life would start below tokens that are still out there.
#[test]
fn growing_token_even_where_a_burst_outruns_a_short_retention() {
    for retain_ms in [0, 1, 5] {
        let target = target_in(Scope { retain_ms, ..scope(OnLapse::Recover) }, "1");
        let mut world = World::new();
        let mut last = Token(0);
        for _ in 0..20 {
            for _ in 0..10 {
                let token = world.granted(&claim(&target)).token;
                assert!(token > last, "{token:?} after {last:?} with a retention of {retain_ms} ms");
                last = token;
                give_back(&mut world, &target, token);
                world.sweep();
            }
            world.pass(1);
            world.sweep();
        }
    }
}

#[test]
fn zombie_of_an_earlier_life_is_fenced_off() {
    let target = target();
    let mut world = World::new();
    let zombie = world.done(&claim(&target), "1");
    world.pass(RETAIN_MS);
    let current = world.granted(&claim(&target)).token;
    for command in [seal(&target, zombie, "1"), renew(&target, zombie), release(&target, zombie)] {
        assert!(matches!(world.run(&command), Reply::Fence(fence::Reply::FencedOff { .. })));
    }
    assert_eq!(world.fence(&target).unwrap().token, current);
    assert_eq!(world.phase(&target), "pending");
}

#[test]
fn claim_in_flight_says_since_when_and_under_which_trace_it_is_held() {
    let target = target();
    let mut world = World::new();
    let trace = HolderTrace([7; 16]);
    let granted = world.granted(&claim_with(&target, |claim| claim.trace = Some(trace)));
    world.pass(1);
    // A renewal is not another holder.
    world.run(&renew(&target, granted.token));
    world.pass(1);
    match world.run(&claim_with(&target, |claim| claim.trace = Some(HolderTrace([8; 16])))) {
        Reply::Fence(fence::Reply::InFlight { lease_expires, first_seen, held_by }) => {
            assert_eq!((lease_expires, first_seen, held_by), (START.plus(1 + LEASE_MS), START, Some(trace)));
        }
        other => panic!("expected in flight, got {other:?}"),
    }
    // The next holder has its own.
    world.pass(LEASE_MS);
    world.granted(&claim(&target));
    assert!(matches!(
        world.run(&claim(&target)),
        Reply::Fence(fence::Reply::InFlight { first_seen: START, held_by: None, .. })
    ));
}

#[test]
fn lease_ends_exactly_when_it_says() {
    let target = target();
    let mut world = World::new();
    let granted = world.granted(&claim(&target));
    assert_eq!(granted.lease_expires, START.plus(LEASE_MS));
    world.pass(LEASE_MS - 1);
    assert!(
        matches!(world.run(&claim(&target)), Reply::Fence(fence::Reply::InFlight { lease_expires, .. }) if lease_expires == granted.lease_expires)
    );
    world.pass(1);
    assert_eq!(world.say(&claim(&target)), "new");
}

#[test]
fn recovering_claim_is_told_of_the_attempt_that_lapsed() {
    let target = target();
    let mut world = World::new();
    let first = world.granted(&claim(&target));
    lapse(&mut world);
    world.pass(5);
    let second = world.granted(&claim(&target));
    let earlier = Earlier { token: first.token, attempt: 1, lease_expired: first.lease_expires };
    assert_eq!((second.attempt, second.recovering, second.first_seen), (2, Some(earlier), START));
}

// The second attempt gave up: that says nothing of the first, whose effect may well have happened.
#[test]
fn recovering_goes_on_after_the_recoverer_gave_up() {
    let target = target();
    let mut world = World::new();
    let first = world.granted(&claim(&target)).token;
    lapse(&mut world);
    for attempt in 2..40 {
        let granted = world.granted(&claim(&target));
        let earlier = granted.recovering.expect("nobody knows the outcome of the first attempt");
        assert_eq!((granted.attempt, earlier.token), (attempt, first));
        assert_eq!(earlier.lease_expired, START.plus(LEASE_MS));
        // How far back it was is told as long as the events reach there.
        assert!(earlier.attempt == 1 || attempt > 12, "{earlier:?} told to attempt {attempt}");
        give_back(&mut world, &target, granted.token);
    }
    // The latest lapse is the one to ask about.
    let lapsed = world.granted(&claim(&target));
    lapse(&mut world);
    let next = world.granted(&claim(&target));
    assert_eq!(next.recovering.map(|earlier| (earlier.token, earlier.attempt)), Some((lapsed.token, 40)));
}

// Nor does it make room for another request: the first one's effect would stand beside the other's.
#[test]
fn another_body_is_a_conflict_as_long_as_nobody_knows_what_became_of_the_first() {
    let target = target();
    let mut world = World::new();
    let first = world.granted(&claim_body(&target, "1")).token;
    lapse(&mut world);
    let second = world.granted(&claim_body(&target, "1")).token;
    give_back(&mut world, &target, second);
    assert_eq!(world.say(&claim_body(&target, "2")), "conflict");
    let third = world.granted(&claim_body(&target, "1"));
    assert_eq!(third.recovering.map(|earlier| earlier.token), Some(first));
    world.run(&seal(&target, third.token, "1"));
    assert_eq!(world.say(&claim_body(&target, "2")), "conflict");
    assert_eq!(world.say(&claim_body(&target, "1")), "duplicate");
}

#[test]
fn released_attempts_that_never_lapsed_leave_nothing_to_recover() {
    let target = target();
    let mut world = World::new();
    for attempt in 1..40 {
        let granted = world.granted(&claim(&target));
        assert_eq!((granted.attempt, granted.recovering), (attempt, None));
        give_back(&mut world, &target, granted.token);
    }
}

#[test]
fn late_release_by_the_holder_leaves_nothing_to_recover() {
    let target = target();
    let mut world = World::new();
    let token = world.granted(&claim(&target)).token;
    lapse(&mut world);
    give_back(&mut world, &target, token);
    assert_eq!(world.granted(&claim(&target)).recovering, None);
}

#[test]
fn person_who_resolved_a_doubt_leaves_nothing_to_recover() {
    let target = target_in(scope(OnLapse::Hold), "1");
    let mut world = World::new();
    world.granted(&claim(&target));
    lapse(&mut world);
    assert_eq!(world.say(&resolve(&target, DoubtOutcome::Released)), "resolved");
    let granted = world.granted(&claim(&target));
    assert_eq!((granted.attempt, granted.recovering), (2, None));
}

#[test]
fn lapsed_and_released_fences_are_forgotten_after_one_retention_but_a_doubt_never() {
    for on_lapse in [OnLapse::Recover, OnLapse::Hold] {
        let target = target_in(scope(on_lapse), "1");
        let mut world = World::new();
        world.granted(&claim(&target));
        world.pass(LEASE_MS + RETAIN_MS - 1);
        assert_eq!(world.phase(&target), if on_lapse == OnLapse::Hold { "in_doubt" } else { "lapsed" });
        world.pass(1);
        assert_eq!(world.phase(&target), if on_lapse == OnLapse::Hold { "in_doubt" } else { "expired" });
        world.pass(1_000 * RETAIN_MS);
        world.sweep();
        assert_eq!(world.say(&claim(&target)), if on_lapse == OnLapse::Hold { "in_doubt" } else { "new" });
    }
}

#[test]
fn new_life_starts_counting_again() {
    let target = target();
    let mut world = World::new();
    let token = world.granted(&claim_body(&target, "1")).token;
    give_back(&mut world, &target, token);
    world.pass(RETAIN_MS);
    let granted = world.granted(&claim_body(&target, "2"));
    assert_eq!((granted.attempt, granted.first_seen, granted.recovering), (1, world.now, None));
    assert!(world.fence(&target).unwrap().events.is_empty());
}

#[test]
fn first_body_of_a_life_stands_even_where_the_first_claim_had_none() {
    let target = target();
    let mut world = World::new();
    let token = world.granted(&claim(&target)).token;
    assert_eq!(world.say(&claim_body(&target, "1")), "in_flight");
    assert_eq!(world.fence(&target).unwrap().body, None, "only a granted claim leaves its body");
    give_back(&mut world, &target, token);
    world.done(&claim_body(&target, "2"), "1");
    assert_eq!(world.say(&claim_body(&target, "3")), "conflict");
    assert_eq!(world.say(&claim_body(&target, "2e0")), "duplicate");
}

#[test]
fn body_digest_is_not_dropped_at_the_seal() {
    let target = target();
    let mut world = World::new();
    world.done(&claim_body(&target, "[1]"), "1");
    let Reply::Fence(fence::Reply::Conflict(mismatch)) = world.run(&claim_body(&target, "[2]")) else {
        panic!("no conflict")
    };
    assert_eq!(Some(mismatch.first), body("[1]"));
    assert_eq!(Some(mismatch.second), body("[2]"));
    assert_eq!(mismatch.effect_id.as_deref(), Some("effect"), "the one that stands");
}

#[test]
fn conflict_with_a_claim_that_is_under_way_names_no_effect_yet() {
    let target = target();
    let mut world = World::new();
    world.granted(&claim_body(&target, "[1]"));
    let Reply::Fence(fence::Reply::Conflict(mismatch)) = world.run(&claim_body(&target, "[2]")) else {
        panic!("no conflict")
    };
    assert_eq!(mismatch.effect_id, None);
}

#[test]
fn same_body_asked_of_another_place_is_a_conflict() {
    let target = target();
    let ask = |method: &str, path: &str| body("{}").map(|body| body.asked_of(method, path));
    let asked = |path: &str| claim_with(&target, |claim| claim.body = ask("POST", path));
    let mut world = World::new();
    world.done(&asked("/a"), "1");
    assert_eq!(world.say(&asked("/a")), "duplicate");
    assert_eq!(world.say(&asked("/b")), "conflict");
    assert_eq!(world.say(&claim_with(&target, |claim| claim.body = ask("PUT", "/a"))), "conflict");
    // A method does not spill into a path.
    assert_ne!(ask("POS", "T/a"), ask("POST", "/a"));
}

#[test]
fn same_request_of_another_user_is_a_conflict() {
    let target = target();
    let ask = |user: Option<&str>| {
        let asked = body("{}").map(|body| body.asked_of("POST", "/a"));
        match user {
            Some(user) => asked.map(|body| body.asked_by(user)),
            None => asked,
        }
    };
    let by = |user: Option<&str>| claim_with(&target, |claim| claim.body = ask(user));
    let mut world = World::new();
    world.done(&by(Some("alice")), "1");
    assert_eq!(world.say(&by(Some("alice"))), "duplicate");
    for other in [Some("bob"), Some("Alice"), Some(""), None] {
        assert_eq!(world.say(&by(other)), "conflict", "{other:?}");
    }
}

/// The gateway's fence of signed bytes rests on it: its lease is over at once.
#[test]
fn content_is_compared_past_a_lease_and_its_holder_can_still_give_it_back() {
    let target = target_in(scope(OnLapse::Recover), "1");
    let asked = |text: &str| {
        claim_with(&target, |claim| {
            claim.body = body(text);
            claim.lease_ms = 1;
        })
    };
    let mut world = World::new();
    let first = world.granted(&asked("1")).token;
    world.pass(5);
    assert_eq!(world.say(&asked("2")), "conflict");
    give_back(&mut world, &target, first);
    let second = world.granted(&asked("2")).token;
    world.pass(5);
    assert_eq!(world.say(&asked("1")), "conflict");
    let third = world.granted(&asked("2")).token;
    assert!(third > second);
    world.pass(5);
    world.run(&seal(&target, third, "1"));
    assert_eq!((world.say(&asked("2")), world.say(&asked("1"))), ("duplicate", "conflict"));
}

#[test]
fn a_released_key_may_be_used_for_something_else() {
    let target = target_in(scope(OnLapse::Recover), "1");
    let mut world = World::new();
    let token = world.granted(&claim_body(&target, "1")).token;
    give_back(&mut world, &target, token);
    world.done(&claim_body(&target, "2"), "1");
    assert_eq!(world.fence(&target).unwrap().body, body("2"));
    assert_eq!(world.say(&claim_body(&target, "1")), "conflict");
}

#[test]
fn scope_that_lets_other_bodies_pass_says_so_and_keeps_the_first() {
    let target = target_in(Scope { body_mismatch: BodyMismatch::Replay, ..scope(OnLapse::Recover) }, "1");
    let mut world = World::new();
    let token = world.granted(&claim_body(&target, "1")).token;
    assert_eq!(world.say(&claim_body(&target, "2")), "in_flight");
    world.run(&seal(&target, token, "1"));
    assert_eq!(world.fence(&target).unwrap().body, body("1"));
    let differs = |world: &mut World, command: &Command| match world.run(command) {
        Reply::Fence(fence::Reply::Duplicate { body_differs, .. }) => body_differs,
        other => panic!("expected a duplicate, got {other:?}"),
    };
    assert!(differs(&mut world, &claim_body(&target, "2")));
    assert!(!differs(&mut world, &claim_body(&target, "1")));
    assert!(!differs(&mut world, &claim(&target)));
}

#[test]
fn history_is_bounded_and_keeps_a_persons_word_longest() {
    let target = target_in(scope(OnLapse::Hold), "1");
    let mut world = World::new();
    world.granted(&claim(&target));
    lapse(&mut world);
    world.run(&resolve(&target, DoubtOutcome::Released));
    for _ in 0..50 {
        let token = world.granted(&claim(&target)).token;
        give_back(&mut world, &target, token);
    }
    let events = &world.fence(&target).unwrap().events;
    assert_eq!(events.len(), fencepost_kernel::fence::EVENTS_MAX);
    assert!(
        matches!(&events[0].what, What::Resolved { by, why, sealed: false } if by == "ada" && why == "asked the bank")
    );
}
