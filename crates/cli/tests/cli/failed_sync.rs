//! A sync that fails is never tried again: what the disk kept is unknown, so nothing more is acknowledged.
//! The kernel's answer is replaced by strace, under the real binary.

use std::{fs, path::Path};

use rustix::process::{Pid, Signal};
use serde_json::json;

use super::{
    client::Answer,
    server::{BINARY, Serve, Server, command, until},
};

/// A server under strace, which takes its child down with it.
struct Traced {
    server: Server,
    child: Pid,
}

impl Traced {
    /// The commit thread's sync of this number fails; every other one goes through.
    fn start(data: &Path, trace: &Path, failing: usize) -> Self {
        let mut strace = command("strace");
        strace.args(["-f", "-qq", "-e", "trace=fsync,fdatasync,sync_file_range"]);
        strace.arg("-e").arg(format!("inject=fdatasync:error=EIO:when={failing}")).arg("-o").arg(trace).arg(BINARY);
        let server = Serve::under(strace, data).arg("--dev").start();
        let pid = server.pid().as_raw_nonzero();
        let children = fs::read_to_string(format!("/proc/{pid}/task/{pid}/children")).unwrap();
        let child = Pid::from_raw(children.trim().parse().unwrap()).unwrap();
        Self { server, child }
    }

    fn kill(self) {}
}

impl Drop for Traced {
    fn drop(&mut self) {
        // Killing strace alone would let the server go on.
        let _ = rustix::process::kill_process(self.child, Signal::KILL);
    }
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
    let (data, trace) = (dir.path().join("data"), dir.path().join("trace"));
    let traced = Traced::start(&data, &trace, 7);
    let (granted, failed, refused) = claim_until_refused(&traced.server);
    refused.problem(503, "store-unavailable");
    assert!(refused.header("retry-after").is_some());
    assert!(!granted.is_empty(), "the first ones went through");
    let mut acme = traced.server.acme();
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
fn a_server_that_has_stopped_still_answers_what_is_sealed_and_ends_in_order() {
    let dir = tempfile::tempdir().unwrap();
    let (data, trace) = (dir.path().join("data"), dir.path().join("trace"));
    let traced = Traced::start(&data, &trace, 7);
    let mut acme = traced.server.acme();
    acme.done("INDEX_BUILD", &json!({"index_hash": "sealed"}), "E", json!("kept"));
    let (_, _, refused) = claim_until_refused(&traced.server);
    refused.problem(503, "store-unavailable");
    let replay = acme.claim("INDEX_BUILD", &json!({"index_hash": "sealed"}));
    assert!(replay.status == 503 || replay.ok(200)["receipt"] == "kept", "never something else: {}", replay.text());
    rustix::process::kill_process(traced.child, Signal::TERM).unwrap();
    until("the process has ended", || rustix::process::test_kill_process(traced.child).is_err().then_some(()));
}

#[test]
fn a_seal_that_was_answered_503_is_never_a_409_when_it_is_repeated() {
    let dir = tempfile::tempdir().unwrap();
    let (data, trace) = (dir.path().join("data"), dir.path().join("trace"));
    // Whichever sync is the seal's: claims and seals alternate until one fails.
    let traced = Traced::start(&data, &trace, 8);
    let mut acme = traced.server.acme();
    let mut unknown = None;
    for number in 0..1_000 {
        let claim = acme.claim("INDEX_BUILD", &key(number));
        if claim.status != 201 {
            break;
        }
        let seal = acme.seal("INDEX_BUILD", &key(number), claim.token(), "E", json!(number));
        if seal.status != 200 {
            seal.problem(503, "store-unavailable");
            unknown = Some((number, claim.token()));
            break;
        }
    }
    traced.kill();
    let server = Serve::dev(&data).start();
    if let Some((number, token)) = unknown {
        server.acme().seal("INDEX_BUILD", &key(number), token, "E", json!(number)).ok(200);
        assert_eq!(server.acme().claim("INDEX_BUILD", &key(number)).ok(200)["receipt"], number);
    } else {
        panic!("the sync that failed was no seal's: choose another number");
    }
}
