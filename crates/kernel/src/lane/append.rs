//! Puts an entry at the end of a lane, and tells the node that drives the lane.
//! Never computes a position: the store gives one when it commits. Called by the capabilities whose lanes they are.

use std::sync::Arc;

use super::{Entry, Lane, LaneId, LanePurpose, Members, Owner, Record, lane_of};
use crate::{
    dispatch::WarehouseTransport,
    key::{RowKey, Tenant},
    law::Decision,
    merge::Merge,
    row::{self, Rows, write},
};

/// An entry for the end of a lane. The store gives it its position when it commits.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Append {
    pub lane: LaneId,
    pub entry: Arc<Entry>,
    /// A row that the same write set puts and no other ever writes. It holds the position once that is known, and
    /// proves that the set was applied. Each append of a set has one of its own.
    pub position_row: RowKey,
    /// How this process drives the lane; none if it does not.
    pub driven: Option<Driving>,
}

/// How a process drives a lane, as of an entry that it has appended.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Driving {
    pub epoch: u64,
    /// Over which route. Another node may have changed it a moment ago.
    pub transport: Arc<WarehouseTransport>,
}

/// The end of a lane, for an entry that is to go there.
pub(crate) struct End<'a> {
    pub(crate) tenant: &'a Tenant,
    pub(crate) purpose: LanePurpose,
    /// The nodes that share the store.
    pub(crate) members: &'a Members,
    /// How its receiver is reached, for the driver.
    pub(crate) transport: &'a Arc<WarehouseTransport>,
}

impl End<'_> {
    fn lane(&self) -> LaneId {
        self.purpose.lane(self.tenant)
    }
}

pub(crate) fn follow_append(end: &End<'_>, rows: &impl Rows, add: &mut impl FnMut(RowKey)) {
    let lane = end.lane();
    add(RowKey::lane(lane));
    let mut owner = lane_of(rows, lane).map_or_else(Owner::default, |lane| lane.owner.clone());
    if let Driver::Other(node) = driver(&end.purpose, &mut owner, end.members) {
        add(RowKey::lane_notice(&node, lane));
    }
}

/// Adds an entry to a decision. `position_row` is the row of the decision that holds its position once there is one.
pub(crate) fn append(
    end: &End<'_>,
    entry: Arc<Entry>,
    position_row: RowKey,
    rows: &impl Rows,
    decision: &mut Decision,
) {
    let lane = end.lane();
    let known = lane_of(rows, lane);
    // A lane that comes into being after a restore may have been before, and its pollers still hold positions: no two lives of it
    // share an epoch.
    let begin = || Lane::begun(end.tenant.clone(), end.purpose.clone(), entry.published);
    let mut own = known.map_or_else(begin, |lane| Lane::clone(lane));
    let driven = match driver(&end.purpose, &mut own.owner, end.members) {
        Driver::Me => Some(Driving { epoch: own.owner.epoch, transport: end.transport.clone() }),
        Driver::Other(node) => {
            leave_notice(&node, lane, rows, decision);
            None
        }
        Driver::Nobody => None,
    };
    if known.is_none_or(|known| **known != own) {
        decision.writes.push(write(rows, RowKey::lane(lane), Some(own.into())));
    }
    decision.also.merges.push(Merge::Append(Append { lane, entry, position_row, driven }));
}

// The driver of the lane must look at it: this process once the write is durable, another node when it reads the
// notice.
pub(crate) fn tell(node: &str, lane: LaneId, rows: &impl Rows, decision: &mut Decision) {
    decision.also.lanes_changed.push(lane);
    leave_notice(node, lane, rows, decision);
}

// A word to a node about a lane that it drives. One node alone needs none.
fn leave_notice(node: &str, lane: LaneId, rows: &impl Rows, decision: &mut Decision) {
    let notice = RowKey::lane_notice(node, lane);
    match rows.row(&notice) {
        _ if node.is_empty() => {}
        // The node may delete the notice at this moment: then it must be written again.
        Some(said) => decision.also.held.push((notice, Some(said.revision))),
        None => decision.writes.push(write(rows, notice, Some(row::Record::Lane(Record::LaneNotice)))),
    }
}

enum Driver {
    Me,
    Other(String),
    Nobody,
}

// The node that drives a lane which has something new. A new lane is driven by the first node that publishes into it. A
// lane whose owner is gone is not taken over here: the publishing node may not know yet that the owner has just come;
// the notice is read by the node that takes the lane over.
fn driver(purpose: &LanePurpose, owner: &mut Owner, members: &Members) -> Driver {
    if purpose.is_polled() {
        return Driver::Nobody;
    }
    // A single process drives everything, also lanes from a store that was shared.
    if members.me.is_empty() || owner.node == members.me {
        return Driver::Me;
    }
    if !owner.node.is_empty() {
        return Driver::Other(owner.node.clone());
    }
    if members.alive.contains(&members.me) {
        *owner = Owner { node: members.me.clone(), epoch: owner.epoch + 1 };
        return Driver::Me;
    }
    // A publication inside a transaction makes no node the driver. While no node is seen alive, the notice waits for
    // the first.
    Driver::Other(members.alive.first().unwrap_or(&members.me).clone())
}
