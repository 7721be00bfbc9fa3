//! Findings of `fencepost check` about a route's promises to its senders: headers, failures, replays, signatures.

use super::lints::{KEY, routes, rule};
use super::*;

const LONG: &str = "0123456789abcdef";

fn one(more: &str) -> String {
    routes(&[("POST /a", &format!("{KEY}{more}"))])
}

fn hook(scheme: &str, secret: &str, more: &str) -> String {
    one(&format!(", tenant: t, verify: {{scheme: {scheme}, secrets: [\"{secret}\"]{more}}}"))
}

#[test]
fn a_key_from_the_idempotency_key_asks_for_it() {
    let keyed = |more: &str| {
        let from = "scope: S, key: {id: \"header:idempotency-key\", kind: \"const:x\"}";
        format!("{more}\n{}", routes(&[("POST /a", from)]))
    };
    rule("warning header-not-required", &keyed(""), &keyed("require_headers: [Idempotency-KEY]"));
    let from = "scope: S, key: {id: \"header:Idempotency-Key\", kind: \"const:x\"}, tenant: t, verify: {scheme: github, secrets: [0123456789]}";
    let text = routes(&[("POST /a", from)]);
    let found = rules(&check::check("p.yml", &text));
    assert!(
        !found.iter().any(|rule| rule.contains("header-not-required")),
        "a sender of webhooks is asked for no header"
    );
}

#[test]
fn a_key_that_the_signature_does_not_cover_is_warned_about() {
    let at = |pattern: &str, scheme: &str, secret: &str, from: &str| {
        let from = format!(
            "scope: S, key: {{id: \"{from}\", kind: \"body:/kind\"}}, tenant: t, verify: {{scheme: {scheme}, secrets: [\"{secret}\"]}}"
        );
        routes(&[(pattern, &from)])
    };
    let github = |pattern: &str, from: &str| at(pattern, "github", LONG, from);
    let signed = github("POST /a", "body:/id");
    for (pattern, from) in [
        ("POST /a", "header:X-GitHub-Delivery"),
        ("POST /a", "query:id"),
        ("POST /{shop}", "path:shop"),
        ("POST /{shop}", "request:path"),
        ("* /a", "request:method"),
    ] {
        rule("warning unsigned-key", &github(pattern, from), &signed);
        let stripe = at(pattern, "stripe", LONG, from);
        rule("warning unsigned-key", &stripe, &signed);
    }
    // The same for every request, or made of what is signed.
    for from in ["request:path", "request:method", "request:digest", "const:x"] {
        rule("warning unsigned-key", &github("POST /a", "query:id"), &github("POST /a", from));
    }
    let coded = "whsec_MfKQ9r8GKYqrTwjUPD8ILPZIo2LaLaSw";
    let standard = |from: &str| at("POST /a", "standard-webhooks", coded, from);
    for signed in ["header:webhook-id", "header:Svix-Id"] {
        rule("warning unsigned-key", &standard("header:x-event"), &standard(signed));
    }
}

#[test]
fn only_a_signed_delivery_is_acknowledged_without_being_passed_on() {
    for name in ["on_stale", "on_conflict"] {
        let answered = |status: u16| format!(", {name}: {{status: {status}}}");
        rule("error ack-without-verify", &one(&answered(200)), &one(&answered(409)));
        rule("error ack-without-verify", &one(&answered(200)), &one(&answered(422)));
        let unknown = rules(&check::check("p.yml", &one(&answered(500))));
        assert!(unknown.iter().any(|rule| rule.contains("error unknown-value")), "{unknown:?}");
    }
    let signed = |more: &str| one(&format!(", tenant: t, verify: {{scheme: github, secrets: [\"{LONG}\"]}}{more}"));
    rule("warning stale-retried", &signed(", on_stale: {status: 409}"), &signed(", on_stale: {status: 200}"));
    rule(
        "note conflict-acknowledged",
        &signed(", on_conflict: {status: 200}"),
        &signed(", on_conflict: {status: 422}"),
    );
}

#[test]
fn rule_says_itself_which_headers_it_requires() {
    let keyed = |from: &str, more: &str| {
        let rule = format!("scope: S, key: {{id: \"{from}\", kind: \"const:x\"}}{more}");
        format!("require_headers: [Idempotency-Key]\n{}", routes(&[("POST /a", &rule)]))
    };
    let key = "header:Idempotency-Key";
    rule("warning header-not-required", &keyed(key, ", require_headers: [X-Other]"), &keyed(key, ""));
    let asked = |name: &str| keyed("body:/id", &format!(", require_headers: [{name}]"));
    rule("error header-impossible", &asked("Host"), &asked("X-A"));
    let verify = format!(", tenant: t, verify: {{scheme: github, secrets: [\"{LONG}\"]}}");
    let asking = keyed("body:/id", &format!("{verify}, require_headers: [X-A]"));
    rule("error headers-with-verify", &asking, &keyed("body:/id", &verify));
    let policy = Policy::parse("p.yml", &keyed("body:/id", ", require_headers: []")).unwrap();
    assert!(policy.routes[0].requires(&policy.require_headers).is_empty());
    let policy = Policy::parse("p.yml", &keyed("body:/id", &verify)).unwrap();
    assert!(policy.routes[0].requires(&policy.require_headers).is_empty(), "a provider is asked for no header");
}

#[test]
fn a_required_header_is_one_that_a_client_can_send() {
    for name in ["Host", "content-length", "Connection", "Transfer-Encoding", "TE"] {
        let text = format!("require_headers:\n  - Idempotency-Key\n  - {name}\n");
        assert_eq!(rules(&check::check("p.yml", &text)), ["3 error header-impossible"], "{name}");
    }
}

#[test]
fn requests_of_a_route_have_keys_of_their_own() {
    let from = |id: &str| routes(&[("POST /a", &format!("scope: S, key: {{id: \"{id}\", kind: \"const:x\"}}"))]);
    rule("error constant-key", &from("const:y"), &from("body:/id"));
    rule("error constant-key", &from("request:path"), &from("query:id"));
    let path = |pattern: &str, id: &str| {
        routes(&[(pattern, &format!("scope: S, key: {{id: \"request:{id}\", kind: \"const:x\"}}"))])
    };
    rule("error constant-key", &path("POST /a", "path"), &path("POST /a/{id}", "path"));
    rule("error constant-key", &path("POST /a", "method"), &path("* /a", "method"));
}

#[test]
fn an_upstream_is_not_the_gateway_itself() {
    let at = |listen: &str, upstream: &str| {
        format!(
            "server: {{listen: \"{listen}\"}}\nscopes: {{S: {{key: [id]}}}}\nroutes:\n  - {{match: \"POST /a\", upstream: \"{upstream}\", scope: S, key: {{id: \"body:/id\"}}}}\n"
        )
    };
    for (listen, upstream) in [
        ("127.0.0.1:7411", "http://127.0.0.1:7411"),
        ("127.0.0.1:7411", "http://LOCALHOST:7411/api"),
        ("0.0.0.0:80", "http://localhost"),
        ("[::]:443", "https://127.0.0.1"),
        ("[::1]:9000", "h2c://[::1]:9000"),
        ("10.0.0.7:9000", "http://10.0.0.7:9000"),
    ] {
        assert_eq!(
            rules(&check::check("p.yml", &at(listen, upstream))),
            ["4 error upstream-loop"],
            "{listen} {upstream}"
        );
    }
    for (listen, upstream) in [
        ("127.0.0.1:7411", "http://127.0.0.1:7412"),
        ("127.0.0.1:0", "http://127.0.0.1:9000"),
        ("10.0.0.7:9000", "http://10.0.0.8:9000"),
        ("10.0.0.7:9000", "http://127.0.0.1:9000"),
        ("0.0.0.0:443", "http://127.0.0.1"),
        ("0.0.0.0:7411", "http://app.internal:7411"),
    ] {
        assert_eq!(check::check("p.yml", &at(listen, upstream)), [], "{listen} {upstream}");
    }
}

#[test]
fn a_replay_of_something_done_says_so() {
    rule("warning replay-status", &one(", replay: {status: 409}"), &one(", replay: {status: 202}"));
    rule("warning replay-status", &one(", replay: {status: 302}"), &one(", replay: {header: \"X-Again: true\"}"));
}

#[test]
fn an_answer_of_done_before_the_seal_is_found() {
    rule(
        "error ack-before-seal",
        &one(", on_error: seal, replay: {status: 200}"),
        &one(", on_error: unknown, replay: {status: 200}"),
    );
    let webhook = |on_error: &str| {
        one(&format!(", on_error: {on_error}, tenant: t, verify: {{scheme: github, secrets: [\"{LONG}\"]}}"))
    };
    rule("warning seal-on-error", &webhook("seal"), &webhook("release"));
    rule("warning seal-on-error", &webhook("seal"), &one(", on_error: seal"));
}

#[test]
fn a_webhook_is_acknowledged_once_its_seal_survives() {
    let on = |store: &str, durability: &str| {
        let more = format!("stores: {{{store}}}\n");
        let text =
            hook("github", LONG, "").replace("key: [id, kind]", &format!("key: [id, kind], durability: {durability}"));
        more + &text
    };
    let redis = "fence: redis, url: \"redis://h\"";
    rule("warning ack-before-seal", &on(redis, "store"), &on("fence: postgres, url: \"postgres://h\"", "store"));
    assert_eq!(rules(&check::check("p.yml", &on(redis, "synced"))), ["2 note durability"]);
}

#[test]
fn a_release_on_error_under_hold_is_found() {
    let held = |on_lapse: &str, on_error: &str| {
        one(&format!(", on_error: {on_error}"))
            .replace("key: [id, kind]", &format!("key: [id, kind], on_lapse: {on_lapse}"))
    };
    rule("error release-under-hold", &held("hold", "release"), &held("hold", "unknown"));
    rule("error release-under-hold", &held("hold", "release"), &held("recover", "release"));
}

#[test]
fn a_secret_is_long_and_of_its_schemes_form() {
    rule("warning short-secret", &hook("github", "1234567", ""), &hook("github", "12345678", ""));
    rule("error secret-form", &hook("stripe", "        ", ""), &hook("stripe", "whsec_not base64", ""));
    let coded = "whsec_MfKQ9r8GKYqrTwjUPD8ILPZIo2LaLaSw";
    rule(
        "error secret-form",
        &hook("standard-webhooks", "whsec_not base64", ""),
        &hook("standard-webhooks", coded, ""),
    );
    rule("error secret-form", &hook("fgai", "whsec_not base64", ""), &hook("fgai", LONG, ""));
    let two =
        |second: &str| one(&format!(", tenant: t, verify: {{scheme: github, secrets: [\"{LONG}\", \"{second}\"]}}"));
    let findings = check::check("p.yml", &two("hunter2"));
    assert_eq!(findings.len(), 1);
    assert!(findings[0].message.starts_with("secret 2") && !finding::human(&findings).contains("hunter2"));
}

#[test]
fn a_signed_time_is_no_older_than_an_hour() {
    let old = |tolerance: &str| hook("stripe", LONG, &format!(", tolerance: {tolerance}"));
    rule("warning long-tolerance", &old("61m"), &old("1h"));
    rule("warning long-tolerance", &old("2h"), &hook("github", LONG, ", tolerance: 2h"));
}

#[test]
fn senders_that_share_a_scope_are_apart() {
    let sender = |kind: &str, secret: &str, more: &str| {
        format!(
            "scope: S, key: {{id: \"body:/id\", kind: \"{kind}\"}}, verify: {{scheme: github, secrets: [\"{secret}\"]}}{more}"
        )
    };
    let severities = |first: &str, second: &str| -> Vec<String> {
        rules(&check::check("p.yml", &routes(&[("POST /a", first), ("POST /b", second)])))
    };
    let (one, two) = ("0123456789", "abcdefghij");
    let first = sender("body:/kind", one, "");
    assert_eq!(severities(&first, &sender("body:/kind", two, "")), ["3 note no-tenant", "4 warning no-tenant"]);
    assert_eq!(severities(&first, &sender("body:/kind", two, ", tenant: b")), ["3 note no-tenant"]);
    assert_eq!(severities(&first, &sender("body:/kind", one, "")), ["3 note no-tenant", "4 note no-tenant"]);
    let apart = severities(&sender("const:a", one, ""), &sender("const:b", two, ""));
    assert_eq!(apart, ["3 note no-tenant", "4 note no-tenant"], "a constant in the key tells them apart");
}

#[test]
fn a_replay_says_nothing_that_breaks_it() {
    for header in ["Transfer-Encoding: chunked", "content-length: 5", "Idempotency-Replayed: false", "Connection: x"] {
        let found = rules(&check::check("p.yml", &one(&format!(", replay: {{header: \"{header}\"}}"))));
        assert!(found.iter().any(|rule| rule.contains("error")), "{header}: {found:?}");
    }
    for status in [204, 205, 304] {
        let found = rules(&check::check("p.yml", &one(&format!(", replay: {{status: {status}}}"))));
        assert!(found.iter().any(|rule| rule.contains("error")), "{status}: {found:?}");
    }
    assert_eq!(check::check("p.yml", &one(", replay: {status: 200, header: \"X-Replayed: true\"}")), []);
}

#[test]
fn a_route_where_fencepost_itself_answers_is_never_reached() {
    for path in ["POST /healthz", "POST /admin/policy", "POST /v1/fences/claim", "* /wes/v1/{*all}", "TRACE /x"] {
        let found = rules(&check::check("p.yml", &routes(&[(path, KEY)])));
        assert!(found.iter().any(|rule| rule.ends_with("error unreachable-route")), "{path}: {found:?}");
    }
    assert_eq!(check::check("p.yml", &routes(&[("POST /v10/x", KEY), ("POST /healthz/x", KEY)])), []);
}

#[test]
fn an_upstream_is_an_address_that_can_be_reached_and_a_key_is_no_whole_body() {
    for upstream in
        ["http://h:99999", "http://h:0", "http://h:1/../x", "http://h:1/ ", "h2c://h:1/my app", "https://h/<env>"]
    {
        let text = one("").replace("http://h:1", upstream);
        assert!(finding::has_errors(&check::check("p.yml", &text)), "{upstream}");
    }
    let whole = routes(&[("POST /a", "scope: S, key: {id: \"body:\", kind: \"const:x\"}")]);
    assert!(finding::has_errors(&check::check("p.yml", &whole)));
}
