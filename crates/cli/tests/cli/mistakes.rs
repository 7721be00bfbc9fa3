//! The plain mistakes of a command line: each is answered with the sentence that helps, and the exit code that scripts look
//! at. And what `serve` refuses, `check` does.

use std::{
    fs,
    io::{Read, Write},
    net::TcpListener,
    thread,
};

use serde_json::json;

use super::server::{BINARY, Serve, command, dev, fencepost, text};

/// Words of a command line in which DATA, DIR, URL, PORT and OTHER stand for the places of the test.
type Row = (&'static str, i32, &'static str);

const ROWS: [Row; 32] = [
    (
        "serve --dev --data DATA --listen 127.0.0.1:0",
        1,
        "fencepost: DATA is in use by another Fencepost; stop it or use --data",
    ),
    (
        "serve --dev --data DIR/new --listen 127.0.0.1:PORT",
        1,
        "fencepost: cannot listen on 127.0.0.1:PORT: the address is in use; is another Fencepost running? use --listen",
    ),
    (
        "serve --dev --data DIR/new --listen localhost:PORT",
        1,
        "fencepost: cannot listen on 127.0.0.1:PORT: the address is in use",
    ),
    ("serve --dev --listen fences:7411", 2, "`fences:7411` is not an IP address and port, such as 127.0.0.1:7411"),
    (
        "serve --data DIR/new --listen 127.0.0.1:0",
        1,
        "fencepost: not started: there are no credentials; create one with:\n  fencepost credential create acme --role partner --data DIR/new\n",
    ),
    ("why INDEX_BUILD index_hash=x --url 127.0.0.1:PORT", 2, "the address needs http:// or https://"),
    (
        "why INDEX_BUILD index_hash=x --url https://127.0.0.1:PORT",
        1,
        "fencepost: https://127.0.0.1:PORT: that port does not speak TLS; try http://",
    ),
    (
        "why INDEX_BUILD index_hash=x --url http://127.0.0.1:1",
        1,
        "fencepost: no answer from http://127.0.0.1:1 (Connection refused (os error 111)); is the server running?",
    ),
    (
        "why INDEX_BUILD index_hash=x --url OTHER",
        1,
        "fencepost: OTHER answered 201; that does not look like a Fencepost server",
    ),
    ("lanes --url OTHER", 1, "fencepost: OTHER answered 201; that does not look like a Fencepost server"),
    ("lanes --url JSON", 1, "fencepost: JSON answered something else; that does not look like a Fencepost server"),
    ("dlq list --url JSON", 1, "fencepost: JSON answered something else; that does not look like a Fencepost server"),
    (
        "backup --url OTHER --out DIR/x.fpb",
        1,
        "fencepost: OTHER answered 201; that does not look like a Fencepost server",
    ),
    ("why INDEX_BUILT index_hash=x --url URL", 1, "there is no scope \"INDEX_BUILT\"; did you mean INDEX_BUILD?"),
    (
        "why INDEX_BUILD index_hash=both --url URL",
        1,
        "fencepost: several tenants have this key; use --tenant: acme, globex",
    ),
    ("why INDEX_BUILD index_hash=x --url URL --token wrong", 1, "fencepost: URL answered 401: "),
    ("lanes show nowhere --url URL", 1, "\n  list them: fencepost lanes"),
    ("dlq show nothing --url URL", 1, "\n  list them: fencepost dlq list --state all"),
    (
        "credential list --data DIR/none",
        1,
        "fencepost: directory DIR/none does not exist; name the data directory with --data",
    ),
    (
        "credential list --data DIR",
        1,
        "fencepost: DIR is not a Fencepost data directory: it holds no store and no credentials; did you mean --data DATA?",
    ),
    // A Rails project has a `db`, too.
    ("credential list --data DIR/rails", 1, "fencepost: DIR/rails is not a Fencepost data directory"),
    ("copy DIR/rails DIR/copied --yes", 1, "fencepost: there is no store in DIR/rails"),
    (
        "consume --brokers 127.0.0.1:1 --group g --topic t --to http://127.0.0.1:1/ --data DATA",
        1,
        "fencepost: DATA is in use by another Fencepost; stop it, use --data, or share a --store postgres://…",
    ),
    ("credential rotate acme --data DIR/none", 1, "fencepost: directory DIR/none does not exist"),
    ("credential revoke acme --data DIR", 1, "fencepost: DIR is not a Fencepost data directory"),
    ("credential rotate-key --data DIR", 1, "fencepost: DIR is not a Fencepost data directory"),
    (
        "backup --url URL --out DIR/none/x.fpb",
        1,
        "fencepost: cannot write DIR/none/x.fpb: directory DIR/none does not exist",
    ),
    (
        "backup --from DATA --out DIR/x.fpb",
        1,
        "fencepost: DATA is in use by another Fencepost; back it up through its server:\n",
    ),
    (
        "restore DIR/whole.fpb DATA",
        1,
        "fencepost: DATA is in use by another Fencepost; stop its server first, or name an empty store",
    ),
    ("copy DATA DIR/copy --yes", 1, "fencepost: DATA is in use by another Fencepost; stop its server first"),
    (
        "executor --data DATA --listen 127.0.0.1:0 --secret-file DIR/secret --forward http://127.0.0.1:1/",
        1,
        "fencepost: DATA is in use by another Fencepost; stop it or use --data",
    ),
    (
        "serve --dev --listen 127.0.0.1:0 --store postgres://h/d?sslmode=maybe",
        1,
        "fencepost: cannot open the store: postgres://h/d: the address of the database: sslmode=maybe is unknown",
    ),
];

const OTHER: &str = "HTTP/1.1 201 Created\r\ncontent-length: 2\r\nconnection: close\r\n\r\nhi";
const JSON: &str = "HTTP/1.1 200 OK\r\ncontent-length: 7\r\nconnection: close\r\n\r\n{\"n\":1}";

// Answers any request as something else would.
fn other_server(answer: &'static str) -> String {
    let listener = TcpListener::bind("127.0.0.1:0").unwrap();
    let url = format!("http://{}", listener.local_addr().unwrap());
    thread::spawn(move || {
        for stream in listener.incoming() {
            let mut stream = stream.unwrap();
            let mut head = [0; 4_096];
            let _ = stream.read(&mut head).unwrap();
            let _ = stream.write_all(answer.as_bytes());
        }
    });
    url
}

#[test]
fn plain_mistakes_get_the_sentence_that_helps() {
    let server = dev();
    for mut tenant in [server.acme(), server.globex()] {
        tenant.done("INDEX_BUILD", &json!({"index_hash": "both"}), "E", json!(1));
    }
    let (dir, url, other) = (server.dir.path().to_str().unwrap(), server.url(), other_server(OTHER));
    let json = other_server(JSON);
    let port = url.rsplit_once(':').unwrap().1;
    fs::write(server.dir.path().join("secret"), "0123456789abcdef0123456789abcdef").unwrap();
    fs::create_dir_all(server.dir.path().join("rails/db/migrate")).unwrap();
    assert!(fencepost(["backup", "--url", &url, "--out", &format!("{dir}/whole.fpb")]).status.success());
    let placed = |words: &str| {
        let places = [
            ("DATA", &*format!("{dir}/data")),
            ("DIR", dir),
            ("URL", &url),
            ("PORT", port),
            ("OTHER", &other),
            ("JSON", &json),
        ];
        places.iter().fold(words.to_owned(), |words, (name, place)| words.replace(name, place))
    };
    for (line, code, sentence) in ROWS {
        let output = fencepost(placed(line).split(' '));
        let (said, sentence) = (text(&output.stderr), placed(sentence));
        assert_eq!(output.status.code(), Some(code), "{line}: {said}");
        assert!(said.contains(&sentence), "{line} says\n{said}and not\n{sentence}");
        assert!(!said.contains("not applied") && !said.contains("error 98"), "{line}: {said}");
    }
}

#[test]
fn doctor_fails_on_a_named_directory_that_is_no_store_and_warns_of_the_default_one() {
    let server = dev();
    let dir = server.dir.path();
    let doctor = |data: &[&str]| {
        let output = command(BINARY).current_dir(dir).arg("doctor").args(data).args(["--url", &server.url()]).output();
        let output = output.unwrap();
        (output.status.code(), text(&output.stdout))
    };
    let (code, said) = doctor(&["--data", "."]);
    assert_eq!(code, Some(1), "{said}");
    assert!(said.contains("BAD   data           . is not a Fencepost data directory"), "{said}");
    let (_, said) = doctor(&["--data", "data"]);
    assert!(said.contains("ok    data           data\n"), "{said}");
    let (_, said) = doctor(&[]);
    assert!(said.contains("warn  data           there is no ./fencepost-data yet"), "{said}");
}

#[test]
fn database_that_does_not_exist_is_told_from_one_that_cannot_be_reached() {
    let postgres = fencepost_rig::PostgresServer::start();
    let (server, _) = postgres.url().rsplit_once('/').map(|(server, name)| (server.to_owned(), name.len())).unwrap();
    let (status, said) = Serve::dev_anywhere().env("FENCEPOST_STORE", &format!("{server}/nodb")).refused();
    assert_eq!(status.code(), Some(1), "{said}");
    assert!(said.contains("connected, but database \"nodb\" does not exist"), "{said}");
    let mut consume = command(BINARY);
    consume.args([
        "consume",
        "--brokers",
        "127.0.0.1:1",
        "--group",
        "g",
        "--topic",
        "t",
        "--to",
        "http://127.0.0.1:1/",
    ]);
    let output = consume.env("FENCEPOST_STORE", format!("{server}/nodb")).output().unwrap();
    let said = text(&output.stderr);
    assert_eq!(output.status.code(), Some(1), "{said}");
    assert!(said.contains("connected, but database \"nodb\" does not exist"), "{said}");
}

#[test]
fn variables_are_no_part_of_the_usage_that_a_wrong_command_line_is_shown() {
    let mut why = command(BINARY);
    let output = why.arg("why").env("FENCEPOST_URL", "http://h:1").env("FENCEPOST_TOKEN", "t").output().unwrap();
    let said = text(&output.stderr);
    assert_eq!(output.status.code(), Some(2), "{said}");
    assert!(said.contains("Usage: fencepost why <SCOPE> <FIELD=VALUE>...") && !said.contains("--url"), "{said}");
}

#[test]
fn numbers_of_findings_have_their_plurals() {
    let dir = tempfile::tempdir().unwrap();
    let checked = |policy: &str| {
        let file = dir.path().join("p.yml");
        fs::write(&file, policy).unwrap();
        text(&fencepost(["check".as_ref(), file.as_os_str()]).stdout)
    };
    assert!(checked("warehouses: {}\n").ends_with("1 file checked: 1 error, 0 other findings\n"));
    assert!(checked("warehouses: {}\nretention: {}\n").ends_with("1 file checked: 2 errors, 0 other findings\n"));
}

#[test]
fn policies_that_serve_refuses_are_errors_of_check_in_the_same_words() {
    let dir = tempfile::tempdir().unwrap();
    let file = dir.path().join("p.yml");
    for policy in [
        "warehouses: {}\n",
        "scopes:\n  A: { key: [id], retain: 3 weeks }\n",
        "routes:\n- { match: \"PSOT /orders\", upstream: \"ftp://x\", scope: NOWHERE, key: { id: \"body:/id\" } }\n",
        "server: { listen: \"127.0.0.1:7411\" }\nroutes:\n- { match: \"POST /o\", upstream: \"http://127.0.0.1:7411\", scope: INDEX_BUILD, key: { index_hash: \"body:/id\" } }\n",
        "dispatch: { egress_allow: [\"::nowhere::\"] }\n",
        "identities:\n- { id: a, roles: [partner], credentials: [secret] }\n",
    ] {
        fs::write(&file, policy).unwrap();
        let checked = fencepost(["check".as_ref(), file.as_os_str()]);
        let findings = text(&checked.stdout);
        let findings = findings.rsplit_once("1 file checked").unwrap().0.trim_end();
        assert_eq!(checked.status.code(), Some(1), "{policy}{findings}");
        let serve = Serve::bare(command(BINARY), &dir.path().join("data")).arg("--dev").arg("--config").arg(&file);
        let (status, said) = serve.refused();
        assert_eq!(status.code(), Some(1), "{policy}{said}");
        assert!(said.contains(findings), "{policy}\ncheck: {findings}\nserve: {said}");
    }
}
