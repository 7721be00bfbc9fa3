//! Which nodes of a shared store drive lanes, and how long each has been silent: the store's table of nodes.
//! Never judges whether a node is dead: the nodes do. Kept by the twin, read and written through the doors.

use std::collections::BTreeMap;

use fencepost_kernel::lane::Members;

use super::{Twin, lock};
use crate::clock::Clocks;

/// A node that was silent for so long is dead.
const LEASE_MS: u64 = 6_000;

/// One node, as the store knows it.
pub(super) struct Life {
    drives: bool,
    serves: bool,
    /// When its last heartbeat arrived, in milliseconds since the world began.
    seen_ms: u64,
}

/// The nodes by name.
pub(super) type Lives = BTreeMap<String, Life>;

impl Twin {
    /// A heartbeat of a node arrives.
    pub(super) fn hears_from(&self, name: &str, clock: &Clocks) {
        let seen_ms = clock.elapsed_ms();
        let mut lives = lock(&self.lives);
        lives.entry(name.to_owned()).or_insert(Life { drives: false, serves: true, seen_ms }).seen_ms = seen_ms;
    }

    /// A node drives lanes from now on.
    pub(super) fn node_drives(&self, name: &str) {
        if let Some(life) = lock(&self.lives).get_mut(name) {
            life.drives = true;
        }
    }

    /// A node drives nothing any more, and says so.
    pub(super) fn node_leaves(&self, name: &str) {
        if let Some(life) = lock(&self.lives).get_mut(name) {
            life.serves = false;
        }
    }

    /// The nodes as a transaction of the user's sees them.
    pub(crate) fn members(&self, me: &str) -> Members {
        let drivers = self.clock.as_ref().map(|clock| self.drivers(clock)).unwrap_or_default();
        let alive = drivers.into_iter().filter(|(_, silent_ms)| *silent_ms < LEASE_MS).map(|(node, _)| node).collect();
        Members { me: me.to_owned(), alive }
    }

    /// The nodes that drive lanes, and for how long each has been silent.
    pub(super) fn drivers(&self, clock: &Clocks) -> Vec<(String, u64)> {
        let now_ms = clock.elapsed_ms();
        let lives = lock(&self.lives);
        let drivers = lives.iter().filter(|(_, life)| life.drives && life.serves);
        drivers.map(|(name, life)| (name.clone(), now_ms - life.seen_ms)).collect()
    }
}
