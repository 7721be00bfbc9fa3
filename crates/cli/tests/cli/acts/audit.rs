//! The audit: one entry for each act that changed something, none for anything else; paged, filtered and kept.

use serde_json::{Value, json};

use super::{
    super::{
        client::Client,
        server::{Serve, Server, dev, dev_with, fencepost, text, until},
    },
    SCOPE, acts, audit, forget, key,
};

fn post(client: &mut Client, path: &str, body: &Value) -> Value {
    client.post(path, body.to_string()).ok(200)
}

/// A lane of a warehouse whose executor polls, with so many events.
fn lane(server: &Server, events: usize) {
    let mut planner = server.client("dev-planner");
    planner
        .put(
            "/wes/v1/warehouses/W/transport",
            r#"{"executor_id":"dev-wes","webhook":{"url":"http://127.0.0.1:1/x","secret":"sixteen bytes at least"}}"#,
        )
        .ok(200);
    for number in 1..=events {
        let event = json!({
            "kind": "SHIPPER_RELEASED", "correlation_id": format!("cid-{number}"), "planner_id": "fgai-wms",
            "warehouse_id": "W", "document_ref": {"type": "shipper", "id": "SH-1"},
            "routing": {"ops": [{"op_id": "10", "kind": "PICK"}]},
        });
        planner.post("/wes/v1/dispatch/events", event.to_string()).ok(202);
    }
}

/// The path of an act on the lane, by its planner or by an admin.
fn lane_act(act: &str) -> String {
    format!("/wes/v1/dispatch/lanes/fgai-wms:W/{act}?planner_id=fgai-wms")
}

#[test]
fn each_act_of_an_operator_has_one_entry_that_says_who_what_on_what_and_why() {
    let server = dev();
    let (mut acme, mut admin, mut planner) = (server.acme(), server.admin(), server.client("dev-planner"));
    lane(&server, 3);
    acme.done(SCOPE, &key("a"), "IDX-1", json!(1));
    assert_eq!(acts(&audit(&server, "")), [""; 0], "partners and planners that do their own work leave no entries");

    let held = json!({"caseUrn": "urn:case:7", "reservationUrn": "R-1"});
    acme.claim_with("PAYMENT_TOKENIZATION", &held, json!({"lease_ms": 1})).ok(201);
    acme.claim_with("PAYMENT_TOKENIZATION", &held, json!({"wait_ms": 50_000})).problem(409, "in-doubt");
    let resolve = json!({"scope": "PAYMENT_TOKENIZATION", "key": held, "tenant": "acme", "outcome": "released", "why": "asked the bank"});
    let pause = json!({"why": "dock 4"});
    let skip = json!({"seq": 1});
    // Twice each: what changes nothing is no act.
    for _ in 0..2 {
        post(&mut admin, "/admin/idempotency/resolve", &resolve);
        forget(&mut admin, "a", json!({})).ok(200);
        post(&mut admin, &lane_act("pause"), &pause);
        post(&mut planner, &lane_act("skip"), &skip);
    }
    let dead = post(&mut admin, &lane_act("skip"), &json!({"seq": 2}))["dead_letter"].as_str().unwrap().to_owned();
    let first = server.admin().get("/wes/v1/dispatch/dlq").ok(200)["items"][0]["id"].as_str().unwrap().to_owned();
    let letter = |id: &str, act: &str| format!("/wes/v1/dispatch/dlq/{id}/{act}");
    for _ in 0..2 {
        post(&mut admin, &letter(&dead, "discard"), &json!({"why": "shipped by hand"}));
        post(&mut admin, &letter(&first, "redrive"), &json!({}));
        post(&mut admin, &lane_act("resume"), &json!({}));
    }
    // An admin who works for a tenant acts, too; what it is refused is no act.
    let token = admin.claim_with(SCOPE, &key("b"), json!({"tenant": "acme"})).token();
    admin.claim_with(SCOPE, &key("b"), json!({"tenant": "acme"})).problem(409, "in-flight");
    admin
        .post(
            "/v1/fences/release",
            json!({"scope": SCOPE, "key": key("b"), "tenant": "acme", "token": token - 1}).to_string(),
        )
        .problem(409, "fenced-off");
    admin
        .post(
            "/v1/fences/release",
            json!({"scope": SCOPE, "key": key("b"), "tenant": "acme", "token": token}).to_string(),
        )
        .ok(200);
    post(&mut admin, "/admin/idempotency/resolve", &resolve);

    let entries = audit(&server, "");
    let hex = |scope: &str, key: &Value| {
        let told = server.admin().lookup(scope, key, "").ok(200);
        format!("{scope}/{}", told["idempotencyKey"].as_str().unwrap())
    };
    let (a, b, payment) = (hex(SCOPE, &key("a")), hex(SCOPE, &key("b")), hex("PAYMENT_TOKENIZATION", &held));
    let wanted = [
        format!("release {b}"),
        format!("claim {b}"),
        "resumeLane fgai-wms:W".to_owned(),
        format!("redriveDeadLetter {first}"),
        format!("discardDeadLetter {dead}"),
        "skipHead fgai-wms:W/2".to_owned(),
        "skipHead fgai-wms:W/1".to_owned(),
        "pauseLane fgai-wms:W".to_owned(),
        format!("forget {a}"),
        format!("resolve {payment}"),
    ];
    assert_eq!(acts(&entries), wanted, "{entries:#?}");
    let said = |at: usize, name: &str| entries[at][name].as_str().unwrap_or_default().to_owned();
    for (at, by, why, tenant, outcome) in [
        (9, "dev-admin", "asked the bank", "acme", "resolved"),
        (8, "dev-admin", "the index was lost", "acme", "forgotten"),
        (7, "dev-admin", "dock 4", "fgai-wms", "done"),
        (6, "fgai-wms", "", "fgai-wms", "done"),
        (4, "dev-admin", "shipped by hand", "fgai-wms", "decided"),
        (1, "dev-admin", "", "acme", "new"),
    ] {
        let told = [said(at, "by"), said(at, "why"), said(at, "tenant")];
        assert_eq!(told, [by, why, tenant], "{}", entries[at]);
        assert!(!said(at, "outcome").is_empty() && said(at, "trace_id").len() == 32, "{}", entries[at]);
        if ["resolved", "forgotten", "new"].contains(&outcome) {
            assert_eq!(said(at, "outcome"), outcome);
        }
    }
}

#[test]
fn audit_is_read_in_pages_and_by_what_its_rows_show_and_by_those_who_may() {
    let server = dev();
    let mut admin = server.admin();
    for number in 0..5 {
        let name = format!("k{number}");
        server.acme().done(SCOPE, &key(&name), "E", json!(1));
        forget(&mut admin, &name, json!({})).ok(200);
    }
    admin.claim_with(SCOPE, &key("other"), json!({"tenant": "globex"})).ok(201);
    let all = audit(&server, "");
    assert_eq!(all.len(), 6);
    let (mut walked, mut after) = (Vec::new(), String::new());
    loop {
        let page = admin.get(&format!("/admin/audit?limit=2&after={after}")).ok(200);
        walked.extend(page["items"].as_array().unwrap().clone());
        after = page["next_cursor"].as_str().unwrap().to_owned();
        if after.is_empty() {
            break;
        }
        assert_eq!(page["items"].as_array().unwrap().len(), 2);
    }
    assert_eq!(walked, all);
    let on = all[3]["on"].as_str().unwrap();
    for (query, count) in [
        ("&by=dev-admin", 6),
        ("&by=somebody", 0),
        ("&what=forget", 5),
        ("&what=claim", 1),
        ("&tenant=globex", 1),
        ("&tenant=acme&what=forget", 5),
        (&format!("&on={on}"), 1),
    ] {
        assert_eq!(audit(&server, query).len(), count, "{query}");
    }
    // A filter does not lose what is behind it.
    let page = admin.get("/admin/audit?what=claim&limit=1").ok(200);
    let rest = admin.get(&format!("/admin/audit?what=claim&limit=1&after={}", page["next_cursor"].as_str().unwrap()));
    assert_eq!((page["items"].as_array().unwrap().len(), rest.ok(200)["next_cursor"].clone()), (1, json!("")));
    admin.get("/admin/audit?after=nonsense").problem(404, "unknown-cursor");
    for token in ["dev-partner", "dev-planner", "dev-executor"] {
        server.client(token).get("/admin/audit").problem(403, "forbidden");
    }
}

#[test]
fn audit_survives_kill_9_and_comes_back_from_a_backup() {
    let dir = tempfile::tempdir().unwrap();
    let (data, fresh, file) = (dir.path().join("data"), dir.path().join("fresh"), dir.path().join("b.fpb"));
    let server = Serve::dev(&data).start();
    server.acme().done(SCOPE, &key("a"), "E", json!(1));
    forget(&mut server.admin(), "a", json!({})).ok(200);
    let before = audit(&server, "");
    assert_eq!(before.len(), 1);
    server.kill();
    let server = Serve::dev(&data).start();
    assert_eq!(audit(&server, ""), before);
    let output = fencepost(["backup", "--url", &server.url(), "--out", file.to_str().unwrap()]);
    assert!(output.status.success(), "{}", text(&output.stderr));
    let output = fencepost(["restore", file.to_str().unwrap(), fresh.to_str().unwrap()]);
    assert!(text(&output.stdout).contains("1 audit entry"), "{}{}", text(&output.stdout), text(&output.stderr));
    let restored = Serve::dev(&fresh).start();
    assert_eq!(audit(&restored, ""), before);
}

#[test]
fn entry_is_gone_after_its_retention_and_a_reload_of_the_policy_has_one() {
    let dir = tempfile::tempdir().unwrap();
    let policy = dir.path().join("policy.yml");
    std::fs::write(&policy, "scopes:\n  A: { key: [id] }\n").unwrap();
    let server = Serve::dev(&dir.path().join("data")).arg("--config").arg(&policy).start();
    let mut admin = server.admin();
    admin.post("/admin/policy?dry_run=true", "").ok(200);
    admin.post("/admin/policy", "").ok(200);
    assert_eq!(acts(&audit(&server, "")), [""; 0], "nothing was different");
    std::fs::write(&policy, "audit_retention: 1ms\nscopes:\n  A: { key: [id] }\n  B: { key: [id] }\n").unwrap();
    admin.post("/admin/policy", "").ok(200);
    assert_eq!(acts(&audit(&server, "")), [format!("reloadPolicy {}", policy.display())]);
    admin.claim_with("B", &json!({"id": "1"}), json!({"tenant": "acme"})).ok(201);
    until("the later entry is over", || (audit(&server, "").len() == 1).then_some(()));
    let refused = dev_with("scopes: {}\n");
    assert_eq!(audit(&refused, "").len(), 0);
}

#[test]
fn audit_log_on_the_command_line_shows_the_newest_first() {
    let server = dev();
    for name in ["a", "b"] {
        server.acme().done(SCOPE, &key(name), "E", json!(1));
        forget(&mut server.admin(), name, json!({})).ok(200);
    }
    let run = |args: &[&str]| {
        let output = fencepost([&["audit", "log"], args, &["--url", &server.url()]].concat());
        (output.status.code(), text(&output.stdout) + &text(&output.stderr))
    };
    let (code, said) = run(&[]);
    let lines: Vec<&str> = said.lines().collect();
    assert!(code == Some(0) && lines.len() == 3 && lines[0].starts_with("AT "), "{said}");
    assert!(lines[1].contains("dev-admin") && lines[1].contains("the index was lost"), "{said}");
    let newest = audit(&server, "")[0]["on"].as_str().unwrap().to_owned();
    assert!(lines[1].contains(&newest) && !lines[2].contains(&newest), "{said}");
    let (_, said) = run(&["--limit", "1"]);
    assert!(said.contains("There are more: --after "), "{said}");
    assert_eq!(run(&["--by", "nobody"]).1, "no acts\n");
    let (_, said) = run(&["--json", "--what", "forget"]);
    assert_eq!(serde_json::from_str::<Value>(&said).unwrap()["items"].as_array().unwrap().len(), 2);
    assert_eq!(run(&["--token", "dev-partner"]).0, Some(1));
}
