//! Another request under a known key: refused, with what differs, and never with what is secret.

use serde_json::json;

use super::{World, caller::post, upstream::Say, upstream::said};

const SCOPES: &str = r#"
scopes:
  CHARGE: { key: [id], retain: 1h, lease: 30s, mask: ["/card/number"] }
routes:
  - { match: "POST /charges", upstream: "UPSTREAM", scope: CHARGE, key: { id: "header:Idempotency-Key" } }
  - { match: "* /shops/{*rest}", upstream: "UPSTREAM", scope: CHARGE, key: { id: "header:Idempotency-Key" } }
"#;

#[test]
fn another_body_is_a_conflict_with_a_diff_in_which_secrets_are_masked() {
    let world = World::new(SCOPES);
    let charge = |body: &str| world.send(&post("/charges").key("k").json(body));
    charge(r#"{"amount":5,"card":{"number":"4111","name":"A"},"note":"x"}"#).ok(201);
    let refused = charge(r#"{"amount":6,"card":{"number":"4222","name":"A"}}"#);
    let problem = refused.problem(409, "conflict");
    assert!(problem["explain"].as_str().unwrap().starts_with("/console/keys/"), "{problem}");
    let diff = problem["diff"].clone();
    let lines = diff.as_array().unwrap();
    assert!(lines.contains(&json!({"op": "replace", "path": "/amount", "value": 6})), "{diff}");
    assert!(lines.contains(&json!({"op": "remove", "path": "/note"})), "{diff}");
    // A difference in a secret alone is a conflict, and is not shown.
    let hidden = charge(r#"{"amount":5,"card":{"number":"4222","name":"A"},"note":"x"}"#);
    hidden.problem(409, "conflict");
    for text in [refused.text(), hidden.text()] {
        assert!(!text.contains("4111") && !text.contains("4222"), "{text}");
    }
    assert_eq!(world.upstream.count(), 1);
}

#[test]
fn a_conflict_is_seen_while_the_first_is_still_under_way() {
    let world = World::new(SCOPES);
    world.upstream.say(Say::Hold(Box::new(said(201, "", "done"))));
    let first = post("/charges").key("k").json(r#"{"a":1}"#).begin(world.address());
    world.upstream.until(1);
    world.send(&post("/charges").key("k").json(r#"{"a":2}"#)).problem(409, "conflict");
    world.upstream.release();
    drop(first);
    assert_eq!(world.upstream.count(), 1);
}

#[test]
fn bodies_that_are_not_json_are_compared_by_their_bytes() {
    let world = World::new(SCOPES);
    let charge = |body: &[u8]| world.send(&post("/charges").key("k").header("content-type: text/csv").body(body));
    charge(b"a;b\n1;2\n\xff").ok(201);
    assert!(super::replayed(&charge(b"a;b\n1;2\n\xff")));
    let refused = charge(b"a;b\n1;3\n\xff\xff").problem(409, "conflict");
    assert!(refused["diff"].is_null(), "{refused}");
    assert!(refused["detail"].as_str().unwrap().contains("`first` and `second`"), "{refused}");
    let sides = ["first", "second"].map(|side| refused[side].clone());
    assert_ne!(sides[0]["sha256"], sides[1]["sha256"], "{refused}");
    assert_eq!(sides.map(|side| side["size"].clone()), [json!(9), json!(10)], "{refused}");
    assert_eq!(world.upstream.count(), 1);
}

#[test]
fn another_method_path_or_query_under_one_key_is_a_conflict() {
    let world = World::new(SCOPES);
    let send = |method: &str, path: &str| {
        let ask = super::caller::ask(method, path).header("authorization: Bearer dev-partner");
        world.send(&ask.key("k").json("{}"))
    };
    send("POST", "/shops/a?x=1").ok(201);
    assert!(super::replayed(&send("POST", "/shops/a?x=1")));
    for (method, path) in
        [("POST", "/shops/a"), ("POST", "/shops/a?x=2"), ("POST", "/shops/b?x=1"), ("PUT", "/shops/a?x=1")]
    {
        let refused = send(method, path);
        assert_eq!((refused.status, &refused.json()["code"]), (409, &json!("conflict")), "{method} {path}");
    }
    assert_eq!(world.upstream.count(), 1);
}

#[test]
fn the_policy_chooses_the_status_and_whether_a_diff_is_shown() {
    let world = World::new(&format!("on_conflict: {{ status: 422, include_diff: false }}\n{SCOPES}"));
    let charge = |body: &str| world.send(&post("/charges").key("k").json(body));
    charge(r#"{"a":1}"#).ok(201);
    let refused = charge(r#"{"a":2}"#);
    let problem = refused.problem(422, "conflict");
    assert!(problem["diff"].is_null(), "{problem}");
    assert!(!refused.text().contains("replace"));
    assert_eq!(world.upstream.count(), 1);
}
