//! A policy read again while the server runs: by SIGHUP and by `POST /admin/policy`, all or nothing.

use std::{
    fs,
    io::{BufRead, BufReader, Write},
    net::TcpListener,
    path::PathBuf,
    thread,
};

use rustix::process::Signal;
use serde_json::{Value, json};
use tempfile::TempDir;

use super::server::{Serve, Server, fencepost, text, until};

/// A development server with a policy that can be written anew, and its log.
struct Town {
    server: Server,
    dir: TempDir,
}

impl Town {
    fn new(policy: &str) -> Self {
        Self::started(policy, |serve| serve)
    }

    fn started(policy: &str, more: impl FnOnce(Serve) -> Serve) -> Self {
        let dir = tempfile::tempdir().unwrap();
        let file = dir.path().join("policy.yml");
        fs::write(&file, policy).unwrap();
        let serve = Serve::dev(&dir.path().join("data")).arg("--config").arg(&file).log(dir.path().join("log"));
        Self { server: more(serve).start(), dir }
    }

    fn file(&self) -> PathBuf {
        self.dir.path().join("policy.yml")
    }

    fn write(&self, policy: &str) {
        fs::write(self.file(), policy).unwrap();
    }

    fn reload(&self) -> super::client::Answer {
        self.server.admin().post("/admin/policy", "")
    }

    fn status(&self, scope: &str) -> u16 {
        self.server.acme().claim(scope, &json!({"id": format!("{scope} {}", unused())})).status
    }

    fn told(&self) -> Value {
        self.server.admin().get("/admin/policy").ok(200)
    }

    /// The first line of the log with these words. Lines are written within a moment.
    fn line(&self, words: &[&str]) -> Value {
        until(&format!("a line with {words:?}"), || {
            let log = fs::read_to_string(self.dir.path().join("log")).unwrap();
            let line = log.lines().find(|line| words.iter().all(|word| line.contains(word)))?;
            serde_json::from_str(line).ok()
        })
    }
}

/// A key that nobody claimed before.
fn unused() -> u64 {
    static NEXT: std::sync::atomic::AtomicU64 = std::sync::atomic::AtomicU64::new(0);
    NEXT.fetch_add(1, std::sync::atomic::Ordering::Relaxed)
}

const A: &str = "scopes:\n  A: { key: [id] }\n";
const AB: &str = "scopes:\n  A: { key: [id] }\n  B: { key: [id] }\n";

#[test]
fn a_hangup_makes_a_new_scope_known_and_what_was_claimed_stays_claimed() {
    let town = Town::new(A);
    assert_eq!((town.status("A"), town.status("B")), (201, 404));
    let key = json!({"id": "before"});
    let token = town.server.acme().claim("A", &key).token();
    town.write(AB);
    town.server.signal(Signal::HUP);
    until("B is known", || (town.status("B") == 201).then_some(()));
    town.server.acme().seal("A", &key, token, "E-1", json!(1)).ok(200);
    let line = town.line(&["policy reloaded"]);
    assert_eq!((&line["by"], &line["scopes"], &line["level"]), (&json!("SIGHUP"), &json!("+B"), &json!("info")));
}

#[test]
fn a_reload_says_what_changed_and_a_repeat_that_nothing_did() {
    let town = Town::new(A);
    let before = town.told();
    assert_eq!((&before["file"], &before["routes"]), (&json!(town.file().to_str().unwrap()), &json!([])));
    assert!(before["scopes"].as_array().unwrap().contains(&json!("A")));
    let next = "scopes:\n  A: { key: [no] }\n  B: { key: [id], lease: 5s }\nroutes:\n  - { match: \"POST /b\", upstream: \"http://127.0.0.1:9\", scope: B, key: { id: \"body:/id\" } }\n";
    town.write(next);
    let would = town.server.admin().post("/admin/policy?dry_run=true", "").ok(200);
    assert_eq!((&would["changed"], &would["dry_run"]), (&json!(true), &json!(true)));
    assert_eq!(town.told(), before, "a dry run changes nothing");
    let said = town.reload().ok(200);
    assert_eq!((&said["changed"], &said["dry_run"]), (&json!(true), &json!(false)));
    assert_eq!(said["scopes"], json!({"added": ["B"], "removed": [], "changed": ["A"]}));
    assert_eq!(said["routes"], json!({"added": ["POST /b"], "removed": [], "changed": [], "reordered": false}));
    assert_eq!(said["warnings"], json!(["scope A: key changed: retries of earlier requests will not be recognised"]));
    let after = town.told();
    assert_eq!(after["routes"], json!([{"match": "POST /b", "scope": "B", "upstream": "http://127.0.0.1:9"}]));
    assert!(after["sha256"] != before["sha256"] && after["sha256"] == said["sha256"], "{after}");
    assert_eq!(town.reload().ok(200)["changed"], false);
    assert_eq!(town.told()["loaded_at"], after["loaded_at"], "the same text came into force once");
    // Another text that says the same is no change, and is known by its own hash.
    town.write(&format!("# The same.\n{next}"));
    assert_eq!(town.reload().ok(200)["changed"], false);
    assert_ne!(town.told()["sha256"], after["sha256"]);
}

#[test]
fn a_broken_or_half_wrong_file_changes_nothing_at_all() {
    let town = Town::new(A);
    let before = town.told();
    for (text, rule, line) in [
        ("scopes: [\n", "yaml", 2),
        ("scopes:\n  B: { key: [id] }\n  C: { key: [id, sent_at] }\n", "time-in-key", 3),
        ("scopes:\n  B: { key: [id] }\nserver: { shutdown_grace: 1s }\n", "restart", 0),
        ("scopes:\n  B: { key: [id] }\nstores: { fence: redis, url: \"redis://127.0.0.1:1\" }\n", "restart", 0),
        ("scopes:\n  B: { key: [id] }\nwarehouses: {}\n", "unserved", 3),
    ] {
        town.write(text);
        let refused = town.reload().problem(422, "policy-refused");
        let first = &refused["findings"][0];
        assert_eq!((&first["rule"], &first["line"], &first["severity"]), (&json!(rule), &json!(line), &json!("error")));
        assert_eq!((town.told(), town.status("A"), town.status("B")), (before.clone(), 201, 404), "{text}");
    }
    fs::remove_file(town.file()).unwrap();
    let refused = town.reload().problem(422, "policy-refused");
    assert_eq!(refused["findings"][0]["rule"], "unreadable");
    // By a signal nobody hears the answer: the log says it.
    town.server.signal(Signal::HUP);
    let line = town.line(&["policy not reloaded", "SIGHUP"]);
    assert_eq!(line["level"], "error");
    assert!(line["why"].as_str().unwrap().contains("policy.yml"), "{line}");
    assert_eq!((town.told(), town.status("A")), (before, 201));
    town.write(AB);
    assert_eq!((town.reload().status, town.status("B")), (200, 201), "mended");
}

#[test]
fn a_server_without_a_file_refuses_clearly_and_a_hangup_does_not_end_it() {
    let dir = tempfile::tempdir().unwrap();
    let log = dir.path().join("log");
    let town = Town { server: Serve::dev(&dir.path().join("data")).log(log).start(), dir };
    let refused = town.reload().problem(409, "no-policy-file");
    assert!(refused["detail"].as_str().unwrap().contains("--config"), "{refused}");
    town.server.signal(Signal::HUP);
    town.line(&["policy not reloaded", "SIGHUP", "--config"]);
    let told = town.told();
    assert_eq!((&told["file"], &told["sha256"]), (&Value::Null, &Value::Null));
}

#[test]
fn only_an_admin_reloads_and_nothing_is_guessed() {
    let town = Town::new(A);
    town.write(AB);
    let server = &town.server;
    server.acme().post("/admin/policy", "").problem(403, "forbidden");
    server.acme().get("/admin/policy").problem(403, "forbidden");
    server.client("").post("/admin/policy", "").problem(401, "unauthorized");
    for path in ["/admin/policy?dryrun=true", "/admin/policy?dry_run=yes", "/admin/policy?dry_run=true&dry_run=false"] {
        server.admin().post(path, "").problem(400, "malformed-request");
    }
    server.admin().post("/admin/policy", AB).problem(400, "malformed-request");
    assert_eq!(town.status("B"), 404);
}

#[test]
fn the_same_variables_and_flags_lie_over_the_file_again() {
    let variables = |serve: Serve| {
        serve.env("FENCEPOST_SERVER__SHUTDOWN_GRACE", "7s").env("FENCEPOST_STORES__TTL__API_HOURS", "30")
    };
    let town = Town::started(A, variables);
    town.write(&format!(
        "{AB}server: {{ shutdown_grace: 3s, listen: 127.0.0.1:1 }}\nstores: {{ ttl: {{ api_hours: 40 }} }}\n"
    ));
    let said = town.reload().ok(200);
    assert_eq!(said["scopes"], json!({"added": ["B"], "removed": [], "changed": []}), "{said}");
}

#[test]
fn identities_of_the_file_come_and_go_with_it() {
    let dir = tempfile::tempdir().unwrap();
    let data = dir.path().join("data");
    let made = |id: &str, role: &str| {
        let output = fencepost(["credential", "create", id, "--role", role, "--data", data.to_str().unwrap()]);
        text(&output.stdout).trim().to_owned()
    };
    let admin = made("root", "admin");
    let (file, sha) = (dir.path().join("policy.yml"), |token: &str| fencepost::policy::identity::Sha::of(token).hex());
    let policy = |id: &str, token: &str| {
        format!("identities:\n  - {{ id: {id}, roles: [partner], credentials: [{}] }}\n", sha(token))
    };
    fs::write(&file, policy("acme", "first-token")).unwrap();
    let server = Serve::plain(&data).arg("--config").arg(&file).start();
    let status = |token: &str| server.client(token).get("/v1/aliases/none").status;
    assert_eq!((status("first-token"), status("second-token")), (404, 401));
    fs::write(&file, policy("globex", "second-token")).unwrap();
    let said = server.client(&admin).post("/admin/policy", "").ok(200);
    assert_eq!(said["identities"], json!({"added": ["globex"], "removed": ["acme"], "changed": []}));
    // An admin who names no tenant is known, and told so.
    assert_eq!((status("first-token"), status("second-token"), status(&admin)), (401, 404, 400));
    // One that the credentials file knows otherwise refuses the whole.
    fs::write(&file, format!("scopes: {{ B: {{ key: [id] }} }}\n{}", policy("root", "third-token"))).unwrap();
    let refused = server.client(&admin).post("/admin/policy", "").problem(422, "policy-refused");
    assert_eq!(refused["findings"][0]["rule"], "identity-differs");
    assert_eq!((status("second-token"), status("third-token")), (404, 401));
    server.client("second-token").claim("B", &json!({"id": 1})).problem(404, "unknown-scope");
}

/// Answers every request with 201, each on its own connection.
fn upstream() -> String {
    let listener = TcpListener::bind("127.0.0.1:0").unwrap();
    let url = format!("http://{}", listener.local_addr().unwrap());
    thread::spawn(move || {
        for stream in listener.incoming() {
            let mut stream = BufReader::new(stream.unwrap());
            let mut head = String::new();
            while !head.ends_with("\r\n\r\n") && stream.read_line(&mut head).unwrap_or(0) > 0 {}
            let _ =
                stream.get_mut().write_all(b"HTTP/1.1 201 Created\r\ncontent-length: 2\r\nconnection: close\r\n\r\n{}");
        }
    });
    url
}

#[test]
fn a_route_that_is_reloaded_is_served() {
    let town = Town::new(A);
    let ask = || town.server.acme().post("/orders", r#"{"id":"1"}"#).status;
    assert_eq!(ask(), 404);
    let route = format!(
        "{A}routes:\n  - {{ match: \"POST /orders\", upstream: \"{}\", scope: A, key: {{ id: \"body:/id\" }} }}\n",
        upstream()
    );
    town.write(&route);
    town.reload().ok(200);
    assert_eq!((ask(), ask()), (201, 201));
    town.write(A);
    town.reload().ok(200);
    assert_eq!(ask(), 404);
}
