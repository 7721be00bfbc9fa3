//! Decides whether a warehouse's events may move to another transport.
//! Never lets a warehouse leave a lane with unsettled events of that warehouse. Called only by `dispatch`.

use super::{PutTransport, Reply, WarehouseTransport, transport_key, transport_of};
use crate::{
    dispatch,
    key::RowKey,
    lane::{LaneId, lane_of, tail_of, tell},
    law::Decision,
    row::{Record, Rows, write},
    time::Millis,
};

pub(crate) fn follow(put: &PutTransport, rows: &impl Rows, add: &mut impl FnMut(RowKey)) {
    if let Some(known) = transport_of(rows, transport_key(&put.transport)) {
        add(RowKey::tail(known.lane()));
    }
    for id in lanes_of(put, rows) {
        add(RowKey::lane(id));
        if let Some(lane) = lane_of(rows, id) {
            add(RowKey::lane_notice(&lane.owner.node, id));
        }
    }
}

// The lane that the warehouse leaves and the one that it enters; they may be the same.
fn lanes_of(put: &PutTransport, rows: &impl Rows) -> impl Iterator<Item = LaneId> {
    let entered = put.transport.lane();
    let left = transport_of(rows, transport_key(&put.transport)).map(|known| known.lane());
    left.filter(|left| *left != entered).into_iter().chain([entered])
}

pub(crate) fn put_transport(put: &PutTransport, rows: &impl Rows, now: Millis) -> Decision {
    let key = transport_key(&put.transport);
    let mut decision = Decision::reply(Reply::TransportPut { replay: false });
    if put.over.is_some() && transport_of(rows, key) != put.over.as_ref() {
        return Decision::reply(Reply::TransportPut { replay: true });
    }
    if let Some(known) = transport_of(rows, key) {
        let transport = WarehouseTransport { at: known.at, ..put.transport.clone() };
        if **known == transport {
            return Decision::reply(Reply::TransportPut { replay: true });
        }
        let moves = known.transport.name() != transport.transport.name() || known.lane() != transport.lane();
        if moves {
            let lane = known.lane();
            let tail = tail_of(rows, lane);
            let settled = lane_of(rows, lane).map_or(0, |lane| lane.settled);
            let drained = settled >= tail || put.seen_to.is_some_and(|seen| seen >= tail);
            if !drained {
                return Decision::reply(Reply::NotDrained { lane, tail, settled });
            }
            // No event may be appended between this check of the lane and the change.
            let tail = RowKey::tail(lane);
            decision.also.held.push((tail, rows.row(&tail).map(|row| row.revision)));
        }
    }
    // The driver of a lane must not go on with the old address or secret. The entered lane may have been left before,
    // and its driver may still have that transport cached.
    for id in lanes_of(put, rows) {
        if let Some(lane) = lane_of(rows, id) {
            tell(&lane.owner.node, id, rows, &mut decision);
        }
    }
    let at = put.over.as_ref().map_or(now, |over| over.at);
    let transport = WarehouseTransport { at, ..put.transport.clone() };
    decision.writes.push(write(rows, key, Some(Record::Dispatch(dispatch::Record::Transport(transport.into())))));
    decision
}
