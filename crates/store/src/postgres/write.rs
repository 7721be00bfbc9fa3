//! Writes rows within a transaction whose other rows are locked already.
//! Never commits. Called by the store's own commits, and within a user's transaction.

use fencepost_kernel::{
    Millis, RowKey, Tenant,
    fence::{Fence, State, Token},
    key::Kind,
    lane,
    merge::Merge,
    row::{CommitId, OnDrop, Record},
};

use super::{
    columns::{Columns, Keys, Param, Put},
    fault::Failed,
    link::Run,
    sql,
    stamp::Stamp,
};
use crate::{WriteSet, judge::Judged};

/// The rows to lock before a set is judged: all that it names, but for those among its drops that need no lock: entries, which
/// no other transaction changes, and notices between nodes, which are deleted only where no transaction holds them.
pub(super) fn touched(set: &WriteSet) -> impl Iterator<Item = RowKey> {
    let also = &set.also;
    let writes = set.writes.iter().map(|write| write.key);
    let merged = also.merges.iter().map(Merge::key);
    let drops = also.drops.iter().copied().filter(|key| key.kind.spec().on_drop == OnDrop::Lock);
    writes.chain(also.held.iter().map(|(key, _)| *key)).chain(merged).chain(drops)
}

/// Writes every change in one round trip, and returns whether all went through: if a row that was absent is there by
/// now, the transaction must be undone. The node's time floor, where given, comes last: commits under the same node
/// name wait for it, and others wait for their rows meanwhile, so it must be locked only briefly.
pub(super) async fn write(
    run: Run<'_>,
    sets: &[WriteSet],
    judged: &Judged<'_>,
    node: &str,
    format: u8,
    floor: Option<Millis>,
) -> Result<bool, Failed> {
    let absent: Vec<(RowKey, Record)> = absent(sets, judged).map(|key| (key, nothing(key.kind))).collect();
    let puts = judged.changes.iter().filter_map(|change| {
        let after = change.after.as_ref()?;
        let expect = change.before.map(|known| known.revision);
        Some(Put { key: change.key, expect, revision: after.revision, record: &after.record })
    });
    let guards = absent.iter().map(|(key, record)| Put { key: *key, expect: None, revision: CommitId(0), record });
    let columns = Columns::new(puts.chain(guards), format);
    let gone = judged.changes.iter().filter(|change| change.after.is_none()).map(|change| &change.key);
    let gone: Keys = gone.chain(absent.iter().map(|(key, _)| key)).collect();
    let unless_held = applied(sets, judged).flat_map(|set| &set.also.drops);
    let unless_held = unless_held.filter(|key| key.kind.spec().on_drop == OnDrop::SkipHeld);
    let unless_held: Keys = unless_held.filter(|key| !changes(judged, key)).collect();
    let floor = floor.map(Stamp);
    let mut steps: Vec<(&'static str, Vec<Param<'_>>)> = Vec::with_capacity(6);
    if columns.has_fences() {
        steps.push((sql::WRITE_FENCES, columns.fences(&[&node])));
    }
    if columns.has_rows() {
        let sql = if columns.has_only_new_rows() { sql::INSERT_ROWS } else { sql::WRITE_ROWS };
        steps.push((sql, columns.rows(&[&node])));
    }
    if !gone.fences.is_empty() {
        steps.push((sql::DELETE_FENCES, vec![&gone.fences]));
    }
    if !gone.ids.is_empty() {
        steps.push((sql::DELETE_ROWS, vec![&gone.ids, &gone.kinds]));
    }
    if !unless_held.ids.is_empty() {
        steps.push((sql::DELETE_UNLESS_HELD, vec![&unless_held.ids, &unless_held.kinds]));
    }
    if let Some(floor) = &floor {
        steps.push((sql::FLOOR, vec![&node, floor]));
    }
    // Only the statements that write rows return any.
    let written: usize = run.all(&steps).await?.iter().map(Vec::len).sum();
    Ok(written == columns.len())
}

// Rows that an applied set needs to be absent. An absent row cannot be locked, so a placeholder is inserted and deleted
// again: a transaction that inserts the row at the same moment waits for this one, or this one for it.
fn absent(sets: &[WriteSet], judged: &Judged<'_>) -> impl Iterator<Item = RowKey> {
    let held = applied(sets, judged).flat_map(|set| &set.also.held).filter(|(_, expect)| expect.is_none());
    let mut keys: Vec<RowKey> = held.map(|(key, _)| *key).collect();
    keys.sort();
    keys.dedup();
    keys.into_iter().filter(|key| !changes(judged, key))
}

fn applied<'s>(sets: &'s [WriteSet], judged: &Judged<'_>) -> impl Iterator<Item = &'s WriteSet> {
    sets.iter().zip(&judged.verdicts).filter(|(_, verdict)| verdict.applied()).map(|(set, _)| set)
}

fn changes(judged: &Judged<'_>, key: &RowKey) -> bool {
    judged.changes.binary_search_by_key(key, |change| change.key).is_ok()
}

fn nothing(kind: Kind) -> Record {
    if kind != Kind::Fence {
        return Record::Lane(lane::Record::LaneNotice);
    }
    Record::from(Fence {
        tenant: Tenant::new(""),
        scope: "".into(),
        fields: Vec::new().into(),
        seq: None,
        first_seen: Millis(0),
        token: Token(0),
        attempt: 0,
        body: None,
        source: None,
        version: None,
        state: State::Released { at: Millis(0), expires: Millis(0) },
        events: Vec::new(),
    })
}
