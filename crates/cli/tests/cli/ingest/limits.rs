//! Refusals before any item is looked at: modes, sizes, bodies, collections, and stores that keep fences only.

use fencepost_rig::{PostgresServer, RedisServer};
use serde_json::{Value, json};

use super::{
    super::server::{Serve, dev, dev_with, until},
    sending::{Sender, body, correlation, sku, uom},
};

#[test]
fn mode_that_is_not_served_is_told_from_one_that_does_not_exist() {
    let server = dev();
    let mut acme = Sender::acme(&server);
    let items = body(&[uom("EA")]);
    for (path, status, code) in [
        ("master/uoms?mode=full-refresh", 501, "mode-unsupported"),
        ("documents/receivers?mode=full-refresh", 400, "malformed-request"),
        ("inventory/snapshot?mode=full-refresh", 400, "malformed-request"),
        ("master/uoms?mode=insert", 400, "malformed-request"),
        ("master/uoms?mode=UPSERT", 400, "malformed-request"),
        ("master/uoms?mode=upsert&mode=upsert", 400, "malformed-request"),
    ] {
        let refused = acme.post(path, "cid-1", &items).problem(status, code);
        let mode = path.rsplit('=').next().unwrap();
        assert!(refused["detail"].as_str().unwrap().contains(mode) || status == 400, "{refused}");
    }
    assert_eq!(acme.post("master/uoms?mode=upsert", "cid-1", &items).header("idempotency-replayed"), None);
}

#[test]
fn unknown_collection_is_refused_with_the_names_of_the_known_ones() {
    let server = dev();
    let mut acme = Sender::acme(&server);
    for (path, known) in [
        ("master/units", vec!["uoms", "skus", "boms", "locations", "addresses", "lots", "serials"]),
        ("master/receivers", vec!["uoms"]),
        (
            "documents/orders",
            vec!["purchase-orders", "sales-orders", "receivers", "shippers", "work-orders", "transfer-orders"],
        ),
        ("inventory/skus", vec!["snapshot", "movements"]),
    ] {
        let refused = acme.post(path, "cid-1", body(&[])).problem(404, "unknown-collection");
        let detail = refused["detail"].as_str().unwrap();
        assert!(known.iter().all(|name| detail.contains(name)), "{detail}");
        acme.get(&format!("{path}/X")).problem(404, "unknown-collection");
    }
    acme.post("nothing/uoms", "cid-1", body(&[])).problem(404, "not-found");
    acme.ask("PUT", "master/uoms", &correlation("cid-1"), b"{}").problem(405, "method-not-allowed");
}

#[test]
fn body_that_is_no_list_of_objects_is_refused() {
    let server = dev();
    let mut acme = Sender::acme(&server);
    for wrong in [
        "",
        "{}",
        "[]",
        "7",
        r#"{"items":null}"#,
        r#"{"items":{"source_id":"EA"}}"#,
        r#"{"items":[{"source_id":"EA","name":"n"},7]}"#,
        r#"{"items":[[]]}"#,
        r#"{"items":[{"source_id":"EA","name":"n","name":"n"}]}"#,
        r#"{"items":[]}{}"#,
        "{\"items\":[{\"source_id\":\"\\ud800\"}]}",
    ] {
        acme.post("master/uoms", "cid-1", wrong).problem(400, "malformed-request");
    }
    acme.post("master/uoms", "cid-1", b"{\"items\":[{\"source_id\":\"\xff\"}]}").problem(400, "malformed-request");
    let deep = format!("{{\"items\":[{{\"a\":{}{}}}]}}", "[".repeat(64), "]".repeat(64));
    acme.post("master/uoms", "cid-1", deep).problem(400, "malformed-request");
    let refused = acme.post("master/uoms", "cid-1", r#"{"items":[{},7]}"#).problem(400, "malformed-request");
    assert!(refused["detail"].as_str().unwrap().contains("the one at 1"), "{refused}");
    acme.get("master/uoms/EA").problem(404, "unknown-item");
}

#[test]
fn body_that_is_not_json_is_refused_by_its_type() {
    let server = dev();
    let items = body(&[uom("EA")]);
    let own = format!("authorization: Bearer dev-partner\r\n{}", correlation("cid-1"));
    for kind in ["text/plain", "application/x-ndjson", "application/json; charset=latin1"] {
        let headers = format!("{own}content-type: {kind}\r\n");
        let answer = server.acme().send("POST", "/wms-ingest/v1/master/uoms", &headers, items.as_bytes());
        answer.unwrap().problem(415, "not-json");
    }
    assert_eq!(Sender::acme(&server).post("master/uoms", "cid-1", &items).header("idempotency-replayed"), None);
}

#[test]
fn five_thousand_items_are_answered_and_one_more_makes_a_job() {
    let server = dev();
    let mut acme = Sender::acme(&server);
    let items: Vec<Value> = (0..5_001).map(|number| uom(&format!("U-{number}"))).collect();
    let first = acme.send("master/uoms", "cid-1", &items[..5_000]);
    assert_eq!(first.ok(200)["summary"]["accepted"], 5_000);
    assert_eq!(acme.send("master/uoms", "cid-1", &items[..5_000]).body, first.body);
    assert_eq!(acme.get("master/uoms/U-4999").ok(200)["status"], "ACTIVE");
    assert_eq!(acme.send("master/uoms", "cid-2", &items).ok(202)["accepted_items"], 5_001);
    let few = dev_with("ingest: { bulk_async_threshold: 2 }");
    let mut acme = Sender::acme(&few);
    acme.send("master/uoms", "cid-2", &items[..3]).ok(202);
    acme.send("master/uoms", "cid-1", &items[..2]).ok(200);
    assert_eq!(acme.get("capabilities").ok(200)["limits"]["request_items_max"], 2);
}

#[test]
fn four_mebibytes_are_taken_and_one_byte_more_is_too_much() {
    let server = dev();
    let sized = |bytes: usize| {
        let frame = body(&[json!({"source_id": "EA", "name": "each"})]).replacen('{', "{\"pad\":\"\",", 1);
        frame.replacen("\"pad\":\"\"", &format!("\"pad\":\"{}\"", "x".repeat(bytes - frame.len())), 1)
    };
    Sender::acme(&server).post("master/uoms", "cid-1", sized((4 << 20) + 1)).problem(413, "too-large");
    let taken = Sender::acme(&server).post("master/uoms", "cid-1", sized(4 << 20));
    assert_eq!(taken.ok(200)["summary"]["accepted"], 1);
}

#[test]
fn item_of_more_than_256_kibibytes_is_rejected_and_its_neighbours_are_not() {
    let server = dev();
    let long = "x".repeat(256 << 10);
    let items = [json!({"source_id": "EA", "name": long}), json!({"source_id": "CS", "name": "case"})];
    let answer = Sender::acme(&server).post("master/uoms", "cid-1", body(&items)).ok(200);
    assert_eq!(answer["summary"], json!({"accepted": 1, "replay": 0, "quarantined": 0, "rejected": 1}));
    let reason = answer["results"][0]["reasons"][0]["message"].as_str().unwrap().to_owned();
    assert!(reason.contains("262144 are allowed"), "{reason}");
}

#[test]
fn request_whose_items_refer_to_others_too_often_is_too_large() {
    let server = dev();
    let components: Vec<_> = (0..999).map(|number| json!({"sku": format!("S{number}"), "qty": 1})).collect();
    let bom = |number: usize| json!({"source_id": format!("B{number}"), "parent_sku": "P", "components": components});
    let boms: Vec<_> = (0..21).map(bom).collect();
    Sender::acme(&server).post("master/boms", "cid-1", body(&boms)).problem(413, "too-large");
    let answer = Sender::acme(&server).post("master/boms", "cid-1", body(&boms[..2])).ok(200);
    assert_eq!(answer["summary"]["quarantined"], 2);
}

#[test]
fn request_that_names_more_stored_bytes_than_one_may_load_is_too_large_and_a_part_of_it_is_not() {
    let server = dev();
    let mut acme = Sender::acme(&server);
    let pad = "x".repeat(250 << 10);
    // Some more than 256 MiB, in requests of less than 4 MiB.
    let ids: Vec<String> = (0..1_060).map(|number| format!("U-{number}")).collect();
    for some in ids.chunks(15) {
        let items: Vec<Value> = some.iter().map(|id| json!({"source_id": id, "name": id, "pad": pad})).collect();
        acme.accepted("master/uoms", &items);
    }
    let skus: Vec<Value> = ids.iter().map(|id| sku(&format!("S-{id}"), id)).collect();
    for path in ["master/skus", "master/skus?dry_run=true"] {
        let refused = acme.send(path, "skus", &skus).problem(413, "too-large");
        assert!(refused["detail"].as_str().unwrap().contains("256 MiB"), "{refused}");
    }
    assert_eq!(acme.send("master/skus", "skus", &skus[..1_000]).ok(200)["summary"]["accepted"], 1_000);
}

#[test]
fn empty_dry_run_is_refused_instead_of_taken_for_none() {
    let server = dev();
    let items = body(&[json!({"source_id": "EA", "name": "each"})]);
    for query in ["dry_run", "dry_run="] {
        Sender::acme(&server)
            .post(&format!("master/uoms?{query}"), "cid-1", items.clone())
            .problem(400, "malformed-request");
    }
    Sender::acme(&server).get("master/uoms/EA").problem(404, "unknown-item");
}

#[test]
fn store_that_keeps_fences_only_is_told_for_every_path() {
    let redis = RedisServer::synced();
    let server = Serve::sharing(&redis.url()).start();
    let mut acme = Sender::acme(&server);
    for path in ["master/uoms", "documents/receivers", "inventory/snapshot"] {
        acme.post(path, "cid-1", body(&[])).problem(501, "store-unsupported");
        acme.post(&format!("{path}?dry_run=true"), "cid-1", body(&[])).problem(501, "store-unsupported");
        acme.get(&format!("{path}/X")).problem(501, "store-unsupported");
        acme.get(&format!("{path}/X/history")).problem(501, "store-unsupported");
    }
    acme.delete("master/uoms/X", "cid-1").problem(501, "store-unsupported");
    acme.cancel("receivers/X", "cid-1").problem(501, "store-unsupported");
    acme.release("qrn_1", "cid-1").problem(501, "store-unsupported");
    for path in ["quarantine", "capabilities"] {
        acme.get(path).problem(501, "store-unsupported");
    }
}

#[test]
fn items_are_taken_once_the_last_node_of_an_older_release_is_gone() {
    let postgres = PostgresServer::start();
    let database = postgres.fresh_database();
    let old = Serve::sharing(&database).arg("--row-format-max").arg("5").start();
    let new = Serve::sharing(&database).start();
    let mut acme = Sender::acme(&new);
    for node in [&old, &new] {
        let refused = Sender::acme(node).post("master/uoms", "cid-1", body(&[uom("EA")]));
        refused.problem(503, "store-unavailable");
        assert!(refused.header("retry-after").is_some(), "{:?}", refused.headers);
    }
    let address = old.address;
    old.kill();
    let silent = format!("UPDATE fencepost_nodes SET seen = seen - interval '31 seconds' WHERE address = '{address}'");
    postgres.sql(&database, &silent);
    let first = until("items are taken", || {
        let answer = acme.post("master/uoms", "cid-1", body(&[uom("EA")]));
        (answer.status != 503).then_some(answer)
    });
    assert_eq!((first.status, first.header("idempotency-replayed")), (200, None), "{}", first.text());
}
