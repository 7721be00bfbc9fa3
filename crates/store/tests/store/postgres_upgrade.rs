//! A database made by the release before, with its rows, under nodes of both releases: the tables change beneath the older one.

use std::{
    sync::Barrier,
    thread,
    time::{Duration, Instant},
};

use fencepost_kernel::{
    Millis, RowKey, Write,
    fence::{self, Trace},
    key::Kind,
    merge::Counter,
    row::{CommitId, Record},
};
use fencepost_store::{Store, Verdict::Applied, WriteSet, codec};
use futures::executor::block_on;
use tokio_postgres::{Client, Statement, types::ToSql};

use super::{
    postgres_rig::{NOW, Rig},
    postgres_tx::client,
};

// The steps as they were released: a step never changes after that.
const TABLES: [&str; 3] = [
    include_str!("../../src/postgres/schema.sql"),
    include_str!("../../src/postgres/schema_lanes.sql"),
    include_str!("../../src/postgres/schema_drives.sql"),
];

/// How the release before wrote rows: without a due time.
const WRITE_ROWS: &str = "WITH given AS MATERIALIZED (
        SELECT * FROM unnest($1::bytea[], $2::smallint[], $3::bigint[], $4::smallint[], $5::text[],
            $6::timestamptz[], $7::bigint[], $8::bytea[])
        AS given (id, kind, expect, bucket, about, expires_at, revision, record)
    ), locked AS MATERIALIZED (
        SELECT given.* FROM given JOIN fencepost_rows old ON old.id = given.id AND old.kind = given.kind
        WHERE given.expect IS NOT NULL AND old.revision = given.expect ORDER BY old.id, old.kind FOR UPDATE OF old
    ), inserted AS (
        INSERT INTO fencepost_rows (id, kind, bucket, about, expires_at, node, revision, record)
        SELECT id, kind, bucket, about::jsonb, expires_at, $9, revision, record
        FROM given WHERE expect IS NULL AND (SELECT count(*) FROM locked) >= 0 ORDER BY id, kind
        ON CONFLICT (id, kind) DO NOTHING RETURNING kind, id
    ), updated AS (
        UPDATE fencepost_rows old SET about = new.about::jsonb, expires_at = new.expires_at, node = $9,
            revision = new.revision, record = new.record
        FROM locked new WHERE old.id = new.id AND old.kind = new.kind
            AND (SELECT count(*) FROM inserted) >= 0
        RETURNING old.kind, old.id
    )SELECT kind, id, clock_timestamp() FROM inserted
     UNION ALL SELECT kind, id, clock_timestamp() FROM updated";

/// How it read them.
const LOAD_ROWS: &str = "SELECT given.kind, given.id, old.record, clock_timestamp()
    FROM unnest($1::bytea[], $2::smallint[]) AS given (id, kind)
    LEFT JOIN fencepost_rows old ON old.id = given.id AND old.kind = given.kind";

/// A node of the release before, by the statements that it has prepared.
struct Older {
    client: Client,
    write: Statement,
    load: Statement,
}

impl Older {
    async fn new(client: Client) -> Self {
        let (write, load) = (client.prepare(WRITE_ROWS).await.unwrap(), client.prepare(LOAD_ROWS).await.unwrap());
        Self { client, write, load }
    }

    // Whether the row was written.
    async fn write(&self, number: u64, expect: Option<u64>, id: u64) -> bool {
        let bytes = codec::encode(&key(number), &record(id), CommitId(id), codec::VERSION);
        let none: Option<std::time::SystemTime> = None;
        let (ids, kinds, expected) =
            (vec![key(number).id.to_vec()], vec![Kind::Trace as i16], vec![expect.map(|id| id as i64)]);
        let (buckets, about, expires, revisions) = (vec![0i16], vec!["{}"], vec![none], vec![id as i64]);
        let params: [&(dyn ToSql + Sync); 9] =
            [&ids, &kinds, &expected, &buckets, &about, &expires, &revisions, &vec![bytes], &"older"];
        let written = self.client.query(&self.write, &params).await.unwrap();
        !written.is_empty()
    }

    async fn load(&self, number: u64) -> Vec<u8> {
        let keys = (vec![key(number).id.to_vec()], vec![Kind::Trace as i16]);
        self.client.query_one(&self.load, &[&keys.0, &keys.1]).await.unwrap().get(2)
    }
}

fn key(number: u64) -> RowKey {
    RowKey { kind: Kind::Trace, id: [number as u8; 32] }
}

fn record(value: u64) -> Record {
    Record::Fence(fence::Record::Trace(Trace { replays: value, ..Trace::default() }.into()))
}

fn counter(number: u8, due: u64) -> Write {
    let record = Record::Counter(Counter { value: number.into(), due: Some(Millis(due)) });
    Write { key: RowKey { kind: Kind::Counter, id: [number; 32] }, expect: None, put: Some(record) }
}

// A database as the release before left it, with a node of it at work.
fn older(rig: &Rig) -> (String, Older) {
    let url = rig.server.fresh_database();
    TABLES.iter().for_each(|tables| drop(rig.server.sql(&url, tables)));
    let steps = "CREATE TABLE fencepost_migrations (version integer NOT NULL PRIMARY KEY,
        at timestamptz NOT NULL DEFAULT now()); INSERT INTO fencepost_migrations SELECT generate_series(1, 3)";
    rig.server.sql(&url, steps);
    rig.server.sql(&url, &format!("UPDATE fencepost_meta SET format = {}", codec::VERSION));
    let older = rig.runtime.block_on(Older::new(client(rig, &url)));
    assert!(rig.runtime.block_on(older.write(1, None, 1)));
    (url, older)
}

#[test]
fn nodes_of_both_releases_share_tables_that_got_a_due_time() {
    let rig = Rig::new();
    let (url, older) = older(&rig);
    // Two of the new release start at once, while the older one works.
    let together = Barrier::new(2);
    let [one, other] = thread::scope(|scope| {
        let open = |name: &'static str| {
            let (rig, url, together) = (&rig, &url, &together);
            scope.spawn(move || {
                together.wait();
                rig.open(url, name)
            })
        };
        [open("one"), open("other")].map(|thread| thread.join().unwrap())
    });
    assert_eq!(rig.server.sql(&url, "SELECT max(version) FROM fencepost_migrations"), "8");

    // Its earlier writes are there, and its prepared statements still work.
    let values = |number| {
        let rows = [&one, &other].map(|store| block_on(store.load(&[key(number)])).unwrap().remove(0).unwrap());
        rows.map(|row| (row.revision.0, row.record.clone()))
    };
    assert_eq!(values(1), [(1, record(1)), (1, record(1))]);
    rig.runtime.block_on(async {
        assert!(older.write(1, Some(1), 2).await);
        assert!(older.write(2, None, 3).await);
        assert!(!older.write(2, Some(99), 4).await, "it still compares");
    });
    assert_eq!((values(1)[0].clone(), values(2)[1].clone()), ((2, record(2)), (3, record(3))));

    // Each release goes on over what the other wrote.
    let over = |id, expect| WriteSet::new(CommitId(id), vec![Write { key: key(1), expect, put: Some(record(id)) }]);
    assert_eq!(block_on(one.commit(&[over(5, Some(CommitId(2)))], Millis(NOW))).unwrap(), [Applied]);
    let bytes = rig.runtime.block_on(older.load(1));
    assert_eq!(bytes, codec::encode(&key(1), &record(5), CommitId(5), codec::VERSION));
    assert!(rig.runtime.block_on(older.write(1, Some(5), 6)));
    assert_eq!(values(1)[1], (6, record(6)));

    // Both of the new ones find due rows, and none of the older one's.
    let counters = WriteSet::new(CommitId(7), vec![counter(1, NOW + 2), counter(2, NOW + 1), counter(3, NOW + 9)]);
    assert_eq!(block_on(one.commit(&[counters], Millis(NOW))).unwrap(), [Applied]);
    for store in [&one, &other] {
        let due = block_on(store.due(Kind::Counter, Millis(NOW + 5), None, 10)).unwrap();
        assert_eq!(due.iter().map(|(key, _)| key.id[0]).collect::<Vec<_>>(), [2, 1]);
        assert!(block_on(store.due(Kind::Trace, Millis(u64::MAX), None, 10)).unwrap().is_empty());
    }
    let stamps = "SELECT count(*) FROM fencepost_rows WHERE kind = 5 AND due_at IS NOT NULL";
    assert_eq!(rig.server.sql(&url, stamps), "0");
}

// A change of a table waits for open transactions that wrote to it, and everybody else waits behind that change.
#[test]
fn a_transaction_that_lasts_holds_up_the_new_release_and_nobody_else() {
    let rig = Rig::new();
    let (url, older) = older(&rig);
    let mut holding = client(&rig, &url);
    thread::scope(|scope| {
        let tx = rig.runtime.block_on(async {
            let tx = holding.transaction().await.unwrap();
            tx.execute("UPDATE fencepost_rows SET about = '{}' WHERE kind = 5", &[]).await.unwrap();
            tx
        });
        let opening = scope.spawn(|| rig.open(&url, "one"));
        let waits =
            "SELECT count(*) FROM pg_stat_activity WHERE wait_event_type = 'Lock' AND query LIKE '%ALTER TABLE%'";
        let began = Instant::now();
        while rig.server.sql(&url, waits) == "0" {
            assert!(began.elapsed() < Duration::from_secs(20), "the new release never waited for the table");
        }
        // The transaction ends only after this: were the older node behind the change of the table, neither would ever end.
        rig.runtime.block_on(async {
            older.client.batch_execute("SET statement_timeout = '10s'").await.unwrap();
            assert!(older.write(2, None, 2).await);
        });
        assert!(!opening.is_finished());
        rig.runtime.block_on(tx.commit()).unwrap();
        let store = opening.join().unwrap();
        assert!(block_on(store.load(&[key(2)])).unwrap()[0].is_some());
    });
}
