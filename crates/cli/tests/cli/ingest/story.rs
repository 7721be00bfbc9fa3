//! The story of the seed: a batch of 100 of which five wait, its retry, and the same batch under a fresh id.

use fencepost_rig::PostgresServer;
use serde_json::{Value, json};

use super::{
    super::server::{Server, dev},
    sending::{Sender, at, nodes, sku, statuses, uom},
};

const FIRST: &str = "01J7Y6K1NQ3W2C0X4V0R5T6E7N";
const FRESH: &str = "0190b5a0-7c3e-7b1f-8f62-3d9a1e4c5b6a";

/// Five of them are counted in cases, which nothing has told of yet.
fn batch() -> Vec<Value> {
    let unit = |number: usize| if number % 20 == 7 { "CS" } else { "EA" };
    (0..100).map(|number| at(sku(&format!("SKU-{number:03}"), unit(number)), 1)).collect()
}

fn is_late(row: usize) -> bool {
    row % 20 == 7
}

fn summary(accepted: u64, replay: u64, quarantined: u64) -> Value {
    json!({"accepted": accepted, "replay": replay, "quarantined": quarantined, "rejected": 0})
}

/// The requests go to one node and the retries to another, where there are two.
fn told_on([here, there]: [&Server; 2]) {
    let (mut acme, mut elsewhere) = (Sender::acme(here), Sender::acme(there));
    acme.accepted("master/uoms", &[uom("EA")]);
    let items = batch();
    let first = acme.send("master/skus?mode=upsert", FIRST, &items);
    let told = first.ok(200);
    assert_eq!((&told["summary"], first.header("idempotency-replayed")), (&summary(95, 0, 5), None));
    let results = told["results"].as_array().unwrap();
    for (row, (item, result)) in items.iter().zip(results).enumerate() {
        assert_eq!(result["source_id"], item["source_id"], "in the order of the request");
        assert_eq!(result["status"], if is_late(row) { "QUARANTINED" } else { "ACCEPTED" }, "{result}");
    }
    let missing = json!([{"entity_kind": "uoms", "source_id": "CS", "reason_code": "MISSING_DEPENDENCY"}]);
    assert_eq!((&results[7]["unresolved"], &results[7]["reason_code"]), (&missing, &json!("MISSING_DEPENDENCY")));
    assert!(results[7]["reason"].as_str().unwrap().contains("uoms \"CS\""), "{}", results[7]);

    // The same id: the stored bytes, and nothing is judged again although the unit is there now.
    elsewhere.accepted("master/uoms", &[uom("CS")]);
    for sender in [&mut elsewhere, &mut acme] {
        let again = sender.send("master/skus?mode=upsert", FIRST, &items);
        assert_eq!((again.status, &again.body), (200, &first.body));
        assert_eq!(again.header("idempotency-replayed"), Some("true"));
        assert_eq!(again.header("idempotency-expires"), first.header("idempotency-expires"));
        assert_eq!(sender.waiting(), ["SKU-007", "SKU-027", "SKU-047", "SKU-067", "SKU-087"]);
        sender.get("master/skus/SKU-007").problem(404, "unknown-item");
    }

    // A fresh id: what was accepted is known, and what waited is judged again.
    let fresh = elsewhere.send("master/skus", FRESH, &items);
    let retold = fresh.ok(200);
    assert_eq!((&retold["summary"], fresh.header("idempotency-replayed")), (&summary(5, 95, 0), None));
    for (row, (then, now)) in results.iter().zip(retold["results"].as_array().unwrap()).enumerate() {
        assert_eq!(now["status"], if is_late(row) { "ACCEPTED" } else { "REPLAY" }, "{now}");
        assert!(is_late(row) || now["internal_id"] == then["internal_id"], "{then} {now}");
        assert_eq!(now.get("warning"), None, "the content is the same");
    }
    assert!(acme.waiting().is_empty());
    let resolved = acme.all("quarantine?status=RESOLVED", 2);
    assert_eq!(resolved.len(), 5);
    assert!(resolved.iter().all(|row| row["resolution"] == "ACCEPTED" && row["resolved_correlation_id"] == FRESH));
    assert_eq!(acme.get("master/skus/SKU-007").ok(200)["correlation_id"], FRESH);
    assert_eq!(acme.get("master/skus/SKU-008").ok(200)["correlation_id"], FIRST);
    assert_eq!(elsewhere.send("master/skus", FIRST, &items).body, first.body, "the first answer stays what it was");
    let third = acme.fresh("master/skus", &items);
    assert!(statuses(&third).iter().all(|status| *status == "REPLAY"), "{third:?}");
}

#[test]
fn batch_with_missing_units_is_replayed_verbatim_and_judged_again_under_a_fresh_id() {
    let server = dev();
    told_on([&server, &server]);
}

#[test]
fn batch_with_missing_units_is_replayed_verbatim_by_any_node_of_a_postgres() {
    let postgres = PostgresServer::start();
    let nodes = nodes(&postgres, 2);
    told_on([&nodes[0], &nodes[1]]);
}
