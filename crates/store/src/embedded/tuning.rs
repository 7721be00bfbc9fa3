//! How the LSM trees are laid out, and the compaction filter through which expired rows leave the disk.
//! Never drops a row before the durable time floor has passed its expiry, nor one that it cannot read.
//! Called when a store is opened. Figures behind the numbers: docs/decisions/0003-embedded-store-fjall.md.

use std::sync::{
    Arc,
    atomic::{AtomicU64, Ordering},
};

use fencepost_kernel::{RowKey, key::Kind};
use fjall::{
    CompressionType, Database, DatabaseBuilder, KeyspaceCreateOptions,
    compaction::{
        Leveled,
        filter::{CompactionFilter, CompactionFilterResult, Context, Factory, ItemAccessor, Verdict},
    },
    config::{
        BlockSizePolicy, BloomConstructionPolicy, CompressionPolicy, FilterPolicy, FilterPolicyEntry,
        PartitioningPolicy, PinningPolicy,
    },
};

use super::{Options, read_row_address};
use crate::codec;

pub(super) const FENCES: &str = "fences";
pub(super) const ROWS: &str = "rows";
pub(super) const DUE: &str = "due";
pub(super) const META: &str = "meta";
pub(super) const KEYSPACES: [&str; 4] = [FENCES, ROWS, DUE, META];

/// One thread flushes memtables, the others compact: with only one, writers wait whenever a compaction takes long. With
/// two, the first gets each further request to compact and requeues it in a busy loop until the second is done.
const WORKERS: usize = 3;
/// A memtable is freed under a lock that readers wait for. Whether a smaller one stalls less is an open question.
const MEMTABLE_BYTES: u64 = 16 << 20;
const TABLE_BYTES: u64 = 32 << 20;
/// Beyond this, keyspaces that are written rarely are flushed so that old journals can be deleted.
const JOURNAL_BYTES_MAX: u64 = 128 << 20;

pub(super) fn database(
    path: &std::path::Path,
    options: &Options,
    time_floor: &Arc<AtomicU64>,
) -> DatabaseBuilder<Database> {
    let time_floor = time_floor.clone();
    Database::builder(path)
        .cache_size(options.cache_bytes)
        .max_journaling_size(JOURNAL_BYTES_MAX)
        .worker_threads(WORKERS)
        .with_compaction_filter_factories(Arc::new(move |name| {
            let addressed = match name {
                FENCES => fence_address,
                ROWS => read_row_address,
                _ => return None,
            };
            Some(Arc::new(Expiry { addressed, time_floor: time_floor.clone() }))
        }))
}

/// The fences: many, small, mostly absent when first asked for and present ever after.
pub(super) fn fences() -> KeyspaceCreateOptions {
    KeyspaceCreateOptions::default()
        .max_memtable_size(MEMTABLE_BYTES)
        .data_block_size_policy(BlockSizePolicy::all(4 << 10))
        .data_block_compression_policy(CompressionPolicy::new([CompressionType::None, CompressionType::Lz4]))
        // A new claim reads a key that does not exist: ten filter bits per key answer that without a read from disk,
        // but only while the filters themselves are in memory.
        .filter_policy(FilterPolicy::new([
            FilterPolicyEntry::Bloom(BloomConstructionPolicy::FalsePositiveRate(0.0001)),
            FilterPolicyEntry::Bloom(BloomConstructionPolicy::BitsPerKey(10.0)),
        ]))
        .filter_block_partitioning_policy(PartitioningPolicy::all(false))
        .filter_block_pinning_policy(PinningPolicy::all(true))
        .index_block_pinning_policy(PinningPolicy::all(true))
        .compaction_strategy(Arc::new(Leveled::default().with_table_target_size(TABLE_BYTES)))
}

/// Everything else: heads, and the rows of lanes, whose entries are deleted soon after they are written.
pub(super) fn others() -> KeyspaceCreateOptions {
    KeyspaceCreateOptions::default().max_memtable_size(MEMTABLE_BYTES)
}

struct Expiry {
    addressed: fn(&[u8]) -> Option<RowKey>,
    time_floor: Arc<AtomicU64>,
}

impl Factory for Expiry {
    fn name(&self) -> &str {
        "expiry"
    }

    fn make_filter(&self, _: &Context) -> Box<dyn CompactionFilter> {
        Box::new(Filter { addressed: self.addressed, now: self.time_floor.load(Ordering::Acquire) })
    }
}

struct Filter {
    addressed: fn(&[u8]) -> Option<RowKey>,
    now: u64,
}

impl CompactionFilter for Filter {
    fn filter_item(&mut self, item: ItemAccessor<'_>, _: &Context) -> CompactionFilterResult {
        let Some(key) = (self.addressed)(item.key()) else { return Ok(Verdict::Keep) };
        // Rows of kinds that never expire, which may be large, are not even read.
        if !key.kind.spec().swept {
            return Ok(Verdict::Keep);
        }
        // A damaged row stays, so that its next reader gets the error.
        let expired = codec::head(&key, &item.value()?)
            .is_ok_and(|head| head.expires.is_some_and(|expires| expires.0 <= self.now));
        // A tombstone, not a hole: an older version of the key may lie in a deeper level.
        Ok(if expired { Verdict::Remove } else { Verdict::Keep })
    }
}

fn fence_address(address: &[u8]) -> Option<RowKey> {
    Some(RowKey { kind: Kind::Fence, id: address.try_into().ok()? })
}
