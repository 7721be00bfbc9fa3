//! The address of a lane and of its rows.
//! Never knows the use of a lane: its capability names it. Those of one tenant lie side by side.

use std::fmt;

use crate::key::{Kind, RowKey, Tenant, digest};

/// An ordered log of one planner. It begins with a digest of the planner, so that all lanes of one lie side by side.
#[derive(Clone, Copy, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub struct LaneId(pub [u8; 24]);

impl LaneId {
    /// The lane of a warehouse, for transports that push.
    pub fn warehouse(planner: &Tenant, warehouse: &str) -> Self {
        Self::of(planner, &["warehouse", warehouse])
    }

    /// The lane that an executor polls.
    pub fn executor(planner: &Tenant, executor: &str) -> Self {
        Self::of(planner, &["executor", executor])
    }

    /// The prefix that all lanes of a planner share.
    pub fn prefix(planner: &Tenant) -> [u8; 8] {
        let mut prefix = [0; 8];
        prefix.copy_from_slice(&digest(&["planner", planner.as_str()])[..8]);
        prefix
    }

    /// Whether it is a lane of this planner.
    pub fn is_of(self, planner: &Tenant) -> bool {
        self.0.starts_with(&Self::prefix(planner))
    }

    /// The lane behind its digits.
    pub fn from_hex(text: &str) -> Option<Self> {
        let mut lane = [0; 24];
        let digits = text.as_bytes();
        if digits.len() != 48 || digits.iter().any(|digit| !matches!(digit, b'0'..=b'9' | b'a'..=b'f')) {
            return None;
        }
        for (byte, pair) in lane.iter_mut().zip(digits.chunks_exact(2)) {
            *byte = u8::from_str_radix(std::str::from_utf8(pair).ok()?, 16).ok()?;
        }
        Some(Self(lane))
    }

    pub(crate) fn of(planner: &Tenant, parts: &[&str]) -> Self {
        let mut lane = [0; 24];
        lane[..8].copy_from_slice(&Self::prefix(planner));
        let mut all = vec![planner.as_str()];
        all.extend_from_slice(parts);
        lane[8..].copy_from_slice(&digest(&all)[..16]);
        Self(lane)
    }

    pub(crate) fn at(self, seq: u64) -> [u8; 32] {
        let mut id = [0; 32];
        id[..24].copy_from_slice(&self.0);
        // Big-endian, so that byte order is the lane's order.
        id[24..].copy_from_slice(&seq.to_be_bytes());
        id
    }
}

impl fmt::Display for LaneId {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        self.0.iter().try_for_each(|byte| write!(f, "{byte:02x}"))
    }
}

impl fmt::Debug for LaneId {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{self}")
    }
}

impl RowKey {
    /// How far a lane has come.
    pub fn lane(lane: LaneId) -> Self {
        Self { kind: Kind::Lane, id: lane.at(0) }
    }

    /// The last position of a lane.
    pub fn tail(lane: LaneId) -> Self {
        Self { kind: Kind::Tail, id: lane.at(0) }
    }

    /// The event at a position of a lane. Those of a lane lie side by side, in order.
    pub fn entry(lane: LaneId, seq: u64) -> Self {
        Self { kind: Kind::Entry, id: lane.at(seq) }
    }

    /// The event that left its lane at this position.
    pub fn dead_letter(lane: LaneId, seq: u64) -> Self {
        Self { kind: Kind::DeadLetter, id: lane.at(seq) }
    }

    /// Whether the event at this position was cancelled.
    pub fn cancelled(lane: LaneId, seq: u64) -> Self {
        Self { kind: Kind::Cancelled, id: lane.at(seq) }
    }

    /// A word to a node about a lane. All that are meant for one node lie side by side.
    pub fn lane_notice(node: &str, lane: LaneId) -> Self {
        let mut id = [0; 32];
        id[..8].copy_from_slice(&Self::lane_notices_to(node));
        id[8..].copy_from_slice(&lane.0);
        Self { kind: Kind::LaneNotice, id }
    }

    /// The prefix of the ids of all notices to a node.
    pub fn lane_notices_to(node: &str) -> [u8; 8] {
        let mut prefix = [0; 8];
        prefix.copy_from_slice(&digest(&[node])[..8]);
        prefix
    }

    /// The lane that a row of a lane belongs to, and the position, where the row is about one.
    pub fn place(&self) -> (LaneId, u64) {
        let (mut lane, mut seq) = ([0; 24], [0; 8]);
        lane.copy_from_slice(&self.id[..24]);
        seq.copy_from_slice(&self.id[24..]);
        (LaneId(lane), u64::from_be_bytes(seq))
    }
}
