//! Incoming webhooks: whose signature, in which order, and for whom.

use std::time::{SystemTime, UNIX_EPOCH};

use base64::{Engine as _, prelude::BASE64_STANDARD};
use hmac::{Hmac, KeyInit, Mac};
use serde_json::json;
use sha2::Sha256;

use super::{
    World,
    caller::{Ask, ask, read},
    replayed,
    upstream::{Say, said},
};

const POLICY: &str = r#"
scopes:
  HOOK: { key: [id], retain: 7d, lease: 500ms }
  STEP: { key: [id], retain: 7d, lease: 30s }
  HELD: { key: [id], retain: 7d, lease: 300ms, on_lapse: hold }
routes:
  - match: "POST /stripe"
    upstream: "UPSTREAM"
    scope: HOOK
    key: { id: "body:/id" }
    verify: { scheme: stripe, secrets: ["whsec_old", "whsec_new"], tolerance: 1m }
  - match: "POST /github"
    upstream: "UPSTREAM"
    scope: HOOK
    key: { id: "header:X-GitHub-Delivery" }
    verify: { scheme: github, secrets: ["old", "new"] }
    tenant: forge
  - match: "POST /standard"
    upstream: "UPSTREAM"
    scope: HOOK
    key: { id: "header:webhook-id" }
    verify: { scheme: standard-webhooks, secrets: ["whsec_b2xk", "whsec_bmV3"], tolerance: 1m }
  - match: "POST /fgai"
    upstream: "UPSTREAM"
    scope: HOOK
    key: { id: "body:/id" }
    verify: { scheme: fgai, secrets: ["old", "new"] }
  - match: "POST /events"
    upstream: "UPSTREAM"
    scope: WEBHOOK
    key: { provider: "const:shop", event_id: "body:/id", event_version: "body:/version", action: "body:/action" }
    source: "body:/order"
    verify: { scheme: github, secrets: ["new"] }
  - match: "POST /steps"
    upstream: "UPSTREAM"
    scope: STEP
    key: { id: "body:/id" }
    source: "body:/order"
    order: "body:/step"
    verify: { scheme: github, secrets: ["new"] }
  - match: "POST /held"
    upstream: "UPSTREAM"
    scope: HELD
    key: { id: "body:/id" }
    verify: { scheme: github, secrets: ["new"] }
"#;

fn hmac(secret: &[u8], parts: &[&[u8]]) -> Vec<u8> {
    let mut mac = Hmac::<Sha256>::new_from_slice(secret).unwrap();
    parts.iter().for_each(|part| mac.update(part));
    mac.finalize().into_bytes().to_vec()
}

pub fn hex_hmac(secret: &str, parts: &[&[u8]]) -> String {
    hmac(secret.as_bytes(), parts).iter().map(|byte| format!("{byte:02x}")).collect()
}

fn now_s() -> u64 {
    SystemTime::now().duration_since(UNIX_EPOCH).unwrap().as_secs()
}

/// An event as its provider sends it, signed over `signed` at a time.
fn event(scheme: &str, secret: &str, at_s: u64, id: &str, body: &str, signed: &str) -> Ask {
    let hook = ask("POST", &format!("/{scheme}")).json(body);
    let signed = signed.as_bytes();
    match scheme {
        "stripe" => {
            let made = hex_hmac(&format!("whsec_{secret}"), &[format!("{at_s}.").as_bytes(), signed]);
            hook.header(&format!("stripe-signature: t={at_s},v1={made},v0=00"))
        }
        "standard" => {
            let made = BASE64_STANDARD.encode(hmac(secret.as_bytes(), &[format!("{id}.{at_s}.").as_bytes(), signed]));
            hook.header(&format!("webhook-id: {id}"))
                .header(&format!("webhook-timestamp: {at_s}"))
                .header(&format!("webhook-signature: v1,{made}"))
        }
        "fgai" => hook.header(&format!("x-fgai-signature: sha256={}", hex_hmac(secret, &[signed]))),
        _ => {
            let hook = hook.header(&format!("x-hub-signature-256: sha256={}", hex_hmac(secret, &[signed])));
            hook.header(&format!("x-github-delivery: {id}"))
        }
    }
}

/// Signed by whom the routes with one secret know.
pub fn github(path: &str, body: &str) -> Ask {
    event(path, "new", 0, "d", body, body)
}

#[test]
fn every_scheme_takes_either_secret_and_forwards_an_event_once() {
    let world = World::new(POLICY);
    for scheme in ["stripe", "github", "standard", "fgai"] {
        for secret in ["old", "new"] {
            let id = format!("{scheme}-{secret}");
            let body = format!("{{\"id\": \"{id}\",  \"odd\":1.0}}");
            let (hook, calls) = (event(scheme, secret, now_s(), &id, &body, &body), world.upstream.count());
            let first = world.send(&hook);
            assert_eq!((first.status, replayed(&first)), (201, false), "{id}: {}", first.text());
            let again = world.send(&hook);
            assert_eq!((again.status, replayed(&again), &again.body), (200, true, &first.body), "{id}");
            assert_eq!(world.upstream.count(), calls + 1, "{id}");
            assert_eq!(world.upstream.last().body, body.as_bytes(), "the bytes as they were signed");
            let tenant = if scheme == "github" { "forge" } else { "webhook:HOOK" };
            let told = world.server.admin().lookup("HOOK", &json!({"id": id}), &format!("&tenant={tenant}")).ok(200);
            assert_eq!(
                told,
                world.server.admin().lookup("HOOK", &json!({"id": id}), "").ok(200),
                "{tenant} is searched"
            );
            assert_eq!((&told["exists"], &told["state"]), (&json!(true), &json!("sealed")), "{id}: {told}");
            assert!(told["history"].as_array().is_some_and(|history| !history.is_empty()), "{told}");
        }
    }
}

#[test]
fn svix_names_of_headers_are_taken_where_those_of_standard_webhooks_are() {
    let world = World::new(POLICY);
    let at_s = now_s();
    let standard = |id: &str| event("standard", "new", at_s, id, "{}", "{}");
    let svix = |hook: &Ask| {
        let headers = hook.headers.iter().map(|line| line.replace("webhook-", "svix-")).collect();
        Ask { headers, ..hook.clone() }
    };
    let first = svix(&standard("m-1"));
    world.send(&first).ok(201);
    assert_eq!(world.upstream.last().header("svix-id"), Some("m-1"), "as it came");
    // One message is one key, under whichever names it comes.
    for again in [first, standard("m-1")] {
        assert!(replayed(&world.send(&again)));
    }
    // An application may read either: both must say what was verified.
    let both = |one: &str, two: &str| {
        let mut hook = standard(one);
        hook.headers.extend(svix(&standard(two)).headers.into_iter().filter(|line| line.starts_with("svix-")));
        hook
    };
    world.send(&both("m-2", "m-2")).ok(201);
    for (one, two) in [("m-3", "m-4"), ("m-1", "m-3")] {
        world.send(&both(one, two)).problem(401, "bad-signature");
    }
    assert_eq!(world.upstream.count(), 2);
}

#[test]
fn a_webhook_that_its_provider_did_not_sign_is_401_and_touches_nothing() {
    let world = World::new(POLICY);
    let (now, body) = (now_s(), r#"{"id": "x"}"#);
    let mut forged = Vec::new();
    for scheme in ["stripe", "github", "standard", "fgai"] {
        forged.push(event(scheme, "stolen", now, "x", body, body));
        forged.push(event(scheme, "new", now, "x", body, r#"{"id": "y"}"#));
        // Not even read as JSON.
        forged.push(event(scheme, "stolen", now, "x", "{", "{"));
        let mut unsigned = event(scheme, "new", now, "x", body, body);
        unsigned.headers.retain(|line| !line.contains("signature"));
        forged.push(unsigned.clone());
        forged.push(unsigned.header("authorization: Bearer dev-partner"));
        let mut twice = event(scheme, "new", now, "x", body, body);
        let line = twice.headers.iter().find(|line| line.contains("signature")).unwrap().clone();
        twice.headers.push(line);
        forged.push(twice);
    }
    for scheme in ["stripe", "standard"] {
        for at_s in [now - 120, now + 120] {
            forged.push(event(scheme, "new", at_s, "x", body, body));
        }
    }
    for hook in &forged {
        let answer = world.send(hook);
        assert_eq!((answer.status, &answer.json()["code"]), (401, &json!("bad-signature")), "{:?}", hook.headers);
    }
    assert_eq!(world.upstream.connections(), 0);
    for tenant in ["webhook:HOOK", "forge", "acme"] {
        let told = world.server.admin().lookup("HOOK", &json!({"id": "x"}), &format!("&tenant={tenant}")).ok(200);
        assert_eq!(told, json!({"exists": false}), "{tenant}");
    }
}

#[test]
fn a_credential_of_ours_on_a_webhook_stays_here() {
    let world = World::new(POLICY);
    world.send(&github("github", "{}").header("authorization: Bearer dev-admin")).ok(201);
    assert_eq!(world.upstream.last().header("authorization"), None);
    assert_eq!(world.upstream.last().header("fencepost-tenant"), None);
    // The provider's own is the application's business.
    let hook = event("github", "new", 0, "e", "[]", "[]").header("authorization: Basic cHJvdmlkZXI=");
    world.send(&hook).ok(201);
    assert_eq!(world.upstream.last().header("authorization"), Some("Basic cHJvdmlkZXI="));
}

#[test]
fn an_older_version_than_the_sealed_one_of_its_source_is_stale() {
    let world = World::new(POLICY);
    let send = |order: &str, version: u64| {
        let body = json!({"id": format!("{order}-{version}"), "version": version, "action": "paid", "order": order});
        world.send(&github("events", &body.to_string()))
    };
    send("O-1", 1).ok(201);
    send("O-1", 10).ok(201);
    let stale = send("O-1", 9);
    assert_eq!(stale.header("fencepost-decision"), Some("stale"));
    assert!(replayed(&send("O-1", 1)), "it happened when it was in order");
    send("O-2", 2).ok(201);
    send("O-1", 11).ok(201);
    assert_eq!(world.upstream.count(), 4);
    let key = json!({"provider": "shop", "event_id": "O-1-10", "event_version": 10, "action": "paid"});
    let told = world.server.admin().lookup("WEBHOOK", &key, "&tenant=webhook:WEBHOOK").ok(200);
    assert_eq!((&told["exists"], &told["state"]), (&json!(true), &json!("sealed")));
}

#[test]
fn delivery_whose_key_is_in_doubt_is_409_and_says_the_decision_in_a_header() {
    let world = World::new(POLICY);
    let hook = github("held", r#"{"id":"h-1"}"#);
    world.upstream.say(said(500, "", "who knows"));
    assert_eq!(world.send(&hook).status, 500);
    let refused = world.settled(&hook);
    refused.problem(409, "in-doubt");
    assert_eq!(refused.header("fencepost-decision"), Some("in_doubt"));
    assert_eq!(world.upstream.count(), 1);
}

#[test]
fn queued_events_of_one_source_leave_in_their_order_and_others_do_not_wait() {
    let world = World::new(POLICY);
    world.upstream.script(|heard| {
        let held = heard.body.windows(3).any(|part| part == b"O-1");
        if held { Say::Hold(Box::new(said(200, "", ""))) } else { said(200, "", "") }
    });
    let step = |order: &str, step: u64| {
        github("steps", &json!({"id": format!("{order}-{step}"), "order": order, "step": step}).to_string())
    };
    let mut waiting = vec![step("O-1", 1).begin(world.address())];
    world.upstream.until(1);
    for later in [10, 3, 2] {
        waiting.push(step("O-1", later).begin(world.address()));
    }
    // Answers on other connections: the server has been round since, and has read those three.
    for other in 0..20 {
        world.send(&step("O-2", other));
    }
    assert_eq!(world.upstream.count(), 21, "one of a source at a time");
    world.upstream.release();
    for stream in &mut waiting {
        assert_eq!(read(stream).unwrap().status, 200);
    }
    let of_one = |heard: &super::upstream::Heard| {
        let body: serde_json::Value = serde_json::from_slice(&heard.body).unwrap();
        (body["order"] == "O-1").then(|| body["step"].as_u64().unwrap())
    };
    let order: Vec<u64> = world.upstream.heard().iter().filter_map(of_one).collect();
    assert_eq!(order, [1, 2, 3, 10]);
}
