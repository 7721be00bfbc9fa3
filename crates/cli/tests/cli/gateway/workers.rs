//! The gateway beside the API for workers, on one key; and what operators see of both.

use serde_json::{Value, json};

use super::{
    World,
    caller::post,
    replayed, until,
    upstream::{Say, said},
};

#[test]
fn a_worker_reads_what_the_gateway_sealed_as_json() {
    let world = World::charges();
    let key = json!({"id": "k"});
    world.upstream.say(said(
        201,
        "content-type: application/json\r\nlocation: /charges/9\r\nset-cookie: s=1\r\n",
        r#"{"a": 1}"#,
    ));
    let asked = post("/charges").key("k").json("{}");
    assert_eq!(world.send(&asked).status, 201);
    let told = world.server.acme().claim("CHARGE", &key).ok(200);
    assert_eq!((&told["decision"], &told["effect_id"]), (&json!("duplicate"), &json!("/charges/9")));
    let headers = json!({"content-type": "application/json", "location": "/charges/9"});
    assert_eq!(told["receipt"], json!({"status": 201, "headers": headers, "body": "{\"a\": 1}"}));
    world.upstream.say(Say::Bytes(b"HTTP/1.1 200 OK\r\ncontent-length: 2\r\n\r\n\xff\x00".to_vec()));
    world.send(&post("/charges").key("bytes").json("{}"));
    let told = world.server.acme().claim("CHARGE", &json!({"id": "bytes"})).ok(200);
    assert_eq!(told["receipt"]["body_base64"], "/wA=");
}

#[test]
fn a_workers_claim_or_seal_counts_at_the_gateway() {
    let world = World::charges();
    let key = json!({"id": "k"});
    let asked = post("/charges").key("k").json("{}");
    let token = world.server.acme().claim_with("CHARGE", &key, json!({"lease_ms": 30_000})).token();
    world.send(&asked).problem(409, "in-flight");
    world.server.acme().seal("CHARGE", &key, token, "E-1", json!({"paid": "ü"})).ok(200);
    let replay = world.send(&asked);
    assert_eq!(
        (replay.status, replay.header("content-type"), replayed(&replay)),
        (200, Some("application/json"), true)
    );
    assert_eq!(replay.json(), json!({"paid": "ü"}));
    assert_eq!(world.upstream.count(), 0);
}

#[test]
fn duplicates_are_counted_by_endpoint_and_tenant_and_every_decision_has_its_line() {
    let world = World::new(
        r#"
scopes:
  CHARGE: { key: [id], retain: 1h, source: shop }
routes:
  - match: "POST /charges/{id}"
    upstream: "UPSTREAM"
    scope: CHARGE
    key: { id: "path:id" }
    source: "query:order"
    effect_id: "body:/charge"
"#,
    );
    let trace = "4bf92f3577b34da6a3ce929d0e0e4736";
    let asked =
        post("/charges/c-1?order=O-7").header(&format!("traceparent: 00-{trace}-00f067aa0ba902b7-01")).json("{}");
    for _ in 0..3 {
        world.send(&asked).ok(201);
    }
    let metrics = world.server.client("").get("/metrics").text();
    let line = r#"fencepost_duplicate_drops_total{endpoint="POST /charges/{id}",tenant="acme"} 2"#;
    assert!(metrics.contains(line), "{metrics}");
    assert!(metrics.contains(r#"fencepost_first_seen_to_seal_seconds_count{scope="CHARGE"} 1"#), "{metrics}");
    let lines: Vec<Value> = until("the lines are written", || {
        let text = std::fs::read_to_string(world.log()).unwrap();
        let lines = text.lines().filter_map(|line| serde_json::from_str::<Value>(line).ok());
        let lines: Vec<_> = lines.filter(|line| line["msg"] == "decision").collect();
        (lines.len() == 4).then_some(lines)
    });
    let key = world.upstream.last().header("idempotency-key").unwrap().to_owned();
    let expected = [("claim", "new"), ("seal", "sealed"), ("claim", "duplicate"), ("claim", "duplicate")];
    for (line, (op, decision)) in lines.iter().zip(expected) {
        assert_eq!((&line["op"], &line["decision"]), (&json!(op), &json!(decision)), "{line}");
        assert_eq!((&line["idempotency_key"], &line["trace_id"]), (&json!(key), &json!(trace)), "{line}");
        assert_eq!((&line["tenant"], &line["scope"]), (&json!("acme"), &json!("CHARGE")), "{line}");
        assert_eq!((&line["source_type"], &line["source_id"]), (&json!("shop"), &json!("O-7")), "{line}");
        let known = if decision == "new" { Value::Null } else { json!("1") };
        assert_eq!(line["effect_id"], known, "{line}");
    }
    assert!(!std::fs::read_to_string(world.log()).unwrap().contains("dev-partner"), "no credential in the log");
}
