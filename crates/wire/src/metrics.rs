//! Counters and histograms for Prometheus. Labels are bounded: past a limit, further tenants are counted together.
//! Never waits for a store. Called by the routes, the gateway and the engine.

use std::{
    collections::HashSet,
    fmt,
    hash::{Hash, Hasher},
    sync::{
        Arc, PoisonError, RwLock,
        atomic::{AtomicU64, Ordering},
    },
    time::Duration,
};

use fencepost::engine::Observer;
use fencepost_kernel::{Scope, Tenant, fence::Target};
use prometheus_client::{
    encoding::{EncodeLabel, EncodeLabelSet, LabelSetEncoder, text::encode},
    metrics::{counter::Counter, family::Family, gauge::Gauge, histogram::Histogram},
    registry::{Registry, Unit},
};

use crate::{deliveries::Figures, item_figures::ItemFigures};
use fencepost_front::Budget;

/// How many tenants have series of their own; all others are counted as `other`.
const TENANTS_MAX: usize = 200;

/// The labels of a decision. The names are shared, so that counting allocates nothing.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
struct Labels {
    op: &'static str,
    scope: Scoped,
    tenant: Tenant,
    decision: &'static str,
}

/// A scope, compared by its name: a policy that is read again makes new scopes of the same names.
#[derive(Clone, Debug)]
struct Scoped(Arc<Scope>);

impl PartialEq for Scoped {
    fn eq(&self, other: &Self) -> bool {
        self.0.name == other.0.name
    }
}

impl Eq for Scoped {}

impl Hash for Scoped {
    fn hash<H: Hasher>(&self, state: &mut H) {
        self.0.name.hash(state);
    }
}

impl EncodeLabelSet for Scoped {
    fn encode(&self, encoder: &mut LabelSetEncoder<'_>) -> fmt::Result {
        ("scope", &*self.0.name).encode(encoder.encode_label())
    }
}

impl EncodeLabelSet for Labels {
    fn encode(&self, encoder: &mut LabelSetEncoder<'_>) -> fmt::Result {
        let pairs = [
            ("op", self.op),
            ("scope", &*self.scope.0.name),
            ("tenant", self.tenant.as_str()),
            ("decision", self.decision),
        ];
        for pair in pairs {
            pair.encode(encoder.encode_label())?;
        }
        Ok(())
    }
}

/// The labels of a request that was not passed on: its endpoint and its tenant.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
struct Drops {
    endpoint: Arc<str>,
    tenant: Tenant,
}

impl EncodeLabelSet for Drops {
    fn encode(&self, encoder: &mut LabelSetEncoder<'_>) -> fmt::Result {
        ("endpoint", &*self.endpoint).encode(encoder.encode_label())?;
        ("tenant", self.tenant.as_str()).encode(encoder.encode_label())
    }
}

/// Values that are read when the metrics are rendered.
pub struct Readings<'a> {
    /// Callers waiting for another's seal.
    pub waiting: usize,
    /// False once the engine has stopped.
    pub ready: bool,
    /// How far the wall clock is ahead of the store's time.
    pub wall_ahead_ms: i64,
    /// Bytes of bodies and answers in memory.
    pub budget: &'a Budget,
}

/// Everything that is measured. Clones share it.
#[derive(Clone)]
pub struct Metrics {
    registry: Arc<Registry>,
    decisions: Family<Labels, Counter>,
    drops: Family<Drops, Counter>,
    conflicts_acknowledged: Family<Drops, Counter>,
    body_mismatches: Family<Scoped, Counter>,
    seal_seconds: Family<Scoped, Histogram, fn() -> Histogram>,
    diff_operations: Family<Scoped, Histogram, fn() -> Histogram>,
    batch_commands: Histogram,
    commit_seconds: Histogram,
    waiters: Gauge,
    ready: Gauge,
    clock_ahead: Gauge<f64, AtomicU64>,
    buffered: Gauge,
    buffered_max: Gauge,
    buffer_refusals: Counter,
    tenants: Arc<RwLock<HashSet<Tenant>>>,
    /// Figures about outgoing events.
    pub deliveries: Figures,
    /// Figures about items from partners.
    pub items: ItemFigures,
}

impl Default for Metrics {
    fn default() -> Self {
        let mut registry = Registry::with_prefix("fencepost");
        let decisions = Family::default();
        registry.register("decisions", "Decisions by operation, scope, tenant and outcome", decisions.clone());
        let drops = Family::default();
        registry.register(
            "duplicate_drops",
            "Duplicates answered without an effect, by endpoint and tenant",
            drops.clone(),
        );
        let conflicts_acknowledged = Family::default();
        registry.register(
            "conflicts_acknowledged",
            "Webhooks with other content under a known key that were acknowledged and not passed on, by endpoint and tenant",
            conflicts_acknowledged.clone(),
        );
        let body_mismatches = Family::default();
        registry.register(
            "body_mismatches_passed",
            "Duplicates with another body than the first that got its answer, by scope",
            body_mismatches.clone(),
        );
        let seal_seconds: Family<_, Histogram, fn() -> Histogram> = Family::new_with_constructor(|| {
            Histogram::new([0.001, 0.005, 0.02, 0.1, 0.5, 2.0, 10.0, 60.0, 600.0, 3_600.0])
        });
        registry.register_with_unit(
            "first_seen_to_seal",
            "Time from the first claim of a key to its seal",
            Unit::Seconds,
            seal_seconds.clone(),
        );
        let diff_operations: Family<_, Histogram, fn() -> Histogram> =
            Family::new_with_constructor(|| Histogram::new([1.0, 2.0, 5.0, 10.0, 25.0, 50.0, 100.0]));
        registry.register(
            "conflict_diff_operations",
            "Operations in the diffs of conflicts, by scope",
            diff_operations.clone(),
        );
        let batch_commands = Histogram::new([1.0, 2.0, 4.0, 8.0, 16.0, 32.0, 64.0, 128.0, 256.0, 1024.0, 4096.0]);
        registry.register("commit_batch_commands", "Commands decided in one commit", batch_commands.clone());
        let commit_seconds = Histogram::new([0.0002, 0.0005, 0.001, 0.002, 0.005, 0.01, 0.05, 0.2, 1.0, 5.0]);
        registry.register_with_unit(
            "commit",
            "Time of one commit, from load to sync",
            Unit::Seconds,
            commit_seconds.clone(),
        );
        let waiters = Gauge::default();
        registry.register("waiters", "Callers waiting for somebody else's seal", waiters.clone());
        let ready = Gauge::default();
        registry.register("ready", "1 while the store acknowledges", ready.clone());
        let clock_ahead = Gauge::<f64, AtomicU64>::default();
        registry.register_with_unit(
            "wall_clock_ahead",
            "How far the wall clock is ahead of the store's time",
            Unit::Seconds,
            clock_ahead.clone(),
        );
        let buffered = Gauge::default();
        registry.register_with_unit(
            "buffered",
            "Request bodies and answers in memory, all connections together",
            Unit::Bytes,
            buffered.clone(),
        );
        let buffered_max = Gauge::default();
        registry.register_with_unit(
            "buffered_max",
            "server.limits.buffered_bytes_max",
            Unit::Bytes,
            buffered_max.clone(),
        );
        let buffer_refusals = Counter::default();
        registry.register(
            "buffer_refusals",
            "Requests refused because bodies and answers in memory left no room",
            buffer_refusals.clone(),
        );
        let deliveries = Figures::register(&mut registry);
        let items = ItemFigures::register(&mut registry);
        Self {
            registry: Arc::new(registry),
            deliveries,
            items,
            decisions,
            drops,
            conflicts_acknowledged,
            body_mismatches,
            seal_seconds,
            diff_operations,
            batch_commands,
            commit_seconds,
            waiters,
            ready,
            clock_ahead,
            buffered,
            buffered_max,
            buffer_refusals,
            tenants: Arc::default(),
        }
    }
}

impl Metrics {
    /// Counts one decision.
    pub fn decision(&self, op: &'static str, target: &Target, decision: &'static str) {
        let labels = Labels { op, scope: Scoped(target.scope.clone()), tenant: self.bounded(&target.tenant), decision };
        self.decisions.get_or_create(&labels).inc();
    }

    /// Counts a duplicate that was answered without an effect.
    pub fn dropped(&self, endpoint: &Arc<str>, tenant: &Tenant) {
        let labels = Drops { endpoint: endpoint.clone(), tenant: self.bounded(tenant) };
        self.drops.get_or_create(&labels).inc();
    }

    /// Records how long a key took from its first claim to its seal.
    pub fn sealed(&self, scope: &Arc<Scope>, took_ms: u64) {
        self.seal_seconds.get_or_create(&Scoped(scope.clone())).observe(took_ms as f64 / 1_000.0);
    }

    /// Records the size of a diff.
    pub fn diff(&self, scope: &Arc<Scope>, operations: usize) {
        self.diff_operations.get_or_create(&Scoped(scope.clone())).observe(operations as f64);
    }

    /// Counts a duplicate whose body differs, where its scope lets that pass.
    pub fn body_mismatch(&self, scope: &Arc<Scope>) {
        self.body_mismatches.get_or_create(&Scoped(scope.clone())).inc();
    }

    /// Counts a webhook that was answered with 2xx and not passed on, since its key was first used with other content.
    pub fn conflict_acknowledged(&self, endpoint: &Arc<str>, tenant: &Tenant) {
        let labels = Drops { endpoint: endpoint.clone(), tenant: self.bounded(tenant) };
        self.conflicts_acknowledged.get_or_create(&labels).inc();
    }

    /// The text that Prometheus reads.
    pub fn render(&self, now: &Readings<'_>) -> String {
        self.waiters.set(now.waiting as i64);
        self.ready.set(i64::from(now.ready));
        self.clock_ahead.set(now.wall_ahead_ms as f64 / 1_000.0);
        self.buffered.set(now.budget.held() as i64);
        self.buffered_max.set(now.budget.bytes_max() as i64);
        self.buffer_refusals.inner().store(now.budget.refused(), Ordering::Relaxed);
        let mut text = String::new();
        // Writing to a string cannot fail.
        let _ = encode(&mut text, &self.registry);
        text
    }

    fn bounded(&self, tenant: &Tenant) -> Tenant {
        if self.tenants.read().unwrap_or_else(PoisonError::into_inner).contains(tenant) {
            return tenant.clone();
        }
        let mut tenants = self.tenants.write().unwrap_or_else(PoisonError::into_inner);
        if tenants.len() < TENANTS_MAX {
            tenants.insert(tenant.clone());
            return tenant.clone();
        }
        Tenant::new("other")
    }
}

impl Observer for Metrics {
    fn committed(&self, commands: usize, took: Duration) {
        self.batch_commands.observe(commands as f64);
        self.commit_seconds.observe(took.as_secs_f64());
    }
}
