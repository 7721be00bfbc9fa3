//! A rolling upgrade: nodes of two releases on one store, whose newest row formats differ.

use serde_json::json;

use super::{
    super::server::{Serve, Server, until},
    history::SCOPE,
    town::Town,
};

/// Long enough that the newer format keeps it packed.
fn receipt() -> serde_json::Value {
    json!({"text": "long ".repeat(200)})
}

fn seal(node: &Server, hash: &str) {
    let key = json!({"index_hash": hash});
    let token = node.acme().claim(SCOPE, &key).token();
    node.acme().seal(SCOPE, &key, token, "E", receipt()).ok(200);
}

fn replays(node: &Server, hash: &str) {
    let said = node.acme().claim(SCOPE, &json!({"index_hash": hash})).ok(200);
    assert_eq!((&said["decision"], &said["receipt"]), (&json!("duplicate"), &receipt()), "{hash}");
}

fn format_of(town: &Town, hash: &str) -> String {
    let row = format!("SELECT get_byte(record, 0) FROM fencepost_fences WHERE fields->>'index_hash' = '{hash}'");
    town.postgres.sql(&town.database, &row)
}

#[test]
fn two_releases_serve_one_store_until_the_last_old_node_is_gone() {
    // The store begins with the older release.
    let mut town = Town::start(0);
    let old = || Serve::sharing(&town.database).arg("--row-format-max").arg("1");
    let first = old().start();
    seal(&first, "by-old");
    let second = Serve::sharing(&town.database).start();
    // While both run, each reads the rows that the other writes.
    seal(&second, "by-new");
    assert_eq!((format_of(&town, "by-old"), format_of(&town, "by-new")), ("1".to_owned(), "1".to_owned()));
    for node in [&first, &second] {
        replays(node, "by-old");
        replays(node, "by-new");
    }

    let address = first.address;
    first.kill();
    let silent = format!("UPDATE fencepost_nodes SET seen = seen - interval '31 seconds' WHERE address = '{address}'");
    town.postgres.sql(&town.database, &silent);
    let count = std::cell::Cell::new(0);
    until("the newer format is written", || {
        let hash = format!("after-{}", count.replace(count.get() + 1));
        seal(&second, &hash);
        (format_of(&town, &hash) == "7").then_some(())
    });
    // Rows of both formats are read, and the older release is told that its time is over.
    replays(&second, "by-old");
    replays(&second, &format!("after-{}", count.get() - 1));
    let (status, said) = old().refused();
    assert!(!status.success() && said.contains("row format 7"), "{said}");
    town.seats.clear();
}
