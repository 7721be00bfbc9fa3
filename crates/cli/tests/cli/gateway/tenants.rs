//! Whose key it is: one tenant never sees another's answer, and nobody without a credential is heard at all.

use std::io::Write;

use serde_json::json;

use super::{
    World,
    caller::{ask, post, read},
    replayed,
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
    // Who has no keys of their own cannot write through the gateway.
    as_one("dev-admin").problem(403, "forbidden");
    assert_eq!(heard.len() + 2, world.upstream.count());
}

#[test]
fn nobody_without_a_credential_is_heard() {
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
