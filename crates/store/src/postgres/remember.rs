//! Caches the rows that a commit wrote, so that a decision can guess them instead of loading them.
//! Never caches a row whose content it does not know: such a row is forgotten. Called after every commit.

use std::sync::Arc;

use fencepost_kernel::{
    Row, RowKey,
    lane::{self, Tail},
    merge::{Merge, Merged},
    row::Record,
};

use crate::{Verdict, WriteSet, hot::Hot};

/// Remembers the rows of every set that was applied.
pub(super) fn remember(hot: &Hot<Arc<Row>>, sets: &[WriteSet], verdicts: &[Verdict]) {
    for (set, verdict) in sets.iter().zip(verdicts).filter(|(_, verdict)| verdict.applied()) {
        let row = |record| Arc::new(Row { record, revision: set.id });
        for write in &set.writes {
            hot.put(write.key, write.put.clone().map(row));
        }
        set.also.drops.iter().for_each(|key| hot.put(*key, None));
        // The results of a repeated set's merges are not known here: an earlier try of it has the positions.
        let merged = if let Verdict::Merged(merged) = verdict { &merged[..] } else { &[] };
        for (at, merge) in set.also.merges.iter().enumerate() {
            match (merge, merged.get(at)) {
                (Merge::Append(append), Some(Merged::Position(seq))) => {
                    let write = set.writes.iter().find(|write| write.key == append.position_row);
                    let told = write.and_then(|write| write.put.as_ref()).map(|record| row(record.with_position(*seq)));
                    hot.put(append.position_row, told);
                    hot.put(
                        RowKey::tail(append.lane),
                        Some(row(Record::Lane(lane::Record::Tail(Tail { last: *seq })))),
                    );
                }
                (Merge::Append(append), _) => hot.put(append.position_row, None),
                // Other nodes add to a counter too, and no decision reads it: it is not worth a guess.
                (Merge::Add { key, .. }, _) => hot.put(*key, None),
            }
        }
    }
}
