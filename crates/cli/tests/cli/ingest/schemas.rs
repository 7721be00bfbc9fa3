//! The form of an item: its source id, and the fields of its collection. Each fault is told with its place.

use serde_json::{Value, json};

use super::{
    super::server::dev,
    sending::{Sender, statuses, uom},
};

/// Each collection with a whole item, and the pointer of each field that it must have.
fn whole() -> Vec<(String, Value, Vec<&'static str>)> {
    let line = json!({"line_no": 1, "sku": "S", "qty": "1.5"});
    let document = json!({"warehouse": "WH", "lines": [line]});
    let lines = ["/warehouse", "/lines", "/lines/0/line_no", "/lines/0/sku", "/lines/0/qty"];
    let all = [
        ("master/uoms", json!({"name": "n"}), vec!["/name"]),
        ("master/addresses", json!({"name": "n"}), vec!["/name"]),
        ("master/locations", json!({"kind": "BIN", "parent": "Z"}), vec!["/kind", "/parent"]),
        ("master/skus", json!({"name": "n", "base_uom": "EA"}), vec!["/name", "/base_uom"]),
        (
            "master/boms",
            json!({"parent_sku": "S", "components": [{"sku": "S", "qty": 2}]}),
            vec!["/parent_sku", "/components", "/components/0/sku", "/components/0/qty"],
        ),
        ("master/lots", json!({"sku": "S"}), vec!["/sku"]),
        ("master/serials", json!({"sku": "S"}), vec!["/sku"]),
        ("inventory/snapshot", json!({"sku": "S", "location": "B", "qty": 0}), vec!["/sku", "/location", "/qty"]),
        (
            "inventory/movements",
            json!({"kind": "PICK", "sku": "S", "location": "B", "qty": -1}),
            vec!["/kind", "/sku", "/location", "/qty"],
        ),
    ];
    let mut all: Vec<_> = all.into_iter().map(|(path, item, fields)| (path.to_owned(), item, fields)).collect();
    for kind in ["purchase-orders", "sales-orders", "receivers", "shippers", "work-orders", "transfer-orders"] {
        all.push((format!("documents/{kind}"), document.clone(), lines.to_vec()));
    }
    all
}

fn without(item: &Value, pointer: &str) -> Value {
    let mut item = item.clone();
    let (parent, field) = pointer.rsplit_once('/').unwrap();
    item.pointer_mut(parent).unwrap().as_object_mut().unwrap().remove(field).unwrap();
    item
}

#[test]
fn item_without_a_required_field_is_rejected_with_the_place_of_the_field() {
    let server = dev();
    let mut acme = Sender::acme(&server);
    for (path, mut item, required) in whole() {
        item["source_id"] = json!("I-1");
        let results = acme.fresh(&path, &required.iter().map(|field| without(&item, field)).collect::<Vec<_>>());
        for (field, result) in required.iter().zip(&results) {
            let reasons = result["reasons"].as_array().unwrap_or_else(|| panic!("{path} without {field}: {result}"));
            assert_eq!((&result["status"], &result["source_id"]), (&json!("REJECTED"), &json!("I-1")));
            let told = reasons.iter().any(|one| one["pointer"] == **field && one["message"] == "is required");
            assert!(told, "{path} without {field}: {result}");
        }
        // With all of them it is taken, or it waits for those that it names.
        let status = acme.one(&path, item)["status"].clone();
        assert!(status == "ACCEPTED" || status == "QUARANTINED", "{path}: {status}");
    }
}

#[test]
fn field_of_another_kind_is_rejected_and_several_faults_are_told_together() {
    let server = dev();
    let mut acme = Sender::acme(&server);
    for (path, wrong, pointers) in [
        ("master/uoms", json!({"name": 5}), vec!["/name"]),
        ("master/uoms", json!({"name": ""}), vec!["/name"]),
        ("master/skus", json!({"name": null, "base_uom": ["EA"]}), vec!["/name", "/base_uom"]),
        ("master/locations", json!({"kind": "SHELF", "parent": "Z"}), vec!["/kind"]),
        ("master/locations", json!({"kind": "WAREHOUSE", "parent": "Z"}), vec!["/parent"]),
        ("master/locations", json!({"kind": "ZONE", "parent": null}), vec!["/parent"]),
        ("master/boms", json!({"parent_sku": "S", "components": {}}), vec!["/components"]),
        ("master/boms", json!({"parent_sku": "S", "components": [7]}), vec!["/components/0"]),
        (
            "master/boms",
            json!({"parent_sku": "S", "components": [{"sku": "S", "qty": 1}, {"sku": "", "qty": "1,5"}]}),
            vec!["/components/1/sku", "/components/1/qty"],
        ),
        ("inventory/movements", json!({"kind": "STEAL", "sku": "S", "location": "B", "qty": 1}), vec!["/kind"]),
        (
            "documents/sales-orders",
            json!({"warehouse": "WH", "lines": [{"line_no": 1.5, "sku": 7, "qty": true}]}),
            vec!["/lines/0/line_no", "/lines/0/sku", "/lines/0/qty"],
        ),
    ] {
        let mut item = wrong;
        item["source_id"] = json!("I-1");
        let result = acme.one(path, item.clone());
        assert_eq!(result["status"], "REJECTED", "{path} {item}: {result}");
        let mut told: Vec<&str> =
            result["reasons"].as_array().unwrap().iter().map(|one| one["pointer"].as_str().unwrap()).collect();
        let mut pointers = pointers;
        told.sort_unstable();
        pointers.sort_unstable();
        assert_eq!(told, pointers, "{path} {item}: {result}");
        let said = result["reasons"][0]["message"].as_str().unwrap();
        assert!(said.starts_with("must "), "{said}");
    }
    // However many there are, an answer tells ten of one item.
    let parts: Vec<Value> = (0..40).map(|_| json!({})).collect();
    let result = acme.one("master/boms", json!({"source_id": "I-1", "parent_sku": "S", "components": parts}));
    assert_eq!(result["reasons"].as_array().unwrap().len(), 10, "{result}");
}

#[test]
fn source_id_that_is_missing_or_unfit_is_rejected_alone() {
    let server = dev();
    let mut acme = Sender::acme(&server);
    let (fits, long) = ("x".repeat(256), "é".repeat(129));
    let items = [
        json!({"name": "n"}),
        json!({"source_id": null, "name": "n"}),
        json!({"source_id": 7, "name": "n"}),
        uom(""),
        uom(&long),
        uom(&fits),
        uom("a/b c%20?#\u{1F600}\"\\"),
    ];
    let results = acme.fresh("master/uoms", &items);
    let rejected = "REJECTED";
    assert_eq!(
        statuses(&results),
        [rejected, rejected, rejected, rejected, rejected, "ACCEPTED", "ACCEPTED"],
        "{results:#?}"
    );
    let ids: Vec<&Value> = results.iter().map(|result| &result["source_id"]).take(4).collect();
    assert_eq!(ids, [&Value::Null, &Value::Null, &Value::Null, &json!("")]);
    assert!(results[..5].iter().all(|result| result["reasons"][0]["pointer"] == "/source_id"), "{results:#?}");
    assert!(results[4]["source_id"].as_str().unwrap().len() <= 256, "{}", results[4]);
    let odd = acme.get("master/uoms/a%2Fb%20c%2520%3F%23%F0%9F%98%80%22%5C").ok(200);
    assert_eq!(odd["item"], items[6]);
    assert_eq!(acme.get("master/uoms/a%2Fb%20c%2520%3F%23%F0%9F%98%80%22%5C/history").ok(200)["items"][0]["number"], 1);
}

#[test]
fn item_is_kept_as_it_was_sent_with_every_further_field() {
    let server = dev();
    let mut acme = Sender::acme(&server);
    let sent = r#"{ "name":"Stück \u00fc", "big":123456789012345678901234567890, "one":1.0, "x":{"z":[null,false],"a":{}},
        "source_id" : "EA" , "precise":0.10000000000000000000001 }"#;
    acme.post("master/uoms", "as-sent", format!("{{\"later\":1,\"items\":[{sent}]}}")).ok(200);
    let told = acme.get("master/uoms/EA").text();
    assert!(told.contains(sent), "{told}");
}
