//! The writes of a store with a planted bug about items, in place of those that it was given.
//! Never changes anything where no such bug is planted. Called by each commit of the twin.

use std::sync::Arc;

use fencepost::ingest::SCOPE;
use fencepost_kernel::{
    Write,
    item::{Quarantined, StayOutcome},
    key::Kind,
    row::Record,
};
use fencepost_store::{Error, Memory, Store, Verdict, WriteSet};

use super::{Twin, lock};
use crate::plant::Plant;

/// One of so many requests is torn where that bug is planted.
const TORN_OF: u8 = 8;

impl Twin {
    /// The sets as they are written where a bug about items is planted; none where there is no such bug.
    pub(super) async fn flawed_items(
        &self,
        sets: &[WriteSet],
        before: &Memory,
    ) -> Result<Option<Vec<WriteSet>>, Error> {
        let each = |flaw: &dyn Fn(&WriteSet) -> WriteSet| Ok(Some(sets.iter().map(flaw).collect()));
        match self.plant {
            Some(Plant::TornRequest) => each(&|set| self.torn(set)),
            Some(Plant::HistoryForgotten) => each(&|set| without(set, |write| write.key.kind == Kind::ItemVersion)),
            Some(Plant::ArrivalForgotten) => each(&|set| without(set, arrives)),
            Some(Plant::ReleasedTwice) => each(&unreleased),
            Some(Plant::ArrivalUnseen) => unseen(sets, before).await.map(Some),
            _ => Ok(None),
        }
    }

    /// Counts commits about items that came too late.
    pub(super) fn tally_moved_items(&self, sets: &[WriteSet], verdicts: &[Verdict]) {
        let moved = sets.iter().zip(verdicts).filter(|(_, verdict)| **verdict == Verdict::Moved);
        for (set, _) in moved {
            if set.writes.iter().any(|write| write.key.kind == Kind::Item) {
                self.recorder.tally("item_moved");
            }
        }
    }

    // The items of some requests are written, and their fences are not.
    fn torn(&self, set: &WriteSet) -> WriteSet {
        let has_items = set.writes.iter().any(|write| write.key.kind == Kind::Item);
        if !has_items || lock(&self.rng).u8(0..TORN_OF) > 0 {
            return set.clone();
        }
        without(set, |write| {
            let fence = write.put.as_ref().and_then(Record::as_fence);
            fence.is_some_and(|fence| *fence.scope == *SCOPE)
        })
    }
}

fn without(set: &WriteSet, gone: impl Fn(&Write) -> bool) -> WriteSet {
    let mut set = set.clone();
    set.writes.retain(|write| !gone(write));
    set
}

fn arrives(write: &Write) -> bool {
    write.put.as_ref().is_some_and(|record| record.as_arrival().is_some())
}

fn quarantined(write: &Write) -> Option<&Arc<Quarantined>> {
    write.put.as_ref()?.as_quarantined()
}

// A stay that ends with a release stays open.
fn unreleased(set: &WriteSet) -> WriteSet {
    without(set, |write| {
        let resolved = quarantined(write).and_then(|stay| stay.resolved.as_ref());
        resolved.is_some_and(|resolved| resolved.how == StayOutcome::Released)
    })
}

// A row that another item waits for is not compared, and not marked where it was absent: one that arrives in that moment never
// hears of who waits.
async fn unseen(sets: &[WriteSet], before: &Memory) -> Result<Vec<WriteSet>, Error> {
    let (steps, mut sets) = (Memory::clone(before), sets.to_vec());
    for set in &mut sets {
        set.also.held.retain(|(key, _)| key.kind != Kind::Item);
        let mut kept = Vec::with_capacity(set.writes.len());
        for write in set.writes.drain(..) {
            let moved = steps.load(&[write.key]).await?.pop().flatten().map(|row| row.revision) != write.expect;
            if !(marks(&write) && (moved || write.expect.is_none())) {
                kept.push(write);
            }
        }
        set.writes = kept;
        steps.commit(std::slice::from_ref(set), fencepost_kernel::Millis(0)).await?;
    }
    Ok(sets)
}

fn marks(write: &Write) -> bool {
    let item = write.put.as_ref().and_then(Record::as_item);
    item.is_some_and(|item| item.wanted && !item.is_active() && item.quarantine.is_none())
}
