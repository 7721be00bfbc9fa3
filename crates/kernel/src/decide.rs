//! The one entrance: which rows a command needs, and what follows from them.
//! Never reads anything that was not loaded before, never reads a clock, cannot fail.
//! Called from the commit loop, and over a synced snapshot for answers that write nothing.

use std::sync::Arc;

use crate::{
    again, claim,
    command::{Also, Command, Decision, Observe, PutAlias, Reply, Rows, Write},
    dispatch,
    fence::{Alias, Fence, Phase, Record, SIGHTINGS_MAX, State, Trace},
    key::RowKey,
    scope::RETAIN_MS_DEFAULT,
    seal,
    time::Millis,
};

/// The rows a command looks at before anything is known.
pub fn footprint(command: &Command, add: &mut impl FnMut(RowKey)) {
    match command {
        Command::Observe(observe) => {
            add(RowKey::fence(observe.key));
            add(RowKey::trace(observe.key));
        }
        Command::Sweep(key) => add(*key),
        Command::Heard(_) => {}
        Command::Publish(publish) => dispatch::footprint_publish(publish, add),
        Command::PutRoute(put) => add(dispatch::route_key(&put.route)),
        Command::Lane(on) => dispatch::footprint_lane(on, add),
        Command::Letter(on) => dispatch::footprint_letter(on, add),
        Command::PutAlias(put) => {
            add(RowKey::fence(put.target.key));
            add(RowKey::alias(&put.target.tenant, &put.name));
        }
        Command::Claim(claim) => {
            add(RowKey::fence(claim.target.key));
            again::footprint(&claim.target, add);
            if let Some((_, head)) = claim::version(claim) {
                add(head);
            }
        }
        Command::Seal(_) | Command::Renew(_) | Command::Release(_) | Command::Resolve(_) => {
            if let Some(target) = command.target() {
                add(RowKey::fence(target.key));
                again::footprint(target, add);
            }
        }
    }
}

/// The rows that only loaded ones can name, such as the version head that a seal moves. Ask again with what was found: those
/// may name more.
pub fn follow(command: &Command, rows: &impl Rows, add: &mut impl FnMut(RowKey)) {
    match command {
        // A retry that does not repeat its version is judged by the one that it claimed with.
        Command::Claim(claim) if claim::version(claim).is_some() => {}
        Command::Claim(_) | Command::Seal(_) | Command::Resolve(_) => {
            let fence = command.target().and_then(|target| fence_of(rows, RowKey::fence(target.key)));
            if let Some((_, head)) = fence.and_then(|fence| fence.version.as_ref()) {
                add(*head);
            }
        }
        Command::Publish(publish) => dispatch::follow_publish(publish, rows, add),
        Command::PutRoute(put) => dispatch::follow_put_route(put, rows, add),
        Command::Lane(on) => dispatch::follow_lane(on, rows, add),
        Command::Letter(on) => dispatch::follow_letter(on, rows, add),
        _ => {}
    }
}

/// What follows from a command at `now`, over the rows of its footprint.
pub fn decide(command: &Command, rows: &impl Rows, now: Millis) -> Decision {
    match command {
        Command::Claim(claim) => claim::claim(claim, rows, now),
        Command::Seal(seal) => seal::seal(seal, rows, now),
        Command::Renew(renew) => seal::renew(renew, rows, now),
        Command::Release(release) => seal::release(release, rows, now),
        Command::Resolve(resolve) => seal::resolve(resolve, rows, now),
        Command::PutAlias(put) => put_alias(put, rows, now),
        Command::Observe(observe) => self::observe(observe, rows, now),
        Command::Sweep(key) => sweep(*key, rows, now),
        Command::Publish(publish) => dispatch::publish(publish, rows, now),
        Command::PutRoute(put) => dispatch::put_route(put, rows, now),
        Command::Lane(on) => dispatch::on_lane(on, rows, now),
        Command::Letter(on) => dispatch::on_letter(on, rows, now),
        Command::Heard(pokes) => {
            let also = Also { drops: pokes.clone(), ..Also::default() };
            Decision { writes: Vec::new(), also, reply: Reply::Done }
        }
    }
}

/// The fence in a row, expired or not.
pub(crate) fn fence_of(rows: &impl Rows, key: RowKey) -> Option<&Fence> {
    shared_fence_of(rows, key).map(Arc::as_ref)
}

/// The same, for a reply that outlives the rows.
pub(crate) fn shared_fence_of(rows: &impl Rows, key: RowKey) -> Option<&Arc<Fence>> {
    match &rows.row(&key)?.record {
        Record::Fence(fence) => Some(fence),
        _ => None,
    }
}

/// A change to a row as it was read.
pub(crate) fn write(rows: &impl Rows, key: RowKey, put: Option<Record>) -> Write {
    Write { key, expect: rows.row(&key).map(|row| row.revision), put }
}

fn put_alias(put: &PutAlias, rows: &impl Rows, now: Millis) -> Decision {
    let sealed = fence_of(rows, RowKey::fence(put.target.key)).filter(|fence| fence.phase(now) == Phase::Sealed);
    let Some(Fence { state: State::Sealed { receipt, .. }, .. }) = sealed else {
        return Decision::reply(Reply::NotSealed);
    };
    let key = RowKey::alias(&put.target.tenant, &put.name);
    if let Some(Record::Alias(known)) = rows.row(&key).map(|row| &row.record)
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
    let writes = vec![write(rows, key, Some(Record::Alias(alias.clone())))];
    Decision::new(writes, Reply::Aliased { replay: false, alias })
}

fn observe(observe: &Observe, rows: &impl Rows, now: Millis) -> Decision {
    let fence = fence_of(rows, RowKey::fence(observe.key)).filter(|fence| fence.phase(now) != Phase::Expired);
    let Some(fence) = fence else { return Decision::reply(Reply::Done) };
    let key = RowKey::trace(observe.key);
    let mut trace = match rows.row(&key).map(|row| &row.record) {
        // A trace of an earlier life of the key says nothing about this one.
        Some(Record::Trace(trace)) if trace.first_seen == fence.first_seen => Trace::clone(trace),
        _ => Trace { first_seen: fence.first_seen, ..Trace::default() },
    };
    trace.replays += observe.replays;
    trace.conflicts += observe.conflicts;
    trace.body_mismatches += observe.body_mismatches;
    trace.recent.extend_from_slice(&observe.recent);
    let surplus = trace.recent.len().saturating_sub(SIGHTINGS_MAX);
    trace.recent.drain(..surplus);
    // Beside a doubt, which never goes by itself, the counts still do: one sighting must not stay for ever.
    trace.expires = fence.expires_at().or(Some(now.plus(RETAIN_MS_DEFAULT)));
    Decision::new(vec![write(rows, key, Some(Record::Trace(trace.into())))], Reply::Done)
}

fn sweep(key: RowKey, rows: &impl Rows, now: Millis) -> Decision {
    let over = rows.row(&key).is_some_and(|row| row.record.expires_at().is_some_and(|expires| expires <= now));
    let writes = if over { vec![write(rows, key, None)] } else { Vec::new() };
    Decision::new(writes, Reply::Done)
}
