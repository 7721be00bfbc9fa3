//! A sync that fails is never tried again: the disk's content is unknown, so nothing more is acknowledged.
//! The kernel's answer is replaced by strace, under the real binary.

use std::{
    fs,
    path::Path,
    time::{Duration, Instant},
};

use rustix::process::{Pid, Signal};
use serde_json::json;

use super::{
    client::Answer,
    server::{BINARY, Serve, Server, command, until},
};

/// A server under strace: of each of its threads, the sync of this number fails.
fn traced(data: &Path, trace: &Path, log: &Path, failing: usize) -> Server {
    injected(data, trace, log, &format!("error=EIO:when={failing}"), "bound")
}

fn injected(data: &Path, trace: &Path, log: &Path, fault: &str, threads: &str) -> Server {
    let mut strace = command("strace");
    strace.args(["-f", "-qq", "-e", "trace=fsync,fdatasync,sync_file_range"]);
    strace.arg("-e").arg(format!("inject=fdatasync:{fault}")).arg("-o").arg(trace).arg(BINARY);
    let server = Serve::under(strace, data).arg("--dev").env("FENCEPOST_SERVER__THREADS", threads);
    let mut server = server.log(log.to_owned()).start();
    let pid = server.pid().as_raw_nonzero();
    let children = fs::read_to_string(format!("/proc/{pid}/task/{pid}/children")).unwrap();
    server.tracee = Pid::from_raw(children.trim().parse().unwrap());
    server
}

fn key(number: usize) -> serde_json::Value {
    json!({"index_hash": number.to_string()})
}

fn claim_until_refused(server: &Server) -> (Vec<(usize, u64)>, usize, Answer) {
    let mut acme = server.acme();
    let mut granted = Vec::new();
    for number in 0..1_000 {
        let answer = acme.claim("INDEX_BUILD", &key(number));
        match answer.status {
            201 => granted.push((number, answer.token())),
            _ => return (granted, number, answer),
        }
    }
    panic!("no sync has failed");
}

#[test]
fn after_a_failed_sync_every_write_is_503_and_the_sync_is_not_tried_again() {
    let dir = tempfile::tempdir().unwrap();
    let (data, trace, log) = (dir.path().join("data"), dir.path().join("trace"), dir.path().join("log"));
    let traced = traced(&data, &trace, &log, 7);
    let (granted, failed, refused) = claim_until_refused(&traced);
    refused.problem(503, "store-unavailable");
    assert!(refused.header("retry-after").is_some());
    assert!(!granted.is_empty(), "the first ones went through");
    let mut acme = traced.acme();
    for number in [failed, failed + 1, failed + 2] {
        acme.claim("INDEX_BUILD", &key(number)).problem(503, "store-unavailable");
    }
    let (number, token) = granted[0];
    acme.seal("INDEX_BUILD", &key(number), token, "E", json!(1)).problem(503, "store-unavailable");
    acme.renew("INDEX_BUILD", &key(number), token, 1_000).problem(503, "store-unavailable");
    acme.release("INDEX_BUILD", &key(number), token).problem(503, "store-unavailable");
    acme.get("/readyz").problem(503, "store-unavailable");
    assert!(acme.get("/metrics").text().contains("fencepost_ready 0"));
    assert_eq!(acme.get("/healthz").status, 200, "the process lives, so that somebody can read why");

    let told = || fs::read_to_string(&log).unwrap().contains("the store has stopped; nothing is acknowledged any more");
    until("the log says why", || told().then_some(()));
    let lines = until("strace has written it down", || {
        let lines = fs::read_to_string(&trace).unwrap();
        lines.contains("INJECTED").then_some(lines)
    });
    let after: Vec<&str> = lines
        .lines()
        .skip_while(|line| !line.contains("INJECTED"))
        .skip(1)
        .filter(|line| line.contains("sync"))
        .collect();
    assert!(after.is_empty(), "synced again after the failure:\n{after:?}");
    traced.kill();

    // After a restart everything acknowledged is there, and what was refused can simply be asked again.
    let server = Serve::dev(&data).start();
    let mut acme = server.acme();
    for (number, token) in granted {
        acme.claim("INDEX_BUILD", &key(number)).problem(409, "in-flight");
        acme.seal("INDEX_BUILD", &key(number), token, "E", json!(number)).ok(200);
    }
    let again = acme.claim("INDEX_BUILD", &key(failed + 1)).status;
    assert_eq!(again, 201, "it was refused before it reached the disk");
}

#[test]
fn a_server_that_has_stopped_answers_nothing_wrong_and_ends_in_order() {
    let dir = tempfile::tempdir().unwrap();
    let (data, trace, log) = (dir.path().join("data"), dir.path().join("trace"), dir.path().join("log"));
    let traced = traced(&data, &trace, &log, 7);
    let mut acme = traced.acme();
    acme.done("INDEX_BUILD", &json!({"index_hash": "sealed"}), "E", json!("kept"));
    let (_, _, refused) = claim_until_refused(&traced);
    refused.problem(503, "store-unavailable");
    let replay = acme.claim("INDEX_BUILD", &json!({"index_hash": "sealed"}));
    assert!(replay.status == 503 || replay.ok(200)["receipt"] == "kept", "never something else: {}", replay.text());
    rustix::process::kill_process(traced.tracee.unwrap(), Signal::TERM).unwrap();
    let (status, said) = traced.wait();
    assert_eq!(status.code(), Some(0), "{said}");
}

#[test]
fn a_sync_that_hangs_is_answered_503_within_five_seconds() {
    hangs("bound");
}

// Where a lone caller commits inline.
#[test]
fn a_sync_that_hangs_on_a_shared_thread_is_answered_503_within_five_seconds() {
    hangs("shared");
}

fn hangs(threads: &str) {
    let dir = tempfile::tempdir().unwrap();
    let (data, trace, log) = (dir.path().join("data"), dir.path().join("trace"), dir.path().join("log"));
    // Ten seconds, in microseconds; the server is asked to go before.
    let server = injected(&data, &trace, &log, "delay_enter=10000000:when=2", threads);
    server.acme().claim("INDEX_BUILD", &key(1)).token();
    let mut begun = Instant::now();
    // Any of several threads may commit, and each has a second sync of its own.
    let asked = (2..100).map(|number| {
        begun = Instant::now();
        (server.acme().claim("INDEX_BUILD", &key(number)), begun.elapsed())
    });
    let (refused, waited) = asked.into_iter().find(|(answer, _)| answer.status != 201).unwrap();
    refused.problem(503, "store-unavailable");
    assert!(refused.header("retry-after").is_some());
    assert!(waited < Duration::from_secs(8), "five seconds, and some for a busy machine: {waited:?}");
    // It still hangs, and everything that needs no sync is served.
    for _ in 0..20 {
        assert_eq!(server.acme().get("/healthz").status, 200);
    }
    server.kill();
    let server = Serve::dev(&data).start();
    server.acme().claim("INDEX_BUILD", &key(1)).problem(409, "in-flight");
}

/// Claims many keys in one commit, then seals them one by one until a sync fails: the key and token of that seal.
fn seal_until_refused(server: &Server) -> (usize, u64) {
    const KEYS: usize = 100;
    let mut acme = server.acme();
    let claims: Vec<_> =
        (0..KEYS).map(|number| json!({"op": "claim", "scope": "INDEX_BUILD", "key": key(number)})).collect();
    let claimed = acme.batch(&claims).ok(200);
    for number in 0..KEYS {
        let token = claimed["results"][number]["body"]["token"].as_u64().unwrap();
        let seal = acme.seal("INDEX_BUILD", &key(number), token, "E", json!(number));
        if seal.status != 200 {
            seal.problem(503, "store-unavailable");
            return (number, token);
        }
    }
    panic!("no sync has failed");
}

#[test]
fn a_409_after_a_503_never_makes_a_client_delete_live_data() {
    // One thread commits, or few, so that one comes to so many syncs.
    for failing in [8, 9] {
        let dir = tempfile::tempdir().unwrap();
        let (data, trace, log) = (dir.path().join("data"), dir.path().join("trace"), dir.path().join("log"));
        let server = traced(&data, &trace, &log, failing);
        let (number, token) = seal_until_refused(&server);
        server.kill();
        let server = Serve::dev(&data).start();
        // Whatever the disk kept of it, the repeated seal is good: never a 409, which would look like a lost race.
        server.acme().seal("INDEX_BUILD", &key(number), token, "E", json!(number)).ok(200);
        assert_eq!(server.acme().claim("INDEX_BUILD", &key(number)).ok(200)["receipt"], number);
    }
}
