//! Decides where events go and what is published; `acts` decides what happens to lanes, `letters` about dead letters.
//! Never computes a position: the store gives one when it appends. Never lets an earlier owner of a lane speak for it.
//! Called only from `decide`.

mod acts;
mod letters;

use std::sync::Arc;

pub(crate) use acts::{follow_lane, footprint_lane, on_lane};
pub(crate) use letters::{follow_letter, footprint_letter, on_letter};

use crate::{
    claim,
    command::{Decision, Members, Publish, PutRoute, Reply, Rows},
    decide::{fence_of, write},
    fence::{Fence, Phase, Receipt, Record, State, forgotten_at},
    key::{Kind, LaneId, RowKey},
    lane::{
        Append, Cancelled, DeadLetter, Driving, Entry, Fate, Lane, Original, Owner, Place, Route, Transport, published,
        spec, unplaced,
    },
    merge::Merge,
    row::{Ids, KindSpec},
    time::Millis,
};

/// What the table of kinds says of the rows of dispatch.
pub(crate) const KINDS: &[KindSpec] = &[
    KindSpec { backup_place: Some(5), ..spec(Kind::Route, ("transport", "transports"), Ids::FewRanges) },
    KindSpec {
        backup_place: Some(10),
        swept: true,
        ..spec(Kind::Cancelled, ("cancellation", "cancellations"), Ids::Ranges)
    },
];

fn lane_of(rows: &impl Rows, lane: LaneId) -> Option<&Arc<Lane>> {
    match &rows.row(&RowKey::lane(lane))?.record {
        Record::Lane(lane) => Some(lane),
        _ => None,
    }
}

fn route_of(rows: &impl Rows, key: RowKey) -> Option<&Arc<Route>> {
    match &rows.row(&key)?.record {
        Record::Route(route) => Some(route),
        _ => None,
    }
}

fn letter_of(rows: &impl Rows, lane: LaneId, seq: u64) -> Option<&Arc<DeadLetter>> {
    match &rows.row(&RowKey::dead_letter(lane, seq))?.record {
        Record::DeadLetter(letter) => Some(letter),
        _ => None,
    }
}

fn entry_of(rows: &impl Rows, lane: LaneId, seq: u64) -> Option<&Arc<Entry>> {
    match &rows.row(&RowKey::entry(lane, seq))?.record {
        Record::Entry(entry) => Some(entry),
        _ => None,
    }
}

fn tail_of(rows: &impl Rows, lane: LaneId) -> u64 {
    match rows.row(&RowKey::tail(lane)).map(|row| &row.record) {
        Some(Record::Tail(tail)) => tail.last,
        _ => 0,
    }
}

fn cancelled_by(rows: &impl Rows, lane: LaneId, seq: u64) -> Option<&str> {
    let marked = match rows.row(&RowKey::cancelled(lane, seq)).map(|row| &row.record) {
        Some(Record::Cancelled(cancelled)) => Some(cancelled.by.as_str()),
        _ => None,
    };
    marked.or_else(|| letter_of(rows, lane, seq)?.cancelled_by.as_deref())
}

pub(crate) fn route_key(route: &Route) -> RowKey {
    RowKey::route(&route.planner, &route.warehouse)
}

pub(crate) fn footprint_publish(publish: &Publish, add: &mut impl FnMut(RowKey)) {
    let target = &publish.claim.target;
    add(RowKey::fence(target.key));
    add(RowKey::route(&target.tenant, &publish.entry.warehouse));
    if let Some(original) = &publish.cancels {
        add(RowKey::fence(original.key));
    }
}

pub(crate) fn follow_publish(publish: &Publish, rows: &impl Rows, add: &mut impl FnMut(RowKey)) {
    let target = &publish.claim.target;
    if let Some(route) = route_of(rows, RowKey::route(&target.tenant, &publish.entry.warehouse)) {
        follow_append(route, &publish.members, rows, add);
    }
    let original = publish.cancels.as_ref().and_then(|original| fence_of(rows, RowKey::fence(original.key)));
    if let Some((lane, seq)) = original.and_then(published) {
        add(RowKey::lane(lane));
        add(RowKey::dead_letter(lane, seq));
        add(RowKey::cancelled(lane, seq));
        if let Some(letter) = letter_of(rows, lane, seq) {
            add(RowKey::lane(letter.place.lane(&letter.planner)));
        }
    }
}

/// See [`crate::Command::Publish`].
pub(crate) fn publish(publish: &Publish, rows: &impl Rows, now: Millis) -> Decision {
    let target = &publish.claim.target;
    let mut decision = claim::claim(&publish.claim, rows, now);
    let Reply::New(_) = decision.reply else { return decision };
    let key = RowKey::route(&target.tenant, &publish.entry.warehouse);
    let Some(route) = route_of(rows, key) else { return Decision::reply(Reply::NoRoute) };
    let original = match &publish.cancels {
        None => None,
        Some(original) => match cancel(publish, original.key, rows, now, &mut decision) {
            None => return Decision::reply(Reply::UnknownOriginal),
            told => told,
        },
    };
    let (lane, name) = (route.lane(), route.place().name(&target.tenant));
    let entry = Entry { published: now, ..Entry::clone(&publish.entry) };
    append(route, entry.into(), RowKey::fence(target.key), &publish.members, rows, &mut decision);
    // The claim is sealed in the commit that makes it: the effect is in our own store.
    let mut expires = now;
    for put in decision.writes.iter_mut().filter_map(|write| write.put.as_mut()) {
        if let Record::Fence(fence) = put {
            let fence = Arc::make_mut(fence);
            expires = forgotten_at(fence.token, now, target.scope.retain_ms);
            let effect_id = publish.entry.correlation_id.clone();
            let receipt = Receipt { effect_id, body: unplaced(lane, &name, original) };
            fence.state = State::Sealed { receipt, at: now, expires };
        }
    }
    decision.reply = Reply::Published { lane: name, seq: 0, original, expires };
    decision
}

fn follow_append(route: &Route, members: &Members, rows: &impl Rows, add: &mut impl FnMut(RowKey)) {
    let lane = route.lane();
    add(RowKey::lane(lane));
    let mut owner = lane_of(rows, lane).map_or_else(Owner::default, |lane| lane.owner.clone());
    if let Driver::Other(node) = driver(route, &mut owner, members) {
        add(RowKey::poke(&node, lane));
    }
}

// An entry for the end of a route's lane. The route must still be the one when it is appended.
fn append(
    route: &Arc<Route>,
    entry: Arc<Entry>,
    position_row: RowKey,
    members: &Members,
    rows: &impl Rows,
    decision: &mut Decision,
) {
    let (key, lane) = (route_key(route), route.lane());
    decision.also.held.push((key, rows.row(&key).map(|row| row.revision)));
    let known = lane_of(rows, lane);
    // A lane that comes into being after a restore may have been before, and its pollers still hold positions: no two lives of it
    // share an epoch.
    let begin = || Lane::begun(route.planner.clone(), route.place(), entry.published);
    let mut own = known.map_or_else(begin, |lane| Lane::clone(lane));
    let driven = match driver(route, &mut own.owner, members) {
        Driver::Me => Some(Driving { epoch: own.owner.epoch, route: route.clone() }),
        Driver::Other(node) => {
            poke(&node, lane, rows, decision);
            None
        }
        Driver::Nobody => None,
    };
    if known.is_none_or(|known| **known != own) {
        decision.writes.push(write(rows, RowKey::lane(lane), Some(Record::Lane(own.into()))));
    }
    decision.also.merges.push(Merge::Append(Append { lane, entry, position_row, driven }));
}

// Whoever drives a lane must look at it: this process once it is durable, another node when it hears the word.
fn tell(node: &str, lane: LaneId, rows: &impl Rows, decision: &mut Decision) {
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
        None => decision.writes.push(write(rows, poke, Some(Record::Poke))),
    }
}

enum Driver {
    Me,
    Other(String),
    Nobody,
}

// Who drives a lane that has something new. A new lane is driven by who is there first. One whose owner is gone is not
// taken here: who publishes may not have heard of a node that has just come; the word is overheard by who takes it over.
fn driver(route: &Route, owner: &mut Owner, members: &Members) -> Driver {
    if route.transport == Transport::Poll {
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

// What became of an event that is cancelled; none where it was never published. Marks it, so that nobody sends it again.
fn cancel(
    publish: &Publish,
    original: crate::FenceKey,
    rows: &impl Rows,
    now: Millis,
    decision: &mut Decision,
) -> Option<Original> {
    let fence = fence_of(rows, RowKey::fence(original))?;
    if fence.phase(now) == Phase::Expired {
        return Some(Original::Unknown);
    }
    let (lane, seq) = published(fence)?;
    // Another warehouse's executor would never hear of it.
    if fence.source.as_ref().is_some_and(|source| source.id != publish.entry.warehouse) {
        return None;
    }
    let by = &publish.entry.correlation_id;
    let mark = RowKey::cancelled(lane, seq);
    if rows.row(&mark).is_none() {
        let expires = now.plus(publish.claim.target.scope.retain_ms);
        decision.writes.push(write(rows, mark, Some(Record::Cancelled(Cancelled { by: by.clone(), expires }))));
    }
    let letter = letter_of(rows, lane, seq);
    if let Some(letter) = letter.filter(|letter| letter.cancelled_by.is_none()) {
        let letter = DeadLetter { cancelled_by: Some(by.clone()), ..DeadLetter::clone(letter) };
        let put = Record::DeadLetter(letter.into());
        decision.writes.push(write(rows, RowKey::dead_letter(lane, seq), Some(put)));
    }
    let Some(own) = lane_of(rows, lane) else { return Some(Original::Undelivered) };
    let settled = |place: &Place| lane_of(rows, place.lane(&own.planner)).map_or(0, |lane| lane.settled);
    let told = match letter.map(|letter| (&letter.fate, &letter.place)) {
        Some((Fate::Waiting | Fate::Discarded { .. }, _)) => Original::Dead,
        // Its warehouse may have moved to another lane meanwhile.
        Some((Fate::Redriven { seq, .. }, place)) if *seq > settled(place) => Original::InFlight,
        Some((Fate::Redriven { .. }, _)) => Original::Delivered,
        None if seq <= own.settled => Original::Delivered,
        None => match own.place {
            Place::Executor(_) if publish.served.is_some_and(|served| served < seq) => Original::Undelivered,
            Place::Executor(_) => Original::InFlight,
            // Whether an attempt at the head is under way at this moment is nowhere written down: it may be.
            Place::Warehouse(_) if seq > own.settled + 1 => Original::Undelivered,
            Place::Warehouse(_) if sealed_at(fence).is_some_and(|at| came_after_pause(own, at)) => {
                Original::Undelivered
            }
            Place::Warehouse(_) => Original::InFlight,
        },
    };
    // That nobody has seen it is true only while its lane stands as it was read.
    if told == Original::Undelivered {
        let key = RowKey::lane(lane);
        decision.also.held.push((key, rows.row(&key).map(|row| row.revision)));
    }
    Some(told)
}

/// How long it may take until another node has heard of a pause.
const PAUSE_HEARD_MS: u64 = 1_000;

// What was published into a lane that stood still was never tried. What was there before may be on its way.
fn came_after_pause(lane: &Lane, published: Millis) -> bool {
    let heard_ms = if lane.owner.node.is_empty() { 0 } else { PAUSE_HEARD_MS };
    lane.paused.as_ref().is_some_and(|pause| published > pause.at.plus(heard_ms))
}

fn sealed_at(fence: &Fence) -> Option<Millis> {
    if let State::Sealed { at, .. } = fence.state { Some(at) } else { None }
}

pub(crate) fn follow_put_route(put: &PutRoute, rows: &impl Rows, add: &mut impl FnMut(RowKey)) {
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

// The lane that is left and the one that is entered, which may be the same.
fn lanes_of(put: &PutRoute, rows: &impl Rows) -> impl Iterator<Item = LaneId> {
    let entered = put.route.lane();
    let left = route_of(rows, route_key(&put.route)).map(|known| known.lane());
    left.filter(|left| *left != entered).into_iter().chain([entered])
}

/// See [`crate::Command::PutRoute`].
pub(crate) fn put_route(put: &PutRoute, rows: &impl Rows, now: Millis) -> Decision {
    let key = route_key(&put.route);
    let mut decision = Decision::reply(Reply::Routed { replay: false });
    if put.over.is_some() && route_of(rows, key) != put.over.as_ref() {
        return Decision::reply(Reply::Routed { replay: true });
    }
    if let Some(known) = route_of(rows, key) {
        let route = Route { at: known.at, ..put.route.clone() };
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
            // Nothing may be appended between this look at the lane and the change.
            let tail = RowKey::tail(lane);
            decision.also.held.push((tail, rows.row(&tail).map(|row| row.revision)));
        }
    }
    // Who drives a lane must not go on with the old address or the old secret. The lane that is entered may have been left
    // before, and its driver may remember that route.
    for id in lanes_of(put, rows) {
        if let Some(lane) = lane_of(rows, id) {
            tell(&lane.owner.node, id, rows, &mut decision);
        }
    }
    let at = put.over.as_ref().map_or(now, |over| over.at);
    let route = Route { at, ..put.route.clone() };
    decision.writes.push(write(rows, key, Some(Record::Route(route.into()))));
    decision
}
