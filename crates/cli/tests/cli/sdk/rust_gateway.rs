//! The Rust client against the real binary: an API behind the gateway.

use std::time::Duration;

use fencepost_client::{Client, Error, Retry};
use serde_json::{Value, json};

use super::{super::server::until, rust::client, stage::Stage};

#[tokio::test]
async fn one_request_is_one_call_however_often_it_is_sent() {
    let stage = Stage::new();
    let client = client(&stage.road_url());
    // Two tries meet a busy server, the third is carried out and its answer lost, the fourth gets that answer.
    stage.faults("503:0,429:0,lose");
    let first = client.post("/charges").json(r#"{"amount":5}"#).send().await.unwrap();
    assert_eq!((first.status, first.replayed, &first.body[..]), (201, true, &br#"{"charge": 1, "asked": 12}"#[..]));
    assert_eq!(first.headers["location"], "/charges/1");
    assert_eq!((stage.requests(), stage.calls()), (4, 1));
    // A UUID v7, so that keys sort by time.
    assert_eq!((first.idempotency_key.len(), &first.idempotency_key[14..15]), (36, "7"));
    let second = client.post("/charges").json(r#"{"amount":5}"#).send().await.unwrap();
    assert_ne!(second.idempotency_key, first.idempotency_key);
    assert_eq!((second.status, second.replayed, stage.calls()), (201, false, 2));
}

#[tokio::test]
async fn another_body_under_the_callers_own_key_is_a_conflict() {
    let stage = Stage::new();
    let client = client(&stage.url());
    let charge = |body: &'static str| client.post("/charges").idempotency_key("order-7").json(body).send();
    let first = charge(r#"{"amount":5}"#).await.unwrap();
    let second = charge(r#"{"amount":5}"#).await.unwrap();
    assert_eq!((first.replayed, second.replayed, first.body == second.body), (false, true, true));
    let refused = charge(r#"{"amount":6}"#).await.unwrap_err();
    assert!(matches!(refused, Error::Conflict(_)), "{refused}");
    let diff: Value = serde_json::from_str(refused.problem().unwrap().diff.as_ref().unwrap()).unwrap();
    assert_eq!(diff, json!([{"op": "replace", "path": "/amount", "value": 6}]));
    assert_eq!(stage.calls(), 1);
}

#[tokio::test]
async fn a_key_among_the_headers_is_the_callers_own_and_an_empty_one_is_refused() {
    let stage = Stage::new();
    let client = client(&stage.url());
    let charge = |key: &str| client.post("/charges").header("Idempotency-Key", key).json(r#"{"amount":5}"#);
    for replayed in [false, true] {
        let answer = charge("order-9").send().await.unwrap();
        assert_eq!((answer.replayed, answer.idempotency_key.as_str()), (replayed, "order-9"));
    }
    assert_eq!(stage.calls(), 1);
    for wrong in [charge(""), charge("a").idempotency_key("b")] {
        let refused = wrong.send().await.unwrap_err();
        assert!(matches!(refused, Error::Invalid(_)), "{refused}");
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn of_two_at_once_both_get_the_one_answer() {
    let stage = Stage::new();
    let patient = client(&stage.url());
    let charge = |client: &Client| client.post("/charges").idempotency_key("order-8").json(r#""hold""#).send();
    let first = tokio::spawn(charge(&patient));
    until("the upstream is asked", || (stage.calls() == 1).then_some(()));
    // A client that has no time to wait hears that the request is in flight; after a 503, that it may be its own.
    stage.faults("503:0");
    let retry = Retry { deadline: Duration::from_secs(1), ..Retry::default() };
    let hasty = Client::builder(&stage.road_url(), "dev-partner").retry(retry).build().unwrap();
    let held = charge(&hasty).await.unwrap_err();
    assert!(matches!(held, Error::InFlight { perhaps_own: true, .. }), "{held}");
    let said = held.to_string();
    assert!(said.contains("`deadline`") && !said.contains("wait_ms"), "{said}");
    let second = tokio::spawn(charge(&patient));
    stage.let_go();
    let (a, b) = (first.await.unwrap(), second.await.unwrap());
    let (a, b) = (a.unwrap(), b.unwrap());
    assert_eq!((a.status, a.body), (b.status, b.body));
    assert_eq!((a.replayed ^ b.replayed, stage.calls()), (true, 1));
}
