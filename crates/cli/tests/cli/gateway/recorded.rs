//! Recorded deliveries: signed bytes whose scheme signs no time, sent again with other parts that are not signed.

use serde_json::json;
use sha2::{Digest, Sha256};

use super::{
    World,
    caller::{Ask, ask, read},
    replayed,
    upstream::{Say, said},
    webhooks::hex_hmac,
};

const POLICY: &str = r#"
scopes:
  HOOK: { key: [id], retain: 7d, lease: 500ms }
routes:
  - { match: "POST /shops/{shop}", upstream: "UPSTREAM", scope: HOOK, tenant: t, key: { id: "path:shop" }, verify: { scheme: github, secrets: ["secret"] } }
  - { match: "POST /headers", upstream: "UPSTREAM", scope: HOOK, tenant: t, key: { id: "header:X-GitHub-Delivery" }, verify: { scheme: github, secrets: ["secret"] } }
  - { match: "POST /queries", upstream: "UPSTREAM", scope: HOOK, tenant: t, key: { id: "query:id" }, verify: { scheme: fgai, secrets: ["secret"] } }
  - { match: "POST /digests/{shop}", upstream: "UPSTREAM", scope: HOOK, tenant: t, key: { id: "request:digest" }, verify: { scheme: github, secrets: ["secret"] } }
"#;

fn hook(path: &str, body: &str) -> Ask {
    let signature = hex_hmac("secret", &[body.as_bytes()]);
    let hook = ask("POST", path).json(body).header(&format!("x-hub-signature-256: sha256={signature}"));
    hook.header(&format!("x-fgai-signature: sha256={signature}"))
}

#[test]
fn a_recorded_delivery_does_not_run_again_under_another_path_header_or_query() {
    let world = World::new(POLICY);
    let with =
        |path: &str, delivery: &str| hook(path, r#"{"event":1}"#).header(&format!("x-github-delivery: {delivery}"));
    for (first, others) in [
        (with("/shops/a", "d"), vec![with("/shops/b", "d"), with("/shops/c?x=1", "d"), with("/shops/a.json", "d")]),
        (with("/headers", "d-1"), vec![with("/headers", "d-2"), with("/headers?x=1", "d-3")]),
        (with("/queries?id=1", "d"), vec![with("/queries?id=2", "d"), with("/queries?id=3&x=1", "d")]),
        (with("/digests/a", "d"), vec![with("/digests/b", "d"), with("/digests/a?x=1", "d")]),
    ] {
        let calls = world.upstream.count();
        let answer = world.send(&first);
        assert_eq!((answer.status, replayed(&answer)), (201, false), "{}: {}", first.path, answer.text());
        for other in &others {
            world.send(other).problem(409, "conflict");
        }
        // The provider's own redelivery.
        let again = world.send(&first);
        assert_eq!((replayed(&again), &again.body), (true, &answer.body), "{}", first.path);
        assert_eq!(world.upstream.count(), calls + 1, "{}", first.path);
    }
    // Nothing is kept of what was refused.
    let told = world.server.admin().lookup("HOOK", &json!({"id": "b"}), "&tenant=t").ok(200);
    assert_eq!(told, json!({"exists": false}));
    // Other bytes are another delivery.
    world.send(&hook("/shops/b", r#"{"event":2}"#)).ok(201);
}

#[test]
fn signed_bytes_under_another_key_are_refused_with_the_status_of_their_rule_and_never_acknowledged() {
    let rule = |more: &str| {
        POLICY.replace(
            "tenant: t, key: { id: \"path:shop\" }",
            &format!("tenant: t, {more}, key: {{ id: \"path:shop\" }}"),
        )
    };
    for (more, general, status) in [
        ("on_conflict: { status: 422 }", 409, 422),
        ("on_conflict: { status: 409 }", 422, 409),
        ("on_conflict: { include_diff: false }", 422, 422),
        // Acknowledged, a recording would pass for the delivery, and the provider's own would never come again.
        ("on_conflict: { status: 200 }", 422, 422),
    ] {
        let world = World::new(&format!("on_conflict: {{ status: {general}, include_diff: true }}\n{}", rule(more)));
        world.send(&hook("/shops/a", "{}")).ok(201);
        let refused = world.send(&hook("/shops/b", "{}"));
        refused.problem(status, "conflict");
        assert_eq!(refused.header("fencepost-decision"), Some("conflict"), "{more}");
        assert_eq!(world.upstream.count(), 1, "{more}");
    }
}

#[test]
fn signed_bytes_are_remembered_for_as_long_as_their_answer_and_name_its_key() {
    let world = World::new(POLICY);
    world.send(&hook("/shops/a", "{}")).ok(201);
    let mut admin = world.server.admin();
    let effect = admin.lookup("HOOK", &json!({"id": "a"}), "&tenant=t").ok(200);
    let digest: String = Sha256::digest("{}").iter().map(|byte| format!("{byte:02x}")).collect();
    let key = json!({"rule": "POST%20/shops/%7Bshop%7D", "digest": digest});
    let bytes = admin.lookup("SIGNED_DELIVERY", &key, "&tenant=t").ok(200);
    assert_eq!((&bytes["state"], &bytes["resultUrn"]), (&json!("sealed"), &effect["idempotencyKey"]), "{bytes}");
    assert_eq!(bytes["expiresAt"], effect["expiresAt"]);
}

#[test]
fn a_delivery_that_did_not_happen_can_be_sent_again_also_under_another_key() {
    let world = World::new(POLICY);
    for (number, status) in [(1, 409), (2, 429)] {
        let body = format!("{{\"event\":{number}}}");
        world.upstream.say(said(status, "", "not now"));
        assert_eq!(world.send(&hook(&format!("/shops/a{number}"), &body)).status, status);
        // A recording that was let in first and did nothing does not keep the provider out.
        assert_eq!(world.send(&hook(&format!("/shops/b{number}"), &body)).status, status);
        world.upstream.say(said(201, "", "done"));
        let delivery = hook(&format!("/shops/a{number}"), &body);
        let (first, again) = (world.send(&delivery), world.send(&delivery));
        assert_eq!((first.status, replayed(&first), replayed(&again)), (201, false, true), "{}", first.text());
        world.send(&hook(&format!("/shops/b{number}"), &body)).problem(409, "conflict");
    }
}

#[test]
fn a_delivery_whose_outcome_is_unknown_is_retried_under_its_own_key_alone() {
    let world = World::new(POLICY);
    let delivery = hook("/shops/a", "{}");
    world.upstream.say(said(500, "", "who knows"));
    assert_eq!(world.send(&delivery).status, 500);
    world.upstream.say(said(201, "", "done"));
    world.send(&hook("/shops/b", "{}")).problem(409, "conflict");
    let retried = world.settled(&delivery);
    assert_eq!((retried.status, replayed(&retried)), (201, false));
    world.send(&hook("/shops/b", "{}")).problem(409, "conflict");
    assert_eq!((world.upstream.count(), world.upstream.last().attempt()), (2, 2));
}

#[test]
fn of_one_delivery_under_two_keys_at_once_one_runs() {
    let world = World::new(POLICY);
    world.upstream.say(Say::Hold(Box::new(said(201, "", "done"))));
    let mut first = hook("/shops/a", "{}").begin(world.address());
    world.upstream.until(1);
    world.send(&hook("/shops/b", "{}")).problem(409, "conflict");
    world.send(&hook("/shops/a", "{}")).problem(503, "in-flight");
    world.upstream.release();
    assert_eq!(read(&mut first).unwrap().status, 201);
    assert_eq!(world.upstream.count(), 1);
}

#[test]
fn a_crash_in_the_middle_neither_blocks_a_delivery_nor_lets_a_recording_run() {
    let world = World::new(POLICY);
    world.upstream.say(Say::Hold(Box::new(said(201, "", "done"))));
    let _lost = hook("/shops/a", "{}").begin(world.address());
    world.upstream.until(1);
    let world = world.killed();
    world.upstream.say(said(201, "", "done"));
    world.send(&hook("/shops/b", "{}")).problem(409, "conflict");
    let retried = world.settled(&hook("/shops/a", "{}"));
    assert_eq!((retried.status, replayed(&retried)), (201, false));
    world.send(&hook("/shops/b", "{}")).problem(409, "conflict");
    assert_eq!(world.upstream.count(), 2);
}
