//! The traps that others fell into, each of which has a test here. Those of the gateway, items and lanes come with them.

use serde_json::{Value, json};

use super::server::{Serve, dev, dev_with, until};

const SCOPE: &str = "INDEX_BUILD";

fn key(hash: &str) -> Value {
    json!({"index_hash": hash})
}

#[test]
fn a_missing_key_is_not_hashed_into_one_shared_key() {
    let server = dev();
    let mut acme = server.acme();
    for wrong in [json!({}), json!({"index_hash": null}), json!(null), json!({"Index_hash": "x"})] {
        for _ in 0..2 {
            assert_eq!(acme.claim(SCOPE, &wrong).status, 400, "{wrong}");
        }
    }
    assert_eq!(acme.post("/v1/fences/claim", json!({"scope": SCOPE}).to_string()).status, 400);
    // Empty is a value of its own, not the absence of one.
    acme.claim(SCOPE, &key("")).token();
    acme.claim(SCOPE, &key("null")).token();
    acme.claim(SCOPE, &key("undefined")).token();
}

#[test]
fn attribute_order_does_not_change_the_key() {
    let server = dev();
    let mut acme = server.acme();
    let one = r#"{"scope":"BOOKING","key":{"caseUrn":"c","waveUrn":"w","groupId":"g"},"body":{"a":1,"b":2}}"#;
    let other = r#"{"body":{"b":2,"a":1},"key":{"groupId":"g","waveUrn":"w","caseUrn":"c"},"scope":"BOOKING"}"#;
    acme.post("/v1/fences/claim", one).token();
    acme.post("/v1/fences/claim", other).problem(409, "in-flight");
}

#[test]
fn no_validation_is_skipped_on_the_fast_path_of_a_duplicate() {
    let server = dev();
    let mut acme = server.acme();
    let token = acme.claim_with(SCOPE, &key("x"), json!({"body": {"n": 1}})).token();
    acme.seal(SCOPE, &key("x"), token, "E", json!(1)).ok(200);
    acme.claim_with(SCOPE, &key("x"), json!({"body": {"n": 2}})).problem(409, "conflict");
    acme.claim_with(SCOPE, &key("x"), json!({"lease_ms": 0})).problem(400, "malformed-request");
    acme.claim_with(SCOPE, &key("x"), json!({"wait_ms": -1})).problem(400, "malformed-request");
    acme.claim_with(SCOPE, &json!({"index_hash": "x", "more": 1}), json!({})).problem(400, "wrong-key-fields");
    acme.claim_with(SCOPE, &key("x"), json!({"tenant": "globex"})).problem(403, "forbidden");
    server.client("wrong").claim(SCOPE, &key("x")).problem(401, "unauthorized");
    acme.claim_with(SCOPE, &key("x"), json!({"body": {"n": 1}})).ok(200);
}

#[test]
fn the_mismatch_hash_is_not_dropped_at_the_seal_nor_by_a_restart() {
    let dir = tempfile::tempdir().unwrap();
    let server = Serve::dev(dir.path()).start();
    let token = server.acme().claim_with(SCOPE, &key("x"), json!({"body": {"n": 1}})).token();
    server.acme().seal(SCOPE, &key("x"), token, "E", json!(1)).ok(200);
    server.acme().claim_with(SCOPE, &key("x"), json!({"body": {"n": 2}})).problem(409, "conflict");
    server.kill();
    let server = Serve::dev(dir.path()).start();
    let problem = server.acme().claim_with(SCOPE, &key("x"), json!({"body": {"n": 2}})).problem(409, "conflict");
    assert_eq!(problem["diff"], json!([{"op": "replace", "path": "/n", "value": 2}]));
    // A claim without a body is not compared, and does not wipe what the next one is compared with.
    server.acme().claim(SCOPE, &key("x")).ok(200);
    server.acme().claim_with(SCOPE, &key("x"), json!({"body": {"n": 2}})).problem(409, "conflict");
}

#[test]
fn a_lease_that_expires_under_a_slow_worker_lets_one_outcome_stand() {
    let server = dev();
    let mut acme = server.acme();
    let slow = acme.claim_with(SCOPE, &key("x"), json!({"lease_ms": 1})).token();
    let next = acme.claim_with(SCOPE, &key("x"), json!({"wait_ms": 50_000})).token();
    assert!(next > slow);
    acme.seal(SCOPE, &key("x"), slow, "SLOW", json!("slow")).problem(409, "fenced-off");
    acme.release(SCOPE, &key("x"), slow).problem(409, "fenced-off");
    acme.renew(SCOPE, &key("x"), slow, 1_000).problem(409, "fenced-off");
    acme.seal(SCOPE, &key("x"), next, "NEXT", json!("next")).ok(200);
    acme.seal(SCOPE, &key("x"), slow, "SLOW", json!("slow")).problem(409, "fenced-off");
    assert_eq!(acme.claim(SCOPE, &key("x")).ok(200)["effect_id"], "NEXT");
}

#[test]
fn an_oversized_receipt_is_stored_whole_or_refused_and_never_skips_the_fence() {
    let server = dev();
    let mut acme = server.acme();
    let large = "x".repeat(4_000_000);
    acme.done(SCOPE, &key("large"), "E", json!(large));
    assert_eq!(acme.claim(SCOPE, &key("large")).ok(200)["receipt"], large);
    // Past the limit the seal is refused, and the claim is still the holder's.
    let token = acme.claim(SCOPE, &key("larger")).token();
    assert_eq!(acme.seal(SCOPE, &key("larger"), token, "E", json!("x".repeat(5_000_000))).status, 413);
    acme.claim(SCOPE, &key("larger")).problem(409, "in-flight");
    acme.seal(SCOPE, &key("larger"), token, "E", json!("smaller")).ok(200);
}

#[test]
fn credentials_are_not_stored_and_not_replayed_to_another_caller() {
    let dir = tempfile::tempdir().unwrap();
    let log = dir.path().join("log");
    let data = dir.path().join("data");
    let server = Serve::dev(&data).log(log.clone()).start();
    server.acme().done(SCOPE, &key("x"), "E", json!({"for": "acme"}));
    let replay = server.client("dev-admin").claim_with(SCOPE, &key("x"), json!({"tenant": "acme"}));
    assert_eq!(replay.ok(200)["receipt"], json!({"for": "acme"}));
    let shown = format!("{:?}{}", replay.headers, replay.text()) + &server.admin().lookup(SCOPE, &key("x"), "").text();
    assert!(!shown.contains("dev-partner") && !shown.to_lowercase().contains("bearer"), "{shown}");
    server.globex().claim(SCOPE, &key("x")).token();
    server.signal(rustix::process::Signal::TERM);
    server.wait();
    assert!(!std::fs::read_to_string(log).unwrap().contains("dev-partner"));
    let mut looked = vec![data];
    while let Some(path) = looked.pop() {
        if path.is_dir() {
            looked.extend(std::fs::read_dir(&path).unwrap().map(|entry| entry.unwrap().path()));
        } else {
            let bytes = std::fs::read(&path).unwrap();
            assert!(!bytes.windows(11).any(|window| window == b"dev-partner"), "{}", path.display());
        }
    }
}

#[test]
fn a_key_that_ends_in_a_suffix_does_not_collide_with_another() {
    let server = dev();
    let mut acme = server.acme();
    let booking = |case: &str, wave: &str, group: &str| json!({"caseUrn": case, "waveUrn": wave, "groupId": group});
    for key in [
        booking("ab", "c", "d"),
        booking("a", "bc", "d"),
        booking("a", "b", "cd"),
        booking("abc", "", "d"),
        booking("", "abc", "d"),
        booking("a:b", "c", "d"),
        booking("a", "b:c", "d"),
        booking("a", "b", "d#1"),
        booking("a", "b", "d"),
        booking("a\0", "b", "d"),
    ] {
        acme.claim("BOOKING", &key).token();
    }
    // Nor does the number of a repetition with the end of a key.
    let token = acme.claim("BOOKING", &booking("s", "s", "s")).token();
    acme.seal("BOOKING", &booking("s", "s", "s"), token, "E", json!(1)).ok(200);
    acme.post("/v1/fences/again", json!({"scope": "BOOKING", "key": booking("s", "s", "s"), "seq": 1}).to_string())
        .token();
    for end in ["s1", "s:1", "s#1", "s/1"] {
        acme.claim("BOOKING", &booking("s", "s", end)).token();
    }
}

#[test]
fn a_client_that_disconnects_while_the_effect_runs_keeps_its_claim() {
    let server = dev();
    let mut holder = server.acme();
    let token = holder.claim(SCOPE, &key("x")).token();
    drop(holder);
    server.acme().claim(SCOPE, &key("x")).problem(409, "in-flight");
    server.acme().seal(SCOPE, &key("x"), token, "E", json!(1)).ok(200);

    // And one that disconnects while it waits takes nothing with it.
    let token = server.acme().claim(SCOPE, &key("y")).token();
    let mut waiter = server.acme();
    waiter.begin_post("/v1/fences/claim", json!({"scope": SCOPE, "key": key("y"), "wait_ms": 50_000}).to_string());
    server.until_waiting(1);
    drop(waiter);
    server.until_waiting(0);
    server.acme().release(SCOPE, &key("y"), token).ok(200);
    server.acme().claim(SCOPE, &key("y")).token();
}

// A 409 after a 503 that made the client delete live data: in failed_sync, which can make the 503.

#[test]
fn tombstone_versions_are_not_forgotten_so_that_an_old_version_comes_back() {
    let server =
        dev_with("scopes:\n  DOC: { key: [id, revision], retain: 1ms, version: { field: revision, per: [id] } }\n");
    let mut acme = server.acme();
    let doc = |revision: u64| json!({"id": "D-1", "revision": revision});
    let token = acme.claim("DOC", &doc(5)).token();
    acme.seal("DOC", &doc(5), token, "E-5", json!(5)).ok(200);
    until("the fence is forgotten", || (acme.lookup("DOC", &doc(5), "").ok(200)["exists"] == false).then_some(()));
    let stale = acme.claim("DOC", &doc(4)).problem(409, "stale");
    assert_eq!(stale["sealed_version"], 5);
    acme.claim("DOC", &doc(6)).token();
}

#[test]
fn a_queue_message_is_not_acknowledged_while_its_first_copy_is_pending() {
    let server = dev();
    let mut acme = server.acme();
    let message = json!({"topic": "orders", "partition": 0, "message_key": "k", "dedupe_id": "m-1"});
    let token = acme.claim("QUEUE_MESSAGE", &message).token();
    let second = server.acme().claim("QUEUE_MESSAGE", &message);
    second.problem(409, "in-flight");
    assert!(
        second.header("retry-after").is_some() && second.header("idempotency-replayed").is_none(),
        "nothing that looks done"
    );
    acme.release("QUEUE_MESSAGE", &message, token).ok(200);
    let token = server.acme().claim("QUEUE_MESSAGE", &message).token();
    acme.seal("QUEUE_MESSAGE", &message, token, "E", json!(1)).ok(200);
    assert_eq!(server.acme().claim("QUEUE_MESSAGE", &message).ok(200)["decision"], "duplicate");
}
