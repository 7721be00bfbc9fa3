//! Acts on a lane: acknowledge, fail, skip, pause, resume, take over.
//! Never settles out of order, and never lets an earlier owner of a lane speak for it. Called only from `decide`.

use std::sync::Arc;

use super::{
    Act, AfterDead, AttemptFailure, Command, DeadLetter, DeadLetterReason, Fate, Lane, LaneId, OnLane, Owner, Pause,
    ReceiverAnswer, Record, Reply, Trouble, came_after_pause, cancelled_by, entry_of, lane_of, letter_of, retry,
    tail_of, tell,
};
use crate::{
    audit::Subject,
    key::RowKey,
    law::{self, Also, Decision},
    row::{self, Rows, write},
    time::Millis,
};

/// How many entries one acknowledgement removes at most; the rest goes with later ones.
const TRIM_MAX: u64 = 1_000;

/// The rows a command looks at before anything is known.
pub(crate) fn footprint(command: &Command, add: &mut impl FnMut(RowKey)) {
    let Command::Act(on) = command else { return };
    add(RowKey::lane(on.lane));
    match &on.act {
        Act::Ack { epoch: None, .. } => add(RowKey::tail(on.lane)),
        Act::Fail { seq, .. } | Act::Skip { seq, .. } => {
            add(RowKey::entry(on.lane, *seq));
            add(RowKey::dead_letter(on.lane, *seq));
            add(RowKey::cancelled(on.lane, *seq));
        }
        Act::Ack { .. } | Act::Pause { .. } | Act::Resume | Act::Tell | Act::Take { .. } => {}
    }
}

// The node that drives the lane must hear of a person's act, whichever node was asked.
fn by_person(act: &Act) -> bool {
    matches!(act, Act::Skip { .. } | Act::Pause { .. } | Act::Resume | Act::Tell)
}

/// The rows that only loaded ones can name.
pub(crate) fn follow(command: &Command, rows: &impl Rows, add: &mut impl FnMut(RowKey)) {
    let Command::Act(on) = command else { return };
    if let Some(lane) = lane_of(rows, on.lane).filter(|_| by_person(&on.act)) {
        add(RowKey::lane_notice(&lane.owner.node, on.lane));
    }
    if let Act::Fail { seq, .. } | Act::Skip { seq, .. } = on.act
        && let Some((lane, seq)) = entry_of(rows, on.lane, seq).and_then(|entry| entry.redrive_of)
    {
        add(RowKey::dead_letter(lane, seq));
        add(RowKey::cancelled(lane, seq));
    }
}

pub(crate) fn decide(command: &Command, rows: &impl Rows, now: Millis) -> Decision {
    match command {
        Command::Act(on) => on_lane(on, rows, now),
        Command::DropNotices(notices) => {
            let also = Also { drops: notices.clone(), ..Also::default() };
            Decision { writes: Vec::new(), also, reply: law::Reply::Done }
        }
    }
}

/// The thing that a command is about, for the audit: the name of the lane, with the position that is skipped.
pub(crate) fn subject(command: &Command, rows: &impl Rows) -> Subject {
    let Command::Act(on) = command else { return Subject::default() };
    let lane = lane_of(rows, on.lane);
    let name = lane.map_or_else(|| on.lane.to_string(), |lane| lane.name());
    let (on, why) = match &on.act {
        Act::Skip { seq, .. } => (format!("{name}/{seq}"), None),
        Act::Pause { why, .. } => (name, Some(why.clone())),
        Act::Ack { .. } | Act::Fail { .. } | Act::Resume | Act::Tell | Act::Take { .. } => (name, None),
    };
    Subject { tenant: lane.map(|lane| lane.tenant.clone()), on, why }
}

fn on_lane(on: &OnLane, rows: &impl Rows, now: Millis) -> Decision {
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
        Act::Tell => Ok(()),
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
    let died = died
        .map(|(key, letter)| (write(rows, key, Some(row::Record::Lane(Record::DeadLetter(letter.clone())))), letter));
    let (dead, died) = died.unzip();
    let reply = Reply::OnLane { lane: lane.clone(), replay, died };
    let mut decision = Decision { writes: dead.into_iter().collect(), also, reply: reply.into() };
    if by_person(&on.act) && (!replay || matches!(on.act, Act::Tell)) {
        tell(&lane.owner.node, on.lane, rows, &mut decision);
    }
    if !replay {
        decision.writes.push(write(rows, RowKey::lane(on.lane), Some(row::Record::Lane(Record::Lane(lane)))));
    }
    decision
}

/// Entries that are settled leave the store, so many at a time.
pub(crate) fn trim(id: LaneId, lane: &mut Lane, also: &mut Also) {
    let end = lane.settled.min(lane.trimmed + TRIM_MAX);
    also.drops.extend((lane.trimmed + 1..=end).map(|seq| RowKey::entry(id, seq)));
    lane.trimmed = end;
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
    failure: &'f AttemptFailure,
    after_dead: AfterDead,
    chance: retry::Chance,
}

impl<R: Rows> Change<'_, R> {
    // INVARIANT lane-order: events settle in order, and only by the lane's driver or its poller.
    fn ack(&mut self, lane: &mut Lane, upto: u64, epoch: Option<u64>) -> Result<(), Reply> {
        match epoch {
            Some(epoch) if lane.owner.epoch != epoch => return Err(Reply::LaneLost),
            None if !lane.purpose.is_polled() => return Err(Reply::NoLane),
            // The head that a driver acknowledges may have been skipped by a person meanwhile.
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
        trim(self.id, lane, &mut self.also);
        Ok(())
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
            Trouble { attempts, first_at, last_at: failed.began, next_at: self.now, answer: ReceiverAnswer::default() };
        match failed.failure {
            AttemptFailure::Later { answer, wish_ms } => {
                trouble.answer = answer.clone();
                // The horizon stands still since a pause, although this attempt was still under way.
                let now = lane.paused.as_ref().map_or(self.now, |pause| pause.at.min(self.now));
                match retry::next(attempts, first_at, now, *wish_ms, failed.chance) {
                    Some(next_at) => lane.trouble = Some(Trouble { next_at, ..trouble }),
                    None => self.die(lane, failed.seq, DeadLetterReason::Horizon, &trouble, failed.after_dead)?,
                }
            }
            AttemptFailure::Away(answer) => {
                trouble.answer = answer.clone();
                trouble.next_at = retry::away(attempts, self.now, failed.chance);
                // Nothing was tried since the attempt before: that time does not count against the event.
                let before = lane.trouble.as_ref().map_or(failed.began, |trouble| trouble.last_at);
                trouble.first_at = first_at.plus(failed.began.since(before));
                lane.trouble = Some(trouble);
            }
            AttemptFailure::Gone(answer) => {
                trouble.answer = answer.clone();
                lane.trouble = Some(trouble);
                let why = format!("the receiver answered {}", answer.status.unwrap_or(410));
                lane.paused.get_or_insert_with(|| Pause { at: self.now, by: Pause::BY_RECEIVER.to_owned(), why });
            }
            AttemptFailure::Never(answer, reason) => {
                trouble.answer = answer.clone();
                self.die(lane, failed.seq, *reason, &trouble, failed.after_dead)?;
            }
        }
        Ok(())
    }

    // INVARIANT one-end: an event leaves its lane once, acknowledged or dead. The driver must not take a failure for recorded that
    // was not, or it tries again at once: rows without the event, such as those of an old primary, are not the ones it saw.
    fn die(
        &mut self,
        lane: &mut Lane,
        seq: u64,
        reason: DeadLetterReason,
        trouble: &Trouble,
        after: AfterDead,
    ) -> Result<(), Reply> {
        let Some(entry) = entry_of(self.rows, self.id, seq) else {
            return Err(Reply::NotHead { settled: lane.settled });
        };
        let (first_lane, first_seq) = entry.redrive_of.unwrap_or((self.id, seq));
        let blocks = after == AfterDead::Block && reason != DeadLetterReason::Skipped;
        // An event that dies again was tried in its earlier life, too: the receiver may remember that, or have
        // forgotten it.
        let before = letter_of(self.rows, first_lane, first_seq).filter(|letter| letter.attempts > 0);
        let letter = DeadLetter {
            tenant: lane.tenant.clone(),
            purpose: lane.purpose.clone(),
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
            trim(self.id, lane, &mut self.also);
        }
        Ok(())
    }

    fn skip(&mut self, lane: &mut Lane, seq: u64, by: &str) -> Result<(), Reply> {
        let skipped =
            letter_of(self.rows, self.id, seq).is_some_and(|letter| letter.reason == DeadLetterReason::Skipped);
        if seq <= lane.settled && skipped {
            return Ok(());
        }
        let head = entry_of(self.rows, self.id, seq).filter(|_| seq == lane.settled + 1);
        let Some(entry) = head else { return Err(Reply::NotHead { settled: lane.settled }) };
        // Neither a first attempt under way nor a poller's read is written down: the earliest time at which the
        // receiver may have had the event, if it may.
        let (since, perhaps) = if lane.purpose.is_polled() {
            (Some(entry.published), "; who polls may have had it")
        } else if came_after_pause(lane, entry.published) {
            (None, "")
        } else {
            let paused = lane.paused.as_ref().map(|pause| pause.at);
            (Some(paused.unwrap_or(self.now)), "; an attempt may have been under way")
        };
        let at = since.unwrap_or(self.now);
        let nothing = Trouble {
            attempts: u32::from(since.is_some()),
            first_at: at,
            last_at: at,
            next_at: self.now,
            answer: ReceiverAnswer::new(None, &format!("skipped by {by}{perhaps}")),
        };
        let trouble = lane.trouble.clone().unwrap_or(nothing);
        self.die(lane, seq, DeadLetterReason::Skipped, &trouble, AfterDead::Continue)
    }

    fn resume(&self, lane: &mut Lane) {
        if let Some(paused) = lane.paused.take() {
            lane.trouble = lane.trouble.as_ref().map(|trouble| retry::resumed(trouble, paused.at, self.now));
        }
    }
}
