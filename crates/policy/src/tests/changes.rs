//! Changes that a reload makes, and those that it cannot make.

use super::*;
use crate::changes::{Changes, Named};

const BASE: &str = "\
scopes:
  A: {key: [id]}
  B: {key: [id]}
routes:
  - {match: \"POST /a\", upstream: \"http://h:1\", scope: A, key: {id: \"body:/id\"}}
  - {match: \"POST /b\", upstream: \"http://h:1\", scope: B, key: {id: \"body:/id\"}}
";

fn between(old: &str, new: &str) -> Changes {
    Changes::between(&policy(old), &policy(new))
}

fn named(added: &[&str], removed: &[&str], changed: &[&str]) -> Named {
    let owned = |names: &[&str]| names.iter().map(|name| (*name).to_owned()).collect();
    Named { added: owned(added), removed: owned(removed), changed: owned(changed) }
}

#[test]
fn a_section_that_only_moved_within_its_file_is_no_change() {
    let moved = format!("# A comment.\n\n{}", BASE.replace("  B:", "  # Another.\n  B:"));
    let changes = between(BASE, &moved);
    assert!(changes.is_empty() && changes.restart.is_empty() && changes.warnings.is_empty(), "{changes:?}");
    assert_eq!((changes.json()["changed"].as_bool(), changes.parts()), (Some(false), vec![]));
}

#[test]
fn scopes_routes_and_settings_are_told_by_name() {
    let new = BASE
        .replace("  B: {key: [id]}", "  B: {key: [id], lease: 5s}\n  C: {key: [id]}")
        .replace("\"http://h:1\", scope: A", "\"http://h:2\", scope: A")
        + "  - {match: \"PUT /c\", upstream: \"http://h:1\", scope: C, key: {id: \"body:/id\"}}\non_conflict: {status: 422}\n";
    let changes = between(BASE, &new);
    assert_eq!(changes.scopes, named(&["C"], &[], &["B"]));
    assert_eq!(changes.routes, named(&["PUT /c"], &[], &["POST /a"]));
    assert_eq!((changes.settings.as_slice(), changes.reordered), (&["on_conflict"][..], false));
    assert_eq!(changes.warnings, [""; 0]);
    assert_eq!(
        changes.parts(),
        [("scopes", "+C, ~B".to_owned()), ("routes", "+PUT /c, ~POST /a".into()), ("settings", "on_conflict".into())]
    );
    let back = between(&new, BASE);
    assert_eq!((back.scopes, back.routes.removed), (named(&[], &["C"], &["B"]), vec!["PUT /c".to_owned()]));
    assert!(back.warnings[0].starts_with("scope C: removed"), "{:?}", back.warnings);
}

#[test]
fn routes_in_another_order_are_a_change() {
    let mut lines: Vec<&str> = BASE.lines().collect();
    lines.swap(4, 5);
    let changes = between(BASE, &lines.join("\n"));
    assert!(changes.reordered && !changes.is_empty() && changes.routes == Named::default(), "{changes:?}");
}

#[test]
fn a_secret_that_was_rotated_is_a_change_and_is_not_told() {
    let hook = |secret: &str| {
        format!(
            "routes: [{{match: \"POST /h\", upstream: \"http://h:1\", scope: INDEX_BUILD, tenant: t, key: {{index_hash: \"body:/id\"}}, verify: {{scheme: github, secrets: [{secret}]}}}}]"
        )
    };
    let changes = between(&hook("hunter2hunter2"), &hook("hunter3hunter3"));
    assert_eq!(changes.routes.changed, ["POST /h"]);
    assert!(!format!("{changes:?} {}", changes.json()).contains("hunter"));
}

#[test]
fn another_key_is_warned_about() {
    let other = BASE.replace("  A: {key: [id]}", "  A: {key: [no]}").replace("A, key: {id:", "A, key: {no:");
    assert_eq!(
        between(BASE, &other).warnings,
        [
            "scope A: key changed: retries of earlier requests will not be recognised",
            "route POST /a: key changed: retries of earlier requests will not be recognised"
        ]
    );
}

#[test]
fn collections_and_ingest_are_changed_by_a_reload() {
    let carriers = "collections: {carriers: {group: master, schema: {type: object}}}\n";
    let added = between("", carriers);
    assert_eq!(added.collections, named(&["carriers"], &[], &[]));
    assert_eq!(added.json()["collections"]["added"][0], "carriers");
    assert_eq!(added.parts(), [("collections", "+carriers".to_owned())]);
    let removed = between(carriers, "");
    assert_eq!(removed.collections, named(&[], &["carriers"], &[]));
    assert_eq!(removed.warnings, ["collection carriers: removed: its items can no longer be read"]);
    let replaced = between("", "collections: {uoms: {group: master, schema: {type: object}}}\n");
    assert_eq!(replaced.collections, named(&[], &[], &["uoms"]));
    let own = "scopes: {WMS_INGEST: {key: [correlation_id], retain: 30d, reject_on_body_mismatch: false}}\n";
    let switched = between("", &format!("ingest: {{auto_release: true}}\n{own}"));
    assert_eq!((switched.settings, switched.scopes.changed), (vec!["ingest"], vec!["WMS_INGEST".to_owned()]));
    for changes in [added.restart, removed.restart, replaced.restart, switched.restart] {
        assert_eq!(changes, [""; 0]);
    }
}

#[test]
fn a_change_to_a_setting_read_at_start_only_is_refused() {
    for (more, section) in [
        ("server: {shutdown_grace: 1s}", "server"),
        ("server: {threads: shared}", "server"),
        ("server: {fast_path: false}", "server"),
        ("server: {journal_zeros: false}", "server"),
        ("stores: {fence: redis, url: \"redis://h\"}", "stores.fence"),
        ("dispatch: {timeout: 1s}", "dispatch"),
        ("gateway: {connect_timeout: 1s}", "gateway.connect_timeout"),
        ("scopes: {WES_DISPATCH: {key: [correlation_id]}}", "scopes.WES_DISPATCH"),
    ] {
        let changes = between("", more);
        assert_eq!(changes.restart.first(), Some(&section), "{more}");
        let refused = changes.refused("p.yml");
        assert!(refused[0].is_error() && refused[0].message.contains(section), "{refused:?}");
    }
    let ttl = between("", "stores: {ttl: {api_hours: 30}}");
    assert_eq!((ttl.restart.len(), ttl.scopes.changed), (0, vec!["API_WRITE".to_owned()]));
    assert_eq!(between("", "gateway: {timeout: 5s}").settings, ["gateway"]);
}
