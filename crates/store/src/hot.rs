//! Rows that were written lately, as they are: a seal after its claim, or a duplicate after its seal, needs no read
//! and no decoding. In a store of one process that is what is there; in a shared one it is a guess.
//! Filled by commits only. A reader that put back what it read could overwrite a newer row.

use std::sync::Arc;

use fencepost_kernel::{Row, RowKey, key::Kind};
use quick_cache::{Weighter, sync::Cache};

use crate::weight::{ROW_BYTES, weight};

/// Larger rows would push out too many others.
const ROW_BYTES_MAX: usize = 64 << 10;

pub(crate) struct Hot(Cache<RowKey, Arc<Row>, Weight>);

#[derive(Clone)]
struct Weight;

impl Weighter<RowKey, Arc<Row>> for Weight {
    fn weight(&self, _: &RowKey, row: &Arc<Row>) -> u64 {
        weight(&row.record) as u64
    }
}

impl Hot {
    pub(crate) fn new(bytes_max: u64) -> Self {
        Self(Cache::with_weighter((bytes_max as usize / ROW_BYTES).max(1), bytes_max, Weight))
    }

    pub(crate) fn get(&self, key: &RowKey) -> Option<Arc<Row>> {
        self.0.get(key)
    }

    /// After a commit is durable, and before it is acknowledged.
    pub(crate) fn written(&self, key: RowKey, row: Option<Row>) {
        match row {
            // Entries are read in pages, and mostly by who wrote them: they would push out what is asked for again.
            Some(row) if key.kind != Kind::Entry && weight(&row.record) <= ROW_BYTES_MAX => {
                self.0.insert(key, Arc::new(row));
            }
            _ => drop(self.0.remove(&key)),
        }
    }
}

#[cfg(test)]
mod tests {
    use fencepost_kernel::{
        Millis, Tenant,
        command::CommitId,
        fence::{Fence, State, Token},
        key::FenceKey,
    };

    use super::*;

    #[test]
    fn what_a_client_makes_large_is_counted() {
        let hot = Hot::new(1 << 20);
        let row = |value: usize| Row {
            record: Fence {
                tenant: Tenant::new("acme"),
                scope: "FILE".to_owned(),
                fields: vec![("file".to_owned(), "x".repeat(value))].into(),
                seq: None,
                first_seen: Millis(0),
                token: Token(1),
                attempt: 1,
                body: None,
                source: None,
                version: None,
                state: State::Released { at: Millis(0), expires: Millis(1) },
                events: Vec::new(),
            }
            .into(),
            revision: CommitId(1),
        };
        let key = |number: u8| RowKey::fence(FenceKey([number; 32]));
        hot.written(key(0), Some(row(ROW_BYTES_MAX)));
        assert!(hot.get(&key(0)).is_none(), "it would push out too many others");
        (0..200).for_each(|number| hot.written(key(number), Some(row(ROW_BYTES_MAX / 2))));
        let kept = (0..200).filter(|number| hot.get(&key(*number)).is_some()).count();
        assert!((1..=(1 << 20) / (ROW_BYTES_MAX / 2)).contains(&kept), "{kept}");
    }
}
