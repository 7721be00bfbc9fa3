//! A standby takes over: no connection of a node stays with the old primary, and time does not go back with its clock.

use std::{
    sync::Arc,
    time::{Duration, Instant},
};

use fencepost_kernel::Millis;
use fencepost_rig::{Pair, Proxy};
use fencepost_store::{
    Error, Store,
    Verdict::{Applied, Moved},
    WriteSet,
    postgres::Postgres,
};
use fencepost_testkit::until_within;
use futures::executor::block_on;
use tokio::runtime::Runtime;

use super::postgres_rig::{NOW, Rig, key, opener, put, sealed, set};

/// Two seconds between heartbeats, one for a late dial, and time to spare.
const NOTICED: Duration = Duration::from_secs(10);

fn claim(number: u64) -> [WriteSet; 1] {
    [set(number, [put(number, None, sealed(number, u64::MAX))])]
}

fn revision(store: &Postgres, number: u64) -> Option<u64> {
    block_on(store.load(&[key(number)])).unwrap().remove(0).map(|row| row.revision.0)
}

fn until(what: &str, done: impl FnMut() -> bool) {
    until_within(NOTICED, what, done);
}

/// A node that knew the old primary, behind a name that leads to the new one by now; the old one still answers.
struct Deposed {
    store: Arc<Postgres>,
    /// A node of the new primary, which has written a row since.
    other: Arc<Postgres>,
    old: fencepost_rig::PostgresServer,
    database: String,
    _pair: Pair,
    _name: Proxy,
    _runtime: Runtime,
}

impl Deposed {
    fn new() -> Self {
        let runtime = tokio::runtime::Builder::new_multi_thread().worker_threads(2).enable_all().build().unwrap();
        let open = |url: &str, node: &str| Arc::new(runtime.block_on(Postgres::open(url, &opener(node))).unwrap());
        let mut pair = Pair::start();
        let database = pair.primary.fresh_database();
        let name = Proxy::start(pair.primary.port());
        let at = |port: u16| database.replace(&format!(":{}/", pair.primary.port()), &format!(":{port}/"));
        let store = open(&at(name.port()), "one");
        assert_eq!(block_on(store.commit(&claim(1), Millis(NOW))).unwrap(), [Applied]);
        assert_eq!(revision(&store, 1), Some(1));
        // The connection of its heartbeat comes last. From here on all of them stay where they are until one is lost.
        let links = "SELECT count(*) FROM pg_stat_activity WHERE application_name = 'fencepost one'";
        until("every connection of the node is there", || pair.primary.sql(&database, links) == "3");
        let old = pair.promote();
        let new = database.replace(&format!(":{}/", old.port()), &format!(":{}/", pair.primary.port()));
        name.lead_to(pair.primary.port());
        let other = open(&new, "other");
        assert_eq!(block_on(other.commit(&claim(2), Millis(NOW))).unwrap(), [Applied]);
        Self { store, other, old, database, _pair: pair, _name: name, _runtime: runtime }
    }

    // Its standby is a primary now: a commit that arrives before the session is read-only must not wait for it.
    fn demote(&self) {
        self.old.sql(&self.database, "ALTER SYSTEM SET synchronous_standby_names = ''");
        self.old.sql(&self.database, "SELECT pg_reload_conf()");
        self.old.sql(&self.database, "ALTER SYSTEM SET default_transaction_read_only = on");
        self.old.sql(&self.database, "SELECT pg_reload_conf()");
    }

    fn assert_old_answers(&self) {
        let rows = self.old.sql(&self.database, "SELECT count(*) FROM fencepost_fences WHERE revision = 2");
        assert_eq!(rows, "0", "the old primary answers with what was");
    }
}

#[test]
fn a_commit_that_an_old_primary_refuses_takes_reads_along_to_the_new_one() {
    let deposed = Deposed::new();
    deposed.demote();
    // The setting reaches an open session a moment later than the answer to its reload.
    let refused = until_within(NOTICED, "the old primary refuses", || {
        match block_on(deposed.store.commit(&claim(3), Millis(NOW))) {
            Err(error) => Some(Some(error)),
            // The heartbeat was faster.
            Ok(_) => (revision(&deposed.other, 3) == Some(3)).then_some(None),
        }
    });
    assert!(matches!(refused, None | Some(Error::NotApplied(_))), "{refused:?}");
    assert_eq!(revision(&deposed.store, 2), Some(2), "reads went along");
    deposed.assert_old_answers();
    assert_eq!(block_on(deposed.store.commit(&claim(4), Millis(NOW))).unwrap(), [Applied]);
    assert_eq!(revision(&deposed.other, 4), Some(4));
}

#[test]
fn an_idle_node_leaves_a_demoted_primary_with_its_heartbeat() {
    let deposed = Deposed::new();
    deposed.demote();
    until("the node reads from the new primary", || revision(&deposed.store, 2) == Some(2));
    deposed.assert_old_answers();
}

// Nothing was demoted: one connection broke, and the next one leads elsewhere.
#[test]
fn one_lost_connection_takes_all_others_along() {
    let deposed = Deposed::new();
    assert_eq!(revision(&deposed.store, 2), None, "it still reads from the old primary");
    let committing =
        "SELECT pid FROM pg_stat_activity WHERE application_name = 'fencepost one' AND query LIKE 'WITH given%'";
    let ended =
        deposed.old.sql(&deposed.database, &format!("SELECT count(pg_terminate_backend(pid)) FROM ({committing}) own"));
    assert_eq!(ended, "1");
    until("reads have left with it", || revision(&deposed.store, 2) == Some(2));
    deposed.assert_old_answers();
    assert_eq!(block_on(deposed.store.commit(&claim(4), Millis(NOW))).unwrap(), [Applied]);
    assert_eq!(revision(&deposed.other, 4), Some(4));
}

// The old primary waits for a standby that it no longer has: nothing that it commits is acknowledged.
#[test]
fn a_commit_that_an_old_primary_left_open_is_decided_again_at_the_new_one() {
    let deposed = Deposed::new();
    let open = block_on(deposed.store.commit(&claim(3), Millis(NOW)));
    assert!(matches!(open, Err(Error::Unknown(_))), "{open:?}");
    // It was decided over what the old primary said, which may have been behind.
    assert_eq!(block_on(deposed.store.commit(&claim(3), Millis(NOW))).unwrap(), [Moved]);
    assert_eq!(revision(&deposed.store, 2), Some(2));
    assert_eq!(block_on(deposed.store.commit(&claim(4), Millis(NOW))).unwrap(), [Applied]);
    assert_eq!((revision(&deposed.other, 3), revision(&deposed.other, 4)), (None, Some(4)));
}

/// How far nodes may be apart: a quarter of a second between their heartbeats, and a busy machine.
const APART_MS: u64 = 1_000;

// Nothing was ever committed, so nothing but the heartbeat knows what time the first one has.
#[test]
fn a_node_that_starts_on_a_server_whose_clock_is_behind_has_the_time_of_the_others() {
    let mut rig = Rig::new();
    let (first, url) = rig.fresh("first");
    let before = first.now().unwrap();
    rig.server.restart_with_clock(-3_600);
    let ask = |sql: &str| rig.server.sql(&url, sql);
    let told = format!("SELECT max(floor) > to_timestamp({} / 1000.0) FROM fencepost_nodes", before.0);
    until("the first node has told the new server its time", || ask(&told) == "t");
    let second = rig.open(&url, "second");
    let apart = || first.now().unwrap().since(second.now().unwrap());
    assert!(apart() < APART_MS, "it starts {} ms behind", apart());
    assert!(second.now().unwrap() >= before);
    // A commit of one node dates rows, and any other agrees whether they are over.
    assert_eq!(block_on(second.commit(&claim(1), second.now().unwrap())).unwrap(), [Applied]);
    assert!(apart() < APART_MS);
    drop(first);
    let third = rig.open(&url, "third");
    assert!(second.now().unwrap().since(third.now().unwrap()) < APART_MS);
}

#[test]
fn nodes_that_started_on_a_slow_server_before_the_others_came_back_follow_them() {
    let mut rig = Rig::new();
    let (first, url) = rig.fresh("first");
    rig.server.restart_with_clock(-3_600);
    // The first one's connection may still be down.
    let second = rig.open(&url, "second");
    until("both have one time", || first.now().unwrap().since(second.now().unwrap()) < APART_MS);
}

#[test]
fn lease_of_a_node_that_starts_after_a_failover_to_a_slow_clock_is_alive_for_the_others() {
    const LEASE_MS: u64 = 5_000;
    let runtime = tokio::runtime::Builder::new_multi_thread().worker_threads(2).enable_all().build().unwrap();
    let open = |url: &str, node: &str| Arc::new(runtime.block_on(Postgres::open(url, &opener(node))).unwrap());
    let mut pair = Pair::start();
    pair.set_standby_clock(-3_600);
    let url = pair.url(&pair.primary.fresh_database());
    let (begun, first) = (Instant::now(), open(&url, "first"));
    pair.fail_over();
    // It is back, and has neither committed anything nor said what time it is: the other knows no more than when it started.
    until("the first node reads again", || block_on(first.load(&[key(1)])).is_ok());
    let third = open(&url, "third");
    let apart_ms = || first.now().unwrap().since(third.now().unwrap());
    let known_ms = begun.elapsed().as_millis() as u64;
    assert!(apart_ms() <= known_ms + APART_MS, "{} ms behind", apart_ms());
    until("both have one time", || apart_ms() < APART_MS);
    let granted = third.now().unwrap();
    assert_eq!(block_on(third.commit(&claim(1), granted)).unwrap(), [Applied]);
    assert!(first.now().unwrap() < granted.plus(LEASE_MS), "a lease is over when it begins");
}
