//! Whose key it is: one tenant never sees another's answer, and nobody without a credential is heard at all.

use std::io::Write;

use base64::{Engine as _, prelude::BASE64_URL_SAFE_NO_PAD};
use serde_json::json;

use super::{
    World,
    caller::{ask, post, read},
    replayed, until,
    upstream::{Say, said},
};

#[test]
fn two_tenants_with_one_key_have_two_effects_and_two_answers() {
    let world = World::charges();
    let as_one = |token: &str| {
        let asked = ask("POST", "/charges").header(&format!("authorization: Bearer {token}")).key("k").json("{}");
        world.send(&asked)
    };
    let (acme, globex) = (as_one("dev-partner"), as_one("dev-partner-2"));
    assert_eq!((acme.text().as_str(), globex.text().as_str()), ("{\"charge\": 1}", "{\"charge\": 2}"));
    assert_eq!(as_one("dev-partner").body, acme.body);
    let again = as_one("dev-partner-2");
    assert_eq!((&again.body, replayed(&again)), (&globex.body, true));
    let heard = world.upstream.heard();
    assert_eq!(
        (heard[0].header("fencepost-tenant"), heard[1].header("fencepost-tenant")),
        (Some("acme"), Some("globex"))
    );
    assert_ne!(heard[0].header("idempotency-key"), heard[1].header("idempotency-key"));
    // Another body under the other's key is no conflict, and shows nothing.
    let other = ask("POST", "/charges").header("authorization: Bearer dev-partner-2").key("k2").json("[2]");
    world.send(&post("/charges").key("k2").json("[1]")).ok(201);
    world.send(&other).ok(201);
    // A caller that has no keys of its own cannot write through the gateway.
    as_one("dev-admin").problem(403, "forbidden");
    assert_eq!(heard.len() + 2, world.upstream.count());
}

#[test]
fn a_request_without_a_credential_is_refused() {
    let world = World::charges();
    let wrong = [
        "x-none: 1",
        "authorization: Bearer wrong",
        "authorization: Basic ZGV2LXBhcnRuZXI=",
        "authorization: dev-partner",
        "authorization: Bearer",
    ];
    for credential in wrong {
        world.send(&ask("POST", "/charges").header(credential).key("k").json("{}")).problem(401, "unauthorized");
    }
    let twice = post("/charges").header("authorization: Bearer dev-partner").key("k").json("{}");
    world.send(&twice).problem(400, "malformed-request");
    // The answer is there before the body is: nothing was read.
    let mut stream = ask("GET", "/healthz").begin(world.address());
    read(&mut stream).unwrap();
    let head = "POST /charges HTTP/1.1\r\nhost: a\r\nidempotency-key: k\r\ncontent-length: 1000\r\n\r\n";
    stream.get_mut().write_all(head.as_bytes()).unwrap();
    assert_eq!(read(&mut stream).unwrap().status, 401);
    assert_eq!(world.upstream.connections(), 0);
    let told = world.server.admin().lookup("CHARGE", &json!({"id": "k"}), "&tenant=acme").ok(200);
    assert_eq!(told, json!({"exists": false}));
    // Also where there is an answer to give.
    world.send(&post("/charges").key("k").json("{}")).ok(201);
    world.send(&ask("POST", "/charges").key("k").json("{}")).problem(401, "unauthorized");
}

const REFUNDS: &str = r#"
scopes:
  REFUND: { key: [id], retain: 1h, lease: 500ms }
routes:
  - { match: "POST /refunds", upstream: "UPSTREAM", scope: REFUND, key: { id: "header:Idempotency-Key" } }
  - { match: "POST /plans", upstream: "UPSTREAM", scope: REFUND, key: { id: "header:Idempotency-Key" }, roles: [planner] }
  - { match: "POST /globex", upstream: "UPSTREAM", scope: REFUND, key: { id: "header:Idempotency-Key" }, tenants: [globex] }
  - { match: "POST /users", upstream: "UPSTREAM", scope: REFUND, key: { id: "header:Idempotency-Key" }, principal: "header:X-User" }
  - { match: "POST /tokens", upstream: "UPSTREAM", scope: REFUND, key: { id: "header:Idempotency-Key" }, principal: "jwt:X-Token/who/sub" }
"#;

#[test]
fn a_rule_is_for_its_roles_and_tenants_and_refuses_others_before_their_body_is_read() {
    let world = World::new(REFUNDS);
    let callers = ["dev-partner", "dev-partner-2", "dev-planner", "dev-executor", "dev-admin"];
    for (path, served) in [
        ("/refunds", &["dev-partner", "dev-partner-2", "dev-executor"][..]),
        ("/plans", &["dev-planner"]),
        ("/globex", &["dev-partner-2"]),
    ] {
        for caller in callers {
            let asked = ask("POST", path).header(&format!("authorization: Bearer {caller}")).key(path).json("{}");
            let answer = world.send(&asked);
            if served.contains(&caller) {
                assert_eq!((answer.status, replayed(&answer)), (201, false), "{caller} {path}: {}", answer.text());
            } else {
                answer.problem(403, "forbidden");
            }
        }
    }
    assert_eq!(world.upstream.count(), 5);
    // The answer is there before the body is: nothing was read, and nothing is claimed.
    let mut stream = ask("GET", "/healthz").begin(world.address());
    read(&mut stream).unwrap();
    let head = "POST /globex HTTP/1.1\r\nhost: a\r\nauthorization: Bearer dev-partner\r\nidempotency-key: n\r\ncontent-length: 1000\r\n\r\n";
    stream.get_mut().write_all(head.as_bytes()).unwrap();
    assert_eq!(read(&mut stream).unwrap().status, 403);
    let told = world.server.admin().lookup("REFUND", &json!({"id": "n"}), "&tenant=acme").ok(200);
    assert_eq!(told, json!({"exists": false}));
}

#[test]
fn a_user_never_gets_another_users_answer_nor_sees_its_request() {
    let world = World::new(REFUNDS);
    let asked = |user: &str, body: &str| post("/users").key("k").header(&format!("x-user: {user}")).json(body);
    let first = world.send(&asked("alice", r#"{"iban":"DE-alice"}"#));
    assert_eq!(first.status, 201);
    for body in [r#"{"iban":"DE-alice"}"#, r#"{"iban":"DE-bob"}"#] {
        let refused = world.send(&asked("bob", body));
        let problem = refused.problem(409, "conflict");
        assert!(problem.get("diff").is_none() && !refused.text().contains("alice"), "{}", refused.text());
    }
    let again = world.send(&asked("alice", r#"{"iban":"DE-alice"}"#));
    assert_eq!((replayed(&again), &again.body), (true, &first.body));
    assert_eq!(world.upstream.count(), 1);
    // Also while it is under way.
    world.upstream.say(Say::Hold(Box::new(said(201, "", "done"))));
    let mut held = post("/users").key("h").header("x-user: alice").json("{}").begin(world.address());
    world.upstream.until(2);
    world.send(&post("/users").key("h").header("x-user: bob").json("{}")).problem(409, "conflict");
    world.send(&post("/users").key("h").header("x-user: alice").json("{}")).problem(409, "in-flight");
    world.upstream.release();
    assert_eq!(read(&mut held).unwrap().status, 201);
    // A request that names no user, or two, is refused.
    world.send(&post("/users").key("n").json("{}")).problem(400, "missing-header");
    world.send(&post("/users").key("n").header("x-user:").json("{}")).problem(400, "missing-header");
    for other in ["x-user: bob", "x_user: bob"] {
        let twice = post("/users").key("n").header("x-user: alice").header(other);
        world.send(&twice.json("{}")).problem(400, "malformed-request");
    }
    assert_eq!(world.upstream.count(), 2);
}

#[test]
fn a_user_may_be_a_claim_of_a_token_that_is_new_with_every_try() {
    let world = World::new(REFUNDS);
    let token = |claims: &str, signature: &str| {
        let coded = |text: &str| BASE64_URL_SAFE_NO_PAD.encode(text);
        format!("x-token: Bearer {}.{}.{signature}", coded(r#"{"alg":"ES256"}"#), coded(claims))
    };
    let asked = |line: &str| post("/tokens").key("k").header(line).json("{}");
    let first = world.send(&asked(&token(r#"{"exp":1,"who":{"sub":"alice"}}"#, "one")));
    assert_eq!(first.status, 201);
    let again = world.send(&asked(&token(r#"{"exp":2,"who":{"sub":"alice"}}"#, "two")));
    assert_eq!((replayed(&again), &again.body), (true, &first.body));
    world.send(&asked(&token(r#"{"exp":2,"who":{"sub":"bob"}}"#, "two"))).problem(409, "conflict");
    for line in [
        token(r#"{"exp":2}"#, "two"),
        token(r#"{"who":{"sub":""}}"#, "two"),
        token(r#"{"who":{"sub":"alice","SUB":"bob"}}"#, "two"),
        token("no claims", "two"),
        "x-token: Bearer opaque".to_owned(),
    ] {
        world.send(&asked(&line)).problem(400, "malformed-request");
    }
    world.send(&post("/tokens").key("k").json("{}")).problem(400, "missing-header");
    assert_eq!(world.upstream.count(), 1);
}

#[test]
fn the_log_says_once_that_cookies_pass_where_no_principal_is_named() {
    let world = World::new(REFUNDS);
    for key in ["a", "b"] {
        world.send(&post("/refunds").key(key).header("cookie: session=1").json("{}")).ok(201);
        world
            .send(&post("/users").key(&format!("u-{key}")).header("cookie: session=1").header("x-user: a").json("{}"))
            .ok(201);
    }
    let log = until("it is written", || {
        Some(std::fs::read_to_string(world.log()).unwrap()).filter(|log| log.contains("cookies pass"))
    });
    let said: Vec<&str> = log.lines().filter(|line| line.contains("cookies pass")).collect();
    assert!(said.len() == 1 && said[0].contains("POST /refunds") && !said[0].contains("session"), "{said:?}");
}
