//! `fencepost check` for pipelines: exactly what each format prints of one small bad file, and several files at once.

use std::{fs, path::Path};

use serde_json::{Value, json};

use super::server::{BINARY, command, text};

const BAD: &str = "scopes:\n  X: { key: [order_id, sent_at] }\n  Y: { key: [id], retian: 7d }\n";
const TIME: &str = "`sent_at` looks like a time: a retry would carry another, and run again";
const TIME_FIX: &str = "use what the sender keeps over its retries, or say why it is stable: `allow_fields: { sent_at: reason }` in scope X";

// In the folder of the file, as a pipeline does: names stay short, and the output the same anywhere.
fn check(dir: &Path, args: &[&str]) -> (Option<i32>, String) {
    let output = command(BINARY).current_dir(dir).arg("check").args(args).output().unwrap();
    assert_eq!(text(&output.stderr), "", "nothing but findings");
    (output.status.code(), text(&output.stdout))
}

fn bad() -> tempfile::TempDir {
    let dir = tempfile::tempdir().unwrap();
    fs::write(dir.path().join("p.yml"), BAD).unwrap();
    dir
}

#[test]
fn people_read_the_place_the_mistake_and_the_fix() {
    let (code, said) = check(bad().path(), &["p.yml"]);
    let expected = format!(
        "p.yml:2:24: error: {TIME}\n  fix: {TIME_FIX}\n\
         p.yml:3:19: error: unknown key `retian` in scope Y\n  fix: did you mean `retain`?\n\
         1 file checked: 2 errors, 0 other findings\n"
    );
    assert_eq!((code, said), (Some(1), expected));
}

#[test]
fn github_gets_one_command_a_finding() {
    let (code, said) = check(bad().path(), &["--format", "github", "p.yml"]);
    let expected = format!(
        "::error file=p.yml,line=2,col=24,title=time-in-key::{TIME}%0Afix: {TIME_FIX}\n\
         ::error file=p.yml,line=3,col=19,title=unknown-key::unknown key `retian` in scope Y%0Afix: did you mean `retain`?\n"
    );
    assert_eq!((code, said), (Some(1), expected));
}

#[test]
fn code_scanning_gets_a_whole_sarif_log() {
    let (code, said) = check(bad().path(), &["--format", "sarif", "p.yml"]);
    let help = "https://fencepost.dev/guides/policy#what-check-looks-for";
    let rule = |id: &str, about: &str| json!({"id": id, "shortDescription": {"text": about}, "helpUri": help});
    let result = |index: usize, id: &str, line: u32, col: u32, said: String| {
        let region = json!({"startLine": line, "startColumn": col});
        let place = json!({"physicalLocation": {"artifactLocation": {"uri": "p.yml"}, "region": region}});
        json!({"ruleId": id, "ruleIndex": index, "level": "error", "message": {"text": said}, "locations": [place]})
    };
    let log: Value = serde_json::from_str(&said).unwrap();
    let expected = json!({
        "$schema": "https://docs.oasis-open.org/sarif/sarif/v2.1.0/errata01/os/schemas/sarif-schema-2.1.0.json",
        "version": "2.1.0",
        "runs": [{
            "tool": {"driver": {
                "name": "fencepost",
                "version": env!("CARGO_PKG_VERSION"),
                "informationUri": "https://fencepost.dev",
                "rules": [
                    rule("time-in-key", "A key field named like a time"),
                    rule("unknown-key", "A name that is not known here"),
                ],
            }},
            "columnKind": "unicodeCodePoints",
            "results": [
                result(0, "time-in-key", 2, 24, format!("{TIME}\nfix: {TIME_FIX}")),
                result(1, "unknown-key", 3, 19, "unknown key `retian` in scope Y\nfix: did you mean `retain`?".into()),
            ],
        }],
    });
    assert_eq!((code, log), (Some(1), expected));
}

#[test]
fn several_files_are_judged_in_one_run_and_one_that_cannot_be_read_hides_none() {
    let dir = bad();
    fs::write(dir.path().join("good.yml"), "scopes:\n  Z: { key: [id] }\n").unwrap();
    fs::write(dir.path().join("latin.yml"), b"scopes: {\"caf\xe9\": {key: [id]}}\n").unwrap();
    let (code, said) = check(dir.path(), &["--format", "json", "none.yml", "good.yml", "latin.yml", "p.yml"]);
    let told: Value = serde_json::from_str(&said).unwrap();
    let found: Vec<(&str, &str)> = told["findings"]
        .as_array()
        .unwrap()
        .iter()
        .map(|row| (row["file"].as_str().unwrap(), row["rule"].as_str().unwrap()))
        .collect();
    assert_eq!(code, Some(1));
    assert_eq!(
        found,
        [("none.yml", "unreadable"), ("latin.yml", "unreadable"), ("p.yml", "time-in-key"), ("p.yml", "unknown-key")]
    );
    assert_eq!(check(dir.path(), &["--format", "github", "good.yml"]), (Some(0), String::new()));
}
