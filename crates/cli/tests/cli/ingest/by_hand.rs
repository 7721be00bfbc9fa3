//! A request of a partner as a fence: seen by its sender and explained to an operator, and out of reach for both.

use serde_json::{Value, json};

use super::{
    super::{
        client::with,
        server::{dev, fencepost, text},
    },
    sending::{Sender, sku, uom},
};

const SCOPE: &str = "WMS_INGEST";

#[test]
fn partner_sees_how_long_its_requests_are_remembered() {
    let server = dev();
    let told = server.acme().get("/v1/scopes").ok(200);
    let scope = told["items"].as_array().unwrap().iter().find(|one| one["scope"] == SCOPE).cloned();
    let scope = scope.unwrap_or_else(|| panic!("{told}"));
    assert_eq!((&scope["key"], &scope["retain"]), (&json!(["correlation_id"]), &json!("30d")), "{scope}");
}

#[test]
fn lookup_and_why_explain_a_request_and_its_repeats() {
    let server = dev();
    let mut acme = Sender::acme(&server);
    let first = acme.send("master/uoms", "cid-1", &[uom("EA")]);
    acme.send("master/uoms", "cid-1", &[uom("EA")]).ok(200);
    acme.send("master/uoms", "cid-1", &[uom("KG")]).problem(409, "correlation-id-reused");
    let key = json!({"correlation_id": "cid-1"});
    let told = server.acme().lookup(SCOPE, &key, "").ok(200);
    for (name, value) in [
        ("exists", json!(true)),
        ("state", json!("sealed")),
        ("resultUrn", json!("uoms: 1 ACCEPTED")),
        ("attempts", json!(1)),
        ("replays", json!(1)),
        ("expiresAt", json!(first.header("idempotency-expires").unwrap())),
    ] {
        assert_eq!(told[name], value, "{name}: {told}");
    }
    let words: Vec<&str> =
        told["history"].as_array().unwrap().iter().map(|line| line["decision"].as_str().unwrap()).collect();
    assert_eq!(words, ["new", "sealed", "duplicate", "conflict"], "{told}");
    assert_eq!(server.globex().lookup(SCOPE, &key, "").ok(200), json!({"exists": false}));
    assert_eq!(server.admin().lookup(SCOPE, &key, "&tenant=acme").ok(200)["state"], "sealed");

    let why = |id: &str| fencepost(["why", SCOPE, &format!("correlation_id={id}"), "--url", &server.url()]);
    let said = why("cid-1");
    let words = text(&said.stdout);
    assert!(said.status.success() && words.contains("uoms: 1 ACCEPTED"), "{words}");
    assert_eq!(why("cid-2").status.code(), Some(2), "{}", text(&why("cid-2").stdout));
}

#[test]
fn request_is_not_claimed_sealed_forgotten_or_resolved_by_hand() {
    let server = dev();
    let mut acme = Sender::acme(&server);
    let first = acme.send("master/uoms", "cid-1", &[uom("EA")]);
    for id in ["cid-1", "cid-free"] {
        let by_hand =
            |more: Value| with(json!({"scope": SCOPE, "key": {"correlation_id": id}}), more).parse::<Value>().unwrap();
        let mut commands = Vec::new();
        for (op, more) in [
            ("claim", json!({})),
            ("again", json!({"seq": 1})),
            ("seal", json!({"token": 1, "effect_id": "E", "receipt": 1})),
            ("renew", json!({"token": 1, "lease_ms": 1_000})),
            ("release", json!({"token": 1})),
        ] {
            let body = by_hand(more.clone());
            let refused = server.acme().post(&format!("/v1/fences/{op}"), body.to_string()).problem(403, "forbidden");
            assert!(refused["detail"].as_str().unwrap().contains(SCOPE), "{refused}");
            commands.push(by_hand(with(more, json!({"op": op})).parse().unwrap()));
        }
        let batch = server.acme().batch(&commands).ok(200);
        assert!(batch["results"].as_array().unwrap().iter().all(|result| result["status"] == 403), "{batch}");
        let mut admin = server.admin();
        for (act, more) in [
            ("forget", json!({"tenant": "acme", "why": "by hand"})),
            ("resolve", json!({"tenant": "acme", "why": "by hand", "outcome": "released"})),
        ] {
            let body = by_hand(more).to_string();
            admin.post(&format!("/admin/idempotency/{act}"), body).problem(403, "forbidden");
        }
    }
    assert_eq!(acme.send("master/uoms", "cid-1", &[uom("EA")]).body, first.body);
    assert_eq!(acme.send("master/uoms", "cid-free", &[uom("KG")]).ok(200)["summary"]["accepted"], 1);
}

#[test]
fn items_are_counted_by_verdict_and_collection() {
    let server = dev();
    let mut acme = Sender::acme(&server);
    let items = [uom("EA"), uom("KG"), json!({"source_id": "BAD"})];
    for _ in 0..2 {
        acme.send("master/uoms", "cid-1", &items).ok(200);
    }
    acme.quarantined("master/skus", sku("S", "CS"));
    acme.delete("master/uoms/KG", "delete").ok(200);
    acme.ask("POST", "master/skus?dry_run=true", "", br#"{"items":[{}]}"#).ok(200);
    let metrics = server.client("").get("/metrics").text();
    for (labels, count) in [
        ("collection=\"uoms\",verdict=\"ACCEPTED\"", 2),
        ("collection=\"uoms\",verdict=\"REJECTED\"", 1),
        ("collection=\"uoms\",verdict=\"INACTIVE\"", 1),
        ("collection=\"skus\",verdict=\"QUARANTINED\"", 1),
    ] {
        let line = format!("fencepost_items_total{{{labels}}} {count}\n");
        assert!(metrics.contains(&line), "no {line} in:\n{metrics}");
    }
    assert!(!metrics.contains("collection=\"skus\",verdict=\"REJECTED\""), "a dry run counts nothing");
    assert!(metrics.contains("\nfencepost_quarantines_open "), "{metrics}");
}
