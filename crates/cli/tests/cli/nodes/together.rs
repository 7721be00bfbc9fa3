//! Any node answers any key: one grants, another seals, a third replays, and of many claims one is new.

use std::{
    collections::BTreeMap,
    sync::{Barrier, Mutex},
    thread,
    time::{Duration, Instant},
};

use serde_json::json;

use super::{
    super::server::{Serve, Server, until},
    history::{Ask, SCOPE},
    town::Town,
};

const CLIENTS: usize = 64;
const KEYS: u64 = 200;

fn key(name: &str) -> serde_json::Value {
    json!({"index_hash": name})
}

/// Claim here, seal there, ask everywhere: the same bytes from every node.
pub fn any_node_answers_any_key(nodes: &[&Server]) {
    let node = |index: usize| nodes[index % nodes.len()].acme();
    let token = node(0).claim(SCOPE, &key("a")).token();
    node(1).claim(SCOPE, &key("a")).problem(409, "in-flight");
    node(2).renew(SCOPE, &key("a"), token, 600_000).ok(200);
    let seal = format!(
        r#"{{"scope":"{SCOPE}","key":{{"index_hash":"a"}},"token":{token},"effect_id":"E","receipt":{{ "n" : 1.0,"u":"\u00fc" }}}}"#
    );
    node(1).post("/v1/fences/seal", &seal).ok(200);
    let told: Vec<String> = nodes
        .iter()
        .map(|node| {
            let answer = node.acme().claim(SCOPE, &key("a"));
            answer.ok(200);
            answer.text()
        })
        .collect();
    assert!(told[0].contains(r#""receipt":{ "n" : 1.0,"u":"\u00fc" },"#), "{}", told[0]);
    assert!(told.iter().all(|text| *text == told[0]), "{told:?}");
    assert_eq!(node(2).post("/v1/fences/seal", &seal).ok(200)["replay"], true);

    let token = node(0).claim(SCOPE, &key("b")).token();
    node(1).release(SCOPE, &key("b"), token).ok(200);
    let next = node(2).claim(SCOPE, &key("b")).token();
    assert!(next > token, "{next} after {token}");
    node(0).seal(SCOPE, &key("b"), token, "E", json!(1)).problem(409, "fenced-off");
    node(1).seal(SCOPE, &key("b"), next, "E", json!(2)).ok(200);
    assert_eq!(node(0).claim(SCOPE, &key("b")).ok(200)["receipt"], 2);
}

/// Packs of claims of one key, spread over the nodes: one of each pack is let in.
pub fn exactly_one_is_new(nodes: &[&Server]) {
    let news = Mutex::new(BTreeMap::<u64, Vec<u64>>::new());
    let start = Barrier::new(CLIENTS);
    thread::scope(|scope| {
        for number in 0..CLIENTS {
            let (news, start) = (&news, &start);
            scope.spawn(move || {
                let mut client = nodes[number % nodes.len()].acme();
                client.get("/healthz");
                for key in 0..KEYS {
                    // Every key is met by the whole pack at once.
                    start.wait();
                    let answer =
                        client.post("/v1/fences/claim", Ask::Claim { lease_ms: 3_600_000, wait_ms: 0 }.body(key));
                    match answer.status {
                        201 => news.lock().unwrap().entry(key).or_default().push(answer.token()),
                        _ => drop(answer.problem(409, "in-flight")),
                    }
                }
            });
        }
    });
    let news = news.into_inner().unwrap();
    let wrong: Vec<_> = (0..KEYS).filter(|key| news.get(key).map_or(0, Vec::len) != 1).collect();
    assert!(wrong.is_empty(), "keys that not exactly one was let in to: {wrong:?}");
}

/// A waiter at one node hears of a seal at another within about a second, and asks once.
pub fn a_waiter_hears_of_a_seal_elsewhere(nodes: &[&Server]) {
    let (here, there) = (nodes[0], nodes[1]);
    let token = here.acme().claim(SCOPE, &key("awaited")).token();
    let mut waiter = here.acme();
    let wait = json!({"scope": SCOPE, "key": key("awaited"), "wait_ms": 30_000}).to_string();
    waiter.begin_post("/v1/fences/claim", wait);
    here.until_waiting(1);
    there.acme().seal(SCOPE, &key("awaited"), token, "E", json!("seen")).ok(200);
    let sealed = Instant::now();
    assert_eq!(waiter.finish().unwrap().ok(200)["receipt"], "seen");
    let took = sealed.elapsed();
    assert!(took < Duration::from_millis(1_500), "the waiter heard of it after {took:?}");
}

#[test]
fn any_of_three_nodes_answers_any_key_with_the_same_bytes() {
    let town = Town::start(3);
    any_node_answers_any_key(&town.nodes());
    a_waiter_hears_of_a_seal_elsewhere(&town.nodes());
}

#[test]
fn of_64_concurrent_claims_of_one_key_over_three_nodes_exactly_one_is_new_for_200_keys() {
    exactly_one_is_new(&Town::start(3).nodes());
}

#[test]
fn a_policy_of_several_rows_holds_across_nodes() {
    let town = Town::start(3);
    let booking = json!({"caseUrn": "c", "waveUrn": "w", "groupId": "g"});
    let token = town.node(0).acme().claim("BOOKING", &booking).token();
    town.node(1).acme().seal("BOOKING", &booking, token, "B-1", json!(1)).ok(200);
    let again = |node: usize, seq: u64| {
        let body = json!({"scope": "BOOKING", "key": booking, "seq": seq});
        town.node(node).acme().post("/v1/fences/again", body.to_string())
    };
    again(2, 2).problem(409, "sequence-gap");
    let token = again(0, 1).token();
    again(1, 2).problem(409, "sequence-gap");
    let seal = json!({"scope": "BOOKING", "key": booking, "seq": 1, "token": token, "effect_id": "B-2", "receipt": 2});
    town.node(2).acme().post("/v1/fences/seal", seal.to_string()).ok(200);
    assert_eq!(again(1, 1).ok(200)["receipt"], 2);
    again(1, 2).token();

    let event = |version: u64| json!({"provider": "p", "event_id": version.to_string(), "event_version": version, "action": "a"});
    let source = json!({"source": {"type": "order", "id": "1"}});
    let token = town.node(0).acme().claim_with("WEBHOOK", &event(2), source.clone()).token();
    town.node(1).acme().seal("WEBHOOK", &event(2), token, "E", json!(2)).ok(200);
    let stale = town.node(2).acme().claim_with("WEBHOOK", &event(1), source);
    assert_eq!(stale.problem(409, "stale")["sealed_version"], 2);
}

#[test]
fn the_address_of_the_store_may_come_from_the_environment() {
    let town = Town::start(1);
    let node = Serve::dev_anywhere().env("FENCEPOST_STORE", town.seats[0].store()).start();
    let token = node.acme().claim(SCOPE, &key("e")).token();
    town.node(0).acme().seal(SCOPE, &key("e"), token, "E", json!(1)).ok(200);
    until("both are known", || {
        let nodes = node.admin().get("/admin/nodes").ok(200);
        (nodes["items"].as_array().unwrap().len() == 2).then_some(())
    });
}
