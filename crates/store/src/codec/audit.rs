//! The stored form of an entry of the audit. Its expiry comes first, so that a store can read it without the rest.
//! Never packs: its texts are short. Called only by the codec.

use fencepost_kernel::{
    Millis, Tenant,
    audit::{AuditEntry, Subject},
    fence::HolderTrace,
};

use super::wire::{Damage, Reader, put_str, put_uint};

const TENANT: u8 = 1;
const WHY: u8 = 2;
const TRACE: u8 = 4;

pub(super) fn put(out: &mut Vec<u8>, entry: &AuditEntry) {
    let AuditEntry { at, by, op, outcome, subject: Subject { tenant, on, why }, trace, expires } = entry;
    put_uint(out, expires.0);
    let flag = |set: bool, flag: u8| if set { flag } else { 0 };
    out.push(flag(tenant.is_some(), TENANT) | flag(why.is_some(), WHY) | flag(trace.is_some(), TRACE));
    put_uint(out, at.0);
    [by, op, outcome, on].into_iter().for_each(|text| put_str(out, text));
    if let Some(tenant) = tenant {
        put_str(out, tenant.as_str());
    }
    if let Some(why) = why {
        put_str(out, why);
    }
    if let Some(HolderTrace(trace)) = trace {
        out.extend_from_slice(trace);
    }
}

/// When the entry is dropped, from its first few bytes.
pub(super) fn take_expiry(reader: &mut Reader<'_>) -> Result<Millis, Damage> {
    reader.uint().map(Millis)
}

pub(super) fn take(reader: &mut Reader<'_>) -> Result<AuditEntry, Damage> {
    let expires = take_expiry(reader)?;
    let flags = reader.flags(TENANT | WHY | TRACE)?;
    let at = Millis(reader.uint()?);
    let [by, op, outcome, on] = [reader.string()?, reader.string()?, reader.string()?, reader.string()?];
    let tenant = (flags & TENANT != 0).then(|| reader.str().map(Tenant::new)).transpose()?;
    let why = (flags & WHY != 0).then(|| reader.string()).transpose()?;
    let trace = (flags & TRACE != 0).then(|| reader.array().map(HolderTrace)).transpose()?;
    Ok(AuditEntry { at, by, op, outcome, subject: Subject { tenant, on, why }, trace, expires })
}
