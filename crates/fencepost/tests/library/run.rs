//! `run`, and the claim behind it.

use std::{
    sync::{
        Arc,
        atomic::{AtomicUsize, Ordering},
    },
    time::Duration,
};

use fencepost::{
    Claimed, Done, Error, Failure, Fencepost,
    clock::SystemClock,
    engine::EngineLimits,
    kernel::{
        Command,
        fence::{self, DoubtOutcome, Resolve, State},
    },
    store::memory::Memory,
};
use fencepost_testkit::{clock::ManualClock, until_async};

use crate::world::{over, world};

type Refused = Failure<&'static str>;

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn of_many_callers_one_has_the_effect_and_all_get_its_receipt() {
    let (once, _) = world().await;
    let effects = Arc::new(AtomicUsize::new(0));
    let callers: Vec<_> = (0..64)
        .map(|_| {
            let (once, effects) = (once.clone(), effects.clone());
            tokio::spawn(async move {
                once.scope("JOB")
                    .key([("id", "7")])
                    .wait(Duration::from_secs(20))
                    .run(|_| async {
                        let count = effects.fetch_add(1, Ordering::SeqCst);
                        Ok::<_, Refused>(Done::new(format!("effect-{count}"), "receipt"))
                    })
                    .await
                    .unwrap()
            })
        })
        .collect();
    let mut replayed = 0;
    for caller in callers {
        let outcome = caller.await.unwrap();
        assert_eq!((outcome.effect_id.as_str(), &outcome.receipt[..]), ("effect-0", &b"receipt"[..]));
        replayed += usize::from(outcome.replayed);
    }
    assert_eq!((effects.load(Ordering::SeqCst), replayed), (1, 63));
}

/// While the effect runs the other four have nothing to get yet: without a wait they were told `InFlight` at once.
#[tokio::test]
async fn concurrent_runs_wait_by_default_and_all_get_the_one_receipt() {
    let (once, _) = world().await;
    let effects = AtomicUsize::new(0);
    let job = once.scope("JOB").key([("id", "five")]);
    let others_wait = || until_async("the others wait", async || once.engine().waiting() == 4);
    let caller = || async {
        let outcome = job.clone().run(|_| async {
            others_wait().await;
            effects.fetch_add(1, Ordering::SeqCst);
            Ok::<_, Refused>(Done::new("effect", "receipt"))
        });
        outcome.await.map(|outcome| (outcome.effect_id, outcome.receipt, outcome.replayed))
    };
    let all = async { tokio::join!(caller(), caller(), caller(), caller(), caller()) };
    let (a, b, c, d, e) = tokio::time::timeout(Duration::from_secs(20), all).await.expect("the others do not wait");
    let results: Vec<_> = [a, b, c, d, e].into_iter().map(Result::unwrap).collect();
    assert_eq!(effects.load(Ordering::SeqCst), 1);
    assert_eq!(results.iter().filter(|(_, _, replayed)| !replayed).count(), 1);
    assert!(results.iter().all(|(id, receipt, _)| id == "effect" && receipt == "receipt"));
}

#[tokio::test]
async fn run_told_not_to_wait_is_told_in_flight_at_once() {
    let (once, _) = world().await;
    let job = once.scope("JOB").key([("id", "held")]);
    let Claimed::New(_holder) = job.clone().claim().await.unwrap() else { panic!() };
    let refused = job.wait(Duration::ZERO).run(|_| async { Ok::<_, Refused>(Done::new("never", "")) }).await;
    assert!(matches!(refused, Err(Error::InFlight { .. })));
}

#[tokio::test]
async fn a_dropped_future_is_not_a_release() {
    let (once, hand) = world().await;
    let job = once.scope("JOB").key([("id", "dropped")]).lease(Duration::from_millis(500));
    let (entered, inside) = tokio::sync::oneshot::channel::<()>();
    let running = job.clone().run(|_| async {
        entered.send(()).unwrap();
        std::future::pending::<Result<Done, Refused>>().await
    });
    tokio::select! {
        _ = running => unreachable!("the effect never ends"),
        entered = inside => entered.unwrap(),
    }
    assert!(matches!(job.clone().claim().await, Err(Error::InFlight { .. })));
    hand.pass(500);
    let Claimed::New(claim) = job.claim().await.unwrap() else { panic!("the lease ran out") };
    assert_eq!(claim.attempt(), 2);
    assert_eq!(claim.earlier().unwrap().attempt, 1, "the next holder is told of the lost attempt");
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_slow_effect_keeps_its_lease() {
    let once = over(Arc::new(Memory::default()), Arc::new(SystemClock::default()), EngineLimits::default()).await;
    let outcome = once
        .scope("JOB")
        .key([("id", "slow")])
        .lease(Duration::from_millis(60))
        .run(|claim| {
            let once = once.clone();
            async move {
                let mut leases = vec![lease_of(&once, "slow").await];
                while leases.len() < 4 {
                    let lease = lease_of(&once, "slow").await;
                    if lease > *leases.last().unwrap() {
                        leases.push(lease);
                    }
                    tokio::task::yield_now().await;
                }
                Ok::<_, Refused>(Done::new(format!("attempt {}", claim.attempt()), ""))
            }
        })
        .await
        .unwrap();
    assert_eq!(outcome.effect_id, "attempt 1");
}

async fn lease_of(once: &Fencepost, id: &str) -> u64 {
    let explanation = once.lookup("JOB", [("id", id)]).await.unwrap().unwrap();
    match &explanation.fence.state {
        State::Pending { lease_expires, .. } => lease_expires.0,
        other => panic!("not pending: {other:?}"),
    }
}

#[tokio::test]
async fn a_known_failure_frees_the_key_and_an_unknown_outcome_does_not() {
    let (once, _) = world().await;
    let job = once.scope("JOB").key([("id", "fails")]);
    let refused = job.clone().run(|_| async { Err(Failure::NotApplied("busy")) }).await;
    assert!(matches!(refused, Err(Error::Effect("busy"))));
    let unknown = job.clone().run(|_| async { Err(Failure::Unknown("timed out")) }).await;
    assert!(matches!(unknown, Err(Error::Effect("timed out"))));
    assert!(matches!(job.claim().await, Err(Error::InFlight { .. })));
}

#[tokio::test]
async fn a_late_seal_after_reclaim_is_refused_and_recorded() {
    let (once, hand) = world().await;
    let job = once.scope("JOB").key([("id", "zombie")]).lease(Duration::from_millis(10));
    let Claimed::New(zombie) = job.clone().claim().await.unwrap() else { panic!() };
    hand.pass(10);
    let Claimed::New(next_holder) = job.clone().claim().await.unwrap() else { panic!() };
    assert!(next_holder.token() > zombie.token());
    assert!(matches!(zombie.seal("late", "x").await, Err(Error::FencedOff { resolved: None })));
    next_holder.seal("good", "y").await.unwrap();
    let told = once.lookup("JOB", [("id", "zombie")]).await.unwrap().unwrap();
    let decisions: Vec<_> = told.history.iter().map(|moment| moment.decision).collect();
    assert_eq!(decisions, ["new", "recovered", "fenced_off", "sealed"]);
}

/// The late holder was told that somebody else was let in, where nobody was: a person had decided.
#[tokio::test]
async fn late_holder_is_told_that_a_person_resolved_the_key() {
    let (once, hand) = world().await;
    for (id, outcome) in [
        ("done", DoubtOutcome::Sealed { effect_id: "paid by hand".into(), receipt: "{}".into() }),
        ("not done", DoubtOutcome::Released),
    ] {
        let job = once.scope("HELD").key([("id", id)]).lease(Duration::from_millis(10));
        let Claimed::New(lost) = job.claim().await.unwrap() else { panic!() };
        hand.pass(10);
        let (target, token) = (lost.target().clone(), Some(lost.token()));
        let resolve = Resolve { target, token, outcome, by: "ops".into(), why: "asked the bank".into() };
        once.engine().ask(Command::Fence(fence::Command::Resolve(resolve))).await.unwrap();
        let mut all = vec![lost.seal("paid", "{}").await, lost.renew().await.map(drop)];
        match id {
            "done" => all.push(lost.release().await),
            _ => lost.release().await.unwrap(),
        }
        for late in all {
            let Err(Error::FencedOff { resolved: Some(told) }) = &late else { panic!("{late:?}") };
            assert_eq!((told.by.as_str(), told.done, told.at), ("ops", id == "done", once.engine().now()));
            let said = late.unwrap_err().to_string();
            assert_eq!(said, format!("fenced off: ops resolved this key as {id}: asked the bank"));
        }
    }
}

#[tokio::test]
async fn a_held_scope_waits_for_a_person() {
    let (once, hand) = world().await;
    let job = once.scope("HELD").key([("id", "pay")]).lease(Duration::from_millis(10));
    let Claimed::New(lost) = job.clone().claim().await.unwrap() else { panic!() };
    hand.pass(1_000_000_000);
    assert!(matches!(job.clone().claim().await, Err(Error::InDoubt)));
    assert_eq!(once.engine().in_doubt(None, 10).await.unwrap().len(), 1);
    lost.seal("paid", "{}").await.unwrap();
    let Claimed::Duplicate(outcome) = job.claim().await.unwrap() else { panic!() };
    assert_eq!(outcome.effect_id, "paid");
    assert!(once.engine().in_doubt(None, 10).await.unwrap().is_empty());
}

#[tokio::test]
async fn a_waiter_is_woken_by_the_seal_and_the_room_is_bounded() {
    let limits = EngineLimits { waiters_max: 1, ..EngineLimits::default() };
    let once = over(Arc::new(Memory::default()), ManualClock::new(), limits).await;
    let job = once.scope("JOB").key([("id", "w")]).wait(Duration::from_secs(30));
    let Claimed::New(holder) = job.clone().claim().await.unwrap() else { panic!() };
    let mut waiter = std::pin::pin!(job.clone().claim());
    while once.engine().waiting() == 0 {
        tokio::select! {
            biased;
            _ = &mut waiter => panic!("nothing is sealed yet"),
            () = tokio::task::yield_now() => {}
        }
    }
    assert!(matches!(job.claim().await, Err(Error::InFlight { .. })), "the room is full: no waiting");
    holder.seal("done", "r").await.unwrap();
    assert!(matches!(waiter.await, Ok(Claimed::Duplicate(_))));
    assert_eq!(once.engine().waiting(), 0);
}

#[tokio::test]
async fn tenants_share_neither_keys_nor_receipts() {
    let (once, _) = world().await;
    for tenant in ["acme", "globex"] {
        let outcome = once
            .tenant(tenant)
            .scope("JOB")
            .key([("id", "same")])
            .run(|_| async { Ok::<_, Refused>(Done::new(tenant, tenant)) })
            .await
            .unwrap();
        assert_eq!((outcome.effect_id.as_str(), outcome.replayed), (tenant, false));
    }
}

#[tokio::test]
async fn a_store_opened_again_answers_with_the_same_bytes() {
    let dir = tempfile::tempdir().unwrap();
    for life in 0..3 {
        let once = Fencepost::open(dir.path()).await.unwrap();
        let outcome = once
            .scope("INDEX_BUILD")
            .key([("index_hash", "9f2c")])
            .run(|_| async { Ok::<_, Refused>(Done::new(format!("life {life}"), &b"\x00\xff bytes"[..])) })
            .await
            .unwrap();
        assert_eq!((outcome.effect_id.as_str(), &outcome.receipt[..]), ("life 0", &b"\x00\xff bytes"[..]));
        once.close().await;
    }
}

#[tokio::test]
async fn expired_fences_are_swept_and_replays_are_counted_without_a_commit_each() {
    let (once, hand) = world().await;
    let job = once.scope("JOB").key([("id", "old")]);
    for _ in 0..5 {
        job.clone().run(|_| async { Ok::<_, Refused>(Done::new("e", "r")) }).await.unwrap();
    }
    assert_eq!(once.lookup("JOB", [("id", "old")]).await.unwrap().unwrap().replays, 4);
    once.engine().housekeep().await.unwrap();
    assert_eq!(once.lookup("JOB", [("id", "old")]).await.unwrap().unwrap().replays, 4, "flushed, not forgotten");
    hand.pass(8 * 24 * 3_600_000);
    assert!(once.lookup("JOB", [("id", "old")]).await.unwrap().is_none());
    let fresh = job.run(|_| async { Ok::<_, Refused>(Done::new("second life", "r")) }).await.unwrap();
    assert!(!fresh.replayed);
    assert_eq!(once.lookup("JOB", [("id", "old")]).await.unwrap().unwrap().replays, 0);
}

#[tokio::test]
async fn the_first_repetition_waits_for_the_effect_itself() {
    let (once, _) = world().await;
    let key = [("caseUrn", "c"), ("waveUrn", "w"), ("groupId", "g")];
    let booking = once.scope("BOOKING").key(key);
    let Claimed::New(holder) = booking.clone().claim().await.unwrap() else { panic!() };
    let again = booking.again(1).wait(Duration::from_secs(30));
    let mut waiter = std::pin::pin!(again.claim());
    while once.engine().waiting() == 0 {
        tokio::select! {
            biased;
            _ = &mut waiter => panic!("nothing is sealed yet"),
            () = tokio::task::yield_now() => {}
        }
    }
    let started = std::time::Instant::now();
    holder.seal("booked", "r").await.unwrap();
    assert!(matches!(waiter.await, Ok(Claimed::New(_))));
    assert!(started.elapsed() < Duration::from_secs(25), "woken by the seal, not by the end of the wait");
}
