//! The other commands: check, why, doctor, and help that teaches.

use std::path::Path;

use serde_json::{Value, json};

use super::server::{Server, dev, fencepost, text};

const ROOT: &str = concat!(env!("CARGO_MANIFEST_DIR"), "/../..");

fn check(dir: &Path, policy: &str) -> (Option<i32>, String) {
    let file = dir.join("policy.yml");
    std::fs::write(&file, policy).unwrap();
    let output = fencepost(["check", file.to_str().unwrap()]);
    (output.status.code(), text(&output.stdout))
}

#[test]
fn check_ends_with_1_on_an_error_and_0_on_a_warning() {
    let dir = tempfile::tempdir().unwrap();
    let (code, said) = check(dir.path(), "scopes:\n  X: { key: [order_id, sent_at] }\n");
    assert_eq!(code, Some(1), "a time in a key: {said}");
    assert!(said.contains("sent_at") && said.contains("policy.yml:2"), "{said}");
    let (code, said) = check(dir.path(), "scopes:\n  X: { key: [order_id], retain: 1h, horizon: 1d }\n");
    assert_eq!(code, Some(1), "a retention under the horizon: {said}");
    let (code, said) = check(dir.path(), "scopes:\n  X: { key: [order_id, requestedAtBucket] }\n");
    assert_eq!(code, Some(0), "a bucketed time is a warning: {said}");
    assert!(said.contains("requestedAtBucket"), "{said}");
    let (code, said) = check(dir.path(), "scopes:\n  X: { key: [order_id] }\n");
    assert_eq!(code, Some(0), "{said}");
    assert_eq!(fencepost(["check", "/no/such/file.yml"]).status.code(), Some(1));
    let file = dir.path().join("policy.yml");
    let output = fencepost(["check", "--format", "json", file.to_str().unwrap()]);
    let told: Value = serde_json::from_slice(&output.stdout).unwrap();
    assert_eq!((&told["errors"], &told["findings"]), (&json!(0), &json!([])));
}

#[test]
fn every_contract_of_the_house_passes_check() {
    for entry in std::fs::read_dir(format!("{ROOT}/contracts")).unwrap() {
        let path = entry.unwrap().path();
        if path.extension().is_some_and(|kind| kind == "yml") {
            let output = fencepost([Path::new("check"), &path]);
            assert!(output.status.success(), "{}: {}", path.display(), text(&output.stdout));
        }
    }
}

fn why(server: &Server, args: &[&str]) -> (Option<i32>, String) {
    let output = fencepost([&["why"], args, &["--url", &server.url()]].concat());
    (output.status.code(), text(&output.stdout) + &text(&output.stderr))
}

#[test]
fn why_tells_a_sealed_key_from_an_unknown_one() {
    let server = dev();
    server.acme().done("INDEX_BUILD", &json!({"index_hash": "9f2c"}), "IDX-1", json!(1));
    server.acme().claim("INDEX_BUILD", &json!({"index_hash": "9f2c"})).ok(200);
    let (code, said) = why(&server, &["INDEX_BUILD", "index_hash=9f2c"]);
    assert_eq!(code, Some(0), "{said}");
    for word in ["sealed", "IDX-1", "acme", "duplicate", "nothing runs"] {
        assert!(said.contains(word), "{word}:\n{said}");
    }
    let (code, said) = why(&server, &["INDEX_BUILD", "index_hash=other"]);
    assert_eq!(code, Some(2), "{said}");
    assert!(said.contains("Not found") && said.contains("--tenant"), "whose it would be was only guessed: {said}");
    let (code, said) = why(&server, &["INDEX_BUILD", "index_hash=other", "--tenant", "acme"]);
    assert_eq!(code, Some(2), "{said}");
    assert!(said.contains("Unknown: never claimed"), "{said}");
    let (code, said) = why(&server, &["INDEX_BUILD", "index_hash=other", "--json"]);
    assert_eq!((code, said.trim()), (Some(2), r#"{"exists":false}"#));
    server.acme().claim("INDEX_BUILD", &json!({"index_hash": "a=b & c"})).token();
    let (code, said) = why(&server, &["INDEX_BUILD", "index_hash=a=b & c"]);
    assert_eq!(code, Some(0), "{said}");
    assert!(said.contains("holds the claim"), "{said}");
    let (code, said) = why(&server, &["INDEX_BUILD", "index_hash=9f2c", "--json"]);
    assert_eq!((code, &serde_json::from_str::<Value>(&said).unwrap()["resultUrn"]), (Some(0), &json!("IDX-1")));
}

#[test]
fn why_says_what_went_wrong() {
    let server = dev();
    for (args, word) in [
        (&["NO_SUCH", "a=b"][..], "NO_SUCH"),
        (&["BOOKING", "caseUrn=x"], "waveUrn"),
        (&["INDEX_BUILD", "index_hash"], "FIELD=VALUE"),
        (&["INDEX_BUILD", "index_hash=x", "--token", "wrong"], "401"),
    ] {
        let (code, said) = why(&server, args);
        assert!(code == Some(1) && said.contains(word), "{args:?}: {code:?} {said}");
    }
    let output = fencepost(["why", "INDEX_BUILD", "index_hash=x", "--url", "http://127.0.0.1:1"]);
    assert_eq!(output.status.code(), Some(1));
    assert!(text(&output.stderr).contains("is the server running?"));
}

#[test]
fn doctor_looks_at_the_machine_and_the_server() {
    let server = dev();
    let data = server.dir.path().join("data");
    let files = || -> Vec<_> { std::fs::read_dir(&data).unwrap().map(|entry| entry.unwrap().file_name()).collect() };
    let before = files();
    let output = fencepost(["doctor", "--data", data.to_str().unwrap(), "--url", &server.url()]);
    let said = text(&output.stdout);
    for word in ["disk", "sync", "clock", "open files", "server", "is ready"] {
        assert!(said.contains(word), "{word}:\n{said}");
    }
    assert_eq!(output.status.success(), !said.contains("BAD"), "{said}");
    assert_eq!(files(), before, "it leaves nothing behind");
}

#[test]
fn help_teaches_with_examples() {
    let help = fencepost(["--help"]);
    assert!(help.status.success());
    let said = text(&help.stdout);
    for word in ["Examples:", "fencepost serve --dev", "fencepost check", "fencepost why"] {
        assert!(said.contains(word), "{word}:\n{said}");
    }
    for command in ["serve", "check", "why", "credential", "doctor"] {
        assert!(said.contains(command), "{command}:\n{said}");
        let said = text(&fencepost([command, "--help"]).stdout);
        assert!(said.contains("Example") && said.contains(&format!("fencepost {command}")), "{command}:\n{said}");
    }
    let said = text(&fencepost(["serve", "--print-defaults"]).stdout);
    assert!(said.contains("listen: 127.0.0.1:7411") && said.contains('#'), "{said}");
    assert_eq!(fencepost(["explode"]).status.code(), Some(2));
    assert!(text(&fencepost(["--version"]).stdout).starts_with("fencepost "));
}
