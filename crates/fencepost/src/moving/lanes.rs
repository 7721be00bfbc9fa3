//! Repairs lanes that moved while a backup read them: it has rows of different moments.
//! Never loses an event that the backup holds: where the rows disagree, it is delivered again rather than not at all.
//! Called by `restore`.
//!
//! A backup reads lanes first, then entries, tails and dead letters. So an entry that a lane still waits for is in the
//! file, or it was acknowledged, or its dead letter is there; and no entry is past its lane's tail.

use std::{collections::BTreeMap, io::Read, sync::Arc};

use fencepost_kernel::{
    Millis, Row, RowKey,
    lane::{self, DeadLetter, Fate, Lane, LaneId, Owner, Tail},
    row::Record,
};

use super::{Error, file::Reader};

/// The lanes of a backup, as its rows show them.
#[derive(Default)]
pub(super) struct Lanes {
    spans: BTreeMap<LaneId, Span>,
    /// When the backup was begun: the rows that follow from a person's later decision may not be in it.
    since: Millis,
}

#[derive(Default)]
struct Span {
    /// The last settled position; none where the lane was made only after lanes were read.
    settled: Option<u64>,
    /// The last entries without a gap: an entry before a gap was settled while entries were read.
    first: u64,
    last: u64,
    tail: u64,
}

impl Span {
    fn settled(&self) -> Option<u64> {
        let settled = self.settled?;
        // Without an entry that waits, everything up to the tail is settled, or came after the entries were read.
        Some(settled.max(if self.last > settled { self.first - 1 } else { self.tail }))
    }
}

impl Lanes {
    /// Reads a whole backup.
    pub(super) fn read(mut file: Reader<impl Read>) -> Result<Self, Error> {
        let mut own = Self { since: file.started_at(), ..Self::default() };
        while let Some((key, row)) = file.next()? {
            own.see(&key, &row.record);
        }
        Ok(own)
    }

    fn see(&mut self, key: &RowKey, record: &Record) {
        let Record::Lane(record) = record else { return };
        let (lane, seq) = key.place();
        match record {
            lane::Record::Lane(known) => self.spans.entry(lane).or_default().settled = Some(known.settled),
            lane::Record::Tail(tail) => self.spans.entry(lane).or_default().tail = tail.last,
            lane::Record::Entry(_) => {
                let span = self.spans.entry(lane).or_default();
                if span.last == 0 || seq != span.last + 1 {
                    span.first = seq;
                }
                span.last = seq;
            }
            lane::Record::DeadLetter(_) | lane::Record::LaneNotice | lane::Record::Cancelled(_) => {}
        }
    }

    fn settled(&self, key: &RowKey) -> Option<u64> {
        self.spans.get(&key.place().0)?.settled()
    }

    /// A row as it is restored with this floor; none for a settled entry, and for a lane that is not in the backup.
    pub(super) fn restored(&self, key: &RowKey, row: Arc<Row>, floor: Millis) -> Option<Arc<Row>> {
        let Record::Lane(record) = &row.record else { return Some(row) };
        let record = match record {
            lane::Record::Lane(lane) => restart(lane, self.settled(key)?, floor).into(),
            lane::Record::Entry(_) => return (key.place().1 > self.settled(key)?).then_some(row),
            lane::Record::Tail(_) => {
                let last = self.settled(key)?.max(self.spans.get(&key.place().0)?.last);
                lane::Record::Tail(Tail { last }).into()
            }
            lane::Record::DeadLetter(letter) => undecided(letter, self.since).into(),
            lane::Record::LaneNotice | lane::Record::Cancelled(_) => return Some(row),
        };
        Some(Arc::new(Row { record, revision: row.revision }))
    }
}

// Under a later epoch, so that the node that drove it when the backup was taken no longer may. The floor is in it since
// a backup may be restored twice: each store then gives the same positions to other events, and a cursor of one must
// not count in the other.
fn restart(lane: &Lane, settled: u64, floor: Millis) -> Lane {
    let owner = Owner { epoch: floor.0.max(lane.owner.epoch + 1), ..lane.owner.clone() };
    let same_head = lane.settled == settled;
    let trouble = lane.trouble.clone().filter(|_| same_head);
    // Settled entries are not restored, so they count as trimmed.
    Lane { owner, settled, trimmed: settled, trouble, blocked: lane.blocked && same_head, ..lane.clone() }
}

// A person decides again: the backup may not have the redriven event, or the lane that was let go on.
fn undecided(letter: &DeadLetter, since: Millis) -> DeadLetter {
    let fate = match &letter.fate {
        Fate::Redriven { at, .. } | Fate::Discarded { at, .. } if *at >= since => Fate::Waiting,
        fate => fate.clone(),
    };
    DeadLetter { fate, ..letter.clone() }
}
