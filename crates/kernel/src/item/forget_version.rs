//! Decides whether a version that was sent by mistake stops counting, so that a lower one can be accepted after it.
//! Never drops anything: the version goes to the item's history, and its content stays the item's until another is accepted.
//! Called only from `item`.

use super::{Accepted, ForgetVersion, Item, Record, Replaced, Reply, Sent, item_of};
use crate::{
    key::RowKey,
    law::Decision,
    row::{Rows, write},
    time::Millis,
};

pub(super) fn follow(forget: &ForgetVersion, rows: &impl Rows, add: &mut impl FnMut(RowKey)) {
    if let Some(known) = item_of(rows, forget.item()) {
        add(RowKey::item_version(forget.item(), known.seq));
    }
}

pub(super) fn forget(forget: &ForgetVersion, rows: &impl Rows, now: Millis) -> Decision {
    let item = forget.item();
    let Some(known) = item_of(rows, item) else { return Decision::reply(Reply::NoSuchItem) };
    let Some(current) = &known.current else { return Decision::reply(Reply::NoSuchItem) };
    let highest = known.highest();
    if highest.is_none_or(|highest| highest.to_string() != forget.version) {
        return Decision::reply(Reply::VersionForgotten { replay: true, highest: highest.cloned() });
    }
    let replaced = Replaced {
        tenant: known.tenant.clone(),
        collection: known.collection.clone(),
        source_id: known.source_id.clone(),
        accepted: current.clone(),
        replaced_at: now,
    };
    // The same content without a version: any version is above none.
    let from = Sent { at: now, by: forget.by.clone(), correlation_id: "".into() };
    let current = Some(Accepted { version: None, from, ..current.clone() });
    let unversioned = Item { current, floor: None, seq: known.seq + 1, ..Item::clone(known) };
    let writes = vec![
        write(rows, RowKey::item(item), Some(Record::Item(unversioned.into()).into())),
        write(rows, RowKey::item_version(item, known.seq), Some(Record::Replaced(replaced.into()).into())),
    ];
    Decision::new(writes, Reply::VersionForgotten { replay: false, highest: None })
}
