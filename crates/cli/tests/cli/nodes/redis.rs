//! Two nodes on a Redis: the same basics; and what a Redis cannot carry is refused with the reason.

use std::{path::PathBuf, thread, time::Duration};

use fencepost_rig::{Cluster, RedisServer};
use serde_json::json;
use tempfile::TempDir;

use super::{
    super::server::{Serve, Server, until},
    callers::{Addresses, Load},
    history::{History, SCOPE},
    together::{a_waiter_hears_of_a_seal_elsewhere, any_node_answers_any_key, exactly_one_is_new},
    town::{assert_kept, audit},
};

const ENOUGH: Duration = Duration::from_secs(20);

fn two_nodes(store: &str) -> [Server; 2] {
    thread::scope(|scope| {
        [(); 2].map(|()| scope.spawn(|| Serve::sharing(store).start())).map(|starting| starting.join().unwrap())
    })
}

fn policy(text: &str) -> (TempDir, PathBuf) {
    let dir = tempfile::tempdir().unwrap();
    let config = dir.path().join("fencepost.yml");
    std::fs::write(&config, text).unwrap();
    (dir, config)
}

#[track_caller]
fn refused(store: &str, text: &str, words: &[&str]) {
    let (_dir, config) = policy(text);
    let (status, said) = Serve::sharing(store).arg("--config").arg(&config).refused();
    assert_eq!(status.code(), Some(1), "{said}");
    for word in words {
        assert!(said.contains(word), "{word:?} is not in:\n{said}");
    }
}

#[test]
fn any_of_two_nodes_on_a_redis_answers_any_key_and_one_claim_of_many_is_new() {
    let redis = RedisServer::synced();
    let [a, b] = two_nodes(&redis.url());
    any_node_answers_any_key(&[&a, &b]);
    a_waiter_hears_of_a_seal_elsewhere(&[&a, &b]);
    exactly_one_is_new(&[&a, &b]);
}

#[test]
fn kill_9_of_a_redis_that_syncs_loses_nothing_acknowledged() {
    let mut redis = RedisServer::synced();
    let nodes = two_nodes(&redis.url());
    let (history, addresses) = (History::default(), Addresses::default());
    addresses.set(nodes.iter().map(|node| node.address).collect());
    let mut first_key = 0;
    for round in 0..3 {
        let load = Load { history: &history, addresses: &addresses, seed: round, first_key };
        let next = load.run(|acks| {
            assert!(acks.hear(60, ENOUGH));
            redis.kill();
            acks.pass(Duration::from_millis(50));
            redis.restart();
            assert!(acks.hear(20, ENOUGH), "the nodes did not come back by themselves");
        });
        for node in &nodes {
            let mut anybody = node.client("");
            until("every node is ready again", || (anybody.get("/readyz").status == 200).then_some(()));
        }
        audit(&addresses, &history, first_key..next);
        first_key = next;
    }
    assert_kept(&history, 2, 0, "Redis was killed");
}

#[test]
fn a_scope_that_asks_for_a_sync_is_refused_on_a_redis_that_syncs_every_second() {
    let redis = RedisServer::start(&["--appendonly", "yes", "--appendfsync", "everysec"]);
    let asks = "scopes: {REFUND: {key: [orderId], durability: synced}}";
    refused(&redis.url(), asks, &["REFUND", "durability: synced", "everysec"]);
    // Without such a scope it serves, and says what it is.
    let node = Serve::sharing(&redis.url()).start();
    node.acme().claim(SCOPE, &json!({"index_hash": "weak"})).token();
    assert_eq!(node.admin().get("/admin/nodes").ok(200)["durability"], "delayed");
}

// The claim writes its fence over a version head that the seal before it writes, and leaves that alone.
#[test]
fn a_batch_in_which_a_claim_rests_on_a_seal_goes_through_on_a_redis() {
    let redis = RedisServer::synced();
    let node = Serve::sharing(&redis.url()).start();
    let key = |version: u64| json!({"provider": "p", "event_id": "e", "event_version": version, "action": "sync"});
    let source = json!({"type": "invoice", "id": "in_1"});
    let mut acme = node.acme();
    let token = acme.claim_with("WEBHOOK", &key(2), json!({"source": source})).token();
    let claim = |version| json!({"op": "claim", "scope": "WEBHOOK", "key": key(version), "source": source});
    let seal = json!({"op": "seal", "scope": "WEBHOOK", "key": key(2), "token": token, "effect_id": "E", "receipt": 1});
    let results = acme.batch(&[seal, claim(3), claim(1)]).ok(200)["results"].clone();
    let told = [0, 1, 2].map(|at| results[at]["status"].as_u64().unwrap());
    assert_eq!(told, [200, 201, 409], "{results}");
    assert_eq!(results[2]["body"]["code"], "stale");
}

#[test]
fn a_spread_cluster_refuses_repetitions_and_serves_single_fences() {
    let cluster = Cluster::start();
    let asks = "scopes: {REFUND: {key: [orderId], again: {seq: refundSeq}}}";
    refused(&cluster.url(), asks, &["REFUND", "repetitions", "slots=one"]);
    let nodes = two_nodes(&cluster.url());
    any_node_answers_any_key(&[&nodes[0], &nodes[1]]);
    let booking = json!({"caseUrn": "c", "waveUrn": "w", "groupId": "g"});
    nodes[0].acme().claim("BOOKING", &booking).problem(501, "store-unsupported");
}
