//! The stored forms of the rows about items: item, replaced version, quarantine, waiting item and arrival. They came with
//! format 6. The times that a store reads without the rest come first: when a row expires, and when it is due.
//! Never reads an item's content: long content is packed where that pays, all other is shared with the row it came from.
//! Called only by the codec.

use std::sync::Arc;

use bytes::Bytes;
use fencepost_kernel::{
    Millis, Tenant,
    item::{
        Accepted, Arrival, Item, ItemId, ItemVersion, Missing, Quarantined, Replaced, Retired, Retirement, Sent,
        StayEnd, StayOutcome, Waiting,
    },
};

use super::{
    fence::{put_i128, take_i128},
    pack,
    wire::{Damage, Reader, put_since, put_str, put_uint},
};

/// Shorter content is kept as it is: items are read far more often than they are written.
const PACK_BYTES_MIN: usize = 1 << 10;

// Of every row with content.
const PACKED: u8 = 1;
const VERSION: u8 = 2;
// Of an accepted version.
const RETIRED: u8 = 4;
// Of an item.
const CURRENT: u8 = 8;
const FLOOR: u8 = 16;
const QUARANTINED: u8 = 32;
const WANTED: u8 = 64;
// Of a quarantine.
const RESOLVED: u8 = 4;

pub(super) fn put_item(out: &mut Vec<u8>, item: &Item) {
    let Item { tenant, collection, source_id, current, floor, seq, quarantine, wanted } = item;
    let packed = current.as_ref().and_then(|accepted| pack(&accepted.content));
    out.push(
        current.as_ref().map_or(0, |accepted| CURRENT | accepted_flags(accepted, packed.as_deref()))
            | flag(floor.is_some(), FLOOR)
            | flag(quarantine.is_some(), QUARANTINED)
            | flag(*wanted, WANTED),
    );
    put_name(out, tenant, collection, source_id);
    put_uint(out, *seq);
    if let Some(floor) = floor {
        put_version(out, floor);
    }
    if let Some(number) = quarantine {
        put_uint(out, *number);
    }
    if let Some(accepted) = current {
        put_accepted(out, accepted, packed.as_deref());
    }
}

pub(super) fn take_item(reader: &mut Reader<'_>, whole: &Bytes) -> Result<Item, Damage> {
    let flags = reader.flags(PACKED | VERSION | RETIRED | CURRENT | FLOOR | QUARANTINED | WANTED)?;
    let (tenant, collection, source_id) = take_name(reader)?;
    let seq = reader.uint()?;
    let floor = (flags & FLOOR != 0).then(|| take_version(reader)).transpose()?;
    let quarantine = (flags & QUARANTINED != 0).then(|| reader.uint()).transpose()?;
    let current = (flags & CURRENT != 0).then(|| take_accepted(reader, whole, flags)).transpose()?;
    Ok(Item { tenant, collection, source_id, current, floor, seq, quarantine, wanted: flags & WANTED != 0 })
}

pub(super) fn put_replaced(out: &mut Vec<u8>, replaced: &Replaced) {
    let Replaced { tenant, collection, source_id, accepted, replaced_at } = replaced;
    let packed = pack(&accepted.content);
    out.push(accepted_flags(accepted, packed.as_deref()));
    put_name(out, tenant, collection, source_id);
    put_accepted(out, accepted, packed.as_deref());
    put_since(out, accepted.from.at.0, replaced_at.0);
}

pub(super) fn take_replaced(reader: &mut Reader<'_>, whole: &Bytes) -> Result<Replaced, Damage> {
    let flags = reader.flags(PACKED | VERSION | RETIRED)?;
    let (tenant, collection, source_id) = take_name(reader)?;
    let accepted = take_accepted(reader, whole, flags)?;
    let replaced_at = Millis(reader.since(accepted.from.at.0)?);
    Ok(Replaced { tenant, collection, source_id, accepted, replaced_at })
}

pub(super) fn put_quarantined(out: &mut Vec<u8>, quarantined: &Quarantined) {
    let Quarantined { tenant, collection, source_id, number, version, content, from, opened, unresolved, resolved } =
        quarantined;
    let packed = pack(content);
    let since = opened.0;
    out.push(flag(packed.is_some(), PACKED) | flag(version.is_some(), VERSION) | flag(resolved.is_some(), RESOLVED));
    put_uint(out, since);
    if let Some(resolved) = resolved {
        put_since(out, since, resolved.expires.0);
    }
    put_name(out, tenant, collection, source_id);
    put_since(out, since, *number);
    if let Some(version) = version {
        put_version(out, version);
    }
    put_sent(out, since, from);
    put_uint(out, unresolved.len() as u64);
    unresolved.iter().for_each(|missing| put_missing(out, missing));
    if let Some(StayEnd { how, from, expires: _ }) = resolved {
        out.push(match how {
            StayOutcome::Accepted => 0,
            StayOutcome::Released => 1,
            StayOutcome::Withdrawn => 2,
        });
        put_sent(out, since, from);
    }
    pack::put(out, content, packed.as_deref());
}

fn take_stay(reader: &mut Reader<'_>) -> Result<(u8, u64, Option<Millis>), Damage> {
    let flags = reader.flags(PACKED | VERSION | RESOLVED)?;
    let opened = reader.uint()?;
    let expires = (flags & RESOLVED != 0).then(|| reader.since(opened)).transpose()?.map(Millis);
    Ok((flags, opened, expires))
}

/// When the row of a quarantine expires and when it is due, from its first few bytes.
pub(super) fn take_quarantined_head(reader: &mut Reader<'_>) -> Result<(Option<Millis>, Option<Millis>), Damage> {
    let (_, opened, expires) = take_stay(reader)?;
    Ok((expires, expires.is_none().then_some(Millis(opened))))
}

pub(super) fn take_quarantined(reader: &mut Reader<'_>, whole: &Bytes) -> Result<Quarantined, Damage> {
    let (flags, since, expires) = take_stay(reader)?;
    let (tenant, collection, source_id) = take_name(reader)?;
    let number = reader.since(since)?;
    let version = (flags & VERSION != 0).then(|| take_version(reader)).transpose()?;
    let from = take_sent(reader, since)?;
    let unresolved = (0..reader.count()?).map(|_| take_missing(reader)).collect::<Result<_, _>>()?;
    let resolved = expires.map(|expires| take_resolved(reader, since, expires)).transpose()?;
    let content = pack::take(reader, whole, flags & PACKED != 0)?;
    let opened = Millis(since);
    Ok(Quarantined { tenant, collection, source_id, number, version, content, from, opened, unresolved, resolved })
}

pub(super) fn put_missing(out: &mut Vec<u8>, Missing { collection, source_id, reason }: &Missing) {
    [&**collection, source_id, reason].into_iter().for_each(|text| put_str(out, text));
}

pub(super) fn take_missing(reader: &mut Reader<'_>) -> Result<Missing, Damage> {
    Ok(Missing { collection: take_shared(reader)?, source_id: reader.string()?, reason: take_shared(reader)? })
}

fn take_resolved(reader: &mut Reader<'_>, since: u64, expires: Millis) -> Result<StayEnd, Damage> {
    let how = match reader.byte()? {
        0 => StayOutcome::Accepted,
        1 => StayOutcome::Released,
        2 => StayOutcome::Withdrawn,
        _ => return Err(Damage("what ended a quarantine is unknown")),
    };
    Ok(StayEnd { how, from: take_sent(reader, since)?, expires })
}

pub(super) fn put_waiting(out: &mut Vec<u8>, Waiting { tenant, missing, item }: &Waiting) {
    put_str(out, tenant.as_str());
    out.extend_from_slice(&missing.0);
    out.extend_from_slice(&item.0);
}

pub(super) fn take_waiting(reader: &mut Reader<'_>) -> Result<Waiting, Damage> {
    let tenant = Tenant::new(reader.str()?);
    Ok(Waiting { tenant, missing: ItemId(reader.array()?), item: ItemId(reader.array()?) })
}

pub(super) fn put_arrival(out: &mut Vec<u8>, Arrival { tenant, collection, source_id, at }: &Arrival) {
    put_uint(out, at.0);
    put_name(out, tenant, collection, source_id);
}

/// When an arrival is due, from its first few bytes.
pub(super) fn take_arrival_due(reader: &mut Reader<'_>) -> Result<Millis, Damage> {
    reader.uint().map(Millis)
}

pub(super) fn take_arrival(reader: &mut Reader<'_>) -> Result<Arrival, Damage> {
    let at = take_arrival_due(reader)?;
    let (tenant, collection, source_id) = take_name(reader)?;
    Ok(Arrival { tenant, collection, source_id, at })
}

fn accepted_flags(accepted: &Accepted, packed: Option<&[u8]>) -> u8 {
    flag(packed.is_some(), PACKED)
        | flag(accepted.version.is_some(), VERSION)
        | flag(accepted.retired.is_some(), RETIRED)
}

fn put_accepted(out: &mut Vec<u8>, accepted: &Accepted, packed: Option<&[u8]>) {
    let Accepted { version, content, from, retired } = accepted;
    put_sent(out, 0, from);
    if let Some(version) = version {
        put_version(out, version);
    }
    if let Some(Retired { cause, from: sent }) = retired {
        out.push(match cause {
            Retirement::Deleted => 0,
            Retirement::Cancelled => 1,
            Retirement::Unlisted => 2,
        });
        put_sent(out, from.at.0, sent);
    }
    pack::put(out, content, packed);
}

fn take_accepted(reader: &mut Reader<'_>, whole: &Bytes, flags: u8) -> Result<Accepted, Damage> {
    let from = take_sent(reader, 0)?;
    let version = (flags & VERSION != 0).then(|| take_version(reader)).transpose()?;
    let retired = (flags & RETIRED != 0).then(|| take_retired(reader, from.at.0)).transpose()?;
    Ok(Accepted { version, content: pack::take(reader, whole, flags & PACKED != 0)?, from, retired })
}

fn take_retired(reader: &mut Reader<'_>, since: u64) -> Result<Retired, Damage> {
    let cause = match reader.byte()? {
        0 => Retirement::Deleted,
        1 => Retirement::Cancelled,
        2 => Retirement::Unlisted,
        _ => return Err(Damage("why an item ended is unknown")),
    };
    Ok(Retired { cause, from: take_sent(reader, since)? })
}

fn put_sent(out: &mut Vec<u8>, since: u64, Sent { at, by, correlation_id }: &Sent) {
    put_since(out, since, at.0);
    put_str(out, by);
    put_str(out, correlation_id);
}

fn take_sent(reader: &mut Reader<'_>, since: u64) -> Result<Sent, Damage> {
    Ok(Sent { at: Millis(reader.since(since)?), by: take_shared(reader)?, correlation_id: take_shared(reader)? })
}

fn put_name(out: &mut Vec<u8>, tenant: &Tenant, collection: &str, source_id: &str) {
    [tenant.as_str(), collection, source_id].into_iter().for_each(|text| put_str(out, text));
}

fn take_name(reader: &mut Reader<'_>) -> Result<(Tenant, Arc<str>, String), Damage> {
    Ok((Tenant::new(reader.str()?), take_shared(reader)?, reader.string()?))
}

pub(super) fn take_shared(reader: &mut Reader<'_>) -> Result<Arc<str>, Damage> {
    reader.str().map(Arc::from)
}

const INTEGER: u8 = 0;
const TIME: u8 = 1;
const DOTTED: u8 = 2;
const TEXT: u8 = 3;

fn put_version(out: &mut Vec<u8>, version: &ItemVersion) {
    let (tag, text) = match version {
        ItemVersion::Integer(number) => {
            out.push(INTEGER);
            return put_i128(out, *number);
        }
        ItemVersion::Time(text) => (TIME, text),
        ItemVersion::Dotted(text) => (DOTTED, text),
        ItemVersion::Text(text) => (TEXT, text),
    };
    out.push(tag);
    put_str(out, text);
}

// A text that is not of its form would have no order beside others of it.
fn take_version(reader: &mut Reader<'_>) -> Result<ItemVersion, Damage> {
    match reader.byte()? {
        INTEGER => take_i128(reader).map(ItemVersion::Integer),
        TIME => ItemVersion::time(reader.str()?).ok_or(Damage("a version is not the time that it claims to be")),
        DOTTED => ItemVersion::dotted(reader.str()?).ok_or(Damage("a version is not as dotted as it claims to be")),
        TEXT => reader.string().map(ItemVersion::Text),
        _ => Err(Damage("the form of a version is unknown")),
    }
}

fn pack(content: &Bytes) -> Option<Vec<u8>> {
    if content.len() < PACK_BYTES_MIN { None } else { pack::pack(content) }
}

fn flag(set: bool, flag: u8) -> u8 {
    if set { flag } else { 0 }
}
