//! Where a key comes from: every place that a route can name, and what is refused before it reaches anybody.

use serde_json::json;

use super::{World, caller::post, replayed};

const POLICY: &str = r#"
scopes:
  ORDER: { key: [shop, region, number, kind, method, path, partner], retain: 1h }
  NOTE: { key: [id], retain: 1h }
routes:
  - match: "POST /shops/{shop}/orders"
    upstream: "UPSTREAM"
    scope: ORDER
    key:
      shop: "path:shop"
      region: "query:region"
      number: "body:/order/lines/1/number"
      kind: "const:order"
      method: "request:method"
      path: "request:path"
      partner: "header:X-Partner"
  - { match: "POST /notes", upstream: "UPSTREAM", scope: NOTE, key: { id: "header:Idempotency-Key" } }
"#;

#[test]
fn every_place_that_a_route_names_is_part_of_the_key() {
    let world = World::new(POLICY);
    let order = |shop: &str, region: &str, number: &str, partner: &str| {
        post(&format!("/shops/{shop}/orders?x=1&region={region}"))
            .header(&format!("x-partner: {partner}"))
            .json(format!(r#"{{"order":{{"lines":[{{}},{{"number":{number}}}]}}}}"#))
    };
    let first = order("k%C3%B6ln+1", "north+west", "7", "p");
    assert_eq!(world.send(&first).status, 201);
    assert!(replayed(&world.send(&first)));
    let key = json!({
        "shop": "k%C3%B6ln%2B1", "region": "north%20west", "number": 7, "kind": "order", "method": "POST",
        "path": "/shops/k%25C3%25B6ln%2B1/orders", "partner": "p",
    });
    let found = world.server.admin().lookup("ORDER", &key, "&tenant=acme").ok(200);
    assert_eq!(
        (&found["exists"], &found["state"], &found["resultUrn"]),
        (&json!(true), &json!("sealed"), &found["idempotencyKey"])
    );
    for other in [
        order("bonn", "north+west", "7", "p"),
        order("k%C3%B6ln+1", "south", "7", "p"),
        order("k%C3%B6ln+1", "north+west", "8", "p"),
        order("k%C3%B6ln+1", "north+west", "true", "p"),
        order("k%C3%B6ln+1", "north+west", "7", "q"),
    ] {
        let answer = world.send(&other);
        assert_eq!((answer.status, replayed(&answer)), (201, false), "{}", answer.text());
    }
    assert_eq!(world.upstream.count(), 6);
}

#[test]
fn an_idempotency_key_is_one_key_quoted_or_bare_and_never_a_guess() {
    let world = World::new(POLICY);
    let note = |key: &str| post("/notes").key(key).json("{}");
    assert_eq!(world.send(&note("\"a-1\"")).status, 201);
    for same in ["a-1", "\"a-1\"", "  a-1  ", "\"a-1\";v=2"] {
        assert!(replayed(&world.send(&note(same))), "{same}");
    }
    for bad in ["", "\"\"", "\"a-1", "a-1\"", "a b", "a,b", "\"ü\"", &"k".repeat(256)] {
        world.send(&note(bad)).problem(400, "malformed-request");
    }
    world.send(&note("a-1").key("a-1")).problem(400, "malformed-request");
    world.send(&note(&"k".repeat(255))).ok(201);
    world.send(&post("/notes").json("{}")).problem(400, "missing-idempotency-key");
    assert_eq!(world.upstream.count(), 2);
}

#[test]
fn a_field_that_is_not_there_or_not_one_value_is_refused_and_nothing_leaves() {
    let world = World::new(POLICY);
    let whole = r#"{"order":{"lines":[{},{"number":7}]}}"#;
    let order = |path: &str, body: &str| post(path).header("x-partner: p").json(body);
    let good = "/shops/s/orders?region=n";
    for (asked, code) in [
        (order("/shops/s/orders", whole), "wrong-key-fields"),
        (order("/shops/s/orders?Region=n", whole), "malformed-request"),
        (order(good, "{}"), "wrong-key-fields"),
        (order(good, r#"{"order":{"lines":[{}]}}"#), "wrong-key-fields"),
        (post(good).header("x-partner: p"), "wrong-key-fields"),
        (post(good).json(whole), "wrong-key-fields"),
        (order("/shops/s/orders?region=n&region=n", whole), "malformed-request"),
        (order("/shops/%ff/orders?region=n", whole), "malformed-request"),
        (order(good, whole).header("x-partner: q"), "malformed-request"),
        (order(good, r#"{"order":{"lines":[{},{"number":{}}]}}"#), "malformed-request"),
        (order(good, r#"{"order":{"lines":[{},{"number":null}]}}"#), "malformed-request"),
        (order(good, r#"{"order":{"lines":[{},{"number":1.5}]}}"#), "malformed-request"),
        (order(good, r#"{"order":{"lines":[{},{"number":1,"number":2}]}}"#), "malformed-request"),
        (order(good, r#"{"order":"#), "malformed-request"),
        (order(good, &format!("{}{}", "[".repeat(65), "]".repeat(65))), "malformed-request"),
    ] {
        let answer = world.send(&asked);
        assert_eq!((answer.status, &answer.json()["code"]), (400, &json!(code)), "{} {}", asked.path, answer.text());
    }
    world
        .send(&post(good).header("x-partner: p").header("content-type: text/plain").body(whole))
        .problem(415, "not-json");
    world.send(&order("/shops//orders?region=n", whole)).problem(400, "malformed-request");
    assert_eq!((world.upstream.count(), world.upstream.connections()), (0, 0));
}

#[test]
fn a_required_header_is_asked_of_every_write_but_not_of_webhooks() {
    let world = World::new(
        r#"
require_headers: [Idempotency-Key, X-Correlation-Id]
scopes:
  NOTE: { key: [id], retain: 1h }
routes:
  - { match: "POST /notes", upstream: "UPSTREAM", scope: NOTE, key: { id: "body:/id" } }
  - match: "POST /hooks"
    upstream: "UPSTREAM"
    scope: NOTE
    key: { id: "body:/id" }
    verify: { scheme: github, secrets: ["s"] }
"#,
    );
    let note = post("/notes").json(r#"{"id":1}"#);
    world.send(&note).problem(400, "missing-idempotency-key");
    let missing = world.send(&note.clone().key("k")).problem(400, "missing-header");
    assert!(missing["detail"].as_str().unwrap().contains("X-Correlation-Id"));
    assert_eq!(world.upstream.count(), 0);
    world.send(&note.key("k").header("x-correlation-id: c")).ok(201);
    let body = r#"{"id":1}"#;
    let hook = super::caller::ask("POST", "/hooks").json(body);
    let signed = format!("x-hub-signature-256: sha256={}", super::webhooks::hex_hmac("s", &[body.as_bytes()]));
    world.send(&hook.header(&signed)).ok(201);
    assert_eq!(world.upstream.count(), 2);
}

#[test]
fn rule_that_names_its_own_required_headers_asks_for_these_alone() {
    let world = World::new(
        r#"
require_headers: [Idempotency-Key]
scopes:
  NOTE: { key: [id], retain: 1h }
routes:
  - { match: "POST /notes", upstream: "UPSTREAM", scope: NOTE, key: { id: "body:/id" }, require_headers: [] }
  - { match: "POST /traced", upstream: "UPSTREAM", scope: NOTE, key: { id: "body:/id" }, require_headers: [X-Asked-For] }
  - { match: "POST /usual", upstream: "UPSTREAM", scope: NOTE, key: { id: "body:/id" } }
"#,
    );
    let note = |path: &str| post(path).json(format!(r#"{{"id":"{path}"}}"#));
    world.send(&note("/notes")).ok(201);
    world.send(&note("/traced").key("k")).problem(400, "missing-header");
    world.send(&note("/traced").header("x-asked-for: c")).ok(201);
    world.send(&note("/usual").header("x-asked-for: c")).problem(400, "missing-idempotency-key");
    // A header that a rule asks for is meant for the upstream, and one that it does not ask for may end here.
    let named = |path: &str| note(path).key("k").header("x-asked-for: c").header("connection: x-asked-for");
    world.send(&named("/traced")).problem(400, "malformed-request");
    world.send(&named("/usual")).ok(201);
    assert_eq!(world.upstream.count(), 3);
}

const REFUNDS: &str = r#"
scopes:
  REFUND: { key: [order], retain: 1h }
routes:
  - { match: "POST /refunds/{order}", upstream: "UPSTREAM", scope: REFUND, key: { order: "path:order" } }
  - { match: "POST /paths/{*rest}", upstream: "UPSTREAM", scope: REFUND, key: { order: "request:path" } }
  - { match: "POST /bodies", upstream: "UPSTREAM", scope: REFUND, key: { order: "body:/order/id" } }
  - { match: "POST /headers", upstream: "UPSTREAM", scope: REFUND, key: { order: "header:X-Order-Id" } }
  - { match: "POST /queries", upstream: "UPSTREAM", scope: REFUND, key: { order: "query:order_id" } }
  - { match: "POST /digests", upstream: "UPSTREAM", scope: REFUND, key: { order: "request:digest" } }
"#;

#[test]
fn a_value_that_the_upstream_may_read_as_another_is_refused_and_nothing_leaves() {
    let world = World::new(REFUNDS);
    let odd = ["7;x=1", "7%3Bx", "7.", "7%20", "%207", "7%5Cx", "7%2Fx", "7%3Fx", "7%23x", "%2537", "7%00", "7%09"];
    for value in odd {
        for path in [format!("/refunds/{value}"), format!("/paths/{value}"), format!("/paths/x/{value}/y")] {
            let answer = world.send(&post(&path).json("{}"));
            assert_eq!(answer.status, 400, "{path}: {}", answer.text());
        }
    }
    for body in [
        r#"{"order":{"id":"A","ID":"B"}}"#,
        r#"{"order":{"id":"A"},"Order":{"id":"B"}}"#,
        r#"{"order":{"Id":"A"}}"#,
        r#"{"order":{"id":"A","\u0130d":1,"\u0049d":2}}"#,
    ] {
        world.send(&post("/bodies").json(body)).problem(400, "malformed-request");
    }
    for other in ["X_Order_Id: 2", "x-order_id: 2", "X-Order-Id: 2"] {
        world.send(&post("/headers").header("X-Order-Id: 1").header(other)).problem(400, "malformed-request");
    }
    for query in [
        "order_id=1&order_id=2",
        "order_id=1&ORDER_ID=2",
        "order_id=1&order_id[]=2",
        "order_id=1&order.id=2",
        "order_id=1&order%5Bid=2&order_id%5B0%5D=3",
        "order_id=1;x=2",
        "x=1;order_id=2",
        "x=1;order_id=2&order_id=1",
    ] {
        let answer = world.send(&post(&format!("/queries?{query}")));
        assert_eq!(answer.status, 400, "{query}: {}", answer.text());
    }
    assert_eq!((world.upstream.count(), world.upstream.connections()), (0, 0));
    // Requests that every server reads the same are served.
    for asked in [
        post("/refunds/7"),
        post("/refunds/report.pdf"),
        post("/refunds/k%C3%B6ln"),
        post("/paths/a/b"),
        post("/bodies").json(r#"{"order":{"id":"A"},"other":{"ID":"B"}}"#),
        post("/headers").header("X-Order-Id: 1").header("X-Order: 2"),
        post("/queries?order_id=1%3B2&x=1;y=2"),
    ] {
        let answer = world.send(&asked);
        assert_eq!((answer.status, replayed(&answer)), (201, false), "{}: {}", asked.path, answer.text());
    }
}

#[test]
fn one_path_in_two_spellings_is_one_key_and_never_two_effects() {
    let world = World::new(REFUNDS);
    for (first, second) in [
        ("/paths/a:b", "/paths/a%3Ab"),
        ("/paths/k%C3%B6ln", "/paths/k%c3%b6ln"),
        ("/paths/shop", "/paths/shop/"),
        ("/refunds/a@b", "/refunds/a%40b"),
    ] {
        world.send(&post(first).json("{}")).ok(201);
        world.send(&post(second).json("{}")).problem(409, "conflict");
        assert!(replayed(&world.send(&post(first).json("{}"))), "{first}");
    }
    assert_eq!(world.upstream.count(), 4);
}

#[test]
fn a_digest_of_the_body_is_a_key() {
    let world = World::new(REFUNDS);
    world.send(&post("/digests").body("one")).ok(201);
    assert!(replayed(&world.send(&post("/digests").body("one"))));
    world.send(&post("/digests").body("two")).ok(201);
    // By its bytes, not by what they mean.
    world.send(&post("/digests").json(r#"{"a": 1}"#)).ok(201);
    world.send(&post("/digests").json(r#"{"a":1}"#)).ok(201);
    assert_eq!(world.upstream.count(), 4);
}
