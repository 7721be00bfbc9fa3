//! Answers to a webhook's provider for a delivery that is not passed on: it repeats for days whatever is not received.

use serde_json::{Value, json};

use super::{
    super::server::{fencepost, text},
    Answer, World,
    caller::{Ask, post, read},
    in_flight, replayed,
    upstream::{Say, said},
    webhooks::github,
};

const POLICY: &str = r#"
server: { limits: { wait_max: 50ms }, log: { decisions: false } }
scopes:
  HOOK: { key: [id], retain: 7d, lease: 30s }
routes:
  - match: "POST /events"
    upstream: "UPSTREAM"
    scope: WEBHOOK
    key: { provider: "const:shop", event_id: "body:/id", event_version: "body:/version", action: "const:x" }
    source: "body:/order"
    verify: { scheme: github, secrets: ["new"] }
  - match: "POST /strict"
    upstream: "UPSTREAM"
    scope: WEBHOOK
    key: { provider: "const:strict", event_id: "body:/id", event_version: "body:/version", action: "const:x" }
    source: "body:/order"
    verify: { scheme: github, secrets: ["new"] }
    on_stale: { status: 409 }
    on_conflict: { status: 422, include_diff: false }
  - match: "POST /lenient"
    upstream: "UPSTREAM"
    scope: HOOK
    key: { id: "body:/id" }
    verify: { scheme: github, secrets: ["new"] }
    tenant: lenient
    on_conflict: { status: 200 }
  - match: "POST /ordered"
    upstream: "UPSTREAM"
    scope: HOOK
    key: { id: "body:/id" }
    order: "body:/step"
    verify: { scheme: github, secrets: ["new"] }
    tenant: ordered
  - { match: "POST /plain", upstream: "UPSTREAM", scope: HOOK, key: { id: "body:/id" }, on_conflict: { status: 422 } }
"#;

fn event(path: &str, order: &str, version: u64, more: &str) -> Ask {
    let id = format!("{order}-{version}");
    github(path, &json!({"id": id, "version": version, "order": order, "more": more}).to_string())
}

fn decision(answer: &Answer) -> (u16, Option<&str>) {
    (answer.status, answer.header("fencepost-decision"))
}

#[test]
fn duplicate_of_a_delivery_is_received_and_one_of_a_refused_delivery_stays_refused() {
    let world = World::new(POLICY);
    for (status, received) in [(200, 200), (201, 200), (204, 200), (400, 400), (410, 410)] {
        let body = if status == 204 { "" } else { "said" };
        // A decision header from an upstream is not ours.
        world.upstream.say(said(status, "fencepost-decision: forged\r\n", body));
        let hook = event("events", &format!("O-{status}"), 1, "");
        let first = world.send(&hook);
        assert_eq!((decision(&first), first.text().as_str()), ((status, None), body));
        let again = world.send(&hook);
        assert_eq!((decision(&again), again.text().as_str()), ((received, Some("duplicate")), body));
        assert!(replayed(&again), "{status}");
    }
    assert_eq!(world.upstream.count(), 5);
}

#[test]
fn stale_delivery_is_received_with_its_decision_unless_the_rule_says_otherwise() {
    let world = World::new(POLICY);
    for (path, wanted) in [("events", 200), ("strict", 409)] {
        world.send(&event(path, "O-1", 5, "")).ok(201);
        let stale = world.send(&event(path, "O-1", 4, ""));
        assert_eq!(decision(&stale), (wanted, Some("stale")), "{path}: {}", stale.text());
        assert!(!replayed(&stale), "{path}");
    }
    let told = world.send(&event("events", "O-1", 3, "")).ok(200);
    assert_eq!((&told["decision"], told["idempotency_key"].as_str().unwrap().len()), (&json!("stale"), 64));
    world.send(&event("strict", "O-1", 3, "")).problem(409, "stale");
    assert_eq!(world.upstream.count(), 2, "nothing was passed on");
    let metrics = world.server.client("").get("/metrics").text();
    let line = r#"decisions_total{op="claim",scope="WEBHOOK",tenant="webhook:WEBHOOK",decision="stale"} 4"#;
    assert!(metrics.contains(line), "{metrics}");
}

#[test]
fn conflict_of_a_delivery_is_refused_by_default_and_never_acknowledged_in_silence() {
    let world = World::new(POLICY);
    for (path, status, diff) in [("events", 409, true), ("strict", 422, false)] {
        world.send(&event(path, "O-1", 1, "first")).ok(201);
        let refused = world.send(&event(path, "O-1", 1, "other"));
        assert_eq!(decision(&refused), (status, Some("conflict")), "{path}");
        assert_eq!(refused.problem(status, "conflict")["diff"].is_array(), diff, "{path}");
    }
    let counted = |world: &World| {
        let metrics = world.server.client("").get("/metrics").text();
        let line = r#"fencepost_conflicts_acknowledged_total{endpoint="POST /lenient",tenant="lenient"} "#;
        metrics.lines().find_map(|known| known.strip_prefix(line)).map(str::to_owned)
    };
    let lenient = |more: &str| github("lenient", &json!({"id": "e", "more": more}).to_string());
    world.upstream.say(said(201, "fencepost-effect-id: E-1\r\n", "1"));
    world.send(&lenient("first")).ok(201);
    assert_eq!(counted(&world), None);
    let received = world.send(&lenient("other"));
    assert_eq!(decision(&received), (200, Some("conflict")));
    assert_eq!(received.ok(200)["decision"], "conflict");
    assert!(!replayed(&received), "it is not the first one's answer");
    assert_eq!((counted(&world).as_deref(), world.upstream.count()), (Some("1"), 3));
    // Also where decisions have no lines of their own.
    let line =
        world.line(|line| line["msg"].as_str().is_some_and(|msg| msg.contains("acknowledged and not passed on")));
    let said = |name: &str| line[name].as_str().unwrap_or_default().to_owned();
    assert_eq!([said("level"), said("endpoint"), said("effect_id")], ["warn", "POST /lenient", "E-1"]);
    assert_eq!(said("idempotency_key").len(), 64, "{line}");
}

#[test]
fn delivery_whose_first_copy_is_under_way_is_503_and_comes_back() {
    let world = World::new(POLICY);
    for (path, other) in [("events", "events"), ("ordered", "ordered")] {
        world.upstream.say(Say::Hold(Box::new(said(201, "", "done"))));
        let calls = world.upstream.count();
        let body = |id: &str| json!({"id": id, "version": 1, "order": "O-9", "step": 1}).to_string();
        let mut first = github(path, &body("a")).begin(world.address());
        world.upstream.until(calls + 1);
        // The same event, or one that must wait for it.
        let second = if path == "ordered" { "b" } else { "a" };
        let answer = world.send(&github(other, &body(second)));
        assert_eq!(decision(&answer), (503, Some("in_flight")), "{path}: {}", answer.text());
        answer.problem(503, "in-flight");
        assert!(answer.header("retry-after").is_some() && in_flight(&answer), "{path}");
        world.upstream.release();
        assert_eq!(read(&mut first).unwrap().status, 201);
    }
}

#[test]
fn clients_with_a_credential_hear_refusals_as_before() {
    let world = World::new(POLICY);
    let plain = |body: &Value| post("/plain").json(body.to_string());
    world.upstream.say(Say::Hold(Box::new(said(201, "", "done"))));
    let mut first = plain(&json!({"id": "p"})).begin(world.address());
    world.upstream.until(1);
    let refused = world.send(&plain(&json!({"id": "p"})));
    refused.problem(409, "in-flight");
    assert_eq!(decision(&refused), (409, None));
    world.upstream.release();
    assert_eq!(read(&mut first).unwrap().status, 201);
    let again = world.send(&plain(&json!({"id": "p"})));
    assert_eq!((decision(&again), replayed(&again)), ((201, None), true));
    let conflict = world.send(&plain(&json!({"id": "p", "more": 1})));
    conflict.problem(422, "conflict");
    assert_eq!(decision(&conflict), (422, None));
}

#[test]
fn acknowledgement_without_a_signature_is_refused_by_check() {
    let dir = tempfile::tempdir().unwrap();
    let file = dir.path().join("policy.yml");
    let policy = POLICY.replace("UPSTREAM", "http://127.0.0.1:9000").replace("status: 422 } }", "status: 200 } }");
    std::fs::write(&file, policy).unwrap();
    let output = fencepost(["check".as_ref(), file.as_os_str()]);
    let said = text(&output.stdout) + &text(&output.stderr);
    assert!(!output.status.success() && said.contains("`on_conflict` answers 200 without `verify`"), "{said}");
}
