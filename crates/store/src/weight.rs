//! What a row weighs in memory and on the wire, roughly: never less than the texts that a client chose the length of.
//! Used where rows are counted against a budget.

use fencepost_kernel::{
    Version,
    fence::{Event, Record, State, What},
};

/// A row beside what is counted: the record itself, its short texts, and its place in a table.
pub(crate) const ROW_BYTES: usize = 1 << 10;

pub(crate) fn weight(record: &Record) -> usize {
    let counted = match record {
        Record::Fence(fence) => {
            let receipt = match &fence.state {
                State::Sealed { receipt, .. } => receipt.effect_id.len() + receipt.body.len(),
                _ => 0,
            };
            let kept = fence.body.as_ref().and_then(|body| body.kept.as_ref()).map_or(0, |kept| kept.len());
            let fields: usize = fence.fields.iter().map(|(name, value)| name.len() + value.len()).sum();
            let source = fence.source.as_ref().map_or(0, |source| source.kind.len() + source.id.len());
            let version = fence.version.as_ref().map_or(0, |(version, _)| text(version));
            let words = |event: &Event| match &event.what {
                What::Resolved { by, why, .. } => by.len() + why.len(),
                _ => 0,
            };
            receipt + kept + fields + source + version + fence.events.iter().map(words).sum::<usize>()
        }
        Record::VersionHead(head) => text(&head.version),
        Record::Alias(alias) => alias.receipt.body.len(),
        Record::Entry(entry) => entry.body.len(),
        Record::DeadLetter(letter) => letter.entry.body.len(),
        _ => 0,
    };
    ROW_BYTES + counted
}

fn text(version: &Version) -> usize {
    if let Version::Text(text) = version { text.len() } else { 0 }
}
