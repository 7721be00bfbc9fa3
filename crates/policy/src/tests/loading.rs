//! Layers: defaults, contracts, the file and the environment, laid over each other.

use fencepost_kernel::fence::scope::{BodyMismatch, RequiredDurability};

use super::settings::FenceStore;
use super::*;

const DAY_MS: u64 = 24 * 3_600_000;

fn shown(findings: &[Finding]) -> Vec<String> {
    findings.iter().map(ToString::to_string).collect()
}

#[test]
fn the_ci_template_is_valid_as_it_stands() {
    let policy = policy(TEMPLATE);
    assert_eq!(rules(&policy.findings), ["6 note store-url"]);
    assert_eq!(policy.require_headers, ["Idempotency-Key"]);
    assert!(policy.reject_on_body_mismatch && policy.on_conflict.include_diff);
    assert_eq!((policy.stores.fence, &policy.stores.url), (FenceStore::Redis, &None));
    assert_eq!(policy.on_conflict.status, 409);
    assert_eq!(policy.logging.include_fields.len(), 5);
    for (name, ms) in [("WEBHOOK", 14 * DAY_MS), ("API_WRITE", 2 * DAY_MS), ("BATCH_JOB", 3 * DAY_MS)] {
        assert_eq!(policy.scopes[name].retain_ms, ms, "{name}");
    }
}

#[test]
fn stores_ttl_sets_the_retention_of_three_scopes_and_no_other() {
    let policy = policy("stores: {ttl: {webhook_days: 8, api_hours: 72, batch_days: 4}}\n");
    let retain = |name: &str| policy.scopes[name].retain_ms / 3_600_000;
    assert_eq!((retain("WEBHOOK"), retain("API_WRITE"), retain("BATCH_JOB")), (8 * 24, 72, 4 * 24));
    assert_eq!((retain("QUEUE_MESSAGE"), retain("BOOKING")), (14 * 24, 7 * 24));
}

#[test]
fn a_scope_without_retain_gets_seven_days_and_a_queue_fourteen() {
    let policy = policy("scopes: {MINE: {key: [a]}, QUEUE_MESSAGE: {key: [a]}, API_WRITE: {key: [a]}}\n");
    let retain = |name: &str| policy.scopes[name].retain_ms / DAY_MS;
    assert_eq!((retain("MINE"), retain("QUEUE_MESSAGE"), retain("API_WRITE")), (7, 14, 2));
}

#[test]
fn a_configured_scope_replaces_the_built_in_whole() {
    let policy = policy("scopes: {BOOKING: {key: [orderId], retain: 2d}}\n");
    let booking = &policy.scopes["BOOKING"];
    assert_eq!((booking.key.as_slice(), booking.again.as_deref()), (["orderId".to_owned()].as_slice(), None));
    assert_eq!(booking.retain_ms, 2 * DAY_MS);
    assert!(policy.scopes.contains_key("NOTIFICATION"));
}

#[test]
fn the_policys_body_rule_counts_where_a_scope_has_none() {
    let policy = policy(
        "reject_on_body_mismatch: false\nscopes: {A: {key: [x]}, B: {key: [x], reject_on_body_mismatch: true}}\n",
    );
    assert_eq!(policy.scopes["A"].body_mismatch, BodyMismatch::Replay);
    assert_eq!(policy.scopes["BOOKING"].body_mismatch, BodyMismatch::Replay);
    assert_eq!(policy.scopes["B"].body_mismatch, BodyMismatch::Refuse);
}

#[test]
fn a_scope_demands_no_more_durability_than_it_says() {
    let policy = policy("scopes: {A: {key: [id], durability: synced}}\n");
    assert_eq!(policy.scopes["A"].durability, RequiredDurability::Synced);
    assert_eq!(policy.scopes["BOOKING"].durability, RequiredDurability::Store);
}

#[test]
fn every_mistake_of_a_file_is_found_in_one_run() {
    let text = "retian: 1\nscopes:\n  A: {key: [x], leese: 1s}\n  B: {key: x}\nserver: {listen: nowhere, limits: {waiters_max: -1}}\nstores: {fence: mysql}\n";
    let findings = Policy::parse("p.yml", text).unwrap_err();
    let lines: Vec<u32> = findings.iter().map(|f| f.line).collect();
    assert_eq!(lines, [1, 3, 4, 5, 5, 6], "{}", finding::human(&findings));
}

#[test]
fn a_finding_names_file_line_column_and_the_nearest_key() {
    let findings = Policy::parse("dir/p.yml", "scopes:\n  A:\n    key: [x]\n    on_laps: hold\n").unwrap_err();
    assert_eq!(
        shown(&findings),
        ["dir/p.yml:4:5: error: unknown key `on_laps` in scope A\n  fix: did you mean `on_lapse`?"]
    );
}

#[test]
fn sections_that_this_release_does_not_serve_are_errors() {
    let findings = Policy::parse("p.yml", "retention: {}\nwarehouses: {}\n").unwrap_err();
    assert_eq!(rules(&findings), ["1 error unserved", "2 error unserved"]);
}

fn with_variables(file: Option<&str>, pairs: &[(&str, &str)]) -> Result<Policy, Vec<Finding>> {
    let pairs = pairs.iter().map(|(name, value)| ((*name).to_owned(), (*value).to_owned()));
    Policy::load(file.map(|text| ("p.yml", text)), pairs)
}

#[test]
fn a_variable_wins_over_the_file_and_the_file_over_the_defaults() {
    let file = "server: {listen: \"127.0.0.1:1\", shutdown_grace: 5s}\nstores: {ttl: {api_hours: 30}}\n";
    let pairs = [
        ("FENCEPOST_SERVER__LISTEN", "127.0.0.1:2"),
        ("FENCEPOST_SERVER__LIMITS__REQUEST_BYTES_MAX", "1MiB"),
        ("FENCEPOST_REQUIRE_HEADERS", "[Idempotency-Key]"),
        ("FENCEPOST_STORES__TTL__API_HOURS", "72"),
    ];
    let policy = with_variables(Some(file), &pairs).unwrap();
    assert_eq!(policy.server.listen.port(), 2);
    assert_eq!(policy.server.shutdown_grace.as_secs(), 5);
    assert_eq!(policy.server.limits.request_bytes_max, 1 << 20);
    assert_eq!(policy.server.limits.body_timeout.as_secs(), 30);
    assert_eq!(policy.require_headers, ["Idempotency-Key"]);
    assert_eq!(policy.scopes["API_WRITE"].retain_ms, 3 * DAY_MS);
}

#[test]
fn a_wrong_variable_is_named_whole() {
    for (name, value, part) in [
        ("FENCEPOST_SERVER__LISEN", "x", "did you mean FENCEPOST_SERVER__LISTEN?"),
        ("FENCEPOST_SERVER__LISTEN", "x", "FENCEPOST_SERVER__LISTEN: error: `listen`"),
        ("FENCEPOST_SERVER__LISTEN", "", "`listen` is empty"),
        ("FENCEPOST_SERVER_LISTEN", "x", "FENCEPOST_SERVER_LISTEN: error: this variable sets nothing"),
        ("FENCEPOST_SERVER__LIMITS__WAIT_MAXX", "1s", "did you mean FENCEPOST_SERVER__LIMITS__WAIT_MAX?"),
    ] {
        let findings = with_variables(None, &[(name, value)]).unwrap_err();
        assert!(shown(&findings).iter().any(|f| f.contains(part)), "{name}: {findings:?}");
    }
}

#[test]
fn line_ends_marks_of_order_and_other_scripts_are_read() {
    for text in [
        "scopes:\r\n  A:\r\n    key: [x]\r\n",
        "\u{feff}scopes: {A: {key: [x]}}\n",
        "# Größe\nscopes: {A: {key: [größe]}}\n",
    ] {
        assert!(policy(text).scopes.contains_key("A"), "{text:?}");
    }
    let findings = Policy::parse("p.yml", "scopes: {A: {key: [größe], źle: 1}}\n").unwrap_err();
    assert_eq!((findings[0].line, findings[0].col), (1, 28), "columns count characters");
}

#[test]
fn a_tab_or_a_torn_file_is_a_finding_with_a_line() {
    for text in
        ["scopes:\n\tA: {key: [x]}\n", "scopes: {A: {key: [x\n", "scopes: \"A\n", "\u{0}", "a: b: c\n", "%YAML 9\n"]
    {
        let findings = Policy::parse("p.yml", text).unwrap_err();
        assert!(findings.iter().all(|f| f.line > 0 && f.file == "p.yml"), "{text:?}: {findings:?}");
    }
}

#[test]
fn buffers_that_hold_fewer_than_eight_of_the_largest_requests_are_refused() {
    let limits = |text: &str| Policy::parse("p.yml", &format!("server: {{limits: {{{text}}}}}"));
    let findings = limits("request_bytes_max: 64MiB").unwrap_err();
    assert!(
        findings[0].rule == "buffers-too-small" && findings[0].message.contains("buffered_bytes_max"),
        "{findings:?}"
    );
    assert!(limits("request_bytes_max: 64MiB, buffered_bytes_max: 512MiB").is_ok());
}
