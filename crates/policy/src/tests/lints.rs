//! Findings of `fencepost check`, and mistakes that are none.

use super::*;

/// Rules of a text.
fn found(text: &str) -> Vec<String> {
    let findings = check::check("p.yml", text);
    assert!(findings.iter().all(|f| f.fix.is_some()), "{findings:?}");
    findings.iter().map(|f| format!("{} {}", f.severity, f.rule)).collect()
}

/// Each rule has a policy that breaks it, and one next to it that does not.
#[track_caller]
pub fn rule(finding: &str, breaks: &str, keeps: &str) {
    assert_eq!(found(breaks), [finding], "{breaks}");
    assert_eq!(found(keeps), [""; 0], "{keeps}");
}

#[test]
fn a_time_in_a_key_is_an_error_unless_allowed() {
    rule(
        "error time-in-key",
        "scopes: {A: {key: [orderId, sent_at]}}",
        "scopes: {A: {key: [orderId, sent_at], allow_fields: {sent_at: \"set once by the device\"}}}",
    );
}

#[test]
fn a_random_value_in_a_key_is_an_error_unless_allowed() {
    rule(
        "error random-in-key",
        "scopes: {A: {key: [nonce]}}",
        "scopes: {A: {key: [nonce], allow_fields: {nonce: \"signed by the wallet, kept over retries\"}}}",
    );
}

#[test]
fn a_bucketed_time_is_a_warning() {
    rule(
        "warning bucket-in-key",
        "scopes: {A: {key: [orderId, requestedAtBucket]}}",
        "scopes: {A: {key: [orderId, externalEventId]}}",
    );
    assert!(!finding::has_errors(&check::check("p.yml", "scopes: {A: {key: [requestedAtBucket]}}")));
}

#[test]
fn an_allowance_needs_a_reason_and_a_field() {
    rule(
        "warning allow-unused",
        "scopes: {A: {key: [a], allow_fields: {b: \"why\"}}}",
        "scopes: {A: {key: [a], allow_fields: {a: \"why\"}}}",
    );
    rule("error wrong-type", "scopes: {A: {key: [a], allow_fields: {a: \"\"}}}", "scopes: {A: {key: [a]}}");
}

#[test]
fn a_scope_needs_key_fields_each_once_and_none_reserved() {
    rule("error no-key", "scopes: {A: {retain: 1d}}", "scopes: {A: {key: [a]}}");
    rule("error no-key", "scopes: {A: {key: []}}", "scopes: {A: {key: [a]}}");
    rule("error duplicate", "scopes: {A: {key: [a, a]}}", "scopes: {A: {key: [a, b]}}");
    rule("error reserved-field", "scopes: {A: {key: [a, tenant]}}", "scopes: {A: {key: [a, tenants]}}");
    rule("error scope-name", "scopes: {\"A B\": {key: [a]}}", "scopes: {A_B: {key: [a]}}");
}

#[test]
fn retention_covers_the_horizon_three_times() {
    rule(
        "error short-retention",
        "scopes: {A: {key: [a], retain: 5d, horizon: 2d}}",
        "scopes: {A: {key: [a], retain: 6d, horizon: 2d}}",
    );
}

#[test]
fn a_margin_says_otherwise() {
    rule(
        "error short-retention",
        "scopes: {A: {key: [a], retain: 3d, horizon: 3d, margin: 12h}}",
        "scopes: {A: {key: [a], retain: 84h, horizon: 3d, margin: 12h}}",
    );
    rule(
        "error short-retention",
        "scopes: {A: {key: [a], retain: 3d, horizon: 2d, margin: 1x}}",
        "scopes: {A: {key: [a], retain: 4d, horizon: 2d, margin: 1x}}",
    );
    rule("error wrong-value", "scopes: {A: {key: [a], margin: some}}", "scopes: {A: {key: [a], margin: 0x}}");
}

#[test]
fn a_ttl_that_is_too_short_for_its_scope_is_found_where_it_stands() {
    let text = "stores:\n  ttl: {webhook_days: 8}\nscopes: {WEBHOOK: {key: [event_id], horizon: 3d}}\n";
    let findings = check::check("p.yml", text);
    assert_eq!(rules(&findings), ["2 error short-retention"]);
}

#[test]
fn retentions_under_what_is_usual_are_warned_about() {
    rule("warning unusual-retention", "stores: {ttl: {webhook_days: 6}}", "stores: {ttl: {webhook_days: 7}}");
    rule("warning unusual-retention", "stores: {ttl: {api_hours: 23}}", "stores: {ttl: {api_hours: 24}}");
    rule("warning unusual-retention", "stores: {ttl: {batch_days: 1}}", "stores: {ttl: {batch_days: 2}}");
    rule(
        "warning unusual-retention",
        "scopes: {API_WRITE: {key: [a], retain: 2h}}",
        "scopes: {API_WRITE: {key: [a], retain: 2h, horizon: 30m}}",
    );
    // A batch's horizon is its run: a day more than that, whatever the margin.
    rule(
        "warning unusual-retention",
        "scopes: {BATCH_JOB: {key: [a], retain: 24h, horizon: 6h}}",
        "scopes: {BATCH_JOB: {key: [a], retain: 30h, horizon: 6h}}",
    );
}

#[test]
fn retentions_over_what_is_usual_are_noted() {
    rule("note long-retention", "stores: {ttl: {webhook_days: 15}}", "stores: {ttl: {webhook_days: 14}}");
    rule("note long-retention", "stores: {ttl: {api_hours: 73}}", "stores: {ttl: {api_hours: 72}}");
    rule(
        "note long-retention",
        "scopes: {WEBHOOK: {key: [event_id], retain: 30d}}",
        "scopes: {WEBHOOK: {key: [event_id], retain: 30d, horizon: 10d}}",
    );
}

#[test]
fn one_retention_said_in_two_places_is_warned_about() {
    rule(
        "warning two-retentions",
        "{stores: {ttl: {api_hours: 48}}, scopes: {API_WRITE: {key: [a], retain: 72h}}}",
        "{stores: {ttl: {api_hours: 48}}, scopes: {API_WRITE: {key: [a], retain: 2d}}}",
    );
}

#[test]
fn a_lease_stays_within_its_maximum() {
    rule(
        "error lease-over-max",
        "scopes: {A: {key: [a], lease: 2m, lease_max: 1m}}",
        "scopes: {A: {key: [a], lease: 1m, lease_max: 1m}}",
    );
    rule("error lease-over-max", "scopes: {A: {key: [a], lease: 48h}}", "scopes: {A: {key: [a], lease_max: 5s}}");
}

#[test]
fn a_version_is_made_of_key_fields() {
    rule(
        "error version-not-in-key",
        "scopes: {A: {key: [id, version], version: {field: revision, per: [id]}}}",
        "scopes: {A: {key: [id, version], version: {field: version, per: [id]}}}",
    );
    rule(
        "error version-not-in-key",
        "scopes: {A: {key: [id, version], version: {field: version, per: [shop]}}}",
        "scopes: {A: {key: [id, version], version: {field: version}}}",
    );
    rule(
        "error version-per-itself",
        "scopes: {A: {key: [id, version], version: {field: version, per: [version]}}}",
        "scopes: {A: {key: [id, version], version: {field: version, per: []}}}",
    );
    rule("error no-version-field", "scopes: {A: {key: [id], version: {per: [id]}}}", "scopes: {A: {key: [id]}}");
}

#[test]
fn a_sequence_is_not_part_of_the_key() {
    rule(
        "error again-in-key",
        "scopes: {A: {key: [id, resendSeq], again: {seq: resendSeq}}}",
        "scopes: {A: {key: [id], again: {seq: resendSeq}}}",
    );
    rule("error no-sequence", "scopes: {A: {key: [id], again: {}}}", "scopes: {A: {key: [id], again: {seq: n}}}");
}

#[test]
fn masks_are_pointers() {
    rule("error mask-pointer", "scopes: {A: {key: [id], mask: [card]}}", "scopes: {A: {key: [id], mask: [/card]}}");
    rule("error mask-pointer", "scopes: {A: {key: [id], mask: [/a~2]}}", "scopes: {A: {key: [id], mask: [/a~1b]}}");
}

#[test]
fn redis_is_refused_where_a_scope_demands_more() {
    rule(
        "note durability",
        "{stores: {fence: redis, url: \"redis://h\"}, scopes: {A: {key: [id], durability: synced}}}",
        "{stores: {fence: redis, url: \"redis://h\"}, scopes: {A: {key: [id], durability: store}}}",
    );
}

#[test]
fn a_store_without_an_address_is_a_note() {
    rule("note store-url", "stores: {fence: redis}", "stores: {fence: redis, url: \"redis://h:6379\"}");
    rule("note store-url", "stores: {fence: postgres}", "stores: {fence: embedded}");
}

#[test]
fn a_planner_needs_a_warehouse_and_everyone_a_credential() {
    let hash = "a".repeat(64);
    let holder = |more: &str| format!("identities: [{{id: p, roles: [planner]{more}}}]");
    rule(
        "warning no-warehouse",
        &holder(&format!(", credentials: [{hash}]")),
        &holder(&format!(", warehouses: all, credentials: [{hash}]")),
    );
    rule(
        "note no-credential",
        &holder(", warehouses: [w1]"),
        &holder(&format!(", warehouses: [w1], certificates: [{hash}]")),
    );
}

/// A file of routes under a scope with the key fields `id` and `kind`.
pub fn routes(rows: &[(&str, &str)]) -> String {
    let mut text = "scopes: {S: {key: [id, kind]}}\nroutes:\n".to_owned();
    for (pattern, rest) in rows {
        text += &format!("  - {{match: \"{pattern}\", upstream: \"http://h:1\", {rest}}}\n");
    }
    text
}

pub const KEY: &str = "scope: S, key: {id: \"body:/id\", kind: \"const:x\"}";

#[test]
fn a_route_names_a_scope_and_gives_exactly_its_fields() {
    let good = routes(&[("POST /a", KEY)]);
    let wrong = |rest: &str| routes(&[("POST /a", rest)]);
    rule("error unknown-scope", &wrong("scope: T, key: {id: \"body:/id\"}"), &good);
    rule("error key-incomplete", &wrong("scope: S, key: {id: \"body:/id\"}"), &good);
    rule(
        "error key-too-much",
        &wrong("scope: S, key: {id: \"body:/id\", kind: \"const:x\", more: \"query:m\"}"),
        &good,
    );
}

/// A receipt of these scopes is believed as Fencepost's own: an upstream's answer must never be one.
#[test]
fn a_route_under_a_scope_that_fencepost_seals_itself_is_an_error() {
    let of = |scope: &str| {
        let key = "{planner_id: \"body:/p\", correlation_id: \"body:/c\"}";
        routes(&[("POST /a", &format!("scope: {scope}, key: {key}"))])
    };
    for own in ["WES_DISPATCH", "WMS_INGEST", "SIGNED_DELIVERY", "ANSWER_DIGEST"] {
        assert!(is_own(own));
        rule("error own-scope", &of(own), &of("WES_EXECUTE"));
    }
}

#[test]
fn a_value_that_a_rule_puts_into_a_key_is_judged_by_its_name_too() {
    let put = |from: &str| routes(&[("POST /a", &format!("scope: S, key: {{id: \"{from}\", kind: \"const:x\"}}"))]);
    rule("error random-in-key", &put("header:X-Request-Id"), &put("header:X-Order-Key"));
    rule("error time-in-key", &put("body:/meta/createdAt"), &put("body:/meta/id"));
    rule("error time-in-key", &put("header:Date"), &put("header:X-Order"));
    rule("warning bucket-in-key", &put("query:hour"), &put("query:order"));
}

#[test]
fn a_path_field_is_bound_by_the_match() {
    let rest = "scope: S, key: {id: \"path:id\", kind: \"const:x\"}";
    rule("error path-name", &routes(&[("POST /a/{di}", rest)]), &routes(&[("POST /a/{id}", rest)]));
    for more in ["source: \"path:id\"", "source: \"body:/of\", order: \"path:id\""] {
        let rest = format!("{KEY}, {more}");
        rule("error path-name", &routes(&[("POST /a/{di}", &rest)]), &routes(&[("POST /a/{id}", &rest)]));
    }
}

#[test]
fn a_finding_about_order_or_source_stands_where_they_do() {
    let at = |more: &str| {
        let text = "scopes: {S: {key: [id]}}\nroutes:\n- match: POST /a\n  upstream: http://h:1\n  scope: S\n";
        rules(&check::check("p.yml", &format!("{text}  key: {{id: \"body:/id\"}}\n{more}\n")))
    };
    assert_eq!(at("  order: path:n\n  source: body:/of"), ["7 error path-name"]);
    assert_eq!(at("  order: body:/n\n  source: path:of"), ["8 error path-name"]);
    assert_eq!(at("  timeout: 1s\n  order: body:/n"), ["8 warning order-without-source"]);
}

#[test]
fn an_order_without_a_source_is_a_warning() {
    let with = |more: &str| routes(&[("POST /a", &format!("{KEY}, {more}"))]);
    let alone = with("order: \"body:/n\"");
    rule("warning order-without-source", &alone, &with("order: \"body:/n\", source: \"body:/of\""));
    // One lane may be meant.
    rule("warning order-without-source", &alone, &with("order: \"body:/n\", source: \"const:all\""));
}

#[test]
fn a_route_that_is_never_reached_is_an_error_and_an_overlap_a_warning() {
    let two = |first: &str, second: &str| routes(&[(first, KEY), (second, KEY)]);
    rule("error unreachable-route", &two("POST /{any}", "POST /a"), &two("POST /a", "POST /{any}"));
    rule("error unreachable-route", &two("POST /a", "POST /a"), &two("POST /a", "PUT /a"));
    rule("warning overlapping-routes", &two("POST /a/{x}", "POST /{y}/b"), &two("POST /a/{x}", "POST /c/b"));
}

#[test]
fn a_route_on_a_reading_method_is_a_warning() {
    rule("warning read-route", &routes(&[("GET /a", KEY)]), &routes(&[("DELETE /a", KEY)]));
}

#[test]
fn a_webhook_has_a_tenant_and_a_plain_route_none() {
    let verify = format!("{KEY}, verify: {{scheme: stripe, secrets: [long enough]}}");
    let named = format!("{verify}, tenant: stripe");
    rule("note no-tenant", &routes(&[("POST /a", &verify)]), &routes(&[("POST /a", &named)]));
    let plain = format!("{KEY}, tenant: stripe");
    rule("error tenant-without-verify", &routes(&[("POST /a", &plain)]), &routes(&[("POST /a", KEY)]));
}

#[test]
fn an_upstream_slower_than_the_lease_is_a_warning() {
    let slow = |timeout: &str| routes(&[("POST /a", &format!("{KEY}, timeout: {timeout}"))]);
    rule("warning lease-under-timeout", &slow("31s"), &slow("30s"));
    // The gateway's own timeout counts where the route has none.
    let long = |more: &str| format!("gateway: {{timeout: 31s}}\n{}", routes(&[("POST /a", &format!("{KEY}{more}"))]));
    rule("warning lease-under-timeout", &long(""), &long(", timeout: 5s"));
}

#[test]
fn findings_come_in_the_order_of_the_file() {
    let findings = check::check("p.yml", "scopes:\n  B: {key: [now]}\n  A: {key: [ts], lease: 0s}\n");
    assert_eq!(rules(&findings), ["2 error time-in-key", "3 error time-in-key", "3 error wrong-value"]);
}

#[test]
fn an_executor_without_planners_is_a_warning() {
    let hash = "a".repeat(64);
    let executor = |rest: &str| {
        format!("identities: [{{id: x, roles: [executor], warehouses: all, credentials: [{hash}]{rest}}}]")
    };
    rule("warning no-planner", &executor(""), &executor(", planners: [wms]"));
}

#[test]
fn an_egress_entry_that_cannot_be_read_is_an_error() {
    for wrong in ["10.0.0.1/8", "ftp://10.0.0.1", "\"10.0.0.1:0\"", "https://hooks.internal/path", "\"*.internal\""] {
        rule(
            "error wrong-value",
            &format!("dispatch: {{egress_allow: [10.1.2.0/24, {wrong}]}}"),
            "dispatch: {egress_allow: [10.1.2.0/24, \"192.168.0.7:8443\", \"https://hooks.internal\", \"[fd00::1]:443\"]}",
        );
    }
}
