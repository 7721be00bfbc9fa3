//! Many senders of the same items at once, in any order, each repeating itself: the highest versions stand, and each was
//! accepted once.

use std::collections::{BTreeMap, BTreeSet};

use fencepost_rig::PostgresServer;
use serde_json::Value;

use super::{
    super::{
        client::Answer,
        server::{Server, dev, until},
    },
    sending::{Sender, at, body, nodes, source_id, uom},
};

const SENDERS: usize = 8;
const ITEMS: usize = 50;
const VERSIONS: u64 = 20;
/// How often a request is sent again under its id.
const RETRIES: usize = 2;

/// Every version of every item, in an order of its own: shuffled within so many at a time. Each answer with the version that it
/// was about.
fn send_all(nodes: &[&Server], window: usize, number: usize) -> Vec<(u64, Answer)> {
    let mut random = fastrand::Rng::with_seed(number as u64);
    let mut senders: Vec<Sender> = nodes.iter().map(|node| Sender::acme(node)).collect();
    let mut versions: Vec<u64> = (1..=VERSIONS).collect();
    versions.chunks_mut(window).for_each(|window| random.shuffle(window));
    let mut heard = Vec::new();
    for version in versions {
        let mut items: Vec<Value> = (0..ITEMS).map(|item| at(uom(&format!("U-{window}-{item:02}")), version)).collect();
        random.shuffle(&mut items);
        let (id, sent) = (format!("sender-{window}-{number}-{version}"), body(&items));
        let mut ask = || {
            let node = random.usize(..senders.len());
            until("the request is taken", || {
                let answer = senders[node].post("master/uoms", &id, &sent);
                // Nothing else may be asked again, and this only when it is said.
                if answer.status == 503 {
                    assert!(answer.header("retry-after").is_some(), "{}", answer.text());
                    return None;
                }
                Some(answer)
            })
        };
        let first = ask();
        first.ok(200);
        for _ in 0..RETRIES {
            let again = ask();
            assert_eq!((again.status, again.text()), (200, first.text()), "{id}");
            assert_eq!(again.header("idempotency-replayed"), Some("true"), "{id}");
        }
        heard.push((version, first));
    }
    heard
}

/// In any order at all most versions come too late; nearly in order, most are accepted.
fn all_at_once(nodes: &[&Server]) {
    send_within(nodes, VERSIONS as usize);
    send_within(nodes, 3);
}

fn send_within(nodes: &[&Server], window: usize) {
    let heard: Vec<(u64, Answer)> = std::thread::scope(|scope| {
        let senders: Vec<_> = (0..SENDERS).map(|number| scope.spawn(move || send_all(nodes, window, number))).collect();
        senders.into_iter().flat_map(|sender| sender.join().unwrap()).collect()
    });
    let mut accepted: BTreeMap<String, BTreeSet<u64>> = BTreeMap::new();
    for (version, answer) in &heard {
        for result in answer.json()["results"].as_array().unwrap() {
            match result["status"].as_str().unwrap() {
                "ACCEPTED" => {
                    let is_first = accepted.entry(source_id(result)).or_default().insert(*version);
                    assert!(is_first, "accepted twice: {result} at {version}");
                }
                other => assert_eq!(other, "REPLAY", "{result}"),
            }
        }
    }
    assert_eq!((heard.len(), accepted.len()), (SENDERS * VERSIONS as usize, ITEMS));
    for node in nodes {
        let mut acme = Sender::acme(node);
        for (id, versions) in &accepted {
            assert_eq!(acme.get(&format!("master/uoms/{id}")).ok(200)["source_version"], VERSIONS, "{id}");
            let entries = acme.all(&format!("master/uoms/{id}/history"), 100);
            let kept: Vec<u64> = entries.iter().map(|entry| entry["source_version"].as_u64().unwrap()).collect();
            assert!(kept.iter().eq(versions.iter().rev()), "{id}: {kept:?}, and accepted were {versions:?}");
            let numbers: Vec<u64> = entries.iter().map(|entry| entry["number"].as_u64().unwrap()).collect();
            assert!(numbers.iter().copied().eq((1..=kept.len() as u64).rev()), "{id}: {numbers:?}");
        }
    }
    let count: usize = accepted.values().map(BTreeSet::len).sum();
    eprintln!("shuffled by {window}: {} requests, {count} versions accepted", heard.len());
}

#[test]
fn concurrent_senders_in_any_order_end_in_the_highest_versions() {
    let server = dev();
    all_at_once(&[&server]);
}

#[test]
fn concurrent_senders_to_two_nodes_of_a_postgres_end_in_the_highest_versions() {
    let postgres = PostgresServer::start();
    let nodes = nodes(&postgres, 2);
    all_at_once(&[&nodes[0], &nodes[1]]);
}

/// Items and what they name, sent by different senders at the same moment: each either sees the other or is seen by it.
fn references_meet(nodes: &[&Server]) {
    use super::sending::{fresh_id, sku};
    for round in 0..40 {
        let unit = format!("CS-{round}");
        std::thread::scope(|scope| {
            let mut senders = Vec::new();
            for number in 0..4 {
                let (node, unit) = (nodes[number % nodes.len()], unit.clone());
                senders.push(scope.spawn(move || {
                    let item = if number == 0 { uom(&unit) } else { sku(&format!("S-{round}-{number}"), &unit) };
                    let path = if number == 0 { "master/uoms" } else { "master/skus" };
                    Sender::acme(node).send(path, &fresh_id(), &[item]).ok(200);
                }));
            }
            senders.into_iter().for_each(|sender| sender.join().unwrap());
        });
    }
    let mut acme = Sender::acme(nodes[0]);
    until("none waits for what is there", || acme.waiting().is_empty().then_some(()));
    for round in 0..40 {
        for number in 1..4 {
            assert_eq!(acme.all(&format!("master/skus/S-{round}-{number}/history"), 10).len(), 1);
        }
    }
}

#[test]
fn items_that_arrive_together_with_what_they_name_cannot_miss_each_other() {
    let dir = tempfile::tempdir().unwrap();
    let config = dir.path().join("fencepost.yml");
    std::fs::write(&config, "ingest: { auto_release: true }\n").unwrap();
    let serve = |serve: super::super::server::Serve| serve.arg("--config").arg(&config).start();
    let embedded = serve(super::super::server::Serve::dev(&dir.path().join("data")));
    references_meet(&[&embedded]);
    let postgres = PostgresServer::start();
    let database = postgres.fresh_database();
    let nodes = [(); 2].map(|()| serve(super::super::server::Serve::sharing(&database)));
    references_meet(&[&nodes[0], &nodes[1]]);
}
