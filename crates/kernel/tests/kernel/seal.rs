//! Requests by the holder of a token, late or repeated, and by a person in its place.

use fencepost_kernel::{
    Command, Reply, RowKey,
    fence::{self, DoubtOutcome, REFUSALS_MAX, Target, Token, What, scope::OnLapse},
    row::Record,
};

use super::world::{
    LEASE_MS, RETAIN_MS, START, World, alias, claim, release, renew, resolve, resolve_sealed, scope, seal, target,
    target_in,
};

fn whats(world: &World, target: &Target) -> Vec<What> {
    world.fence(target).unwrap().events.iter().map(|event| event.what.clone()).collect()
}

fn doubt() -> (World, Target, Token) {
    let target = target_in(scope(OnLapse::Hold), "1");
    let mut world = World::new();
    let token = world.granted(&claim(&target)).token;
    world.pass(LEASE_MS);
    assert_eq!(world.phase(&target), "in_doubt");
    (world, target, token)
}

fn replay(reply: Reply) -> bool {
    match reply {
        Reply::Fence(fence::Reply::Sealed { replay, .. })
        | Reply::Fence(fence::Reply::Released { replay })
        | Reply::Fence(fence::Reply::Resolved { replay }) => replay,
        Reply::Fence(fence::Reply::Aliased { replay, .. }) => replay,
        other => panic!("{other:?} is no outcome"),
    }
}

#[test]
fn late_seal_after_reclaim_is_refused_and_recorded_once() {
    let target = target();
    let mut world = World::new();
    let old = world.granted(&claim(&target)).token;
    world.pass(LEASE_MS);
    let current = world.granted(&claim(&target)).token;
    for _ in 0..3 {
        let reply = world.run(&seal(&target, old, "old"));
        assert!(matches!(reply, Reply::Fence(fence::Reply::FencedOff { current: Some(told) }) if told == current));
    }
    assert_eq!(whats(&world, &target), [What::Recovered, What::SealRefused]);
    assert_eq!(world.fence(&target).unwrap().events[1].token, old);
    assert_eq!(world.say(&seal(&target, current, "new")), "sealed");
    world.run(&seal(&target, old, "old"));
    assert_eq!(world.receipt(&target).as_deref(), Some("new"));
}

#[test]
fn hostile_holder_cannot_make_a_fence_write_for_ever() {
    let target = target();
    let mut world = World::new();
    let token = world.granted(&claim(&target)).token;
    let recorded =
        (1..100).filter(|n| !world.decide(&seal(&target, Token(token.0 - n), "1")).writes.is_empty()).count();
    assert_eq!(recorded, 99, "each would be recorded alone");
    for n in 1..100 {
        world.run(&seal(&target, Token(token.0 - n), "1"));
    }
    assert_eq!(whats(&world, &target).len(), REFUSALS_MAX);
    assert_eq!(world.phase(&target), "pending");
}

#[test]
fn current_token_seals_after_its_lease_while_nobody_reclaimed() {
    let target = target();
    let mut world = World::new();
    let token = world.granted(&claim(&target)).token;
    world.pass(LEASE_MS + 1);
    assert_eq!(world.say(&seal(&target, token, "1")), "sealed");
    assert_eq!(whats(&world, &target), [What::SealedLate]);
}

#[test]
fn late_seal_of_the_holder_ends_the_doubt_and_is_recorded() {
    let (mut world, target, token) = doubt();
    assert_eq!(world.say(&seal(&target, token, "1")), "sealed");
    assert_eq!(whats(&world, &target), [What::SealedLate]);
    assert_eq!(world.say(&resolve(&target, DoubtOutcome::Released)), "not_in_doubt");
    assert_eq!(world.say(&claim(&target)), "duplicate");
}

#[test]
fn retention_counts_from_the_seal() {
    let target = target();
    let mut world = World::new();
    let token = world.granted(&claim(&target)).token;
    world.pass(20_000);
    let Reply::Fence(fence::Reply::Sealed { at, expires, first_seen: START, replay: false, source: None }) =
        world.run(&seal(&target, token, "1"))
    else {
        panic!()
    };
    assert_eq!((at, expires), (START.plus(20_000), START.plus(20_000 + RETAIN_MS)));
    world.pass(RETAIN_MS - 1);
    // A repeated seal tells the first one's times and prolongs nothing.
    let again = world.run(&seal(&target, token, "1"));
    assert!(
        matches!(again, Reply::Fence(fence::Reply::Sealed { at: a, expires: e, replay: true, .. }) if (a, e) == (at, expires))
    );
    assert_eq!(world.say(&claim(&target)), "duplicate");
    world.pass(1);
    assert_eq!(world.say(&claim(&target)), "new");
}

#[test]
fn another_effect_id_is_other_content() {
    let target = target();
    let mut world = World::new();
    let token = world.done(&claim(&target), "1");
    let mut command = seal(&target, token, "1");
    if let Command::Fence(fence::Command::Seal(seal)) = &mut command {
        seal.effect_id = "another".into();
    }
    assert!(
        matches!(world.run(&command), Reply::Fence(fence::Reply::SealConflict { effect_id }) if effect_id == "effect")
    );
}

#[test]
fn renewing_moves_the_lease_from_now_and_a_lapsed_one_comes_back() {
    let target = target();
    let mut world = World::new();
    let token = world.granted(&claim(&target)).token;
    world.pass(LEASE_MS - 1);
    assert!(
        matches!(world.run(&renew(&target, token)), Reply::Fence(fence::Reply::Renewed { lease_expires }) if lease_expires == world.now.plus(LEASE_MS))
    );
    world.pass(LEASE_MS);
    assert_eq!(world.phase(&target), "lapsed");
    assert_eq!(world.say(&renew(&target, token)), "renewed");
    assert_eq!(world.say(&claim(&target)), "in_flight");
    assert_eq!(world.fence(&target).unwrap().attempt, 1);
}

#[test]
fn a_token_that_was_never_given_is_refused_and_leaves_no_trace() {
    let target = target();
    let mut world = World::new();
    let token = world.granted(&claim(&target)).token;
    world.run(&seal(&target, token, "1"));
    for made_up in [token.0 + 1, 1 << 53, u64::MAX] {
        let decision = world.decide(&seal(&target, Token(made_up), "x"));
        assert!(
            decision.writes.is_empty() && matches!(decision.reply, Reply::Fence(fence::Reply::FencedOff { .. })),
            "{made_up}"
        );
    }
}

#[test]
fn doubt_is_not_ended_by_more_time() {
    let (mut world, target, token) = doubt();
    assert!(
        matches!(world.run(&renew(&target, token)), Reply::Fence(fence::Reply::InDoubt { since }) if since == START.plus(LEASE_MS))
    );
    assert_eq!(world.phase(&target), "in_doubt");
}

#[test]
fn seal_after_the_key_was_given_back_is_refused_and_recorded() {
    let (mut world, target, token) = doubt();
    world.run(&resolve(&target, DoubtOutcome::Released));
    // The person was wrong, or the holder is: either way somebody should be able to see it.
    assert!(matches!(world.run(&seal(&target, token, "1")), Reply::Fence(fence::Reply::FencedOff { current: None })));
    assert_eq!(whats(&world, &target).last(), Some(&What::SealRefused));
    assert_eq!(world.phase(&target), "released");
    assert!(world.decide(&seal(&target, token, "1")).writes.is_empty());
}

#[test]
fn resolution_is_safe_to_repeat() {
    let (mut world, target, _) = doubt();
    assert!(!replay(world.run(&resolve_sealed(&target, "1"))));
    assert!(replay(world.run(&resolve_sealed(&target, "1"))));
    assert_eq!(world.receipt(&target).as_deref(), Some("1"));
    assert_eq!(world.say(&resolve(&target, DoubtOutcome::Released)), "not_in_doubt");

    let (mut world, target, _) = doubt();
    assert!(!replay(world.run(&resolve(&target, DoubtOutcome::Released))));
    assert!(replay(world.run(&resolve(&target, DoubtOutcome::Released))));
    assert_eq!(world.say(&resolve_sealed(&target, "1")), "not_in_doubt");
    assert_eq!(whats(&world, &target).len(), 1);
}

#[test]
fn resolution_with_another_receipt_is_no_repeat() {
    let (mut world, target, _) = doubt();
    world.run(&resolve_sealed(&target, "1"));
    assert_eq!(world.say(&resolve_sealed(&target, "2")), "not_in_doubt");
    assert_eq!(world.receipt(&target).as_deref(), Some("1"));
}

#[test]
fn doubt_that_comes_back_is_a_new_doubt() {
    let (mut world, target, _) = doubt();
    world.run(&resolve(&target, DoubtOutcome::Released));
    world.granted(&claim(&target));
    world.pass(LEASE_MS);
    assert_eq!(world.say(&claim(&target)), "in_doubt");
    let Command::Fence(fence::Command::Resolve(mut word)) = resolve(&target, DoubtOutcome::Released) else {
        unreachable!()
    };
    word.why = "asked the bank again".into();
    assert!(!replay(world.run(&Command::Fence(fence::Command::Resolve(word)))));
    assert_eq!(world.granted(&claim(&target)).attempt, 3);
}

#[test]
fn release_is_safe_to_repeat_until_somebody_else_claims() {
    let target = target();
    let mut world = World::new();
    let token = world.granted(&claim(&target)).token;
    assert!(!replay(world.run(&release(&target, token))));
    assert!(replay(world.run(&release(&target, token))));
    world.granted(&claim(&target));
    assert_eq!(world.say(&release(&target, token)), "fenced_off");
    assert_eq!(world.phase(&target), "pending");
}

#[test]
fn alias_outlives_its_fence_and_moves_only_to_another_receipt() {
    let (first, second) = (target(), target_in(scope(OnLapse::Recover), "2"));
    let mut world = World::new();
    world.done(&claim(&first), "1");
    assert!(!replay(world.run(&alias(&first, "latest"))));
    assert!(replay(world.run(&alias(&first, "latest"))));
    world.done(&claim(&second), "2");
    world.pass(RETAIN_MS - 1);
    assert!(!replay(world.run(&alias(&second, "latest"))));
    world.pass(RETAIN_MS);
    world.sweep();
    assert_eq!(world.phase(&second), "absent");
    let standing = |world: &World| match world.record(RowKey::alias(&first.tenant, "latest")) {
        Some(Record::Fence(fence::Record::Alias(alias))) => {
            (alias.target, String::from_utf8_lossy(&alias.receipt.body).into_owned())
        }
        other => panic!("no alias but {other:?}"),
    };
    assert_eq!(standing(&world), (second.key, "2".to_owned()));
    // The same fence in a later life has another receipt: the name moves to that.
    world.done(&claim(&second), "3");
    assert!(!replay(world.run(&alias(&second, "latest"))));
    assert_eq!(standing(&world), (second.key, "3".to_owned()));
}

#[test]
fn a_late_repeat_of_a_resolution_does_not_end_a_later_doubt() {
    let (mut world, target, _) = doubt();
    let word = resolve(&target, DoubtOutcome::Released);
    assert!(!replay(world.run(&word)));
    let second = world.granted(&claim(&target)).token;
    world.pass(LEASE_MS);
    assert_eq!(world.phase(&target), "in_doubt");
    assert!(replay(world.run(&word)));
    assert_eq!(world.phase(&target), "in_doubt", "nobody has looked at this one");
    let Command::Fence(fence::Command::Resolve(mut named)) = word else { unreachable!() };
    named.token = Some(second);
    assert!(!replay(world.run(&Command::Fence(fence::Command::Resolve(named)))));
    assert_eq!(world.phase(&target), "released");
}

// INVARIANT final-refusal: a decision from before the expiry cannot land after the refusal, which moved the row.
#[test]
fn final_refusal_moves_the_row_once_and_forgets_it_no_later() {
    let asks: [fn(&Target, Token) -> Command; 3] = [|target, token| seal(target, token, "1"), renew, release];
    for (early, late) in asks.iter().flat_map(|early| asks.iter().map(move |late| (early, late))) {
        let (target, mut world) = (target(), World::new());
        let token = world.granted(&claim(&target)).token;
        world.pass(LEASE_MS + RETAIN_MS - 1);
        let in_flight = world.decide(&early(&target, token));
        assert!(!in_flight.writes.is_empty());
        world.pass(1);
        let stranger = world.decide(&late(&target, Token(token.0 - 1)));
        assert!(stranger.only_answers(), "only the holder's own claim can be revived");
        assert!(matches!(world.run(&late(&target, token)), Reply::Fence(fence::Reply::FencedOff { current: None })));
        assert!(!world.commit(&in_flight.writes), "refused, and then done all the same");
        assert_eq!(world.fence(&target).unwrap().expires_at(), Some(world.now));
        assert!(world.decide(&late(&target, token)).only_answers(), "a second refusal costs no commit");
        // A node whose clock is a little behind says the same.
        world.now.0 -= 1;
        assert!(matches!(
            world.run(&seal(&target, token, "1")),
            Reply::Fence(fence::Reply::FencedOff { current: None })
        ));
        assert!(matches!(world.run(&renew(&target, token)), Reply::Fence(fence::Reply::FencedOff { current: None })));
        world.pass(1);
        assert_eq!(world.granted(&claim(&target)).attempt, 1, "a new life");
    }
}
