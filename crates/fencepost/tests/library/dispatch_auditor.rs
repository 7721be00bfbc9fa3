//! Judges one plan from what receivers saw and what the rows say at the end. Shares no code with the kernel or the driver.
//! The rules are those of DESIGN 7; a broken one is told in a sentence.

use std::collections::{BTreeMap, BTreeSet};

use fencepost::kernel::{
    Millis,
    dispatch::Original,
    lane::{DeadLetter, DeadLetterReason, Fate},
};

use super::{
    dispatch_receiver::{Said, Sighting, TIMEOUT_MS},
    dispatch_world::{DAY_MS, SECOND_MS},
};

/// How long an attempt may wait for others where there is little room, and take.
const QUEUE_MS: u64 = 8 * TIMEOUT_MS;

/// A span of time.
pub type Span = (Millis, Millis);

/// One lane at the end of a plan.
#[derive(Default)]
pub struct LaneStory {
    /// Every event in the order of publication, with its position.
    pub published: Vec<(String, u64)>,
    pub settled: u64,
    pub tail: u64,
    /// Where each letter died first, and the letter as it is now.
    pub letters: BTreeMap<u64, DeadLetter>,
    /// Every death, in order: the event, the time, the reason.
    pub deaths: Vec<(String, Millis, DeadLetterReason)>,
    /// Dead heads that blocked the lane and were sent again at their old positions, and when.
    pub again: Vec<(u64, Millis)>,
    /// When a person, or the receiver, had stopped it. In order.
    pub pauses: Vec<Span>,
    pub sightings: Vec<Sighting>,
    pub cancelled: Vec<Cancelled>,
}

/// That an event was cancelled, and what was told of it then.
#[derive(Clone, Debug)]
pub struct Cancelled {
    pub id: String,
    pub told: Original,
    pub at: Millis,
}

/// When each process died, and when the next one began.
pub struct Lives {
    pub downs: Vec<Span>,
}

impl Lives {
    // An answer from before its process died was recorded: virtual time does not pass in between.
    pub fn recorded(&self, sighting: &Sighting) -> bool {
        let died = self.downs.get(sighting.life).map(|(died, _)| *died);
        sighting.ended.is_some_and(|ended| died.is_none_or(|died| ended < died))
    }

    fn down_ms(&self) -> u64 {
        self.downs.iter().map(|(died, began)| began.since(*died)).sum()
    }
}

/// Everything that is wrong with a lane.
pub fn audit(story: &LaneStory, lives: &Lives) -> Vec<String> {
    let mut wrong = Vec::new();
    positions(story, &mut wrong);
    one_at_a_time(story, &mut wrong);
    one_end(story, lives, &mut wrong);
    order(story, lives, &mut wrong);
    pauses(story, &mut wrong);
    truth(story, lives, &mut wrong);
    gaps(story, lives, &mut wrong);
    horizon(story, lives, &mut wrong);
    wrong
}

// Every position up to the last is one publication or one redrive, in order, and all of them are settled.
fn positions(story: &LaneStory, wrong: &mut Vec<String>) {
    if story.settled != story.tail {
        wrong.push(format!("only {} of {} are settled at the end", story.settled, story.tail));
    }
    if !story.published.is_sorted_by(|(_, a), (_, b)| a < b) {
        wrong.push(format!("positions out of order: {:?}", story.published));
    }
    let mut taken: BTreeSet<u64> = story.published.iter().map(|(_, seq)| *seq).collect();
    taken.extend(story.sightings.iter().filter(|seen| seen.redrive).map(|seen| seen.seq));
    if !taken.iter().copied().eq(1..=story.tail) {
        wrong.push(format!("positions {taken:?} are not 1 to {}", story.tail));
    }
    if let Some(seen) = story.sightings.iter().find(|seen| !seen.intact) {
        wrong.push(format!("{} arrived with other bytes", seen.id));
    }
}

fn one_at_a_time(story: &LaneStory, wrong: &mut Vec<String>) {
    for pair in story.sightings.windows(2) {
        let overlap = pair[0].life == pair[1].life && pair[0].ended.is_none_or(|ended| ended > pair[1].began);
        if overlap {
            wrong.push(format!("two attempts at a time: {:?} and {:?}", pair[0], pair[1]));
        }
    }
}

// Acknowledged or dead, never both, never neither.
fn one_end(story: &LaneStory, lives: &Lives, wrong: &mut Vec<String>) {
    for (id, seq) in &story.published {
        let yes = |seen: &&Sighting| seen.id == *id && seen.said == Said::Yes;
        let received = story.sightings.iter().any(|seen| yes(&seen));
        let acknowledged = story.sightings.iter().find(|seen| yes(seen) && lives.recorded(seen));
        match story.letters.get(seq).map(|letter| (&letter.fate, letter.reason)) {
            None | Some((Fate::Redriven { .. }, _)) if !received => {
                wrong.push(format!("{id} was neither received nor is it dead"));
            }
            Some((Fate::Waiting | Fate::Discarded { .. }, reason)) if reason != DeadLetterReason::Skipped => {
                if let Some(seen) = acknowledged {
                    wrong.push(format!("{id} is dead, but was acknowledged: {seen:?}"));
                }
            }
            _ => {}
        }
        if story.letters.get(seq).is_some_and(|letter| letter.entry.correlation_id != *id) {
            wrong.push(format!("the letter at {seq} is not {id}"));
        }
    }
    let redriven_to = |seq: &u64| story.sightings.iter().any(|seen| seen.redrive && seen.seq == *seq);
    if let Some(seq) = story.letters.keys().find(|seq| redriven_to(seq)) {
        wrong.push(format!("a second letter at {seq} for one event"));
    }
}

// Nothing is seen before all before it have ended, and nothing after its own end.
fn order(story: &LaneStory, lives: &Lives, wrong: &mut Vec<String>) {
    let mut ended: BTreeMap<u64, Millis> = BTreeMap::new();
    let mut deaths = story.deaths.iter().peekable();
    let mut last = 0;
    for seen in &story.sightings {
        // A death is told when it is recorded; the attempt that led to it was seen before.
        while let Some((id, at, _)) = deaths.next_if(|(_, at, _)| *at <= seen.began) {
            if let Some(dead) = at_death(story, id, *at) {
                ended.insert(dead, *at);
            }
        }
        ended.retain(|seq, at| {
            !story.again.iter().any(|(again, from)| again == seq && *at <= *from && *from <= seen.began)
        });
        if let Some(at) = ended.get(&seen.seq) {
            wrong.push(format!("{} at {} was sent at {:?}, but ended at {at:?}", seen.id, seen.seq, seen.began));
        }
        if let Some(missing) = (1..seen.seq).find(|seq| !ended.contains_key(seq)) {
            wrong.push(format!("{} at {} was sent before {missing} had ended", seen.id, seen.seq));
        }
        if seen.seq < last {
            wrong.push(format!("{} at {} came after {last}", seen.id, seen.seq));
        }
        last = seen.seq;
        if let (Said::Yes, Some(at), true) = (seen.said, seen.ended, lives.recorded(seen)) {
            ended.insert(seen.seq, at);
        }
    }
}

// The position that an event was at when it died: its own, or that of its redrive.
fn at_death(story: &LaneStory, id: &str, at: Millis) -> Option<u64> {
    let seen = story.sightings.iter().rev().find(|seen| seen.id == id && seen.began <= at).map(|seen| seen.seq);
    seen.or_else(|| story.published.iter().find(|(known, _)| known == id).map(|(_, seq)| *seq))
}

// A cancellation's reply agrees with the attempts that receivers had seen by then. In one millisecond either may have
// been first.
fn truth(story: &LaneStory, lives: &Lives, wrong: &mut Vec<String>) {
    for cancelled in &story.cancelled {
        let own = || story.sightings.iter().filter(|seen| seen.id == cancelled.id);
        let sent = own().any(|seen| seen.began < cancelled.at);
        let mut yes = own().filter(|seen| seen.said == Said::Yes && lives.recorded(seen)).filter_map(|seen| seen.ended);
        let died = story.deaths.iter().any(|(id, at, _)| *id == cancelled.id && *at <= cancelled.at);
        let holds = match cancelled.told {
            Original::Undelivered => !sent,
            Original::InFlight => yes.all(|at| at >= cancelled.at),
            Original::Delivered => yes.any(|at| at <= cancelled.at),
            Original::Dead => died && yes.all(|at| at >= cancelled.at),
            Original::Unknown => false,
        };
        if !holds {
            wrong.push(format!("not the truth: {cancelled:?}"));
        }
    }
}

fn pauses(story: &LaneStory, wrong: &mut Vec<String>) {
    for seen in &story.sightings {
        // In the millisecond of the pause itself either may have been first.
        if let Some(pause) = story.pauses.iter().find(|(from, to)| *from < seen.began && seen.began < *to) {
            wrong.push(format!("{} was sent at {:?}, in the pause {pause:?}", seen.id, seen.began));
        }
    }
}

// The first attempt of a position whose failure is known, as of a time: the horizon counts from there.
fn first(story: &LaneStory, lives: &Lives, seq: u64, at: Millis) -> Option<Sighting> {
    let again = story.again.iter().filter(|(head, from)| *head == seq && *from < at).map(|(_, from)| *from).max();
    let mut own = story.sightings.iter().filter(|seen| seen.seq == seq && again.is_none_or(|from| seen.began >= from));
    own.find(|seen| lives.recorded(seen)).cloned()
}

// How old a head was at a time, without the pauses.
fn age_ms(story: &LaneStory, first: &Sighting, at: Millis) -> u64 {
    let counted = |(from, to): &Span| {
        // One that began and ended within the first attempt is nowhere written down.
        let within = first.ended.is_some_and(|ended| *to <= ended);
        if within { 0 } else { (*to).min(at).since((*from).max(first.began)) }
    };
    at.since(first.began) - story.pauses.iter().map(counted).sum::<u64>()
}

// A failed attempt is not followed at once, nor before the receiver's wish; unless it is the last, at the horizon.
fn gaps(story: &LaneStory, lives: &Lives, wrong: &mut Vec<String>) {
    for pair in story.sightings.windows(2) {
        let (Some(ended), Said::Later { wish_ms }) = (pair[0].ended, pair[0].said) else { continue };
        let resumes = story.pauses.iter().map(|(_, to)| to).chain(story.again.iter().map(|(_, from)| from));
        let resumed = resumes.copied().any(|at| ended <= at && at <= pair[1].began);
        if pair[0].seq != pair[1].seq || pair[0].life != pair[1].life || resumed {
            continue;
        }
        let Some(first) = first(story, lives, pair[0].seq, pair[1].began) else { continue };
        let last = age_ms(story, &first, pair[1].began) >= DAY_MS;
        let gap_ms = pair[1].began.since(ended);
        if !last && gap_ms < wish_ms.max(5 * SECOND_MS) {
            wrong.push(format!("{} was sent again after {gap_ms} ms, the wish was {wish_ms}", pair[0].id));
        }
        if gap_ms > wish_ms.max(66 * 60 * SECOND_MS) + QUEUE_MS {
            wrong.push(format!("{} was sent again only after {gap_ms} ms", pair[0].id));
        }
    }
}

// Dead at 24 hours after the first attempt, and not before; the time that a lane is stopped does not count.
fn horizon(story: &LaneStory, lives: &Lives, wrong: &mut Vec<String>) {
    for (id, at, _) in story.deaths.iter().filter(|(_, _, reason)| *reason == DeadLetterReason::Horizon) {
        let first = at_death(story, id, *at).and_then(|seq| first(story, lives, seq, *at));
        let Some(first) = first else {
            wrong.push(format!("{id} died without an attempt"));
            continue;
        };
        let age_ms = age_ms(story, &first, *at);
        // The last attempt waits and takes a while, and nobody dies while nobody is there.
        let late_ms = QUEUE_MS + lives.down_ms();
        if !(DAY_MS..=DAY_MS + late_ms).contains(&age_ms) {
            wrong.push(format!("{id} died {age_ms} ms after its first attempt, which is not 24 hours: {first:?}"));
        }
    }
}
