//! When the server must not start, and what it tells the person who tried.

use std::{
    ffi::OsStr,
    fs,
    io::{Read, Seek, SeekFrom, Write},
    os::unix::ffi::OsStrExt,
    path::Path,
};

use serde_json::json;

use super::server::{BINARY, Serve, command, dev_with};

#[track_caller]
fn refused(serve: Serve, words: &[&str]) {
    let (status, said) = serve.refused();
    assert_eq!(status.code(), Some(1), "{said}");
    for word in words {
        assert!(said.contains(word), "{word:?} is not in:\n{said}");
    }
}

#[test]
fn without_dev_and_without_credentials_it_does_not_start_and_says_how_to_make_one() {
    let dir = tempfile::tempdir().unwrap();
    refused(
        Serve::plain(dir.path()),
        &["fencepost credential create", "--role partner", dir.path().to_str().unwrap(), "--dev"],
    );
}

#[test]
fn public_tokens_on_a_public_address_are_refused() {
    let dir = tempfile::tempdir().unwrap();
    for address in ["0.0.0.0:0", "[::]:0", "192.0.2.1:7411"] {
        refused(Serve::on(address, command(BINARY), dir.path()).arg("--dev"), &["--dev", "loopback", address]);
    }
    // Nor by way of the configuration.
    let serve = Serve::bare(command(BINARY), dir.path()).arg("--dev").env("FENCEPOST_SERVER__LISTEN", "0.0.0.0:0");
    refused(serve, &["loopback"]);
}

#[test]
fn a_second_server_on_the_same_directory_is_refused() {
    let dir = tempfile::tempdir().unwrap();
    let first = Serve::dev(dir.path()).start();
    refused(Serve::dev(dir.path()), &["in use by another Fencepost", dir.path().to_str().unwrap()]);
    first.acme().claim("INDEX_BUILD", &json!({"index_hash": "x"})).token();
    first.kill();
    // A lock dies with its holder: nothing has to be cleaned up after a crash.
    Serve::dev(dir.path()).start().acme().claim("INDEX_BUILD", &json!({"index_hash": "x"})).problem(409, "in-flight");
}

#[test]
fn an_address_that_is_taken_is_named() {
    let dir = tempfile::tempdir().unwrap();
    let taken = std::net::TcpListener::bind("127.0.0.1:0").unwrap();
    let address = taken.local_addr().unwrap().to_string();
    refused(Serve::on(&address, command(BINARY), dir.path()).arg("--dev"), &[&format!("cannot listen on {address}")]);
}

// Flips one bit of an acknowledged commit: behind its key, with whole commits after it.
fn damage(data: &Path, needle: &str) {
    let journal = fs::read_dir(data.join("db")).unwrap().map(|entry| entry.unwrap().path());
    let journal = journal.into_iter().find(|path| path.extension().is_some_and(|kind| kind == "jnl")).unwrap();
    let mut file = fs::File::options().read(true).write(true).open(journal).unwrap();
    let mut bytes = Vec::new();
    file.read_to_end(&mut bytes).unwrap();
    let at = bytes.windows(needle.len()).position(|window| window == needle.as_bytes()).unwrap();
    file.seek(SeekFrom::Start(at as u64)).unwrap();
    file.write_all(&[bytes[at] ^ 1]).unwrap();
}

#[test]
fn a_damaged_store_refuses_to_start_and_says_what_to_do() {
    let dir = tempfile::tempdir().unwrap();
    let server = Serve::dev(dir.path()).start();
    for number in 0..20 {
        server.acme().done(
            "INDEX_BUILD",
            &json!({"index_hash": format!("hash-number-{number:03}")}),
            "E",
            json!(number),
        );
    }
    server.kill();
    damage(dir.path(), "hash-number-007");
    for _ in 0..2 {
        refused(Serve::dev(dir.path()), &["damaged", "Nothing was changed", "backup"]);
    }
    // The bit flipped back: the refusals changed nothing.
    damage(dir.path(), "iash-number-007");
    let server = Serve::dev(dir.path()).start();
    assert_eq!(server.acme().claim("INDEX_BUILD", &json!({"index_hash": "hash-number-019"})).ok(200)["receipt"], 19);
}

#[test]
fn an_unknown_key_in_the_configuration_is_refused_with_the_nearest_known_name() {
    let dir = tempfile::tempdir().unwrap();
    let config = dir.path().join("fencepost.yml");
    for (text, words) in [
        ("server: { lisen: 127.0.0.1:0 }\n", &["lisen", "listen"][..]),
        ("scopes:\n  X: { key: [id], retian: 7d }\n", &["retian", "retain"]),
        ("serverr: {}\n", &["serverr", "server"]),
        ("server: [\n", &["fencepost.yml"]),
    ] {
        fs::write(&config, text).unwrap();
        let words = [words, &["fencepost.yml", "1"]].concat();
        refused(Serve::dev(&dir.path().join("data")).arg("--config").arg(&config), &words);
    }
    refused(
        Serve::dev(&dir.path().join("data")).env("FENCEPOST_SERVER__LOG__LEVLE", "warn"),
        &["LEVLE", "FENCEPOST_SERVER__LOG__LEVEL?"],
    );
    refused(Serve::dev(&dir.path().join("data")).arg("--config").arg("/no/such/file.yml"), &["/no/such/file.yml"]);
}

#[test]
fn variables_that_are_no_text_are_refused_by_name_where_they_are_ours_and_no_matter_elsewhere() {
    let dir = tempfile::tempdir().unwrap();
    let bytes = OsStr::from_bytes(b"\xff\xfe");
    let mut other = command(BINARY);
    other.env("SOMETHING_ELSE", bytes);
    Serve::under(other, &dir.path().join("data")).arg("--dev").start().kill();
    let mut ours = command(BINARY);
    ours.env("FENCEPOST_SERVER__LOG__LEVEL", bytes);
    refused(Serve::under(ours, &dir.path().join("data")).arg("--dev"), &["FENCEPOST_SERVER__LOG__LEVEL", "UTF-8"]);
}

#[test]
fn a_scope_of_the_configuration_replaces_the_built_in_of_the_same_name() {
    let server = dev_with(
        "scopes:\n  INDEX_BUILD: { key: [index, day], allow_fields: { day: a business day } }\n  OWN: { key: [id] }\n",
    );
    let mut acme = server.acme();
    acme.claim("INDEX_BUILD", &json!({"index_hash": "x"})).problem(400, "wrong-key-fields");
    acme.claim("INDEX_BUILD", &json!({"index": "x", "day": "2026-01-01"})).token();
    acme.claim("OWN", &json!({"id": 1})).token();
    acme.claim("BOOKING", &json!({"caseUrn": "a", "waveUrn": "b", "groupId": "c"})).token();
}

#[test]
fn a_data_directory_that_cannot_be_one_is_named() {
    let dir = tempfile::tempdir().unwrap();
    let file = dir.path().join("file");
    fs::write(&file, "not a directory").unwrap();
    refused(Serve::dev(&file), &[file.to_str().unwrap()]);
}
