//! The stored forms of the rows beside a fence: version head, again head, alias and trace.
//! Never needs another row to decode one. Called only by the codec.

use bytes::Bytes;
use fencepost_kernel::{
    FenceKey, Millis, Tenant, Version,
    fence::{AgainHead, Alias, Sighting, Trace, VersionHead},
};

use super::{
    COUNTS_OTHER_BODIES, PACKS_RECEIPTS,
    fence::{put_receipt, put_version, take_i128, take_receipt},
    pack,
    wire::{Damage, Reader, put_since, put_str, put_uint},
};

pub(super) fn put_version_head(out: &mut Vec<u8>, head: &VersionHead) {
    out.push(u8::from(matches!(head.version, Version::Text(_))));
    put_version(out, &head.version);
}

pub(super) fn take_version_head(reader: &mut Reader<'_>) -> Result<VersionHead, Damage> {
    let version = match reader.byte()? {
        0 => Version::Integer(take_i128(reader)?),
        1 => Version::Text(reader.string()?),
        _ => return Err(Damage("a version is neither a number nor a text")),
    };
    Ok(VersionHead { version })
}

pub(super) fn put_again_head(out: &mut Vec<u8>, head: &AgainHead) {
    out.push(u8::from(head.sealed) | u8::from(head.expires.is_some()) << 1);
    put_uint(out, head.last);
    if let Some(expires) = head.expires {
        put_uint(out, expires.0);
    }
}

pub(super) fn take_again_head(reader: &mut Reader<'_>) -> Result<AgainHead, Damage> {
    let flags = reader.flags(3)?;
    let last = reader.uint()?;
    let expires = (flags & 2 != 0).then(|| reader.uint()).transpose()?.map(Millis);
    Ok(AgainHead { last, sealed: flags & 1 != 0, expires })
}

// From format 2 on, the first byte of an alias says whether its receipt is packed.
pub(super) fn put_alias(out: &mut Vec<u8>, alias: &Alias, format: u8) {
    let mut packed = None;
    if format >= PACKS_RECEIPTS {
        packed = pack::pack(&alias.receipt.body);
        out.push(u8::from(packed.is_some()));
    }
    put_uint(out, alias.at.0);
    put_str(out, alias.tenant.as_str());
    put_str(out, &alias.scope);
    put_str(out, &alias.name);
    out.extend_from_slice(&alias.target.0);
    put_receipt(out, &alias.receipt, packed.as_deref());
}

pub(super) fn take_alias(reader: &mut Reader<'_>, whole: &Bytes, format: u8) -> Result<Alias, Damage> {
    let packed = format >= PACKS_RECEIPTS && reader.flags(1)? != 0;
    let at = Millis(reader.uint()?);
    let tenant = Tenant::new(reader.str()?);
    let scope = reader.string()?;
    let name = reader.string()?;
    let target = FenceKey(reader.array()?);
    Ok(Alias { tenant, name, scope, target, receipt: take_receipt(reader, whole, packed)?, at })
}

pub(super) fn put_trace(out: &mut Vec<u8>, trace: &Trace, format: u8) {
    let first = trace.first_seen.0;
    out.push(u8::from(trace.expires.is_some()));
    put_uint(out, first);
    if let Some(expires) = trace.expires {
        put_since(out, first, expires.0);
    }
    put_uint(out, trace.replays);
    put_uint(out, trace.conflicts);
    if format >= COUNTS_OTHER_BODIES {
        put_uint(out, trace.body_mismatches);
    }
    put_uint(out, trace.recent.len() as u64);
    for (at, sighting) in &trace.recent {
        let known = if format < COUNTS_OTHER_BODIES && *sighting == Sighting::OtherBody {
            Sighting::Duplicate
        } else {
            *sighting
        };
        out.push(known as u8);
        put_since(out, first, at.0);
    }
}

fn take_trace_times(reader: &mut Reader<'_>) -> Result<(u64, Option<Millis>), Damage> {
    let expires = reader.flags(1)? != 0;
    let first = reader.uint()?;
    let expires = expires.then(|| reader.since(first)).transpose()?.map(Millis);
    Ok((first, expires))
}

/// When the trace expires, from its first few bytes.
pub(super) fn take_trace_expiry(reader: &mut Reader<'_>) -> Result<Option<Millis>, Damage> {
    take_trace_times(reader).map(|(_, expires)| expires)
}

pub(super) fn take_trace(reader: &mut Reader<'_>, format: u8) -> Result<Trace, Damage> {
    let (first, expires) = take_trace_times(reader)?;
    let replays = reader.uint()?;
    let conflicts = reader.uint()?;
    let body_mismatches = if format >= COUNTS_OTHER_BODIES { reader.uint()? } else { 0 };
    let count = reader.count()?;
    let mut recent = Vec::with_capacity(count);
    for _ in 0..count {
        let sighting = sighting(reader.byte()?, format)?;
        recent.push((Millis(reader.since(first)?), sighting));
    }
    Ok(Trace { first_seen: Millis(first), replays, conflicts, body_mismatches, recent, expires })
}

fn sighting(number: u8, format: u8) -> Result<Sighting, Damage> {
    use Sighting::{Conflict, Duplicate, InDoubt, InFlight, OtherBody, Stale};
    [Duplicate, Conflict, InFlight, Stale, InDoubt, OtherBody]
        .into_iter()
        .filter(|sighting| format >= COUNTS_OTHER_BODIES || *sighting != OtherBody)
        .find(|sighting| *sighting as u8 == number)
        .ok_or(Damage("a sighting is unknown"))
}
