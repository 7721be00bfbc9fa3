//! Where the events of a warehouse go: the row that a planner puts.
//! Never decides: `transport` does.

use bytes::Bytes;

use crate::{
    key::{Kind, RowKey, Tenant},
    lane::{AfterDead, LaneId, Place, Purpose},
    time::Millis,
};

/// How events reach an executor.
#[derive(Clone, PartialEq, Eq, Debug)]
pub enum Transport {
    /// Each event is posted.
    Webhook(Webhook),
    /// Each event is produced to a topic.
    Kafka {
        /// Its name.
        topic: String,
    },
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
    /// The address.
    pub url: String,
    /// What signs, the newest first; sealed, so that the store holds no secret.
    pub secrets: Vec<Bytes>,
    /// Whether the headers of Standard Webhooks are sent, too.
    pub standard: bool,
}

/// Where the events of a warehouse go.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Route {
    /// Whose warehouse.
    pub planner: Tenant,
    /// Which.
    pub warehouse: String,
    /// Who works there.
    pub executor: String,
    /// How it is reached.
    pub transport: Transport,
    /// What follows a dead letter.
    pub after_dead: AfterDead,
    /// How long the receiver remembers what it has seen: a redrive later than that could run twice.
    pub receiver_retain_ms: u64,
    /// When it was last changed.
    pub at: Millis,
}

impl Route {
    /// What its lane is for.
    pub fn place(&self) -> Place {
        match self.transport {
            Transport::Poll => Place::executor(&self.executor),
            Transport::Webhook(_) | Transport::Kafka { .. } => Place::warehouse(&self.warehouse),
        }
    }

    /// Its lane.
    pub fn lane(&self) -> LaneId {
        self.place().lane(&self.planner)
    }
}

/// A warehouse whose events are pushed.
pub const WAREHOUSE: Purpose = Purpose { number: 1, word: "warehouse", prefix: "", polled: false };
/// An executor that polls, for all its warehouses.
pub const EXECUTOR: Purpose = Purpose { number: 2, word: "executor", prefix: "poll:", polled: true };

impl Place {
    /// The lane of a warehouse, for transports that push.
    pub fn warehouse(id: &str) -> Self {
        Self { purpose: &WAREHOUSE, id: id.to_owned() }
    }

    /// The lane that an executor polls.
    pub fn executor(id: &str) -> Self {
        Self { purpose: &EXECUTOR, id: id.to_owned() }
    }

    /// The warehouse, where it is the lane of one.
    pub fn as_warehouse(&self) -> Option<&str> {
        (*self.purpose == WAREHOUSE).then_some(&self.id)
    }

    /// The executor, where it is the lane that one polls.
    pub fn as_executor(&self) -> Option<&str> {
        (*self.purpose == EXECUTOR).then_some(&self.id)
    }
}

impl LaneId {
    /// The lane of a warehouse, for transports that push.
    pub fn warehouse(planner: &Tenant, warehouse: &str) -> Self {
        Place::warehouse(warehouse).lane(planner)
    }

    /// The lane that an executor polls.
    pub fn executor(planner: &Tenant, executor: &str) -> Self {
        Place::executor(executor).lane(planner)
    }
}

impl RowKey {
    /// Where the events of a planner's warehouse go.
    pub fn route(planner: &Tenant, warehouse: &str) -> Self {
        Self { kind: Kind::Route, id: LaneId::of(planner, &["route", warehouse]).at(0) }
    }
}
