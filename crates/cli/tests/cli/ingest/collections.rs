//! Collections as data: one that a policy file adds, one that it replaces, and what the server says of them.

use serde_json::{Value, json};

use super::{
    super::server::{dev, dev_with},
    sending::{Sender, at, sku, source_id, statuses, uom},
};

const POLICY: &str = r#"
collections:
  carriers:
    group: master
    version: integer
    references:
      - { at: /home, to: locations, reason: UNRESOLVED_REFERENCE }
      - { at: "/lanes/*/via", to: carriers, reason: BUSINESS_RULE }
    schema:
      type: object
      required: [source_id, name]
      properties:
        source_id: { type: string }
        name: { type: string, minLength: 2 }
  freight-orders:
    group: documents
    references:
      - { at: /carrier, to: carriers, reason: MISSING_DEPENDENCY }
    schema:
      type: object
      required: [source_id, carrier]
  counts:
    group: inventory
    schema: { type: object, required: [source_id] }
  uoms:
    group: master
    schema:
      type: object
      required: [source_id, symbol]
"#;

fn named(told: &Value, name: &str) -> Value {
    told["collections"].as_array().unwrap().iter().find(|one| one["name"] == name).unwrap_or(&Value::Null).clone()
}

#[test]
fn collection_that_a_policy_file_adds_is_served_like_the_built_in_ones() {
    let server = dev_with(POLICY);
    let mut acme = Sender::acme(&server);
    acme.accepted("master/carriers", &[at(json!({"source_id": "C-1", "name": "Carrier"}), 1)]);
    let told = acme.one("master/carriers", json!({"source_id": "C-2", "name": "x"}));
    assert_eq!((&told["status"], &told["reasons"][0]["pointer"]), (&json!("REJECTED"), &json!("/name")), "{told}");
    assert_eq!(
        acme.one("master/carriers", at(json!({"source_id": "C-1", "name": "Carrier"}), "1.0"))["status"],
        "REJECTED"
    );
    let lanes = json!([{"via": "C-1"}, {"via": "C-9"}, {"via": null}, {}]);
    let told = acme.one("master/carriers", json!({"source_id": "C-3", "name": "Carrier", "lanes": lanes}));
    assert_eq!(
        (&told["status"], &told["reason_code"], &told["unresolved"][0]["source_id"]),
        (&json!("QUARANTINED"), &json!("BUSINESS_RULE"), &json!("C-9"))
    );
    acme.accepted("documents/freight-orders", &[json!({"source_id": "F-1", "carrier": "C-1"})]);
    assert_eq!(acme.cancel("freight-orders/F-1", "cancel").ok(200)["status"], "CANCELLED");
    acme.accepted("inventory/counts", &[json!({"source_id": "N-1"})]);
    assert_eq!(acme.delete("master/carriers/C-1", "delete").ok(200)["status"], "INACTIVE");
    assert_eq!(acme.all("master/carriers/C-1/history", 10).len(), 1);
    assert_eq!(acme.all("quarantine?collection=carriers", 10).iter().map(source_id).collect::<Vec<_>>(), ["C-3"]);
    // Its place is below its group.
    acme.get("documents/carriers/C-1").problem(404, "unknown-collection");
}

#[test]
fn collection_that_a_policy_file_replaces_is_replaced_whole() {
    let server = dev_with(POLICY);
    let mut acme = Sender::acme(&server);
    let results = acme.fresh("master/uoms", &[uom("EA"), json!({"source_id": "KG", "symbol": "kg"})]);
    assert_eq!(statuses(&results), ["REJECTED", "ACCEPTED"]);
    assert_eq!(results[0]["reasons"][0]["pointer"], "/symbol");
    assert_eq!(acme.one("master/skus", sku("S", "KG"))["status"], "ACCEPTED", "the others refer to it as before");
}

#[test]
fn capabilities_show_each_collection_in_an_order_in_which_they_load() {
    let built_in = Sender::acme(&dev()).get("capabilities").ok(200);
    let names: Vec<&str> =
        built_in["collections"].as_array().unwrap().iter().map(|one| one["name"].as_str().unwrap()).collect();
    assert_eq!(names.len(), 15);
    let at = |name: &str| names.iter().position(|known| *known == name).unwrap();
    for (before, after) in
        [("uoms", "skus"), ("skus", "boms"), ("locations", "snapshot"), ("skus", "lots"), ("skus", "sales-orders")]
    {
        assert!(at(before) < at(after), "{before} and {after}: {names:?}");
    }
    let skus = named(&built_in, "skus");
    assert_eq!(
        (&skus["group"], &skus["modes"], &skus["version"]),
        (&json!("master"), &json!(["upsert", "bulk"]), &json!("any"))
    );
    assert_eq!(skus["references"], json!([{"at": "/base_uom", "to": "uoms", "reason_code": "MISSING_DEPENDENCY"}]));
    assert_eq!(skus["schema"]["required"], json!(["source_id", "name", "base_uom"]));
    assert_eq!(
        built_in["limits"],
        json!({"request_bytes_max": 4 << 20, "request_items_max": 5_000, "upload_bytes_max": 4_u64 << 30})
    );
    assert_eq!((&built_in["auto_release"], &built_in["correlation_id_retain"]), (&json!(false), &json!("30d")));

    let own = Sender::acme(&dev_with(POLICY)).get("capabilities").ok(200);
    assert_eq!(own["collections"].as_array().unwrap().len(), 18);
    let carriers = named(&own, "carriers");
    assert_eq!((&carriers["version"], carriers["references"].as_array().unwrap().len()), (&json!("integer"), 2));
    assert_eq!(carriers["schema"]["properties"]["name"], json!({"type": "string", "minLength": 2}));
    assert_eq!(named(&own, "uoms")["schema"]["required"], json!(["source_id", "symbol"]));
}
