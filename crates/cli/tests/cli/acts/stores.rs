//! Acts on stores that others share: PostgreSQL with several nodes and two releases, and Redis, which keeps fences only.

use std::thread;

use fencepost_rig::{PostgresServer, RedisServer};
use serde_json::json;

use super::{
    super::server::{Serve, Server, fencepost, text, until},
    SCOPE, acts, audit, forget, key,
};

fn two_nodes(store: &str) -> [Server; 2] {
    thread::scope(|scope| {
        [(); 2].map(|()| scope.spawn(|| Serve::sharing(store).start())).map(|starting| starting.join().unwrap())
    })
}

/// Each node has answered and cached the receipt that the other lets go of.
fn forgotten_by_one_is_new_at_the_other([a, b]: &[Server; 2]) {
    let mut last = 0;
    for turn in 0..20 {
        let (here, there) = if turn % 2 == 0 { (a, b) } else { (b, a) };
        let token = here.acme().claim(SCOPE, &key("a")).token();
        assert!(token > last, "{token} after {last}");
        last = token;
        here.acme().seal(SCOPE, &key("a"), token, "E", json!(turn)).ok(200);
        for node in [here, there] {
            assert_eq!(node.acme().claim(SCOPE, &key("a")).ok(200)["receipt"], turn);
        }
        let said = forget(&mut there.admin(), "a", json!({"token": token})).ok(200);
        assert_eq!(said["replay"], false, "{said}");
        here.acme().seal(SCOPE, &key("a"), token, "E", json!(turn)).problem(409, "fenced-off");
    }
}

#[test]
fn forgotten_key_is_new_at_every_node_of_a_postgres_and_each_shows_the_same_audit() {
    let postgres = PostgresServer::start();
    let nodes = two_nodes(&postgres.fresh_database());
    forgotten_by_one_is_new_at_the_other(&nodes);
    let entries = audit(&nodes[0], "");
    assert_eq!(entries.len(), 20);
    assert_eq!(audit(&nodes[1], ""), entries);
}

#[test]
fn redis_forgets_and_keeps_no_audit() {
    let redis = RedisServer::synced();
    let nodes = two_nodes(&redis.url());
    forgotten_by_one_is_new_at_the_other(&nodes);
    nodes[0].admin().get("/admin/audit").problem(501, "store-unsupported");
    let output = fencepost(["audit", "log", "--url", &nodes[0].url()]);
    let said = text(&output.stderr);
    assert!(output.status.code() == Some(1) && said.contains("the audit need the embedded store"), "{said}");
    let told = nodes[1].admin().lookup(SCOPE, &key("a"), "").ok(200);
    let last = told["history"].as_array().unwrap().iter().rev().find(|line| line["decision"] == "forgotten").unwrap();
    assert_eq!((&last["by"], &last["why"]), (&json!("dev-admin"), &json!("the index was lost")));
}

#[test]
fn audit_begins_when_the_last_node_of_an_older_release_is_gone() {
    let postgres = PostgresServer::start();
    let database = postgres.fresh_database();
    let old = Serve::sharing(&database).arg("--row-format-max").arg("4").start();
    let new = Serve::sharing(&database).start();
    let entries = || postgres.sql(&database, "SELECT count(*) FROM fencepost_rows WHERE kind = 14");
    let act = |name: &str| {
        new.acme().done(SCOPE, &key(name), "E", json!(1));
        forget(&mut new.admin(), name, json!({})).ok(200);
    };
    act("before");
    assert_eq!((entries().as_str(), audit(&new, "").len()), ("0", 0), "the older node could not read it");
    // The older node reads the forgotten fence, as one that a person released.
    let told = old.admin().lookup(SCOPE, &key("before"), "").ok(200);
    let last = told["history"].as_array().unwrap().last().unwrap();
    assert_eq!((&told["state"], &last["decision"]), (&json!("released"), &json!("resolved")), "{told}");
    old.acme().done(SCOPE, &key("before"), "E-2", json!(2));

    let address = old.address;
    old.kill();
    let silent = format!("UPDATE fencepost_nodes SET seen = seen - interval '31 seconds' WHERE address = '{address}'");
    postgres.sql(&database, &silent);
    let count = std::cell::Cell::new(0);
    until("an act is in the audit", || {
        count.set(count.get() + 1);
        act(&format!("after-{}", count.get()));
        (!audit(&new, "").is_empty()).then_some(())
    });
    assert_eq!(acts(&audit(&new, ""))[0].split(' ').next(), Some("forget"));
}
