//! Clients that write the same items straight into PostgreSQL: as somebody would without us, and the very rows of our store.
//! Never waits for more than one request of a connection at once, and checks how many rows each statement wrote.
//! Called by `ingest`.

use std::ops::Range;
use std::sync::Arc;

use anyhow::{Context, Result, ensure};
use tokio_postgres::{Client, Statement};

use super::items::item;
use crate::http::KEY_HOLE;
use crate::keys::{KEY_LEN, Numbering, first_of};
use crate::load::{Connect, Driver};
use crate::rivals::Postgres;

const TENANT: &str = "dev-partner";

/// The table that somebody would keep items in.
const TABLE: &str = "CREATE TABLE items (
        tenant text NOT NULL,
        collection text NOT NULL,
        source_id text NOT NULL,
        version bigint NOT NULL,
        item jsonb NOT NULL,
        correlation_id text NOT NULL,
        accepted_at timestamptz NOT NULL,
        PRIMARY KEY (tenant, collection, source_id));
    CHECKPOINT;";
const UPSERT: &str = "INSERT INTO items (tenant, collection, source_id, version, item, correlation_id, accepted_at)
    SELECT $1, 'skus', given.source_id, given.version, given.item::jsonb, $2, now()
    FROM unnest($3::text[], $4::bigint[], $5::text[]) AS given (source_id, version, item)
    ON CONFLICT (tenant, collection, source_id) DO UPDATE SET version = excluded.version, item = excluded.item,
        correlation_id = excluded.correlation_id, accepted_at = excluded.accepted_at
    WHERE items.version < excluded.version";

/// One `INSERT … ON CONFLICT DO UPDATE … WHERE version <` a request, its own transaction.
#[derive(Clone)]
pub struct Upserts {
    pub port: u16,
    /// Turns numbers into source ids.
    pub numbering: Numbering,
    pub per_request: usize,
}

/// A connection of `Upserts`.
pub struct UpsertsDriver {
    client: Client,
    upsert: Statement,
    numbering: Numbering,
    next: u64,
    source_ids: Vec<String>,
    versions: Vec<i64>,
    items: Vec<String>,
    hole: Range<usize>,
}

impl Upserts {
    /// Makes the table.
    pub fn prepare(port: u16) -> Result<()> {
        block_on(async { Ok(Postgres::client(port).await?.batch_execute(TABLE).await?) })
    }
}

impl Connect for Upserts {
    type Driver = UpsertsDriver;
    async fn connect(&self, connection: usize) -> Result<UpsertsDriver> {
        let client = Postgres::client(self.port).await?;
        let item = item();
        let at = item.find(KEY_HOLE).context("an item without a source id")?;
        Ok(UpsertsDriver {
            upsert: client.prepare(UPSERT).await?,
            client,
            numbering: self.numbering,
            next: first_of(connection),
            source_ids: vec![String::new(); self.per_request],
            versions: vec![1; self.per_request],
            items: vec![item; self.per_request],
            hole: at..at + KEY_LEN,
        })
    }
}

impl Driver for UpsertsDriver {
    async fn step(&mut self) -> Result<()> {
        let Self { client, upsert, numbering, next, source_ids, versions, items, hole } = self;
        let mut key = [0; KEY_LEN];
        numbering.write(*next, &mut key);
        let correlation_id = std::str::from_utf8(&key)?.to_owned();
        for (source_id, item) in source_ids.iter_mut().zip(items.iter_mut()) {
            numbering.write(*next, &mut key);
            *next += 1;
            let text = std::str::from_utf8(&key)?;
            source_id.clear();
            source_id.push_str(text);
            item.replace_range(hole.clone(), text);
        }
        let written = client.execute(&*upsert, &[&TENANT, &correlation_id, source_ids, versions, items]).await?;
        ensure!(written == source_ids.len() as u64, "{} new items made {written} rows", source_ids.len());
        Ok(())
    }
}

/// A row that our store wrote, with the places of its source id.
#[derive(Clone)]
struct Model {
    about: String,
    about_holes: Vec<Range<usize>>,
    record: Vec<u8>,
    record_holes: Vec<Range<usize>>,
    id: Vec<u8>,
}

/// The rows of our store, with one transaction a request: one row an item, and the request's fence.
#[derive(Clone)]
pub struct Rows {
    port: u16,
    numbering: Numbering,
    per_request: usize,
    model: Arc<Model>,
    receipt: Arc<Vec<u8>>,
}

/// A connection of `Rows`.
pub struct RowsDriver {
    client: Client,
    statements: [Statement; 2],
    plan: Rows,
    next: u64,
    ids: Vec<Vec<u8>>,
    buckets: Vec<i16>,
    abouts: Vec<String>,
    revisions: Vec<i64>,
    records: Vec<Vec<u8>>,
}

const LOOK_ITEM: &str = "SELECT id, about::text, record, about ->> 'source_id' FROM fencepost_rows
    WHERE kind = 15 AND about ->> 'collection' = 'skus' LIMIT 1";
const LOOK_FENCE: &str = "SELECT record FROM fencepost_fences WHERE key = (SELECT key FROM direct_fence)";
// The fence of the request with the most items: that of the SKUs.
const KEEP_MODELS: &str = "CREATE TABLE direct_fence AS
    SELECT * FROM fencepost_fences ORDER BY length(record) DESC LIMIT 1";
const EMPTY: &str = "TRUNCATE fencepost_fences, fencepost_rows; CHECKPOINT;";
const FENCE: &str =
    "INSERT INTO fencepost_fences (key, bucket, tenant, scope, fields, seq, state, on_lapse, token, attempt,
        effect_id, source_kind, source_id, first_seen, lease_expires, sealed_at, released_at, expires_at, due_at, node,
        revision, record)
    SELECT $1, $2, tenant, scope, fields, seq, state, on_lapse, token, attempt, effect_id, source_kind, source_id,
        first_seen, lease_expires, sealed_at, released_at, expires_at, due_at, node, revision, $3 FROM direct_fence";
const ITEMS: &str = "INSERT INTO fencepost_rows (id, kind, bucket, about, node, revision, record)
    SELECT given.id, 15, given.bucket, given.about::jsonb, 'direct', given.revision, given.record
    FROM unnest($1::bytea[], $2::smallint[], $3::text[], $4::bigint[], $5::bytea[])
        AS given (id, bucket, about, revision, record)
    ON CONFLICT (id, kind) DO NOTHING";

impl Rows {
    /// Reads one request's rows, which our store wrote and nobody else uses now, as the model of all further ones, and
    /// empties the tables.
    pub fn of_store(port: u16, numbering: Numbering, per_request: usize) -> Result<Rows> {
        block_on(async {
            let client = Postgres::client(port).await?;
            client.batch_execute(KEEP_MODELS).await?;
            let row = client.query_one(LOOK_ITEM, &[]).await?;
            let (about, record): (String, Vec<u8>) = (row.get(1), row.get(2));
            let source_id: String = row.get(3);
            let places = |bytes: &[u8]| -> Vec<Range<usize>> {
                memchr::memmem::find_iter(bytes, source_id.as_bytes()).map(|at| at..at + KEY_LEN).collect()
            };
            let (about_holes, record_holes) = (places(about.as_bytes()), places(&record));
            ensure!(source_id.len() == KEY_LEN && about_holes.len() >= 2, "the store's row is another than expected");
            let receipt: Vec<u8> = client.query_one(LOOK_FENCE, &[]).await?.get(0);
            client.batch_execute(EMPTY).await?;
            let model = Arc::new(Model { about, about_holes, record, record_holes, id: row.get(0) });
            Ok(Rows { port, numbering, per_request, model, receipt: Arc::new(receipt) })
        })
    }
}

impl Connect for Rows {
    type Driver = RowsDriver;
    async fn connect(&self, connection: usize) -> Result<RowsDriver> {
        let client = Postgres::client(self.port).await?;
        let Model { about, record, id, .. } = &*self.model;
        let count = self.per_request;
        Ok(RowsDriver {
            statements: [client.prepare(FENCE).await?, client.prepare(ITEMS).await?],
            client,
            plan: self.clone(),
            next: first_of(connection),
            ids: vec![id.clone(); count],
            buckets: vec![0; count],
            abouts: vec![about.clone(); count],
            revisions: vec![0; count],
            records: vec![record.clone(); count],
        })
    }
}

impl Driver for RowsDriver {
    async fn step(&mut self) -> Result<()> {
        let Self { client, statements: [fence, items], plan, next, ids, buckets, abouts, revisions, records } = self;
        let revision = *next as i64;
        revisions.fill(revision);
        let mut key = [0; KEY_LEN];
        for at in 0..ids.len() {
            plan.numbering.write(*next, &mut key);
            *next += 1;
            let text = std::str::from_utf8(&key)?;
            // As in our store: eight bytes that the items of a collection share, sixteen that are spread.
            ids[at][8..24].copy_from_slice(&key.as_chunks::<2>().0.iter().map(|pair| hex(*pair)).collect::<Vec<_>>());
            buckets[at] = i16::from(ids[at][23] % 8);
            plan.model.about_holes.iter().for_each(|hole| abouts[at].replace_range(hole.clone(), text));
            plan.model.record_holes.iter().for_each(|hole| records[at][hole.clone()].copy_from_slice(&key));
        }
        let mut fence_key = vec![0xfe; 32];
        fence_key[..16].copy_from_slice(&ids[0][8..24]);
        let transaction = client.transaction().await?;
        let one = transaction.execute(&*fence, &[&fence_key, &0_i16, &*plan.receipt]).await?;
        let all = transaction.execute(&*items, &[ids, buckets, abouts, revisions, records]).await?;
        transaction.commit().await?;
        ensure!((one, all) == (1, ids.len() as u64), "{} new items made {all} rows and {one} fences", ids.len());
        Ok(())
    }
}

fn hex([high, low]: [u8; 2]) -> u8 {
    let digit = |digit: u8| if digit.is_ascii_digit() { digit - b'0' } else { digit - b'a' + 10 };
    digit(high) << 4 | digit(low)
}

fn block_on<T>(work: impl Future<Output = Result<T>>) -> Result<T> {
    tokio::runtime::Builder::new_current_thread().enable_all().build()?.block_on(work)
}
