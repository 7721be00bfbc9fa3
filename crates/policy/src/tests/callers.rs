//! The callers of a rule, and the user that an answer is for: how they are read, and what `fencepost check` finds.

use super::lints::{KEY, routes, rule};
use super::*;
use crate::callers::{Callers, Principal};
use crate::identity::{Identity, Role, Warehouses};

fn one(more: &str) -> String {
    routes(&[("POST /a", &format!("{KEY}{more}"))])
}

fn read(more: &str) -> Callers {
    policy(&one(more)).routes[0].callers.clone()
}

#[test]
fn a_rule_is_for_partners_unless_it_names_others() {
    assert_eq!((read("").roles, read("").tenants, read("").principal), (vec![Role::Partner], None, None));
    let named = read(", roles: [planner, executor], tenants: [acme, globex], principal: \"header:X-User\"");
    assert_eq!(named.roles, [Role::Planner, Role::Executor]);
    assert_eq!(named.tenants, Some(vec!["acme".to_owned(), "globex".to_owned()]));
    assert_eq!(named.principal, Some(Principal::Header("X-User".into())));
    let token = read(", principal: \"jwt:X-User-Token/realm~1a/sub\"").principal;
    assert_eq!(token, Some(Principal::Token { header: "X-User-Token".into(), claim: "/realm~1a/sub".into() }));
}

#[test]
fn a_caller_needs_one_of_the_roles_and_to_be_one_of_the_tenants() {
    let caller = |id: &str, roles: &[Role]| Identity::new(id, roles.iter().copied(), Warehouses::All);
    let (partner, planner) = (caller("acme", &[Role::Partner]), caller("fgai", &[Role::Planner]));
    let both = caller("wes", &[Role::Executor, Role::Partner]);
    for (rule, caller, admitted) in [
        ("", &partner, true),
        ("", &both, true),
        ("", &planner, false),
        ("", &caller("root", &[Role::Admin]), false),
        (", roles: [planner]", &planner, true),
        (", roles: [planner]", &partner, false),
        (", tenants: [acme]", &partner, true),
        (", tenants: [acme]", &both, false),
        (", tenants: [fgai]", &planner, false),
        (", tenants: [fgai], roles: [planner]", &planner, true),
    ] {
        assert_eq!(read(rule).admit(caller).is_ok(), admitted, "{rule} {caller:?}");
    }
}

#[test]
fn a_rule_that_nobody_may_call_is_an_error() {
    rule("error no-caller", &one(", roles: []"), &one(", roles: [executor]"));
    rule("error no-caller", &one(", tenants: []"), &one(", tenants: [acme]"));
    rule("error unknown-value", &one(", roles: [admin]"), &one(", roles: [partner]"));
    rule("error duplicate", &one(", tenants: [a, a]"), &one(", tenants: [a, b]"));
}

#[test]
fn a_principal_is_a_header_or_a_claim_of_a_token() {
    let named = |principal: &str| one(&format!(", principal: \"{principal}\""));
    for wrong in [
        "X-User",
        "header:",
        "header:X User",
        "header:X-User/sub",
        "header:X_User",
        "jwt:X-User",
        "jwt:X/a~2",
        "query:user",
        "body:/u",
    ] {
        rule("error wrong-value", &named(wrong), &named("header:X-User"));
    }
    rule("note principal-unverified", &named("jwt:X-User-Token/sub"), &named("header:X-User"));
    for unstable in ["header:Authorization", "header:cookie", "jwt:authorization/sub"] {
        rule("warning principal-unstable", &named(unstable), &named("header:X-User"));
    }
}

#[test]
fn a_rule_with_a_signature_has_no_callers() {
    let hook = |more: &str| one(&format!(", tenant: t, verify: {{scheme: github, secrets: [0123456789]}}{more}"));
    for more in [", roles: [partner]", ", tenants: [acme]", ", principal: \"header:X-User\""] {
        rule("error caller-with-verify", &hook(more), &hook(""));
    }
}

#[test]
fn a_principal_needs_a_scope_that_compares() {
    let scope = |reject: &str| {
        one(", principal: \"header:X-User\"")
            .replace("key: [id, kind]", &format!("key: [id, kind], reject_on_body_mismatch: {reject}"))
    };
    rule("error principal-not-compared", &scope("false"), &scope("true"));
    let all = |reject: &str| format!("reject_on_body_mismatch: {reject}\n{}", one(", principal: \"header:X-User\""));
    rule("error principal-not-compared", &all("false"), &all("true"));
}

#[test]
fn a_policy_that_names_users_and_no_principal_is_warned_about() {
    let asked = |header: &str, more: &str| format!("require_headers: [{header}]\n{}", one(more));
    let principal = ", principal: \"header:X-User\"";
    for header in ["Cookie", "X-User-Id", "x-forwarded-user"] {
        rule("warning no-principal", &asked(header, ""), &asked(header, principal));
    }
    rule("warning no-principal", &asked("Cookie", ""), &asked("X-Correlation-Id", ""));
    let sourced = |source: &str| one(&format!(", source: \"header:{source}\""));
    rule("warning no-principal", &sourced("X-User"), &sourced("X-Order"));
    // A key field from the header keeps users apart already.
    let keyed = "require_headers: [X-User]\n".to_owned()
        + &routes(&[("POST /a", "scope: S, key: {id: \"body:/id\", kind: \"header:X-User\"}")]);
    rule("warning no-principal", &asked("X-User", ""), &keyed);
}
