//! Tests the document pipeline end to end: real processes and the real binary, its log and its metrics.

use std::process::Command;

use fencepost_examples::{documents::Stage, http::until};
use serde_json::{Value, json};

const DOCUMENTS: &str = env!("CARGO_BIN_EXE_documents");
const TEXT: &str = "one two three four five six seven eight nine ten";

fn stage() -> Stage {
    Stage::start(DOCUMENTS.into(), false).unwrap()
}

fn ids(told: &Value) -> Vec<String> {
    let ids = told["receipt"]["snippet_ids"].as_array().unwrap();
    ids.iter().map(|id| id.as_str().unwrap().to_owned()).collect()
}

#[test]
fn the_whole_story_has_every_effect_once_and_without_fences_too_often() {
    for (arguments, once) in [(&[][..], true), (&["--without-fence"][..], false)] {
        let output = Command::new(DOCUMENTS).args(arguments).output().unwrap();
        let told = String::from_utf8_lossy(&output.stdout).into_owned();
        assert_eq!(output.status.success(), once, "{told}{}", String::from_utf8_lossy(&output.stderr));
        for words in ["snippets", "indexes"] {
            let line = told.lines().rev().find(|line| line.starts_with(words)).unwrap();
            let numbers: Vec<u64> = line.split_whitespace().skip(1).map(|number| number.parse().unwrap()).collect();
            assert_eq!(numbers[1] == numbers[0], once, "{told}");
            assert!(numbers[1] >= numbers[0] && numbers[2] > numbers[0], "{told}");
        }
    }
}

#[test]
fn the_same_content_has_the_same_snippet_ids_also_after_a_crash() {
    let stage = stage();
    let document = stage.document("a.txt", TEXT).unwrap();
    stage.kill("ingest", &[&document], "acted").unwrap();
    assert_eq!(stage.snippets(), 2);
    let first = stage.run("ingest", &[&document]).unwrap().unwrap();
    let second = stage.run("ingest", &[&document]).unwrap().unwrap();
    assert_eq!((&first["replayed"], &second["replayed"]), (&json!(false), &json!(true)));
    assert_eq!((ids(&first).len(), ids(&first)), (2, ids(&second)));
    assert_eq!(stage.snippets(), 2);
    // Other content is another effect; the first content still has its own ids.
    let changed = stage.document("a.txt", "eleven twelve").unwrap();
    let third = stage.run("ingest", &[&changed]).unwrap().unwrap();
    assert_ne!(ids(&third), ids(&first));
    let document = stage.document("a.txt", TEXT).unwrap();
    assert_eq!(ids(&stage.run("ingest", &[&document]).unwrap().unwrap()), ids(&first));
    assert_eq!(stage.snippets(), 3);
}

#[test]
fn an_index_is_built_once_per_hash_and_an_alias_moves_to_a_sealed_one_only() {
    let stage = stage();
    let document = stage.document("a.txt", TEXT).unwrap();
    stage.run("ingest", &[&document]).unwrap().unwrap();
    let refused = |told: Result<Value, String>| told.unwrap_err().contains("not-sealed");
    assert!(refused(stage.run("swap", &["search"]).unwrap()));
    stage.kill("build", &[], "claimed").unwrap();
    assert_eq!(stage.builds().1, 0);
    stage.kill("build", &[], "acted").unwrap();
    // The builder built the index and died before it sealed: the alias still has nothing to point at.
    assert_eq!(stage.builds().1, 1);
    assert!(refused(stage.run("swap", &["search"]).unwrap()));
    assert!(stage.run("search", &["search", "three"]).unwrap().is_err());
    let files: Vec<Value> =
        stage.race(4, "build").unwrap().into_iter().map(|told| told.unwrap()["receipt"]["file"].clone()).collect();
    assert!(files.iter().all(|file| *file == files[0] && file.is_string()), "{files:?}");
    assert_eq!(stage.builds(), (6, 1));
    stage.run("swap", &["search"]).unwrap().unwrap();
    let found = stage.run("search", &["search", "three"]).unwrap().unwrap();
    assert_eq!(found.as_array().unwrap().len(), 1);
    // New content is a new hash. Readers stay with the old index until the new one is sealed.
    let more = stage.document("b.txt", "three is company").unwrap();
    stage.run("ingest", &[&more]).unwrap().unwrap();
    assert!(refused(stage.run("swap", &["search"]).unwrap()));
    assert_eq!(stage.run("search", &["search", "three"]).unwrap().unwrap(), found);
    stage.run("build", &[]).unwrap().unwrap();
    stage.run("swap", &["search"]).unwrap().unwrap();
    assert_eq!(stage.run("search", &["search", "three"]).unwrap().unwrap().as_array().unwrap().len(), 2);
    assert_eq!(stage.builds().1, 2);
}

/// The value of the metric whose name and labels contain all of these.
fn figure(metrics: &str, parts: &[&str]) -> f64 {
    let line = metrics.lines().find(|line| parts.iter().all(|part| line.contains(part)));
    line.and_then(|line| line.rsplit(' ').next()?.parse().ok()).unwrap_or_else(|| panic!("no {parts:?} in {metrics}"))
}

#[tokio::test]
async fn every_decision_is_logged_and_counted_as_the_seed_asks() {
    let stage = stage();
    let document = stage.document("a.txt", TEXT).unwrap();
    let first = stage.run("ingest", &[&document]).unwrap().unwrap();
    for _ in 0..2 {
        stage.run("ingest", &[&document]).unwrap().unwrap();
    }
    let refused = stage.run("ingest", &["--words", "3", &document]).unwrap().unwrap_err();
    assert!(refused.contains("/words"), "{refused}");
    let metrics = stage.metrics().await.unwrap();
    let drops = figure(&metrics, &["fencepost_duplicate_drops_total", "POST /v1/fences/claim", "acme"]);
    assert_eq!(drops, 2.0);
    let ingest = "scope=\"DOCUMENT_INGEST\"";
    assert_eq!(figure(&metrics, &["fencepost_first_seen_to_seal_seconds_count", ingest]), 1.0);
    assert_eq!(figure(&metrics, &["fencepost_decisions_total", ingest, "\"conflict\"", "acme"]), 1.0);
    assert_eq!(figure(&metrics, &["fencepost_conflict_diff_operations_count"]), 1.0);
    assert_eq!(figure(&metrics, &["fencepost_conflict_diff_operations_sum"]), 1.0);
    // A thread of its own writes the log, a little later.
    let lines = until("the log", async || {
        let lines = stage.log();
        Ok(lines.iter().any(|line| line["decision"] == "conflict").then_some(lines))
    });
    let lines = lines.await.unwrap();
    let told = |decision: &str| lines.iter().filter(|line| line["decision"] == decision).collect::<Vec<_>>();
    for (decision, count) in [("new", 1), ("sealed", 1), ("duplicate", 2), ("conflict", 1)] {
        let lines = told(decision);
        assert_eq!(lines.len(), count, "{decision}");
        for line in lines {
            assert_eq!(line["idempotency_key"].as_str().unwrap().len(), 64);
            assert_eq!((&line["tenant"], &line["source_type"]), (&json!("acme"), &json!("document")), "{line}");
        }
    }
    // Each line says what was acted on: the effect where there is one, the source where the request names it.
    for line in told("duplicate") {
        assert_eq!((&line["effect_id"], &line["source_id"]), (&first["effect_id"], &json!("a.txt")), "{line}");
    }
    assert_eq!(told("sealed")[0]["effect_id"], first["effect_id"]);
    assert_eq!((&told("new")[0]["source_id"], &told("conflict")[0]["source_id"]), (&json!("a.txt"), &json!("a.txt")));
}
