//! Many want the same key at once: exactly one is let in.

use std::{
    collections::BTreeMap,
    sync::{Barrier, Mutex},
    thread,
};

use serde_json::json;

use super::server::dev;

const CLIENTS: usize = 64;
const KEYS: usize = 1_000;

#[test]
fn of_64_concurrent_claims_of_one_key_exactly_one_is_new_for_1000_keys() {
    let server = dev();
    let news = Mutex::new(BTreeMap::<usize, Vec<u64>>::new());
    let start = Barrier::new(CLIENTS);
    thread::scope(|scope| {
        for _ in 0..CLIENTS {
            scope.spawn(|| {
                let mut client = server.acme();
                client.get("/healthz");
                start.wait();
                // All in the same order: at every key the whole pack arrives together.
                for key in 0..KEYS {
                    let body =
                        format!(r#"{{"scope":"INDEX_BUILD","key":{{"index_hash":"{key}"}},"lease_ms":3600000}}"#);
                    let answer = client.post("/v1/fences/claim", body);
                    match answer.status {
                        201 => news.lock().unwrap().entry(key).or_default().push(answer.token()),
                        409 => assert!(answer.text().contains("\"code\":\"in-flight\""), "{}", answer.text()),
                        _ => panic!("{} {}", answer.status, answer.text()),
                    }
                }
            });
        }
    });
    let news = news.into_inner().unwrap();
    let wrong: Vec<_> = (0..KEYS).filter(|key| news.get(key).map_or(0, Vec::len) != 1).collect();
    assert!(wrong.is_empty(), "keys that not exactly one was let in to: {wrong:?}");
    eprintln!("race: {} claims of {KEYS} keys, {} new", CLIENTS * KEYS, news.len());
}

#[test]
fn the_same_key_a_hundred_times_in_one_batch_is_let_in_once() {
    let server = dev();
    let start = Barrier::new(8);
    let news = Mutex::new(0);
    thread::scope(|scope| {
        for _ in 0..8 {
            scope.spawn(|| {
                let commands = vec![json!({"op": "claim", "scope": "INDEX_BUILD", "key": {"index_hash": "one"}}); 100];
                start.wait();
                let results = server.acme().batch(&commands).ok(200);
                let new =
                    results["results"].as_array().unwrap().iter().filter(|result| result["status"] == 201).count();
                *news.lock().unwrap() += new;
            });
        }
    });
    assert_eq!(news.into_inner().unwrap(), 1);
}
