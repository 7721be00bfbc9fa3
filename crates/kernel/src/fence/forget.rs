//! Decides whether an outcome is given up, so that the effect may be had again.
//! Never gives up a claim that may still have its effect, nor a repetition that another one has followed.
//! Called only from `decide`.

use super::{AgainHead, Fence, Forget, Phase, Record, Reply, State, What, again, claim, seal};
use crate::{
    key::RowKey,
    law::Decision,
    row::{Rows, write},
    time::Millis,
};

/// See [`Command::Forget`](super::Command::Forget).
pub(crate) fn forget(forget: &Forget, rows: &impl Rows, now: Millis) -> Decision {
    let target = &forget.target;
    let Some(fence) = seal::live(target, rows, now) else {
        return Decision::reply(Reply::Forgotten { replay: true, exists: false });
    };
    let sealed = match &fence.state {
        State::Pending { .. } if fence.phase(now) == Phase::InDoubt => {
            return claim::doubt(rows, RowKey::fence(target.key), now);
        }
        // Also after the lease: its holder may still seal.
        State::Pending { lease_expires, held_by, .. } => {
            let (lease_expires, first_seen, held_by) = (*lease_expires, fence.first_seen, *held_by);
            return Decision::reply(Reply::InFlight { lease_expires, first_seen, held_by });
        }
        State::Sealed { at, .. } => Some(*at),
        State::Released { .. } => None,
    };
    if repeats(forget, fence) {
        return Decision::reply(Reply::Forgotten { replay: true, exists: true });
    }
    if forget.token.is_some_and(|token| token != fence.token) {
        return Decision::reply(Reply::FencedOff { current: None });
    }
    let head = target.seq.and_then(|seq| Some((seq, again::head(target, rows, now)?)));
    if let Some((seq, AgainHead { last, sealed, .. })) = head
        && seq < *last
    {
        return Decision::reply(Reply::SequenceGap { last: *last, sealed: *sealed });
    }
    let mut fence = fence.clone();
    let token = fence.token;
    fence.record(now, token, What::Forgotten { by: forget.by.clone(), why: forget.why.clone(), sealed });
    let freed = seal::free(target, fence, rows, now);
    let expires = freed.put.as_ref().and_then(|record| record.expires_at());
    let mut writes = vec![freed];
    // INVARIANT no-gap: the next number waits until this one is sealed again.
    if let Some((_, head)) = head {
        let head = AgainHead { last: head.last, sealed: false, expires };
        writes.push(write(rows, target.again_head(), Some(Record::AgainHead(head).into())));
    }
    Decision::new(writes, Reply::Forgotten { replay: false, exists: true })
}

// The same word again is a late repeat, also where the effect was had again since, unless it names that attempt by its token.
fn repeats(forget: &Forget, fence: &Fence) -> bool {
    let is_free = matches!(fence.state, State::Released { .. });
    let mut said = fence.events.iter().rev().filter_map(|event| match &event.what {
        What::Forgotten { by, why, .. } => Some((event.token, by, why)),
        What::Released
        | What::Retried
        | What::Recovered
        | What::SealedLate
        | What::SealRefused
        | What::Resolved { .. } => None,
    });
    match forget.token {
        Some(token) => said.any(|(known, ..)| known == token),
        None => {
            said.any(|(known, by, why)| (is_free && known == fence.token) || (*by == forget.by && *why == forget.why))
        }
    }
}
