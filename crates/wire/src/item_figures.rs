//! Counts items from partners by what became of them, and shows how many wait in quarantine.
//! Never waits for a store: the background work counts quarantines. Called by the routes of ingest; `/metrics` reads the figures.

use std::sync::{Arc, atomic::AtomicU64};

use fencepost::ingest::{OpenQuarantines, jobs::JobFigures};
use fencepost_kernel::{Millis, job::JobProgress};
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
    jobs: Family<Vec<(&'static str, &'static str)>, Gauge>,
    oldest_job_s: Gauge<f64, AtomicU64>,
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
        registry.register("jobs_open", "Jobs that have not ended, by state", own.jobs.clone());
        registry.register_with_unit(
            "oldest_job",
            "Age of the oldest job that has not ended",
            Unit::Seconds,
            own.oldest_job_s.clone(),
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

    /// Counts items that a job has decided.
    pub fn decided(&self, collection: &Arc<str>, decided: JobProgress) {
        let JobProgress { accepted, replay, quarantined, rejected } = decided;
        let counts = [("ACCEPTED", accepted), ("REPLAY", replay), ("QUARANTINED", quarantined), ("REJECTED", rejected)];
        for (status, count) in counts.into_iter().filter(|(_, count)| *count > 0) {
            let labels = vec![("collection", collection.clone()), ("verdict", status.into())];
            self.items.get_or_create(&labels).inc_by(count);
        }
    }

    /// Sets the gauges of jobs. `now` is store time.
    pub fn jobs(&self, open: JobFigures, now: Millis) {
        for (state, count) in [("QUEUED", open.queued), ("RUNNING", open.running)] {
            self.jobs.get_or_create(&vec![("state", state)]).set(count as i64);
        }
        self.oldest_job_s.set(open.oldest.map_or(0.0, |oldest| now.since(oldest) as f64 / 1_000.0));
    }

    /// Sets the gauges. `now` is store time.
    pub fn quarantines(&self, open: OpenQuarantines, now: Millis) {
        self.quarantines.set(open.count as i64);
        self.oldest_s.set(open.oldest.map_or(0.0, |oldest| now.since(oldest) as f64 / 1_000.0));
    }
}
