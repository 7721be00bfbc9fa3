//! Claims, effects and seals in a user's own PostgreSQL transaction: they stand or fall together, and nobody is held up for
//! longer than that transaction lasts.

use std::sync::Arc;

use fencepost::{
    Engine,
    clock::SystemClock,
    engine::{EngineLimits, Error},
};
use fencepost_kernel::{
    Command, Millis, Reply, RowKey, Tenant, Write,
    fence::{
        self, ClaimFence, Fence, Receipt, Seal, State, Target, Token,
        scope::{OnLapse, Scope, VersionRule},
    },
    key::Kind,
    row::{CommitId, Record},
};
use fencepost_rig::PostgresServer as Server;
use fencepost_store::{
    Store,
    Verdict::{Applied, Moved},
    WriteSet,
    address::Opener,
    postgres::Postgres,
};
use futures::executor::block_on;
use tokio::runtime::Runtime;
use tokio_postgres::{Client, IsolationLevel, NoTls, Transaction};

/// The first of January 2026: past, for every database these tests meet.
pub const NOW: u64 = 1_767_225_600_000;

/// A server, and a runtime for what runs on it.
pub struct Rig {
    pub server: Server,
    pub runtime: Runtime,
}

impl Rig {
    pub fn new() -> Self {
        let runtime = tokio::runtime::Builder::new_multi_thread().worker_threads(2).enable_all().build().unwrap();
        Self { server: Server::start_with(&[]), runtime }
    }

    /// An engine over a store in a database of its own, and where that is. Nothing is swept and no commit loop runs.
    pub fn fresh(&self) -> (Engine, Arc<Postgres>, String) {
        let url = self.server.fresh_database();
        let opener = Opener {
            node: "one".to_owned(),
            address: "one:80".to_owned(),
            release: "test".to_owned(),
            format_max: None,
        };
        let (engine, store) = self.runtime.block_on(async {
            let store = Arc::new(Postgres::open(&url, &opener).await.unwrap());
            let clock = Arc::new(SystemClock::default());
            let (engine, _) =
                Engine::new(store.clone(), clock, EngineLimits::default(), Box::new(()), None).await.unwrap();
            (engine, store)
        });
        (engine, store, url)
    }
}

pub fn key(number: u64) -> RowKey {
    let mut id = [0; 32];
    id[..8].copy_from_slice(&number.wrapping_mul(0x9e37_79b9_7f4a_7c15).to_le_bytes());
    id[31] = number as u8;
    RowKey { kind: Kind::Fence, id }
}

fn fence(number: u64, state: State) -> Record {
    let fence = Fence {
        tenant: Tenant::new("acme"),
        scope: "BOOKING".into(),
        fields: vec![("booking".to_owned(), number.to_string())].into(),
        seq: None,
        first_seen: Millis(NOW),
        token: Token(NOW),
        attempt: 1,
        body: None,
        source: None,
        version: None,
        state,
        events: Vec::new(),
    };
    fence.into()
}

pub fn sealed(number: u64) -> Record {
    let receipt = Receipt { effect_id: format!("E{number}"), body: vec![number as u8; 40].into() };
    fence(number, State::Sealed { receipt, at: Millis(NOW), expires: Millis(u64::MAX) })
}

// A doubt, once its lease has run out.
fn pending(number: u64, lease_expires: u64) -> Record {
    let lease_expires = Millis(lease_expires);
    fence(
        number,
        State::Pending { lease_expires, on_lapse: OnLapse::Hold, forget_at: None, doubted_at: None, held_by: None },
    )
}

pub fn put(number: u64, record: Record) -> Write {
    Write { key: key(number), expect: None, put: Some(record) }
}

pub fn set(id: u64, writes: impl Into<Vec<Write>>) -> WriteSet {
    WriteSet::new(CommitId(id), writes.into())
}

/// A connection of the user's.
pub fn client(rig: &Rig, url: &str) -> Client {
    rig.runtime.block_on(async {
        let (client, connection) = tokio_postgres::connect(url, NoTls).await.unwrap();
        tokio::spawn(connection);
        client
    })
}

async fn ask(engine: &Engine, tx: &mut Transaction<'_>, command: &Command) -> Reply {
    engine.ask_in(tx, command).await.unwrap()
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
    Command::Fence(fence::Command::Claim(ClaimFence {
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

// Until a transaction waits for another.
pub async fn somebody_waits(watch: &Client) {
    let waits = "SELECT count(*) FROM pg_locks WHERE NOT granted";
    while watch.query_one(waits, &[]).await.unwrap().get::<_, i64>(0) == 0 {}
}

// The claim, the effect and the seal; returns the claim's reply.
pub async fn run(engine: &Engine, client: &mut Client, target: Target) -> Reply {
    let mut tx = client.transaction().await.unwrap();
    let reply = ask(engine, &mut tx, &claim(target.clone())).await;
    if let Reply::Fence(fence::Reply::New(granted)) = &reply {
        let effect = i64::from_be_bytes(target.key.0[..8].try_into().unwrap());
        tx.execute("INSERT INTO effects VALUES ($1)", &[&effect]).await.unwrap();
        let sealed = ask(engine, &mut tx, &seal(target, granted.token)).await;
        assert!(matches!(sealed, Reply::Fence(fence::Reply::Sealed { replay: false, .. })), "{sealed:?}");
    }
    tx.commit().await.unwrap();
    reply
}

#[test]
fn a_claim_an_effect_and_a_seal_stand_or_fall_with_the_users_transaction() {
    let rig = Rig::new();
    let (engine, store, url) = rig.fresh();
    let mut client = client(&rig, &url);
    rig.runtime.block_on(async {
        client.batch_execute("CREATE TABLE effects (id bigint)").await.unwrap();
        let mut tx = client.transaction().await.unwrap();
        let Reply::Fence(fence::Reply::New(granted)) = ask(&engine, &mut tx, &claim(target(1))).await else {
            panic!("nobody claimed it")
        };
        ask(&engine, &mut tx, &seal(target(1), granted.token)).await;
        tx.rollback().await.unwrap();
        assert_eq!(store.load(&[RowKey::fence(target(1).key)]).await.unwrap(), [None]);

        assert!(matches!(run(&engine, &mut client, target(1)).await, Reply::Fence(fence::Reply::New(_))));
        let Reply::Fence(fence::Reply::Duplicate { fence, .. }) = run(&engine, &mut client, target(1)).await else {
            panic!("it is sealed")
        };
        assert_eq!(fence.attempt, 1);
    });
    assert_eq!(rig.server.sql(&url, "SELECT count(*) FROM effects"), "1");
    let found = rig.server.sql(&url, "SELECT state, effect_id, node FROM fencepost_fences");
    assert_eq!(found, "sealed|E1|transaction");
    let head = rig.server.sql(&url, "SELECT kind, about ->> 'version' FROM fencepost_rows");
    assert_eq!(head, "2|1", "the version head moved with it");
    let loaded = block_on(store.load(&[RowKey::fence(target(1).key)])).unwrap();
    assert!(loaded[0].is_some(), "the nodes see it");
}

// All find nothing; one has its row first, and the others must decide again over it. A transaction in the middle of
// that commit must neither mix old rows with new ones, nor hold a row that the others wait for.
#[test]
fn of_many_transactions_that_claim_one_key_at_once_one_acts_and_all_others_get_its_receipt() {
    let rig = Rig::new();
    let (engine, _store, url) = rig.fresh();
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
            futures::future::join_all(clients.iter_mut().map(|client| run(&engine, client, target.clone()))).await
        });
        let new = replies.iter().filter(|reply| matches!(reply, Reply::Fence(fence::Reply::New(_)))).count();
        let duplicate =
            replies.iter().filter(|reply| matches!(reply, Reply::Fence(fence::Reply::Duplicate { .. }))).count();
        assert_eq!((new, duplicate), (1, 5), "{replies:?}");
    }
    assert_eq!(rig.server.sql(&url, "SELECT count(*), count(DISTINCT id) FROM effects"), "30|30");
}

// A waiting claim of the same key must not hold the version head.
#[test]
fn waiting_claim_does_not_hold_what_the_seal_of_the_holder_needs() {
    let rig = Rig::new();
    let (engine, _store, url) = rig.fresh();
    rig.server.sql(&url, "CREATE TABLE effects (id bigint)");
    let [mut one, mut other, mut third, watch] = [(); 4].map(|()| client(&rig, &url));
    rig.runtime.block_on(async {
        assert!(
            matches!(run(&engine, &mut other, version_of(1, 1)).await, Reply::Fence(fence::Reply::New(_))),
            "nobody is in its way"
        );
        let mut first = one.transaction().await.unwrap();
        let Reply::Fence(fence::Reply::New(granted)) = ask(&engine, &mut first, &claim(version_of(1, 2))).await else {
            panic!("it is free")
        };
        let sealed = async {
            somebody_waits(&watch).await;
            let sealed = ask(&engine, &mut first, &seal(version_of(1, 2), granted.token)).await;
            assert!(matches!(sealed, Reply::Fence(fence::Reply::Sealed { replay: false, .. })), "{sealed:?}");
            first.commit().await.unwrap();
        };
        let (reply, ()) = futures::future::join(run(&engine, &mut third, version_of(1, 2)), sealed).await;
        assert!(matches!(reply, Reply::Fence(fence::Reply::Duplicate { .. })), "{reply:?}");
    });
}

#[test]
fn once_there_is_a_version_the_transactions_of_its_source_go_one_after_the_other() {
    let rig = Rig::new();
    let (engine, _store, url) = rig.fresh();
    rig.server.sql(&url, "CREATE TABLE effects (id bigint)");
    let [mut one, mut other, watch] = [(); 3].map(|()| client(&rig, &url));
    rig.runtime.block_on(async {
        run(&engine, &mut one, version_of(1, 1)).await;
        let mut first = one.transaction().await.unwrap();
        let mut second = other.transaction().await.unwrap();
        let Reply::Fence(fence::Reply::New(granted)) = ask(&engine, &mut first, &claim(version_of(1, 3))).await else {
            panic!("it is in order")
        };
        let sealed = async {
            somebody_waits(&watch).await;
            ask(&engine, &mut first, &seal(version_of(1, 3), granted.token)).await;
            first.commit().await.unwrap();
        };
        let (reply, ()) = futures::future::join(ask(&engine, &mut second, &claim(version_of(1, 2))), sealed).await;
        assert!(matches!(reply, Reply::Fence(fence::Reply::Stale { .. })), "{reply:?}");
        second.commit().await.unwrap();
    });
    assert_eq!(rig.server.sql(&url, "SELECT count(*) FROM fencepost_fences"), "2", "who is stale leaves nothing");
}

// The second finds no version head either, and must undo its fence before it decides again over the first one's.
#[test]
fn two_transactions_that_find_no_version_go_one_after_the_other_and_the_higher_version_stays() {
    let rig = Rig::new();
    let (engine, _store, url) = rig.fresh();
    rig.server.sql(&url, "CREATE TABLE effects (id bigint)");
    let (mut one, mut other, watch) = (client(&rig, &url), client(&rig, &url), client(&rig, &url));
    rig.runtime.block_on(async {
        let mut first = one.transaction().await.unwrap();
        let Reply::Fence(fence::Reply::New(lower)) = ask(&engine, &mut first, &claim(version_of(1, 1))).await else {
            panic!("it is free")
        };
        let committed = async {
            somebody_waits(&watch).await;
            ask(&engine, &mut first, &seal(version_of(1, 1), lower.token)).await;
            first.commit().await.unwrap();
        };
        let (reply, ()) = futures::future::join(run(&engine, &mut other, version_of(1, 2)), committed).await;
        assert!(matches!(reply, Reply::Fence(fence::Reply::New(_))), "{reply:?}");
    });
    assert_eq!(rig.server.sql(&url, "SELECT count(*) FROM fencepost_fences WHERE state = 'sealed'"), "2");
    assert_eq!(rig.server.sql(&url, "SELECT about ->> 'version' FROM fencepost_rows"), "2");
}

#[test]
fn under_a_stricter_isolation_who_lost_is_told_to_begin_again() {
    let rig = Rig::new();
    let (engine, store, url) = rig.fresh();
    let mut client = client(&rig, &url);
    let outcome = rig.runtime.block_on(async {
        let tx = client.build_transaction().isolation_level(tokio_postgres::IsolationLevel::RepeatableRead);
        let mut tx = tx.start().await.unwrap();
        tx.query_one("SELECT count(*) FROM fencepost_fences", &[]).await.unwrap();
        let other =
            set(7, [fencepost_kernel::Write { key: RowKey::fence(target(1).key), expect: None, put: Some(sealed(1)) }]);
        assert_eq!(store.commit(&[other], Millis(NOW)).await.unwrap(), [Applied]);
        engine.ask_in(&mut tx, &claim(target(1))).await
    });
    assert!(matches!(&outcome, Err(Error::Unavailable(why)) if why.contains("40001")), "{outcome:?}");
}

// The user rolls back because of the refusal, and the doubt stays told: a renewal that was decided before cannot end it.
// INVARIANT told-doubt
#[test]
fn doubt_that_was_told_in_a_transaction_outlives_its_rollback() {
    let rig = Rig::new();
    let (engine, store, url) = rig.fresh();
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
                let put = Some(pending(number, until));
                [set(id, [Write { key, expect: expect.map(CommitId), put }])]
            };
            let claimed = fastrand::u64(..);
            block_on(store.commit(&held(claimed, None, NOW + 1), Millis(NOW))).unwrap();
            let told = rig.runtime.block_on(async {
                let mut tx = client.build_transaction().isolation_level(level).start().await.unwrap();
                let told = engine.ask_in(&mut tx, &claim(target(seq))).await;
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
