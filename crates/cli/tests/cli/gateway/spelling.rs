//! One thing in several spellings: the gateway fences the same effect that the application behind it sees.

use super::{
    World,
    caller::{ask, post},
    replayed,
    upstream::{Say, said},
};

#[test]
fn a_path_with_coded_letters_is_the_path_with_the_letters() {
    let world = World::charges();
    let first = world.send(&post("/%63harges").key("k").json("{}"));
    assert_eq!((first.status, world.upstream.last().target.as_str()), (201, "/charges"));
    assert!(replayed(&world.send(&post("/charges").key("k").json("{}"))));
    assert_eq!(world.upstream.count(), 1);
}

#[test]
fn a_wide_route_takes_no_near_spelling_of_what_another_verifies() {
    let world = World::new(
        r#"
scopes:
  CHARGE: { key: [id], retain: 1h, lease: 500ms }
routes:
  - { match: "POST /hooks/pay", upstream: "UPSTREAM", scope: CHARGE, key: { id: "body:/id" }, tenant: pay, verify: { scheme: github, secrets: ["0123456789abcdef"] } }
  - { match: "POST /{*all}", upstream: "UPSTREAM", scope: CHARGE, key: { id: "header:Idempotency-Key" } }
"#,
    );
    for (path, status) in [
        ("/hooks/pay", 401),
        ("/hooks/%70ay", 401),
        ("/Hooks/pay", 404),
        ("/hooks/pay/", 404),
        ("/hooks/pay;a=b", 404),
        ("/hooks%2Fpay", 404),
        ("/hooks%5cpay", 404),
        ("/hooks/pay%3Ba=b", 404),
        ("/hooks%2F%2fpay", 404),
        ("/a%2F..%2Fhooks/pay", 400),
        ("/hooks/pay.json", 404),
        ("/hooks/pay.tar.gz", 404),
        ("/hooks/pay.", 404),
        ("/hooks/pay%20", 404),
        ("/hooks./pay..", 404),
        ("/hooks/pay%3Fx", 404),
        ("/hooks/pay%23x", 404),
        ("/hooks/pay%00", 400),
        ("/hooks/pay%2500", 404),
        ("/hooks/p%2561y", 404),
        ("/hooks/p%252561y", 404),
        ("/hooks%252Fpay", 404),
        ("/x/%252e%252e/hooks/pay", 404),
        ("/hooks/pay/x", 404),
        ("/hooks/pay%2Fx", 404),
        ("/hooks/pay/x/y?z=1", 404),
    ] {
        let answer = world.send(&post(path).key("k").json(r#"{"id":"e"}"#));
        assert_eq!(answer.status, status, "{path}: {}", answer.text());
    }
    assert_eq!(world.upstream.count(), 0);
    world.send(&post("/hooks/other").key("k").json("{}")).ok(201);
    world.send(&post("/hooks/payment").key("k2").json("{}")).ok(201);
}

#[test]
fn a_verified_path_is_owned_for_all_writes_and_what_the_policy_names_below_it_is_served() {
    let world = World::new(
        r#"
scopes:
  CHARGE: { key: [id], retain: 1h, lease: 500ms }
routes:
  - { match: "POST /hooks/pay", upstream: "UPSTREAM", scope: CHARGE, key: { id: "body:/id" }, tenant: pay, verify: { scheme: github, secrets: ["0123456789abcdef"] } }
  - { match: "POST /hooks/pay/test", upstream: "UPSTREAM", scope: CHARGE, key: { id: "header:Idempotency-Key" } }
  - { match: "* /{*all}", upstream: "UPSTREAM", scope: CHARGE, key: { id: "header:Idempotency-Key" } }
"#,
    );
    let write = |method: &str, path: &str| {
        let asked = ask(method, path).header("authorization: Bearer dev-partner").key(&format!("{method}{path}"));
        world.send(&asked.json("{}")).status
    };
    for (method, path) in
        [("PUT", "/hooks/pay"), ("PATCH", "/hooks/pay.json"), ("DELETE", "/hooks/pay/x"), ("POST", "/hooks/pay/test/x")]
    {
        assert_eq!(write(method, path), 404, "{method} {path}");
    }
    assert_eq!((world.upstream.count(), write("post", "/hooks/other")), (0, 400));
    assert_eq!((write("POST", "/hooks/pay/test"), write("PUT", "/hooks/other")), (201, 201));
    // Reads carry no signature on the verified path itself: a spelling gains nothing.
    for path in ["/hooks/pay", "/hooks/pay.json", "/hooks/pay/x"] {
        world.send(&ask("GET", path));
    }
    assert_eq!(world.upstream.count(), 5);
}

#[test]
fn a_route_takes_no_near_spelling_of_what_a_later_one_verifies() {
    let world = World::new(
        r#"
scopes:
  CHARGE: { key: [id], retain: 1h, lease: 500ms }
routes:
  - { match: "POST /shops/{shop}", upstream: "UPSTREAM", scope: CHARGE, key: { id: "header:Idempotency-Key" } }
  - { match: "POST /shops/{shop}/pay", upstream: "UPSTREAM", scope: CHARGE, key: { id: "body:/id" }, tenant: pay, verify: { scheme: github, secrets: ["0123456789abcdef"] } }
"#,
    );
    for (path, status) in [("/shops/7/pay", 401), ("/shops/7%2Fpay", 404), ("/shops/7%5cPay", 404)] {
        let answer = world.send(&post(path).key("k").json(r#"{"id":"e"}"#));
        assert_eq!(answer.status, status, "{path}: {}", answer.text());
    }
    assert_eq!(world.upstream.count(), 0);
    world.send(&post("/shops/a%2Fb").key("k").json("{}")).ok(201);
    assert_eq!(world.upstream.last().target, "/shops/a%2Fb");
}

#[test]
fn a_character_of_a_match_and_its_code_are_one() {
    let world = World::new(
        r#"
scopes:
  CHARGE: { key: [id], retain: 1h, lease: 500ms }
routes:
  - { match: "POST /orders:refund", upstream: "UPSTREAM", scope: CHARGE, key: { id: "body:/id" }, tenant: pay, verify: { scheme: github, secrets: ["0123456789abcdef"] } }
  - { match: "POST /café", upstream: "UPSTREAM", scope: CHARGE, key: { id: "header:Idempotency-Key" } }
  - { match: "POST /{*all}", upstream: "UPSTREAM", scope: CHARGE, key: { id: "header:Idempotency-Key" } }
"#,
    );
    for path in ["/orders:refund", "/orders%3Arefund"] {
        world.send(&post(path).key("k").json(r#"{"id":"e"}"#)).problem(401, "bad-signature");
    }
    world.send(&post("/Caf%C3%A9").key("k").json("{}")).problem(404, "not-found");
    world.send(&post("/caf%C3%A9").key("k").json("{}")).ok(201);
    assert_eq!((world.upstream.count(), world.upstream.last().target.as_str()), (1, "/caf%C3%A9"));
}

#[test]
fn a_path_of_ours_is_ours_in_every_spelling_of_its_letters() {
    let world = World::new(
        r#"
scopes:
  CHARGE: { key: [id], retain: 1h, lease: 500ms }
routes:
  - { match: "POST /{*all}", upstream: "UPSTREAM", scope: CHARGE, key: { id: "header:Idempotency-Key" } }
"#,
    );
    for (path, coded) in
        [("/metrics", "/%6Detrics"), ("/healthz", "/health%7A?a=%62"), ("/admin/policy", "/%61dmin/policy")]
    {
        let (ours, same) = (world.send(&ask("GET", path)), world.send(&ask("GET", coded)));
        assert_eq!((same.status, same.header("content-type")), (ours.status, ours.header("content-type")), "{coded}");
    }
    world.send(&post("/v1/fences/%63laim").key("k").json("[]")).problem(400, "malformed-request");
    world.send(&ask("DELETE", "/%6Detrics")).problem(405, "method-not-allowed");
    assert_eq!(world.upstream.count(), 0);
}

#[test]
fn headers_of_ours_are_not_taken_from_a_client_in_another_spelling() {
    let world = World::charges();
    let asked = post("/charges").key("k").header("Fencepost_Tenant: other").header("Idempotency_Key: mine").json("{}");
    world.send(&asked).ok(201);
    let heard = world.upstream.last();
    assert_eq!((heard.header("fencepost_tenant"), heard.header("idempotency_key")), (None, None));
    assert_eq!(heard.header("fencepost-tenant"), Some("acme"));
}

#[test]
fn an_offer_of_http_2_is_ignored() {
    let world = World::charges();
    let offer = post("/charges").key("k").header("connection: Upgrade, HTTP2-Settings").header("upgrade: h2c");
    world.send(&offer.header("http2-settings: AAMAAABkAAQCAAAAAAIAAAAA").json("{}")).ok(201);
    assert_eq!((world.upstream.last().header("upgrade"), world.upstream.last().header("http2-settings")), (None, None));
}

#[test]
fn of_two_lengths_of_an_answer_the_framings_own_counts() {
    let world = World::charges();
    let both = b"HTTP/1.1 200 OK\r\ncontent-length: 3\r\ntransfer-encoding: chunked\r\n\r\n5\r\nhello\r\n0\r\n\r\n";
    world.upstream.say(Say::Bytes(both.to_vec()));
    let asked = post("/charges").key("k").json("{}");
    let (first, second) = (world.send(&asked), world.send(&asked));
    for answer in [&first, &second, &world.send(&ask("GET", "/charges"))] {
        assert_eq!((answer.status, answer.text().as_str()), (200, "hello"));
    }
    assert!(!replayed(&first) && replayed(&second));
}

#[test]
fn an_upstream_cannot_say_what_only_a_replay_may() {
    let world = World::charges();
    world.upstream.say(said(200, "idempotency-replayed: true\r\nfencepost-body: omitted\r\n", "first"));
    let first = world.send(&post("/charges").key("k").json("{}"));
    assert_eq!((replayed(&first), first.header("fencepost-body"), first.text().as_str()), (false, None, "first"));
}

#[test]
fn a_token_of_ours_never_leaves_also_when_nobody_knows_it_any_more() {
    let world = World::charges();
    for (token, passed) in [("fp_0123456789", false), ("of-the-upstream", true)] {
        world.send(&ask("GET", "/charges").header(&format!("authorization: Bearer {token}")));
        assert_eq!(world.upstream.last().header("authorization").is_some(), passed, "{token}");
    }
}
