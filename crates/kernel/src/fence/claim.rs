//! Decides who may act under a fence.
//! Never reads a clock: leases and expiry are judged against the caller's `now`.
//! Called only from `decide`.

use std::cmp::Ordering;

use super::{
    ClaimFence, Earlier, Fence, FenceEvent, Granted, HolderTrace, Mismatch, Phase, Record, Reply, Scope, State, Token,
    Version, What, again,
    decide::shared_fence_of,
    fence_of, forgotten_at,
    scope::{BodyMismatch, OnLapse},
};
use crate::{
    key::RowKey,
    law::Decision,
    row::{self, Rows, write},
    time::Millis,
};

/// The version a claim carries and the head it is judged by; none where it carries none.
pub(crate) fn version(claim: &ClaimFence) -> Option<(Version, RowKey)> {
    let target = &claim.target;
    let rule = target.scope.version.as_ref();
    // The claim's own source counts where the rule asks for it, or where there is no rule to ask.
    let per_source = target.scope.versions_per_source();
    let source = claim.source.as_ref().filter(|_| rule.is_none() || per_source);
    let named = match rule {
        Some(rule) => !rule.per.is_empty() && (source.is_some() || !per_source),
        None => source.is_some(),
    };
    let version = match (&claim.version, rule) {
        (Some(given), _) => given.clone(),
        // A field orders nothing unless all that names its source is there: unrelated events would make each other stale.
        (None, Some(rule)) if named => Version::from_field(target.field(&rule.field)?),
        (None, _) => return None,
    };
    // Names go with the values, in the order of the key's fields: the order in a policy file does not matter.
    // Without a named source, a key is its own, without its version field, which differs within it.
    let mut names: Vec<&str> = Vec::new();
    for (name, value) in target.fields.iter() {
        let counts = match rule {
            Some(rule) if named => rule.per.contains(name),
            Some(rule) => *name != rule.field,
            None => !named,
        };
        if counts {
            names.extend([name.as_str(), value.as_str()]);
        }
    }
    // An odd number of parts: no pair of a key field can be mistaken for a source.
    if let Some(source) = source {
        names.extend(["source", source.kind.as_str(), source.id.as_str()]);
    }
    Some((version, RowKey::version_head(&target.tenant, &target.scope.name, &names)))
}

pub(crate) fn claim(claim: &ClaimFence, rows: &impl Rows, now: Millis) -> Decision {
    let key = RowKey::fence(claim.target.key);
    let known = fence_of(rows, key);
    // A row that is past its expiry is as good as absent, but its token still counts.
    let live = known.filter(|fence| fence.phase(now) != Phase::Expired);
    // A retry that does not repeat its version is still an attempt at that version.
    let version = version(claim).or_else(|| live.and_then(|fence| fence.version.clone()));

    // The body is compared before the state: a wrong request must not wait for, or hide behind, a right one.
    let first = live.filter(|fence| !free(fence, now)).and_then(|fence| fence.body.as_ref());
    let differing = first.zip(claim.body.as_ref()).filter(|(a, b)| a.digest != b.digest);
    if let Some((first, second)) = differing
        && claim.target.scope.body_mismatch == BodyMismatch::Refuse
    {
        let effect_id = live.and_then(Fence::effect_id).map(str::to_owned);
        let mismatch = Mismatch { first: first.clone(), second: second.clone(), effect_id };
        return Decision::reply(Reply::Conflict(Box::new(mismatch)));
    }
    if let Some(refusal) = out_of_order(live, version.as_ref(), rows) {
        return Decision::reply(refusal);
    }
    if let Some(sealed) = shared_fence_of(rows, key).filter(|fence| fence.phase(now) == Phase::Sealed) {
        return Decision::reply(Reply::Duplicate { fence: sealed.clone(), body_differs: differing.is_some() });
    }
    if let Some(held) = live.and_then(|fence| in_flight(fence, now)) {
        return Decision::reply(held);
    }
    match live.map(|fence| fence.phase(now)) {
        Some(Phase::InDoubt) => doubt(rows, key, now),
        _ => match again::admit(&claim.target, live, rows, now) {
            Err(refusal) => *refusal,
            Ok(beside) => {
                let (fence, granted) = grant(claim, live, known.map(|fence| fence.token), version, now);
                let mut writes = vec![write(rows, key, Some(fence.into()))];
                writes.extend(beside);
                Decision::new(writes, Reply::New(granted))
            }
        },
    }
}

/// The reply to a caller while another holder has the fence; none where it is free.
pub(crate) fn in_flight(fence: &Fence, now: Millis) -> Option<Reply> {
    match fence.state {
        State::Pending { lease_expires, held_by, .. } if fence.phase(now) == Phase::Pending => {
            Some(Reply::InFlight { lease_expires, first_seen: fence.first_seen, held_by })
        }
        _ => None,
    }
}

/// Tells that a claim is in doubt.
/// INVARIANT told-doubt: once a caller was told of a doubt, it ends with an outcome or a person's decision, and never
/// with a renewal that was decided before and lands after. So the first reply moves the row, and from then on the row
/// says it.
pub(crate) fn doubt(rows: &impl Rows, key: RowKey, now: Millis) -> Decision {
    let Some(fence) = fence_of(rows, key) else { return Decision::reply(Reply::NotInDoubt) };
    let State::Pending { lease_expires, on_lapse, forget_at, doubted_at, held_by } = fence.state else {
        return Decision::reply(Reply::NotInDoubt);
    };
    let reply = Reply::InDoubt { since: lease_expires };
    if doubted_at.is_some() {
        return Decision::reply(reply);
    }
    let state = State::Pending { lease_expires, on_lapse, forget_at, doubted_at: Some(now), held_by };
    let marked = Fence { state, ..fence.clone() };
    Decision::new(vec![write(rows, key, Some(marked.into()))], reply)
}

// INVARIANT version-order: nothing runs for a version below the last sealed one of its source. A duplicate of a sealed key at
// its own version is still answered: its effect happened when it was in order. So is one of a key that was sealed without a
// version: a retry that names one only now must still get the receipt.
fn out_of_order(live: Option<&Fence>, version: Option<&(Version, RowKey)>, rows: &impl Rows) -> Option<Reply> {
    let (version, head) = version?;
    let Some(row::Record::Fence(Record::VersionHead(head))) = rows.row(head).map(|row| &row.record) else {
        return None;
    };
    let sealed = live.filter(|fence| matches!(fence.state, State::Sealed { .. }));
    if sealed.is_some_and(|fence| fence.version.as_ref().is_none_or(|(own, _)| own == version)) {
        return None;
    }
    match version.order(&head.version) {
        Some(Ordering::Less) => Some(Reply::Stale { sealed_version: head.version.clone() }),
        Some(_) => None,
        None => Some(Reply::Incomparable { sealed_version: head.version.clone() }),
    }
}

// INVARIANT growing-token: a token is higher than any given before for the key, also across expiry, when only the
// clock remembers. A zombie from an earlier life can never seal.
fn grant(
    claim: &ClaimFence,
    live: Option<&Fence>,
    last: Option<Token>,
    version: Option<(Version, RowKey)>,
    now: Millis,
) -> (Fence, Granted) {
    let token = Token(last.map_or(0, |token| token.0.saturating_add(1)).max(now.0));
    let recovering = live.and_then(|fence| unsettled(fence, now));
    let mut fence = match live {
        Some(earlier) => {
            let mut fence = earlier.clone();
            fence.attempt = fence.attempt.saturating_add(1);
            match &recovering {
                Some(earlier) => fence.record(now, earlier.token, What::Recovered),
                None => fence.record(now, token, What::Retried),
            }
            // A lapsed attempt may have had its effect: its body stays the one to compare with. A released one did not.
            if fence.body.is_none() || free(earlier, now) {
                fence.body = claim.body.clone();
            }
            fence
        }
        None => Fence {
            tenant: claim.target.tenant.clone(),
            scope: claim.target.scope.name.clone(),
            fields: claim.target.fields.clone(),
            seq: claim.target.seq,
            first_seen: now,
            token,
            attempt: 1,
            body: claim.body.clone(),
            source: None,
            version: None,
            state: pending(&claim.target.scope, token, claim.lease_ms, claim.trace, now),
            events: Vec::new(),
        },
    };
    fence.token = token;
    fence.source = claim.source.clone().or(fence.source);
    fence.version = version;
    fence.state = pending(&claim.target.scope, token, claim.lease_ms, claim.trace, now);
    let granted = Granted {
        token,
        attempt: fence.attempt,
        recovering,
        lease_expires: now.plus(claim.lease_ms),
        first_seen: fence.first_seen,
    };
    (fence, granted)
}

// Whether nothing happened under the key, so that its next claim may have another body: it was released, also by a
// holder whose lease had lapsed.
fn free(fence: &Fence, now: Millis) -> bool {
    fence.phase(now) == Phase::Released && unsettled(fence, now).is_none()
}

// The latest attempt that lapsed, unless its outcome was reported since. A later holder that recovered and then gave up
// spoke for itself only; the holder's own release and a person's resolution settle it.
fn unsettled(fence: &Fence, now: Millis) -> Option<Earlier> {
    match fence.state {
        State::Pending { lease_expires, .. } if fence.phase(now) == Phase::Lapsed => {
            Some(Earlier { token: fence.token, attempt: fence.attempt, lease_expired: lease_expires })
        }
        State::Released { .. } => {
            let told = |event: &&FenceEvent| {
                event.what.is_by_person() || matches!(event.what, What::Recovered | What::Retried)
            };
            let last = fence.events.iter().rev().find(told).filter(|event| event.what == What::Recovered)?;
            let since =
                || fence.events.iter().filter(|event| event.what == What::Recovered && event.token == last.token);
            let attempts = u32::try_from(since().count()).unwrap_or(u32::MAX);
            let noticed = since().next().map_or(last.at, |event| event.at);
            let attempt = fence.attempt.saturating_sub(attempts);
            Some(Earlier { token: last.token, attempt, lease_expired: noticed })
        }
        _ => None,
    }
}

/// A claim that runs until `lease_ms` from now.
pub(crate) fn pending(scope: &Scope, token: Token, lease_ms: u64, held_by: Option<HolderTrace>, now: Millis) -> State {
    let lease_expires = now.plus(lease_ms);
    let forget_at = match scope.on_lapse {
        OnLapse::Recover => Some(forgotten_at(token, lease_expires, scope.retain_ms)),
        OnLapse::Hold => None,
    };
    State::Pending { lease_expires, on_lapse: scope.on_lapse, forget_at, doubted_at: None, held_by }
}
