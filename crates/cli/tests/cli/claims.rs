//! The life of one key over HTTP: claim, wait, seal, duplicate, renew, release, lapse.

use std::thread;

use serde_json::json;

use super::server::{dev, dev_with, until};

const SCOPE: &str = "BOOKING";

fn key(group: &str) -> serde_json::Value {
    json!({"caseUrn": "urn:case:7", "waveUrn": "urn:wave:1", "groupId": group})
}

#[test]
fn the_first_claim_is_new_and_after_the_seal_every_other_gets_its_receipt() {
    let server = dev();
    let mut acme = server.acme();
    let first = acme.claim(SCOPE, &key("G-1"));
    let granted = first.ok(201);
    assert_eq!(
        (&granted["decision"], &granted["attempt"], &granted["recovering"]),
        (&json!("new"), &json!(1), &json!(false))
    );
    let name = granted["idempotency_key"].as_str().unwrap();
    assert!(name.len() == 64 && name.bytes().all(|byte| matches!(byte, b'0'..=b'9' | b'a'..=b'f')), "{name}");
    assert_eq!(first.header("idempotency-expires"), granted["lease_expires_at"].as_str());
    assert_eq!(first.header("idempotency-replayed"), None);

    let sealed = acme.seal(SCOPE, &key("G-1"), first.token(), "RSV-1", json!({"hotel": "Astoria"}));
    let told = sealed.ok(200);
    assert_eq!(
        (&told["decision"], &told["replay"], &told["idempotency_key"]),
        (&json!("sealed"), &json!(false), &granted["idempotency_key"])
    );
    assert_eq!(sealed.header("idempotency-expires"), told["expires_at"].as_str());

    for _ in 0..2 {
        let second = server.acme().claim(SCOPE, &key("G-1"));
        let replay = second.ok(200);
        assert_eq!((&replay["decision"], &replay["replay"]), (&json!("duplicate"), &json!(true)));
        assert_eq!((&replay["effect_id"], &replay["receipt"]), (&json!("RSV-1"), &json!({"hotel": "Astoria"})));
        assert_eq!((&replay["sealed_at"], &replay["expires_at"]), (&told["sealed_at"], &told["expires_at"]));
        assert!(replay["first_seen_at"].as_str().unwrap() <= replay["sealed_at"].as_str().unwrap());
        assert_eq!(second.header("idempotency-replayed"), Some("true"));
        assert_eq!(second.header("idempotency-expires"), told["expires_at"].as_str());
        assert_eq!(second.header("content-type"), Some("application/json"));
    }
}

#[test]
fn a_repeated_seal_is_a_replay_and_another_outcome_is_refused() {
    let server = dev();
    let mut acme = server.acme();
    let token = acme.done(SCOPE, &key("G-1"), "RSV-1", json!({"n": 1}));
    let again = acme.seal(SCOPE, &key("G-1"), token, "RSV-1", json!({"n": 1}));
    assert_eq!(again.ok(200)["replay"], true);
    assert_eq!(again.header("idempotency-replayed"), Some("true"));
    acme.seal(SCOPE, &key("G-1"), token, "RSV-2", json!({"n": 1})).problem(409, "conflict");
    acme.seal(SCOPE, &key("G-1"), token, "RSV-1", json!({"n": 2})).problem(409, "conflict");
    acme.seal(SCOPE, &key("G-1"), token + 1, "RSV-1", json!({"n": 1})).problem(409, "fenced-off");
    acme.seal(SCOPE, &key("G-2"), token, "RSV-1", json!({"n": 1})).problem(409, "fenced-off");
    assert_eq!(acme.claim(SCOPE, &key("G-1")).ok(200)["effect_id"], "RSV-1", "the first one stands");
}

#[test]
fn a_second_claimant_is_told_when_to_come_back() {
    let server = dev();
    let mut acme = server.acme();
    let granted = acme.claim(SCOPE, &key("G-1")).ok(201);
    let refused = server.acme().claim(SCOPE, &key("G-1"));
    let problem = refused.problem(409, "in-flight");
    let seconds: u64 = refused.header("retry-after").unwrap().parse().unwrap();
    assert!((1..=60).contains(&seconds), "{seconds}");
    assert_eq!(problem["lease_expires_at"], granted["lease_expires_at"]);
}

#[test]
fn a_waiting_claim_is_woken_by_the_seal() {
    let server = dev();
    let mut acme = server.acme();
    let token = acme.claim(SCOPE, &key("G-1")).token();
    thread::scope(|scope| {
        let waiters: Vec<_> = (0..3)
            .map(|_| scope.spawn(|| server.acme().claim_with(SCOPE, &key("G-1"), json!({"wait_ms": 50_000}))))
            .collect();
        server.until_waiting(3);
        acme.seal(SCOPE, &key("G-1"), token, "RSV-1", json!("done")).ok(200);
        for waiter in waiters {
            let replay = waiter.join().unwrap().ok(200);
            assert_eq!((&replay["decision"], &replay["receipt"]), (&json!("duplicate"), &json!("done")));
        }
    });
}

#[test]
fn one_of_the_waiting_claims_is_let_in_by_a_release() {
    let server = dev();
    let mut acme = server.acme();
    let token = acme.claim(SCOPE, &key("G-1")).token();
    thread::scope(|scope| {
        let waiter = scope.spawn(|| server.acme().claim_with(SCOPE, &key("G-1"), json!({"wait_ms": 50_000})));
        server.until_waiting(1);
        acme.release(SCOPE, &key("G-1"), token).ok(200);
        let granted = waiter.join().unwrap().ok(201);
        assert_eq!((&granted["attempt"], &granted["recovering"]), (&json!(2), &json!(false)));
        assert!(granted["token"].as_u64().unwrap() > token);
    });
}

#[test]
fn a_wait_that_is_over_is_answered_in_flight() {
    let server = dev();
    let mut acme = server.acme();
    acme.claim(SCOPE, &key("G-1")).token();
    acme.claim_with(SCOPE, &key("G-1"), json!({"wait_ms": 30})).problem(409, "in-flight");
}

#[test]
fn a_release_frees_the_key_at_once_and_is_safe_to_repeat() {
    let server = dev();
    let mut acme = server.acme();
    let token = acme.claim(SCOPE, &key("G-1")).token();
    assert_eq!(acme.release(SCOPE, &key("G-1"), token).ok(200)["replay"], false);
    assert_eq!(acme.release(SCOPE, &key("G-1"), token).ok(200)["replay"], true);
    acme.seal(SCOPE, &key("G-1"), token, "RSV-1", json!(1)).problem(409, "fenced-off");
    acme.renew(SCOPE, &key("G-1"), token, 1_000).problem(409, "fenced-off");
    let granted = acme.claim(SCOPE, &key("G-1")).ok(201);
    assert_eq!(granted["attempt"], 2);
    assert!(granted["token"].as_u64().unwrap() > token, "a token only grows");
    acme.release(SCOPE, &key("G-1"), token).problem(409, "fenced-off");
}

#[test]
fn a_renewal_with_a_shorter_lease_ends_it_earlier() {
    let server = dev();
    let mut acme = server.acme();
    let granted = acme.claim(SCOPE, &key("G-1")).ok(201);
    let token = granted["token"].as_u64().unwrap();
    acme.renew(SCOPE, &key("G-1"), token, 3_600_000).ok(200);
    let renewed = acme.renew(SCOPE, &key("G-1"), token, 1_000).ok(200);
    assert!(renewed["lease_expires_at"].as_str().unwrap() < granted["lease_expires_at"].as_str().unwrap());
}

#[test]
fn a_renewed_lease_runs_from_now() {
    let server = dev();
    let mut acme = server.acme();
    let granted = acme.claim_with(SCOPE, &key("G-1"), json!({"lease_ms": 1})).ok(201);
    let token = granted["token"].as_u64().unwrap();
    let renewed = acme.renew(SCOPE, &key("G-1"), token, 3_600_000).ok(200);
    assert!(renewed["lease_expires_at"].as_str().unwrap() > granted["lease_expires_at"].as_str().unwrap());
    acme.claim(SCOPE, &key("G-1")).problem(409, "in-flight");
    acme.renew(SCOPE, &key("G-1"), token + 1, 1_000).problem(409, "fenced-off");
    acme.seal(SCOPE, &key("G-1"), token, "RSV-1", json!(1)).ok(200);
    acme.renew(SCOPE, &key("G-1"), token, 1_000).problem(409, "fenced-off");
}

#[test]
fn after_a_lapse_the_next_claimant_is_told_about_the_earlier_attempt() {
    let server = dev();
    let mut acme = server.acme();
    let lost = acme.claim_with(SCOPE, &key("G-1"), json!({"lease_ms": 1})).ok(201);
    // A claim that waits gets what a fresh one would get as soon as the lease is over.
    let granted = acme.claim_with(SCOPE, &key("G-1"), json!({"wait_ms": 50_000})).ok(201);
    assert_eq!((&granted["attempt"], &granted["recovering"]), (&json!(2), &json!(true)));
    assert_eq!((&granted["earlier"]["token"], &granted["earlier"]["attempt"]), (&lost["token"], &json!(1)));
    assert!(granted["token"].as_u64() > lost["token"].as_u64());
}

#[test]
fn a_late_seal_is_taken_while_nobody_else_was_let_in_and_refused_after() {
    let server = dev();
    let mut acme = server.acme();
    let late = acme.claim_with(SCOPE, &key("G-1"), json!({"lease_ms": 1})).token();
    until("the lease is over", || {
        (server.admin().lookup(SCOPE, &key("G-1"), "").ok(200)["state"] == "lapsed").then_some(())
    });
    acme.seal(SCOPE, &key("G-1"), late, "RSV-1", json!("late")).ok(200);
    assert_eq!(acme.claim(SCOPE, &key("G-1")).ok(200)["receipt"], "late");

    let zombie = acme.claim_with(SCOPE, &key("G-2"), json!({"lease_ms": 1})).token();
    let holder = acme.claim_with(SCOPE, &key("G-2"), json!({"wait_ms": 50_000})).token();
    acme.seal(SCOPE, &key("G-2"), zombie, "RSV-2", json!("zombie")).problem(409, "fenced-off");
    acme.seal(SCOPE, &key("G-2"), holder, "RSV-3", json!("holder")).ok(200);
    assert_eq!(acme.claim(SCOPE, &key("G-2")).ok(200)["receipt"], "holder");
    let history = server.admin().lookup(SCOPE, &key("G-2"), "").ok(200)["history"].to_string();
    assert!(history.contains("fenced_off") && history.contains("recovered"), "{history}");
}

#[test]
fn a_wait_past_what_the_server_allows_is_as_long_as_it_allows() {
    let server = dev_with("server: {limits: {wait_max: 20ms}}");
    let mut acme = server.acme();
    let token = acme.claim(SCOPE, &key("G-1")).token();
    for wait_ms in [9_000, u64::MAX] {
        acme.claim_with(SCOPE, &key("G-1"), json!({"wait_ms": wait_ms})).problem(409, "in-flight");
    }
    acme.seal(SCOPE, &key("G-1"), token, "E", json!(1)).ok(200);
    assert_eq!(acme.claim_with(SCOPE, &key("G-1"), json!({"wait_ms": 9_000})).ok(200)["effect_id"], "E");
}

#[test]
fn a_batch_is_decided_in_order_and_a_bad_command_spoils_only_itself() {
    let server = dev();
    let mut acme = server.acme();
    let claim = |group: &str| json!({"op": "claim", "scope": SCOPE, "key": key(group)});
    let answer = acme.batch(&[
        claim("G-1"),
        claim("G-1"),
        json!({"op": "claim", "scope": "NO_SUCH", "key": {}}),
        json!({"op": "explode"}),
        json!("not an object"),
        json!({"op": "claim", "scope": SCOPE, "key": {"caseUrn": "x"}}),
        json!({"op": "claim", "scope": SCOPE, "key": key("G-3"), "wait_ms": 10}),
        claim("G-2"),
    ]);
    let results = answer.ok(200);
    let results = results["results"].as_array().unwrap();
    let told: Vec<_> =
        results.iter().map(|result| (result["status"].as_u64().unwrap(), result["body"]["code"].as_str())).collect();
    assert_eq!(
        told,
        [
            (201, None),
            (409, Some("in-flight")),
            (404, Some("unknown-scope")),
            (400, Some("malformed-request")),
            (400, Some("malformed-request")),
            (400, Some("wrong-key-fields")),
            (400, Some("malformed-request")),
            (201, None),
        ]
    );
    let token = results[0]["body"]["token"].clone();
    let seal =
        json!({"op": "seal", "scope": SCOPE, "key": key("G-1"), "token": token, "effect_id": "RSV-1", "receipt": [1]});
    let results = acme.batch(&[seal, claim("G-1")]).ok(200);
    assert_eq!(results["results"][0]["body"]["decision"], "sealed");
    assert_eq!(results["results"][1]["body"]["decision"], "duplicate");
    assert_eq!(acme.batch(&[]).ok(200), json!({"results": []}));
}
