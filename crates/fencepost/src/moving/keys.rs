//! Finds the keys that the transports of a store or of a backup are encrypted with. People move the keys themselves.
//! Never opens a sealed part, and reads no key. Called by `verify`, and by commands that move or look at a store.

use std::{collections::BTreeSet, sync::Arc};

use fencepost_kernel::{dispatch, key::Kind, row::Record};
use fencepost_store::Store;

use super::{Error, rows::PAGE_ROWS_MAX};
use crate::dispatch::sealing_keys;

/// The keys that transports are sealed with.
#[derive(Clone, PartialEq, Eq, Debug, Default)]
pub struct KeysNeeded {
    /// Transports that are sealed: their events cannot leave without the keys.
    pub transports: u64,
    /// The fingerprints of the keys.
    pub fingerprints: BTreeSet<String>,
}

impl KeysNeeded {
    /// The keys that a store needs. No process may write to it meanwhile.
    pub async fn of(store: &Arc<dyn Store>) -> Result<Self, Error> {
        let (mut needed, mut after) = (Self::default(), None);
        loop {
            let page = store.scan(Kind::Transport, after, PAGE_ROWS_MAX).await?;
            let Some((last, _)) = page.last() else { return Ok(needed) };
            after = Some(*last);
            page.iter().for_each(|(_, row)| needed.add(&row.record));
        }
    }

    pub(super) fn add(&mut self, record: &Record) {
        let Record::Dispatch(dispatch::Record::Transport(transport)) = record else { return };
        let keys = sealing_keys(transport);
        self.transports += u64::from(!keys.is_empty());
        self.fingerprints.extend(keys);
    }
}
