//! Versions of one source go forward only.

use serde_json::{Value, json};

use super::{client::Client, server::dev};

const SCOPE: &str = "WEBHOOK";

fn key(event: &str, version: Value) -> Value {
    json!({"provider": "stripe", "event_id": event, "event_version": version, "action": "sync"})
}

fn claim(client: &mut Client, event: &str, version: Value, source: &str) -> super::client::Answer {
    client.claim_with(SCOPE, &key(event, version), json!({"source": {"type": "invoice", "id": source}}))
}

#[test]
fn an_older_version_of_the_same_source_is_stale() {
    let server = dev();
    let mut acme = server.acme();
    let token = claim(&mut acme, "e2", json!(2), "in_1").token();
    acme.seal(SCOPE, &key("e2", json!(2)), token, "E-2", json!(2)).ok(200);
    let stale = claim(&mut acme, "e1", json!(1), "in_1").problem(409, "stale");
    assert_eq!(stale["sealed_version"], 2);
    // Another source, a later version, the same again: none of them is stale.
    claim(&mut acme, "e1", json!(1), "in_2").token();
    let token = claim(&mut acme, "e3", json!(10), "in_1").token();
    assert_eq!(claim(&mut acme, "e2", json!(2), "in_1").ok(200)["decision"], "duplicate");
    acme.seal(SCOPE, &key("e3", json!(10)), token, "E-10", json!(10)).ok(200);
    assert_eq!(
        claim(&mut acme, "e4", json!(9), "in_1").problem(409, "stale")["sealed_version"],
        10,
        "10 is more than 9, not less"
    );
    // Another tenant's versions are its own.
    claim(&mut server.globex(), "e1", json!(1), "in_1").token();
}

#[test]
fn a_number_and_a_word_do_not_compare() {
    let server = dev();
    let mut acme = server.acme();
    let token = claim(&mut acme, "e1", json!(3), "in_1").token();
    acme.seal(SCOPE, &key("e1", json!(3)), token, "E", json!(1)).ok(200);
    let refused = claim(&mut acme, "e2", json!("v4"), "in_1").problem(422, "version-incomparable");
    assert_eq!(refused["sealed_version"], 3);
}

#[test]
fn a_version_may_be_given_beside_the_key() {
    let server = dev();
    let mut acme = server.acme();
    let more = |version: Value| json!({"version": version, "source": {"type": "doc", "id": "D-1"}});
    let claim = |client: &mut Client, hash: &str, version: Value| {
        client.claim_with("INDEX_BUILD", &json!({"index_hash": hash}), more(version))
    };
    let token = claim(&mut acme, "a", json!("2026-03-01")).token();
    acme.seal("INDEX_BUILD", &json!({"index_hash": "a"}), token, "E", json!(1)).ok(200);
    let stale = claim(&mut acme, "b", json!("2026-02-28")).problem(409, "stale");
    assert_eq!(stale["sealed_version"], "2026-03-01");
    claim(&mut acme, "c", json!("2026-03-02")).token();
    for wrong in [json!(1.5), json!(true), json!([1]), json!(null)] {
        claim(&mut acme, "d", wrong).problem(400, "malformed-request");
    }
}
