//! Transactions that outlive their connection, and those that hold up a node that starts.

use std::{
    thread,
    time::{Duration, Instant},
};

use fencepost_kernel::Millis;
use fencepost_store::{Error, Store, Verdict::Applied, postgres::Postgres};
use futures::executor::block_on;
use tokio_postgres::{Client, NoTls};

use super::postgres_rig::{NOW, Rig, key, opener, put, sealed, set};

/// A connection of the user's.
pub fn client(rig: &Rig, url: &str) -> Client {
    rig.runtime.block_on(async {
        let (client, connection) = tokio_postgres::connect(url, NoTls).await.unwrap();
        tokio::spawn(connection);
        client
    })
}

#[test]
fn a_node_that_cannot_enter_says_so_and_does_not_wait_for_ever() {
    let rig = Rig::new();
    let (_store, url) = rig.fresh("one");
    let mut client = client(&rig, &url);
    let refused = rig.runtime.block_on(async {
        let tx = client.transaction().await.unwrap();
        tx.execute("SELECT 1 FROM fencepost_meta FOR UPDATE", &[]).await.unwrap();
        let opener = opener("two");
        let entering = Postgres::open(&url, &opener);
        tokio::time::timeout(Duration::from_secs(60), entering).await.expect("it waits for ever").err()
    });
    assert!(matches!(&refused, Some(Error::NotApplied(why)) if why.contains("55P03")), "{refused:?}");
    rig.open(&url, "three");
}

// The connection is cut while the server works on the commit: the server goes on, and nobody hears how it ended.
#[test]
fn a_commit_whose_connection_is_lost_is_unknown_and_its_repetition_finds_what_became_of_it() {
    let rig = Rig::new();
    let (store, url) = rig.fresh("setup");
    block_on(store.commit(&[set(1, [put(1, None, sealed(1, u64::MAX))])], Millis(NOW))).unwrap();
    // Rows that are written and not yet committed stay so for a while.
    rig.server.sql(
        &url,
        "CREATE FUNCTION linger() RETURNS trigger LANGUAGE plpgsql AS $$ BEGIN
            PERFORM pg_sleep(1.8); RETURN NULL; END $$;
         CREATE TRIGGER linger AFTER INSERT ON fencepost_fences FOR EACH ROW EXECUTE FUNCTION linger()",
    );
    let (proxy, detour) = rig.through(&url);
    let store = rig.open(&detour, "one");
    block_on(store.commit(&[], Millis(NOW))).unwrap();
    let sets = [set(2, [put(1, Some(1), sealed(2, u64::MAX))]), set(3, [put(3, None, sealed(3, u64::MAX))])];
    let other = client(&rig, &url);
    let outcome = thread::scope(|scope| {
        let commit = scope.spawn(|| block_on(store.commit(&sets, Millis(NOW))));
        let lingers = "SELECT count(*) FROM pg_stat_activity WHERE wait_event = 'PgSleep'";
        while rig.runtime.block_on(other.query_one(lingers, &[])).unwrap().get::<_, i64>(0) == 0 {
            assert!(!commit.is_finished(), "the commit did not linger");
        }
        proxy.cut();
        commit.join().unwrap()
    });
    assert!(matches!(outcome, Err(Error::Unknown(_))), "{outcome:?}");
    // It is not called moved while the first try may still win.
    let again = block_on(store.commit(&sets, Millis(NOW)));
    assert!(matches!(again, Err(Error::Unknown(_))), "{again:?}");
    let began = Instant::now();
    let verdicts = loop {
        match block_on(store.commit(&sets, Millis(NOW))) {
            Ok(verdicts) => break verdicts,
            Err(error) => assert!(began.elapsed() < Duration::from_secs(10), "{error}"),
        }
    };
    assert_eq!(verdicts, vec![Applied; 2]);
    let found = block_on(store.load(&[key(1), key(3)])).unwrap();
    let found: Vec<_> = found.into_iter().map(|row| row.unwrap().revision.0).collect();
    assert_eq!(found, [2, 3]);
}

#[test]
fn a_connection_that_is_refused_has_done_nothing() {
    let rig = Rig::new();
    let (_store, url) = rig.fresh("setup");
    let (proxy, detour) = rig.through(&url);
    let store = rig.open(&detour, "one");
    proxy.refuse(true);
    proxy.cut();
    // Once a commit of nothing has noticed the cut, nothing more is sent into the old connection.
    while block_on(store.commit(&[], Millis(NOW))).is_ok() {}
    let outcome = block_on(store.commit(&[set(1, [put(1, None, sealed(1, u64::MAX))])], Millis(NOW)));
    assert!(matches!(outcome, Err(Error::NotApplied(_))), "{outcome:?}");
    assert_eq!(rig.server.sql(&url, "SELECT count(*) FROM fencepost_fences"), "0");
}
