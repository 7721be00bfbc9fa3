//! Items that name others: those must be there and active, wherever in the request or before it they came.

use serde_json::{Value, json};

use super::{
    super::server::{dev, dev_with, until},
    sending::{Sender, at, body, bom, fresh_id, sku, statuses, uom},
};

fn place(id: &str, kind: &str, parent: Option<&str>) -> Value {
    json!({"source_id": id, "kind": kind, "parent": parent})
}

const ACCEPTED: &str = "ACCEPTED";
const QUARANTINED: &str = "QUARANTINED";

#[test]
fn references_within_one_request_are_judged_in_its_order() {
    let server = dev();
    let mut acme = Sender::acme(&server);
    let down = [place("WH", "WAREHOUSE", None), place("Z", "ZONE", Some("WH")), place("B", "BIN", Some("Z"))];
    assert_eq!(statuses(&acme.fresh("master/locations", &down)), [ACCEPTED; 3]);
    let up = [place("B2", "BIN", Some("Z2")), place("Z2", "ZONE", Some("WH")), place("B3", "BIN", Some("Z2"))];
    let results = acme.fresh("master/locations", &up);
    assert_eq!(statuses(&results), [QUARANTINED, ACCEPTED, ACCEPTED]);
    assert_eq!(results[0]["reason_code"], "UNRESOLVED_PARENT");
    // Again, and the early one is taken: everything that it names is there.
    assert_eq!(statuses(&acme.fresh("master/locations", &up)), [ACCEPTED; 3]);
    assert!(acme.waiting().is_empty());
}

#[test]
fn item_that_refers_to_itself_is_rejected_whether_it_is_there_or_not() {
    let server = dev();
    let mut acme = Sender::acme(&server);
    let own_parent = at(place("Z", "ZONE", Some("Z")), 2);
    let refused = json!([{"pointer": "/parent", "message": "refers to the item itself; leave it out, or send null"}]);
    let told = acme.one("master/locations", own_parent.clone());
    assert_eq!((&told["status"], &told["reasons"]), (&json!("REJECTED"), &refused));
    assert!(acme.waiting().is_empty());
    acme.accepted("master/locations", &[place("WH", "WAREHOUSE", None), at(place("Z", "ZONE", Some("WH")), 1)]);
    assert_eq!(acme.one("master/locations", own_parent)["reasons"], refused);
    // The same id in another collection is another item.
    acme.accepted("master/uoms", &[uom("X")]);
    acme.accepted("master/skus", &[sku("X", "X")]);
}

#[test]
fn items_that_refer_to_each_other_wait_until_one_of_them_does_not() {
    let server = dev_with("ingest: { auto_release: true }");
    let mut acme = Sender::acme(&server);
    let circle = [place("A", "ZONE", Some("B")), place("B", "ZONE", Some("A"))];
    let results = acme.fresh("master/locations", &circle);
    assert_eq!(statuses(&results), [QUARANTINED; 2]);
    for result in &results {
        let waits = result["quarantine_id"].as_str().unwrap();
        assert_eq!(acme.release(waits, &fresh_id()).ok(200)["status"], QUARANTINED);
    }
    assert_eq!(statuses(&acme.fresh("master/locations", &circle)), [QUARANTINED; 2]);
    // The way out: one of them without the reference first, then with it.
    acme.accepted("master/locations", &[place("A", "WAREHOUSE", None)]);
    until("B is released", || acme.waiting().is_empty().then_some(()));
    acme.accepted("master/locations", &[place("A", "ZONE", Some("B"))]);
}

#[test]
fn source_id_that_comes_several_times_in_a_request_is_judged_each_time() {
    let server = dev();
    let mut acme = Sender::acme(&server);
    let named = |name: &str, version: Value| {
        let mut item = at(uom("EA"), version);
        item["name"] = json!(name);
        item
    };
    let items = [
        named("one", json!(1)),
        named("two", json!(2)),
        named("late", json!(1)),
        named("other", json!(2)),
        json!({"source_id": "EA"}),
        named("free", Value::Null),
        named("three", json!(3)),
    ];
    let told = acme.send("master/uoms", "several", &items).ok(200);
    let results = told["results"].as_array().unwrap();
    let replay = "REPLAY";
    assert_eq!(statuses(results), [ACCEPTED, ACCEPTED, replay, replay, "REJECTED", ACCEPTED, ACCEPTED]);
    assert!(results[3]["warning"].is_string() && results[2].get("warning").is_none(), "{told}");
    assert_eq!(told["summary"], json!({"accepted": 4, "replay": 2, "quarantined": 0, "rejected": 1}));
    let history = acme.all("master/uoms/EA/history", 100);
    let names: Vec<&str> = history.iter().map(|entry| entry["item"]["name"].as_str().unwrap()).collect();
    assert_eq!(names, ["three", "free", "two", "one"]);
    // Two stays of one item in one request are one stay.
    let results = acme.fresh("master/skus", &[at(sku("S", "CS"), 1), at(sku("S", "CS"), 2), at(sku("S", "EA"), 3)]);
    assert_eq!(statuses(&results), [QUARANTINED, QUARANTINED, ACCEPTED]);
    assert_eq!(results[0]["quarantine_id"], results[1]["quarantine_id"]);
    assert!(acme.waiting().is_empty());
}

#[test]
fn every_reference_that_is_missing_is_listed_once_with_its_reason() {
    let server = dev();
    let mut acme = Sender::acme(&server);
    acme.accepted("master/uoms", &[uom("EA")]);
    acme.accepted("master/skus", &[sku("HERE", "EA")]);
    let told = acme.one("master/boms", bom("B-1", "PARENT", &["HERE", "GONE", "GONE", "PARENT", "LOST"]));
    let missing = |id: &str, reason: &str| json!({"entity_kind": "skus", "source_id": id, "reason_code": reason});
    assert_eq!(
        told["unresolved"],
        json!([
            missing("PARENT", "UNRESOLVED_PARENT"),
            missing("GONE", "UNRESOLVED_REFERENCE"),
            missing("LOST", "UNRESOLVED_REFERENCE")
        ])
    );
    assert_eq!(told["reason_code"], "UNRESOLVED_PARENT");
    let order = json!({"source_id": "SO-1", "warehouse": "WH", "lines": [{"line_no": 1, "sku": "LOST", "qty": 1}]});
    let kinds = acme.one("documents/sales-orders", order)["unresolved"].clone();
    assert_eq!([&kinds[0]["entity_kind"], &kinds[1]["entity_kind"]], ["locations", "skus"]);
    let movement = json!({"source_id": "M-1", "kind": "PICK", "sku": "HERE", "location": "BIN", "qty": 1});
    assert_eq!(acme.one("inventory/movements", movement)["unresolved"][0]["source_id"], "BIN");
}

#[test]
fn item_with_too_many_references_or_an_unfit_one_is_rejected() {
    let server = dev();
    let mut acme = Sender::acme(&server);
    let many: Vec<String> = (0..1_001).map(|number| format!("S-{number}")).collect();
    let many: Vec<&str> = many.iter().map(String::as_str).collect();
    let told = acme.one("master/boms", bom("B-1", "P", &many));
    assert_eq!(told["status"], "REJECTED", "{told}");
    assert!(told["reasons"][0]["message"].as_str().unwrap().contains("1000"), "{told}");
    assert_eq!(acme.one("master/boms", bom("B-1", "P", &many[..999]))["status"], QUARANTINED);
    // 256 characters fit the schema, and are too many bytes.
    let long = "é".repeat(200);
    let told = acme.one("master/skus", sku("S", &long));
    assert_eq!((&told["status"], &told["reasons"][0]["pointer"]), (&json!("REJECTED"), &json!("/base_uom")));
    let told = acme.one("master/boms", bom("B-2", "P", &["S-0", &long, "S-2"]));
    assert_eq!(
        told["reasons"],
        json!([{"pointer": "/components/1/sku", "message": "a source id has 1 to 256 bytes, not 400"}])
    );
}

#[test]
fn inactive_item_counts_as_missing_until_it_is_active_again() {
    let server = dev();
    let mut acme = Sender::acme(&server);
    acme.accepted("master/uoms", &[at(uom("EA"), 1)]);
    acme.accepted("master/skus", &[at(sku("BEFORE", "EA"), 1)]);
    acme.delete("master/uoms/EA", &fresh_id()).ok(200);
    let told = acme.one("master/skus", at(sku("AFTER", "EA"), 1));
    assert_eq!((&told["status"], &told["unresolved"][0]["source_id"]), (&json!(QUARANTINED), &json!("EA")));
    assert_eq!(acme.get("master/skus/BEFORE").ok(200)["status"], "ACTIVE", "what was accepted stays");
    assert_eq!(acme.one("master/skus", at(sku("BEFORE", "EA"), 2))["status"], QUARANTINED);
    assert_eq!(acme.get("master/skus/BEFORE").ok(200)["source_version"], 1);
    acme.accepted("master/uoms", &[at(uom("EA"), 2)]);
    acme.accepted("master/skus", &[at(sku("AFTER", "EA"), 1), at(sku("BEFORE", "EA"), 2)]);
}

#[test]
fn collections_of_one_source_id_are_apart() {
    let server = dev();
    let mut acme = Sender::acme(&server);
    acme.accepted("master/uoms", &[uom("X")]);
    let other = acme.one("master/addresses", json!({"source_id": "X", "name": "n"}));
    assert_eq!(other["status"], ACCEPTED);
    assert_ne!(acme.get("master/uoms/X").ok(200)["internal_id"], other["internal_id"]);
    acme.get("master/skus/X").problem(404, "unknown-item");
    acme.get("documents/uoms/X").problem(404, "unknown-collection");
    let empty = acme.post("master/uoms", "empty", body(&[])).ok(200);
    assert_eq!(empty["results"], json!([]));
}
