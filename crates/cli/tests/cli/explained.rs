//! A refusal that rests on the state of a key names the page that explains it; one that is in flight says since when it is held, and by
//! which trace.

use serde_json::{Value, json};

use super::{
    client::Answer,
    server::{Dev, Serve, dev},
};

const TRACE: &str = "4bf92f3577b34da6a3ce929d0e0e4736";
const HEADERS: &str = "authorization: Bearer dev-partner\r\ncontent-type: application/json\r\n";

fn explains(refused: &Answer, code: &str, key: &str) {
    assert_eq!(refused.problem(409, code)["explain"], format!("/console/keys/{key}"), "{code}");
}

fn page_of(server: &Dev, granted: &Answer) -> String {
    let key = granted.json()["idempotency_key"].as_str().unwrap().to_owned();
    assert_eq!(key.len(), 64);
    // Until there is a console, nothing is behind it.
    server.admin().get(&format!("/console/keys/{key}")).problem(404, "not-found");
    key
}

#[test]
fn claim_in_flight_says_since_when_and_under_which_trace_it_is_held() {
    let server = dev();
    let mut acme = server.acme();
    let traced = format!("{HEADERS}traceparent: 00-{TRACE}-00f067aa0ba902b7-01\r\n");
    let body = json!({"scope": "INDEX_BUILD", "key": {"index_hash": "x"}}).to_string();
    let granted = acme.send("POST", "/v1/fences/claim", &traced, body.as_bytes()).unwrap();
    let key = page_of(&server, &granted);
    let held = acme.claim("INDEX_BUILD", &json!({"index_hash": "x"}));
    explains(&held, "in-flight", &key);
    let problem = held.json();
    assert_eq!(problem["held_by_trace"], TRACE);
    assert_eq!(problem["lease_expires_at"], granted.json()["lease_expires_at"]);
    let seen = acme.lookup("INDEX_BUILD", &json!({"index_hash": "x"}), "").ok(200);
    assert_eq!(problem["first_seen_at"], seen["firstSeenAt"]);
    // It is kept with the claim: a renewal and a restart change nothing.
    acme.renew("INDEX_BUILD", &json!({"index_hash": "x"}), granted.token(), 60_000).ok(200);
    let Dev { server, dir } = server;
    server.kill();
    let server = Serve::dev(&dir.path().join("data")).start();
    let held = server.acme().claim("INDEX_BUILD", &json!({"index_hash": "x"})).problem(409, "in-flight");
    assert_eq!((&held["held_by_trace"], &held["first_seen_at"]), (&json!(TRACE), &seen["firstSeenAt"]));
}

#[test]
fn refusal_that_rests_on_the_state_of_a_key_names_the_page_that_explains_it() {
    let server = dev();
    let mut acme = server.acme();
    let booking = |group: &str| json!({"caseUrn": "c", "waveUrn": "w", "groupId": group});
    let first = acme.claim_with("BOOKING", &booking("1"), json!({"body": {"n": 1}, "version": 5}));
    let (key, token) = (page_of(&server, &first), first.token());
    explains(&acme.claim_with("BOOKING", &booking("1"), json!({"body": {"n": 2}})), "conflict", &key);
    explains(&acme.claim("BOOKING", &booking("1")), "in-flight", &key);
    explains(&acme.seal("BOOKING", &booking("1"), token + 1, "E", json!(1)), "fenced-off", &key);
    explains(&acme.renew("BOOKING", &booking("1"), token + 1, 1_000), "fenced-off", &key);
    explains(&acme.release("BOOKING", &booking("1"), token + 1), "fenced-off", &key);
    let alias = json!({"scope": "BOOKING", "key": booking("1")}).to_string();
    explains(&acme.put("/v1/aliases/latest", alias), "not-sealed", &key);
    acme.seal("BOOKING", &booking("1"), token, "E", json!(1)).ok(200);
    explains(&acme.seal("BOOKING", &booking("1"), token, "F", json!(1)), "conflict", &key);
    let resolve = json!({"scope": "BOOKING", "key": booking("1"), "tenant": "acme", "outcome": "released", "why": "w"});
    explains(&server.admin().post("/admin/idempotency/resolve", resolve.to_string()), "not-in-doubt", &key);

    let gap = acme.post("/v1/fences/again", json!({"scope": "BOOKING", "key": booking("1"), "seq": 2}).to_string());
    let page = gap.problem(409, "sequence-gap")["explain"].as_str().unwrap().to_owned();
    assert!(page.starts_with("/console/keys/") && !page.ends_with(&key), "the repetition has a key of its own: {page}");

    let event = |version: u32| json!({"provider": "p", "event_id": format!("e{version}"), "event_version": version.to_string(), "action": "a"});
    let order = |version: u32| json!({"source": {"type": "order", "id": "7"}, "version": version});
    let newer = acme.claim_with("WEBHOOK", &event(2), order(2)).token();
    acme.seal("WEBHOOK", &event(2), newer, "E", json!(1)).ok(200);
    let stale = acme.claim_with("WEBHOOK", &event(1), order(1)).problem(409, "stale");
    assert!(stale["explain"].as_str().unwrap().starts_with("/console/keys/"), "{stale}");

    let payment = json!({"caseUrn": "c", "reservationUrn": "r"});
    let lost = acme.claim_with("PAYMENT_TOKENIZATION", &payment, json!({"lease_ms": 1}));
    let doubt = acme.claim_with("PAYMENT_TOKENIZATION", &payment, json!({"wait_ms": 50_000}));
    explains(&doubt, "in-doubt", lost.json()["idempotency_key"].as_str().unwrap());

    let batch = acme.batch(&[json!({"op": "release", "scope": "BOOKING", "key": booking("1"), "token": 1})]).ok(200);
    assert_eq!(batch["results"][0]["body"]["explain"], format!("/console/keys/{key}"));
    // A refusal that is not about the state of a key has no page.
    let wrong = acme.claim("BOOKING", &json!({})).problem(400, "wrong-key-fields");
    assert_eq!(wrong.get("explain"), None::<&Value>);
}
