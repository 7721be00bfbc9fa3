//! No other user of the machine can read the files that the binary writes, whatever the umask it was started under.

use std::{
    fs,
    os::unix::fs::PermissionsExt,
    path::Path,
    process::{Command, Output},
};

use rustix::process::Signal;
use serde_json::json;

use super::server::{BINARY, Serve, Server, command, text, until};

/// The binary under a umask that takes nothing away.
fn open_handed() -> Command {
    let mut shell = command("sh");
    shell.args(["-c", "umask 000; exec \"$@\"", "sh", BINARY]);
    shell
}

fn run(args: &[&str], path: &Path) -> Output {
    let output = open_handed().args(args).arg(path).output().unwrap();
    assert!(output.status.success(), "{args:?}: {}", text(&output.stderr));
    output
}

fn mode(path: &Path) -> u32 {
    fs::symlink_metadata(path).unwrap().permissions().mode() & 0o7777
}

fn set(path: &Path, mode: u32) {
    fs::set_permissions(path, fs::Permissions::from_mode(mode)).unwrap();
}

/// Every file and directory below, and what it is not allowed to be.
fn others_may(path: &Path, found: &mut Vec<String>, seen: &mut usize) {
    *seen += 1;
    let (is_dir, mode) = (path.is_dir(), mode(path));
    if mode != if is_dir { 0o700 } else { 0o600 } {
        found.push(format!("{mode:o} {}", path.display()));
    }
    if is_dir {
        for entry in fs::read_dir(path).unwrap() {
            others_may(&entry.unwrap().path(), found, seen);
        }
    }
}

#[track_caller]
fn all_private(path: &Path) -> usize {
    let (mut found, mut seen) = (Vec::new(), 0);
    others_may(path, &mut found, &mut seen);
    assert_eq!(found, Vec::<String>::new());
    seen
}

// Receipts of some length, so that the journal is written to and the store has what it recovers.
fn load(server: &Server, token: &str, from: u64) {
    let mut acme = server.client(token);
    let receipt = "x".repeat(64 << 10);
    for number in from..from + 40 {
        acme.done("INDEX_BUILD", &json!({"index_hash": number.to_string()}), "E", json!(format!("{number} {receipt}")));
    }
}

#[test]
fn every_file_is_its_owners_only_under_a_umask_of_zero() {
    let dir = tempfile::tempdir().unwrap();
    let data = dir.path().join("new").join("data");
    let token = text(&run(&["credential", "create", "acme", "--role", "partner", "--data"], &data).stdout);
    let token = token.trim();
    let admin = text(&run(&["credential", "create", "boss", "--role", "admin", "--data"], &data).stdout);
    let server = Serve::under(open_handed(), &data).start();
    run(&["credential", "rotate-key", "--data"], &data);
    load(&server, token, 0);
    let backup = dir.path().join("online.fpb");
    let mut online = open_handed();
    online.env("FENCEPOST_TOKEN", admin.trim()).args(["backup", "--url", &server.url(), "--out"]).arg(&backup);
    let output = online.output().unwrap();
    assert!(output.status.success(), "{}", text(&output.stderr));
    all_private(dir.path().join("new").as_path());
    server.kill();

    // Opened again, with a journal to read and files to make anew.
    let server = Serve::under(open_handed(), &data).start();
    load(&server, token, 40);
    server.signal(Signal::TERM);
    server.wait();
    assert!(all_private(&dir.path().join("new")) > 15);

    let (restored, copied) = (dir.path().join("restored"), dir.path().join("copied"));
    run(&["restore", backup.to_str().unwrap()], &restored);
    run(&["copy", "--yes", data.to_str().unwrap()], &copied);
    for path in [&backup, &restored, &copied] {
        all_private(path);
    }
}

#[test]
fn a_directory_that_others_could_read_is_closed_and_the_log_says_so() {
    let dir = tempfile::tempdir().unwrap();
    let (data, log) = (dir.path().join("data"), dir.path().join("log"));
    let server = Serve::dev(&data).start();
    load(&server, "dev-partner", 0);
    server.kill();
    // As an earlier release left it.
    let mut paths = vec![data.clone()];
    while let Some(path) = paths.pop() {
        set(&path, if path.is_dir() { 0o755 } else { 0o644 });
        if path.is_dir() {
            paths.extend(fs::read_dir(&path).unwrap().map(|entry| entry.unwrap().path()));
        }
    }
    let server = Serve::dev(&data).log(log.clone()).start();
    let said = until("the log says so", || {
        let log = fs::read_to_string(&log).unwrap();
        log.contains("others could read files of the data directory").then_some(log)
    });
    assert!(said.contains("\"changed\":"), "{said}");
    all_private(&data);
    server.kill();
    let server = Serve::dev(&data).log(log.clone()).start();
    server.signal(Signal::TERM);
    server.wait();
    assert!(!fs::read_to_string(&log).unwrap().contains("others"), "nothing is left to say");
}
