//! The built-in defaults and contracts pass their own check and say what they should.

use fencepost_kernel::fence::scope::{BodyMismatch, OnLapse, RequiredDurability, VersionRule};

use super::*;

const DAY_MS: u64 = 24 * 3_600_000;

#[test]
fn builtin_passes_its_own_check() {
    let policy = Policy::builtin();
    assert_eq!(policy.findings, []);
    assert!(policy.identities.is_empty() && policy.routes.is_empty());
    assert_eq!(check::check("defaults.yml", DEFAULTS), []);
}

#[test]
fn every_contract_passes_check_with_no_more_than_warnings() {
    for (name, text) in CONTRACTS {
        let findings = check::check(name, text);
        let warned: Vec<&str> = findings.iter().map(|f| f.rule).collect();
        let expected: &[&str] = if name.contains("nexa") { &["bucket-in-key"] } else { &[] };
        assert_eq!(warned, expected, "{}", finding::human(&findings));
    }
}

#[test]
fn every_scope_of_the_contracts_has_its_key() {
    let policy = Policy::builtin();
    let expected: [(&str, &[&str]); 18] = [
        ("AGENT_RUN", &["itemUrn", "runSeq"]),
        ("ALLOCATION_WAVE", &["caseUrn", "demandRequestUrn", "waveSeq"]),
        ("ANSWER_DIGEST", &["idempotency_key", "token"]),
        ("API_WRITE", &["method", "path", "idempotency_key"]),
        ("BATCH_JOB", &["source_type", "source_id", "revision", "index_hash", "action"]),
        ("BOOKING", &["caseUrn", "waveUrn", "groupId"]),
        ("CASE_CREATION", &["externalEventId"]),
        ("DEMAND_REQUEST", &["caseUrn", "type", "requestedAtBucket"]),
        ("DOCUMENT_INGEST", &["doc_id", "content_hash"]),
        ("INDEX_BUILD", &["index_hash"]),
        ("NOTIFICATION", &["groupId", "type", "channel", "reservationUrn"]),
        ("PAYMENT_TOKENIZATION", &["caseUrn", "reservationUrn"]),
        ("QUEUE_MESSAGE", &["topic", "partition", "message_key", "dedupe_id"]),
        ("SIGNED_DELIVERY", &["rule", "digest"]),
        ("WEBHOOK", &["provider", "event_id", "event_version", "action"]),
        ("WES_DISPATCH", &["correlation_id"]),
        ("WES_EXECUTE", &["planner_id", "correlation_id"]),
        ("WMS_INGEST", &["correlation_id"]),
    ];
    assert_eq!(policy.scopes.len(), expected.len());
    for ((name, scope), (expected_name, key)) in policy.scopes.iter().zip(expected) {
        assert_eq!((name.as_str(), scope.name.as_ref()), (expected_name, expected_name));
        assert_eq!(scope.key, key, "{name}");
    }
}

#[test]
fn the_contracts_say_what_is_special_about_a_scope() {
    let policy = Policy::builtin();
    let scope = |name: &str| policy.scopes[name].as_ref();
    assert_eq!(scope("CASE_CREATION").body_mismatch, BodyMismatch::Replay);
    assert_eq!(scope("BOOKING").body_mismatch, BodyMismatch::Refuse);
    assert_eq!(scope("BOOKING").again.as_deref(), Some("rebookSeq"));
    assert_eq!(scope("BOOKING").lease_ms, 60_000);
    assert_eq!(scope("BOOKING").durability, RequiredDurability::Store);
    assert_eq!(scope("NOTIFICATION").again.as_deref(), Some("resendSeq"));
    assert_eq!(scope("PAYMENT_TOKENIZATION").on_lapse, OnLapse::Hold);
    assert_eq!(scope("AGENT_RUN").on_lapse, OnLapse::Recover);
    let version = VersionRule { field: "event_version".into(), per: vec!["provider".into(), "source".into()] };
    assert_eq!(scope("WEBHOOK").version, Some(version));
    for (name, days) in
        [("BOOKING", 7), ("WEBHOOK", 14), ("QUEUE_MESSAGE", 14), ("API_WRITE", 2), ("BATCH_JOB", 3), ("WMS_INGEST", 30)]
    {
        assert_eq!(scope(name).retain_ms, days * DAY_MS, "{name}");
    }
}

#[test]
fn the_defaults_are_those_that_are_documented() {
    let server = Policy::builtin().server;
    assert_eq!(server.listen.to_string(), "127.0.0.1:7411");
    assert_eq!(server.data.to_str(), Some("./fencepost-data"));
    assert_eq!((server.limits.request_bytes_max, server.limits.header_bytes_max), (4 << 20, 16 << 10));
    assert_eq!((server.limits.connections_max, server.limits.waiters_max), (4_096, 10_000));
    assert_eq!((server.limits.wait_max.as_secs(), server.limits.batch_commands_max), (60, 1_000));
    assert_eq!(server.tls, None);
    let ingest = Policy::builtin().ingest;
    assert_eq!((ingest.auto_release, ingest.bulk_async_threshold), (false, 5_000));
    assert_eq!(ingest.quarantine_retain_ms, 30 * DAY_MS);
}

#[test]
fn every_example_of_the_guide_passes_check() {
    let guide = include_str!("../../../../docs/guides/policy.md");
    let examples: Vec<&str> = guide.split("```yaml\n").skip(1).filter_map(|rest| rest.split("```").next()).collect();
    assert_eq!(examples.len(), 5);
    for example in examples {
        let findings = check::check("policy.md", example);
        assert!(findings.iter().all(|f| f.severity == Severity::Note), "{}", finding::human(&findings));
    }
}
