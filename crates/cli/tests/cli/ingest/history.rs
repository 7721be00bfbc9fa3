//! An item and its accepted versions, read: who sent each, when, and in which request.

use serde_json::{Value, json};

use super::{
    super::server::{dev, until},
    sending::{Sender, at, sku, uom},
};

#[test]
fn item_is_read_with_its_version_its_request_and_its_content() {
    let server = dev();
    let mut acme = Sender::acme(&server);
    let sent = acme.send("master/uoms", "cid-1", &[at(uom("EA"), "1.10.0")]).ok(200);
    let told = acme.get("master/uoms/EA").ok(200);
    assert_eq!(
        (&told["source_id"], &told["source_version"], &told["status"], &told["by"], &told["correlation_id"]),
        (&json!("EA"), &json!("1.10.0"), &json!("ACTIVE"), &json!("acme"), &json!("cid-1"))
    );
    assert_eq!(told["internal_id"], sent["results"][0]["internal_id"]);
    assert_eq!(told["item"], at(uom("EA"), "1.10.0"));
    acme.get("master/uoms/ea").problem(404, "unknown-item");
    acme.get("master/units/EA").problem(404, "unknown-collection");
}

#[test]
fn documents_and_inventory_records_are_items_like_any_other() {
    let server = dev();
    let mut acme = Sender::acme(&server);
    acme.accepted("master/uoms", &[uom("EA")]);
    acme.accepted("master/skus", &[sku("S", "EA")]);
    acme.accepted("master/locations", &[json!({"source_id": "WH", "kind": "WAREHOUSE"})]);
    let line = json!({"line_no": 1, "sku": "S", "qty": 2});
    let document = |id: &str| json!({"source_id": id, "source_version": 1, "warehouse": "WH", "lines": [line]});
    let mut paths = Vec::new();
    for kind in ["purchase-orders", "sales-orders", "receivers", "shippers", "work-orders", "transfer-orders"] {
        acme.accepted(&format!("documents/{kind}"), &[document("D-1")]);
        paths.push(format!("documents/{kind}/D-1"));
    }
    let record = json!({"source_id": "R-1", "source_version": 1, "sku": "S", "location": "WH", "qty": "12.5"});
    acme.accepted("inventory/snapshot", std::slice::from_ref(&record));
    let mut movement = record;
    movement["kind"] = json!("MOVE");
    acme.accepted("inventory/movements", std::slice::from_ref(&movement));
    assert_eq!(acme.one("inventory/movements", movement)["status"], "REPLAY");
    paths.extend(["inventory/snapshot/R-1".to_owned(), "inventory/movements/R-1".to_owned()]);
    for path in paths {
        assert_eq!(acme.get(&path).ok(200)["source_version"], 1, "{path}");
        assert_eq!(acme.all(&format!("{path}/history"), 1).len(), 1, "{path}");
    }
    // An inventory record is neither deleted nor cancelled.
    acme.delete("inventory/snapshot/R-1", "delete").problem(405, "method-not-allowed");
    acme.cancel("snapshot/R-1", "cancel").problem(404, "unknown-collection");
}

#[test]
fn history_is_read_in_pages_of_any_size_the_newest_first() {
    let server = dev();
    let mut acme = Sender::acme(&server);
    for version in 1..=7 {
        acme.send("master/uoms", &format!("cid-{version}"), &[at(uom("EA"), version)]).ok(200);
        acme.send("master/uoms", &format!("late-{version}"), &[at(uom("EA"), version - 1)]).ok(200);
    }
    for limit in [1, 2, 6, 7, 8] {
        let entries = acme.all("master/uoms/EA/history", limit);
        let told: Vec<(u64, &str)> = entries
            .iter()
            .map(|entry| (entry["source_version"].as_u64().unwrap(), entry["correlation_id"].as_str().unwrap()))
            .collect();
        let wanted: Vec<(u64, String)> = (1..=7).rev().map(|version| (version, format!("cid-{version}"))).collect();
        assert!(told.iter().map(|(v, id)| (*v, *id)).eq(wanted.iter().map(|(v, id)| (*v, id.as_str()))), "{told:?}");
        for (newer, older) in entries.iter().zip(&entries[1..]) {
            assert_eq!(older["replaced_at"], newer["accepted_at"], "{older}");
            assert!(older["accepted_at"].as_str() <= newer["accepted_at"].as_str());
        }
        assert_eq!((entries[0].get("replaced_at"), &entries[6]["number"]), (None, &json!(1)));
        assert!(entries.iter().all(|entry| entry["by"] == "acme"));
    }
    // A version that comes between two pages shifts nothing.
    let first = acme.get("master/uoms/EA/history?limit=2").ok(200);
    acme.accepted("master/uoms", &[at(uom("EA"), 8)]);
    let next = first["next_cursor"].as_str().unwrap();
    let second = acme.get(&format!("master/uoms/EA/history?limit=2&since={next}")).ok(200);
    let versions: Vec<&Value> =
        second["items"].as_array().unwrap().iter().map(|entry| &entry["source_version"]).collect();
    assert_eq!(versions, [5, 4]);
    for cursor in ["x", "0", "-1", "99999999999999999999"] {
        acme.get(&format!("master/uoms/EA/history?after={cursor}")).problem(404, "unknown-cursor");
    }
    for limit in ["0", "1001", "x"] {
        acme.get(&format!("master/uoms/EA/history?limit={limit}")).problem(400, "malformed-request");
    }
    acme.get("master/uoms/none/history").problem(404, "unknown-item");
}

#[test]
fn history_read_while_versions_arrive_has_each_once() {
    let server = dev();
    let mut acme = Sender::acme(&server);
    acme.accepted("master/uoms", &[at(uom("EA"), 0)]);
    std::thread::scope(|scope| {
        let sender = scope.spawn(|| {
            let mut acme = Sender::acme(&server);
            (1..=300).for_each(|version| acme.accepted("master/uoms", &[at(uom("EA"), version)]));
        });
        until("every version has arrived", || {
            let page = acme.get("master/uoms/EA/history?limit=5").ok(200);
            let page = page["items"].as_array().unwrap();
            let numbers: Vec<u64> = page.iter().map(|entry| entry["number"].as_u64().unwrap()).collect();
            let wanted: Vec<u64> = (1..=numbers[0]).rev().take(5).collect();
            assert_eq!(numbers, wanted);
            sender.is_finished().then_some(())
        });
    });
    assert_eq!(acme.all("master/uoms/EA/history", 100).len(), 301);
}
