//! Each section of a policy file: read whole, or refused where it is wrong.

use super::identity::{Role, Warehouses};
use super::routes::{FieldOrigin, OnError, Scheme};
use super::server::Level;
use super::*;

#[test]
fn a_route_is_read_with_all_it_says() {
    let policy = policy(
        r#"
routes:
  - match: "POST /cases/{region}"
    upstream: "http://127.0.0.1:9000"
    scope: CASE_CREATION
    key: { externalEventId: "body:/externalEventId" }
    replay: { status: 200, header: "X-Nexa-Replayed: true" }
    on_error: release
    timeout: 10s
    pass_body: true
    upstream_reads_bodies: true
  - match: "POST /hooks/github"
    upstream: "https://app.internal"
    scope: WEBHOOK
    tenant: github
    key:
      provider: const:github
      event_id: header:X-GitHub-Delivery
      event_version: body:/pull_request/version
      action: query:action
    verify: { scheme: github, secrets: [the old one, the new one], tolerance: 1m }
    order: body:/number
    source: body:/repository/id
"#,
    );
    let told: Vec<&str> = policy.findings.iter().map(|finding| finding.rule).collect();
    assert_eq!(told, ["unsigned-key", "unsigned-key"]);
    let [cases, hook] = policy.routes.as_slice() else { panic!("two routes") };
    assert_eq!(cases.pattern.method.as_deref(), Some("POST"));
    assert_eq!(cases.key[0].1, FieldOrigin::Body("/externalEventId".into()));
    assert_eq!(cases.replay.status, Some(200));
    assert_eq!(cases.replay.header, Some(("X-Nexa-Replayed".into(), "true".into())));
    assert_eq!((cases.on_error, hook.on_error), (OnError::Release, OnError::Unknown));
    assert_eq!((cases.pass_body, hook.pass_body), (true, false));
    assert_eq!((cases.upstream_reads_bodies, hook.upstream_reads_bodies), (true, false));
    let verify = hook.verify.as_ref().unwrap();
    assert_eq!((verify.scheme, verify.secrets.len(), verify.tolerance.as_secs()), (Scheme::Github, 2, 60));
    assert_eq!(hook.tenant.as_deref(), Some("github"));
    assert!(!format!("{verify:?}").contains("old one"), "secrets stay out of logs");
}

#[test]
fn a_malformed_route_is_refused_where_it_is_wrong() {
    for (field, rule) in [
        ("upstream: ftp://x", "wrong-value"),
        ("upstream: \"http://\"", "wrong-value"),
        ("upstream: \"http://user:pw@host\"", "wrong-value"),
        ("match: /cases", "wrong-value"),
        ("key: {externalEventId: \"body:id\"}", "wrong-value"),
        ("key: {externalEventId: \"cookie:id\"}", "wrong-value"),
        ("key: {externalEventId: \"header:a b\"}", "wrong-value"),
        ("key: {externalEventId: \"header:\"}", "wrong-value"),
        // The gateway does not pass such a header on: the upstream would not see what the key is made of.
        ("key: {externalEventId: \"header:Event_Id\"}", "wrong-value"),
        ("order: \"header:Event_Time\"", "wrong-value"),
        ("pass_body: yes", "wrong-type"),
        ("upstream_reads_bodies: 1", "wrong-type"),
        ("on_error: ignore", "unknown-value"),
        ("replay: {header: nothing}", "wrong-value"),
        ("replay: {status: 999}", "wrong-type"),
        ("verify: {scheme: github}", "incomplete"),
        ("verify: {scheme: github, secrets: []}", "no-secret"),
        ("verify: {scheme: gitlab, secrets: [a]}", "unknown-value"),
        ("retries: 3", "unknown-key"),
    ] {
        let mut lines = vec![
            "match: POST /cases",
            "upstream: http://h:1",
            "scope: CASE_CREATION",
            "key: {externalEventId: body:/id}",
        ];
        let name = field.split(':').next().unwrap();
        lines.retain(|line| !line.starts_with(name));
        lines.push(field);
        let text = format!("routes:\n  - {}\n", lines.join("\n    "));
        let findings = Policy::parse("p.yml", &text).unwrap_err();
        assert!(findings.iter().any(|f| f.rule == rule), "{field}: {findings:?}");
    }
    let findings = Policy::parse("p.yml", "routes: [{match: POST /a}]\n").unwrap_err();
    assert_eq!(findings.iter().filter(|f| f.rule == "route-incomplete").count(), 3);
}

const HASH: &str = "aaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaa";

#[test]
fn identities_are_read_with_hashes_and_expiry() {
    let policy = policy(&format!(
        "identities:\n  - {{id: acme, roles: [partner, executor], warehouses: [w1], planners: [wms, wms-2], credentials: [{{sha256: {HASH}, expires: \"1970-01-01T00:00:02Z\"}}]}}\n  - {{id: ops, roles: [admin], warehouses: all, certificates: [\"{}\"]}}\n",
        "BB:".repeat(31) + "BB"
    ));
    assert_eq!(policy.findings, []);
    let [acme, ops] = policy.identities.as_slice() else { panic!("two identities") };
    assert!(acme.identity.has(Role::Executor) && !acme.identity.has(Role::Admin));
    assert!(acme.identity.warehouses.allow("w1") && !acme.identity.warehouses.allow("w2"));
    let served = ["wms", "wms-2", "other", "acme"].map(|planner| acme.identity.planners.allow(planner));
    assert_eq!(served, [true, true, false, false]);
    assert!(ops.identity.planners.is_empty());
    assert_eq!(acme.tokens[0].expires_ms, Some(2_000));
    assert_eq!(ops.identity.warehouses, Warehouses::All);
    assert_eq!(ops.certificates[0].sha.0, [0xbb; 32]);
}

#[test]
fn an_identity_without_warehouses_may_see_all_but_acts_in_none() {
    let warehouses = |roles: &str| {
        let policy = policy(&format!("identities: [{{id: x, roles: [{roles}], credentials: [{HASH}]}}]"));
        policy.identities[0].identity.warehouses.clone()
    };
    for roles in ["admin", "viewer", "partner", "viewer, planner"] {
        assert_eq!(warehouses(roles), Warehouses::All, "{roles}");
    }
    for roles in ["planner", "executor", "executor, partner"] {
        assert!(!warehouses(roles).allow("w1"), "{roles}");
    }
}

#[test]
fn a_malformed_identity_is_refused_and_a_token_is_never_echoed() {
    let good = format!("credentials: [{HASH}]");
    for (entry, rule) in [
        ("{roles: [partner]}".to_owned(), "no-id"),
        ("{id: \"a b\", roles: [partner]}".into(), "identity-name"),
        (format!("{{id: a, {good}}}"), "no-roles"),
        ("{id: a, roles: [root]}".into(), "unknown-value"),
        ("{id: a, roles: [partner], credentials: [fp_secret]}".into(), "not-a-hash"),
        ("{id: a, roles: [partner], credentials: [{expires: \"2027-01-01T00:00:00Z\"}]}".into(), "no-hash"),
        (format!("{{id: a, roles: [partner], credentials: [{{sha256: {HASH}, expires: tomorrow}}]}}"), "wrong-value"),
        (format!("{{id: a, roles: [partner], {good}}}, {{id: b, roles: [partner], {good}}}"), "shared-credential"),
        ("{id: a, roles: [partner]}, {id: a, roles: [admin]}".into(), "duplicate"),
        ("{id: a, roles: [partner], planners: [wms]}".into(), "planners-without-executor"),
        ("{id: a, roles: [executor], planners: all}".into(), "wrong-type"),
    ] {
        let findings = Policy::parse("p.yml", &format!("identities: [{entry}]\n")).unwrap_err();
        assert!(findings.iter().any(|f| f.rule == rule), "{entry}: {findings:?}");
        assert!(!finding::human(&findings).contains("fp_secret"));
    }
}

#[test]
fn no_finding_shows_a_secret() {
    for text in [
        "routes: [{verify: {scheme: github, secrets: hunter2}}]",
        "routes: [{verify: {scheme: github, secrets: [hunter2, hunter2, []]}}]",
        "routes: [{verify: hunter2}]",
        "identities: [{id: a, roles: [partner], credentials: hunter2}]",
        "identities: [{id: a, roles: [partner], credentials: [{sha256: hunter2}]}]",
        "stores: {fence: redis, url: \"hunter2\"}",
    ] {
        let findings = Policy::parse("p.yml", text).unwrap_err();
        assert!(!finding::human(&findings).contains("hunter2"), "{findings:?}");
    }
    let policy = policy("stores: {fence: redis, url: \"redis://:hunter2@h\"}");
    assert!(!format!("{policy:?}").contains("hunter2"));
}

#[test]
fn server_settings_are_read_and_bounded() {
    let policy = policy("server:\n  log: {level: debug, decisions: false}\n  tls: {cert: c.pem, key: k.pem}\n");
    assert_eq!((policy.server.log.level, policy.server.log.decisions), (Level::Debug, false));
    assert_eq!(policy.server.tls.unwrap().client_ca, None);
    assert_eq!(policy.server.trusted_proxies, []);
    for (text, rule) in [
        ("server: {tls: {cert: c.pem}}", "tls"),
        ("server: {log: {level: loud}}", "unknown-value"),
        ("server: {limits: {batch_commands_max: 1001}}", "wrong-type"),
        ("server: {limits: {header_timeout: 10}}", "wrong-value"),
        ("server: {limits: {request_bytes_max: 0}}", "wrong-value"),
        ("server: {listen: \"localhost\"}", "wrong-value"),
        ("server: {trusted_proxies: [proxy.internal]}", "wrong-value"),
        ("server: {listen: '127.0.0.1:7', admin_listen: '127.0.0.1:7'}", "wrong-value"),
        ("server: {trusted_proxies: [10.0.0.1/8]}", "wrong-value"),
        ("ingest: {auto_release: yes}", "wrong-type"),
        ("ingest: {bulk_async_threshold: 0}", "wrong-type"),
        ("ingest: {quarantine_retain: 30}", "wrong-value"),
        ("ingest: {autorelease: true}", "unknown-key"),
        ("stores: {url: \"redis://h\"}", "store-url"),
        ("stores: {ttl: {api_hours: 0}}", "wrong-type"),
        ("on_conflict: {status: 400}", "unknown-value"),
        ("logging: {include_fields: [effectid]}", "unknown-value"),
        ("require_headers: [\"a b\"]", "header-name"),
        ("- a\n- b", "wrong-type"),
    ] {
        let findings = Policy::parse("p.yml", text).unwrap_err();
        assert!(findings.iter().any(|f| f.rule == rule), "{text}: {findings:?}");
    }
}
