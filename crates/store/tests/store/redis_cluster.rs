//! The Redis store keeps its promises while a cluster moves its slots and fails over.

use std::{net::TcpListener, time::Duration};

use fencepost_rig::Cluster;
use fencepost_store::{
    Error, Store,
    Verdict::{self, Applied},
    WriteSet,
    redis::Redis,
};
use fencepost_testkit::until_within;
use futures::executor::block_on;

use super::{
    redis::{commit, key, pending, revision, set},
    redis_rig::Stores,
};

// Commits again, under the same ids, every set that is unknown, not applied or held, as the engine and its callers do.
fn insist(store: &Redis, sets: &[WriteSet]) -> Vec<Verdict> {
    until_within(Duration::from_secs(20), "the sets are committed", || match commit(store, sets) {
        Err(Error::Broken(why)) => panic!("{why}"),
        // A master that nobody has replaced yet holds its rows.
        told => told.ok().filter(|verdicts| !verdicts.contains(&Verdict::Held)),
    })
}

#[test]
fn a_cluster_that_moves_slots_and_fails_over_keeps_what_its_replicas_had() {
    let (mut cluster, stores) = (Cluster::start(), Stores::new());
    let store = stores.open(&format!("{}?replicas=1", cluster.url()));
    let member = stores.try_open(&format!("redis://127.0.0.1:{}", cluster.port(0))).err().unwrap();
    assert!(matches!(&member, Error::Broken(why) if why.contains("redis+cluster://")), "{member}");
    let batch = |at: u64| -> Vec<_> { (at..at + 20).map(|n| set(n, key(n), None, pending())).collect() };
    assert_eq!(commit(&store, &batch(1)).unwrap(), vec![Applied; 20]);

    let [from, to] = [0, 1].map(|member| cluster.cli(member, &["CLUSTER", "MYID"]));
    a_slot_on_its_way_is_asked_for_at_both_ends(&cluster, &store, [&from, &to]);
    let entry = format!("127.0.0.1:{}", cluster.port(0));
    let moving = std::thread::spawn(move || {
        let arguments = ["--cluster-from", &from, "--cluster-to", &to, "--cluster-slots", "1500", "--cluster-yes"];
        std::process::Command::new("redis-cli").args(["--cluster", "reshard", &entry]).args(arguments).output().unwrap()
    });
    let mut next = 21;
    while !moving.is_finished() {
        assert_eq!(insist(&store, &batch(next)), vec![Applied; 20]);
        next += 20;
    }
    let moved = moving.join().unwrap();
    assert!(moved.status.success(), "{}", String::from_utf8_lossy(&moved.stdout));

    let content = stores.open(&cluster.url());
    cluster.kill_a_master();
    // The replica that took over has none of its own yet.
    assert_eq!(insist(&content, &batch(next)), vec![Applied; 20]);
    cluster.restart_all();
    assert_eq!(insist(&store, &batch(next + 20)), vec![Applied; 20]);
    for n in 1..next + 40 {
        assert_eq!(revision(&store, key(n)), Some(n));
    }
}

#[test]
fn a_master_that_fell_silent_is_given_up_for_the_replica_that_took_over() {
    let (mut cluster, stores) = (Cluster::start(), Stores::new());
    let [writer, reader] = [(); 2].map(|()| stores.open(&cluster.url()));
    let batch = |at: u64| -> Vec<_> { (at..at + 20).map(|n| set(n, key(n), None, pending())).collect() };
    let keys: Vec<_> = (21..41).map(key).collect();
    assert_eq!(commit(&writer, &batch(1)).unwrap(), vec![Applied; 20]);
    assert_eq!(block_on(reader.load(&keys)).unwrap(), [const { None }; 20]);
    // Every connection to it stays open, and the way to it as well.
    cluster.stall(0);
    assert_eq!(insist(&writer, &batch(21)), vec![Applied; 20]);
    let read = || block_on(reader.load(&keys)).ok();
    let rows = until_within(Duration::from_secs(20), "the rows are read", read);
    assert!(rows.iter().all(Option::is_some), "{rows:?}");
    cluster.wake(0);
    assert_eq!(insist(&writer, &batch(41)), vec![Applied; 20]);
}

#[test]
fn members_that_are_silent_keep_no_cluster_from_opening() {
    let (cluster, stores) = (Cluster::start(), Stores::new());
    let silent = [(); 2].map(|()| TcpListener::bind("127.0.0.1:0").unwrap());
    let [first, second] = silent.each_ref().map(|listener| listener.local_addr().unwrap());
    let store = stores.open(&format!("redis+cluster://{first},{second},localhost:{}", cluster.port(0)));
    assert_eq!(commit(&store, &[set(1, key(1), None, pending())]).unwrap(), [Applied]);
}

fn a_slot_on_its_way_is_asked_for_at_both_ends(cluster: &Cluster, store: &Redis, [from, to]: [&str; 2]) {
    let slot = |n: &u64| {
        let id = key(*n).id;
        let bucket = u16::from_be_bytes([id[0], id[1]]) >> 6;
        cluster.cli(0, &["CLUSTER", "KEYSLOT", &format!("{{fencepost/{bucket:03x}}}")])
    };
    // The first third of the slots is the first member's.
    let row = (1_000_000..).find(|n| slot(n).parse::<u16>().unwrap() < 5_000).unwrap();
    let say = |member, words: &[&str]| cluster.cli(member, &[&["CLUSTER", "SETSLOT", &slot(&row)], words].concat());
    assert_eq!(say(1, &["IMPORTING", from]), "OK");
    assert_eq!(say(0, &["MIGRATING", to]), "OK");
    assert_eq!(revision(store, key(row)), None);
    // A script needs all its keys at one end: until the slot has arrived, nothing happens.
    let halfway = commit(store, &[set(row, key(row), None, pending())]);
    assert!(matches!(halfway, Err(Error::NotApplied(_))), "{halfway:?}");
    [0, 1].into_iter().for_each(|member| assert_eq!(say(member, &["STABLE"]), "OK"));
    assert_eq!(commit(store, &[set(row, key(row), None, pending())]).unwrap(), [Applied]);
}
