//! Items in quarantine: one stay an item, listed by what it is, what it waits for and how it ended.

use serde_json::{Value, json};

use super::{
    super::server::dev,
    sending::{Sender, at, bom, sku, source_id, uom},
};

/// Six items that wait, and one stay that has ended.
fn filled(acme: &mut Sender) {
    acme.quarantined("master/skus", sku("S-1", "CS"));
    acme.send("master/skus", "of-two", &[sku("S-2", "CS"), sku("S-3", "CS")]).ok(200);
    acme.quarantined("master/skus", sku("S-4", "KG"));
    acme.quarantined("master/boms", bom("B-1", "S-1", &["S-2"]));
    acme.quarantined("inventory/snapshot", json!({"source_id": "I-1", "sku": "S-1", "location": "BIN", "qty": 1}));
    acme.quarantined("master/skus", sku("S-5", "EA"));
    acme.accepted("master/uoms", &[uom("EA")]);
    acme.accepted("master/skus", &[sku("S-5", "EA")]);
}

#[test]
fn list_takes_every_filter_alone_and_together_and_pages_of_any_size() {
    let server = dev();
    let mut acme = Sender::acme(&server);
    filled(&mut acme);
    for (filter, wanted) in [
        ("", vec!["B-1", "I-1", "S-1", "S-2", "S-3", "S-4", "S-5"]),
        ("status=OPEN", vec!["B-1", "I-1", "S-1", "S-2", "S-3", "S-4"]),
        ("status=RESOLVED", vec!["S-5"]),
        ("collection=skus", vec!["S-1", "S-2", "S-3", "S-4", "S-5"]),
        ("collection=skus&status=OPEN", vec!["S-1", "S-2", "S-3", "S-4"]),
        ("collection=uoms", vec![]),
        ("source_id=S-4", vec!["S-4"]),
        ("source_id=S-4&collection=skus", vec!["S-4"]),
        ("source_id=S-4&collection=skus&status=RESOLVED", vec![]),
        ("source_id=S-4&collection=boms", vec![]),
        ("source_id=S-", vec![]),
        ("resolution=ACCEPTED", vec!["S-5"]),
        ("resolution=ACCEPTED&status=OPEN", vec![]),
        ("resolution=RELEASED", vec![]),
        ("resolution=", vec!["B-1", "I-1", "S-1", "S-2", "S-3", "S-4", "S-5"]),
        ("correlation_id=of-two", vec!["S-2", "S-3"]),
        ("correlation_id=of-two&source_id=S-3", vec!["S-3"]),
        ("correlation_id=OF-TWO", vec![]),
        ("waiting_for=uoms/CS", vec!["S-1", "S-2", "S-3"]),
        ("waiting_for=uoms/CS&status=OPEN", vec!["S-1", "S-2", "S-3"]),
        ("waiting_for=uoms/EA&status=OPEN", vec![]),
        ("waiting_for=uoms/EA", vec!["S-5"]),
        ("waiting_for=skus/S-1", vec!["B-1", "I-1"]),
        ("waiting_for=skus/S-1&collection=boms&status=OPEN", vec!["B-1"]),
        ("reason_code=MISSING_DEPENDENCY&status=OPEN", vec!["S-1", "S-2", "S-3", "S-4"]),
        ("reason_code=UNRESOLVED_PARENT", vec!["B-1"]),
        ("reason_code=UNRESOLVED_REFERENCE", vec!["B-1", "I-1"]),
        ("reason_code=UNRESOLVED_REFERENCE&waiting_for=locations/BIN&status=OPEN", vec!["I-1"]),
        ("reason_code=BUSINESS_RULE", vec![]),
    ] {
        for limit in [1, 2, 1_000] {
            let mut found: Vec<String> =
                acme.all(&format!("quarantine?{filter}"), limit).iter().map(source_id).collect();
            found.sort();
            assert_eq!(found, wanted, "{filter}, {limit} at once");
        }
    }
    assert!(Sender::globex(&server).all("quarantine", 1).is_empty());
    for (query, status, code) in [
        ("status=ALL", 400, "malformed-request"),
        ("resolution=accepted", 400, "malformed-request"),
        ("reason_code=NO_REASON", 400, "malformed-request"),
        ("waiting_for=CS", 400, "malformed-request"),
        ("waiting_for=units/CS", 404, "unknown-collection"),
        ("collection=nothing", 404, "unknown-collection"),
        ("limit=0", 400, "malformed-request"),
        ("status=OPEN&status=OPEN", 400, "malformed-request"),
    ] {
        acme.get(&format!("quarantine?{query}")).problem(status, code);
    }
    // As in every list.
    assert_eq!(acme.all("quarantine?unknown=1&status=RESOLVED", 10).len(), 1);
    acme.get("quarantine?after=x").problem(404, "unknown-cursor");
}

#[test]
fn stay_says_what_waits_since_when_for_what_and_how_it_ended() {
    let server = dev();
    let mut acme = Sender::acme(&server);
    let sent = acme.send("master/skus", "cid-1", &[at(sku("S", "CS"), 7)]).ok(200)["results"][0].clone();
    let row = acme.all("quarantine", 100).remove(0);
    for name in ["quarantine_id", "source_id", "reason", "reason_code", "unresolved"] {
        assert_eq!(row[name], sent[name], "{name}");
    }
    for (name, value) in [
        ("collection", json!("skus")),
        ("source_version", json!(7)),
        ("status", json!("OPEN")),
        ("by", json!("acme")),
        ("correlation_id", json!("cid-1")),
        ("item", at(sku("S", "CS"), 7)),
    ] {
        assert_eq!(row[name], value, "{name}: {row}");
    }
    assert_eq!((row.get("resolution"), &row["opened_at"]), (None, &row["sent_at"]));
    acme.accepted("master/uoms", &[uom("CS")]);
    acme.send("master/skus", "cid-2", &[at(sku("S", "CS"), 7)]).ok(200);
    let ended = acme.all("quarantine", 100).remove(0);
    assert_eq!((&ended["quarantine_id"], &ended["opened_at"]), (&row["quarantine_id"], &row["opened_at"]));
    assert_eq!(
        (&ended["status"], &ended["resolution"], &ended["resolved_by"], &ended["resolved_correlation_id"]),
        (&json!("RESOLVED"), &json!("ACCEPTED"), &json!("acme"), &json!("cid-2"))
    );
    assert!(ended["resolved_at"].as_str() >= ended["opened_at"].as_str());
}

#[test]
fn equal_higher_or_absent_version_replaces_what_waits_and_a_lower_one_does_not() {
    let server = dev();
    let mut acme = Sender::acme(&server);
    let first = acme.quarantined("master/skus", at(sku("S", "A"), 5));
    let mut wait = |version: Value, unit: &str, waits: &str, at_version: Value| {
        let same = acme.quarantined("master/skus", at(sku("S", unit), version.clone()));
        assert_eq!(same, first, "an item has one stay");
        let rows = acme.all("quarantine", 100);
        assert_eq!(rows.len(), 1);
        let row = &rows[0];
        assert_eq!((&row["item"]["base_uom"], &row["source_version"]), (&json!(waits), &at_version), "{version}");
        assert_eq!(acme.all(&format!("quarantine?status=OPEN&waiting_for=uoms/{waits}"), 10).len(), 1);
        for other in ["A", "B", "C", "D", "E"].into_iter().filter(|other| *other != waits) {
            assert!(acme.all(&format!("quarantine?status=OPEN&waiting_for=uoms/{other}"), 10).is_empty(), "{other}");
        }
    };
    wait(json!(4), "B", "A", json!(5));
    wait(json!(5), "C", "C", json!(5));
    wait(json!(6), "D", "D", json!(6));
    wait(Value::Null, "E", "E", Value::Null);
}

#[test]
fn lower_version_that_is_accepted_leaves_a_higher_one_waiting() {
    let server = dev();
    let mut acme = Sender::acme(&server);
    acme.accepted("master/uoms", &[uom("EA")]);
    acme.quarantined("master/skus", at(sku("S", "CS"), 5));
    acme.accepted("master/skus", &[at(sku("S", "EA"), 4)]);
    assert_eq!(acme.waiting(), ["S"]);
    assert_eq!(acme.get("master/skus/S").ok(200)["source_version"], 4);
    acme.accepted("master/skus", &[at(sku("S", "EA"), 6)]);
    assert!(acme.waiting().is_empty(), "a higher one ends it");
    // A stay after that is another one.
    let next = acme.quarantined("master/skus", at(sku("S", "CS"), 7));
    let rows = acme.all("quarantine?collection=skus", 100);
    assert_eq!((rows.len(), &rows[0]["quarantine_id"], &rows[0]["status"]), (1, &json!(next), &json!("OPEN")));
}
