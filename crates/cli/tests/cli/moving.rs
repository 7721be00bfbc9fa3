//! Backup, restore and copy by the real binary: of a server under load, into stores that are then served.

use std::{
    fs,
    os::unix::fs::PermissionsExt,
    path::Path,
    process::Output,
    sync::atomic::{AtomicBool, AtomicU64, Ordering},
    thread,
};

use serde_json::{Value, json};

use super::server::{BINARY, Serve, Server, command, dev, fencepost, text, until};

const SCOPE: &str = "INDEX_BUILD";
const SEALED: usize = 120;

fn key(name: impl std::fmt::Display) -> Value {
    json!({"index_hash": name.to_string()})
}

/// Receipts of all sizes, of which some are worth packing.
fn receipt(number: usize) -> Value {
    json!({"number": number, "lines": vec!["the same line again"; number % 40], "ü": "漢字 😀"})
}

/// Seals effects, leaves one claim open, and gives what a duplicate of each is answered, byte for byte.
fn stock(server: &Server) -> Vec<Vec<u8>> {
    let mut acme = server.acme();
    for number in 0..SEALED {
        acme.done(SCOPE, &key(number), &format!("E-{number}"), receipt(number));
    }
    acme.claim(SCOPE, &key("open")).token();
    answers(server)
}

fn answers(server: &Server) -> Vec<Vec<u8>> {
    let mut acme = server.acme();
    let mut answer = |number| {
        let answer = acme.claim(SCOPE, &key(number));
        assert_eq!(answer.ok(200)["decision"], "duplicate");
        answer.body
    };
    (0..SEALED).map(&mut answer).collect()
}

#[track_caller]
fn done(output: &Output) -> String {
    assert!(output.status.success(), "{}{}", text(&output.stdout), text(&output.stderr));
    text(&output.stdout)
}

#[track_caller]
fn refused(output: &Output, words: &[&str]) {
    let said = text(&output.stderr);
    assert_eq!(output.status.code(), Some(1), "{said}");
    for word in words {
        assert!(said.contains(word), "{word:?} is not in:\n{said}");
    }
}

/// Fills the store at one address, copies it to the other, and serves that one: nothing may tell them apart.
/// The addresses may be of any two kinds of store, as long as both are empty.
fn a_copy_answers_like_its_source(from: &str, to: &str) {
    let server = Serve::sharing(from).start();
    let before = stock(&server);
    server.kill();
    let said = done(&fencepost(["copy", from, to, "--yes"]));
    assert!(said.contains(&format!("copied    {} fences", SEALED + 1)) && said.contains("both ways"), "{said}");
    // A second time: everything is there already, and is the same.
    let said = done(&fencepost(["copy", from, to, "--yes"]));
    assert!(said.contains("were there already"), "{said}");

    let server = Serve::sharing(to).start();
    assert_eq!(answers(&server), before);
    server.acme().claim(SCOPE, &key("open")).problem(409, "in-flight");
    // From here on they are two stores: another copy would overwrite, and is refused.
    server.acme().done(SCOPE, &key("new"), "E-new", json!(1));
    server.kill();
    refused(&fencepost(["copy", from, to, "--yes"]), &["an empty"]);
    let server = Serve::sharing(from).start();
    assert_eq!(answers(&server), before, "the source is as it was");
}

#[test]
fn a_copied_directory_answers_like_its_source() {
    let dir = tempfile::tempdir().unwrap();
    let [from, to] = ["from", "to"].map(|name| dir.path().join(name).to_str().unwrap().to_owned());
    a_copy_answers_like_its_source(&from, &to);
}

#[test]
fn a_directory_copied_to_postgres_answers_like_its_source() {
    let dir = tempfile::tempdir().unwrap();
    let postgres = fencepost_rig::PostgresServer::start();
    a_copy_answers_like_its_source(dir.path().join("data").to_str().unwrap(), &postgres.fresh_database());
}

#[test]
fn a_postgres_copied_to_redis_answers_like_its_source() {
    let (postgres, redis) = (fencepost_rig::PostgresServer::start(), fencepost_rig::RedisServer::synced());
    a_copy_answers_like_its_source(&postgres.fresh_database(), &redis.url());
}

#[test]
fn a_redis_cluster_copied_to_a_directory_answers_like_its_source() {
    let dir = tempfile::tempdir().unwrap();
    let cluster = fencepost_rig::Cluster::start();
    a_copy_answers_like_its_source(&cluster.url(), dir.path().join("data").to_str().unwrap());
}

#[test]
fn a_copy_asks_first_and_names_what_it_cannot_use() {
    let dir = tempfile::tempdir().unwrap();
    let path = |name: &str| dir.path().join(name).to_str().unwrap().to_owned();
    refused(&fencepost(["copy", &path("none"), &path("to")]), &["--yes"]);
    refused(&fencepost(["copy", &path("none"), &path("to"), "--yes"]), &["there is no store in", &path("none")]);
    assert!(!Path::new(&path("none")).exists(), "a source is never made");
    refused(&fencepost(["copy", &path("a"), "mysql://h/d", "--yes"]), &["mysql"]);
    refused(&fencepost(["copy", &path("a"), &path("a"), "--yes"]), &["both source and target"]);
}

#[test]
fn a_store_that_is_being_served_is_backed_up_through_its_server() {
    let server = dev();
    let data = server.dir.path().join("data");
    let out = server.dir.path().join("out.fpb");
    let output = fencepost(["backup", "--from", data.to_str().unwrap(), "--out", out.to_str().unwrap()]);
    refused(&output, &["in use by another Fencepost", "fencepost backup --url", "stop the server"]);
    assert_eq!(names(server.dir.path()), ["data"], "nothing is left behind");
}

fn names(dir: &Path) -> Vec<String> {
    let mut names: Vec<_> =
        fs::read_dir(dir).unwrap().map(|entry| entry.unwrap().file_name().into_string().unwrap()).collect();
    names.sort();
    names
}

/// Does something while four threads claim and seal without a pause.
fn under_load<T>(server: &Server, work: impl FnOnce() -> T) -> T {
    let (stop, count) = (AtomicBool::new(false), AtomicU64::new(0));
    thread::scope(|scope| {
        for worker in 0..4 {
            let (stop, count) = (&stop, &count);
            scope.spawn(move || {
                let mut acme = server.acme();
                for number in 0.. {
                    if stop.load(Ordering::Relaxed) {
                        break;
                    }
                    let name = key(format!("load-{worker}-{number}"));
                    acme.done(SCOPE, &name, &format!("L-{worker}-{number}"), receipt(number));
                    count.fetch_add(1, Ordering::Relaxed);
                }
            });
        }
        until("the load", || (count.load(Ordering::Relaxed) > 1_000).then_some(()));
        let outcome = work();
        stop.store(true, Ordering::Relaxed);
        outcome
    })
}

fn backup(server: &Server, out: &Path) -> String {
    done(&fencepost(["backup", "--url", &server.url(), "--out", out.to_str().unwrap()]))
}

#[test]
fn a_backup_taken_under_load_restores_every_receipt_that_was_sealed_before_it() {
    let server = dev();
    let before = stock(&server);
    let file = server.dir.path().join("under-load.fpb");
    let said = under_load(&server, || backup(&server, &file));
    assert!(said.contains("checked") && !said.contains(" 0 fences pending"), "{said}");
    let later = server.acme().claim(SCOPE, &key("after the backup")).token();
    let said = done(&fencepost(["backup", "--verify", file.to_str().unwrap()]));
    assert!(said.contains("sound") && said.contains("row format 7"), "{said}");

    let fresh = server.dir.path().join("fresh");
    let said = done(&fencepost(["restore", file.to_str().unwrap(), fresh.to_str().unwrap()]));
    for word in ["restored", "are unknown to this store", "when the backup was taken", "every new one is above"] {
        assert!(said.contains(word), "{word:?} is not in:\n{said}");
    }
    let restored = Serve::dev(&fresh).start();
    assert_eq!(answers(&restored), before);
    let why = fencepost(["why", SCOPE, "index_hash=7", "--url", &restored.url()]);
    assert!(done(&why).contains("It ran once, as E-7"));
    // A claim from after the backup is unknown, but its holder can never pass for the new one.
    let token = restored.acme().claim(SCOPE, &key("after the backup")).token();
    assert!(token > later, "{token} must be above {later}");
    restored.acme().seal(SCOPE, &key("after the backup"), later, "ZOMBIE", json!(1)).problem(409, "fenced-off");
    // A second restore finds a store that has lived on.
    restored.kill();
    refused(&fencepost(["restore", file.to_str().unwrap(), fresh.to_str().unwrap()]), &["an empty"]);
}

/// Fills the store at one address, and lets a backup of it come back at the other.
fn a_backup_comes_back_at(from: &str, to: &str) {
    let dir = tempfile::tempdir().unwrap();
    let file = dir.path().join("one.fpb").to_str().unwrap().to_owned();
    let server = Serve::sharing(from).start();
    let before = stock(&server);
    let last = server.acme().claim(SCOPE, &key("last")).token();
    server.kill();
    done(&fencepost(["backup", "--from", from, "--out", &file]));
    assert_eq!(names(dir.path()), ["one.fpb"]);
    done(&fencepost(["restore", &file, to]));
    let server = Serve::sharing(to).start();
    assert_eq!(answers(&server), before);
    assert!(server.acme().claim(SCOPE, &key("new")).token() > last);
}

#[test]
fn a_directory_that_nobody_serves_comes_back_from_its_backup() {
    let dir = tempfile::tempdir().unwrap();
    let [from, to] = ["from", "to"].map(|name| dir.path().join(name).to_str().unwrap().to_owned());
    a_backup_comes_back_at(&from, &to);
}

#[test]
fn a_backup_of_redis_comes_back_in_postgres() {
    let (postgres, redis) = (fencepost_rig::PostgresServer::start(), fencepost_rig::RedisServer::synced());
    a_backup_comes_back_at(&redis.url(), &postgres.fresh_database());
}

#[test]
fn a_backup_never_overwrites_and_is_for_admins_only() {
    let server = dev();
    let file = server.dir.path().join("taken");
    fs::write(&file, "precious").unwrap();
    let (url, out) = (server.url(), file.to_str().unwrap().to_owned());
    refused(&fencepost(["backup", "--url", &url, "--out", &out]), &["never overwrites", &out]);
    assert_eq!(fs::read(&file).unwrap(), b"precious");
    let other = server.dir.path().join("other");
    for token in ["dev-partner", "dev-planner"] {
        let output = fencepost(["backup", "--url", &url, "--token", token, "--out", other.to_str().unwrap()]);
        refused(&output, &["403", "admin"]);
        server.client(token).get("/admin/backup").problem(403, "forbidden");
    }
    server.client("wrong").get("/admin/backup").problem(401, "unauthorized");
    let output = fencepost(["backup", "--url", "http://127.0.0.1:1", "--out", other.to_str().unwrap()]);
    refused(&output, &["is the server running?"]);
    assert_eq!(names(server.dir.path()), ["data", "taken"]);
}

#[test]
fn a_backup_is_its_owners_alone_and_leaves_the_file_of_another_run_alone() {
    let server = dev();
    server.acme().done(SCOPE, &key("one"), "E-1", json!(1));
    let file = server.dir.path().join("one.fpb");
    // As a run of the same number in another container, on a disk that both see.
    let script = "echo precious > \"$1.partial-$$\" && exec \"$0\" backup --url \"$2\" --out \"$1\"";
    let output = command("sh").args(["-c", script, BINARY]).arg(&file).arg(server.url()).output().unwrap();
    done(&output);
    let others: Vec<_> = names(server.dir.path()).into_iter().filter(|name| name.contains(".partial-")).collect();
    assert_eq!(others.len(), 1, "{others:?}");
    assert_eq!(fs::read(server.dir.path().join(&others[0])).unwrap(), b"precious\n");
    assert_eq!(fs::metadata(&file).unwrap().permissions().mode() & 0o777, 0o600);
}

#[test]
fn a_backup_gets_its_name_where_the_disk_knows_no_rename_that_never_replaces() {
    let server = dev();
    server.acme().done(SCOPE, &key("one"), "E-1", json!(1));
    let file = server.dir.path().join("one.fpb");
    let mut strace = command("strace");
    // As NFS answers.
    strace.args(["-f", "-qq", "-e", "trace=renameat2", "-e", "inject=renameat2:error=EINVAL", "-o", "/dev/null"]);
    strace.arg(BINARY).args(["backup", "--url", &server.url(), "--out"]).arg(&file);
    done(&strace.output().unwrap());
    assert_eq!(names(server.dir.path()), ["data", "one.fpb"]);
    done(&fencepost(["backup", "--verify", file.to_str().unwrap()]));
    refused(&strace.output().unwrap(), &["never overwrites"]);
}

#[test]
fn a_damaged_backup_is_refused_and_the_target_stays_empty() {
    let server = dev();
    server.acme().done(SCOPE, &key("one"), "E-1", json!(1));
    let file = server.dir.path().join("one.fpb");
    backup(&server, &file);
    let mut bytes = fs::read(&file).unwrap();
    let middle = bytes.len() / 2;
    bytes[middle] ^= 1;
    let damaged = server.dir.path().join("damaged.fpb");
    fs::write(&damaged, &bytes).unwrap();
    let (damaged, fresh) = (damaged.to_str().unwrap().to_owned(), server.dir.path().join("fresh"));
    refused(&fencepost(["backup", "--verify", &damaged]), &["not a whole backup", &damaged]);
    refused(&fencepost(["restore", &damaged, fresh.to_str().unwrap()]), &["not a whole backup"]);
    // Empty still: the sound one goes in.
    done(&fencepost(["restore", file.to_str().unwrap(), fresh.to_str().unwrap()]));
}

#[test]
fn the_help_of_what_moves_stores_teaches_with_examples() {
    for command in ["backup", "restore", "copy"] {
        let said = text(&fencepost([command, "--help"]).stdout);
        assert!(said.contains("Examples:") && said.contains(&format!("fencepost {command}")), "{command}:\n{said}");
    }
    assert_eq!(fencepost(["backup"]).status.code(), Some(2), "neither --out nor --verify");
}
