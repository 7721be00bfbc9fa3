//! The same correlation id again: for the same request its answer, for another one a refusal that says what differs.

use serde_json::json;

use super::{
    super::server::{dev, dev_with, until},
    sending::{Sender, at, body, sku, uom},
};

const ID: &str = "01J7Y6K1NQ3W2C0X4V0R5T6E7N";

#[test]
fn id_used_again_with_another_body_is_refused_with_the_difference_and_changes_nothing() {
    let server = dev();
    let mut acme = Sender::acme(&server);
    let first = acme.send("master/uoms", ID, &[at(uom("EA"), 1)]);
    first.ok(200);
    let refused = acme.send("master/uoms", ID, &[at(uom("EA"), 2)]).problem(409, "correlation-id-reused");
    assert_eq!(refused["diff"], json!([{"op": "replace", "path": "/items/0/source_version", "value": 2}]));
    let page = refused["explain"].as_str().unwrap();
    let key = page.strip_prefix("/console/keys/").unwrap();
    assert!(key.len() == 64 && key.bytes().all(|byte| byte.is_ascii_hexdigit()), "{page}");
    let added = acme.send("master/uoms", ID, &[at(uom("EA"), 1), uom("KG")]).problem(409, "correlation-id-reused");
    assert_eq!(added["diff"][0]["op"], "add", "{added}");
    assert_eq!(acme.get("master/uoms/EA").ok(200)["source_version"], 1);
    acme.get("master/uoms/KG").problem(404, "unknown-item");
    assert_eq!(acme.send("master/uoms", ID, &[at(uom("EA"), 1)]).body, first.body);
}

#[test]
fn id_used_again_on_another_path_or_for_another_act_is_refused() {
    let server = dev();
    let mut acme = Sender::acme(&server);
    let items = [uom("EA")];
    acme.send("master/uoms", ID, &items).ok(200);
    let elsewhere = acme.send("master/addresses", ID, &items).problem(409, "correlation-id-reused");
    assert_eq!(elsewhere["diff"], json!([]), "the bodies are equal");
    assert!(elsewhere["detail"].as_str().unwrap().contains("path"), "{elsewhere}");
    acme.get("master/addresses/EA").problem(404, "unknown-item");
    acme.delete("master/uoms/EA", ID).problem(409, "correlation-id-reused");
    assert_eq!(acme.get("master/uoms/EA").ok(200)["status"], "ACTIVE");
    let waits = acme.quarantined("master/skus", sku("S-1", "CS"));
    acme.release(&waits, ID).problem(409, "correlation-id-reused");
    acme.accepted("master/locations", &[json!({"source_id": "WH-1", "kind": "WAREHOUSE"})]);
    acme.accepted("documents/receivers", &[json!({"source_id": "R-1", "warehouse": "WH-1", "lines": []})]);
    acme.cancel("receivers/R-1", ID).problem(409, "correlation-id-reused");
    assert_eq!(acme.get("documents/receivers/R-1").ok(200)["status"], "ACTIVE");
    // And the other way round: the id of a delete is not free for items.
    acme.delete("master/uoms/EA", "delete-1").ok(200);
    acme.send("master/uoms", "delete-1", &items).problem(409, "correlation-id-reused");
    acme.delete("master/uoms/other", "delete-1").problem(409, "correlation-id-reused");
}

#[test]
fn same_request_in_other_formatting_gets_the_stored_answer() {
    let server = dev();
    let mut acme = Sender::acme(&server);
    let sent = r#"{"items":[{"source_id":"EA","name":"Each","source_version":1}]}"#;
    let first = acme.post("master/uoms", ID, sent);
    first.ok(200);
    let spaced = "{ \"items\" : [ {\n\t\"source_version\": 1, \"name\": \"E\\u0061ch\", \"source_id\": \"EA\" } ] }";
    for (path, same) in [
        ("master/uoms?mode=upsert", sent),
        ("master/uoms?dry_run=false", sent),
        ("master/uoms?unknown=1&mode=", sent),
        ("master/uoms", spaced),
    ] {
        let again = acme.post(path, ID, same);
        assert_eq!((again.status, &again.body), (200, &first.body), "{path} {same}");
        assert_eq!(again.header("idempotency-replayed"), Some("true"), "{path} {same}");
    }
}

#[test]
fn id_used_again_gets_the_original_answer_where_the_policy_compares_no_bodies() {
    let server = dev_with(
        "scopes: { WMS_INGEST: { key: [correlation_id], retain: 30d, source: ingest, reject_on_body_mismatch: false } }",
    );
    let mut acme = Sender::acme(&server);
    let first = acme.send("master/uoms", ID, &[uom("EA")]);
    first.ok(200);
    for (path, items) in [("master/uoms", [uom("KG")]), ("master/addresses", [uom("EA")])] {
        let again = acme.send(path, ID, &items);
        assert_eq!((again.status, &again.body), (200, &first.body), "{path}");
        assert_eq!(again.header("idempotency-replayed"), Some("true"));
    }
    acme.get("master/uoms/KG").problem(404, "unknown-item");
    acme.get("master/addresses/EA").problem(404, "unknown-item");
}

#[test]
fn refused_request_leaves_its_id_free() {
    let server = dev();
    let mut acme = Sender::acme(&server);
    let right = body(&[uom("EA")]);
    for (number, (path, wrong, status, code)) in [
        ("master/uoms", "{", 400, "malformed-request"),
        ("master/uoms", r#"{"items":{}}"#, 400, "malformed-request"),
        ("master/uoms", r#"{"items":[{"source_id":"EA","source_id":"EA"}]}"#, 400, "malformed-request"),
        ("master/uoms?mode=bulk", r#"{"items":[1]}"#, 400, "malformed-request"),
        ("master/uoms?mode=full-refresh", &right, 501, "mode-unsupported"),
        ("master/uoms?mode=sideways", &right, 400, "malformed-request"),
        ("master/units", &right, 404, "unknown-collection"),
        ("master/uoms", r#"{"items":[],"partner_id":"globex"}"#, 403, "forbidden"),
    ]
    .into_iter()
    .enumerate()
    {
        let id = format!("refused-{number}");
        acme.post(path, &id, wrong).problem(status, code);
        let right = acme.post("master/uoms", &id, &right);
        assert_eq!((right.status, right.header("idempotency-replayed")), (200, None), "{path} {wrong}");
    }
    acme.delete("master/uoms/nothing", "unknown").problem(404, "unknown-item");
    assert_eq!(acme.send("master/uoms", "unknown", &[uom("KG")]).ok(200)["results"][0]["status"], "ACCEPTED");
}

#[test]
fn id_is_fresh_again_after_its_retention_and_items_are_remembered_longer() {
    let server = dev_with("scopes: { WMS_INGEST: { key: [correlation_id], retain: 1s, source: ingest } }");
    let mut acme = Sender::acme(&server);
    let first = acme.send("master/uoms", ID, &[at(uom("EA"), 1)]);
    assert_eq!(first.ok(200)["summary"]["accepted"], 1);
    let again = until("the id is fresh", || {
        let answer = acme.send("master/uoms", ID, &[at(uom("EA"), 1)]);
        assert!(answer.header("idempotency-replayed").is_none() || answer.body == first.body);
        answer.header("idempotency-replayed").is_none().then_some(answer)
    });
    assert_eq!(again.ok(200)["summary"]["replay"], 1, "the version is known for ever");
}
