//! In-process measurements: the library's claims, and raw fjall batches as the upper bound of the library's store.
//! Never skips a sync: a raw batch is on disk before the next begins, and the library answers only what is durable.
//! Called by `contest`.

use std::path::Path;
use std::time::{Duration, Instant};

use anyhow::{Result, anyhow, bail};
use fencepost::{Claimed, Fencepost};
use fjall::{Database, KeyspaceCreateOptions, PersistMode};

use crate::keys::{EFFECT_ID, KEY_LEN, Numbering, RECEIPT, first_of, scatter};
use crate::load::{self, Connect, Driver, Shape};
use crate::stats::Sample;
use crate::stop;

/// Keys in one synced batch of raw fjall, and callers in flight in the library.
pub const BATCH: usize = 256;
const VALUE_LEN: usize = 160;

/// Raw fjall on one thread: reads and writes random 32-byte keys with 160-byte values, 256 a synced batch.
pub fn raw_fjall(dir: &Path, warm_up: Duration, measure: Duration, salt: u64) -> Result<Sample> {
    let database = Database::builder(dir).open()?;
    let keys = database.keyspace("keys", KeyspaceCreateOptions::default)?;
    let mut random = Random(scatter(salt));
    let mut sample = Sample::new(measure);
    let start = Instant::now() + warm_up;
    let end = start + measure;
    let mut began = Instant::now();
    loop {
        stop::check()?;
        let mut batch = database.batch().durability(Some(PersistMode::SyncData));
        for _ in 0..BATCH {
            let key: [u8; 32] = random.bytes();
            if keys.get(key)?.is_some() {
                bail!("a random key was already there");
            }
            batch.insert(&keys, key, random.bytes::<VALUE_LEN>());
        }
        batch.commit()?;
        let ended = Instant::now();
        if ended >= end {
            return Ok(sample);
        }
        if ended >= start {
            sample.record(ended - began)?;
        }
        began = ended;
    }
}

/// A cheap source of incompressible bytes.
struct Random(u64);

impl Random {
    fn bytes<const N: usize>(&mut self) -> [u8; N] {
        let mut bytes = [0; N];
        for chunk in bytes.chunks_mut(8) {
            self.0 = self.0.wrapping_add(1);
            chunk.copy_from_slice(&scatter(self.0).to_be_bytes()[..chunk.len()]);
        }
        bytes
    }
}

/// Which calls the library's callers make.
#[derive(Clone, Copy, PartialEq, Eq)]
pub enum Extent {
    /// A claim of a new key: one durable write, like one key of raw fjall.
    Claim,
    /// A claim and its seal: two durable writes.
    Cycle,
}

/// The library with 256 callers in flight, measured by the loop that also drives the contestants over a socket.
pub fn fencepost(dir: &Path, shape: Shape, salt: u64, extent: Extent) -> Result<Sample> {
    let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build()?;
    let once = runtime.block_on(Fencepost::open(dir)).map_err(|error| anyhow!("{error}"))?;
    let callers = Callers { once: once.clone(), numbering: Numbering::new(salt), extent };
    let sample = load::run(Shape { connections: BATCH, ..shape }, callers);
    runtime.block_on(once.close());
    sample
}

#[derive(Clone)]
struct Callers {
    once: Fencepost,
    numbering: Numbering,
    extent: Extent,
}

struct Caller {
    callers: Callers,
    next: u64,
}

impl Connect for Callers {
    type Driver = Caller;
    async fn connect(&self, connection: usize) -> Result<Caller> {
        Ok(Caller { callers: self.clone(), next: first_of(connection) })
    }
}

impl Driver for Caller {
    async fn step(&mut self) -> Result<()> {
        let Callers { once, numbering, extent } = &self.callers;
        let mut key = [0; KEY_LEN];
        numbering.write(self.next, &mut key);
        self.next += 1;
        let fields = [("method", "POST"), ("path", "/orders"), ("idempotency_key", std::str::from_utf8(&key)?)];
        let claimed = once.scope("API_WRITE").key(fields).claim().await.map_err(|error| anyhow!("{error}"))?;
        let Claimed::New(claim) = claimed else { bail!("a new key was answered as a duplicate") };
        if *extent == Extent::Cycle {
            claim.seal(EFFECT_ID, RECEIPT).await.map_err(|error| anyhow!("{error}"))?;
        }
        Ok(())
    }
}
