//! Addresses of rows: the kind of a row, and which one of its kind. A capability adds how its own are made.
//! Never joins texts by plain concatenation: every component carries its length, so no value can spill into its neighbour.

use std::{fmt, sync::Arc};

use sha2::{Digest, Sha256};

pub(crate) const VERSION_TAG: &[u8] = b"fencepost/1";

/// Whose key it is. Taken from a credential, never from a body alone.
#[derive(Clone, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub struct Tenant(Arc<str>);

impl Tenant {
    /// Names a tenant.
    pub fn new(name: impl Into<Arc<str>>) -> Self {
        Self(name.into())
    }

    /// The name as given.
    pub fn as_str(&self) -> &str {
        &self.0
    }
}

impl fmt::Debug for Tenant {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        fmt::Debug::fmt(&self.0, f)
    }
}

impl fmt::Display for Tenant {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.0)
    }
}

/// The kind of a row, the first part of its address. The table of [`crate::row`] describes each.
#[derive(Clone, Copy, PartialEq, Eq, Hash, PartialOrd, Ord, Debug)]
#[repr(u8)]
pub enum Kind {
    /// A fence under its key.
    Fence = 1,
    /// The last sealed version of a source.
    VersionHead = 2,
    /// The last deliberate repetition of an effect.
    AgainHead = 3,
    /// A name that stands for a sealed fence.
    Alias = 4,
    /// Approximate counts of what was only read.
    Trace = 5,
    /// Where the events of a warehouse go.
    Transport = 6,
    /// How far a lane has come.
    Lane = 7,
    /// The last position of a lane; only an append moves it.
    Tail = 8,
    /// An event under its position in a lane.
    Entry = 9,
    /// An event that left its lane undelivered.
    DeadLetter = 10,
    /// That an event was cancelled.
    Cancelled = 11,
    /// A word from one node to another that a lane of its has something new.
    LaneNotice = 12,
    /// A figure that additions move.
    Counter = 13,
    /// An act of an operator.
    Audit = 14,
    /// An item of a partner, with its present version.
    Item = 15,
    /// A version of an item that another has replaced.
    ItemVersion = 16,
    /// An item in quarantine because something that it refers to is missing.
    Quarantine = 17,
    /// An item in quarantine waits for another one.
    Waiting = 18,
    /// An item has arrived that others wait for.
    Arrival = 19,
    /// A list of items that is decided in steps.
    Job = 20,
    /// Items of a job as they were uploaded.
    JobChunk = 21,
    /// The outcomes of items of a job.
    JobResults = 22,
}

/// The address of one row in a store.
#[derive(Clone, Copy, PartialEq, Eq, Hash, PartialOrd, Ord, Debug)]
pub struct RowKey {
    pub kind: Kind,
    pub id: [u8; 32],
}

pub(crate) fn digest(parts: &[&str]) -> [u8; 32] {
    let mut hash = Sha256::new();
    hash.update(VERSION_TAG);
    for part in parts {
        component(&mut hash, part);
    }
    hash.finalize().into()
}

pub(crate) fn component(hash: &mut Sha256, text: &str) {
    hash.update((text.len() as u64).to_be_bytes());
    hash.update(text.as_bytes());
}
