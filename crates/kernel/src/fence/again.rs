//! Deliberate repetitions: resend, rebook. Each has the next number of its effect's sequence, so that a
//! double-clicked resend sends once. Called only from `claim` and `seal`.

use super::{AgainHead, Fence, Phase, Record, Reply, Target, claim, fence_of};
use crate::{
    key::RowKey,
    law::Decision,
    row::{self, Rows, Write, write},
    time::Millis,
};

/// The rows that a repetition needs beside its own fence.
pub(crate) fn footprint(target: &Target, add: &mut impl FnMut(RowKey)) {
    if let Some(seq) = target.seq {
        add(target.again_head());
        if seq == 1 {
            add(RowKey::fence(target.base()));
        }
    }
}

/// Whether a claim that nothing else stops may run as this repetition, and the writes beside its own fence; or the
/// decision instead.
/// INVARIANT no-gap: number n+1 runs only when n is sealed, and no number below the last runs again.
pub(crate) fn admit(
    target: &Target,
    live: Option<&Fence>,
    rows: &impl Rows,
    now: Millis,
) -> Result<Vec<Write>, Box<Decision>> {
    let mut writes = Vec::new();
    let Some(seq) = target.seq else { return Ok(writes) };
    let (last, sealed) = head(target, rows, now).map_or((0, true), |head| (head.last, head.sealed));
    if seq < last || (seq == last && live.is_none() && sealed) {
        // Its receipt has expired but its number was used: it must not run again.
        return Err(Decision::reply(Reply::Stale { sealed_version: crate::Version::Integer(last.into()) }).into());
    }
    if seq > last && (seq != last + 1 || !sealed) {
        return Err(Decision::reply(Reply::SequenceGap { last, sealed }).into());
    }
    // The first repetition follows the effect itself, if it is remembered: an effect that is under way, in doubt,
    // lapsed or given back has not happened, or its outcome is unknown.
    if seq == 1
        && let Some(base) = fence_of(rows, RowKey::fence(target.base()))
    {
        if let Some(held) = claim::in_flight(base, now) {
            return Err(Decision::reply(held).into());
        }
        match base.phase(now) {
            Phase::InDoubt => return Err(claim::doubt(rows, RowKey::fence(target.base()), now).into()),
            Phase::Lapsed | Phase::Released if last == 0 => {
                return Err(Decision::reply(Reply::SequenceGap { last, sealed: false }).into());
            }
            // It runs because the first effect is forgotten: no later reply may remember that effect.
            Phase::Expired => {
                let over = base.over().map(row::Record::from);
                writes.extend(over.map(|over| write(rows, RowKey::fence(target.base()), Some(over))));
            }
            _ => {}
        }
    }
    let head = AgainHead { last: seq, sealed: false, expires: None };
    writes.push(write(rows, target.again_head(), Some(row::Record::Fence(Record::AgainHead(head)))));
    Ok(writes)
}

/// The head after a repetition was sealed.
pub(crate) fn sealed(target: &Target, rows: &impl Rows, expires: Millis, now: Millis) -> Option<Write> {
    let seq = target.seq?;
    let head = head(target, rows, now).filter(|head| head.last == seq)?;
    let head = AgainHead { last: head.last, sealed: true, expires: Some(expires) };
    Some(write(rows, target.again_head(), Some(row::Record::Fence(Record::AgainHead(head)))))
}

pub(crate) fn head<'r>(target: &Target, rows: &'r impl Rows, now: Millis) -> Option<&'r AgainHead> {
    let head = rows.row(&target.again_head())?.record.as_again_head()?;
    head.expires.is_none_or(|expires| expires > now).then_some(head)
}
