//! One run of `check` shows every mistake, and nothing that only follows from another. The tests break each field of a
//! policy, alone and with each other one.

use super::*;

/// A line of a policy without findings: its indent and name, its value, and one that cannot be read.
type Line = (&'static str, &'static str, &'static str);

const CALLED: [Line; 46] = [
    (
        "stores",
        "{fence: redis, url: \"redis://h\", ttl: {api_hours: 48}}",
        "{fence: redis, url: \"redis://h\", ttl: {api_hours: two}}",
    ),
    ("require_headers", "[X-Shop]", "[X Shop]"),
    ("reject_on_body_mismatch", "true", "yes"),
    ("logging", "{include_fields: [decision]}", "{include_fields: [decison]}"),
    ("gateway", "{timeout: 5s}", "{timeout: soon}"),
    ("scopes", "", ""),
    ("  A", "", ""),
    ("    key", "[id, user, sent_at, v]", "[id, user, sent_at, v, []]"),
    ("    retain", "21d", "3 weeks"),
    ("    lease", "10s", "ten"),
    ("    lease_max", "20s", "20"),
    ("    on_lapse", "hold", "held"),
    ("    again", "{seq: n}", "{seq: []}"),
    ("    horizon", "7d", "a week"),
    ("    margin", "1x", "some"),
    ("    version", "{field: v, per: [user]}", "{field: [], per: [user]}"),
    ("    mask", "[/card]", "/card"),
    ("    durability", "store", "sync"),
    ("    reject_on_body_mismatch", "true", "\"true\""),
    ("    allow_fields", "{sent_at: set once by the device}", "{sent_at: \"\"}"),
    ("  API_WRITE", "{key: [id], horizon: 12h}", "[id]"),
    ("routes", "", ""),
    ("- match", "\"POST /orders/{id}\"", "\"PSOT /orders/{id}\""),
    ("  upstream", "http://h:1", "ftp://h:1"),
    ("  scope", "A", "[]"),
    (
        "  key",
        "{id: \"path:id\", user: \"header:X-User-Id\", sent_at: \"body:/at\", v: \"header:Idempotency-Key\"}",
        "{id: \"path:id\", user: \"cookie:u\", sent_at: \"body:/at\", v: \"header:Idempotency-Key\"}",
    ),
    ("  replay", "{status: 200}", "{status: 999}"),
    ("  on_error", "unknown", "ignore"),
    ("  order", "header:X-Seq", "header:X_Seq"),
    ("  source", "header:X-Source", "header:X_Source"),
    ("  effect_id", "header:X-Id", "path:id"),
    ("  timeout", "5s", "soon"),
    ("  roles", "[partner]", "[partnr]"),
    ("  tenants", "[acme]", "acme"),
    ("  principal", "header:X-User-Id", "X-User-Id"),
    ("  on_stale", "{status: 409}", "{status: 410}"),
    ("  on_conflict", "{status: 422, include_diff: true}", "{status: 422, include_diff: 1}"),
    ("  require_headers", "[Idempotency-Key, X-User-Id]", "Idempotency-Key"),
    ("  pass_body", "true", "yes"),
    ("  upstream_reads_bodies", "true", "1"),
    ("identities", "", ""),
    ("- id", "wes", "\"we s\""),
    ("  roles", "[executor]", "[executer]"),
    ("  warehouses", "[W1]", "W1"),
    ("  planners", "[wms]", "wms"),
    ("  credentials", "[60303ae22b998861bce3b28f33eec1be758a213c86c93c076dbe9f558c11c752]", "[secret]"),
];

/// The same for a rule where a signature replaces the credential.
const SIGNED: [Line; 12] = [
    ("routes", "", ""),
    ("- match", "\"POST /hooks/{shop}\"", "\"POST /hooks/:shop\""),
    ("  upstream", "http://h:1", "h:1"),
    ("  scope", "INDEX_BUILD", "{}"),
    ("  key", "{index_hash: \"request:digest\"}", "digest"),
    ("  verify", "{scheme: stripe, secrets: [whsec_0123456789]}", "{scheme: strip, secrets: [whsec_0123456789]}"),
    ("  tenant", "stripe", "[]"),
    ("  on_error", "release", "never"),
    ("  on_stale", "{status: 200}", "200"),
    ("  on_conflict", "{status: 409}", "{status: \"4O9\"}"),
    ("  pass_body", "false", "\"false\""),
    ("  upstream_reads_bodies", "false", "no"),
];

/// The same for a collection.
const COLLECTED: [Line; 9] = [
    ("ingest", "{bulk_async_threshold: 10}", "{bulk_async_threshold: ten}"),
    ("collections", "", ""),
    ("  carriers", "", ""),
    ("    group", "master", "masters"),
    ("    version", "semver", "semantic"),
    (
        "    references",
        "[{at: /home, to: depots, reason: UNRESOLVED_PARENT}]",
        "[{at: /home, to: depots, reason: NO_PARENT}]",
    ),
    (
        "    schema",
        "{type: object, required: [home], properties: {home: {type: string}}}",
        "{type: object, requierd: [home]}",
    ),
    ("  depots", "{group: master, schema: {type: object}}", "{group: master, schema: {}, key: [id]}"),
    ("  lanes", "{group: documents, schema: {type: object}}", "{group: documents, schema: []}"),
];

fn written(lines: &[Line], broken: &[usize]) -> String {
    let value = |index: usize| if broken.contains(&index) { lines[index].2 } else { lines[index].1 };
    lines.iter().enumerate().map(|(index, (name, ..))| format!("{name}: {}\n", value(index))).collect()
}

#[track_caller]
fn finds_exactly(lines: &[Line], broken: &[usize]) {
    let text = written(lines, broken);
    let findings = check::check("p.yml", &text);
    let found: Vec<usize> = findings.iter().map(|finding| finding.line as usize - 1).collect();
    assert_eq!(found, broken, "{text}\n{}", finding::human(&findings));
}

#[test]
fn broken_fields_are_found_together_and_nothing_follows_from_them() {
    for lines in [&CALLED[..], &SIGNED, &COLLECTED] {
        finds_exactly(lines, &[]);
        let fields: Vec<usize> = (0..lines.len()).filter(|index| lines[*index].1 != lines[*index].2).collect();
        for (at, one) in fields.iter().enumerate() {
            finds_exactly(lines, &[*one]);
            for other in &fields[at + 1..] {
                finds_exactly(lines, &[*one, *other]);
            }
        }
    }
}

#[test]
fn lints_of_one_rule_are_not_hidden_by_its_other_errors() {
    let text = "routes:\n- match: \"PSOT /orders\"\n  upstream: ftp://x\n  scope: NOWHERE\n  key: {id: \"body:/id\"}\n";
    let findings = check::check("p.yml", text);
    assert_eq!(rules(&findings), ["2 error wrong-value", "3 error wrong-value", "4 error unknown-scope"]);
    let fixes: Vec<&str> = findings.iter().map(|finding| finding.message.as_str()).collect();
    assert!(fixes[0].contains("did you mean POST?"), "{fixes:?}");
}

#[test]
fn a_retention_that_cannot_be_read_is_not_judged_as_the_default() {
    let findings = check::check("p.yml", "scopes: {REFUND: {key: [id], retain: 3 weeks, horizon: 5d}}");
    assert_eq!(rules(&findings), ["1 error wrong-value"]);
}
