//! Decides which write sets of one commit still stand, over current revisions and the sets before them.
//! Never writes: it hands back each changed row once, in its final form and in key order.
//! Called by the stores that check revisions in this process.

use std::collections::{BTreeMap, BTreeSet, btree_map::Entry};

use fencepost_kernel::{Millis, RowKey, command::CommitId, fence::Record};

use crate::{Error, Verdict, WriteSet};

/// What a store knows of a row that exists: enough to compare it and to keep the due index true.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) struct Known {
    pub(crate) revision: CommitId,
    pub(crate) due: Option<Millis>,
}

/// One row that the commit changes.
pub(crate) struct Change<'s> {
    pub(crate) key: RowKey,
    /// What was there before the commit.
    pub(crate) before: Option<Known>,
    /// What shall be there after it; none removes the row.
    pub(crate) after: Option<(CommitId, &'s Record)>,
}

/// What becomes of a commit.
pub(crate) struct Judged<'s> {
    pub(crate) verdicts: Vec<Verdict>,
    pub(crate) changes: Vec<Change<'s>>,
}

struct Slot<'s> {
    before: Option<Known>,
    change: Option<Option<(CommitId, &'s Record)>>,
}

impl Slot<'_> {
    fn revision(&self) -> Option<CommitId> {
        match self.change {
            Some(after) => after.map(|(revision, _)| revision),
            None => self.before.map(|known| known.revision),
        }
    }
}

/// Judges `sets` in order; `current` reads what the store holds.
pub(crate) fn judge<'s>(
    sets: &'s [WriteSet],
    mut current: impl FnMut(&RowKey) -> Result<Option<Known>, Error>,
) -> Result<Judged<'s>, Error> {
    let mut slots: BTreeMap<RowKey, Slot<'s>> = BTreeMap::new();
    let mut verdicts = Vec::with_capacity(sets.len());
    let mut any_repeated = false;
    for set in sets {
        let mut stands = true;
        let mut repeated = false;
        for write in &set.writes {
            let slot = match slots.entry(write.key) {
                Entry::Occupied(slot) => slot.into_mut(),
                Entry::Vacant(slot) => slot.insert(Slot { before: current(&write.key)?, change: None }),
            };
            let revision = slot.revision();
            // A set is applied whole and its id is never used again, so one row that carries it proves all of it.
            repeated |= write.put.is_some() && revision == Some(set.id);
            // What shall go and is gone already needs no comparing: somebody else, or an expiry, was faster.
            let gone = write.put.is_none() && revision.is_none();
            stands &= gone || revision == write.expect;
        }
        if stands && !repeated {
            for write in &set.writes {
                if let Some(slot) = slots.get_mut(&write.key) {
                    slot.change = Some(write.put.as_ref().map(|record| (set.id, record)));
                }
            }
        }
        any_repeated |= repeated;
        verdicts.push(if stands || repeated { Verdict::Applied } else { Verdict::Moved });
    }
    if any_repeated {
        follow_back(sets, &mut verdicts);
    }
    let changes = slots
        .into_iter()
        .filter_map(|(key, slot)| slot.change.map(|after| Change { key, before: slot.before, after }))
        // Removing what was never there is no change.
        .filter(|change| change.before.is_some() || change.after.is_some())
        .collect();
    Ok(Judged { verdicts, changes })
}

// A repeated commit finds only the last of its sets on a row that several of them wrote. A set that stands over
// another's id proves that the other was applied before it, although nothing carries that id any more.
pub(crate) fn follow_back(sets: &[WriteSet], verdicts: &mut [Verdict]) {
    let mut proven = BTreeSet::new();
    for (set, verdict) in sets.iter().zip(verdicts).rev() {
        if proven.contains(&set.id) {
            *verdict = Verdict::Applied;
        }
        if *verdict == Verdict::Applied {
            // What was only removed proves nothing: a row that is gone is not compared.
            let puts = set.writes.iter().filter(|write| write.put.is_some());
            proven.extend(puts.filter_map(|write| write.expect));
        }
    }
}
