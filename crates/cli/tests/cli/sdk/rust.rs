//! The Rust client against the real binary: fences.

use std::{
    sync::atomic::{AtomicUsize, Ordering::SeqCst},
    time::{Duration, Instant},
};

use fencepost_client::{
    ClaimOutcome, Client, EffectDone, EffectFailure, Error, RemoteEffect, Retry, RunError, RunOutcome,
};
use fencepost_testkit::until_async;
use serde_json::{Value, json};

use super::stage::Stage;

pub type Never = EffectFailure<&'static str>;

/// With little patience, so that what hangs fails.
pub fn client(url: &str) -> Client {
    let retry = Retry { pause: Duration::from_millis(20), deadline: Duration::from_secs(20), ..Retry::default() };
    Client::builder(url, "dev-partner").retry(retry).build().unwrap()
}

pub fn booking(client: &Client, group: &str) -> RemoteEffect {
    client.scope("BOOKING").key([("caseUrn", "urn:case:7"), ("waveUrn", "urn:wave:1"), ("groupId", group)])
}

async fn done(effect: &RemoteEffect, id: &str) -> RunOutcome {
    effect.run(|_| async { Ok::<_, Never>(EffectDone::new(id, "{}")) }).await.unwrap()
}

fn problem_of<T>(result: Result<T, Error>) -> Error {
    result.map(drop).unwrap_err()
}

pub async fn claim(effect: &RemoteEffect) -> fencepost_client::RemoteClaim {
    match effect.claim().await.unwrap() {
        ClaimOutcome::New(claim) => claim,
        ClaimOutcome::Duplicate(outcome) => panic!("{outcome:?}"),
    }
}

#[tokio::test]
async fn the_first_runs_and_the_second_gets_its_receipt_byte_for_byte() {
    let stage = Stage::new();
    let effect = booking(&client(&stage.url()), "G \"é\"\n&=").body(r#"{"nights": 2}"#);
    let receipt = r#"{"b" : 1.0, "a":"\u00e9", "big":123456789012345678901}"#;
    let first = effect.run(|claim| async move {
        assert_eq!((claim.attempt(), claim.recovering(), claim.idempotency_key().len()), (1, false, 64));
        Ok::<_, Never>(EffectDone::new("RSV-1", receipt))
    });
    let first = first.await.unwrap();
    assert!(!first.replayed);
    let second = effect.run(|_| async { Err(EffectFailure::Unknown("it ran twice")) }).await.unwrap();
    assert_eq!(second, RunOutcome { effect_id: "RSV-1".into(), receipt: receipt.into(), replayed: true });
    let known: Value = serde_json::from_slice(&effect.lookup().await.unwrap().unwrap()).unwrap();
    assert_eq!((&known["state"], &known["resultUrn"]), (&json!("sealed"), &json!("RSV-1")));
    assert!(booking(&client(&stage.url()), "unknown").lookup().await.unwrap().is_none());
}

#[tokio::test(flavor = "multi_thread")]
async fn of_two_at_once_one_runs_and_the_other_waits_for_its_receipt() {
    let stage = Stage::new();
    let effect = booking(&client(&stage.url()), "G-2").wait(Duration::from_secs(15));
    let runs = AtomicUsize::new(0);
    let one = || {
        effect.run(|_| async {
            runs.fetch_add(1, SeqCst);
            // Until the other one is known to wait.
            until_waiting(&stage, 1).await;
            Ok::<_, Never>(EffectDone::new("RSV-2", "[1]"))
        })
    };
    let (a, b) = tokio::join!(one(), one());
    let (a, b) = (a.unwrap(), b.unwrap());
    assert_eq!(runs.load(SeqCst), 1);
    assert_eq!((a.effect_id, a.receipt), (b.effect_id, b.receipt));
    assert_ne!(a.replayed, b.replayed);
}

fn metrics(stage: &Stage) -> String {
    let address = stage.url().trim_start_matches("http://").parse().unwrap();
    super::super::client::Client::new(address, "").get("/metrics").text()
}

pub async fn until_waiting(stage: &Stage, count: usize) {
    let line = format!("fencepost_waiters {count}\n");
    until_async(&line, async || metrics(stage).contains(&line)).await;
}

#[tokio::test]
async fn another_body_is_a_conflict_with_its_diff() {
    let stage = Stage::new();
    let effect = booking(&client(&stage.url()), "G-3");
    done(&effect.clone().body(r#"{"nights":2}"#), "RSV-3").await;
    let refused = problem_of(effect.clone().body(r#"{"nights":3}"#).claim().await);
    assert!(matches!(refused, Error::Conflict(_)), "{refused}");
    let problem = refused.problem().unwrap();
    let diff: Value = serde_json::from_str(problem.diff.as_ref().unwrap()).unwrap();
    assert_eq!(diff, json!([{"op": "replace", "path": "/nights", "value": 3}]));
    assert_eq!((problem.status, problem.trace_id.as_ref().unwrap().len()), (409, 32));
    // A body that is no JSON is not sent at all: it could end the document it is put into.
    let unsent = problem_of(effect.body(r#"{},"version":1"#).claim().await);
    assert!(matches!(unsent, Error::Invalid(_)), "{unsent}");
}

#[tokio::test]
async fn a_failure_that_changed_nothing_frees_the_key_and_any_other_keeps_it() {
    let stage = Stage::new();
    let effect = booking(&client(&stage.url()), "G-4");
    let failed = effect.run(|_| async { Err(EffectFailure::NotApplied("full")) }).await.unwrap_err();
    assert!(matches!(failed, RunError::Effect("full")), "{failed}");
    let failed = effect.run(|claim| async move {
        assert_eq!((claim.attempt(), claim.recovering()), (2, false));
        Err(EffectFailure::Unknown("reset"))
    });
    assert!(matches!(failed.await.unwrap_err(), RunError::Effect("reset")));
    let held = problem_of(effect.claim().await);
    assert!(matches!(held, Error::InFlight { perhaps_own: false, .. }), "{held}");
}

#[tokio::test(flavor = "multi_thread")]
async fn a_wait_that_the_server_cuts_short_goes_on_and_ends_in_time() {
    let stage = Stage::new();
    let four = Duration::from_secs(4);
    let (direct, road) = (client(&stage.url()), client(&stage.road_url()));
    let holder = claim(&booking(&direct, "G-4b").lease(four)).await;
    // Not held at all, and told to come back in 4 s: there is one more question, when the wait is over.
    stage.faults("brief:0,brief:0,brief:0,brief:0,brief:0");
    let begun = Instant::now();
    let held = problem_of(booking(&road, "G-4b").wait(Duration::from_secs(1)).claim().await);
    assert!(matches!(held, Error::InFlight { perhaps_own: false, .. }), "{held}");
    assert!((1..3).contains(&begun.elapsed().as_secs()) && stage.requests() <= 3, "{}", stage.requests());
    // Held for as long as the time in which it is told to come back: it comes back at once.
    holder.renew().await.unwrap();
    stage.faults("brief:2000");
    let (begun, before) = (Instant::now(), stage.requests());
    let waiting = booking(&road, "G-4b").wait(Duration::from_secs(15));
    let sealing = async {
        until_async("it has asked twice more", async || stage.requests() >= before + 2).await;
        holder.seal("RSV-4b", "{}").await
    };
    let (claimed, sealed) = tokio::join!(waiting.claim(), sealing);
    sealed.unwrap();
    assert!(matches!(claimed.unwrap(), ClaimOutcome::Duplicate(_)));
    assert!(begun.elapsed() < four, "{:?}", begun.elapsed());
}

#[tokio::test(flavor = "multi_thread")]
async fn an_effect_that_is_slower_than_its_lease_keeps_its_claim() {
    let stage = Stage::new();
    let lease = Duration::from_millis(600);
    let effect = booking(&client(&stage.url()), "G-5").lease(lease);
    let outcome = effect.run(|claim| {
        let effect = effect.clone();
        async move {
            let begun = Instant::now();
            while begun.elapsed() < lease * 3 {
                let other = problem_of(effect.claim().await);
                assert!(matches!(other, Error::InFlight { .. }), "{other}");
            }
            assert!(!claim.lost());
            Ok::<_, Never>(EffectDone::new("RSV-5", "{}"))
        }
    });
    assert!(!outcome.await.unwrap().replayed);
}

#[tokio::test]
async fn a_holder_silent_for_too_long_is_fenced_off() {
    let stage = Stage::new();
    let effect = booking(&client(&stage.url()), "G-6").lease(Duration::from_millis(1));
    let zombie = claim(&effect).await;
    let next = claim(&effect.clone().lease(Duration::from_secs(30)).wait(Duration::from_secs(10))).await;
    assert_eq!((next.attempt(), next.recovering()), (2, true));
    assert!(next.token() > zombie.token() && next.earlier().unwrap().contains(&zombie.token().to_string()));
    assert!(matches!(problem_of(zombie.renew().await), Error::FencedOff(_)));
    assert!(zombie.lost());
    assert!(matches!(problem_of(zombie.seal("late", "{}").await), Error::FencedOff(_)));
    assert!(matches!(problem_of(zombie.release().await), Error::FencedOff(_)));
    next.renew().await.unwrap();
    next.seal("RSV-6", "{}").await.unwrap();
    // An effect that was had and could not be recorded is not lost on the caller.
    let effect = booking(&client(&stage.url()), "G-6b");
    let late = effect.run(|claim| async move {
        claim.release().await.unwrap();
        Ok::<_, Never>(EffectDone::new("RSV-6b", "{}"))
    });
    match late.await.unwrap_err() {
        RunError::Unsealed { done, cause: Error::FencedOff(_) } => assert_eq!(done.effect_id, "RSV-6b"),
        other => panic!("{other}"),
    }
}

#[tokio::test]
async fn deliberate_repetitions_have_their_own_sequence() {
    let stage = Stage::new();
    let effect = booking(&client(&stage.url()), "G-7");
    done(&effect, "RSV-7").await;
    let gap = problem_of(effect.clone().again(2).claim().await);
    assert!(matches!(gap, Error::SequenceGap(_)), "{gap}");
    assert_eq!(gap.problem().unwrap().member("last"), Some("0"));
    let again = effect.clone().again(1);
    assert!(!done(&again, "RSV-7b").await.replayed);
    let repeated = done(&again, "RSV-7c").await;
    assert_eq!((repeated.effect_id.as_str(), repeated.replayed), ("RSV-7b", true));
    assert_eq!(done(&effect, "never").await.effect_id, "RSV-7");
    assert!(again.lookup().await.unwrap().is_some());
}

#[tokio::test(flavor = "multi_thread")]
async fn a_run_outlives_the_server_it_began_on() {
    let stage = Stage::new();
    let effect = booking(&client(&stage.road_url()), "G-8");
    let crashed = effect.run(|_| async {
        stage.crash();
        Ok::<_, Never>(EffectDone::new("RSV-8", r#"{"hotel":"Astoria"}"#))
    });
    assert!(!crashed.await.unwrap().replayed);
    stage.crash();
    let later = done(&effect, "never").await;
    assert_eq!((later.effect_id.as_str(), later.replayed), ("RSV-8", true));
}

#[tokio::test]
async fn a_server_that_is_busy_is_asked_again_when_it_said() {
    let stage = Stage::new();
    let effect = booking(&client(&stage.road_url()), "G-9");
    stage.faults("503:1,429:0,408:0,504:0");
    let begun = Instant::now();
    let claim = claim(&effect).await;
    assert!(begun.elapsed() >= Duration::from_secs(1));
    assert_eq!((stage.requests(), claim.attempt()), (5, 1));
    // Past the deadline there is no use in waiting, and the caller hears why.
    stage.faults("503:3600");
    match claim.seal("RSV-9", "{}").await.unwrap_err() {
        Error::Unavailable { attempts: 1, unanswered: true, problem: Some(problem), .. } => {
            assert_eq!((problem.status, problem.retry_after), (503, Some(Duration::from_secs(3_600))));
        }
        other => panic!("{other}"),
    }
}

#[tokio::test]
async fn a_refused_request_is_not_repeated() {
    let stage = Stage::new();
    let stranger = Client::new(&stage.road_url(), "nobody").unwrap();
    for effect in [booking(&stranger, "G-10"), client(&stage.road_url()).scope("BOOKING").key([("groupId", "G")])] {
        let before = stage.requests();
        let refused = problem_of(effect.claim().await);
        assert!(matches!(refused, Error::Refused(_)), "{refused}");
        assert_eq!(stage.requests(), before + 1);
    }
    // A port where nobody listens: tried until the deadline, and known not to have happened.
    let retry = Retry { deadline: Duration::from_millis(300), ..Retry::default() };
    let closed = std::net::TcpListener::bind("127.0.0.1:0").unwrap().local_addr().unwrap();
    let nobody = Client::builder(&format!("http://{closed}"), "dev-partner").retry(retry).build().unwrap();
    match problem_of(booking(&nobody, "G").claim().await) {
        Error::Unavailable { attempts: 2.., unanswered: false, .. } => {}
        other => panic!("{other:?}"),
    }
}

#[tokio::test]
async fn answers_that_are_lost_cost_time_and_nothing_else() {
    let stage = Stage::new();
    let effect = booking(&client(&stage.road_url()), "G-11").lease(Duration::from_millis(500));
    stage.faults("lose");
    let again = claim(&effect).await;
    // The lost answer had let this very caller in. The client cannot know that: it reports an earlier attempt.
    assert_eq!((again.attempt(), again.recovering()), (2, true));
    stage.faults("lose");
    again.renew().await.unwrap();
    // Lost, and somebody else is let in before it is asked again: it was given up all the same.
    stage.faults("lose,503:1");
    let straight = booking(&client(&stage.url()), "G-11").wait(Duration::from_secs(10));
    let (released, last) = tokio::join!(again.release(), claim(&straight));
    released.unwrap();
    last.seal("RSV-11", "{}").await.unwrap();
    // A lost answer to a seal.
    let sealed = claim(&booking(&client(&stage.road_url()), "G-11a")).await;
    stage.faults("lose");
    sealed.seal("RSV-11a", "{}").await.unwrap();
    assert_eq!(done(&effect, "never").await.effect_id, "RSV-11");
    // Without the time to wait for the lease, it is in flight, and the caller hears that it may be its own.
    let retry = Retry { deadline: Duration::from_secs(2), ..Retry::default() };
    let hasty = Client::builder(&stage.road_url(), "dev-partner").retry(retry).build().unwrap();
    stage.faults("lose");
    let held = problem_of(booking(&hasty, "G-11b").claim().await);
    assert!(matches!(held, Error::InFlight { perhaps_own: true, .. }), "{held}");
}

#[tokio::test]
async fn a_batch_is_asked_in_its_order() {
    let stage = Stage::new();
    let client = client(&stage.url());
    let effects = ["G-12a", "G-12b"].map(|group| booking(&client, group));
    let commands = effects.iter().map(|effect| effect.command().unwrap());
    let answers = client.batch(commands.chain([r#"{"op":"dance"}"#.to_owned()])).await.unwrap();
    let statuses: Vec<u16> = answers.iter().map(|answer| answer.status).collect();
    assert_eq!(statuses, [201, 201, 400]);
    let mut claims = Vec::new();
    for (answer, effect) in answers.clone().into_iter().zip(&effects) {
        match answer.claimed(effect).unwrap() {
            ClaimOutcome::New(claim) => claims.push(claim),
            ClaimOutcome::Duplicate(outcome) => panic!("{outcome:?}"),
        }
    }
    assert!(matches!(problem_of(answers[2].clone().ok()), Error::Refused(_)));
    let sealing = claims[0].sealing(&EffectDone::new("RSV-12", r#"{"a": 1}"#)).unwrap();
    let answers = client.batch([sealing, claims[1].releasing()]).await.unwrap();
    assert!(answers.into_iter().all(|answer| answer.ok().is_ok()));
    let duplicate = effects[0].run(|_| async { Err(EffectFailure::Unknown("ran")) }).await.unwrap();
    assert_eq!(duplicate.receipt, r#"{"a": 1}"#);
    assert_eq!(claim(&effects[1]).await.attempt(), 2);
}
