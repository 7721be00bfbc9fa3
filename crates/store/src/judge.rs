//! Decides which write sets of one commit still stand, over current revisions and the sets before them.
//! Never writes: it hands back each changed row once, in its final form and in key order.
//! Called by the stores that check revisions in this process.

use std::{
    borrow::Cow,
    collections::{BTreeMap, BTreeSet, btree_map::Entry},
};

use fencepost_kernel::{
    Millis, Row, RowKey,
    lane::{self, Append, Tail},
    merge::{Counter, Merge, Merged},
    row::{CommitId, OnDrop, Record},
};

use crate::{Error, Verdict, WriteSet};

/// Facts about a row that exists: enough to compare it and to keep the due index true.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) struct Known {
    pub(crate) revision: CommitId,
    pub(crate) due: Option<Millis>,
    /// The start of the next merge: the last position of a lane, or the value of a counter.
    pub(crate) figure: i128,
}

impl Known {
    pub(crate) fn of(row: &Row) -> Self {
        Self { revision: row.revision, due: row.record.due_at(), figure: figure(&row.record) }
    }
}

/// One row that the commit changes.
pub(crate) struct Change<'s> {
    pub(crate) key: RowKey,
    /// The row before the commit.
    pub(crate) before: Option<Known>,
    /// The row after it; none removes it.
    pub(crate) after: Option<After<'s>>,
}

/// A row as it shall be.
#[derive(Clone)]
pub(crate) struct After<'s> {
    pub(crate) revision: CommitId,
    pub(crate) record: Cow<'s, Record>,
}

/// Verdicts and changes of a commit.
pub(crate) struct Judged<'s> {
    pub(crate) verdicts: Vec<Verdict>,
    pub(crate) changes: Vec<Change<'s>>,
}

struct Slot<'s> {
    before: Option<Known>,
    change: Option<Option<After<'s>>>,
}

impl Slot<'_> {
    fn revision(&self) -> Option<CommitId> {
        match &self.change {
            Some(after) => after.as_ref().map(|after| after.revision),
            None => self.before.map(|known| known.revision),
        }
    }

    // The start of the next merge, and the due time that it leaves.
    fn figure(&self) -> (i128, Option<Millis>) {
        match &self.change {
            Some(Some(After { record, .. })) => (figure(record), record.due_at()),
            Some(None) => (0, None),
            None => self.before.map_or((0, None), |known| (known.figure, known.due)),
        }
    }
}

fn figure(record: &Record) -> i128 {
    if let Record::Counter(counter) = record {
        return counter.value;
    }
    record.as_tail().map_or(0, |tail| tail.last.into())
}

/// The rows of one commit while it is judged.
struct Slots<'s, C> {
    rows: BTreeMap<RowKey, Slot<'s>>,
    current: C,
}

impl<'s, C: FnMut(&RowKey) -> Result<Option<Known>, Error>> Slots<'s, C> {
    fn at(&mut self, key: RowKey) -> Result<&mut Slot<'s>, Error> {
        Ok(match self.rows.entry(key) {
            Entry::Occupied(slot) => slot.into_mut(),
            Entry::Vacant(slot) => slot.insert(Slot { before: (self.current)(&key)?, change: None }),
        })
    }

    // A row that is written only once is removed unread: it may be large.
    fn unseen(&mut self, key: RowKey, revision: CommitId) -> Result<&mut Slot<'s>, Error> {
        if key.kind.spec().on_drop != OnDrop::Blind {
            return self.at(key);
        }
        let before = Some(Known { revision, due: None, figure: 0 });
        Ok(self.rows.entry(key).or_insert(Slot { before, change: None }))
    }

    fn put(&mut self, key: RowKey, revision: CommitId, record: Cow<'s, Record>) -> Result<(), Error> {
        self.at(key)?.change = Some(Some(After { revision, record }));
        Ok(())
    }

    fn apply(&mut self, set: &'s WriteSet) -> Result<Verdict, Error> {
        for write in &set.writes {
            match &write.put {
                Some(record) => self.put(write.key, set.id, Cow::Borrowed(record))?,
                None => self.at(write.key)?.change = Some(None),
            }
        }
        for key in &set.also.drops {
            self.unseen(*key, set.id)?.change = Some(None);
        }
        if set.also.merges.is_empty() {
            return Ok(Verdict::Applied);
        }
        let merged = set.also.merges.iter().map(|merge| match merge {
            Merge::Append(append) => self.append(set, append).map(Merged::Position),
            Merge::Add { key, delta } => self.add(set, *key, *delta),
        });
        merged.collect::<Result<_, _>>().map(Verdict::Merged)
    }

    // Whether a counter cannot take what the set adds. Nothing is changed for that.
    fn overflows(&mut self, set: &WriteSet) -> Result<bool, Error> {
        let mut sums: BTreeMap<RowKey, i128> = BTreeMap::new();
        for merge in &set.also.merges {
            let Merge::Add { key, delta } = merge else { continue };
            let sum = match sums.get(key) {
                Some(sum) => *sum,
                None => self.at(*key)?.figure().0,
            };
            let Some(sum) = sum.checked_add(*delta) else { return Ok(true) };
            sums.insert(*key, sum);
        }
        Ok(false)
    }

    fn add(&mut self, set: &'s WriteSet, key: RowKey, delta: i128) -> Result<Merged, Error> {
        let (before, due) = self.at(key)?.figure();
        let after = before.checked_add(delta).ok_or_else(|| {
            Error::NotApplied("a write set puts a counter that it also adds to: it may do one of the two".to_owned())
        })?;
        self.put(key, set.id, Cow::Owned(Record::Counter(Counter { value: after, due })))?;
        Ok(Merged::Sum { before, after })
    }

    // Gives the next position, and writes it into the row that waits for it.
    fn append(&mut self, set: &'s WriteSet, append: &Append) -> Result<u64, Error> {
        let key = RowKey::tail(append.lane);
        let last = self.at(key)?.figure().0 as u64 + 1;
        self.put(key, set.id, Cow::Owned(Record::Lane(lane::Record::Tail(Tail { last }))))?;
        // Nothing was ever at a position past the end: it need not be looked for.
        let record = Cow::Owned(Record::Lane(lane::Record::Entry(append.entry.clone())));
        let change = Some(Some(After { revision: set.id, record }));
        self.rows.insert(RowKey::entry(append.lane, last), Slot { before: None, change });
        let waiting =
            set.writes.iter().find(|write| write.key == append.position_row).and_then(|write| write.put.as_ref());
        if let Some(record) = waiting {
            self.put(append.position_row, set.id, Cow::Owned(record.with_position(last)))?;
        }
        Ok(last)
    }
}

/// Judges `sets` in order; `current` reads what the store holds.
pub(crate) fn judge<'s>(
    sets: &'s [WriteSet],
    current: impl FnMut(&RowKey) -> Result<Option<Known>, Error>,
) -> Result<Judged<'s>, Error> {
    let mut slots = Slots { rows: BTreeMap::new(), current };
    let mut verdicts = Vec::with_capacity(sets.len());
    let mut any_repeated = false;
    for set in sets {
        if !set.also.merges.is_empty() && set.writes.iter().all(|write| write.put.is_none()) {
            return Err(Error::NotApplied("a write set with merges puts no row that would prove them".to_owned()));
        }
        let mut stands = true;
        let mut repeated = false;
        for write in &set.writes {
            let revision = slots.at(write.key)?.revision();
            // A set is applied whole and its id is never used again, so one row that carries it proves all of it.
            repeated |= write.put.is_some() && revision == Some(set.id);
            // A row that is already gone needs no comparing before its removal: another writer, or an expiry, was
            // faster.
            let gone = write.put.is_none() && revision.is_none();
            stands &= gone || revision == write.expect;
        }
        for (key, expect) in &set.also.held {
            stands &= slots.at(*key)?.revision() == *expect;
        }
        any_repeated |= repeated;
        verdicts.push(match (stands, repeated) {
            (_, true) => Verdict::Applied,
            (true, false) if set.also.merges.is_empty() || !slots.overflows(set)? => slots.apply(set)?,
            (true, false) => Verdict::Overflow,
            (false, false) => Verdict::Moved,
        });
    }
    if any_repeated {
        follow_back(sets, &mut verdicts);
    }
    // Filters hide their length, and a growing vector is copied.
    let mut changes = Vec::with_capacity(slots.rows.len());
    changes.extend(
        slots
            .rows
            .into_iter()
            .filter_map(|(key, slot)| slot.change.map(|after| Change { key, before: slot.before, after }))
            // The removal of an absent row is no change.
            .filter(|change| change.before.is_some() || change.after.is_some()),
    );
    Ok(Judged { verdicts, changes })
}

// A repeated commit finds only the last of its sets on a row that several of them wrote. A set that stands over
// another's id proves that the other was applied before it, although nothing carries that id any more.
pub(crate) fn follow_back(sets: &[WriteSet], verdicts: &mut [Verdict]) {
    let mut proven = BTreeSet::new();
    for (set, verdict) in sets.iter().zip(verdicts).rev() {
        if proven.contains(&set.id) && !verdict.applied() {
            *verdict = Verdict::Applied;
        }
        if verdict.applied() {
            // A removal proves nothing: a row that is gone is not compared.
            let puts = set.writes.iter().filter(|write| write.put.is_some());
            proven.extend(puts.filter_map(|write| write.expect));
            proven.extend(set.also.held.iter().filter_map(|(_, expect)| *expect));
        }
    }
}
