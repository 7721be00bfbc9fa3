//! Items that count no more: deleted master data and cancelled documents. Their versions are remembered.

use serde_json::{Value, json};

use super::{
    super::server::dev,
    sending::{Sender, at, sku, statuses, uom},
};

#[test]
fn deleted_item_is_inactive_and_only_a_higher_version_brings_it_back() {
    let server = dev();
    let mut acme = Sender::acme(&server);
    acme.accepted("master/uoms", &[at(uom("EA"), 3)]);
    let id = acme.get("master/uoms/EA").ok(200)["internal_id"].clone();
    let told = acme.delete("master/uoms/EA", "delete-1");
    assert_eq!(told.ok(200), json!({"source_id": "EA", "status": "INACTIVE", "internal_id": id, "replay": false}));
    assert_eq!(told.header("idempotency-replayed"), None);
    let read = acme.get("master/uoms/EA").ok(200);
    assert_eq!((&read["status"], &read["source_version"]), (&json!("INACTIVE"), &json!(3)));
    let entry = acme.get("master/uoms/EA/history").ok(200)["items"][0].clone();
    assert_eq!(
        (&entry["retired_as"], &entry["retired_by"], &entry["retired_correlation_id"]),
        (&json!("INACTIVE"), &json!("acme"), &json!("delete-1"))
    );
    assert_eq!(entry["retired_at"], read["retired_at"]);

    let results = acme.fresh("master/uoms", &[at(uom("EA"), 2), at(uom("EA"), 3), at(uom("EA"), 4)]);
    assert_eq!(statuses(&results), ["REPLAY", "REPLAY", "ACCEPTED"]);
    assert_eq!(results[2].get("reactivated"), None);
    assert_eq!(results[2]["internal_id"], id, "the same item as before");
    assert_eq!(acme.get("master/uoms/EA").ok(200)["status"], "ACTIVE");
    let entries = acme.all("master/uoms/EA/history", 100);
    assert_eq!((&entries[1]["retired_as"], entries[0].get("retired_as")), (&json!("INACTIVE"), None));
}

#[test]
fn repeated_delete_is_verbatim_under_its_id_and_a_replay_under_a_fresh_one() {
    let server = dev();
    let mut acme = Sender::acme(&server);
    acme.accepted("master/uoms", &[at(uom("EA"), 1)]);
    let first = acme.delete("master/uoms/EA", "delete-1");
    first.ok(200);
    let fresh = acme.delete("master/uoms/EA", "delete-2").ok(200);
    assert_eq!((&fresh["status"], &fresh["replay"]), (&json!("INACTIVE"), &json!(true)));
    // It is deleted once, also when a retry of the first comes after it was brought back.
    acme.accepted("master/uoms", &[at(uom("EA"), 2)]);
    let again = acme.delete("master/uoms/EA", "delete-1");
    assert_eq!((again.status, &again.body), (200, &first.body));
    assert_eq!(again.header("idempotency-replayed"), Some("true"));
    assert_eq!(again.header("idempotency-expires"), first.header("idempotency-expires"));
    assert_eq!(acme.get("master/uoms/EA").ok(200)["status"], "ACTIVE");
    let entry = acme.all("master/uoms/EA/history", 100)[1].clone();
    assert_eq!(entry["retired_correlation_id"], "delete-1", "a replay leaves the act as it was: {entry}");
}

#[test]
fn delete_of_an_unknown_item_is_refused_and_leaves_its_id_free() {
    let server = dev();
    let mut acme = Sender::acme(&server);
    acme.delete("master/uoms/EA", "delete-1").problem(404, "unknown-item");
    acme.delete("master/units/EA", "delete-1").problem(404, "unknown-collection");
    acme.delete("documents/receivers/R", "delete-1").problem(405, "method-not-allowed");
    // Something waits for it, and yet it is unknown.
    acme.quarantined("master/skus", sku("S", "EA"));
    acme.delete("master/uoms/EA", "delete-1").problem(404, "unknown-item");
    acme.accepted("master/uoms", &[uom("EA")]);
    let told = acme.delete("master/uoms/EA", "delete-1");
    assert_eq!((&told.ok(200)["replay"], told.header("idempotency-replayed")), (&json!(false), None));
}

#[test]
fn item_that_is_only_in_quarantine_is_unknown_to_readers_and_withdrawn_by_a_delete() {
    let server = dev();
    let mut acme = Sender::acme(&server);
    let waits = acme.quarantined("master/skus", at(sku("S", "EA"), 1));
    acme.get("master/skus/S").problem(404, "unknown-item");
    acme.get("master/skus/S/history").problem(404, "unknown-item");
    let told = acme.delete("master/skus/S", "delete-1");
    assert_eq!((&told.ok(200)["status"], &told.json()["replay"]), (&json!("WITHDRAWN"), &json!(false)));
    assert!(acme.waiting().is_empty());
    let row = acme.all("quarantine", 100)[0].clone();
    assert_eq!((&row["quarantine_id"], &row["resolution"]), (&json!(waits), &json!("WITHDRAWN")), "{row}");
    acme.get("master/skus/S").problem(404, "unknown-item");
    assert_eq!(acme.delete("master/skus/S", "delete-1").body, told.body);
    acme.delete("master/skus/S", "delete-2").problem(404, "unknown-item");
    // Withdrawn is not accepted: the same version may come again.
    acme.accepted("master/uoms", &[uom("EA")]);
    acme.accepted("master/skus", &[at(sku("S", "EA"), 1)]);
}

#[test]
fn delete_of_an_item_with_a_version_in_quarantine_ends_both() {
    let server = dev();
    let mut acme = Sender::acme(&server);
    acme.accepted("master/uoms", &[uom("EA")]);
    acme.accepted("master/skus", &[at(sku("S", "EA"), 1)]);
    acme.quarantined("master/skus", at(sku("S", "CS"), 2));
    assert_eq!(acme.delete("master/skus/S", "delete").ok(200)["status"], "INACTIVE");
    assert!(acme.waiting().is_empty());
    acme.accepted("master/uoms", &[uom("CS")]);
    let read = acme.get("master/skus/S").ok(200);
    assert_eq!((&read["status"], &read["source_version"]), (&json!("INACTIVE"), &json!(1)));
}

#[test]
fn cancelled_document_is_cancelled_once_and_only_a_higher_version_brings_it_back() {
    let server = dev();
    let mut acme = Sender::acme(&server);
    acme.accepted("master/locations", &[json!({"source_id": "WH", "kind": "WAREHOUSE"})]);
    let order = |version: u64| json!({"source_id": "PO 1", "source_version": version, "warehouse": "WH", "lines": []});
    acme.cancel("purchase-orders/PO%201", "cancel-1").problem(404, "unknown-item");
    acme.accepted("documents/purchase-orders", &[order(1)]);
    let first = acme.cancel("purchase-orders/PO%201", "cancel-1");
    assert_eq!(
        (&first.ok(200)["status"], &first.json()["source_id"], &first.json()["replay"]),
        (&json!("CANCELLED"), &json!("PO 1"), &json!(false))
    );
    let again = acme.cancel("purchase-orders/PO%201", "cancel-1");
    assert_eq!((&again.body, again.header("idempotency-replayed")), (&first.body, Some("true")));
    assert_eq!(acme.cancel("purchase-orders/PO%201", "cancel-2").ok(200)["replay"], true);
    assert_eq!(acme.get("documents/purchase-orders/PO%201").ok(200)["status"], "CANCELLED");
    let results = acme.fresh("documents/purchase-orders", &[order(1), order(2)]);
    assert_eq!(statuses(&results), ["REPLAY", "ACCEPTED"]);
    assert_eq!(acme.get("documents/purchase-orders/PO%201").ok(200)["status"], "ACTIVE");
    let waits = json!({"source_id": "PO-2", "warehouse": "NOWHERE", "lines": []});
    acme.quarantined("documents/purchase-orders", waits);
    assert_eq!(acme.cancel("purchase-orders/PO-2", "cancel-3").ok(200)["status"], "WITHDRAWN");
    acme.cancel("orders/PO-2", "cancel-4").problem(404, "unknown-collection");
    // The body of such a request does not count.
    let told = acme.post("documents/purchase-orders/PO%201/cancel", "cancel-5", r#"{"why":"late"}"#).ok(200);
    assert_eq!(told["replay"], Value::Bool(false));
}
