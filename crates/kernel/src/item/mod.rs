//! Items of partners: master data, documents and inventory records, each with its versions; and items in quarantine because
//! something that they refer to is missing.
//! Never reads an item's content: `fencepost::ingest` does, by the item's collection.
//! Called only from `law`.

mod command;
mod forget_version;
mod id;
mod rows;
mod submit;
mod version;

use std::sync::Arc;

pub use self::{
    command::{Change, ChangeVerdict, Command, ForgetVersion, ItemFault, ItemReference, Put, Reply, Settle, Submit},
    id::{COLLECTION_LEN, ItemId, QuarantineId},
    rows::{
        Accepted, Arrival, Item, Missing, Quarantined, Replaced, Retired, Retirement, Sent, StayEnd, StayOutcome,
        Waiting,
    },
    version::ItemVersion,
};
use crate::{
    audit::Subject,
    key::{Kind, RowKey},
    law::Decision,
    row::{self, Ids, KindSpec, Needs, OnDrop, Rows},
    time::Millis,
};

/// In a backup a request's fence comes before its items, a quarantine before its item, and an item before the versions that it
/// had: what a backup under load leaves out is then found when the item is sent or released again, and no item is lost.
pub(crate) const KINDS: &[KindSpec] = &[
    spec(Kind::Quarantine, ("quarantine", "quarantines"), true, 12),
    spec(Kind::Waiting, ("waiting item", "waiting items"), false, 13),
    spec(Kind::Item, ("item", "items"), false, 14),
    spec(Kind::ItemVersion, ("replaced version", "replaced versions"), false, 15),
    spec(Kind::Arrival, ("arrival", "arrivals"), false, 16),
];

const fn spec(kind: Kind, names: (&'static str, &'static str), swept: bool, backup_place: u8) -> KindSpec {
    KindSpec {
        kind,
        names,
        swept,
        backup_place: Some(backup_place),
        cached: true,
        needs: Needs::Lanes,
        ids: Ids::Ranges,
        merged: false,
        on_drop: OnDrop::Lock,
        since_format: 6,
    }
}

/// A row about items.
#[derive(Clone, PartialEq, Eq, Debug)]
pub enum Record {
    Item(Arc<Item>),
    Replaced(Arc<Replaced>),
    Quarantined(Arc<Quarantined>),
    Waiting(Arc<Waiting>),
    Arrival(Arc<Arrival>),
}

impl From<Record> for row::Record {
    fn from(record: Record) -> Self {
        Self::Item(record)
    }
}

impl Record {
    pub(crate) fn expires_at(&self) -> Option<Millis> {
        match self {
            Self::Quarantined(quarantined) => quarantined.resolved.as_ref().map(|resolved| resolved.expires),
            Self::Item(_) | Self::Replaced(_) | Self::Waiting(_) | Self::Arrival(_) => None,
        }
    }

    /// Arrivals are due at once. So is an open quarantine, which makes the oldest one the first.
    pub(crate) fn due_at(&self) -> Option<Millis> {
        match self {
            Self::Quarantined(quarantined) => quarantined.resolved.is_none().then_some(quarantined.opened),
            Self::Arrival(arrival) => Some(arrival.at),
            Self::Item(_) | Self::Replaced(_) | Self::Waiting(_) => None,
        }
    }

    pub(crate) fn latest_at(&self) -> Millis {
        let accepted = |accepted: &Accepted| {
            accepted.retired.as_ref().map_or(accepted.from.at, |retired| retired.from.at.max(accepted.from.at))
        };
        match self {
            Self::Item(item) => item.current.as_ref().map_or(Millis(0), accepted),
            Self::Replaced(replaced) => replaced.replaced_at.max(accepted(&replaced.accepted)),
            Self::Quarantined(quarantined) => {
                let resolved = quarantined.resolved.as_ref().map_or(Millis(0), |resolved| resolved.from.at);
                quarantined.from.at.max(resolved).max(Millis(quarantined.number))
            }
            Self::Waiting(_) => Millis(0),
            Self::Arrival(arrival) => arrival.at,
        }
    }

    pub(crate) fn weight_bytes(&self) -> usize {
        match self {
            Self::Item(item) => item.weight_bytes(),
            Self::Replaced(replaced) => replaced.source_id.len() + replaced.accepted.weight_bytes(),
            Self::Quarantined(quarantined) => quarantined.weight_bytes(),
            Self::Waiting(_) => 0,
            Self::Arrival(arrival) => arrival.source_id.len(),
        }
    }
}

impl row::Record {
    /// The item, where it is one.
    pub fn as_item(&self) -> Option<&Arc<Item>> {
        if let Self::Item(Record::Item(found)) = self { Some(found) } else { None }
    }

    /// The replaced version, where it is one.
    pub fn as_replaced(&self) -> Option<&Arc<Replaced>> {
        if let Self::Item(Record::Replaced(found)) = self { Some(found) } else { None }
    }

    /// The stay in quarantine, where it is one.
    pub fn as_quarantined(&self) -> Option<&Arc<Quarantined>> {
        if let Self::Item(Record::Quarantined(found)) = self { Some(found) } else { None }
    }

    /// The item that waits for another, where it is one.
    pub fn as_waiting(&self) -> Option<&Arc<Waiting>> {
        if let Self::Item(Record::Waiting(found)) = self { Some(found) } else { None }
    }

    /// The arrival, where it is one.
    pub fn as_arrival(&self) -> Option<&Arc<Arrival>> {
        if let Self::Item(Record::Arrival(found)) = self { Some(found) } else { None }
    }
}

pub(crate) use self::id::{hex, unhex};
/// For a job, which decides a list of changes and more.
pub(crate) use self::submit::{follow as follow_of, footprint as footprint_of, submit as decision_of};

pub(crate) fn footprint(command: &Command, add: &mut impl FnMut(RowKey)) {
    match command {
        Command::Submit(submit) => submit::footprint(submit, add),
        Command::Settle(settle) => {
            add(RowKey::item(settle.item));
            add(RowKey::arrival(settle.item));
        }
        Command::ForgetVersion(forget) => add(RowKey::item(forget.item())),
    }
}

pub(crate) fn follow(command: &Command, rows: &impl Rows, add: &mut impl FnMut(RowKey)) {
    match command {
        Command::Submit(submit) => submit::follow(submit, rows, add),
        Command::Settle(_) => {}
        Command::ForgetVersion(forget) => forget_version::follow(forget, rows, add),
    }
}

pub(crate) fn decide(command: &Command, rows: &impl Rows, now: Millis) -> Decision {
    match command {
        Command::Submit(submit) => submit::submit(submit, rows, now),
        Command::Settle(settle) => submit::settle(settle, rows),
        Command::ForgetVersion(forget) => forget_version::forget(forget, rows, now),
    }
}

/// The thing that a command is about, for the audit.
pub(crate) fn subject(command: &Command) -> Subject {
    match command {
        Command::Submit(submit) => {
            let id = submit.changes.first().and_then(Change::source_id).unwrap_or_default();
            let on = format!("{}/{id}", submit.collection);
            Subject { tenant: Some(submit.tenant.clone()), on, why: None }
        }
        Command::Settle(_) => Subject::default(),
        Command::ForgetVersion(forget) => {
            let on = format!("{}/{} version {}", forget.collection, forget.source_id, forget.version);
            Subject { tenant: Some(forget.tenant.clone()), on, why: Some(forget.why.clone()) }
        }
    }
}

fn item_of(rows: &impl Rows, item: ItemId) -> Option<&Arc<Item>> {
    rows.row(&RowKey::item(item))?.record.as_item()
}

fn quarantined_of(rows: &impl Rows, item: ItemId) -> Option<&Arc<Quarantined>> {
    rows.row(&RowKey::quarantine(item))?.record.as_quarantined()
}
