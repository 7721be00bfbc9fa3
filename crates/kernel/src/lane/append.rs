//! Puts an entry at the end of a lane, and tells the node that drives the lane.
//! Never computes a position: the store gives one when it commits. Called by the capabilities whose lanes they are.

use std::sync::Arc;

use super::{Entry, Lane, LaneId, Members, Owner, Place, Record, lane_of};
use crate::{
    key::{RowKey, Tenant},
    law::Decision,
    merge::Merge,
    row::{self, CommitId, Rows, write},
};

/// An entry for the end of a lane. The store gives it its position when it commits.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Append {
    /// Which lane.
    pub lane: LaneId,
    /// What.
    pub entry: Arc<Entry>,
    /// A row that the same write set puts and no other ever writes. It tells the position once that is known, and proves that the
    /// set was applied. Each append of a set has one of its own.
    pub position_row: RowKey,
    /// How this process drives the lane; none where another does, or nobody.
    pub driven: Option<Driving>,
}

/// How a process drives a lane, as of an entry that it has appended.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Driving {
    /// Under which epoch.
    pub epoch: u64,
    /// The revision of the row that says how its receiver is reached. Another node may have changed it a moment ago.
    pub target: Option<CommitId>,
}

/// The end of a lane, for an entry that is to go there.
pub(crate) struct End<'a> {
    pub(crate) tenant: &'a Tenant,
    pub(crate) place: Place,
    /// The nodes that share the store.
    pub(crate) members: &'a Members,
    /// The row that says how its receiver is reached. It must still be as it was read when the entry is appended.
    pub(crate) target: RowKey,
}

impl End<'_> {
    fn lane(&self) -> LaneId {
        self.place.lane(self.tenant)
    }
}

pub(crate) fn follow_append(end: &End<'_>, rows: &impl Rows, add: &mut impl FnMut(RowKey)) {
    let lane = end.lane();
    add(RowKey::lane(lane));
    let mut owner = lane_of(rows, lane).map_or_else(Owner::default, |lane| lane.owner.clone());
    if let Driver::Other(node) = driver(&end.place, &mut owner, end.members) {
        add(RowKey::poke(&node, lane));
    }
}

/// Adds an entry to a decision. `position_row` is the row of the decision that tells its position once there is one.
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
    let begin = || Lane::begun(end.tenant.clone(), end.place.clone(), entry.published);
    let mut own = known.map_or_else(begin, |lane| Lane::clone(lane));
    let driven = match driver(&end.place, &mut own.owner, end.members) {
        Driver::Me => Some(Driving { epoch: own.owner.epoch, target }),
        Driver::Other(node) => {
            poke(&node, lane, rows, decision);
            None
        }
        Driver::Nobody => None,
    };
    if known.is_none_or(|known| **known != own) {
        decision.writes.push(write(rows, RowKey::lane(lane), Some(own.into())));
    }
    decision.also.merges.push(Merge::Append(Append { lane, entry, position_row, driven }));
}

// Whoever drives a lane must look at it: this process once it is durable, another node when it hears the word.
pub(crate) fn tell(node: &str, lane: LaneId, rows: &impl Rows, decision: &mut Decision) {
    decision.also.news.push(lane);
    poke(node, lane, rows, decision);
}

// A word to a node about a lane that it drives. One node alone needs none.
fn poke(node: &str, lane: LaneId, rows: &impl Rows, decision: &mut Decision) {
    let poke = RowKey::poke(node, lane);
    match rows.row(&poke) {
        _ if node.is_empty() => {}
        // It may be heard and forgotten at this moment: then it must be said again.
        Some(said) => decision.also.held.push((poke, Some(said.revision))),
        None => decision.writes.push(write(rows, poke, Some(row::Record::Lane(Record::Poke)))),
    }
}

enum Driver {
    Me,
    Other(String),
    Nobody,
}

// Who drives a lane that has something new. A new lane is driven by who is there first. One whose owner is gone is not
// taken here: who publishes may not have heard of a node that has just come; the word is overheard by who takes it over.
fn driver(place: &Place, owner: &mut Owner, members: &Members) -> Driver {
    if place.is_polled() {
        return Driver::Nobody;
    }
    // One process alone drives everything, also what came from a store that was shared.
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
    // Who publishes from within a transaction drives nothing. Where nobody is seen alive, the word waits for who is first.
    Driver::Other(members.alive.first().unwrap_or(&members.me).clone())
}

#[cfg(test)]
mod tests {
    use std::collections::HashMap;

    use bytes::Bytes;

    use super::*;
    use crate::{
        fence,
        lane::Purpose,
        law::Reply,
        row::{CommitId, Row},
        time::Millis,
    };

    const REPORTS: Purpose = Purpose { number: 200, word: "report", prefix: "report:", polled: false };

    struct Kept(HashMap<RowKey, Row>);

    impl Rows for Kept {
        fn row(&self, key: &RowKey) -> Option<&Row> {
            self.0.get(key)
        }
    }

    #[test]
    fn lane_of_any_purpose_is_driven_over_whatever_row_says_how_its_receiver_is_reached() {
        let (tenant, members) = (Tenant::new("acme"), Members::default());
        let place = Place { purpose: &REPORTS, id: "day".to_owned() };
        let target = RowKey::alias(&tenant, "where reports go");
        let end = End { tenant: &tenant, place: place.clone(), members: &members, target };
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
            assert_eq!((appended.lane, place.name(&tenant)), (place.lane(&tenant), "acme:report:day".to_owned()));
        }
    }
}
