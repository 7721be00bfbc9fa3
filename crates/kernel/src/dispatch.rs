//! Decides what happens to events on their way: published, delivered, failed, dead, sent again.
//! Never computes a position: the store gives one when it appends. Never lets an earlier owner of a lane speak for it.
//! Called only from `decide`.

use std::sync::Arc;

use crate::{
    claim,
    command::{Act, Also, Decision, Failure, LetterVerdict, Members, OnLane, OnLetter, Publish, PutRoute, Reply, Rows},
    decide::{fence_of, write},
    fence::{Fence, Phase, Receipt, Record, State, forgotten_at},
    key::{LaneId, RowKey},
    lane::{
        AfterDead, Answer, Append, Cancelled, DeadLetter, Entry, Fate, Lane, Original, Owner, Pause, Place, Reason,
        Route, Transport, Trouble, published, unplaced,
    },
    retry,
    time::Millis,
};

/// How many entries one acknowledgement removes at most; the rest goes with later ones.
pub const TRIM_MAX: u64 = 1_000;

/// Who is named where a receiver's own answer stopped its lane.
const BY_RECEIVER: &str = "receiver";

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
    route: &Route,
    entry: Arc<Entry>,
    told_in: RowKey,
    members: &Members,
    rows: &impl Rows,
    decision: &mut Decision,
) {
    let (key, lane) = (route_key(route), route.lane());
    decision.also.held.push((key, rows.row(&key).map(|row| row.revision)));
    let known = lane_of(rows, lane);
    let mut own = known.map_or_else(|| Lane::new(route.planner.clone(), route.place()), |lane| Lane::clone(lane));
    let driven = match driver(route, &mut own.owner, members) {
        Driver::Me => Some(own.owner.epoch),
        Driver::Other(node) => {
            tell(&node, lane, rows, decision);
            None
        }
        Driver::Nobody => None,
    };
    if known.is_none_or(|known| **known != own) {
        decision.writes.push(write(rows, RowKey::lane(lane), Some(Record::Lane(own.into()))));
    }
    decision.also.append = Some(Append { lane, entry, told_in, driven });
}

// A word to a node about a lane that it drives. One node alone needs none.
fn tell(node: &str, lane: LaneId, rows: &impl Rows, decision: &mut Decision) {
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

// Who drives a lane that has something new. One whose owner is gone is taken by who is there.
fn driver(route: &Route, owner: &mut Owner, members: &Members) -> Driver {
    if route.transport == Transport::Poll {
        return Driver::Nobody;
    }
    let lives = |node: &String| members.alive.contains(node);
    if owner.node == members.me {
        return Driver::Me;
    }
    if lives(&owner.node) {
        return Driver::Other(owner.node.clone());
    }
    if lives(&members.me) {
        *owner = Owner { node: members.me.clone(), epoch: owner.epoch + 1 };
        return Driver::Me;
    }
    // Who publishes from within a transaction drives nothing.
    members.alive.first().map_or(Driver::Nobody, |node| Driver::Other(node.clone()))
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
    Some(match letter.map(|letter| (&letter.fate, &letter.place)) {
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
            Place::Warehouse(_) if came_after_pause(own, fence) => Original::Undelivered,
            Place::Warehouse(_) => Original::InFlight,
        },
    })
}

/// How long it may take until another node has heard of a pause.
const PAUSE_HEARD_MS: u64 = 1_000;

// What was published into a lane that stood still was never tried. What was there before may be on its way.
fn came_after_pause(lane: &Lane, fence: &Fence) -> bool {
    let heard_ms = if lane.owner.node.is_empty() { 0 } else { PAUSE_HEARD_MS };
    match (&lane.paused, &fence.state) {
        (Some(pause), State::Sealed { at, .. }) => *at > pause.at.plus(heard_ms),
        _ => false,
    }
}

pub(crate) fn follow_put_route(put: &PutRoute, rows: &impl Rows, add: &mut impl FnMut(RowKey)) {
    if let Some(known) = route_of(rows, route_key(&put.route)) {
        add(RowKey::lane(known.lane()));
        add(RowKey::tail(known.lane()));
    }
}

/// See [`crate::Command::PutRoute`].
pub(crate) fn put_route(put: &PutRoute, rows: &impl Rows, now: Millis) -> Decision {
    let key = route_key(&put.route);
    let mut decision = Decision::reply(Reply::Routed { replay: false });
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
    let route = Route { at: now, ..put.route.clone() };
    decision.writes.push(write(rows, key, Some(Record::Route(route.into()))));
    decision
}

pub(crate) fn footprint_lane(on: &OnLane, add: &mut impl FnMut(RowKey)) {
    add(RowKey::lane(on.lane));
    match &on.act {
        Act::Ack { epoch: None, .. } => add(RowKey::tail(on.lane)),
        Act::Fail { seq, .. } | Act::Skip { seq, .. } => {
            add(RowKey::entry(on.lane, *seq));
            add(RowKey::dead_letter(on.lane, *seq));
            add(RowKey::cancelled(on.lane, *seq));
        }
        _ => {}
    }
}

// What a person does must be heard by the node that drives the lane, whichever he asked.
fn by_person(act: &Act) -> bool {
    matches!(act, Act::Skip { .. } | Act::Pause { .. } | Act::Resume)
}

pub(crate) fn follow_lane(on: &OnLane, rows: &impl Rows, add: &mut impl FnMut(RowKey)) {
    if let Some(lane) = lane_of(rows, on.lane).filter(|_| by_person(&on.act)) {
        add(RowKey::poke(&lane.owner.node, on.lane));
    }
    if let Act::Fail { seq, .. } | Act::Skip { seq, .. } = on.act
        && let Some((lane, seq)) = entry_of(rows, on.lane, seq).and_then(|entry| entry.redrive_of)
    {
        add(RowKey::dead_letter(lane, seq));
        add(RowKey::cancelled(lane, seq));
    }
}

/// See [`crate::Command::Lane`].
pub(crate) fn on_lane(on: &OnLane, rows: &impl Rows, now: Millis) -> Decision {
    let Some(known) = lane_of(rows, on.lane) else { return Decision::reply(Reply::NoLane) };
    let mut lane = Lane::clone(known);
    let mut change = Change { id: on.lane, rows, now, also: Also::default(), died: None };
    let told = match &on.act {
        Act::Ack { upto, epoch } => change.ack(&mut lane, *upto, *epoch),
        Act::Fail { seq, epoch, began, failure, after_dead, chance } => {
            let failed = Failed { seq: *seq, began: *began, failure, after_dead: *after_dead, chance: *chance };
            if lane.owner.epoch == *epoch { change.fail(&mut lane, &failed) } else { Err(Reply::LaneLost) }
        }
        Act::Skip { seq, by } => change.skip(&mut lane, *seq, by),
        Act::Pause { by, why } => {
            lane.paused.get_or_insert_with(|| Pause { at: now, by: by.clone(), why: why.clone() });
            Ok(())
        }
        Act::Resume => {
            change.resume(&mut lane);
            Ok(())
        }
        Act::Take { node, after } => {
            if lane.owner.epoch == *after {
                lane.owner = Owner { node: node.clone(), epoch: after + 1 };
                Ok(())
            } else {
                Err(Reply::LaneLost)
            }
        }
    };
    if let Err(refusal) = told {
        return Decision::reply(refusal);
    }
    let Change { also, died, .. } = change;
    let replay = **known == lane && died.is_none();
    let lane = Arc::new(lane);
    let died = died.map(|(key, letter)| (write(rows, key, Some(Record::DeadLetter(letter.clone()))), letter));
    let (dead, died) = died.unzip();
    let reply = Reply::OnLane { lane: lane.clone(), replay, died };
    let mut decision = Decision { writes: dead.into_iter().collect(), also, reply };
    if !replay {
        if by_person(&on.act) {
            tell(&lane.owner.node, on.lane, rows, &mut decision);
        }
        decision.writes.push(write(rows, RowKey::lane(on.lane), Some(Record::Lane(lane))));
    }
    decision
}

// A change of a lane in the making.
struct Change<'r, R> {
    id: LaneId,
    rows: &'r R,
    now: Millis,
    also: Also,
    died: Option<(RowKey, Arc<DeadLetter>)>,
}

struct Failed<'f> {
    seq: u64,
    began: Millis,
    failure: &'f Failure,
    after_dead: AfterDead,
    chance: retry::Chance,
}

impl<R: Rows> Change<'_, R> {
    // INVARIANT lane-order: what is settled is settled in order, and only by who drives the lane or who polls it.
    fn ack(&mut self, lane: &mut Lane, upto: u64, epoch: Option<u64>) -> Result<(), Reply> {
        match epoch {
            Some(epoch) if lane.owner.epoch != epoch => return Err(Reply::LaneLost),
            // What a person has skipped meanwhile is not skipped over twice.
            Some(_) if upto <= lane.settled => return Ok(()),
            None if upto > tail_of(self.rows, self.id) => {
                return Err(Reply::Ahead { tail: tail_of(self.rows, self.id) });
            }
            _ => {}
        }
        if upto > lane.settled {
            lane.settled = upto;
            lane.trouble = None;
            lane.blocked = false;
        }
        self.trim(lane);
        Ok(())
    }

    // Entries that are settled leave the store, so many at a time.
    fn trim(&mut self, lane: &mut Lane) {
        let end = lane.settled.min(lane.trimmed + TRIM_MAX);
        self.also.drops.extend((lane.trimmed + 1..=end).map(|seq| RowKey::entry(self.id, seq)));
        lane.trimmed = end;
    }

    fn fail(&mut self, lane: &mut Lane, failed: &Failed<'_>) -> Result<(), Reply> {
        if failed.seq != lane.settled + 1 || lane.blocked {
            return Err(Reply::NotHead { settled: lane.settled });
        }
        // Its record was lost and is made again: one attempt counts once.
        if lane.trouble.as_ref().is_some_and(|trouble| trouble.last_at == failed.began) {
            return Ok(());
        }
        let first_at = lane.trouble.as_ref().map_or(failed.began, |trouble| trouble.first_at);
        let attempts = lane.trouble.as_ref().map_or(1, |trouble| trouble.attempts.saturating_add(1));
        let mut trouble =
            Trouble { attempts, first_at, last_at: failed.began, next_at: self.now, answer: Answer::default() };
        match failed.failure {
            Failure::Later { answer, wish_ms } => {
                trouble.answer = answer.clone();
                // The horizon stands still since a pause, although this attempt was still under way.
                let now = lane.paused.as_ref().map_or(self.now, |pause| pause.at.min(self.now));
                match retry::next(attempts, first_at, now, *wish_ms, failed.chance) {
                    Some(next_at) => lane.trouble = Some(Trouble { next_at, ..trouble }),
                    None => self.die(lane, failed.seq, Reason::Horizon, &trouble, failed.after_dead),
                }
            }
            Failure::Away(answer) => {
                trouble.answer = answer.clone();
                trouble.next_at = retry::away(attempts, self.now, failed.chance);
                // Nothing was tried since the attempt before: that time does not count against the event.
                let before = lane.trouble.as_ref().map_or(failed.began, |trouble| trouble.last_at);
                trouble.first_at = first_at.plus(failed.began.since(before));
                lane.trouble = Some(trouble);
            }
            Failure::Gone(answer) => {
                trouble.answer = answer.clone();
                lane.trouble = Some(trouble);
                let why = format!("the receiver answered {}", answer.status.unwrap_or(410));
                lane.paused.get_or_insert_with(|| Pause { at: self.now, by: BY_RECEIVER.to_owned(), why });
            }
            Failure::Never(answer, reason) => {
                trouble.answer = answer.clone();
                self.die(lane, failed.seq, *reason, &trouble, failed.after_dead);
            }
        }
        Ok(())
    }

    // INVARIANT one-end: an event leaves its lane once, acknowledged or dead.
    fn die(&mut self, lane: &mut Lane, seq: u64, reason: Reason, trouble: &Trouble, after: AfterDead) {
        let Some(entry) = entry_of(self.rows, self.id, seq) else { return };
        let (first_lane, first_seq) = entry.redrive_of.unwrap_or((self.id, seq));
        let blocks = after == AfterDead::Block && reason != Reason::Skipped;
        // What dies again was tried in its earlier life, too: the receiver may remember that, or have forgotten it.
        let before = letter_of(self.rows, first_lane, first_seq).filter(|letter| letter.attempts > 0);
        let letter = DeadLetter {
            planner: lane.planner.clone(),
            place: lane.place.clone(),
            entry: entry.clone(),
            reason,
            attempts: trouble.attempts.saturating_add(before.map_or(0, |letter| letter.attempts)),
            first_at: before.map_or(trouble.first_at, |letter| letter.first_at),
            at: self.now,
            answer: trouble.answer.clone(),
            cancelled_by: cancelled_by(self.rows, first_lane, first_seq).map(str::to_owned),
            fate: Fate::Waiting,
            blocks,
        };
        self.died = Some((RowKey::dead_letter(first_lane, first_seq), letter.into()));
        if blocks {
            lane.trouble = Some(trouble.clone());
            lane.blocked = true;
        } else {
            lane.settled = seq;
            lane.trouble = None;
            lane.blocked = false;
            self.trim(lane);
        }
    }

    fn skip(&mut self, lane: &mut Lane, seq: u64, by: &str) -> Result<(), Reply> {
        let skipped = letter_of(self.rows, self.id, seq).is_some_and(|letter| letter.reason == Reason::Skipped);
        if seq <= lane.settled && skipped {
            return Ok(());
        }
        if seq != lane.settled + 1 || entry_of(self.rows, self.id, seq).is_none() {
            return Err(Reply::NotHead { settled: lane.settled });
        }
        let nothing = Trouble {
            attempts: 0,
            first_at: self.now,
            last_at: self.now,
            next_at: self.now,
            answer: Answer::new(None, &format!("skipped by {by}")),
        };
        let trouble = lane.trouble.clone().unwrap_or(nothing);
        self.die(lane, seq, Reason::Skipped, &trouble, AfterDead::Continue);
        Ok(())
    }

    fn resume(&self, lane: &mut Lane) {
        if let Some(paused) = lane.paused.take() {
            lane.trouble = lane.trouble.as_ref().map(|trouble| retry::resumed(trouble, paused.at, self.now));
        }
    }
}

pub(crate) fn footprint_letter(on: &OnLetter, add: &mut impl FnMut(RowKey)) {
    add(RowKey::dead_letter(on.lane, on.seq));
    add(RowKey::cancelled(on.lane, on.seq));
}

pub(crate) fn follow_letter(on: &OnLetter, rows: &impl Rows, add: &mut impl FnMut(RowKey)) {
    let Some(letter) = letter_of(rows, on.lane, on.seq) else { return };
    let home = letter.place.lane(&letter.planner);
    add(RowKey::lane(home));
    if let Some(lane) = lane_of(rows, home) {
        add(RowKey::poke(&lane.owner.node, home));
    }
    let key = RowKey::route(&letter.planner, &letter.entry.warehouse);
    add(key);
    if let Some(route) = route_of(rows, key) {
        follow_append(route, &on.members, rows, add);
    }
}

/// See [`crate::Command::Letter`].
pub(crate) fn on_letter(on: &OnLetter, rows: &impl Rows, now: Millis) -> Decision {
    let Some(letter) = letter_of(rows, on.lane, on.seq) else { return Decision::reply(Reply::NoLetter) };
    let said = |replay| Decision::reply(if replay { again(letter) } else { Reply::LetterDecided(letter.clone()) });
    match (&letter.fate, &on.verdict) {
        (Fate::Waiting, _) => {}
        (Fate::Redriven { .. }, LetterVerdict::Redrive { .. })
        | (Fate::Discarded { .. }, LetterVerdict::Discard { .. }) => return said(true),
        _ => return said(false),
    }
    match &on.verdict {
        LetterVerdict::Redrive { force } => redrive(on, letter, force.as_deref(), rows, now),
        LetterVerdict::Discard { why } => {
            let fate = Fate::Discarded { at: now, by: on.by.clone(), why: why.clone() };
            let mut decision = decided(on, letter, fate, rows);
            free(letter, AfterBlock::Next, rows, &mut decision, now);
            decision
        }
    }
}

fn again(letter: &Arc<DeadLetter>) -> Reply {
    Reply::Letter { letter: letter.clone(), replay: true }
}

fn decided(on: &OnLetter, letter: &DeadLetter, fate: Fate, rows: &impl Rows) -> Decision {
    let letter = Arc::new(DeadLetter { fate, ..letter.clone() });
    let put = Record::DeadLetter(letter.clone());
    let writes = vec![write(rows, RowKey::dead_letter(on.lane, on.seq), Some(put))];
    Decision::new(writes, Reply::Letter { letter, replay: false })
}

fn redrive(on: &OnLetter, letter: &DeadLetter, force: Option<&str>, rows: &impl Rows, now: Millis) -> Decision {
    if let Some(by) = cancelled_by(rows, on.lane, on.seq) {
        return Decision::reply(Reply::LetterCancelled { by: by.to_owned() });
    }
    let key = RowKey::route(&letter.planner, &letter.entry.warehouse);
    let Some(route) = route_of(rows, key) else { return Decision::reply(Reply::NoRoute) };
    if letter.forgotten(route.receiver_retain_ms, now) && force.is_none() {
        return Decision::reply(Reply::PastRetention { receiver_retain_ms: route.receiver_retain_ms });
    }
    let why = force.map(str::to_owned);
    let fate = |seq| Fate::Redriven { at: now, by: on.by.clone(), why: why.clone(), seq };
    // Where it died last: a letter keeps the address of its first death.
    let home = lane_of(rows, letter.place.lane(&letter.planner));
    if let Some(lane) = home.filter(|lane| letter.blocks && lane.blocked) {
        // Its lane waited for it: it goes first, in order, at its old position.
        let mut decision = decided(on, letter, fate(lane.settled + 1), rows);
        free(letter, AfterBlock::Head, rows, &mut decision, now);
        return decision;
    }
    let moved = DeadLetter { place: route.place(), ..letter.clone() };
    let mut decision = decided(on, &moved, fate(0), rows);
    let entry = Entry { redrive_of: Some((on.lane, on.seq)), ..Entry::clone(&letter.entry) };
    let told_in = RowKey::dead_letter(on.lane, on.seq);
    append(route, entry.into(), told_in, &on.members, rows, &mut decision);
    decision
}

enum AfterBlock {
    /// The dead head is tried again.
    Head,
    /// The lane goes on behind it.
    Next,
}

// A lane that waited for a decision about this letter goes on.
fn free(letter: &DeadLetter, after: AfterBlock, rows: &impl Rows, decision: &mut Decision, now: Millis) {
    let id = letter.place.lane(&letter.planner);
    let Some(lane) = lane_of(rows, id).filter(|lane| letter.blocks && lane.blocked) else { return };
    let mut lane = Lane::clone(lane);
    lane.blocked = false;
    lane.trouble = None;
    if let AfterBlock::Next = after {
        lane.settled += 1;
        let mut change = Change { id, rows, now, also: Also::default(), died: None };
        change.trim(&mut lane);
        decision.also.drops.extend(change.also.drops);
    }
    tell(&lane.owner.node, id, rows, decision);
    decision.writes.push(write(rows, RowKey::lane(id), Some(Record::Lane(lane.into()))));
}
