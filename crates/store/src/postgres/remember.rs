//! Keeps what a commit wrote, for guesses about the next one.
//! Never keeps what it does not know: a row of unknown content is forgotten. Called after every commit.

use std::sync::Arc;

use fencepost_kernel::{
    Row, RowKey,
    lane::{self, Append, Tail},
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
        let Some(Append { lane, told_in, .. }) = &set.also.append else { continue };
        let write = set.writes.iter().find(|write| write.key == *told_in);
        match (verdict, write.and_then(|write| write.put.as_ref())) {
            (Verdict::Appended(seq), Some(record)) => {
                hot.put(*told_in, Some(row(record.with_position(*seq))));
                hot.put(RowKey::tail(*lane), Some(row(Record::Lane(lane::Record::Tail(Tail { last: *seq })))));
            }
            // An earlier try of it has the position.
            _ => hot.put(*told_in, None),
        }
    }
}
