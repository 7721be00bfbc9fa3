//! The committed contract is the one that is served.

use std::fs;

use fencepost_wire::http::openapi;

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
