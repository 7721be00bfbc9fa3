//! A person's decision on a dead letter: send it again, or give it up.
//! Never sends a cancelled event again. Called only from `decide`.

use std::sync::Arc;

use super::{LetterVerdict, OnLetter, Reply, append_to_lane_of, follow_append_to_lane_of, transport_of};
use crate::{
    audit::Subject,
    key::RowKey,
    lane::{self, DeadLetter, Entry, Fate, Lane, cancelled_by, lane_of, letter_of, tell, trim},
    law::Decision,
    row::{Record, Rows, write},
    time::Millis,
};

pub(crate) fn footprint(on: &OnLetter, add: &mut impl FnMut(RowKey)) {
    add(RowKey::dead_letter(on.lane, on.seq));
    add(RowKey::cancelled(on.lane, on.seq));
}

pub(crate) fn follow(on: &OnLetter, rows: &impl Rows, add: &mut impl FnMut(RowKey)) {
    let Some(letter) = letter_of(rows, on.lane, on.seq) else { return };
    let home = letter.purpose.lane(&letter.tenant);
    add(RowKey::lane(home));
    if let Some(lane) = lane_of(rows, home) {
        add(RowKey::lane_notice(&lane.owner.node, home));
    }
    let key = RowKey::transport(&letter.tenant, &letter.entry.subject);
    add(key);
    if let Some(transport) = transport_of(rows, key) {
        follow_append_to_lane_of(transport, &on.members, rows, add);
    }
}

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
            free(letter, AfterBlock::Next, rows, &mut decision);
            decision
        }
    }
}

pub(crate) fn subject(on: &OnLetter, rows: &impl Rows) -> Subject {
    let why = match &on.verdict {
        LetterVerdict::Redrive { force } => force.clone(),
        LetterVerdict::Discard { why } => Some(why.clone()),
    };
    let tenant = letter_of(rows, on.lane, on.seq).map(|letter| letter.tenant.clone());
    Subject { tenant, on: format!("{}-{}", on.lane, on.seq), why }
}

fn again(letter: &Arc<DeadLetter>) -> Reply {
    Reply::Letter { letter: letter.clone(), replay: true }
}

fn decided(on: &OnLetter, letter: &DeadLetter, fate: Fate, rows: &impl Rows) -> Decision {
    let letter = Arc::new(DeadLetter { fate, ..letter.clone() });
    let put = Record::Lane(lane::Record::DeadLetter(letter.clone()));
    let writes = vec![write(rows, RowKey::dead_letter(on.lane, on.seq), Some(put))];
    Decision::new(writes, Reply::Letter { letter, replay: false })
}

fn redrive(on: &OnLetter, letter: &DeadLetter, force: Option<&str>, rows: &impl Rows, now: Millis) -> Decision {
    if let Some(by) = cancelled_by(rows, on.lane, on.seq) {
        return Decision::reply(Reply::LetterCancelled { by: by.to_owned() });
    }
    let key = RowKey::transport(&letter.tenant, &letter.entry.subject);
    let Some(transport) = transport_of(rows, key) else { return Decision::reply(Reply::NoTransport) };
    if letter.forgotten(transport.receiver_retain_ms, now) && force.is_none() {
        return Decision::reply(Reply::PastRetention { receiver_retain_ms: transport.receiver_retain_ms });
    }
    let why = force.map(str::to_owned);
    let fate = |seq| Fate::Redriven { at: now, by: on.by.clone(), why: why.clone(), seq };
    // Where it died last: a letter keeps the address of its first death.
    let home = lane_of(rows, letter.purpose.lane(&letter.tenant));
    if let Some(lane) = home.filter(|lane| letter.blocks && lane.blocked) {
        // Its lane waited for it: it goes first, in order, at its old position.
        let mut decision = decided(on, letter, fate(lane.settled + 1), rows);
        free(letter, AfterBlock::Head, rows, &mut decision);
        return decision;
    }
    let moved = DeadLetter { purpose: transport.purpose(), ..letter.clone() };
    let mut decision = decided(on, &moved, fate(0), rows);
    // A cancellation between this look and the append is refused.
    decision.also.held.push((RowKey::cancelled(on.lane, on.seq), None));
    let entry = Entry { redrive_of: Some((on.lane, on.seq)), ..Entry::clone(&letter.entry) };
    let position_row = RowKey::dead_letter(on.lane, on.seq);
    append_to_lane_of(transport, entry.into(), position_row, &on.members, rows, &mut decision);
    decision
}

enum AfterBlock {
    /// The dead head is tried again.
    Head,
    /// The lane goes on behind it.
    Next,
}

// A lane that waited for a decision about this letter goes on.
fn free(letter: &DeadLetter, after: AfterBlock, rows: &impl Rows, decision: &mut Decision) {
    let id = letter.purpose.lane(&letter.tenant);
    let Some(lane) = lane_of(rows, id).filter(|lane| letter.blocks && lane.blocked) else { return };
    let mut lane = Lane::clone(lane);
    lane.blocked = false;
    lane.trouble = None;
    if let AfterBlock::Next = after {
        lane.settled += 1;
        trim(id, &mut lane, &mut decision.also);
    }
    tell(&lane.owner.node, id, rows, decision);
    decision.writes.push(write(rows, RowKey::lane(id), Some(Record::Lane(lane::Record::Lane(lane.into())))));
}
