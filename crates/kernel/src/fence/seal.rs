//! The acts of a token's holder (seal, renew, release), and a person's resolution in its place.
//! Never trusts a token but the latest, and never changes a sealed receipt. Called only from `decide`.

use std::{cmp::Ordering, sync::Arc};

use bytes::Bytes;

use super::{
    DoubtOutcome, Fence, Phase, REFUSALS_MAX, Receipt, Record, Release, Renew, Reply, Resolve, Seal, State, Target,
    Token, Version, VersionHead, What, again, claim, fence_of, forgotten_at,
};
use crate::{
    key::RowKey,
    law::Decision,
    row::{self, Rows, Write, write},
    time::Millis,
};

/// See [`Command::Seal`].
/// INVARIANT one-seal: a sealed receipt never changes within its retention.
pub(crate) fn seal(seal: &Seal, rows: &impl Rows, now: Millis) -> Decision {
    let Some(fence) = live(&seal.target, rows, now) else {
        return fenced_off(&seal.target, seal.token, rows, now);
    };
    if fence.token != seal.token {
        return refuse(&seal.target, fence, seal.token, rows, now);
    }
    match &fence.state {
        State::Sealed { receipt, at, expires } => {
            let same = receipt.effect_id == seal.effect_id && receipt.body == seal.receipt;
            Decision::reply(if same {
                let (at, expires, first_seen, source) = (*at, *expires, fence.first_seen, fence.source.clone());
                Reply::Sealed { replay: true, at, expires, first_seen, source }
            } else {
                Reply::SealConflict { effect_id: receipt.effect_id.clone() }
            })
        }
        // Giving up a claim is final for its token, also where a person gave it up in the holder's name.
        State::Released { .. } => refuse(&seal.target, fence, seal.token, rows, now),
        State::Pending { .. } => {
            let mut fence = fence.clone();
            // Late, but no other caller has been let in since: the holder's word is the best there is.
            if fence.phase(now) != Phase::Pending {
                fence.record(now, seal.token, What::SealedLate);
            }
            settle(&seal.target, fence, &seal.effect_id, seal.receipt.clone(), rows, now)
        }
    }
}

pub(crate) fn renew(renew: &Renew, rows: &impl Rows, now: Millis) -> Decision {
    let Some(fence) = live(&renew.target, rows, now).filter(|fence| fence.token == renew.token) else {
        return fenced_off(&renew.target, renew.token, rows, now);
    };
    match (fence.phase(now), &fence.state) {
        (Phase::Pending | Phase::Lapsed, State::Pending { held_by, .. }) => {
            let mut fence = fence.clone();
            fence.state = claim::pending(&renew.target.scope, renew.token, renew.lease_ms, *held_by, now);
            let writes = vec![write(rows, RowKey::fence(renew.target.key), Some(fence.into()))];
            Decision::new(writes, Reply::Renewed { lease_expires: now.plus(renew.lease_ms) })
        }
        // A person may already be looking at this doubt: only an outcome ends it.
        (_, State::Pending { .. }) => claim::doubt(rows, RowKey::fence(renew.target.key), now),
        _ => Decision::reply(Reply::FencedOff { current: None }),
    }
}

pub(crate) fn release(release: &Release, rows: &impl Rows, now: Millis) -> Decision {
    let Some(fence) = live(&release.target, rows, now).filter(|fence| fence.token == release.token) else {
        return fenced_off(&release.target, release.token, rows, now);
    };
    match &fence.state {
        State::Released { .. } => Decision::reply(Reply::Released { replay: true }),
        State::Sealed { .. } => Decision::reply(Reply::FencedOff { current: None }),
        State::Pending { .. } => {
            let mut fence = fence.clone();
            fence.record(now, release.token, What::Released);
            Decision::new(vec![free(&release.target, fence, rows, now)], Reply::Released { replay: false })
        }
    }
}

pub(crate) fn resolve(resolve: &Resolve, rows: &impl Rows, now: Millis) -> Decision {
    let Some(fence) = live(&resolve.target, rows, now) else {
        return Decision::reply(Reply::NotInDoubt);
    };
    let sealed = matches!(resolve.outcome, DoubtOutcome::Sealed { .. });
    if fence.phase(now) != Phase::InDoubt || resolve.token.is_some_and(|token| token != fence.token) {
        return Decision::reply(if repeats(fence, &resolve.outcome) {
            Reply::Resolved { replay: true }
        } else {
            Reply::NotInDoubt
        });
    }
    // The same word again is a late repeat of the one that ended an earlier doubt, unless it names this one by its token.
    let said = What::Resolved { by: resolve.by.clone(), why: resolve.why.clone(), sealed };
    if resolve.token.is_none() && fence.events.iter().any(|event| event.what == said) {
        return Decision::reply(Reply::Resolved { replay: true });
    }
    let mut fence = fence.clone();
    let token = fence.token;
    fence.record(now, token, said);
    let reply = Reply::Resolved { replay: false };
    match &resolve.outcome {
        DoubtOutcome::Sealed { effect_id, receipt } => {
            let sealed = settle(&resolve.target, fence, effect_id, receipt.clone(), rows, now);
            Decision { reply: reply.into(), ..sealed }
        }
        DoubtOutcome::Released => Decision::new(vec![free(&resolve.target, fence, rows, now)], reply),
    }
}

// A repeat of the word that ended the doubt is answered as done; another receipt is another word.
fn repeats(fence: &Fence, outcome: &DoubtOutcome) -> bool {
    let last = fence.events.iter().rev().find_map(|event| match event.what {
        What::Resolved { sealed, .. } => Some(sealed),
        _ => None,
    });
    match (last, outcome, &fence.state) {
        (Some(true), DoubtOutcome::Sealed { effect_id, receipt: body }, State::Sealed { receipt, .. }) => {
            receipt.effect_id == *effect_id && receipt.body == *body
        }
        (Some(false), DoubtOutcome::Released, _) => true,
        _ => false,
    }
}

pub(crate) fn live<'r>(target: &Target, rows: &'r impl Rows, now: Millis) -> Option<&'r Fence> {
    fence_of(rows, RowKey::fence(target.key)).filter(|fence| fence.phase(now) != Phase::Expired)
}

// INVARIANT final-refusal: a holder that was told that its claim is over is never let back in. On another node a
// command of the same holder may have been decided before the expiry and land only now: the refusal moves the row, so
// that it cannot. The row itself stays for as long as any that is over: a claim that guesses that there is none must
// still find it.
fn fenced_off(target: &Target, token: Token, rows: &impl Rows, now: Millis) -> Decision {
    let key = RowKey::fence(target.key);
    let reply = Reply::FencedOff { current: live(target, rows, now).and_then(holder) };
    let own = fence_of(rows, key).filter(|fence| fence.token == token && fence.phase(now) == Phase::Expired);
    match own.and_then(Fence::over) {
        Some(over) => Decision::new(vec![write(rows, key, Some(over.into()))], reply),
        None => Decision::reply(reply),
    }
}

fn holder(fence: &Fence) -> Option<Token> {
    matches!(fence.state, State::Pending { .. }).then_some(fence.token)
}

// A refused seal is worth a line in the history: it may be the only sign of an effect that was not recorded.
fn refuse(target: &Target, fence: &Fence, token: Token, rows: &impl Rows, now: Millis) -> Decision {
    let reply = Reply::FencedOff { current: holder(fence) };
    let refused = fence.events.iter().filter(|event| event.what == What::SealRefused).collect::<Vec<_>>();
    // A token that was never given leaves no trace.
    let given = token <= fence.token;
    if !given || refused.len() >= REFUSALS_MAX || refused.iter().any(|event| event.token == token) {
        return Decision::reply(reply);
    }
    let mut fence = fence.clone();
    fence.record(now, token, What::SealRefused);
    Decision::new(vec![write(rows, RowKey::fence(target.key), Some(fence.into()))], reply)
}

fn settle(target: &Target, mut fence: Fence, effect_id: &str, body: Bytes, rows: &impl Rows, now: Millis) -> Decision {
    let expires = forgotten_at(fence.token, now, target.scope.retain_ms);
    fence.state = State::Sealed { receipt: Receipt { effect_id: effect_id.to_owned(), body }, at: now, expires };
    let (first_seen, source) = (fence.first_seen, fence.source.clone());
    let version = fence.version.clone();
    let mut writes = vec![write(rows, RowKey::fence(target.key), Some(fence.into()))];
    writes.extend(again::sealed(target, rows, expires, now));
    let mut decision = Decision::new(writes, Reply::Sealed { replay: false, at: now, expires, first_seen, source });
    if let Some((version, key)) = version {
        raise_head(&mut decision, version, key, rows);
    }
    decision
}

// A head that is as high already is left alone, and held: a store that lost it in a failover must not take this seal for one
// whose version is kept.
fn raise_head(decision: &mut Decision, version: Version, key: RowKey, rows: &impl Rows) {
    let known = rows.row(&key).and_then(|row| Some((row.record.as_version_head()?, row.revision)));
    match known.filter(|(head, _)| version.order(&head.version) != Some(Ordering::Greater)) {
        Some((_, revision)) => decision.also.held.push((key, Some(revision))),
        None => decision.writes.push(write(rows, key, Some(Record::VersionHead(VersionHead { version }).into()))),
    }
}

pub(crate) fn free(target: &Target, mut fence: Fence, rows: &impl Rows, now: Millis) -> Write {
    let expires = forgotten_at(fence.token, now, target.scope.retain_ms);
    fence.state = State::Released { at: now, expires };
    write(rows, RowKey::fence(target.key), Some(fence.into()))
}

/// Seals a claim in the decision that makes it: its effect is in our own store, in the same commit. Returns until when it
/// answers duplicates.
pub(crate) fn seal_claimed(decision: &mut Decision, receipt: Receipt, retain_ms: u64, now: Millis) -> Millis {
    for put in decision.writes.iter_mut().filter_map(|write| write.put.as_mut()) {
        if let row::Record::Fence(Record::Fence(fence)) = put {
            let fence = Arc::make_mut(fence);
            let expires = forgotten_at(fence.token, now, retain_ms);
            fence.state = State::Sealed { receipt, at: now, expires };
            return expires;
        }
    }
    now
}
