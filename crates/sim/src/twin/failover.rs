//! A shared store whose primary is replaced while its nodes live on: by a server that has every acknowledged write, and
//! perhaps unacknowledged ones; or, declared as such, by one that lacks the latest.
//! Never hides a loss: the recorder notes it. Called by `nodes`.

use std::{collections::BTreeMap, sync::Arc};

use fencepost_kernel::key::Kind;
use fencepost_store::{Memory, Store, codec};
use futures::FutureExt;

use super::{Twin, lock};
use crate::disk::Disk;

/// The current primary, and the state of the others.
#[derive(Default)]
pub(super) struct Primary {
    /// Grows with every failover.
    pub(super) term: u64,
    /// The earlier primary whose commit under way the next one has, although no client was told.
    pub(super) handed_on: Option<u64>,
    /// Rows of the earlier primary, which is still there and answers.
    pub(super) old: Option<Arc<Memory>>,
    /// Rows of a standby that lags behind, and the line since which it lacks something.
    lagging: Option<(usize, Arc<Memory>)>,
}

impl Twin {
    /// From here on a standby lags behind.
    pub(crate) fn standby_lags(&self) {
        let line = self.recorder.moment("store: a standby lags behind from here on").line;
        lock(&self.primary).lagging = Some((line, self.view()));
    }

    /// Another server becomes the primary; whether it has all that was acknowledged.
    pub(crate) fn fail_over(&self) -> bool {
        self.forget_heartbeats();
        let mut primary = lock(&self.primary);
        let before = primary.term;
        primary.term += 1;
        primary.old = Some(self.view());
        match primary.lagging.take() {
            Some((line, rows)) => {
                primary.handed_on = None;
                if let Some(disk) = lock(&self.disk).as_mut() {
                    *disk = image(&rows);
                }
                *lock(&self.seen) = rows;
                self.recorder.lost_since(line);
                false
            }
            None => {
                primary.handed_on = lock(&self.rng).bool().then_some(before);
                self.recorder.count("failover", format_args!("term {}", primary.term));
                true
            }
        }
    }

    pub(super) fn term(&self) -> u64 {
        lock(&self.primary).term
    }

    /// Rows that a node still reads which never redialled.
    pub(super) fn old_primary(&self) -> Option<Arc<Memory>> {
        lock(&self.primary).old.clone()
    }
}

fn image(rows: &Memory) -> Disk {
    let mut image = BTreeMap::new();
    for kind in Kind::ALL {
        let page = rows.scan(kind, None, usize::MAX).now_or_never().and_then(Result::ok).unwrap_or_default();
        image.extend(
            page.iter().map(|(key, row)| (*key, codec::encode(key, &row.record, row.revision, codec::VERSION))),
        );
    }
    let floor_ms = rows.time_floor().now_or_never().and_then(Result::ok).map_or(0, |floor| floor.0);
    Disk::holding(image, floor_ms)
}
