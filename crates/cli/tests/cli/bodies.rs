//! Same key, other body: refused with a diff that leads from the first to the second.

use serde_json::{Value, json};

use super::server::{dev, dev_with};

const SCOPE: &str = "DOCUMENT_INGEST";

fn key(id: &str) -> Value {
    json!({"doc_id": id, "content_hash": "c"})
}

#[test]
fn another_body_is_a_conflict_with_a_diff_before_and_after_the_seal() {
    let server = dev();
    let mut acme = server.acme();
    let first = json!({"body": {"nights": 2, "guest": "Ada", "tags": ["a", "b"]}});
    let other = json!({"body": {"nights": 3, "guest": "Ada", "tags": ["a"]}});
    let token = acme.claim_with(SCOPE, &key("d1"), first.clone()).token();
    for state in ["pending", "sealed"] {
        let problem = acme.claim_with(SCOPE, &key("d1"), other.clone()).problem(409, "conflict");
        let mut document = first["body"].clone();
        apply(&mut document, problem["diff"].as_array().unwrap());
        assert_eq!(document, other["body"], "{state}: {}", problem["diff"]);
        acme.seal(SCOPE, &key("d1"), token, "E-1", json!(1)).ok(200);
    }
    acme.claim_with(SCOPE, &key("d1"), first).ok(200);
    acme.claim(SCOPE, &key("d1")).ok(200);
}

// Just enough of RFC 6902 for the diff above; written apart from the code that made it.
fn apply(document: &mut Value, diff: &[Value]) {
    for step in diff {
        let path = step["path"].as_str().unwrap();
        let (parent, last) = path.rsplit_once('/').unwrap();
        let parent = document.pointer_mut(parent).unwrap();
        match (step["op"].as_str().unwrap(), parent) {
            ("replace" | "add", Value::Object(members)) => drop(members.insert(last.to_owned(), step["value"].clone())),
            ("remove", Value::Object(members)) => drop(members.remove(last)),
            ("remove", Value::Array(items)) => drop(items.remove(last.parse().unwrap())),
            other => panic!("{other:?}"),
        }
    }
}

#[test]
fn bodies_compare_by_meaning_and_numbers_by_exact_value() {
    let server = dev();
    let mut acme = server.acme();
    let claim = |id: &str, body: &str| {
        format!(r#"{{"scope":"{SCOPE}","key":{{"doc_id":"{id}","content_hash":"c"}},"body":{body}}}"#)
    };
    let same = [
        (r#"{"a":1,"b":[1.0,"\u00e9"]}"#, "{ \"b\" : [ 1 , \"é\" ],\n\t\"a\" : 1.0 }"),
        (r#"{"n":100}"#, r#"{"n":1e2}"#),
        (r#"{"n":-0}"#, r#"{"n":0}"#),
    ];
    for (index, (first, second)) in same.iter().enumerate() {
        acme.post("/v1/fences/claim", claim(&format!("same-{index}"), first)).token();
        acme.post("/v1/fences/claim", claim(&format!("same-{index}"), second)).problem(409, "in-flight");
    }
    let different = [
        (r#"{"n":9007199254740993}"#, r#"{"n":9007199254740992}"#),
        (r#"{"n":1}"#, r#"{"n":"1"}"#),
        (r#"{"n":null}"#, r#"{}"#),
        (r#"[1,2]"#, r#"[2,1]"#),
        (r#"{"n":0.1}"#, r#"{"n":0.10000000000000000001}"#),
    ];
    for (index, (first, second)) in different.iter().enumerate() {
        acme.post("/v1/fences/claim", claim(&format!("other-{index}"), first)).token();
        acme.post("/v1/fences/claim", claim(&format!("other-{index}"), second)).problem(409, "conflict");
    }
}

#[test]
fn a_released_key_is_free_for_another_body() {
    let server = dev();
    let mut acme = server.acme();
    let token = acme.claim_with(SCOPE, &key("d1"), json!({"body": 1})).token();
    acme.claim_with(SCOPE, &key("d1"), json!({"body": 2})).problem(409, "conflict");
    acme.release(SCOPE, &key("d1"), token).ok(200);
    acme.claim_with(SCOPE, &key("d1"), json!({"body": 2})).token();
    acme.claim_with(SCOPE, &key("d1"), json!({"body": 1})).problem(409, "conflict");
}

#[test]
fn masked_values_never_leave_in_a_diff() {
    let server = dev_with("scopes:\n  CARD: { key: [id], mask: [/card/number] }\n");
    let mut acme = server.acme();
    let body = |number: &str, name: &str| json!({"body": {"card": {"number": number}, "name": name}});
    acme.claim_with("CARD", &json!({"id": "1"}), body("4111-first", "Ada")).token();
    let refused = acme.claim_with("CARD", &json!({"id": "1"}), body("4222-second", "Eve"));
    let problem = refused.problem(409, "conflict");
    assert!(problem["diff"].to_string().contains("Eve"), "{problem}");
    assert!(!refused.text().contains("4111") && !refused.text().contains("4222"), "{problem}");
}

#[test]
fn a_scope_that_forgives_other_bodies_answers_the_first_receipt() {
    let server = dev();
    let mut acme = server.acme();
    let key = json!({"externalEventId": "EV-1"});
    let token = acme.claim_with("CASE_CREATION", &key, json!({"body": {"sentAt": 1}})).token();
    acme.seal("CASE_CREATION", &key, token, "CASE-1", json!({"caseUrn": "urn:case:1"})).ok(200);
    let replay = acme.claim_with("CASE_CREATION", &key, json!({"body": {"sentAt": 2}})).ok(200);
    assert_eq!((&replay["decision"], &replay["effect_id"]), (&json!("duplicate"), &json!("CASE-1")));
}

#[test]
fn a_large_body_is_compared_whole_and_told_apart_by_digest_and_size() {
    let server = dev();
    let mut acme = server.acme();
    let large = |end: &str| json!({"body": {"text": "x".repeat(200_000) + end}});
    acme.claim_with(SCOPE, &key("large"), large("a")).token();
    acme.claim_with(SCOPE, &key("large"), large("a")).problem(409, "in-flight");
    let problem = acme.claim_with(SCOPE, &key("large"), large("bb")).problem(409, "conflict");
    assert!(problem["diff"].is_null(), "{problem}");
    assert_eq!(problem["second"]["size"].as_u64().unwrap(), problem["first"]["size"].as_u64().unwrap() + 1);
    assert_ne!(problem["first"]["sha256"], problem["second"]["sha256"]);
}
