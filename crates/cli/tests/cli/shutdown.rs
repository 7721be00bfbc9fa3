//! SIGTERM: requests in flight are finished, new ones are refused, and the end is an orderly one.

use std::{fs::File, net::TcpStream, thread};

use rustix::{
    fs::{CWD, FileType, Mode},
    process::Signal,
};
use serde_json::json;

use super::server::{Serve, dev, until};

fn key(hash: &str) -> serde_json::Value {
    json!({"index_hash": hash})
}

#[test]
fn sigterm_finishes_a_waiting_claim_refuses_new_connections_and_ends_with_0() {
    let dir = tempfile::tempdir().unwrap();
    let server = Serve::dev(dir.path()).start();
    let mut holder = server.acme();
    let token = holder.claim("INDEX_BUILD", &key("a")).token();
    let mut waiter = server.acme();
    waiter.begin_post(
        "/v1/fences/claim",
        json!({"scope": "INDEX_BUILD", "key": key("a"), "wait_ms": 50_000}).to_string(),
    );
    server.until_waiting(1);
    // The holder's seal is under way as well: its head is there, the rest follows after the signal.
    let seal = json!({"scope": "INDEX_BUILD", "key": key("a"), "token": token, "effect_id": "E", "receipt": "in time"})
        .to_string();
    let (early, late) = seal.split_at(10);
    let head = format!(
        "POST /v1/fences/seal HTTP/1.1\r\nhost: a\r\nauthorization: Bearer dev-partner\r\ncontent-type: application/json\r\ncontent-length: {}\r\n\r\n{early}",
        seal.len()
    );
    let mut sealing = TcpStream::connect(server.address).unwrap();
    sealing.set_read_timeout(Some(super::server::PATIENCE)).unwrap();
    std::io::Write::write_all(&mut sealing, head.as_bytes()).unwrap();
    // An answer on another connection: the server has been round its loop since and read that head.
    server.acme().get("/healthz").ok(200);

    server.signal(Signal::TERM);
    let address = server.address;
    until("new connections are refused", || TcpStream::connect(address).is_err().then_some(()));
    std::io::Write::write_all(&mut sealing, late.as_bytes()).unwrap();
    let sealed = super::client::Answer::read(&mut std::io::BufReader::new(sealing)).unwrap();
    assert_eq!(sealed.ok(200)["decision"], "sealed");
    assert_eq!(waiter.finish().unwrap().ok(200)["receipt"], "in time", "the waiter was woken by the seal");
    let (status, said) = server.wait();
    assert_eq!(status.code(), Some(0), "{said}");

    let server = Serve::dev(dir.path()).start();
    assert_eq!(server.acme().claim("INDEX_BUILD", &key("a")).ok(200)["receipt"], "in time");
}

#[test]
fn sigint_ends_an_idle_server_at_once_though_clients_stay_connected() {
    let server = dev();
    let mut idle = server.acme();
    idle.get("/healthz").ok(200);
    server.signal(Signal::INT);
    let super::server::Dev { server, dir } = server;
    let (status, said) = server.wait();
    assert_eq!(status.code(), Some(0), "{said}");
    drop(dir);
}

#[test]
fn a_log_that_nobody_reads_keeps_no_server_from_ending() {
    let dir = tempfile::tempdir().unwrap();
    let pipe = dir.path().join("log");
    rustix::fs::mknodat(CWD, &pipe, FileType::Fifo, Mode::RUSR | Mode::WUSR, 0).unwrap();
    // Open, and never read. For writing too: so it waits for nobody.
    let stalled = File::options().read(true).write(true).open(&pipe).unwrap();
    let server = Serve::dev(&dir.path().join("data")).log(pipe).start();
    // Far more lines than a pipe holds.
    let claim = |n| json!({"op": "claim", "scope": "INDEX_BUILD", "key": key(&format!("{n}"))});
    server.acme().batch(&(0..1_000).map(claim).collect::<Vec<_>>()).ok(200);
    server.signal(Signal::TERM);
    let (status, said) = server.wait();
    assert_eq!(status.code(), Some(0), "{said}");
    drop(stalled);
}

#[test]
fn a_waiter_that_the_grace_outlasts_is_answered_and_the_claim_it_waits_for_is_kept() {
    let dir = tempfile::tempdir().unwrap();
    let server = Serve::dev(dir.path()).env("FENCEPOST_SERVER__SHUTDOWN_GRACE", "2s").start();
    let token = server.acme().claim("INDEX_BUILD", &key("a")).token();
    let mut waiter = server.acme();
    waiter.begin_post(
        "/v1/fences/claim",
        json!({"scope": "INDEX_BUILD", "key": key("a"), "wait_ms": 50_000}).to_string(),
    );
    server.until_waiting(1);
    server.signal(Signal::TERM);
    let told = thread::spawn(move || waiter.finish());
    let (status, said) = server.wait();
    assert_eq!(status.code(), Some(0), "{said}");
    told.join().unwrap().unwrap().problem(409, "in-flight");
    let server = Serve::dev(dir.path()).start();
    server.acme().seal("INDEX_BUILD", &key("a"), token, "E", json!(1)).ok(200);
}
