//! Events from a planner for a warehouse: publication, cancellation, transports, and decisions on dead letters.
//! Progress along a lane is in `lane`.
//! Called only from `law`.

mod command;
mod letters;
mod publish;
mod put_transport;
mod receipt;
mod reply;
mod warehouse_transport;

use std::sync::Arc;

pub(crate) use self::receipt::{fence_with_position, position_of_fence};
pub use self::{
    command::{Command, LetterVerdict, OnLetter, Publish, PutTransport},
    receipt::PublishReceipt,
    reply::Reply,
    warehouse_transport::{EXECUTOR, Transport, WAREHOUSE, WarehouseTransport, Webhook},
};
use crate::{
    audit::Subject,
    key::{Kind, RowKey},
    lane::{self, End, Entry, LaneKind, Members, spec},
    law::{Decision, RowLock},
    row::{self, Ids, KindSpec, Rows},
    time::Millis,
};

pub(crate) const KINDS: &[KindSpec] =
    &[KindSpec { backup_place: Some(5), ..spec(Kind::Transport, ("transport", "transports"), Ids::FewRanges) }];

pub(crate) const LANE_KINDS: &[&LaneKind] = &[&WAREHOUSE, &EXECUTOR];

/// State of a cancelled event at the moment of its cancellation.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Original {
    /// Never sent to a receiver.
    Undelivered,
    /// It was sent, or may have been, and is not acknowledged.
    InFlight,
    Delivered,
    Dead,
    /// It is too long ago to tell.
    Unknown,
}

impl Original {
    /// The word for it on the wire.
    pub fn name(self) -> &'static str {
        match self {
            Self::Undelivered => "undelivered",
            Self::InFlight => "in_flight",
            Self::Delivered => "delivered",
            Self::Dead => "dead",
            Self::Unknown => "unknown",
        }
    }

    /// The outcome of that name.
    pub fn from_name(name: &str) -> Option<Self> {
        [Self::Undelivered, Self::InFlight, Self::Delivered, Self::Dead, Self::Unknown]
            .into_iter()
            .find(|original| original.name() == name)
    }
}

/// A row that belongs to events for a warehouse.
#[derive(Clone, PartialEq, Eq, Debug)]
pub enum Record {
    Transport(Arc<WarehouseTransport>),
}

impl From<Record> for row::Record {
    fn from(record: Record) -> Self {
        Self::Dispatch(record)
    }
}

impl Record {
    pub(crate) fn latest_at(&self) -> Millis {
        match self {
            Self::Transport(transport) => transport.at,
        }
    }
}

/// The rows a command looks at before anything is known.
pub(crate) fn footprint(command: &Command, add: &mut impl FnMut(RowKey)) {
    match command {
        Command::Publish(publish) => publish::footprint(publish, add),
        Command::PutTransport(put) => add(transport_key(&put.transport)),
        Command::Letter(on) => letters::footprint(on, add),
    }
}

/// The rows that only loaded ones can name.
pub(crate) fn follow(command: &Command, rows: &impl Rows, add: &mut impl FnMut(RowKey)) {
    match command {
        Command::Publish(publish) => publish::follow(publish, rows, add),
        Command::PutTransport(put) => put_transport::follow(put, rows, add),
        Command::Letter(on) => letters::follow(on, rows, add),
    }
}

// A node that drives a lane acknowledges its events by writing the lane's row, and must not wait for a user who only
// publishes: a publication reads the row, and a write of it is compared all the same. A cancellation's reply is true
// only while the lane does not move.
pub(crate) fn row_lock(command: &Command, key: &RowKey) -> RowLock {
    match command {
        Command::Publish(publish) if publish.cancels.is_none() && key.kind == Kind::Lane => RowLock::Never,
        Command::Publish(_) | Command::PutTransport(_) | Command::Letter(_) => RowLock::OnRead,
    }
}

pub(crate) fn decide(command: &Command, rows: &impl Rows, now: Millis) -> Decision {
    match command {
        Command::Publish(publish) => publish::publish(publish, rows, now),
        Command::PutTransport(put) => put_transport::put_transport(put, rows, now),
        Command::Letter(on) => letters::on_letter(on, rows, now),
    }
}

/// The thing that a command is about, for the audit.
pub(crate) fn subject(command: &Command, rows: &impl Rows) -> Subject {
    match command {
        Command::Publish(publish) => publish.claim.target.subject(),
        Command::PutTransport(put) => {
            Subject { tenant: Some(put.transport.planner.clone()), on: put.transport.warehouse.clone(), why: None }
        }
        Command::Letter(on) => letters::subject(on, rows),
    }
}

fn transport_of(rows: &impl Rows, key: RowKey) -> Option<&Arc<WarehouseTransport>> {
    rows.row(&key)?.record.as_transport()
}

pub(crate) fn transport_key(transport: &WarehouseTransport) -> RowKey {
    RowKey::transport(&transport.planner, &transport.warehouse)
}

fn end<'a>(transport: &'a Arc<WarehouseTransport>, members: &'a Members) -> End<'a> {
    End { tenant: &transport.planner, purpose: transport.purpose(), members, target: transport_key(transport) }
}

fn follow_append_to_lane_of(
    transport: &Arc<WarehouseTransport>,
    members: &Members,
    rows: &impl Rows,
    add: &mut impl FnMut(RowKey),
) {
    lane::follow_append(&end(transport, members), rows, add);
}

// An entry for the end of a transport's lane. The transport must still be the one when it is appended.
fn append_to_lane_of(
    transport: &Arc<WarehouseTransport>,
    entry: Arc<Entry>,
    position_row: RowKey,
    members: &Members,
    rows: &impl Rows,
    decision: &mut Decision,
) {
    lane::append(&end(transport, members), entry, position_row, rows, decision);
}

impl row::Record {
    /// The transport of a warehouse, where it is one.
    pub fn as_transport(&self) -> Option<&Arc<WarehouseTransport>> {
        if let Self::Dispatch(Record::Transport(found)) = self { Some(found) } else { None }
    }
}
