//! Clients that take all the memory and connections they can: both are bounded, and operators still see the figures.

use std::{
    io::{Read, Write},
    net::TcpStream,
};

use serde_json::json;

use super::{
    client::{Answer, Client},
    server::{Dev, PATIENCE, Server, dev, dev_with, until},
};

const MIB: usize = 1 << 20;
const JSON: &str = "authorization: Bearer dev-partner\r\ncontent-type: application/json\r\n";

fn resident_mib(server: &Server, figure: &str) -> u64 {
    let status = std::fs::read_to_string(format!("/proc/{}/status", server.pid().as_raw_nonzero())).unwrap();
    let line = status.lines().find(|line| line.starts_with(figure)).unwrap();
    line.split_whitespace().nth(1).unwrap().parse::<u64>().unwrap() / 1024
}

fn figure(server: &Server, name: &str) -> u64 {
    let text = server.client("").get("/metrics").text();
    let line = text.lines().find_map(|line| line.strip_prefix(name)?.strip_prefix(' ')).unwrap();
    line.parse().unwrap()
}

/// Whatever comes back before the server closes, or nothing yet.
fn heard(stream: &mut TcpStream) -> String {
    stream.set_nonblocking(true).unwrap();
    let mut bytes = Vec::new();
    let _ = stream.read_to_end(&mut bytes);
    String::from_utf8_lossy(&bytes).into_owned()
}

#[test]
fn unfinished_bodies_of_unknown_senders_get_an_eighth_of_the_buffers() {
    let policy = r#"
server: { limits: { buffered_bytes_max: 64MiB } }
scopes: { HOOK: { key: [id] } }
routes:
  - { match: "POST /hook", upstream: "http://127.0.0.1:9", scope: HOOK, key: { id: "body:/id" }, verify: { scheme: github, secrets: ["a secret of theirs"] } }
"#;
    let server = dev_with(policy);
    let before = resident_mib(&server, "VmRSS:");
    let body = vec![b'x'; 4 * MIB - 1];
    let mut senders: Vec<TcpStream> = (0..40)
        .map(|_| {
            let mut stream = TcpStream::connect(server.address).unwrap();
            stream.set_write_timeout(Some(PATIENCE)).unwrap();
            let head = format!(
                "POST /hook HTTP/1.1\r\nhost: a\r\nx-hub-signature-256: sha256=00\r\ncontent-length: {}\r\n\r\n",
                4 * MIB
            );
            stream.write_all(head.as_bytes()).unwrap();
            // One that was refused may be cut before it has sent all.
            let _ = stream.write_all(&body);
            stream
        })
        .collect();
    until("all but the share were refused", || {
        (figure(&server, "fencepost_buffer_refusals_total") >= 38).then_some(())
    });
    assert!(figure(&server, "fencepost_buffered_bytes") <= 8 * MIB as u64);
    let refused = senders.iter_mut().map(heard).filter(|heard| heard.contains("\"buffers-full\"")).count();
    assert!(refused >= 30, "{refused} of 40 were told");
    let grown = resident_mib(&server, "VmHWM:").saturating_sub(before);
    assert!(grown < 64, "{grown} MiB more for 160 MiB of bodies");
    // A client whose credential is known has the rest.
    let large = json!({"scope": "INDEX_BUILD", "key": {"index_hash": "x"}, "body": "y".repeat(3 * MIB)});
    server.acme().post("/v1/fences/claim", large.to_string()).ok(201);
    drop(senders);
    until("their bytes are given back", || (figure(&server, "fencepost_buffered_bytes") == 0).then_some(()));
}

/// Sealed with a receipt of 4 MiB each.
fn with_large_receipts(server: &Server, count: usize) -> Vec<serde_json::Value> {
    let receipt = "r".repeat(4 * MIB - 1024);
    let keys: Vec<_> = (0..count).map(|number| json!({"index_hash": format!("k{number}")})).collect();
    for key in &keys {
        let token = server.acme().claim("INDEX_BUILD", key).token();
        server.acme().seal("INDEX_BUILD", key, token, "E", json!(receipt)).ok(200);
    }
    keys
}

#[test]
fn unread_answers_of_many_batches_are_bounded_and_probes_are_answered_meanwhile() {
    let server = dev_with("server: { limits: { buffered_bytes_max: 64MiB } }\n");
    let keys = with_large_receipts(&server, 3);
    let claims = keys.iter().map(|key| json!({"op": "claim", "scope": "INDEX_BUILD", "key": key}));
    let batch = json!({"commands": claims.collect::<Vec<_>>()}).to_string();
    let before = resident_mib(&server, "VmRSS:");
    let mut readers: Vec<Client> = (0..40).map(|_| server.acme()).collect();
    for reader in &mut readers {
        reader.begin("POST", "/v1/fences/batch", JSON, batch.as_bytes()).unwrap();
    }
    until("the buffers are full", || (figure(&server, "fencepost_buffer_refusals_total") > 0).then_some(()));
    assert_eq!(server.client("").get("/readyz").status, 200);
    let grown = resident_mib(&server, "VmHWM:").saturating_sub(before);
    assert!(grown < 256, "{grown} MiB more for 480 MiB of answers");
    // Each was told whole, or that there is no room; none got half of an answer for the whole.
    let answers: Vec<Answer> = readers.iter_mut().filter_map(|reader| reader.finish().ok()).collect();
    let whole = answers.iter().filter(|answer| answer.status == 200 && answer.body.len() > 11 * MIB).count();
    let refused = answers.iter().filter(|answer| answer.text().contains("\"buffers-full\"")).count();
    assert!(whole > 0 && refused > 0, "{whole} whole, {refused} refused");
    until("their bytes are given back", || (figure(&server, "fencepost_buffered_bytes") == 0).then_some(()));
}

/// Connected, and silent.
fn silent(server: &Server, count: usize) -> Vec<TcpStream> {
    (0..count).map(|_| TcpStream::connect(server.address).unwrap()).collect()
}

#[test]
fn client_that_takes_every_connection_leaves_probes_their_answers() {
    let server = dev_with("server: { limits: { connections_max: 60, connections_per_client_max: 40 } }\n");
    let mut seated = server.acme();
    seated.claim("INDEX_BUILD", &json!({"index_hash": "x"})).token();
    let idle = silent(&server, 300);
    for _ in 0..20 {
        for path in ["/readyz", "/healthz", "/metrics"] {
            assert_eq!(server.client("").get(path).status, 200, "{path}");
        }
    }
    server.acme().claim("INDEX_BUILD", &json!({"index_hash": "y"})).problem(503, "too-many-connections");
    seated.claim("INDEX_BUILD", &json!({"index_hash": "z"})).token();
    drop(idle);
    until("a connection is free again", || {
        (server.acme().claim("INDEX_BUILD", &json!({"index_hash": "y"})).status == 201).then_some(())
    });
}

#[test]
fn document_of_the_api_is_one_for_all_who_ask() {
    let server: Dev = dev();
    let first = server.client("").get("/openapi.json");
    let before = resident_mib(&server, "VmRSS:");
    // Asked for by many that do not read.
    let mut readers: Vec<Client> = (0..400).map(|_| server.client("")).collect();
    for reader in &mut readers {
        for _ in 0..8 {
            reader.begin("GET", "/openapi.json", "", b"").unwrap();
        }
    }
    assert_eq!(server.client("").get("/openapi.json").body, first.body);
    let grown = resident_mib(&server, "VmHWM:").saturating_sub(before);
    let wanted = 400 * first.body.len() / MIB;
    assert!(grown < wanted as u64 / 2, "{grown} MiB more for {wanted} MiB of documents");
}
