//! Counts items from partners by what became of them, and shows how many wait in quarantine.
//! Never waits for a store: the background work counts quarantines. Called by the routes of ingest; `/metrics` reads the figures.

use std::sync::{Arc, atomic::AtomicU64};

use fencepost::ingest::OpenQuarantines;
use fencepost_kernel::Millis;
use prometheus_client::{
    metrics::{counter::Counter, family::Family, gauge::Gauge},
    registry::{Registry, Unit},
};

type ByCollection = Vec<(&'static str, Arc<str>)>;

/// Counters and gauges about items. Clones share them.
#[derive(Clone, Default)]
pub struct ItemFigures {
    items: Family<ByCollection, Counter>,
    differing: Family<ByCollection, Counter>,
    quarantines: Gauge,
    oldest_s: Gauge<f64, AtomicU64>,
}

impl ItemFigures {
    /// Creates the figures and registers them.
    pub(crate) fn register(registry: &mut Registry) -> Self {
        let own = Self::default();
        registry.register("items", "Items from partners by collection and verdict", own.items.clone());
        registry.register(
            "items_differing",
            "Items that came again at their accepted version with other content, by collection",
            own.differing.clone(),
        );
        registry.register(
            "quarantines_open",
            "Items that wait in quarantine, counted up to 10,000 every few seconds",
            own.quarantines.clone(),
        );
        registry.register_with_unit(
            "oldest_quarantine",
            "Age of the oldest open quarantine",
            Unit::Seconds,
            own.oldest_s.clone(),
        );
        own
    }

    /// Counts one item. Collections come from the policy, so there are few.
    pub fn count(&self, collection: &Arc<str>, status: &'static str) {
        let labels = vec![("collection", collection.clone()), ("verdict", status.into())];
        self.items.get_or_create(&labels).inc();
    }

    /// Counts items that came again at their accepted version with other content.
    pub fn differing(&self, collection: &Arc<str>, items: usize) {
        self.differing.get_or_create(&vec![("collection", collection.clone())]).inc_by(items as u64);
    }

    /// Sets the gauges. `now` is store time.
    pub fn quarantines(&self, open: OpenQuarantines, now: Millis) {
        self.quarantines.set(open.count as i64);
        self.oldest_s.set(open.oldest.map_or(0.0, |oldest| now.since(oldest) as f64 / 1_000.0));
    }
}
