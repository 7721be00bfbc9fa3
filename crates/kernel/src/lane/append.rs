//! Puts an entry at the end of a lane, and tells the node that drives the lane.
//! Never computes a position: the store gives one when it commits. Called by the capabilities whose lanes they are.

use std::sync::Arc;

use super::{Entry, Lane, LaneId, LanePurpose, Members, Owner, Record, lane_of};
use crate::{
    key::{RowKey, Tenant},
    law::Decision,
    merge::Merge,
    row::{self, CommitId, Rows, write},
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
    /// The revision of the row that says how the receiver is reached. Another node may have changed it a moment ago.
    pub target: Option<CommitId>,
}

/// The end of a lane, for an entry that is to go there.
pub(crate) struct End<'a> {
    pub(crate) tenant: &'a Tenant,
    pub(crate) purpose: LanePurpose,
    /// The nodes that share the store.
    pub(crate) members: &'a Members,
    /// The row that says how its receiver is reached. It must still be as it was read when the entry is appended.
    pub(crate) target: RowKey,
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
    let target = rows.row(&end.target).map(|row| row.revision);
    decision.also.held.push((end.target, target));
    let known = lane_of(rows, lane);
    // A lane that comes into being after a restore may have been before, and its pollers still hold positions: no two lives of it
    // share an epoch.
    let begin = || Lane::begun(end.tenant.clone(), end.purpose.clone(), entry.published);
    let mut own = known.map_or_else(begin, |lane| Lane::clone(lane));
    let driven = match driver(&end.purpose, &mut own.owner, end.members) {
        Driver::Me => Some(Driving { epoch: own.owner.epoch, target }),
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

#[cfg(test)]
mod tests {
    use std::collections::BTreeMap;

    use bytes::Bytes;

    use super::*;
    use crate::{
        fence,
        lane::LaneKind,
        law::Reply,
        row::{CommitId, Row},
        time::Millis,
    };

    const REPORTS: LaneKind = LaneKind { number: 200, word: "report", prefix: "report:", polled: false };

    struct Kept(BTreeMap<RowKey, Row>);

    impl Rows for Kept {
        fn row(&self, key: &RowKey) -> Option<&Row> {
            self.0.get(key)
        }
    }

    #[test]
    fn lane_of_any_kind_is_driven_over_whatever_row_says_how_its_receiver_is_reached() {
        let (tenant, members) = (Tenant::new("acme"), Members::default());
        let purpose = LanePurpose { kind: &REPORTS, id: "day".to_owned() };
        let target = RowKey::alias(&tenant, "where reports go");
        let end = End { tenant: &tenant, purpose: purpose.clone(), members: &members, target };
        let (correlation_id, kind) = ("r-1".to_owned(), "DAY_CLOSED".to_owned());
        let (body, published) = (Bytes::from_static(b"{}"), Millis(5));
        let entry = Entry { correlation_id, kind, subject: String::new(), body, published, redrive_of: None };
        let position_row = RowKey::fence(fence::FenceKey([1; 32]));
        for target_at in [None, Some(CommitId(7))] {
            let row = target_at.map(|revision| {
                let record = Record::Tail(super::super::Tail { last: 0 }).into();
                (target, Row { record, revision })
            });
            let rows = Kept(row.into_iter().collect());
            let mut decision = Decision::reply(Reply::Done);
            append(&end, entry.clone().into(), position_row, &rows, &mut decision);
            assert_eq!(decision.also.held, [(target, target_at)]);
            let [Merge::Append(appended)] = &decision.also.merges[..] else { panic!("{decision:?}") };
            assert_eq!(appended.driven, Some(Driving { epoch: 5, target: target_at }));
            assert_eq!((appended.lane, purpose.name(&tenant)), (purpose.lane(&tenant), "acme:report:day".to_owned()));
        }
    }
}
