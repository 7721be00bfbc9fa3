//! Events from a planner for a warehouse: what is published, which way they go, what CANCELLED does, and what a person decides
//! about a dead letter. How a lane goes on by itself is `lane`'s.
//! Called only from `law`.

mod command;
mod letters;
mod publish;
mod receipt;
mod reply;
mod route;
mod transport;

use std::sync::Arc;

pub(crate) use self::receipt::{position, with_position};
pub use self::{
    command::{Command, LetterVerdict, OnLetter, Publish, PutRoute},
    receipt::Publication,
    reply::Reply,
    route::{Route, Transport, Webhook},
};
use crate::{
    audit::Subject,
    key::{Kind, RowKey},
    lane::{self, End, Entry, Members, spec},
    law::{Decision, RowLock},
    row::{self, Ids, KindSpec, Rows},
    time::Millis,
};

/// What the table of kinds says of the rows of dispatch.
pub(crate) const KINDS: &[KindSpec] =
    &[KindSpec { backup_place: Some(5), ..spec(Kind::Route, ("transport", "transports"), Ids::FewRanges) }];

/// What became of an event that is cancelled.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Original {
    /// Nobody has seen it.
    Undelivered,
    /// It was sent, or may have been, and is not acknowledged.
    InFlight,
    /// It was acknowledged.
    Delivered,
    /// It is a dead letter.
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
    /// See [`Route`].
    Route(Arc<Route>),
}

impl From<Record> for row::Record {
    fn from(record: Record) -> Self {
        Self::Dispatch(record)
    }
}

impl Record {
    pub(crate) fn latest_at(&self) -> Millis {
        match self {
            Self::Route(route) => route.at,
        }
    }
}

/// The rows a command looks at before anything is known.
pub(crate) fn footprint(command: &Command, add: &mut impl FnMut(RowKey)) {
    match command {
        Command::Publish(publish) => publish::footprint(publish, add),
        Command::PutRoute(put) => add(route_key(&put.route)),
        Command::Letter(on) => letters::footprint(on, add),
    }
}

/// The rows that only loaded ones can name.
pub(crate) fn follow(command: &Command, rows: &impl Rows, add: &mut impl FnMut(RowKey)) {
    match command {
        Command::Publish(publish) => publish::follow(publish, rows, add),
        Command::PutRoute(put) => transport::follow(put, rows, add),
        Command::Letter(on) => letters::follow(on, rows, add),
    }
}

// A node that drives a lane acknowledges its events by writing the lane's row, and must not wait for a user who only publishes:
// that one reads the row, and a write of it is compared all the same. What a cancellation tells of its event is true only while
// the lane does not move.
pub(crate) fn row_lock(command: &Command, key: &RowKey) -> RowLock {
    match command {
        Command::Publish(publish) if publish.cancels.is_none() && key.kind == Kind::Lane => RowLock::Never,
        Command::Publish(_) | Command::PutRoute(_) | Command::Letter(_) => RowLock::OnRead,
    }
}

/// What follows from a command at `now`.
pub(crate) fn decide(command: &Command, rows: &impl Rows, now: Millis) -> Decision {
    match command {
        Command::Publish(publish) => publish::publish(publish, rows, now),
        Command::PutRoute(put) => transport::put_route(put, rows, now),
        Command::Letter(on) => letters::on_letter(on, rows, now),
    }
}

/// What a command is about, for the audit.
pub(crate) fn subject(command: &Command, rows: &impl Rows) -> Subject {
    match command {
        Command::Publish(publish) => publish.claim.target.subject(),
        Command::PutRoute(put) => {
            Subject { tenant: Some(put.route.planner.clone()), on: put.route.warehouse.clone(), why: None }
        }
        Command::Letter(on) => letters::subject(on, rows),
    }
}

fn route_of(rows: &impl Rows, key: RowKey) -> Option<&Arc<Route>> {
    match &rows.row(&key)?.record {
        row::Record::Dispatch(Record::Route(route)) => Some(route),
        row::Record::Fence(_) | row::Record::Lane(_) | row::Record::Counter(_) | row::Record::Audit(_) => None,
    }
}

pub(crate) fn route_key(route: &Route) -> RowKey {
    RowKey::route(&route.planner, &route.warehouse)
}

fn end<'a>(route: &'a Arc<Route>, members: &'a Members) -> End<'a> {
    End { tenant: &route.planner, place: route.place(), members, route }
}

fn follow_append_to_route(route: &Arc<Route>, members: &Members, rows: &impl Rows, add: &mut impl FnMut(RowKey)) {
    lane::follow_append(&end(route, members), rows, add);
}

// An entry for the end of a route's lane. The route must still be the one when it is appended.
fn append_to_route(
    route: &Arc<Route>,
    entry: Arc<Entry>,
    position_row: RowKey,
    members: &Members,
    rows: &impl Rows,
    decision: &mut Decision,
) {
    let key = route_key(route);
    decision.also.held.push((key, rows.row(&key).map(|row| row.revision)));
    lane::append(&end(route, members), entry, position_row, rows, decision);
}

impl row::Record {
    /// The transport of a warehouse, where it is one.
    pub fn as_route(&self) -> Option<&Arc<Route>> {
        match self {
            Self::Dispatch(Record::Route(found)) => Some(found),
            Self::Fence(_) | Self::Lane(_) | Self::Counter(_) | Self::Audit(_) => None,
        }
    }
}
