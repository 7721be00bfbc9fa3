//! An item in quarantine, looked at again because its sender asks for it.

use serde_json::json;

use super::{
    super::server::{dev, dev_with, until},
    sending::{Sender, at, fresh_id, sku, uom},
};

#[test]
fn released_item_is_accepted_once_what_it_waits_for_is_there() {
    let server = dev();
    let mut acme = Sender::acme(&server);
    acme.send("master/skus", "sent", &[at(sku("S", "CS"), 3)]).ok(200);
    let waits = acme.all("quarantine", 10)[0]["quarantine_id"].as_str().unwrap().to_owned();
    let still = acme.release(&waits, "release-1");
    let told = still.ok(200);
    assert_eq!((&told["status"], &told["source_id"]), (&json!("QUARANTINED"), &json!("S")));
    assert_eq!((&told["quarantine_id"], &told["unresolved"][0]["source_id"]), (&json!(waits), &json!("CS")), "{told}");
    acme.accepted("master/uoms", &[uom("CS")]);
    // The same id is the same request: it says what it said.
    let same = acme.release(&waits, "release-1");
    assert_eq!((&same.body, same.header("idempotency-replayed")), (&still.body, Some("true")));
    assert_eq!(acme.waiting(), ["S"]);

    let released = acme.release(&waits, "release-2");
    let told = released.ok(200);
    assert_eq!((&told["status"], &told["source_id"]), (&json!("ACCEPTED"), &json!("S")), "{told}");
    assert!(acme.waiting().is_empty());
    let read = acme.get("master/skus/S").ok(200);
    assert_eq!((&read["internal_id"], &read["source_version"]), (&told["internal_id"], &json!(3)));
    assert_eq!(read["correlation_id"], "sent", "the request that brought the content");
    let row = acme.all("quarantine", 10)[0].clone();
    assert_eq!((&row["resolution"], &row["resolved_correlation_id"]), (&json!("RELEASED"), &json!("release-2")));

    let again = acme.release(&waits, "release-2");
    assert_eq!((&again.body, again.header("idempotency-replayed")), (&released.body, Some("true")));
    let told = acme.release(&waits, "release-3").ok(200);
    assert_eq!((&told["status"], &told["replay"]), (&json!("RESOLVED"), &json!(true)), "{told}");
    assert_eq!(acme.all("master/skus/S/history", 10).len(), 1);
}

#[test]
fn release_of_an_unknown_quarantine_or_that_of_another_partner_is_refused_and_leaves_its_id_free() {
    let server = dev();
    let mut acme = Sender::acme(&server);
    let waits = acme.quarantined("master/skus", sku("S", "CS"));
    let mut unknown = waits.clone();
    unknown.replace_range(8..10, if &unknown[8..10] == "00" { "01" } else { "00" });
    let (mut later, mut lower) = (waits.clone(), waits.clone());
    later.replace_range(waits.len() - 16..waits.len() - 14, "7f");
    lower.replace_range(waits.len() - 16.., "0000000000000001");
    for id in [unknown.as_str(), &later, &lower, "qrn_", "S", &waits.to_uppercase()] {
        acme.release(id, "cid-1").problem(404, "unknown-quarantine");
    }
    Sender::globex(&server).release(&waits, "cid-1").problem(404, "unknown-quarantine");
    assert_eq!(acme.waiting(), ["S"]);
    assert_eq!(acme.release(&waits, "cid-1").header("idempotency-replayed"), None);
}

#[test]
fn release_of_a_stay_that_ended_leaves_the_next_stay_alone() {
    let server = dev();
    let mut acme = Sender::acme(&server);
    let first = acme.quarantined("master/skus", at(sku("S", "CS"), 1));
    acme.accepted("master/uoms", &[uom("EA")]);
    acme.accepted("master/skus", &[at(sku("S", "EA"), 2)]);
    let second = acme.quarantined("master/skus", at(sku("S", "KG"), 3));
    assert_ne!(first, second);
    acme.accepted("master/uoms", &[uom("CS"), uom("KG")]);
    // An item has one row for its quarantine: the stay before this one is forgotten.
    acme.release(&first, &fresh_id()).problem(404, "unknown-quarantine");
    assert_eq!(acme.waiting(), ["S"]);
    assert_eq!(acme.release(&second, &fresh_id()).ok(200)["status"], "ACCEPTED");
    assert_eq!(acme.get("master/skus/S").ok(200)["source_version"], 3);
}

#[test]
fn release_of_a_quarantine_that_ended_too_long_ago_is_refused() {
    let server = dev_with(
        "ingest: { quarantine_retain: 1s }
scopes: { WMS_INGEST: { key: [correlation_id], retain: 1s, source: ingest } }",
    );
    let mut acme = Sender::acme(&server);
    let waits = acme.quarantined("master/skus", sku("S", "EA"));
    acme.accepted("master/uoms", &[uom("EA")]);
    assert_eq!(acme.release(&waits, &fresh_id()).ok(200)["status"], "ACCEPTED");
    until("the quarantine has expired", || {
        let again = acme.release(&waits, &fresh_id());
        (again.status != 200).then(|| again.problem(404, "unknown-quarantine"))
    });
    assert!(acme.all("quarantine", 10).is_empty());
}

#[test]
fn released_item_that_was_overtaken_is_known_and_its_stay_ends() {
    let server = dev();
    let mut acme = Sender::acme(&server);
    let waits = acme.quarantined("master/skus", sku("S", "CS"));
    acme.accepted("master/uoms", &[uom("EA")]);
    // A version is above none, so it takes the place of what waits.
    acme.accepted("master/skus", &[at(sku("S", "EA"), 1)]);
    assert!(acme.waiting().is_empty());
    assert_eq!(acme.release(&waits, &fresh_id()).ok(200)["status"], "RESOLVED");
    assert_eq!(acme.get("master/skus/S").ok(200)["source_version"], 1);
}
