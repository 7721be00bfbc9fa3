//! The committed contract is the one that is served.

use std::{collections::BTreeSet, fs};

use fencepost_wire::http::openapi;
use serde_json::Value;

use super::repo::{read, root};

const SNAPSHOT: &str = "docs/openapi.json";

#[test]
fn the_committed_contract_is_the_one_that_is_served() {
    if std::env::var_os("UPDATE_SNAPSHOTS").is_some() {
        fs::write(root().join(SNAPSHOT), openapi::text()).unwrap();
    }
    let same = read(SNAPSHOT) == openapi::text();
    assert!(
        same,
        "{SNAPSHOT} is not what is served. If that is meant: UPDATE_SNAPSHOTS=1 cargo test -p fencepost-house"
    );
}

#[test]
fn the_contract_names_exactly_the_paths_that_are_routed() {
    let document: Value = serde_json::from_str(&openapi::text()).unwrap();
    let documented: BTreeSet<&str> = document["paths"].as_object().unwrap().keys().map(String::as_str).collect();
    let router = read("crates/wire/src/http/mod.rs");
    let calls = router.split(".route(").skip(1);
    let routed: BTreeSet<&str> =
        calls.filter_map(|call| call.trim_start().strip_prefix('"')?.split('"').next()).collect();
    assert_eq!(documented, routed);
    assert_eq!(documented, openapi::paths().into_iter().map(|(_, path)| path).collect());
}
