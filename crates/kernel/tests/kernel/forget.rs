//! Outcomes that a person gives up: the next claim is new, under a higher token, and no earlier holder gets the key back.

use fencepost_kernel::{
    Command, Reply,
    fence::{self, DoubtOutcome, Forget, Target, Token, What, scope::OnLapse},
};

use super::world::{
    LEASE_MS, RETAIN_MS, World, claim, claim_body, claim_version, release, renew, resolve, scope, seal, target,
    target_in, target_of,
};

fn forget_as(target: &Target, token: Option<Token>, why: &str) -> Command {
    let (target, by, why) = (target.clone(), "ada".to_owned(), why.to_owned());
    Command::Fence(fence::Command::Forget(Forget { target, token, by, why }))
}

fn forget(target: &Target) -> Command {
    forget_as(target, None, "the parcel was lost")
}

/// `forgotten`, and whether it says that it was so before.
fn forgotten(world: &mut World, command: &Command) -> (bool, bool) {
    match world.run(command) {
        Reply::Fence(fence::Reply::Forgotten { replay, exists }) => (replay, exists),
        other => panic!("expected forgotten, got {other:?}"),
    }
}

#[test]
fn forgotten_seal_is_followed_by_a_new_claim_with_a_higher_token_and_its_history_says_by_whom_and_why() {
    let target = target();
    let mut world = World::new();
    let first = world.done(&claim_body(&target, "{\"a\":1}"), "r1");
    let sealed_at = world.now;
    world.pass(5);
    assert_eq!(forgotten(&mut world, &forget(&target)), (false, true));
    assert_eq!((world.phase(&target), world.receipt(&target)), ("released", None));
    // The first holder's word counts no more, whatever it is.
    assert_eq!(world.say(&seal(&target, first, "r1")), "fenced_off");
    assert_eq!(world.say(&renew(&target, first)), "fenced_off");
    // The next claim may ask for something else, and is not told that anything is unsettled.
    let granted = world.granted(&claim_body(&target, "{\"a\":2}"));
    assert!(granted.token > first && granted.recovering.is_none(), "{granted:?}");
    assert_eq!(world.say(&seal(&target, granted.token, "r2")), "sealed");
    assert_eq!(world.receipt(&target).as_deref(), Some("r2"));
    let events = &world.fence(&target).unwrap().events;
    let said = What::Forgotten { by: "ada".into(), why: "the parcel was lost".into(), sealed: Some(sealed_at) };
    assert!(events.iter().any(|event| event.what == said && event.token == first), "{events:?}");
}

#[test]
fn repeated_forget_changes_nothing_also_after_the_effect_was_had_again() {
    let target = target();
    let mut world = World::new();
    let first = world.done(&claim(&target), "r1");
    assert_eq!(forgotten(&mut world, &forget(&target)), (false, true));
    for again in [forget(&target), forget_as(&target, None, "another reason"), forget_as(&target, Some(first), "late")]
    {
        assert_eq!(forgotten(&mut world, &again), (true, true));
    }
    let second = world.done(&claim(&target), "r2");
    for late in [forget(&target), forget_as(&target, Some(first), "late")] {
        assert_eq!(forgotten(&mut world, &late), (true, true));
        assert_eq!(world.receipt(&target).as_deref(), Some("r2"));
    }
    assert_eq!(world.say(&forget_as(&target, Some(Token(first.0 - 1)), "wrong")), "fenced_off");
    assert_eq!(forgotten(&mut world, &forget_as(&target, Some(second), "the parcel was lost")), (false, true));
    assert_eq!(world.receipt(&target), None);
}

#[test]
fn claim_that_may_still_have_its_effect_is_not_forgotten() {
    let mut world = World::new();
    let target = target();
    assert_eq!(forgotten(&mut world, &forget(&target)), (true, false));
    let token = world.granted(&claim(&target)).token;
    assert_eq!(world.say(&forget(&target)), "in_flight");
    world.pass(LEASE_MS + 1);
    assert_eq!((world.phase(&target), world.say(&forget(&target))), ("lapsed", "in_flight"));
    assert_eq!(world.say(&seal(&target, token, "late")), "sealed");

    let held = target_in(scope(OnLapse::Hold), "2");
    let token = world.granted(&claim(&held)).token;
    world.pass(LEASE_MS + 1);
    // Told of the doubt, as every other: a renewal that was decided before cannot land any more.
    assert_eq!((world.say(&forget(&held)), world.say(&renew(&held, token))), ("in_doubt", "in_doubt"));
    assert_eq!(world.say(&resolve(&held, DoubtOutcome::Released)), "resolved");
    assert_eq!(forgotten(&mut world, &forget(&held)), (false, true));
}

#[test]
fn forgotten_release_settles_what_its_earlier_attempts_left_open() {
    let target = target();
    let mut world = World::new();
    world.granted(&claim(&target));
    world.pass(LEASE_MS + 1);
    let second = world.granted(&claim(&target));
    assert!(second.recovering.is_some());
    assert_eq!(world.say(&release(&target, second.token)), "released");
    assert_eq!(forgotten(&mut world, &forget(&target)), (false, true));
    assert!(world.granted(&claim(&target)).recovering.is_none());
}

#[test]
fn token_of_a_forgotten_fence_is_never_given_again_also_once_its_row_is_gone() {
    let target = target();
    let mut world = World::new();
    let mut highest = Token(0);
    for _ in 0..50 {
        highest = world.done(&claim(&target), "r");
        forgotten(&mut world, &forget_as(&target, Some(highest), "again"));
    }
    // Its tokens ran ahead of the time.
    assert!(highest.0 > world.now.0);
    world.pass(RETAIN_MS + 50);
    world.sweep();
    assert_eq!(world.phase(&target), "absent");
    assert!(world.granted(&claim(&target)).token > highest);
}

#[test]
fn forgotten_version_may_run_again_and_an_older_one_may_not() {
    let key = |id: &str| target_in(scope(OnLapse::Recover), id);
    let mut world = World::new();
    world.done(&claim_version(&key("1"), 5, Some("o")), "r");
    forgotten(&mut world, &forget(&key("1")));
    assert_eq!(world.say(&claim_version(&key("2"), 4, Some("o"))), "stale");
    assert_eq!(world.say(&claim_version(&key("1"), 5, Some("o"))), "new");
}

#[test]
fn only_the_last_repetition_is_forgotten_and_the_next_one_waits_until_it_is_sealed_again() {
    let mut rules = scope(OnLapse::Recover);
    rules.again = Some("resendSeq".to_owned());
    let number = |seq| target_of(rules.clone(), &[("id", "1")], seq);
    let (base, [first, second, third]) = (number(None), [1, 2, 3].map(|seq| number(Some(seq))));
    let mut world = World::new();
    for target in [&base, &first, &second] {
        world.done(&claim(target), "r");
    }
    assert_eq!(world.say(&forget(&first)), "sequence_gap");
    assert_eq!(forgotten(&mut world, &forget(&second)), (false, true));
    assert_eq!(world.say(&claim(&third)), "sequence_gap");
    assert_eq!(world.say(&claim(&first)), "duplicate");
    world.done(&claim(&second), "again");
    assert_eq!(world.say(&claim(&third)), "new");
}
