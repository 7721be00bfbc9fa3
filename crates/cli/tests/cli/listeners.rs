//! Access to metrics and operators' paths: on one listener, and where operators have their own.

use std::path::Path;

use serde_json::json;

use super::{
    client::Client,
    server::{BINARY, Serve, Server, command, fencepost, text},
};

fn token(data: &Path, id: &str, role: &str) -> String {
    let output = fencepost(["credential", "create", id, "--role", role, "--data", data.to_str().unwrap()]);
    assert!(output.status.success(), "{}", text(&output.stderr));
    text(&output.stdout).trim().to_owned()
}

#[test]
fn figures_need_a_viewer_or_an_admin_outside_of_dev() {
    let dir = tempfile::tempdir().unwrap();
    let [viewer, admin, partner] = ["viewer", "admin", "partner"].map(|role| token(dir.path(), role, role));
    let server = Serve::plain(dir.path()).start();
    server.client("").get("/metrics").problem(401, "unauthorized");
    server.client(&partner).get("/metrics").problem(403, "forbidden");
    for token in [viewer, admin] {
        assert!(server.client(&token).get("/metrics").text().contains("fencepost_ready 1"));
        let headers = format!("authorization: Bearer {token}\r\naccept: text/plain\r\n");
        let plain = server.client(&token).send("GET", "/metrics", &headers, b"").unwrap();
        assert_eq!(plain.header("content-type"), Some("text/plain; version=0.0.4; charset=utf-8"));
        assert!(plain.text().contains("# TYPE fencepost_buffer_refusals_total counter\n"), "{}", plain.text());
        assert!(!plain.text().contains("# EOF"));
    }
    for path in ["/healthz", "/readyz", "/openapi.json"] {
        assert_eq!(server.client("").get(path).status, 200, "{path} needs none");
    }
}

const TWO: &str = r#"
server: { admin_listen: "127.0.0.1:0" }
scopes: { ANY: { key: [id] } }
routes:
  - { match: "* /{*all}", upstream: "http://127.0.0.1:9", scope: ANY, key: { id: "header:Idempotency-Key" } }
"#;

#[test]
fn localhost_is_where_to_listen_on_the_command_line_and_in_the_file() {
    let dir = tempfile::tempdir().unwrap();
    let (data, file) = (dir.path().join("data"), dir.path().join("fencepost.yml"));
    std::fs::write(&file, "server: { listen: \"localhost:0\" }\n").unwrap();
    for serve in [
        Serve::on("localhost:0", command(BINARY), &data),
        Serve::on("LOCALHOST:0", command(BINARY), &data),
        Serve::bare(command(BINARY), &data).arg("--config").arg(&file),
    ] {
        let server = serve.arg("--dev").start();
        assert!(server.address.ip().is_loopback() && server.address.is_ipv4(), "{}", server.address);
        assert_eq!(server.client("").get("/healthz").status, 200);
    }
}

fn two_listeners(dir: &Path, serve: Serve) -> (Server, Client) {
    let config = dir.join("fencepost.yml");
    std::fs::write(&config, TWO).unwrap();
    let mut server = serve.arg("--config").arg(&config).start();
    let admin = server.admin_address();
    (server, Client::new(admin, ""))
}

#[test]
fn operators_listener_serves_their_paths_and_the_public_one_no_longer_does() {
    let dir = tempfile::tempdir().unwrap();
    let acme = token(dir.path(), "acme", "partner");
    let (server, mut admin) = two_listeners(dir.path(), Serve::plain(dir.path()));
    for path in ["/healthz", "/readyz", "/metrics", "/openapi.json"] {
        assert_eq!(admin.get(path).status, 200, "{path}");
    }
    admin.get("/admin/nodes").problem(401, "unauthorized");
    let mut public = server.client(&acme);
    // Also not the gateway's, whose rule takes every path.
    for path in ["/healthz", "/readyz", "/metrics", "/admin/nodes", "/admin/none", "/console", "/%61dmin/nodes"] {
        public.get(path).problem(404, "not-found");
    }
    public.post("/admin/policy", "{}").problem(404, "not-found");
    public.claim("INDEX_BUILD", &json!({"index_hash": "x"})).token();
    assert_eq!(public.get("/openapi.json").status, 200);
    for path in ["/v1/fences/claim", "/wes/v1/dispatch/lanes", "/any", "/admin/users"] {
        admin.get(path).problem(404, "not-found");
    }
}

#[test]
fn sigterm_ends_both_listeners() {
    let dir = tempfile::tempdir().unwrap();
    let (server, mut admin) = two_listeners(dir.path(), Serve::dev(dir.path()));
    assert_eq!(admin.get("/readyz").status, 200);
    server.signal(rustix::process::Signal::TERM);
    let (status, said) = server.wait();
    assert_eq!(status.code(), Some(0), "{said}");
    assert!(admin.send("GET", "/readyz", "", b"").is_err());
}

#[test]
fn public_tokens_on_a_public_operators_address_are_refused() {
    let dir = tempfile::tempdir().unwrap();
    let serve = Serve::dev(dir.path()).env("FENCEPOST_SERVER__ADMIN_LISTEN", "0.0.0.0:0");
    let (status, said) = serve.refused();
    assert_eq!((status.code(), said.contains("loopback")), (Some(1), true), "{said}");
}
