//! The Rust client against the real binary: waiting by default, and what becomes of mistakes. Most mistakes of the other
//! languages do not compile here; what is left behaves alike.

use std::{
    sync::atomic::{AtomicUsize, Ordering::SeqCst},
    time::{Duration, Instant},
};

use fencepost_client::{ClaimOutcome, Client, EffectDone, EffectFailure, Error, Retry, RunError, RunOutcome};
use fencepost_testkit::until_async;
use serde_json::json;
use uuid::Uuid;

use super::{
    rust::{Never, booking, claim, client, until_waiting},
    stage::Stage,
};

async fn never(_: fencepost_client::RemoteClaim) -> Result<EffectDone, Never> {
    Err(EffectFailure::Unknown("it ran"))
}

#[tokio::test(flavor = "multi_thread")]
async fn of_many_at_once_without_a_word_about_waiting_one_runs_and_all_get_its_receipt() {
    let stage = Stage::new();
    let effect = booking(&client(&stage.url()), "G-20");
    let runs = AtomicUsize::new(0);
    let one = || {
        effect.run(|_| async {
            runs.fetch_add(1, SeqCst);
            until_waiting(&stage, 4).await;
            Ok::<_, Never>(EffectDone::new("RSV-20", "[1]"))
        })
    };
    let (a, b, c, d, e) = tokio::join!(one(), one(), one(), one(), one());
    let outcomes = [a, b, c, d, e].map(Result::unwrap);
    assert_eq!(runs.load(SeqCst), 1);
    assert!(outcomes.iter().all(|outcome| outcome.receipt == "[1]"));
    assert_eq!(outcomes.iter().filter(|outcome| outcome.replayed).count(), 4);
}

#[tokio::test(flavor = "multi_thread")]
async fn a_run_that_the_server_cuts_short_asks_again_until_there_is_a_receipt() {
    let stage = Stage::new();
    let holder = claim(&booking(&client(&stage.url()), "G-21")).await;
    stage.faults("brief:0");
    let waiting = booking(&client(&stage.road_url()), "G-21");
    let sealing = async {
        until_async("it has asked twice", async || stage.requests() >= 2).await;
        holder.seal("RSV-21", "{}").await
    };
    let (outcome, sealed) = tokio::join!(waiting.run(never), sealing);
    sealed.unwrap();
    assert!(outcome.unwrap().replayed);
}

#[tokio::test]
async fn a_run_waits_for_its_lease_unless_told_otherwise_and_says_how_to_wait_longer() {
    let stage = Stage::new();
    let client = client(&stage.url());
    claim(&booking(&client, "G-22")).await;
    let waiting = booking(&client, "G-22").lease(Duration::from_secs(1));
    let half = Duration::from_millis(500);
    for (effect, least) in [
        (waiting.clone(), Duration::from_secs(1)),
        (waiting.clone().wait(Duration::ZERO), Duration::ZERO),
        (waiting.clone().wait(half), half),
    ] {
        let begun = Instant::now();
        let held = effect.run(never).await.unwrap_err();
        let took = begun.elapsed();
        assert!(least <= took && took < least + Duration::from_secs(3), "{took:?}");
        assert!(matches!(held, RunError::Claim(Error::InFlight { perhaps_own: false, .. })), "{held}");
        let said = held.to_string();
        assert!(said.contains("set `wait`") && !said.contains("wait_ms"), "{said}");
    }
    let held = waiting.claim().await.map(drop).unwrap_err();
    assert!(held.to_string().contains("does not wait"), "{held}");
}

#[tokio::test]
async fn a_wait_does_not_lengthen_the_deadline_of_a_server_that_does_not_answer() {
    let retry = Retry { deadline: Duration::from_millis(300), ..Retry::default() };
    let nobody = Client::builder("http://127.0.0.1:1", "dev-partner").retry(retry).build().unwrap();
    let begun = Instant::now();
    let gone = booking(&nobody, "G-23").run(never).await.unwrap_err();
    assert!(matches!(gone, RunError::Claim(Error::Unavailable { .. })), "{gone}");
    assert!(begun.elapsed() < Duration::from_secs(5));
}

#[tokio::test]
async fn ids_and_keys_that_are_numbers_or_uuids_count_as_their_text() {
    let stage = Stage::new();
    let client = client(&stage.url());
    let uuid = Uuid::now_v7();
    let first = client.scope("INDEX_BUILD").key([("index_hash", uuid)]);
    let outcome = first.run(|_| async { Ok::<_, Never>(EffectDone::new(uuid, "{}")) }).await.unwrap();
    assert_eq!(outcome.effect_id, uuid.to_string());
    let same = client.scope("INDEX_BUILD").key([("index_hash", uuid.to_string())]).run(never).await.unwrap();
    assert_eq!((same.effect_id, same.replayed), (uuid.to_string(), true));
    let number = client.scope("INDEX_BUILD").key([("index_hash", 5)]);
    number.run(|_| async { Ok::<_, Never>(EffectDone::new(5, "{}")) }).await.unwrap();
    let same = client.scope("INDEX_BUILD").key([("index_hash", "5")]).run(never).await.unwrap();
    assert_eq!((same.effect_id.as_str(), same.replayed), ("5", true));
    assert!(number.lookup().await.unwrap().is_some());
}

#[tokio::test]
async fn a_receipt_keeps_dates_and_uuids_as_text() {
    let stage = Stage::new();
    let effect = booking(&client(&stage.url()), "G-25");
    let receipt = json!({"at": "2026-11-18T05:06:07Z", "id": Uuid::now_v7().to_string()}).to_string();
    effect.run(|_| async { Ok::<_, Never>(EffectDone::new("RSV-25", receipt.clone())) }).await.unwrap();
    assert_eq!(effect.run(never).await.unwrap().receipt, receipt);
}

#[tokio::test]
async fn an_outcome_that_cannot_be_sealed_is_shown_and_kept_for_the_caller() {
    let stage = Stage::new();
    let client = client(&stage.url());
    for (group, receipt) in [("G-26a", "RSV-1"), ("G-26b", ""), ("G-26c", r#"{},"token":1"#)] {
        let effect = booking(&client, group);
        let done = EffectDone::new("RSV-26", receipt);
        let unsealed = effect.run(|_| async { Ok::<_, Never>(done.clone()) }).await.unwrap_err();
        let said = unsealed.to_string();
        let expected = format!("RSV-26 was done and is not recorded: the receipt {receipt:?} is not JSON: ");
        assert!(said.starts_with(&expected), "{said}");
        match unsealed {
            RunError::Unsealed { done: kept, cause: Error::Invalid(_) } => assert_eq!(kept, done),
            other => panic!("{other}"),
        }
        // It was done: no other caller is let in before the lease is over.
        let held = effect.claim().await.map(drop).unwrap_err();
        assert!(matches!(held, Error::InFlight { .. }), "{held}");
    }
}

#[tokio::test]
async fn an_effect_id_that_is_empty_or_too_long_is_refused_in_the_clients_own_words() {
    let stage = Stage::new();
    for (group, count) in [("G-30a", 0), ("G-30b", 1_025)] {
        let effect = booking(&client(&stage.url()), group);
        let done = EffectDone::new("x".repeat(count), "{}");
        let unsealed = effect.run(|_| async { Ok::<_, Never>(done.clone()) }).await.unwrap_err();
        let why = format!("the effect id must have 1 to 1024 bytes, and has {count}");
        assert_eq!(unsealed.to_string(), format!("the effect ran, and what it did is not recorded: {why}"));
        assert!(matches!(unsealed, RunError::Unsealed { done: kept, .. } if kept == done));
    }
    // The longest that there may be.
    let longest = "x".repeat(1_024);
    let effect = booking(&client(&stage.url()), "G-30c");
    effect.run(|_| async { Ok::<_, Never>(EffectDone::new(&longest, "{}")) }).await.unwrap();
}

#[tokio::test]
async fn a_lease_over_the_maximum_of_its_scope_is_refused_in_the_clients_own_words() {
    let stage = Stage::new();
    let brief = client(&stage.url()).scope("BRIEF").key([("id", "b-1")]);
    let refused = brief.clone().lease(Duration::from_secs(3)).claim().await.map(drop).unwrap_err();
    let said = refused.to_string();
    assert!(said.contains("the scope takes leases of at most 2s; set `lease`") && !said.contains("lease_ms"), "{said}");
    assert!(matches!(brief.lease(Duration::from_secs(2)).claim().await.unwrap(), ClaimOutcome::New(_)));
}

#[tokio::test]
async fn an_effect_that_seals_its_claim_itself_has_that_outcome() {
    let stage = Stage::new();
    let effect = booking(&client(&stage.url()), "G-29");
    let outcome = effect.run(|claim| async move {
        claim.seal("RSV-29", "[1]").await.unwrap();
        Ok::<_, Never>(EffectDone::new("RSV-29", "[1]"))
    });
    assert!(!outcome.await.unwrap().replayed);
    assert_eq!(effect.run(never).await.unwrap().effect_id, "RSV-29");
}

#[tokio::test]
async fn a_mistake_that_can_be_known_before_the_effect_is_refused_without_a_claim() {
    let stage = Stage::new();
    let effect = booking(&client(&stage.url()), "G-27");
    let day = Duration::from_secs(86_400);
    for (wrong, why) in [
        (effect.clone().body("{},"), "the body"),
        (effect.clone().lease(day + Duration::from_secs(1)), "a lease is at most 86400s"),
    ] {
        let refused = wrong.run(never).await.unwrap_err();
        assert!(matches!(refused, RunError::Claim(Error::Invalid(_))), "{refused}");
        assert!(refused.to_string().contains(why), "{refused}");
    }
    assert!(effect.lookup().await.unwrap().is_none());
    // No wait is too long to be told.
    let patient = effect.lease(day).wait(Duration::MAX).claim().await.unwrap();
    assert!(matches!(patient, ClaimOutcome::New(_)));
}

#[tokio::test(flavor = "multi_thread")]
async fn a_not_applied_effect_frees_the_key_for_those_who_wait() {
    let stage = Stage::new();
    let effect = booking(&client(&stage.url()), "G-28");
    let (begun, begins) = tokio::sync::oneshot::channel();
    let full = effect.run(|_| async {
        begun.send(()).unwrap();
        until_waiting(&stage, 1).await;
        Err(EffectFailure::NotApplied("full"))
    });
    let other = async {
        begins.await.unwrap();
        effect.run(|_| async { Ok::<_, Never>(EffectDone::new("RSV-28", "null")) }).await
    };
    let (full, other) = tokio::join!(full, other);
    assert!(matches!(full.unwrap_err(), RunError::Effect("full")));
    assert_eq!(other.unwrap(), RunOutcome { effect_id: "RSV-28".into(), receipt: "null".into(), replayed: false });
}
