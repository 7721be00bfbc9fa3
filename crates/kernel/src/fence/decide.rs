//! The rows that a command about a fence needs, and its decision over them.
//! Never reads anything that was not loaded before, never reads a clock, cannot fail. Called only from `law`.

use std::sync::Arc;

use super::{
    Alias, ClaimFence, Command, Fence, Forget, Observe, Phase, PutAlias, Record, Release, Renew, Reply, Resolve,
    SIGHTINGS_MAX, Seal, State, Trace, again, claim, forget, scope::RETAIN_MS_DEFAULT, seal,
};
use crate::{
    key::{Kind, RowKey},
    law::{self, Decision, RowLock},
    row::{self, Rows, write},
    time::Millis,
};

pub(crate) fn footprint(command: &Command, add: &mut impl FnMut(RowKey)) {
    match command {
        Command::Claim(claim) => {
            add(RowKey::fence(claim.target.key));
            again::footprint(&claim.target, add);
            if let Some((_, head)) = claim::version(claim) {
                add(head);
            }
        }
        Command::Seal(Seal { target, .. })
        | Command::Renew(Renew { target, .. })
        | Command::Release(Release { target, .. })
        | Command::Resolve(Resolve { target, .. })
        | Command::Forget(Forget { target, .. }) => {
            add(RowKey::fence(target.key));
            again::footprint(target, add);
        }
        Command::PutAlias(put) => {
            add(RowKey::fence(put.target.key));
            add(RowKey::alias(&put.target.tenant, &put.name));
        }
        Command::Observe(observe) => {
            add(RowKey::fence(observe.key));
            add(RowKey::trace(observe.key));
        }
    }
}

pub(crate) fn follow(command: &Command, rows: &impl Rows, add: &mut impl FnMut(RowKey)) {
    match command {
        // A retry that does not repeat its version is judged by the one that it claimed with.
        Command::Claim(claim) if claim::version(claim).is_some() => {}
        Command::Claim(ClaimFence { target, .. })
        | Command::Seal(Seal { target, .. })
        | Command::Resolve(Resolve { target, .. }) => {
            let fence = fence_of(rows, RowKey::fence(target.key));
            if let Some((_, head)) = fence.and_then(|fence| fence.version.as_ref()) {
                add(*head);
            }
        }
        Command::Renew(_) | Command::Release(_) | Command::Forget(_) | Command::PutAlias(_) | Command::Observe(_) => {}
    }
}

// Two callers who claim the same fence wait for each other at that fence, and a seal goes from its fence to the heads. So a claim
// holds no head while it waits for a fence. The base of a repetition is a fence as well and is locked with it, in key order. The
// other rows that a claim reads are as old or older: a write of one is compared, and a version head that it only judges by is
// locked last.
pub(crate) fn row_lock(command: &Command, key: &RowKey) -> RowLock {
    match command {
        Command::Claim(_) if key.kind == Kind::Fence => RowLock::OnRead,
        Command::Claim(_) if key.kind == Kind::VersionHead => RowLock::AfterWrites,
        Command::Claim(_) => RowLock::Never,
        Command::Seal(_)
        | Command::Renew(_)
        | Command::Release(_)
        | Command::Resolve(_)
        | Command::Forget(_)
        | Command::PutAlias(_)
        | Command::Observe(_) => RowLock::OnRead,
    }
}

pub(crate) fn decide(command: &Command, rows: &impl Rows, now: Millis) -> Decision {
    match command {
        Command::Claim(claim) => claim::claim(claim, rows, now),
        Command::Seal(seal) => seal::seal(seal, rows, now),
        Command::Renew(renew) => seal::renew(renew, rows, now),
        Command::Release(release) => seal::release(release, rows, now),
        Command::Resolve(resolve) => seal::resolve(resolve, rows, now),
        Command::Forget(forget) => forget::forget(forget, rows, now),
        Command::PutAlias(put) => put_alias(put, rows, now),
        Command::Observe(observe) => self::observe(observe, rows, now),
    }
}

/// The fence in a row, expired or not.
pub(crate) fn fence_of(rows: &impl Rows, key: RowKey) -> Option<&Fence> {
    shared_fence_of(rows, key).map(Arc::as_ref)
}

/// The same, for a reply that outlives the rows.
pub(crate) fn shared_fence_of(rows: &impl Rows, key: RowKey) -> Option<&Arc<Fence>> {
    rows.row(&key)?.record.as_fence()
}

fn put_alias(put: &PutAlias, rows: &impl Rows, now: Millis) -> Decision {
    let sealed = fence_of(rows, RowKey::fence(put.target.key)).filter(|fence| fence.phase(now) == Phase::Sealed);
    let Some(Fence { state: State::Sealed { receipt, .. }, .. }) = sealed else {
        return Decision::reply(Reply::NotSealed);
    };
    let key = RowKey::alias(&put.target.tenant, &put.name);
    if let Some(known) = rows.row(&key).and_then(|row| row.record.as_alias())
        && known.target == put.target.key
        && known.receipt == *receipt
    {
        return Decision::reply(Reply::Aliased { replay: true, alias: known.clone() });
    }
    let alias = Arc::new(Alias {
        tenant: put.target.tenant.clone(),
        name: put.name.clone(),
        scope: put.target.scope.name.to_string(),
        target: put.target.key,
        receipt: receipt.clone(),
        at: now,
    });
    let writes = vec![write(rows, key, Some(row::Record::Fence(Record::Alias(alias.clone()))))];
    Decision::new(writes, Reply::Aliased { replay: false, alias })
}

fn observe(observe: &Observe, rows: &impl Rows, now: Millis) -> Decision {
    let fence = fence_of(rows, RowKey::fence(observe.key)).filter(|fence| fence.phase(now) != Phase::Expired);
    let Some(fence) = fence else { return Decision::reply(law::Reply::Done) };
    let key = RowKey::trace(observe.key);
    // A trace of an earlier life of the key says nothing about this one.
    let known = rows.row(&key).and_then(|row| row.record.as_trace());
    let known = known.filter(|trace| trace.first_seen == fence.first_seen);
    let mut trace =
        known.map_or_else(|| Trace { first_seen: fence.first_seen, ..Trace::default() }, |trace| Trace::clone(trace));
    trace.replays += observe.replays;
    trace.conflicts += observe.conflicts;
    trace.body_mismatches += observe.body_mismatches;
    trace.recent.extend_from_slice(&observe.recent);
    let surplus = trace.recent.len().saturating_sub(SIGHTINGS_MAX);
    trace.recent.drain(..surplus);
    // Beside a doubt, which never goes by itself, the counts still do: one sighting must not stay for ever.
    trace.expires = fence.expires_at().or(Some(now.plus(RETAIN_MS_DEFAULT)));
    Decision::new(vec![write(rows, key, Some(row::Record::Fence(Record::Trace(trace.into()))))], law::Reply::Done)
}
