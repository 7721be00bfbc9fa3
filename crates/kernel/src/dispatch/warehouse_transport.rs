//! Where the events of a warehouse go: the row that a planner puts.
//! Never decides: `transport` does.

use bytes::Bytes;

use crate::{
    key::{Kind, RowKey, Tenant},
    lane::{AfterDead, LaneId, LaneKind, LanePurpose},
    time::Millis,
};

/// How events reach an executor.
#[derive(Clone, PartialEq, Eq, Debug)]
pub enum Transport {
    /// Each event is posted.
    Webhook(Webhook),
    /// Each event is produced to a topic.
    Kafka { topic: String },
    /// The executor comes for them.
    Poll,
}

impl Transport {
    /// The word for it on the wire.
    pub fn name(&self) -> &'static str {
        match self {
            Self::Webhook(_) => "webhook",
            Self::Kafka { .. } => "kafka",
            Self::Poll => "poll",
        }
    }
}

/// Where events are posted.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Webhook {
    pub url: String,
    /// Signing secrets, the newest first; encrypted before they reach the store.
    pub secrets: Vec<Bytes>,
    /// Whether the headers of Standard Webhooks are sent, too.
    pub standard: bool,
}

/// Where the events of a warehouse go.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct WarehouseTransport {
    pub planner: Tenant,
    pub warehouse: String,
    pub executor: String,
    /// How it is reached.
    pub transport: Transport,
    pub after_dead: AfterDead,
    /// How long the receiver remembers an event: a redrive later than that could run twice.
    pub receiver_retain_ms: u64,
    /// When it was last changed.
    pub at: Millis,
}

impl WarehouseTransport {
    pub fn purpose(&self) -> LanePurpose {
        match self.transport {
            Transport::Poll => LanePurpose::executor(&self.executor),
            Transport::Webhook(_) | Transport::Kafka { .. } => LanePurpose::warehouse(&self.warehouse),
        }
    }

    pub fn lane(&self) -> LaneId {
        self.purpose().lane(&self.planner)
    }
}

/// Lanes of warehouses, for transports that push.
pub const WAREHOUSE: LaneKind = LaneKind { number: 1, word: "warehouse", prefix: "", polled: false };
/// Lanes of executors that poll, each for all of its warehouses.
pub const EXECUTOR: LaneKind = LaneKind { number: 2, word: "executor", prefix: "poll:", polled: true };

impl LanePurpose {
    pub fn warehouse(id: &str) -> Self {
        Self { kind: &WAREHOUSE, id: id.to_owned() }
    }

    pub fn executor(id: &str) -> Self {
        Self { kind: &EXECUTOR, id: id.to_owned() }
    }

    pub fn as_warehouse(&self) -> Option<&str> {
        (*self.kind == WAREHOUSE).then_some(&self.id)
    }

    pub fn as_executor(&self) -> Option<&str> {
        (*self.kind == EXECUTOR).then_some(&self.id)
    }
}

impl LaneId {
    /// The lane of a warehouse, for transports that push.
    pub fn warehouse(planner: &Tenant, warehouse: &str) -> Self {
        LanePurpose::warehouse(warehouse).lane(planner)
    }

    /// The lane that an executor polls.
    pub fn executor(planner: &Tenant, executor: &str) -> Self {
        LanePurpose::executor(executor).lane(planner)
    }
}

impl RowKey {
    /// Where the events of a planner's warehouse go.
    pub fn transport(planner: &Tenant, warehouse: &str) -> Self {
        Self { kind: Kind::Transport, id: LaneId::of(planner, &["route", warehouse]).at(0) }
    }
}
