//! Messages where an upstream gave no outcome: to the client that asked, and to the upstream that is called again.

use serde_json::json;

use super::{
    World,
    caller::{Ask, ask, post},
    upstream::{Say, said},
};

const POLICY: &str = r#"
gateway: { timeout: 400ms }
scopes:
  CHARGE: { key: [id], retain: 1h, lease: 500ms }
  HELD: { key: [id], retain: 1h, lease: 500ms, on_lapse: hold }
routes:
  - { match: "POST /charges", upstream: "UPSTREAM", scope: CHARGE, key: { id: "header:Idempotency-Key" } }
  - { match: "POST /held", upstream: "UPSTREAM", scope: HELD, key: { id: "header:Idempotency-Key" } }
  - { match: "POST /release", upstream: "UPSTREAM", scope: CHARGE, key: { id: "header:Idempotency-Key" }, on_error: release }
  - { match: "POST /seal", upstream: "UPSTREAM", scope: CHARGE, key: { id: "header:Idempotency-Key" }, on_error: seal }
"#;

fn charge(path: &str, key: &str) -> Ask {
    post(path).key(key).json(r#"{"amount":5}"#)
}

/// Attempt, and what is said of an earlier one.
fn told(world: &World) -> (u64, Option<String>) {
    let heard = world.upstream.last();
    (heard.attempt(), heard.header("fencepost-recovering").map(str::to_owned))
}

#[test]
fn attempt_after_an_unknown_outcome_is_marked_as_recovering_and_one_after_a_refusal_is_not() {
    let world = World::new(POLICY);
    let recovering = Some("true".to_owned());
    // The upstream said no: nothing happened.
    world.upstream.say(said(429, "", "0"));
    world.send(&charge("/charges", "refused")).ok(429);
    assert_eq!(told(&world), (1, None));
    world.upstream.say(said(201, "", "1"));
    world.send(&charge("/charges", "refused")).ok(201);
    assert_eq!(told(&world), (2, None));
    // A 500 may have come after the effect, and what a later attempt was told says nothing of that.
    world.upstream.say(said(500, "", "0"));
    let unknown = charge("/charges", "unknown");
    world.send(&unknown).ok(500);
    assert_eq!(told(&world), (1, None));
    world.upstream.say(said(429, "", "0"));
    assert_eq!(world.settled(&unknown).status, 429);
    assert_eq!(told(&world), (2, recovering.clone()));
    world.upstream.say(said(201, "", "1"));
    world.send(&unknown).ok(201);
    assert_eq!(told(&world), (3, recovering));
    // Where a person has said that nothing happened, there is nothing to recover.
    world.upstream.say(said(500, "", "0"));
    let held = charge("/held", "h");
    world.send(&held).ok(500);
    world.settled(&held).problem(409, "in-doubt");
    let resolve = json!({"scope": "HELD", "key": {"id": "h"}, "tenant": "acme", "why": "asked", "outcome": "released"});
    world.server.admin().post("/admin/idempotency/resolve", resolve.to_string()).ok(200);
    world.upstream.say(said(201, "", "1"));
    world.send(&held).ok(201);
    assert_eq!(told(&world), (2, None));
}

#[test]
fn recovering_header_of_a_client_does_not_reach_the_upstream() {
    let world = World::new(POLICY);
    for name in ["Fencepost-Recovering", "fencepost-recovering", "Fencepost_Recovering", "Fencepost.Recovering"] {
        for asked in [charge("/charges", name), ask("GET", "/charges")] {
            world.send(&asked.header(&format!("{name}: true"))).ok(201);
            let heard = world.upstream.last();
            let forged = heard.head.iter().any(|(name, _)| name.to_ascii_lowercase().contains("recovering"));
            assert!(!forged, "{name}: {:?}", heard.head);
        }
    }
}

#[test]
fn failure_of_an_upstream_says_whether_a_retry_calls_it_again() {
    let world = World::new(POLICY);
    let silences = [
        (Say::Last(Vec::new()), 502, "upstream-failed"),
        (Say::Hold(Box::new(said(200, "", ""))), 504, "upstream-timeout"),
        (Say::Last(b"HTTP/1.1 201 Created\r\ncontent-length: 9\r\n\r\nhalf".to_vec()), 502, "upstream-failed"),
    ];
    for (number, (say, status, code)) in silences.into_iter().enumerate() {
        for (path, is_said, is_not) in [
            ("/charges", "then the upstream is called again", "in-doubt"),
            ("/held", "not called again before a person has resolved it", "then the upstream is called again"),
            ("/release", "a retry calls it again", "in-flight"),
            ("/seal", "it is not called again", "in-flight"),
        ] {
            // A head that came says that it was done: that is kept, or is unknown, whatever `on_error` frees.
            if number == 2 && matches!(path, "/release" | "/seal") {
                continue;
            }
            world.upstream.say(say.clone());
            let problem = world.send(&charge(path, &format!("{path}-{number}"))).problem(status, code);
            let detail = problem["detail"].as_str().unwrap().to_owned();
            assert!(detail.contains(is_said) && !detail.contains(is_not), "{path}: {detail}");
            assert!(!detail.contains("safe"), "{path}: {detail}");
        }
    }
}
