//! Log lines and lookups lead to the one effect: a later request names the effect of the first.

use serde_json::{Value, json};

use super::{
    super::server::{fencepost, text},
    World,
    caller::post,
    upstream::{Say, said},
};

const POLICY: &str = r#"
gateway: { timeout: 400ms }
scopes:
  CHARGE: { key: [id], retain: 1h }
  LOOSE: { key: [id], retain: 1h, reject_on_body_mismatch: false }
  WORK: { key: [id], retain: 1h }
routes:
  - { match: "POST /charges", upstream: "UPSTREAM", scope: CHARGE, key: { id: "body:/id" }, effect_id: "body:/charge" }
  - { match: "POST /nameless", upstream: "UPSTREAM", scope: CHARGE, key: { id: "body:/id" }, on_error: seal }
  - { match: "POST /loose", upstream: "UPSTREAM", scope: LOOSE, key: { id: "body:/id" } }
"#;

/// Operation, decision and effect of every line about a scope.
fn lines(world: &World, scope: &str, count: usize) -> Vec<Value> {
    world.lines(count, |line| line["scope"] == scope)
}

fn shown(line: &Value) -> String {
    let part = |name: &str| line[name].as_str().unwrap_or("-").to_owned();
    [part("op"), part("decision"), part("effect_id")].join(" ")
}

#[test]
fn duplicate_and_conflict_lines_name_the_effect_that_stands() {
    let world = World::new(POLICY);
    let charge = |more: u64| post("/charges").json(json!({"id": "c", "more": more}).to_string());
    world.upstream.say(said(201, "content-type: application/json\r\n", r#"{"charge":"CH-1"}"#));
    world.send(&charge(1)).ok(201);
    world.send(&charge(1)).ok(201);
    world.send(&charge(2)).problem(409, "conflict");
    let told: Vec<_> = lines(&world, "CHARGE", 4).iter().map(shown).collect();
    assert_eq!(told, ["claim new -", "seal sealed CH-1", "claim duplicate CH-1", "claim conflict CH-1"]);
}

#[test]
fn worker_lines_name_the_effect_that_stands_and_a_seal_its_source() {
    let world = World::new(POLICY);
    let mut acme = world.server.acme();
    let key = json!({"id": "w"});
    let source = |body: u64| json!({"body": body, "source": {"type": "order", "id": "O-7"}});
    let token = acme.claim_with("WORK", &key, source(1)).token();
    acme.claim_with("WORK", &key, source(2)).problem(409, "conflict");
    acme.seal("WORK", &key, token, "E-1", json!(1)).ok(200);
    acme.seal("WORK", &key, token, "E-1", json!(1)).ok(200);
    acme.seal("WORK", &key, token, "E-2", json!(2)).problem(409, "conflict");
    acme.claim_with("WORK", &key, source(2)).problem(409, "conflict");
    acme.claim("WORK", &key).ok(200);
    let lines = lines(&world, "WORK", 7);
    let told: Vec<_> = lines.iter().map(shown).collect();
    // Before the seal no effect is known.
    let expected = [
        "claim new -",
        "claim conflict -",
        "seal sealed E-1",
        "seal sealed E-1",
        "seal conflict E-1",
        "claim conflict E-1",
        "claim duplicate E-1",
    ];
    assert_eq!(told, expected);
    for line in lines.iter().filter(|line| line["decision"] != "conflict") {
        assert_eq!((&line["source_type"], &line["source_id"]), (&json!("order"), &json!("O-7")), "{line}");
    }
}

#[test]
fn rule_without_an_effect_id_is_known_by_the_key_of_its_fence_and_never_by_a_status() {
    let world = World::new(POLICY);
    for (id, say, status) in [
        ("plain", said(201, "", "done"), 201),
        ("torn", Say::Last(b"HTTP/1.1 201 Created\r\ncontent-length: 9\r\n\r\nhalf".to_vec()), 201),
        ("silent", Say::Last(Vec::new()), 502),
    ] {
        world.upstream.say(say);
        let asked = post("/nameless").json(json!({"id": id}).to_string());
        assert_eq!((world.send(&asked).status, world.send(&asked).status), (status, status), "{id}");
        let told = world.server.admin().lookup("CHARGE", &json!({"id": id}), "&tenant=acme").ok(200);
        assert_eq!(told["resultUrn"], told["idempotencyKey"], "{id}");
    }
    // Also where the rule names a place that the answer does not have.
    world.upstream.say(said(201, "", "no JSON"));
    assert_eq!(world.send(&post("/charges").json(r#"{"id":"absent"}"#)).status, 201);
    let told = world.server.admin().lookup("CHARGE", &json!({"id": "absent"}), "&tenant=acme").ok(200);
    assert_eq!(told["resultUrn"], told["idempotencyKey"]);
    for line in
        lines(&world, "CHARGE", 11).iter().filter(|line| line["op"] == "seal" || line["decision"] == "duplicate")
    {
        assert_eq!(line["effect_id"], line["idempotency_key"], "{line}");
    }
}

#[test]
fn body_mismatch_that_passes_is_counted_in_metrics_lookup_and_why() {
    let world = World::new(POLICY);
    let loose = |more: u64| post("/loose").json(json!({"id": "l", "more": more}).to_string());
    for more in [1, 1, 2, 3] {
        world.send(&loose(more)).ok(201);
    }
    assert_eq!(world.upstream.count(), 1);
    let metrics = world.server.client("").get("/metrics").text();
    assert!(metrics.contains("fencepost_body_mismatches_passed_total{scope=\"LOOSE\"} 2\n"), "{metrics}");
    let told = |world: &World| {
        let told = world.server.admin().lookup("LOOSE", &json!({"id": "l"}), "&tenant=acme").ok(200);
        let decisions: Vec<Value> =
            told["history"].as_array().unwrap().iter().map(|moment| moment["decision"].clone()).collect();
        assert!(decisions.contains(&json!("duplicate_other_body")), "{told}");
        (told["replays"].clone(), told["bodyMismatches"].clone(), told["conflicts"].clone())
    };
    assert_eq!(told(&world), (json!(3), json!(2), json!(0)));
    let why = |world: &World| {
        let url = world.server.url();
        let args = ["why", "LOOSE", "id=l", "--tenant", "acme", "--token", "dev-admin", "--url", &url];
        text(&fencepost(args).stdout)
    };
    assert!(why(&world).contains("of the replays, 2 came with another body than the first"), "{}", why(&world));
    // Kept like replays: a server that is stopped writes them down.
    let world = world.restarted();
    assert_eq!(told(&world), (json!(3), json!(2), json!(0)));
}

#[test]
fn sizes_of_diffs_are_measured_for_each_scope() {
    let world = World::new(POLICY);
    for more in [1, 2] {
        world.send(&post("/charges").json(json!({"id": "c", "more": more}).to_string()));
    }
    let metrics = world.server.client("").get("/metrics").text();
    assert!(metrics.contains("fencepost_conflict_diff_operations_count{scope=\"CHARGE\"} 1\n"), "{metrics}");
}
