//! Why did this not run again? And whose key is it: no key, receipt, diff or lookup ever crosses tenants.

use serde_json::{Value, json};

use super::server::dev;

const SCOPE: &str = "INDEX_BUILD";

fn key() -> Value {
    json!({"index_hash": "9f2c"})
}

#[test]
fn two_tenants_with_the_same_key_know_nothing_of_each_other() {
    let server = dev();
    let (mut acme, mut globex) = (server.acme(), server.globex());
    let first = acme.claim_with(SCOPE, &key(), json!({"body": {"secret": "of acme"}})).ok(201);
    let second = globex.claim_with(SCOPE, &key(), json!({"body": {"secret": "of globex"}})).ok(201);
    assert_ne!(first["idempotency_key"], second["idempotency_key"], "the tenant is part of the key");
    let (token, other) = (first["token"].as_u64().unwrap(), second["token"].as_u64().unwrap());
    acme.seal(SCOPE, &key(), token, "A", json!("acme's")).ok(200);
    globex.claim(SCOPE, &key()).problem(409, "in-flight");
    if token != other {
        globex.seal(SCOPE, &key(), token, "A", json!("acme's")).problem(409, "fenced-off");
    }
    globex.seal(SCOPE, &key(), other, "G", json!("globex's")).ok(200);
    assert_eq!(acme.claim(SCOPE, &key()).ok(200)["receipt"], "acme's");
    assert_eq!(globex.claim(SCOPE, &key()).ok(200)["receipt"], "globex's");
}

#[test]
fn an_admin_names_the_tenant_unless_only_one_has_the_key() {
    let server = dev();
    let mut admin = server.admin();
    assert_eq!(admin.lookup(SCOPE, &key(), "").ok(200), json!({"exists": false}));
    server.acme().done(SCOPE, &key(), "A", json!(1));
    assert_eq!(admin.lookup(SCOPE, &key(), "").ok(200)["tenant"], "acme", "only one has it");
    server.globex().done(SCOPE, &key(), "G", json!(2));
    admin.lookup(SCOPE, &key(), "").problem(400, "malformed-request");
    assert_eq!(admin.lookup(SCOPE, &key(), "&tenant=globex").ok(200)["resultUrn"], "G");
    assert_eq!(admin.lookup(SCOPE, &key(), "&tenant=nobody").ok(200), json!({"exists": false}));
    // Acting for a tenant is for admins, and only by name.
    admin.claim(SCOPE, &key()).problem(400, "malformed-request");
    assert_eq!(admin.claim_with(SCOPE, &key(), json!({"tenant": "acme"})).ok(200)["effect_id"], "A");
}

#[test]
fn a_partner_reads_its_own_keys_only() {
    let server = dev();
    server.acme().done(SCOPE, &key(), "A", json!(1));
    assert_eq!(server.acme().lookup(SCOPE, &key(), "").ok(200)["resultUrn"], "A");
    assert_eq!(server.acme().lookup(SCOPE, &key(), "&tenant=acme").ok(200)["resultUrn"], "A");
    server.globex().lookup(SCOPE, &key(), "&tenant=acme").problem(403, "forbidden");
    assert_eq!(server.globex().lookup(SCOPE, &key(), "").ok(200), json!({"exists": false}));
    server.globex().claim_with(SCOPE, &key(), json!({"tenant": "acme"})).problem(403, "forbidden");
}

#[test]
fn a_lookup_tells_the_whole_story_of_a_key() {
    let server = dev();
    let mut acme = server.acme();
    let token = acme.claim_with(SCOPE, &key(), json!({"body": 1})).token();
    acme.claim(SCOPE, &key()).problem(409, "in-flight");
    let pending = acme.lookup(SCOPE, &key(), "").ok(200);
    assert_eq!(
        (&pending["state"], &pending["attempts"], &pending["token"]),
        (&json!("pending"), &json!(1), &json!(token))
    );
    acme.release(SCOPE, &key(), token).ok(200);
    assert_eq!(acme.lookup(SCOPE, &key(), "").ok(200)["state"], "released");
    let second = acme.claim_with(SCOPE, &key(), json!({"body": 1})).token();
    acme.seal(SCOPE, &key(), second, "IDX-1", json!(1)).ok(200);
    acme.claim_with(SCOPE, &key(), json!({"body": 2})).problem(409, "conflict");
    for _ in 0..3 {
        acme.claim(SCOPE, &key()).ok(200);
    }
    let told = acme.lookup(SCOPE, &key(), "").ok(200);
    for (name, value) in
        [("exists", json!(true)), ("scope", json!(SCOPE)), ("state", json!("sealed")), ("resultUrn", json!("IDX-1"))]
    {
        assert_eq!(told[name], value, "{name}: {told}");
    }
    assert_eq!((&told["attempts"], &told["replays"], &told["conflicts"]), (&json!(2), &json!(3), &json!(1)), "{told}");
    assert!(
        told["firstSeenAt"].as_str() <= told["sealedAt"].as_str()
            && told["sealedAt"].as_str() < told["expiresAt"].as_str(),
        "{told}"
    );
    assert_eq!(told["idempotencyKey"], acme.claim(SCOPE, &key()).ok(200)["idempotency_key"]);
    let decisions: Vec<&str> =
        told["history"].as_array().unwrap().iter().map(|line| line["decision"].as_str().unwrap()).collect();
    for word in ["new", "in_flight", "released", "sealed", "conflict", "duplicate"] {
        assert!(decisions.contains(&word), "{word}: {decisions:?}");
    }
    assert_eq!(told["token"], second);
}

#[test]
fn a_lookup_that_names_no_key_is_refused() {
    let server = dev();
    let mut acme = server.acme();
    acme.get("/admin/idempotency/lookup").problem(400, "malformed-request");
    acme.get("/admin/idempotency/lookup?scope=NO_SUCH&x=1").problem(404, "unknown-scope");
    let detail =
        acme.get("/admin/idempotency/lookup?scope=BOOKING&caseUrn=x").problem(400, "wrong-key-fields")["detail"]
            .to_string();
    assert!(detail.contains("waveUrn") && detail.contains("groupId"), "{detail}");
    acme.get("/admin/idempotency/lookup?scope=INDEX_BUILD&index_hash=a&index_hash=b").problem(400, "malformed-request");
    acme.get("/admin/idempotency/lookup?scope=INDEX_BUILD&index_hash=%ff").problem(400, "malformed-request");
    acme.get("/admin/idempotency/lookup?scope=INDEX_BUILD&index_hash=%4").problem(400, "malformed-request");
    let unknown = acme.get("/admin/idempotency/lookup?scope=INDEX_BUILD&index_hash=a&color=blue");
    assert_eq!(unknown.ok(200), json!({"exists": false}), "unknown parameters are ignored");
}
