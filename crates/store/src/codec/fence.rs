//! The stored form of a fence.
//! Never stores a derived value: times are distances from the first claim, and so is the token.
//! Called only by the codec.
//!
//! In order: flags, first seen, the times of its state, then names (tenant, scope, field names) in one run that block
//! compression finds again in the next row, then everything that differs from row to row.

use bytes::Bytes;
use fencepost_kernel::{
    Millis, RowKey, Tenant, Version,
    fence::{Fence, FenceEvent, HolderTrace, Receipt, Source, State, Token, What, body::Body, scope::OnLapse},
    key::Kind,
};

use super::{
    KEEPS_FORGOTTEN, KEEPS_TRACES, MARKS_DOUBTS, PACKS_RECEIPTS, pack,
    wire::{Damage, Reader, put_int, put_since, put_str, put_uint},
};

const PENDING: u64 = 0;
const SEALED: u64 = 1;
const RELEASED: u64 = 2;
const STATE: u64 = 0b11;
const HOLD: u64 = 1 << 2;
const FORGET: u64 = 1 << 3;
const SEQ: u64 = 1 << 4;
const BODY: u64 = 1 << 5;
const KEPT: u64 = 1 << 6;
const SOURCE: u64 = 1 << 7;
const PACKED: u64 = 1 << 8;
const VERSION_INTEGER: u64 = 1 << 9;
const VERSION_TEXT: u64 = 1 << 10;
const EVENTS: u64 = 1 << 11;
const RECEIPT_PACKED: u64 = 1 << 12;
const DOUBTED: u64 = 1 << 13;
const TRACED: u64 = 1 << 14;

/// The flags that a row of this format may carry.
fn known(format: u8) -> u64 {
    match format {
        ..PACKS_RECEIPTS => RECEIPT_PACKED - 1,
        PACKS_RECEIPTS..MARKS_DOUBTS => DOUBTED - 1,
        MARKS_DOUBTS..KEEPS_TRACES => TRACED - 1,
        KEEPS_TRACES.. => (TRACED << 1) - 1,
    }
}

pub(super) fn put(out: &mut Vec<u8>, fence: &Fence, format: u8) {
    let packed = fence.body.as_ref().and_then(|body| body.kept.as_ref()).and_then(pack::pack);
    let packed_receipt = match &fence.state {
        State::Sealed { receipt, .. } if format >= PACKS_RECEIPTS => pack::pack(&receipt.body),
        _ => None,
    };
    let doubted_at = match &fence.state {
        State::Pending { doubted_at, .. } if format >= MARKS_DOUBTS => *doubted_at,
        _ => None,
    };
    let held_by = match &fence.state {
        State::Pending { held_by, .. } if format >= KEEPS_TRACES => *held_by,
        _ => None,
    };
    let doubted = if doubted_at.is_some() { DOUBTED } else { 0 };
    let traced = if held_by.is_some() { TRACED } else { 0 };
    put_uint(out, flags(fence, packed.is_some(), packed_receipt.is_some()) | doubted | traced);
    let first = fence.first_seen.0;
    put_uint(out, first);
    match &fence.state {
        State::Pending { lease_expires, forget_at, .. } => {
            put_since(out, first, lease_expires.0);
            if let Some(forget_at) = forget_at {
                put_since(out, lease_expires.0, forget_at.0);
            }
            if let Some(doubted_at) = doubted_at {
                put_since(out, lease_expires.0, doubted_at.0);
            }
        }
        State::Sealed { at, expires, .. } | State::Released { at, expires } => {
            put_since(out, first, at.0);
            put_since(out, at.0, expires.0);
        }
    }
    put_str(out, fence.tenant.as_str());
    put_str(out, &fence.scope);
    put_uint(out, fence.fields.len() as u64);
    for (name, _) in fence.fields.iter() {
        put_str(out, name);
    }
    for (_, value) in fence.fields.iter() {
        put_str(out, value);
    }
    put_since(out, first, fence.token.0);
    put_uint(out, u64::from(fence.attempt));
    if let Some(seq) = fence.seq {
        put_uint(out, seq);
    }
    if let Some(body) = &fence.body {
        put_body(out, body, packed.as_deref());
    }
    if let Some(source) = &fence.source {
        put_str(out, &source.kind);
        put_str(out, &source.id);
    }
    if let Some((version, head)) = &fence.version {
        put_version(out, version);
        out.push(head.kind as u8);
        out.extend_from_slice(&head.id);
    }
    if let Some(HolderTrace(trace)) = held_by {
        out.extend_from_slice(&trace);
    }
    if let State::Sealed { receipt, .. } = &fence.state {
        put_receipt(out, receipt, packed_receipt.as_deref());
    }
    if !fence.events.is_empty() {
        put_uint(out, fence.events.len() as u64);
        for event in &fence.events {
            put_event(out, event, first, format);
        }
    }
}

pub(super) fn take(reader: &mut Reader<'_>, whole: &Bytes, format: u8) -> Result<Fence, Damage> {
    let (flags, first, times) = take_times(reader, format)?;
    let tenant = Tenant::new(reader.str()?);
    let scope = reader.str()?.into();
    let count = reader.count()?;
    let mut fields = Vec::with_capacity(count);
    for _ in 0..count {
        fields.push((reader.string()?, String::new()));
    }
    for (_, value) in &mut fields {
        *value = reader.string()?;
    }
    let token = Token(reader.since(first)?);
    let attempt = u32::try_from(reader.uint()?).map_err(|_| Damage("an attempt is out of range"))?;
    let seq = (flags & SEQ != 0).then(|| reader.uint()).transpose()?;
    let body = (flags & BODY != 0).then(|| take_body(reader, whole, flags)).transpose()?;
    let source = if flags & SOURCE != 0 { Some(Source { kind: reader.string()?, id: reader.string()? }) } else { None };
    let version = match flags & (VERSION_INTEGER | VERSION_TEXT) {
        0 => None,
        VERSION_INTEGER => Some((Version::Integer(take_i128(reader)?), take_row_key(reader)?)),
        VERSION_TEXT => Some((Version::Text(reader.string()?), take_row_key(reader)?)),
        _ => return Err(Damage("a version is both a number and a text")),
    };
    let state = match times {
        Times::Pending { lease_expires, forget_at, doubted_at } => {
            let on_lapse = if flags & HOLD != 0 { OnLapse::Hold } else { OnLapse::Recover };
            let held_by = (flags & TRACED != 0).then(|| reader.array().map(HolderTrace)).transpose()?;
            State::Pending { lease_expires, on_lapse, forget_at, doubted_at, held_by }
        }
        Times::Sealed { at, expires } => {
            let receipt = take_receipt(reader, whole, flags & RECEIPT_PACKED != 0)?;
            State::Sealed { receipt, at, expires }
        }
        Times::Released { at, expires } => State::Released { at, expires },
    };
    let mut events = Vec::new();
    if flags & EVENTS != 0 {
        let count = reader.count()?;
        events.reserve_exact(count);
        for _ in 0..count {
            events.push(take_event(reader, first, format)?);
        }
    }
    let first_seen = Millis(first);
    let fields = fields.into();
    Ok(Fence { tenant, scope, fields, seq, first_seen, token, attempt, body, source, version, state, events })
}

/// When the fence expires and when it is due, from its first few bytes.
pub(super) fn take_head(reader: &mut Reader<'_>, format: u8) -> Result<(Option<Millis>, Option<Millis>), Damage> {
    let (flags, _, times) = take_times(reader, format)?;
    Ok(match times {
        Times::Pending { lease_expires, forget_at, .. } => (forget_at, (flags & HOLD != 0).then_some(lease_expires)),
        Times::Sealed { expires, .. } | Times::Released { expires, .. } => (Some(expires), None),
    })
}

fn flags(fence: &Fence, packed: bool, packed_receipt: bool) -> u64 {
    let state = match &fence.state {
        State::Pending { on_lapse, forget_at, .. } => {
            let hold = if *on_lapse == OnLapse::Hold { HOLD } else { 0 };
            PENDING | hold | if forget_at.is_some() { FORGET } else { 0 }
        }
        State::Sealed { .. } => SEALED,
        State::Released { .. } => RELEASED,
    };
    let version = match &fence.version {
        None => 0,
        Some((Version::Integer(_), _)) => VERSION_INTEGER,
        Some((Version::Text(_), _)) => VERSION_TEXT,
    };
    let kept = fence.body.as_ref().is_some_and(|body| body.kept.is_some());
    [
        (SEQ, fence.seq.is_some()),
        (BODY, fence.body.is_some()),
        (KEPT, kept),
        (PACKED, packed),
        (RECEIPT_PACKED, packed_receipt),
        (SOURCE, fence.source.is_some()),
        (EVENTS, !fence.events.is_empty()),
    ]
    .into_iter()
    .fold(state | version, |flags, (flag, set)| if set { flags | flag } else { flags })
}

enum Times {
    Pending { lease_expires: Millis, forget_at: Option<Millis>, doubted_at: Option<Millis> },
    Sealed { at: Millis, expires: Millis },
    Released { at: Millis, expires: Millis },
}

fn take_times(reader: &mut Reader<'_>, format: u8) -> Result<(u64, u64, Times), Damage> {
    let flags = reader.uint()?;
    if flags & !known(format) != 0 {
        return Err(Damage("it has flags that its format does not know"));
    }
    let first = reader.uint()?;
    let base = reader.since(first)?;
    let times = match flags & STATE {
        PENDING => {
            let forget_at = (flags & FORGET != 0).then(|| reader.since(base)).transpose()?.map(Millis);
            let doubted_at = (flags & DOUBTED != 0).then(|| reader.since(base)).transpose()?.map(Millis);
            Times::Pending { lease_expires: Millis(base), forget_at, doubted_at }
        }
        SEALED => Times::Sealed { at: Millis(base), expires: Millis(reader.since(base)?) },
        RELEASED => Times::Released { at: Millis(base), expires: Millis(reader.since(base)?) },
        _ => return Err(Damage("its state is unknown")),
    };
    Ok((flags, first, times))
}

fn put_body(out: &mut Vec<u8>, body: &Body, packed: Option<&[u8]>) {
    out.extend_from_slice(&body.digest);
    put_uint(out, body.size);
    if let Some(kept) = &body.kept {
        pack::put(out, kept, packed);
    }
}

fn take_body(reader: &mut Reader<'_>, whole: &Bytes, flags: u64) -> Result<Body, Damage> {
    let digest = reader.array()?;
    let size = reader.uint()?;
    let kept = (flags & KEPT != 0).then(|| pack::take(reader, whole, flags & PACKED != 0)).transpose()?;
    Ok(Body { digest, size, kept })
}

pub(super) fn put_receipt(out: &mut Vec<u8>, receipt: &Receipt, packed: Option<&[u8]>) {
    put_str(out, &receipt.effect_id);
    pack::put(out, &receipt.body, packed);
}

pub(super) fn take_receipt(reader: &mut Reader<'_>, whole: &Bytes, packed: bool) -> Result<Receipt, Damage> {
    Ok(Receipt { effect_id: reader.string()?, body: pack::take(reader, whole, packed)? })
}

pub(super) fn put_version(out: &mut Vec<u8>, version: &Version) {
    match version {
        Version::Integer(number) => put_i128(out, *number),
        Version::Text(text) => put_str(out, text),
    }
}

pub(super) fn put_i128(out: &mut Vec<u8>, number: i128) {
    match i64::try_from(number) {
        Ok(small) => {
            out.push(0);
            put_int(out, small);
        }
        Err(_) => {
            out.push(1);
            out.extend_from_slice(&number.to_le_bytes());
        }
    }
}

pub(super) fn take_i128(reader: &mut Reader<'_>) -> Result<i128, Damage> {
    match reader.byte()? {
        0 => reader.int().map(i128::from),
        1 => reader.array().map(i128::from_le_bytes),
        _ => Err(Damage("a version has an unknown width")),
    }
}

fn take_row_key(reader: &mut Reader<'_>) -> Result<RowKey, Damage> {
    let kind = Kind::from_u8(reader.byte()?).ok_or(Damage("an address has an unknown kind"))?;
    Ok(RowKey { kind, id: reader.array()? })
}

fn put_event(out: &mut Vec<u8>, event: &FenceEvent, first: u64, format: u8) {
    let tag = match &event.what {
        What::Released => 0,
        What::Retried => 1,
        What::Recovered => 2,
        What::SealedLate => 3,
        What::SealRefused => 4,
        What::Resolved { sealed: false, .. } => 5,
        What::Resolved { sealed: true, .. } => 6,
        What::Forgotten { .. } if format < KEEPS_FORGOTTEN => 5,
        What::Forgotten { sealed: None, .. } => 7,
        What::Forgotten { sealed: Some(_), .. } => 8,
    };
    out.push(tag);
    put_since(out, first, event.at.0);
    put_since(out, first, event.token.0);
    if let What::Resolved { by, why, .. } | What::Forgotten { by, why, .. } = &event.what {
        put_str(out, by);
        put_str(out, why);
    }
    if let (What::Forgotten { sealed: Some(sealed), .. }, 8) = (&event.what, tag) {
        put_since(out, first, sealed.0);
    }
}

fn take_event(reader: &mut Reader<'_>, first: u64, format: u8) -> Result<FenceEvent, Damage> {
    let tag = reader.byte()?;
    let at = Millis(reader.since(first)?);
    let token = Token(reader.since(first)?);
    let what = match tag {
        0 => What::Released,
        1 => What::Retried,
        2 => What::Recovered,
        3 => What::SealedLate,
        4 => What::SealRefused,
        5 | 6 => What::Resolved { by: reader.string()?, why: reader.string()?, sealed: tag == 6 },
        7 | 8 if format >= KEEPS_FORGOTTEN => What::Forgotten {
            by: reader.string()?,
            why: reader.string()?,
            sealed: (tag == 8).then(|| reader.since(first)).transpose()?.map(Millis),
        },
        _ => return Err(Damage("an event is unknown")),
    };
    Ok(FenceEvent { at, token, what })
}
