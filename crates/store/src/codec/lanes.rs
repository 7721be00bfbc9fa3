//! The stored forms of the rows that lanes are made of: route, lane, tail, entry, dead letter and cancellation.
//! Never packs: an event's bytes are read more often than they are written, and shared with the row they came from.
//! Called only by the codec.

use bytes::Bytes;
use fencepost_kernel::{
    Millis, Tenant,
    dispatch::{Transport, WarehouseTransport, Webhook},
    lane::{
        AfterDead, Cancelled, DECIDED_RETAIN_MS, DeadLetter, DeadLetterReason, Entry, Fate, Lane, LaneId, LanePurpose,
        Owner, Pause, ReceiverAnswer, Tail, Trouble,
    },
};

use super::wire::{Damage, Reader, put_bytes, put_str, put_uint};

pub(super) fn put_transport(out: &mut Vec<u8>, transport: &WarehouseTransport) {
    put_str(out, transport.planner.as_str());
    put_str(out, &transport.warehouse);
    put_str(out, &transport.executor);
    out.push(transport.after_dead as u8);
    put_uint(out, transport.receiver_retain_ms);
    put_uint(out, transport.at.0);
    match &transport.transport {
        Transport::Webhook(webhook) => {
            out.push(1);
            put_str(out, &webhook.url);
            out.push(u8::from(webhook.standard));
            put_uint(out, webhook.secrets.len() as u64);
            webhook.secrets.iter().for_each(|secret| put_bytes(out, secret));
        }
        Transport::Kafka { topic } => {
            out.push(2);
            put_str(out, topic);
        }
        Transport::Poll => out.push(3),
    }
}

pub(super) fn take_transport(reader: &mut Reader<'_>, whole: &Bytes) -> Result<WarehouseTransport, Damage> {
    let planner = Tenant::new(reader.str()?);
    let warehouse = reader.string()?;
    let executor = reader.string()?;
    let after_dead = match reader.byte()? {
        1 => AfterDead::Continue,
        2 => AfterDead::Block,
        _ => return Err(Damage("what follows a dead letter is unknown")),
    };
    let receiver_retain_ms = reader.uint()?;
    let at = Millis(reader.uint()?);
    let transport = match reader.byte()? {
        1 => {
            let url = reader.string()?;
            let standard = reader.flags(1)? != 0;
            let secrets = (0..reader.count()?).map(|_| reader.shared(whole)).collect::<Result<_, _>>()?;
            Transport::Webhook(Webhook { url, secrets, standard })
        }
        2 => Transport::Kafka { topic: reader.string()? },
        3 => Transport::Poll,
        _ => return Err(Damage("a transport is unknown")),
    };
    Ok(WarehouseTransport { planner, warehouse, executor, transport, after_dead, receiver_retain_ms, at })
}

const TROUBLED: u8 = 1;
const PAUSED: u8 = 2;
const BLOCKED: u8 = 4;

pub(super) fn put_lane(out: &mut Vec<u8>, lane: &Lane) {
    out.push(
        flag(lane.trouble.is_some(), TROUBLED) | flag(lane.paused.is_some(), PAUSED) | flag(lane.blocked, BLOCKED),
    );
    put_str(out, lane.planner.as_str());
    put_place(out, &lane.purpose);
    put_str(out, &lane.owner.node);
    put_uint(out, lane.owner.epoch);
    put_uint(out, lane.settled);
    put_uint(out, lane.trimmed);
    if let Some(trouble) = &lane.trouble {
        put_uint(out, trouble.attempts.into());
        put_uint(out, trouble.first_at.0);
        put_uint(out, trouble.last_at.0);
        put_uint(out, trouble.next_at.0);
        put_answer(out, &trouble.answer);
    }
    if let Some(pause) = &lane.paused {
        put_uint(out, pause.at.0);
        put_str(out, &pause.by);
        put_str(out, &pause.why);
    }
}

pub(super) fn take_lane(reader: &mut Reader<'_>) -> Result<Lane, Damage> {
    let flags = reader.flags(TROUBLED | PAUSED | BLOCKED)?;
    let planner = Tenant::new(reader.str()?);
    let place = take_place(reader)?;
    let owner = Owner { node: reader.string()?, epoch: reader.uint()? };
    let settled = reader.uint()?;
    let trimmed = reader.uint()?;
    let trouble = (flags & TROUBLED != 0).then(|| take_trouble(reader)).transpose()?;
    let paused = (flags & PAUSED != 0).then(|| take_pause(reader)).transpose()?;
    Ok(Lane { planner, purpose: place, owner, settled, trimmed, trouble, paused, blocked: flags & BLOCKED != 0 })
}

fn take_trouble(reader: &mut Reader<'_>) -> Result<Trouble, Damage> {
    Ok(Trouble {
        attempts: take_attempts(reader)?,
        first_at: Millis(reader.uint()?),
        last_at: Millis(reader.uint()?),
        next_at: Millis(reader.uint()?),
        answer: take_answer(reader)?,
    })
}

fn take_pause(reader: &mut Reader<'_>) -> Result<Pause, Damage> {
    Ok(Pause { at: Millis(reader.uint()?), by: reader.string()?, why: reader.string()? })
}

pub(super) fn put_tail(out: &mut Vec<u8>, tail: &Tail) {
    put_uint(out, tail.last);
}

pub(super) fn take_tail(reader: &mut Reader<'_>) -> Result<Tail, Damage> {
    Ok(Tail { last: reader.uint()? })
}

pub(super) fn put_entry(out: &mut Vec<u8>, entry: &Entry) {
    out.push(u8::from(entry.redrive_of.is_some()));
    put_uint(out, entry.published.0);
    put_str(out, &entry.correlation_id);
    put_str(out, &entry.kind);
    put_str(out, &entry.warehouse);
    if let Some((lane, seq)) = &entry.redrive_of {
        out.extend_from_slice(&lane.0);
        put_uint(out, *seq);
    }
    put_bytes(out, &entry.body);
}

pub(super) fn take_entry(reader: &mut Reader<'_>, whole: &Bytes) -> Result<Entry, Damage> {
    let redriven = reader.flags(1)? != 0;
    let published = Millis(reader.uint()?);
    let correlation_id = reader.string()?;
    let kind = reader.string()?;
    let warehouse = reader.string()?;
    let redrive_of = if redriven { Some((LaneId(reader.array()?), reader.uint()?)) } else { None };
    Ok(Entry { correlation_id, kind, warehouse, body: reader.shared(whole)?, published, redrive_of })
}

const CANCELLED: u8 = 1;
const BLOCKS: u8 = 2;

// The fate comes first: compaction reads the expiry from it.
pub(super) fn put_dead_letter(out: &mut Vec<u8>, letter: &DeadLetter) {
    put_fate(out, &letter.fate);
    out.push(flag(letter.cancelled_by.is_some(), CANCELLED) | flag(letter.blocks, BLOCKS));
    put_str(out, letter.planner.as_str());
    put_place(out, &letter.purpose);
    out.push(letter.reason as u8);
    put_uint(out, letter.attempts.into());
    put_uint(out, letter.first_at.0);
    put_uint(out, letter.at.0);
    put_answer(out, &letter.answer);
    if let Some(by) = &letter.cancelled_by {
        put_str(out, by);
    }
    put_entry(out, &letter.entry);
}

pub(super) fn take_dead_letter(reader: &mut Reader<'_>, whole: &Bytes) -> Result<DeadLetter, Damage> {
    let fate = take_fate(reader)?;
    let flags = reader.flags(CANCELLED | BLOCKS)?;
    let planner = Tenant::new(reader.str()?);
    let place = take_place(reader)?;
    let number = reader.byte()?;
    let reason = DeadLetterReason::ALL.into_iter().find(|reason| *reason as u8 == number);
    Ok(DeadLetter {
        planner,
        purpose: place,
        reason: reason.ok_or(Damage("the reason of a dead letter is unknown"))?,
        attempts: take_attempts(reader)?,
        first_at: Millis(reader.uint()?),
        at: Millis(reader.uint()?),
        answer: take_answer(reader)?,
        cancelled_by: (flags & CANCELLED != 0).then(|| reader.string()).transpose()?,
        entry: take_entry(reader, whole)?.into(),
        fate,
        blocks: flags & BLOCKS != 0,
    })
}

const WAITING: u8 = 0;
const REDRIVEN: u8 = 1;
const FORCED: u8 = 2;
const DISCARDED: u8 = 3;

fn put_fate(out: &mut Vec<u8>, fate: &Fate) {
    match fate {
        Fate::Waiting => out.push(WAITING),
        Fate::Redriven { at, by, why, seq } => {
            out.push(if why.is_some() { FORCED } else { REDRIVEN });
            put_uint(out, at.0);
            put_uint(out, *seq);
            put_str(out, by);
            if let Some(why) = why {
                put_str(out, why);
            }
        }
        Fate::Discarded { at, by, why } => {
            out.push(DISCARDED);
            put_uint(out, at.0);
            put_str(out, by);
            put_str(out, why);
        }
    }
}

fn take_decided(reader: &mut Reader<'_>) -> Result<(u8, Option<Millis>), Damage> {
    match reader.byte()? {
        WAITING => Ok((WAITING, None)),
        tag @ (REDRIVEN | FORCED | DISCARDED) => Ok((tag, Some(Millis(reader.uint()?)))),
        _ => Err(Damage("the fate of a dead letter is unknown")),
    }
}

fn take_fate(reader: &mut Reader<'_>) -> Result<Fate, Damage> {
    let (tag, Some(at)) = take_decided(reader)? else { return Ok(Fate::Waiting) };
    if tag == DISCARDED {
        return Ok(Fate::Discarded { at, by: reader.string()?, why: reader.string()? });
    }
    let seq = reader.uint()?;
    let by = reader.string()?;
    let why = (tag == FORCED).then(|| reader.string()).transpose()?;
    Ok(Fate::Redriven { at, by, why, seq })
}

/// When the letter goes, from its first few bytes.
pub(super) fn take_dead_letter_expiry(reader: &mut Reader<'_>) -> Result<Option<Millis>, Damage> {
    Ok(take_decided(reader)?.1.map(|at| at.plus(DECIDED_RETAIN_MS)))
}

pub(super) fn put_cancelled(out: &mut Vec<u8>, cancelled: &Cancelled) {
    put_uint(out, cancelled.expires.0);
    put_str(out, &cancelled.by);
}

pub(super) fn take_cancelled(reader: &mut Reader<'_>) -> Result<Cancelled, Damage> {
    Ok(Cancelled { expires: Millis(reader.uint()?), by: reader.string()? })
}

fn flag(set: bool, flag: u8) -> u8 {
    if set { flag } else { 0 }
}

fn put_place(out: &mut Vec<u8>, place: &LanePurpose) {
    let (tag, name) = match place {
        LanePurpose::Warehouse(name) => (1, name),
        LanePurpose::Executor(name) => (2, name),
    };
    out.push(tag);
    put_str(out, name);
}

fn take_place(reader: &mut Reader<'_>) -> Result<LanePurpose, Damage> {
    match reader.byte()? {
        1 => Ok(LanePurpose::Warehouse(reader.string()?)),
        2 => Ok(LanePurpose::Executor(reader.string()?)),
        _ => Err(Damage("a lane is for something unknown")),
    }
}

fn put_answer(out: &mut Vec<u8>, answer: &ReceiverAnswer) {
    out.push(u8::from(answer.status.is_some()));
    if let Some(status) = answer.status {
        put_uint(out, status.into());
    }
    put_str(out, &answer.note);
}

fn take_answer(reader: &mut Reader<'_>) -> Result<ReceiverAnswer, Damage> {
    let answered = reader.flags(1)? != 0;
    let status = answered.then(|| reader.uint()).transpose()?.map(u16::try_from).transpose();
    Ok(ReceiverAnswer { status: status.map_err(|_| Damage("a status is too large"))?, note: reader.string()? })
}

fn take_attempts(reader: &mut Reader<'_>) -> Result<u32, Damage> {
    u32::try_from(reader.uint()?).map_err(|_| Damage("a count of attempts is too large"))
}
