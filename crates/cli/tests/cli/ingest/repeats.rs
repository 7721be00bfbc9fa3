//! A repeat gets its stored answer, whatever has become since of the policy or of what the request names.

use serde_json::{Value, json};

use super::{
    super::{
        client::Answer,
        server::{Dev, dev_with},
    },
    sending::{Sender, at, bom, sku, uom},
};

const CARRIERS: &str = "collections:
  carriers:
    group: master
    schema: { type: object, required: [source_id], properties: { source_id: { type: string } } }
";

fn reload(server: &Dev, policy: &str) {
    std::fs::write(server.dir.path().join("fencepost.yml"), policy).unwrap();
    server.admin().post("/admin/policy", "").ok(200);
}

#[track_caller]
fn assert_stored(repeat: &Answer, first: &Answer) {
    assert_eq!((repeat.status, &repeat.body), (first.status, &first.body), "{}", repeat.text());
    assert_eq!(repeat.header("idempotency-replayed"), Some("true"));
    assert_eq!(repeat.header("idempotency-expires"), first.header("idempotency-expires"));
}

#[test]
fn repeat_of_a_release_gets_its_answer_after_a_later_stay_has_taken_the_place_of_its_own() {
    let server = dev_with("{}");
    let mut acme = Sender::acme(&server);
    let waits = acme.quarantined("master/skus", at(sku("S", "EA"), 1));
    acme.accepted("master/uoms", &[uom("EA")]);
    let first = acme.release(&waits, "release-1");
    assert_eq!(first.ok(200)["status"], "ACCEPTED");
    acme.quarantined("master/skus", at(sku("S", "CS"), 2));
    acme.release(&waits, "release-2").problem(404, "unknown-quarantine");
    assert_stored(&acme.release(&waits, "release-1"), &first);
    acme.send("master/uoms", "release-1", &[uom("EA")]).problem(409, "correlation-id-reused");
}

#[test]
fn repeat_gets_its_answer_after_its_collection_was_removed_and_another_request_does_not() {
    let server = dev_with(CARRIERS);
    let mut acme = Sender::acme(&server);
    let items = [json!({"source_id": "DHL"}), json!({"source_id": "UPS"})];
    let sent = acme.send("master/carriers", "send", &items);
    let deleted = acme.delete("master/carriers/DHL", "delete");
    sent.ok(200);
    deleted.ok(200);
    reload(&server, "{}");
    acme.send("master/carriers", "fresh", &items).problem(404, "unknown-collection");
    assert_stored(&acme.send("master/carriers", "send", &items), &sent);
    assert_stored(&acme.delete("master/carriers/DHL", "delete"), &deleted);
    let known = server.acme().get("/admin/idempotency/lookup?scope=WMS_INGEST&correlation_id=send").ok(200);
    assert_eq!(known["replays"], 1, "{known}");
    acme.send("master/carriers", "send", &items[..1]).problem(409, "correlation-id-reused");
    acme.delete("master/carriers/UPS", "delete").problem(409, "correlation-id-reused");
    acme.send("master/carriers?mode=bulk", "send", &items).problem(409, "correlation-id-reused");
    acme.post("master/carriers", "send", "{}").problem(409, "correlation-id-reused");
    acme.send("master/carriers?dry_run=true", "send", &items).problem(404, "unknown-collection");
}

#[test]
fn repeat_gets_its_answer_after_the_limit_of_items_was_lowered() {
    let server = dev_with("{}");
    let mut acme = Sender::acme(&server);
    let items: Vec<Value> = (0..3).map(|number| uom(&format!("U-{number}"))).collect();
    let first = acme.send("master/uoms", "send", &items);
    first.ok(200);
    reload(&server, "ingest: { bulk_async_threshold: 2 }");
    acme.send("master/uoms", "fresh", &items).ok(202);
    assert_stored(&acme.send("master/uoms", "send", &items), &first);
    let components: Vec<String> = (0..999).map(|number| format!("S-{number}")).collect();
    let components: Vec<&str> = components.iter().map(String::as_str).collect();
    let boms: Vec<Value> = (0..21).map(|number| bom(&format!("B-{number}"), "P", &components)).collect();
    acme.send("master/boms", "send", &boms).problem(409, "correlation-id-reused");
}
