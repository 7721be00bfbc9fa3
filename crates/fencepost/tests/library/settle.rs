//! The end of a claim: how long its outcome is told to a store that is away, and what the caller hears then.

use std::{
    cell::Cell,
    convert::Infallible,
    sync::{Arc, atomic::Ordering},
    time::Duration,
};

use fencepost::{
    Claimed, Done, Error, Failure, Fencepost, Outcome, Patience, engine,
    engine::EngineLimits,
    kernel::{Command, Reply, fence, fence::Release},
};
use fencepost_testkit::{Faults, Forwarding, clock::ManualClock};
use tokio::time::Instant;

use crate::world::{over, world};

async fn pulled() -> (Fencepost, Arc<Forwarding<Faults>>, Arc<ManualClock>) {
    let (store, hand) = (Faults::default().over_memory(), ManualClock::new());
    (over(store.clone(), hand.clone(), EngineLimits::default()).await, store, hand)
}

/// Has the effect; the store is away from then on, for so many commits.
async fn act(once: &Fencepost, scope: &str, store: &Faults, commits: usize) -> Result<Outcome, Error<Infallible>> {
    let effect = |_| async {
        store.refusals.store(commits, Ordering::SeqCst);
        Ok::<_, Failure<Infallible>>(Done::new("e", "r"))
    };
    once.scope(scope).key([("id", "a")]).run(effect).await
}

#[tokio::test]
async fn outcome_is_told_until_the_store_takes_it() {
    let (once, store, _) = pulled().await;
    assert!(!act(&once, "JOB", &store, 3).await.unwrap().replayed);
    assert!(matches!(once.scope("JOB").key([("id", "a")]).claim().await, Ok(Claimed::Duplicate(_))));
}

// The clock stands while a commit is asked for, and jumps over each pause.
#[tokio::test]
async fn patience_ends_and_the_caller_is_told_what_was_done() {
    let (once, store, _) = pulled().await;
    let minute = Duration::from_secs(60);
    for (once, patience) in [(once.clone(), 5 * minute), (once.settle_for(minute), minute)] {
        store.refusals.store(0, Ordering::SeqCst);
        let key = [("id", format!("{patience:?}"))];
        let begun = Cell::new(None);
        let given_up = once.scope("JOB").key(key).run(|_| async {
            tokio::time::pause();
            begun.set(Some(Instant::now()));
            store.refusals.store(usize::MAX, Ordering::SeqCst);
            Ok::<_, Failure<Infallible>>(Done::new("e", "r"))
        });
        let Err(Error::Unsealed { done, cause }) = given_up.await else { panic!("{patience:?}") };
        assert_eq!(done, Done::new("e", "r"), "the caller must not take it for undone");
        assert!(!matches!(cause, engine::Error::Stopped(_)), "{cause}");
        let told_for = begun.get().unwrap().elapsed();
        tokio::time::resume();
        assert!(told_for >= patience && told_for < patience + minute, "{told_for:?}");
    }
}

#[tokio::test]
async fn store_that_has_stopped_for_good_is_not_asked_again() {
    let (once, store, _) = pulled().await;
    let stopped = once.scope("JOB").key([("id", "a")]).run(|_| async {
        store.broken.store(true, Ordering::SeqCst);
        Ok::<_, Failure<Infallible>>(Done::new("e", "r"))
    });
    let Err(Error::Unsealed { done, cause: engine::Error::Stopped(_) }) = stopped.await else { panic!("it goes on") };
    assert_eq!(done, Done::new("e", "r"));
    assert_eq!(store.begun(), 2, "the claim, and the seal once");
}

#[tokio::test]
async fn crash_between_effect_and_seal_leaves_the_next_holder_told_or_a_person() {
    let (once, store, hand) = pulled().await;
    for scope in ["JOB", "HELD"] {
        let settling = tokio::time::timeout(Duration::from_millis(20), act(&once, scope, &store, usize::MAX)).await;
        assert!(settling.is_err(), "dropped while it is told");
        store.refusals.store(0, Ordering::SeqCst);
        let next = || once.scope(scope).key([("id", "a")]).claim();
        assert!(matches!(next().await, Err(Error::InFlight { .. })), "{scope}: the lease keeps others out");
        hand.pass(60_000);
        match next().await {
            Ok(Claimed::New(claim)) => assert_eq!(claim.earlier().map(|earlier| earlier.attempt), Some(1)),
            Err(Error::InDoubt) => assert_eq!(scope, "HELD"),
            other => panic!("{scope}: {:?}", other.err()),
        }
    }
}

#[tokio::test]
async fn holder_that_gets_the_token_of_a_later_one_ends_the_claim_with_it() {
    let (once, hand) = world().await;
    let job = once.scope("JOB").key([("id", "a")]);
    let Ok(Claimed::New(first)) = job.clone().claim().await else { panic!() };
    hand.pass(60_000);
    let Ok(Claimed::New(second)) = job.clone().claim().await else { panic!() };
    // It is asked for twice an attempt, and is there after the first.
    let asked = Cell::new(0);
    let token = || {
        asked.set(asked.get() + 1);
        if asked.get() == 1 { first.token() } else { second.token() }
    };
    let release =
        |token| vec![Command::Fence(fence::Command::Release(Release { target: first.target().clone(), token }))];
    let reply = Patience::ONCE.settle(once.engine(), token, release).await.unwrap();
    assert!(matches!(reply, Reply::Fence(fence::Reply::Released { .. })), "{reply:?}");
    let Ok(Claimed::New(third)) = job.claim().await else { panic!("the key is free") };
    assert!(third.token() > second.token());
}
