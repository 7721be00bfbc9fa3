//! Transactions that are not ours: the user's own with a claim in it, and our own after their connection is gone.

use std::{
    sync::{Arc, atomic::AtomicU64, atomic::Ordering},
    thread,
    time::{Duration, Instant},
};

use fencepost_kernel::{
    Command, Millis, Reply, RowKey, Tenant, Write,
    fence::{
        self, Claim, Seal, State, Target, Token,
        scope::{OnLapse, Scope, VersionRule},
    },
    row::{CommitId, Record},
};
use fencepost_store::{
    Error, Memory, Store,
    Verdict::{Applied, Moved},
    postgres::{Postgres, in_tx},
};
use futures::executor::block_on;
use tokio_postgres::{Client, IsolationLevel, NoTls, Transaction};

use super::postgres_rig::{NOW, Rig, key, opener, pending, put, sealed, set};

/// A connection of the user's.
pub fn client(rig: &Rig, url: &str) -> Client {
    rig.runtime.block_on(async {
        let (client, connection) = tokio_postgres::connect(url, NoTls).await.unwrap();
        tokio::spawn(connection);
        client
    })
}

fn target(number: u64) -> Target {
    version_of(number, 1)
}

pub fn version_of(number: u64, version: u64) -> Target {
    let mut scope = Scope::new("BOOKING", ["booking", "version"]);
    scope.version = Some(VersionRule { field: "version".to_owned(), per: vec!["booking".to_owned()] });
    let fields = vec![("booking".to_owned(), number.to_string()), ("version".to_owned(), version.to_string())];
    Target::new(Tenant::new("acme"), Arc::new(scope), fields, None).unwrap()
}

pub fn claim(target: Target) -> Command {
    Command::Fence(fence::Command::Claim(Claim {
        target,
        body: None,
        version: None,
        source: None,
        lease_ms: 30_000,
        trace: None,
    }))
}

pub fn seal(target: Target, token: Token) -> Command {
    let effect_id = format!("E{}", target.fields[0].1);
    Command::Fence(fence::Command::Seal(Seal { target, token, effect_id, receipt: "receipt".into() }))
}

async fn ask(tx: &Transaction<'_>, command: &Command) -> Reply {
    static NEXT: AtomicU64 = AtomicU64::new(1);
    in_tx::ask(tx, "user", &Memory::new(), command, || CommitId(NEXT.fetch_add(1, Ordering::Relaxed))).await.unwrap()
}

// Until a transaction waits for another.
pub async fn somebody_waits(watch: &Client) {
    let waits = "SELECT count(*) FROM pg_locks WHERE NOT granted";
    while watch.query_one(waits, &[]).await.unwrap().get::<_, i64>(0) == 0 {}
}

// The claim, the effect and the seal; what the claim said.
pub async fn run(client: &mut Client, target: Target) -> Reply {
    let tx = client.transaction().await.unwrap();
    let reply = ask(&tx, &claim(target.clone())).await;
    if let Reply::Fence(fence::Reply::New(granted)) = &reply {
        let effect = i64::from_be_bytes(target.key.0[..8].try_into().unwrap());
        tx.execute("INSERT INTO effects VALUES ($1)", &[&effect]).await.unwrap();
        let sealed = ask(&tx, &seal(target, granted.token)).await;
        assert!(matches!(sealed, Reply::Fence(fence::Reply::Sealed { replay: false, .. })), "{sealed:?}");
    }
    tx.commit().await.unwrap();
    reply
}

#[test]
fn a_claim_an_effect_and_a_seal_stand_or_fall_with_the_users_transaction() {
    let rig = Rig::new();
    let (store, url) = rig.fresh("one");
    let mut client = client(&rig, &url);
    rig.runtime.block_on(async {
        client.batch_execute("CREATE TABLE effects (id bigint)").await.unwrap();
        let tx = client.transaction().await.unwrap();
        let Reply::Fence(fence::Reply::New(granted)) = ask(&tx, &claim(target(1))).await else {
            panic!("nobody claimed it")
        };
        ask(&tx, &seal(target(1), granted.token)).await;
        tx.rollback().await.unwrap();
        assert_eq!(store.load(&[RowKey::fence(target(1).key)]).await.unwrap(), [None]);

        assert!(matches!(run(&mut client, target(1)).await, Reply::Fence(fence::Reply::New(_))));
        let Reply::Fence(fence::Reply::Duplicate { fence, .. }) = run(&mut client, target(1)).await else {
            panic!("it is sealed")
        };
        assert_eq!(fence.attempt, 1);
    });
    assert_eq!(rig.server.sql(&url, "SELECT count(*) FROM effects"), "1");
    let found = rig.server.sql(&url, "SELECT state, effect_id, node FROM fencepost_fences");
    assert_eq!(found, "sealed|E1|user");
    let head = rig.server.sql(&url, "SELECT kind, about ->> 'version' FROM fencepost_rows");
    assert_eq!(head, "2|1", "the version head moved with it");
    let loaded = block_on(store.load(&[RowKey::fence(target(1).key)])).unwrap();
    assert!(loaded[0].is_some(), "the nodes see it");
}

// All find nothing; one has its row first, and the others must decide again over it. Who comes in the middle of that
// commit must neither mix what was with what is, nor hold what the others wait for.
#[test]
fn of_many_transactions_that_claim_one_key_at_once_one_acts_and_all_others_get_its_receipt() {
    let rig = Rig::new();
    let (_store, url) = rig.fresh("one");
    rig.server.sql(&url, "CREATE TABLE effects (id bigint)");
    let mut clients: Vec<_> = (0..6).map(|_| client(&rig, &url)).collect();
    let plain = |number: u64| {
        let fields = vec![("file".to_owned(), number.to_string())];
        Target::new(Tenant::new("acme"), Arc::new(Scope::new("FILE", ["file"])), fields, None).unwrap()
    };
    // A plain key, a version, and a repetition.
    let targets = (0..10).flat_map(|number| {
        let file = plain(number);
        let again = Target::new(file.tenant.clone(), file.scope.clone(), file.fields.to_vec(), Some(1)).unwrap();
        [file, version_of(number, 1), again]
    });
    for target in targets {
        let replies = rig.runtime.block_on(async {
            futures::future::join_all(clients.iter_mut().map(|client| run(client, target.clone()))).await
        });
        let new = replies.iter().filter(|reply| matches!(reply, Reply::Fence(fence::Reply::New(_)))).count();
        let duplicate =
            replies.iter().filter(|reply| matches!(reply, Reply::Fence(fence::Reply::Duplicate { .. }))).count();
        assert_eq!((new, duplicate), (1, 5), "{replies:?}");
    }
    assert_eq!(rig.server.sql(&url, "SELECT count(*), count(DISTINCT id) FROM effects"), "30|30");
}

// Who claims the same key must not hold the version head while it waits.
#[test]
fn who_waits_for_a_claim_does_not_hold_what_its_seal_needs() {
    let rig = Rig::new();
    let (_store, url) = rig.fresh("one");
    rig.server.sql(&url, "CREATE TABLE effects (id bigint)");
    let [mut one, mut other, mut third, watch] = [(); 4].map(|()| client(&rig, &url));
    rig.runtime.block_on(async {
        assert!(
            matches!(run(&mut other, version_of(1, 1)).await, Reply::Fence(fence::Reply::New(_))),
            "nobody is in its way"
        );
        let first = one.transaction().await.unwrap();
        let Reply::Fence(fence::Reply::New(granted)) = ask(&first, &claim(version_of(1, 2))).await else {
            panic!("it is free")
        };
        let sealed = async {
            somebody_waits(&watch).await;
            let sealed = ask(&first, &seal(version_of(1, 2), granted.token)).await;
            assert!(matches!(sealed, Reply::Fence(fence::Reply::Sealed { replay: false, .. })), "{sealed:?}");
            first.commit().await.unwrap();
        };
        let (reply, ()) = futures::future::join(run(&mut third, version_of(1, 2)), sealed).await;
        assert!(matches!(reply, Reply::Fence(fence::Reply::Duplicate { .. })), "{reply:?}");
    });
}

#[test]
fn once_there_is_a_version_the_transactions_of_its_source_go_one_after_the_other() {
    let rig = Rig::new();
    let (_store, url) = rig.fresh("one");
    rig.server.sql(&url, "CREATE TABLE effects (id bigint)");
    let [mut one, mut other, watch] = [(); 3].map(|()| client(&rig, &url));
    rig.runtime.block_on(async {
        run(&mut one, version_of(1, 1)).await;
        let first = one.transaction().await.unwrap();
        let second = other.transaction().await.unwrap();
        let Reply::Fence(fence::Reply::New(granted)) = ask(&first, &claim(version_of(1, 3))).await else {
            panic!("it is in order")
        };
        let sealed = async {
            somebody_waits(&watch).await;
            ask(&first, &seal(version_of(1, 3), granted.token)).await;
            first.commit().await.unwrap();
        };
        let (reply, ()) = futures::future::join(ask(&second, &claim(version_of(1, 2))), sealed).await;
        assert!(matches!(reply, Reply::Fence(fence::Reply::Stale { .. })), "{reply:?}");
        second.commit().await.unwrap();
    });
    assert_eq!(rig.server.sql(&url, "SELECT count(*) FROM fencepost_fences"), "2", "who is stale leaves nothing");
}

// The second finds no version head either, and must undo its fence before it decides again over the first one's.
#[test]
fn two_transactions_that_find_no_version_go_one_after_the_other_and_the_higher_version_stays() {
    let rig = Rig::new();
    let (_store, url) = rig.fresh("one");
    rig.server.sql(&url, "CREATE TABLE effects (id bigint)");
    let (mut one, mut other, watch) = (client(&rig, &url), client(&rig, &url), client(&rig, &url));
    rig.runtime.block_on(async {
        let first = one.transaction().await.unwrap();
        let Reply::Fence(fence::Reply::New(lower)) = ask(&first, &claim(version_of(1, 1))).await else {
            panic!("it is free")
        };
        let committed = async {
            somebody_waits(&watch).await;
            ask(&first, &seal(version_of(1, 1), lower.token)).await;
            first.commit().await.unwrap();
        };
        let (reply, ()) = futures::future::join(run(&mut other, version_of(1, 2)), committed).await;
        assert!(matches!(reply, Reply::Fence(fence::Reply::New(_))), "{reply:?}");
    });
    assert_eq!(rig.server.sql(&url, "SELECT count(*) FROM fencepost_fences WHERE state = 'sealed'"), "2");
    assert_eq!(rig.server.sql(&url, "SELECT about ->> 'version' FROM fencepost_rows"), "2");
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

#[test]
fn under_a_stricter_isolation_who_lost_is_told_to_begin_again() {
    let rig = Rig::new();
    let (store, url) = rig.fresh("one");
    let mut client = client(&rig, &url);
    let outcome = rig.runtime.block_on(async {
        let tx = client.build_transaction().isolation_level(tokio_postgres::IsolationLevel::RepeatableRead);
        let tx = tx.start().await.unwrap();
        tx.query_one("SELECT count(*) FROM fencepost_fences", &[]).await.unwrap();
        let other = set(
            7,
            [fencepost_kernel::Write {
                key: RowKey::fence(target(1).key),
                expect: None,
                put: Some(sealed(1, u64::MAX)),
            }],
        );
        assert_eq!(store.commit(&[other], Millis(NOW)).await.unwrap(), [Applied]);
        in_tx::ask(&tx, "user", &Memory::new(), &claim(target(1)), || CommitId(8)).await
    });
    assert!(matches!(&outcome, Err(Error::NotApplied(why)) if why.contains("40001")), "{outcome:?}");
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

// The user rolls back because of the refusal, and the doubt stays told: a renewal that was decided before cannot end it.
// INVARIANT told-doubt
#[test]
fn doubt_that_was_told_in_a_transaction_outlives_its_rollback() {
    let rig = Rig::new();
    let (store, url) = rig.fresh("one");
    let [mut client, other] = [(); 2].map(|()| client(&rig, &url));
    for (number, level) in (0..).zip([IsolationLevel::ReadCommitted, IsolationLevel::RepeatableRead]) {
        // Alone, and asked for by its first repetition.
        for seq in [None, Some(1)] {
            let fields = vec![("file".to_owned(), format!("{number}-{}", seq.is_some()))];
            let target = |seq| {
                let scope = Arc::new(Scope::new("FILE", ["file"]));
                Target::new(Tenant::new("acme"), scope, fields.clone(), seq).unwrap()
            };
            let key = RowKey::fence(target(None).key);
            let held = |id: u64, expect: Option<u64>, until| {
                let put = Some(pending(number, until, OnLapse::Hold));
                [set(id, [Write { key, expect: expect.map(CommitId), put }])]
            };
            let claimed = fastrand::u64(..);
            block_on(store.commit(&held(claimed, None, NOW + 1), Millis(NOW))).unwrap();
            let told = rig.runtime.block_on(async {
                let tx = client.build_transaction().isolation_level(level).start().await.unwrap();
                let told = in_tx::ask(&tx, "user", &*store, &claim(target(seq)), || CommitId(fastrand::u64(..))).await;
                let free =
                    "SELECT count(*) FROM (SELECT 1 FROM fencepost_fences WHERE key = $1 FOR UPDATE SKIP LOCKED) f";
                assert_eq!(
                    other.query_one(free, &[&key.id.as_slice()]).await.unwrap().get::<_, i64>(0),
                    1,
                    "it is held"
                );
                tx.rollback().await.unwrap();
                told.unwrap()
            });
            assert!(matches!(told, Reply::Fence(fence::Reply::InDoubt { .. })), "{told:?}");
            let row = block_on(store.load(&[key])).unwrap().remove(0).unwrap();
            let Record::Fence(fence::Record::Fence(fence)) = &row.record else { panic!("{row:?}") };
            assert!(matches!(fence.state, State::Pending { doubted_at: Some(_), .. }), "{:?}", fence.state);
            let renewed = held(fastrand::u64(..), Some(claimed), NOW + 60_000);
            assert_eq!(block_on(store.commit(&renewed, Millis(NOW))).unwrap(), [Moved]);
        }
    }
}
