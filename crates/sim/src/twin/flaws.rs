//! The writes of a store with a planted bug, in place of those that it was given.
//! Never changes anything where no bug is planted. Called by each commit of the twin.

use std::{borrow::Cow, sync::Arc};

use fencepost_kernel::{
    Millis, RowKey, Write,
    fence::{State, What},
    key::Kind,
    lane::{self, Lane},
    law::Also,
    merge::{Merge, Merged},
    row::{CommitId, Record},
};
use fencepost_store::{Error, Memory, Store, Verdict, WriteSet};

use super::{Twin, lock};
use crate::plant::Plant;

/// One of so many appends is lost where that bug is planted.
const LOST_OF: u8 = 8;

impl Twin {
    /// The sets as they are written, with any that a bug adds at the end.
    pub(super) async fn flawed<'s>(
        &self,
        sets: &'s [WriteSet],
        before: &Memory,
        now: Millis,
    ) -> Result<Cow<'s, [WriteSet]>, Error> {
        let shared = self.clock.is_some();
        let each = |flaw: &dyn Fn(&WriteSet) -> WriteSet| Cow::Owned(sets.iter().map(flaw).collect());
        Ok(match self.plant {
            Some(Plant::LostUpdate) if shared => overwriting(sets, before, now).await?.into(),
            Some(Plant::AbsentNotHeld) if shared => each(&without_absent),
            Some(Plant::UnmarkedDoubt) if shared => each(&unmarked),
            Some(Plant::UnauditedAct) if shared => each(&without_audit),
            Some(Plant::UnforgottenAnswer) if shared => each(&without_forgetting),
            Some(Plant::AppendLost) => self.losing_entries(sets, before, now).await?.into(),
            Some(Plant::AckForgotten) => each(&|set| with_lanes(set, forgets_ack)),
            Some(Plant::SettledAhead) => ahead(sets, before).await?.into(),
            Some(Plant::LetterForgotten) => each(&without_letters),
            Some(Plant::PauseForgotten) => each(&|set| with_lanes(set, |lane, _| lane.paused = None)),
            Some(Plant::WaitForgotten) => each(&|set| with_lanes(set, forgets_wait)),
            _ => self.flawed_items(sets, before).await?.map_or(Cow::Borrowed(sets), Cow::Owned),
        })
    }

    // Some appends are acknowledged with their position, and their entries are gone.
    async fn losing_entries(&self, sets: &[WriteSet], before: &Memory, now: Millis) -> Result<Vec<WriteSet>, Error> {
        let verdicts = Memory::clone(before).commit(sets, now).await?;
        let mut drops = Vec::new();
        for (set, verdict) in sets.iter().zip(&verdicts) {
            let Verdict::Merged(merged) = verdict else { continue };
            for (merge, merged) in set.also.merges.iter().zip(merged) {
                if let (Merge::Append(append), Merged::Position(seq)) = (merge, merged)
                    && lock(&self.rng).u8(0..LOST_OF) == 0
                {
                    drops.push(RowKey::entry(append.lane, *seq));
                }
            }
        }
        let mut sets = sets.to_vec();
        if !drops.is_empty() {
            let id = CommitId(lock(&self.rng).u64(..));
            sets.push(WriteSet { id, writes: Vec::new(), also: Also { drops, ..Also::default() } });
        }
        Ok(sets)
    }
}

// The one row of a set expects whatever is there.
async fn overwriting(sets: &[WriteSet], before: &Memory, now: Millis) -> Result<Vec<WriteSet>, Error> {
    let (steps, mut sets) = (Memory::clone(before), sets.to_vec());
    for set in &mut sets {
        if let [write] = &mut set.writes[..] {
            write.expect = steps.load(&[write.key]).await?.pop().flatten().map(|row| row.revision);
        }
        steps.commit(std::slice::from_ref(set), now).await?;
    }
    Ok(sets)
}

// Rows that a set expects to be absent are not compared.
fn without_absent(set: &WriteSet) -> WriteSet {
    let mut set = set.clone();
    set.also.held.retain(|(_, revision)| revision.is_some());
    set
}

// A set that only marks a doubt writes nothing.
fn unmarked(set: &WriteSet) -> WriteSet {
    let marks = |write: &&Write| {
        let fence = write.put.as_ref().and_then(Record::as_fence);
        fence.is_some_and(|fence| matches!(fence.state, State::Pending { doubted_at: Some(_), .. }))
    };
    let writes = set.writes.iter().filter(|write| !marks(write)).cloned().collect();
    WriteSet { writes, ..set.clone() }
}

// A set without the entries of the audit.
fn without_audit(set: &WriteSet) -> WriteSet {
    let mut set = set.clone();
    set.writes.retain(|write| write.key.kind != Kind::Audit);
    set
}

// A set without the fences that say that their outcome was given up.
fn without_forgetting(set: &WriteSet) -> WriteSet {
    let forgets = |record: &Record| {
        let last = record.as_fence().and_then(|fence| fence.events.last());
        last.is_some_and(|event| matches!(event.what, What::Forgotten { .. }))
    };
    let mut set = set.clone();
    set.writes.retain(|write| !write.put.as_ref().is_some_and(forgets));
    set
}

fn without_letters(set: &WriteSet) -> WriteSet {
    let mut set = set.clone();
    set.writes.retain(|write| write.key.kind != Kind::DeadLetter);
    set
}

fn with_lanes(set: &WriteSet, change: impl Fn(&mut Lane, &mut Also)) -> WriteSet {
    let WriteSet { id, mut writes, mut also } = set.clone();
    for write in &mut writes {
        if let Some(Record::Lane(lane::Record::Lane(lane))) = &mut write.put {
            change(Arc::make_mut(lane), &mut also);
        }
    }
    WriteSet { id, writes, also }
}

// The last settled event stays, unsettled.
fn forgets_ack(lane: &mut Lane, also: &mut Also) {
    let last = RowKey::entry(lane.id(), lane.settled);
    let settles = also.drops.contains(&last);
    if settles {
        also.drops.retain(|dropped| *dropped != last);
        lane.settled -= 1;
        lane.trimmed = lane.trimmed.min(lane.settled);
    }
}

// Tried again whenever it is looked at.
fn forgets_wait(lane: &mut Lane, _: &mut Also) {
    if let Some(trouble) = &mut lane.trouble {
        trouble.next_at = trouble.last_at;
    }
}

// One more than was settled.
async fn ahead(sets: &[WriteSet], before: &Memory) -> Result<Vec<WriteSet>, Error> {
    let mut sets = sets.to_vec();
    for write in sets.iter_mut().flat_map(|set| &mut set.writes) {
        let Some(Record::Lane(lane::Record::Lane(lane))) = &mut write.put else { continue };
        let tail = before.load(&[RowKey::tail(lane.id())]).await?.pop().flatten();
        let last = tail.and_then(|row| row.record.as_tail().map(|tail| tail.last)).unwrap_or_default();
        if lane.trouble.is_none() && (1..last).contains(&lane.settled) {
            Arc::make_mut(lane).settled += 1;
        }
    }
    Ok(sets)
}
