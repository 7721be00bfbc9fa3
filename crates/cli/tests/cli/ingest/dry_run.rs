//! A dry run: the same verdicts, and nothing changes.

use serde_json::{Value, json};

use super::{
    super::server::dev,
    sending::{Sender, at, body, sku, uom},
};

// The verdicts, without the ids of stays: a dry run opens none.
fn verdicts(told: &Value) -> Vec<Value> {
    let mut results = told["results"].as_array().unwrap().clone();
    for result in &mut results {
        result.as_object_mut().unwrap().remove("quarantine_id");
    }
    results
}

#[test]
fn dry_run_gives_the_verdicts_of_the_request_and_changes_nothing() {
    let server = dev();
    let mut acme = Sender::acme(&server);
    acme.accepted("master/uoms", &[uom("EA")]);
    acme.accepted("master/skus", &[at(sku("OLD", "EA"), 2)]);
    let stays = acme.quarantined("master/skus", at(sku("WAITS", "CS"), 1));
    let items = [
        at(sku("NEW", "EA"), 1),
        at(sku("NEW", "EA"), 1),
        at(sku("OLD", "EA"), 2),
        at(sku("OLD", "KG"), 2),
        at(sku("OLD", "EA"), 3),
        at(sku("WAITS", "EA"), 2),
        at(sku("LATE", "KG"), 1),
        at(json!({"source_id": "BAD"}), 1),
        json!({}),
    ];
    let preview = acme.ask("POST", "master/skus?dry_run=true", "", body(&items).as_bytes());
    let told = preview.ok(200);
    assert_eq!(told["dry_run"], true);
    let waits = told["results"].as_array().unwrap().iter().filter(|result| result["status"] == "QUARANTINED");
    let ids: Vec<_> = waits.map(|result| (&result["source_id"], result.get("quarantine_id"))).collect();
    assert_eq!(ids, [(&json!("LATE"), None)], "an id would name a stay that never comes to be");
    assert_eq!((preview.header("idempotency-expires"), preview.header("idempotency-replayed")), (None, None));

    for id in ["NEW", "LATE", "WAITS"] {
        acme.get(&format!("master/skus/{id}")).problem(404, "unknown-item");
    }
    assert_eq!(acme.get("master/skus/OLD").ok(200)["source_version"], 2);
    assert_eq!(acme.waiting(), ["WAITS"]);
    assert_eq!(acme.all("quarantine", 10)[0]["quarantine_id"], stays);
    assert_eq!(acme.all("master/skus/OLD/history", 10).len(), 1);

    let real = acme.send("master/skus", "real", &items).ok(200);
    assert_eq!(real.get("dry_run"), None);
    assert_eq!((&real["summary"], verdicts(&real)), (&told["summary"], verdicts(&told)));
    let again = acme.ask("POST", "master/skus?dry_run=true", "", body(&items).as_bytes()).ok(200);
    assert_eq!(again["summary"]["accepted"], 0, "{again}");
}

#[test]
fn dry_run_neither_reads_nor_spends_a_correlation_id() {
    let server = dev();
    let mut acme = Sender::acme(&server);
    let dry_run = "master/uoms?dry_run=true&mode=upsert";
    acme.send(dry_run, "cid-1", &[uom("EA")]).ok(200);
    let first = acme.send("master/uoms", "cid-1", &[uom("KG")]);
    assert_eq!((first.status, first.header("idempotency-replayed")), (200, None));
    // A known id with another body is no conflict, and gets no stored answer.
    let preview = acme.send(dry_run, "cid-1", &[uom("CS")]);
    assert_eq!((preview.ok(200)["dry_run"].clone(), preview.header("idempotency-replayed")), (json!(true), None));
    let preview = acme.ask("POST", dry_run, "x-correlation-id: a b\r\n", body(&[uom("CS")]).as_bytes());
    assert_eq!(preview.ok(200)["results"][0]["status"], "ACCEPTED");
    let lookup = server.acme().get("/admin/idempotency/lookup?scope=WMS_INGEST&correlation_id=");
    assert_eq!(lookup.ok(200), json!({"exists": false}));
    acme.post(dry_run, "cid-2", "{}").problem(400, "malformed-request");
    acme.post("master/uoms?dry_run=maybe", "cid-2", body(&[uom("EA")])).problem(400, "malformed-request");
    acme.post("master/units?dry_run=true", "cid-2", body(&[uom("EA")])).problem(404, "unknown-collection");
}

#[test]
fn dry_run_of_a_delete_a_cancel_or_a_release_says_what_would_become_of_the_item() {
    let server = dev();
    let mut acme = Sender::acme(&server);
    acme.accepted("master/uoms", &[uom("EA")]);
    acme.accepted("master/locations", &[json!({"source_id": "WH", "kind": "WAREHOUSE"})]);
    acme.accepted("documents/receivers", &[json!({"source_id": "R", "warehouse": "WH", "lines": []})]);
    let waits = acme.quarantined("master/skus", sku("S", "CS"));
    let mut preview = |method: &str, path: &str| {
        let told = acme.ask(method, &format!("{path}?dry_run=true"), "", b"").ok(200);
        assert_eq!(told["dry_run"], true, "{told}");
        told["status"].as_str().unwrap().to_owned()
    };
    let release = format!("quarantine/{waits}/release");
    assert_eq!(preview("POST", &release), "QUARANTINED");
    assert_eq!(preview("DELETE", "master/uoms/EA"), "INACTIVE");
    assert_eq!(preview("DELETE", "master/skus/S"), "WITHDRAWN");
    assert_eq!(preview("POST", "documents/receivers/R/cancel"), "CANCELLED");
    for path in ["master/uoms/EA", "documents/receivers/R"] {
        assert_eq!(acme.get(path).ok(200)["status"], "ACTIVE", "{path}");
    }
    acme.accepted("master/uoms", &[uom("CS")]);
    let told = acme.ask("POST", &format!("{release}?dry_run=true"), "", b"").ok(200);
    assert_eq!((&told["status"], acme.waiting()), (&json!("ACCEPTED"), vec!["S".to_owned()]));
    acme.get("master/skus/S").problem(404, "unknown-item");
    acme.ask("DELETE", "master/uoms/KG?dry_run=true", "", b"").problem(404, "unknown-item");
    acme.ask("DELETE", "master/uoms/EA?dry_run=1", "", b"").problem(400, "malformed-request");
    assert_eq!(acme.delete("master/uoms/EA?dry_run=false", "delete").ok(200).get("dry_run"), None);
}

#[test]
fn dry_runs_are_served_for_documents_and_inventory_too() {
    let server = dev();
    let mut acme = Sender::acme(&server);
    for path in ["documents/receivers", "inventory/snapshot"] {
        let items = body(&[json!({"source_id": "X"})]);
        let told = acme.ask("POST", &format!("{path}?dry_run=true"), "", items.as_bytes()).ok(200);
        assert_eq!((&told["dry_run"], &told["summary"]["rejected"]), (&json!(true), &json!(1)), "{path}");
    }
}
