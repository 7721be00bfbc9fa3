//! Credentials made, rotated and revoked on the command line count on a running server, without a restart.

use std::path::Path;

use serde_json::json;

use super::server::{Serve, Server, fencepost, text, until};

fn credential(data: &Path, args: &[&str]) -> String {
    let output = fencepost([&["credential"], args, &["--data", data.to_str().unwrap()]].concat());
    assert!(output.status.success(), "{args:?}: {}", text(&output.stderr));
    text(&output.stdout).trim().to_owned()
}

fn status(server: &Server, token: &str) -> u16 {
    server.client(token).get("/v1/aliases/none").status
}

fn until_status(server: &Server, token: &str, wanted: u16) {
    until(&format!("{wanted} for a token"), || (status(server, token) == wanted).then_some(()));
}

#[test]
fn create_rotate_and_revoke_take_effect_on_a_running_server() {
    let dir = tempfile::tempdir().unwrap();
    let first = credential(dir.path(), &["create", "acme", "--role", "partner"]);
    let server = Serve::plain(dir.path()).start();
    assert_eq!(status(&server, &first), 404);
    assert_eq!(status(&server, "dev-partner"), 401, "the public tokens are for --dev");

    let second = credential(dir.path(), &["create", "globex", "--role", "partner", "--expires", "90d"]);
    until_status(&server, &second, 404);
    let rotated = credential(dir.path(), &["rotate", "acme", "--overlap", "24h"]);
    until_status(&server, &rotated, 404);
    assert_eq!(status(&server, &first), 404, "both count during the overlap");
    let last = credential(dir.path(), &["rotate", "acme", "--overlap", "0ms"]);
    until_status(&server, &last, 404);
    until_status(&server, &first, 401);
    until_status(&server, &rotated, 401);
    credential(dir.path(), &["revoke", "acme"]);
    until_status(&server, &last, 401);
    assert_eq!(status(&server, &second), 404, "the other stays");

    // The tenant is the identity, whatever token it shows.
    let token = server.client(&second).claim("INDEX_BUILD", &json!({"index_hash": "x"})).token();
    let other = credential(dir.path(), &["rotate", "globex"]);
    until_status(&server, &other, 404);
    server.client(&other).seal("INDEX_BUILD", &json!({"index_hash": "x"}), token, "E", json!(1)).ok(200);
}

#[test]
fn an_expired_token_counts_no_more() {
    let dir = tempfile::tempdir().unwrap();
    credential(dir.path(), &["create", "acme", "--role", "partner"]);
    let server = Serve::plain(dir.path()).start();
    let brief = credential(dir.path(), &["create", "brief", "--role", "partner", "--expires", "1ms"]);
    let marker = credential(dir.path(), &["create", "marker", "--role", "partner"]);
    until_status(&server, &marker, 404);
    assert_eq!(status(&server, &brief), 401);
}

#[test]
fn a_viewer_reads_and_does_not_act() {
    let dir = tempfile::tempdir().unwrap();
    let partner = credential(dir.path(), &["create", "acme", "--role", "partner"]);
    let viewer = credential(dir.path(), &["create", "ops", "--role", "viewer"]);
    let server = Serve::plain(dir.path()).start();
    let key = json!({"index_hash": "x"});
    server.client(&partner).done("INDEX_BUILD", &key, "E", json!(1));
    let mut ops = server.client(&viewer);
    assert_eq!(ops.lookup("INDEX_BUILD", &key, "&tenant=acme").ok(200)["resultUrn"], "E");
    assert_eq!(ops.get("/admin/idempotency/in-doubt").ok(200)["items"], json!([]));
    ops.claim("INDEX_BUILD", &key).problem(403, "forbidden");
    ops.claim_with("INDEX_BUILD", &key, json!({"tenant": "acme"})).problem(403, "forbidden");
    let resolve = json!({"scope": "INDEX_BUILD", "key": key, "tenant": "acme", "outcome": "released", "why": "w"});
    ops.post("/admin/idempotency/resolve", resolve.to_string()).problem(403, "forbidden");
}

fn hash(token: &str) -> String {
    fencepost::policy::identity::Sha::of(token).hex()
}

#[test]
fn a_revoked_token_counts_no_more_though_another_identity_of_the_file_differs_from_the_policy() {
    let dir = tempfile::tempdir().unwrap();
    let config = dir.path().join("fencepost.yml");
    let policy = format!("identities: [{{ id: boss, roles: [admin], credentials: [{}] }}]", hash("boss-token"));
    std::fs::write(&config, policy).unwrap();
    let stolen = credential(dir.path(), &["create", "globex", "--role", "partner"]);
    let log = dir.path().join("log");
    let server = Serve::plain(dir.path()).arg("--config").arg(&config).log(log.clone()).start();
    assert_eq!(status(&server, &stolen), 404);
    let other = credential(dir.path(), &["create", "boss", "--role", "partner"]);
    credential(dir.path(), &["revoke", "globex"]);
    until_status(&server, &stolen, 401);
    let fresh = credential(dir.path(), &["create", "initech", "--role", "partner"]);
    until_status(&server, &fresh, 404);
    assert_eq!((status(&server, &other), status(&server, "boss-token")), (401, 400), "an admin names the tenant");
    until("the log says who differs", || {
        std::fs::read_to_string(&log).unwrap().contains("boss has other").then_some(())
    });
}

#[test]
fn identities_of_the_policy_without_warehouses_see_every_lane_and_take_tokens_of_the_command_line() {
    let dir = tempfile::tempdir().unwrap();
    let config = dir.path().join("fencepost.yml");
    let looker = |id: &str, role: &str| format!("{{ id: {id}, roles: [{role}], credentials: [{}] }}", hash(id));
    let policy = format!(
        "dispatch: {{ egress_allow: [127.0.0.1] }}\nidentities: [{}, {}, {{ id: acme, roles: [partner] }}, \
         {{ id: wes, roles: [executor], planners: [wms] }}]\n",
        looker("ops", "viewer"),
        looker("boss", "admin")
    );
    std::fs::write(&config, policy).unwrap();
    let partner = credential(dir.path(), &["create", "acme", "--role", "partner"]);
    let planner = credential(dir.path(), &["create", "wms", "--role", "planner"]);
    let server = Serve::plain(dir.path()).arg("--config").arg(&config).start();
    assert_eq!(status(&server, &partner), 404);
    let transport =
        json!({"executor_id": "wes", "webhook": {"url": "http://127.0.0.1:1/h", "secret": "sixteen bytes at least"}});
    server.client(&planner).put("/wes/v1/warehouses/WH-1/transport", transport.to_string()).ok(200);
    let event = json!({
        "kind": "SHIPPER_RELEASED", "correlation_id": "c-1", "planner_id": "wms", "warehouse_id": "WH-1",
        "document_ref": {"type": "shipper", "id": "SH-1"}, "routing": {"ops": [{"op_id": "10", "kind": "PICK"}]},
    });
    server.client(&planner).post("/wes/v1/dispatch/events", event.to_string()).ok(202);
    server.client(&planner).post("/wes/v1/dispatch/lanes/wms:WH-1/skip", r#"{"seq":1}"#).ok(200);
    for token in ["ops", "boss"] {
        for list in ["lanes", "dlq"] {
            let page = server.client(token).get(&format!("/wes/v1/dispatch/{list}")).ok(200);
            assert_eq!(page["items"].as_array().unwrap().len(), 1, "{token} sees no {list}: {page}");
        }
    }
}

#[test]
fn a_damaged_credentials_file_is_logged_once_and_its_repair_too() {
    let dir = tempfile::tempdir().unwrap();
    let data = dir.path().join("data");
    let token = credential(&data, &["create", "acme", "--role", "partner"]);
    let log = dir.path().join("log");
    let server = Serve::plain(&data).log(log.clone()).start();
    let count = |line: &str| std::fs::read_to_string(&log).unwrap().matches(line).count();
    let (file, keys) = (data.join("credentials.yml"), data.join("secret.key"));
    let (good, good_keys) = (std::fs::read(&file).unwrap(), std::fs::read(&keys).unwrap());
    std::fs::write(&file, "identities: [").unwrap();
    until("the damage is logged", || (count("credentials not read") == 1).then_some(()));
    // The same loop looks at the keys after the credentials: with each of these lines it has been round once more.
    for round in 1..=3 {
        std::fs::write(&keys, "rubbish").unwrap();
        until("the loop has been round", || (count("keys not read") == round).then_some(()));
        std::fs::write(&keys, &good_keys).unwrap();
        until("the loop has been round", || (count("keys read again") == round).then_some(()));
    }
    assert_eq!(count("credentials not read"), 1, "told once");
    assert_eq!(status(&server, &token), 404, "the known ones stay");
    std::fs::write(&file, "identities: [[").unwrap();
    until("another damage is logged", || (count("credentials not read") == 2).then_some(()));
    std::fs::write(&file, good).unwrap();
    until("the repair is logged", || (count("credentials read again") == 1).then_some(()));
}

#[test]
fn tokens_are_shown_once_and_kept_as_hashes_only() {
    let dir = tempfile::tempdir().unwrap();
    let token = credential(dir.path(), &["create", "acme", "--role", "partner"]);
    assert!(token.lines().count() == 1 && token.len() >= 32, "{token:?}");
    let listed = credential(dir.path(), &["list"]);
    assert!(listed.contains("acme") && !listed.contains(&token), "{listed}");
    for entry in std::fs::read_dir(dir.path()).unwrap() {
        let path = entry.unwrap().path();
        if path.is_file() {
            assert!(!text(&std::fs::read(&path).unwrap()).contains(&token), "{}", path.display());
        }
    }
    for wrong in [
        &["create", "acme", "--role", "emperor"][..],
        &["revoke", "nobody"],
        &["rotate", "nobody"],
        &["create", "x", "--role", "partner", "--expires", "soon"],
        &["create", "x", "--role", "partner", "--planner", "wms"],
        &["planners", "acme", "wms"],
        &["planners", "nobody", "wms"],
        &["rotate-key", "--promote"],
    ] {
        let output = fencepost([&["credential"], wrong, &["--data", dir.path().to_str().unwrap()]].concat());
        assert_eq!(output.status.code(), Some(1), "{wrong:?}: {}{}", text(&output.stdout), text(&output.stderr));
        assert!(!output.stderr.is_empty());
    }
}
