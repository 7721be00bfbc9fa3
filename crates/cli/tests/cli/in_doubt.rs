//! A payment whose holder died is nobody's until a person has spoken, and the person's word is kept.

use serde_json::{Value, json};

use super::{
    client::{Answer, Client},
    server::{Dev, dev, fencepost, text, until},
};

const SCOPE: &str = "PAYMENT_TOKENIZATION";

fn key(name: &str) -> Value {
    json!({"caseUrn": "urn:case:7", "reservationUrn": name})
}

/// A fence in doubt, and the token of its lost holder.
fn doubted(server: &Dev, name: &str) -> u64 {
    let mut acme = server.acme();
    let token = acme.claim_with(SCOPE, &key(name), json!({"lease_ms": 1})).token();
    // The claim that waits over the lapse gets what a fresh one would get.
    let refused = acme.claim_with(SCOPE, &key(name), json!({"wait_ms": 50_000}));
    refused.problem(409, "in-doubt");
    token
}

fn resolve(client: &mut Client, name: &str, more: Value) -> Answer {
    let body =
        super::client::with(json!({"scope": SCOPE, "key": key(name), "tenant": "acme", "why": "asked the bank"}), more);
    client.post("/admin/idempotency/resolve", body)
}

#[test]
fn a_doubt_is_listed_until_a_person_resolves_it_and_their_word_stays_in_the_history() {
    let server = dev();
    let mut admin = server.admin();
    let token = doubted(&server, "R-1");
    let list = admin.get("/admin/idempotency/in-doubt").ok(200);
    let item = &list["items"][0];
    assert_eq!(
        (&item["scope"], &item["tenant"], &item["key"], &item["token"]),
        (&json!(SCOPE), &json!("acme"), &key("R-1"), &json!(token))
    );
    assert_eq!(list["next_cursor"], "");

    let sealed = json!({"outcome": "sealed", "effect_id": "PAY-1", "receipt": {"paid": true}});
    assert_eq!(resolve(&mut admin, "R-1", sealed.clone()).ok(200)["replay"], false);
    let repeat = resolve(&mut admin, "R-1", sealed);
    assert_eq!(repeat.ok(200)["replay"], true);
    assert_eq!(repeat.header("idempotency-replayed"), Some("true"));
    assert_eq!(admin.get("/admin/idempotency/in-doubt").ok(200)["items"], json!([]));
    let replay = server.acme().claim(SCOPE, &key("R-1")).ok(200);
    assert_eq!((&replay["effect_id"], &replay["receipt"]), (&json!("PAY-1"), &json!({"paid": true})));
    let told = admin.lookup(SCOPE, &key("R-1"), "").ok(200);
    let word = told["history"].as_array().unwrap().iter().find(|line| line["decision"] == "resolved").unwrap();
    assert_eq!((&word["by"], &word["why"]), (&json!("dev-admin"), &json!("asked the bank")));
    resolve(&mut admin, "R-1", json!({"outcome": "released"})).problem(409, "not-in-doubt");
}

#[test]
fn a_doubt_that_is_released_may_run_again() {
    let server = dev();
    let mut admin = server.admin();
    let token = doubted(&server, "R-1");
    assert_eq!(resolve(&mut admin, "R-1", json!({"outcome": "released"})).ok(200)["replay"], false);
    assert_eq!(resolve(&mut admin, "R-1", json!({"outcome": "released"})).ok(200)["replay"], true);
    server.acme().seal(SCOPE, &key("R-1"), token, "PAY-0", json!(0)).problem(409, "fenced-off");
    let granted = server.acme().claim(SCOPE, &key("R-1")).ok(201);
    assert!(granted["token"].as_u64().unwrap() > token);
}

#[test]
fn late_seal_after_a_person_resolved_says_who_did_and_when_and_so_does_why() {
    let server = dev();
    let mut admin = server.admin();
    for (name, outcome, code, word) in [
        ("R-1", json!({"outcome": "sealed", "effect_id": "PAY-1", "receipt": 1}), "conflict", "done"),
        ("R-2", json!({"outcome": "released"}), "fenced-off", "not done"),
    ] {
        let token = doubted(&server, name);
        resolve(&mut admin, name, outcome).ok(200);
        let history = admin.lookup(SCOPE, &key(name), "").ok(200)["history"].clone();
        let at = history.as_array().unwrap().iter().find(|line| line["decision"] == "resolved").unwrap()["at"].clone();
        let at = at.as_str().unwrap();
        let late = server.acme().seal(SCOPE, &key(name), token, "PAY-0", json!(0)).problem(409, code);
        let detail = late["detail"].as_str().unwrap();
        let said = format!("dev-admin resolved this key as {word} at {at}: asked the bank");
        assert!(detail.starts_with(&said), "{detail}");
        assert_eq!((late["resolved_by"].as_str(), late["resolved_at"].as_str()), (Some("dev-admin"), Some(at)));
        let mut late = vec![server.acme().renew(SCOPE, &key(name), token, 1_000)];
        match word {
            "done" => late.push(server.acme().release(SCOPE, &key(name), token)),
            // It says what the person said.
            _ => assert_eq!(server.acme().release(SCOPE, &key(name), token).ok(200)["replay"], true),
        }
        for late in late {
            let late = late.problem(409, "fenced-off");
            assert_eq!((&late["resolved_by"], late["explain"].is_string()), (&json!("dev-admin"), true), "{late}");
        }
        let seal =
            json!({"op": "seal", "scope": SCOPE, "key": key(name), "token": token, "effect_id": "P", "receipt": 0});
        let batch = server.acme().post("/v1/fences/batch", json!({"commands": [seal]}).to_string()).ok(200);
        assert_eq!(batch["results"][0]["body"]["resolved_by"], "dev-admin", "{batch}");
        let fields = ["caseUrn=urn:case:7", &format!("reservationUrn={name}")];
        let why = text(&fencepost([&["why", SCOPE], &fields[..], &["--url", &server.url()]].concat()).stdout);
        assert!(why.contains(&format!("dev-admin resolved it as {word} at {at}")), "{why}");
    }
}

#[test]
fn the_lost_holder_itself_may_still_end_the_doubt() {
    let server = dev();
    let token = doubted(&server, "R-1");
    server.acme().renew(SCOPE, &key("R-1"), token, 1_000).problem(409, "in-doubt");
    server.acme().seal(SCOPE, &key("R-1"), token, "PAY-1", json!("late")).ok(200);
    assert_eq!(server.acme().claim(SCOPE, &key("R-1")).ok(200)["receipt"], "late");
    assert_eq!(server.admin().get("/admin/idempotency/in-doubt").ok(200)["items"], json!([]));
    let history = server.admin().lookup(SCOPE, &key("R-1"), "").ok(200)["history"].to_string();
    assert!(history.contains("sealed_late"), "{history}");
}

#[test]
fn a_doubt_survives_a_restart_and_never_ends_by_itself() {
    let dir = tempfile::tempdir().unwrap();
    let server = super::server::Serve::dev(dir.path()).start();
    let token = server.acme().claim_with(SCOPE, &key("R-1"), json!({"lease_ms": 1})).token();
    server.kill();
    let server = super::server::Serve::dev(dir.path()).start();
    let listed = || server.admin().get("/admin/idempotency/in-doubt").ok(200)["items"][0]["token"] == token;
    until("the lease is over", || listed().then_some(()));
    server.acme().claim(SCOPE, &key("R-1")).problem(409, "in-doubt");
}

#[test]
fn a_resolution_is_checked_before_anything_happens() {
    let server = dev();
    let mut admin = server.admin();
    doubted(&server, "R-1");
    resolve(&mut server.acme(), "R-1", json!({"outcome": "released"})).problem(403, "forbidden");
    server.acme().get("/admin/idempotency/in-doubt").problem(403, "forbidden");
    for wrong in [
        json!({"outcome": "maybe"}),
        json!({"outcome": 1}),
        json!({"outcome": "sealed"}),
        json!({"outcome": "sealed", "effect_id": ""}),
        json!({"outcome": "released", "why": ""}),
        json!({"outcome": "released", "why": null}),
    ] {
        resolve(&mut admin, "R-1", wrong).problem(400, "malformed-request");
    }
    let nobody = json!({"scope": SCOPE, "key": key("R-1"), "outcome": "released", "why": "w"});
    admin.post("/admin/idempotency/resolve", nobody.to_string()).problem(400, "malformed-request");
    resolve(&mut admin, "R-2", json!({"outcome": "released"})).problem(409, "not-in-doubt");
    admin.get("/admin/idempotency/in-doubt?since=nonsense").problem(404, "unknown-cursor");
    server.acme().claim(SCOPE, &key("R-1")).problem(409, "in-doubt");
}

#[test]
fn the_list_of_doubts_can_be_narrowed_and_the_tenant_may_stand_in_the_query() {
    let server = dev();
    let mut admin = server.admin();
    doubted(&server, "R-1");
    for (filter, count) in [
        ("tenant=acme", 1),
        ("tenant=globex", 0),
        ("scope=PAYMENT_TOKENIZATION", 1),
        ("scope=BOOKING", 0),
        ("scope=PAYMENT_TOKENIZATION&tenant=globex", 0),
    ] {
        let page = admin.get(&format!("/admin/idempotency/in-doubt?{filter}")).ok(200);
        assert_eq!(page["items"].as_array().unwrap().len(), count, "{filter}");
    }
    let word = json!({"scope": SCOPE, "key": key("R-1"), "outcome": "released", "why": "w"}).to_string();
    assert_eq!(admin.post("/admin/idempotency/resolve?tenant=acme", word).ok(200)["replay"], false);
}

#[test]
fn a_late_repeat_of_a_resolution_leaves_a_later_doubt_alone() {
    let server = dev();
    let mut admin = server.admin();
    doubted(&server, "R-1");
    let word = || json!({"outcome": "released"});
    assert_eq!(resolve(&mut admin, "R-1", word()).ok(200)["replay"], false);
    let token = doubted(&server, "R-1");
    assert_eq!(resolve(&mut admin, "R-1", word()).ok(200)["replay"], true);
    server.acme().claim(SCOPE, &key("R-1")).problem(409, "in-doubt");
    assert_eq!(resolve(&mut admin, "R-1", json!({"outcome": "released", "token": token})).ok(200)["replay"], false);
}
