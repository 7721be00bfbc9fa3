//! Counts of decisions that wrote nothing, remembered in memory and flushed lazily: a duplicate never costs a sync.
//! Approximate by design: a crash loses what was not flushed, and past its bound it forgets rather than grows.

use std::sync::{Mutex, PoisonError};

use ahash::HashMap;
use fencepost_kernel::{
    FenceKey, Millis,
    fence::{Observe, SIGHTINGS_MAX, Sighting},
};

const SHARDS: usize = 16;

pub(super) struct Sightings {
    shards: [Mutex<HashMap<FenceKey, Seen>>; SHARDS],
    shard_max: usize,
}

#[derive(Clone, Default)]
struct Seen {
    replays: u64,
    conflicts: u64,
    body_mismatches: u64,
    recent: Vec<(Millis, Sighting)>,
}

impl Sightings {
    pub(super) fn new(max: usize) -> Self {
        Self { shards: Default::default(), shard_max: max.div_ceil(SHARDS) }
    }

    pub(super) fn note(&self, key: FenceKey, sighting: Sighting, now: Millis) {
        let mut shard = self.shard(key).lock().unwrap_or_else(PoisonError::into_inner);
        if shard.len() >= self.shard_max && !shard.contains_key(&key) {
            return;
        }
        let seen = shard.entry(key).or_default();
        match sighting {
            Sighting::Duplicate => seen.replays += 1,
            Sighting::Conflict => seen.conflicts += 1,
            Sighting::OtherBody => {
                seen.replays += 1;
                seen.body_mismatches += 1;
            }
            Sighting::InFlight | Sighting::Stale | Sighting::InDoubt => {}
        }
        // A storm of duplicates within a second is one line of history; the counts are exact enough.
        let repeat = seen.recent.last().is_some_and(|(at, last)| *last == sighting && now.since(*at) < 1_000);
        if !repeat && seen.recent.len() < SIGHTINGS_MAX {
            seen.recent.push((now, sighting));
        }
    }

    /// Counts of one fence that are not yet flushed.
    pub(super) fn of(&self, key: FenceKey) -> Option<Observe> {
        let shard = self.shard(key).lock().unwrap_or_else(PoisonError::into_inner);
        shard.get(&key).cloned().map(|seen| seen.observe(key))
    }

    /// Takes up to `max` fences' counts to be flushed.
    pub(super) fn drain(&self, max: usize) -> Vec<Observe> {
        let mut out = Vec::new();
        for shard in &self.shards {
            let mut shard = shard.lock().unwrap_or_else(PoisonError::into_inner);
            // Sorted, so that the same history always flushes in the same order.
            let mut keys: Vec<FenceKey> = shard.keys().copied().collect();
            keys.sort_unstable();
            for key in keys.into_iter().take(max - out.len()) {
                if let Some(seen) = shard.remove(&key) {
                    out.push(seen.observe(key));
                }
            }
        }
        out
    }

    fn shard(&self, key: FenceKey) -> &Mutex<HashMap<FenceKey, Seen>> {
        &self.shards[usize::from(key.0[0]) % SHARDS]
    }
}

impl Seen {
    fn observe(self, key: FenceKey) -> Observe {
        let Self { replays, conflicts, body_mismatches, recent } = self;
        Observe { key, replays, conflicts, body_mismatches, recent }
    }
}
