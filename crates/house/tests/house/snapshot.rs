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
    let documented: Vec<&str> = document["paths"].as_object().unwrap().keys().map(String::as_str).collect();
    let routes = read("crates/wire/src/http/routes.rs");
    let arms = routes.lines().filter(|line| line.contains("=>")).map(str::trim);
    let quoted = |line: &str, nth: usize| line.split('"').nth(2 * nth + 1).map(str::to_owned);
    let routed: BTreeSet<String> = arms
        .filter_map(|line| match line.starts_with("_ if between(") {
            true => Some(format!("{}{{}}{}", quoted(line, 0)?, quoted(line, 1)?)),
            false => line.starts_with("\"/").then(|| quoted(line, 0))?,
        })
        .collect();
    assert_eq!(documented.iter().map(|path| nameless(path)).collect::<BTreeSet<_>>(), routed);
    let listed: BTreeSet<&str> = openapi::paths().into_iter().map(|(_, path)| path).collect();
    assert_eq!(documented.into_iter().collect::<BTreeSet<_>>(), listed);
}

// The names of a path's parameters are for readers only.
fn nameless(path: &str) -> String {
    let segments = path.split('/').map(|segment| if segment.starts_with('{') { "{}" } else { segment });
    segments.collect::<Vec<_>>().join("/")
}
