//! Decides whether a warehouse's events may move to another transport.
//! Never lets a warehouse leave a lane with unsettled events of that warehouse. Called only by `dispatch`.

use super::{PutRoute, Reply, WarehouseTransport, route_key, route_of};
use crate::{
    dispatch,
    key::RowKey,
    lane::{LaneId, lane_of, tail_of, tell},
    law::Decision,
    row::{Record, Rows, write},
    time::Millis,
};

pub(crate) fn follow(put: &PutRoute, rows: &impl Rows, add: &mut impl FnMut(RowKey)) {
    if let Some(known) = route_of(rows, route_key(&put.route)) {
        add(RowKey::tail(known.lane()));
    }
    for id in lanes_of(put, rows) {
        add(RowKey::lane(id));
        if let Some(lane) = lane_of(rows, id) {
            add(RowKey::poke(&lane.owner.node, id));
        }
    }
}

// The lane that the warehouse leaves and the one that it enters; they may be the same.
fn lanes_of(put: &PutRoute, rows: &impl Rows) -> impl Iterator<Item = LaneId> {
    let entered = put.route.lane();
    let left = route_of(rows, route_key(&put.route)).map(|known| known.lane());
    left.filter(|left| *left != entered).into_iter().chain([entered])
}

/// See [`Command::PutRoute`].
pub(crate) fn put_route(put: &PutRoute, rows: &impl Rows, now: Millis) -> Decision {
    let key = route_key(&put.route);
    let mut decision = Decision::reply(Reply::Routed { replay: false });
    if put.over.is_some() && route_of(rows, key) != put.over.as_ref() {
        return Decision::reply(Reply::Routed { replay: true });
    }
    if let Some(known) = route_of(rows, key) {
        let route = WarehouseTransport { at: known.at, ..put.route.clone() };
        if **known == route {
            return Decision::reply(Reply::Routed { replay: true });
        }
        let moves = known.transport.name() != route.transport.name() || known.lane() != route.lane();
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
    // and its driver may still have that route cached.
    for id in lanes_of(put, rows) {
        if let Some(lane) = lane_of(rows, id) {
            tell(&lane.owner.node, id, rows, &mut decision);
        }
    }
    let at = put.over.as_ref().map_or(now, |over| over.at);
    let route = WarehouseTransport { at, ..put.route.clone() };
    decision.writes.push(write(rows, key, Some(Record::Dispatch(dispatch::Record::Route(route.into())))));
    decision
}
