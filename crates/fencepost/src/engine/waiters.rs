//! Callers that wait for somebody else's claim to end. Bounded; woken by the commit that ends the claim.
//! Never polls, and never holds its lock while waking or waiting. Woken by the commit loop.

use std::{
    collections::HashMap,
    sync::{
        Arc, Mutex, MutexGuard, PoisonError,
        atomic::{AtomicBool, AtomicUsize, Ordering},
    },
    time::Duration,
};

use fencepost_kernel::{FenceKey, Reply, Tenant, fence};
use futures::future::select_all;
use tokio::sync::{Notify, futures::Notified};

use super::{Engine, Error, One};

/// How soon a waiter on a shared store first looks for another engine's seal, and how often it then goes on looking.
const RECHECK_FIRST: Duration = Duration::from_millis(25);
const RECHECK_MAX: Duration = Duration::from_millis(500);

pub(super) struct Waiters {
    seats: Mutex<Seats>,
    taken: AtomicUsize,
    max: usize,
    per_tenant_max: usize,
    closed: AtomicBool,
}

#[derive(Default)]
struct Seats {
    by_key: HashMap<FenceKey, (Arc<Notify>, usize)>,
    by_tenant: HashMap<Tenant, usize>,
}

impl Waiters {
    pub(super) fn new(max: usize, per_tenant_max: usize) -> Self {
        Self {
            seats: Mutex::default(),
            taken: AtomicUsize::new(0),
            max,
            per_tenant_max,
            closed: AtomicBool::new(false),
        }
    }

    pub(super) fn len(&self) -> usize {
        self.taken.load(Ordering::Relaxed)
    }

    /// A place to wait; none when the room is full, or the tenant has as many as one may.
    pub(super) fn sit(&self, key: FenceKey, tenant: &Tenant) -> Option<Seat<'_>> {
        let mut seats = self.lock();
        let of_tenant = seats.by_tenant.get(tenant).copied().unwrap_or(0);
        if self.taken.load(Ordering::Relaxed) >= self.max || of_tenant >= self.per_tenant_max {
            return None;
        }
        self.taken.fetch_add(1, Ordering::SeqCst);
        seats.by_tenant.insert(tenant.clone(), of_tenant + 1);
        let (bell, count) = seats.by_key.entry(key).or_default();
        *count += 1;
        Some(Seat { room: self, key, tenant: tenant.clone(), bell: bell.clone() })
    }

    pub(super) fn closed(&self) -> bool {
        self.closed.load(Ordering::SeqCst)
    }

    pub(super) fn close(&self) {
        self.closed.store(true, Ordering::SeqCst);
        let keys: Vec<FenceKey> = self.lock().by_key.keys().copied().collect();
        self.wake(keys.into_iter());
    }

    pub(super) fn wake(&self, keys: impl Iterator<Item = FenceKey>) {
        if self.taken.load(Ordering::SeqCst) == 0 {
            return;
        }
        let bells: Vec<Arc<Notify>> = {
            let seats = self.lock();
            keys.filter_map(|key| seats.by_key.get(&key).map(|(bell, _)| bell.clone())).collect()
        };
        for bell in bells {
            bell.notify_waiters();
        }
    }

    fn lock(&self) -> MutexGuard<'_, Seats> {
        self.seats.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl Engine {
    /// A claim that waits up to `wait` for somebody else's claim to end. Woken by the seal, not by polling; where
    /// the other's lease runs out, it gets what a fresh claim would get.
    pub async fn claim(&self, command: impl Into<One>, wait: Duration) -> Result<Reply, Error> {
        self.claim_flagged(command, wait, &AtomicBool::new(false)).await
    }

    /// The same; `is_waiting` is true while it waits and nothing was asked. Dropped then, it leaves no claim behind.
    pub async fn claim_flagged(
        &self,
        command: impl Into<One>,
        wait: Duration,
        is_waiting: &AtomicBool,
    ) -> Result<Reply, Error> {
        let command = command.into();
        let mut reply = self.ask(command.clone()).await?;
        let Some(target) = command
            .target()
            .filter(|_| !wait.is_zero() && matches!(reply, Reply::Fence(fence::Reply::InFlight { .. })))
        else {
            return Ok(reply);
        };
        let Some(seat) = self.shared.waiters.sit(target.key, &target.tenant) else { return Ok(reply) };
        let mut seats = vec![seat];
        // The first repetition may be waiting for the effect itself, which has a key of its own.
        if target.seq == Some(1) {
            seats.extend(self.shared.waiters.sit(target.base(), &target.tenant));
        }
        let deadline = tokio::time::Instant::now() + wait;
        // Another engine's seal rings no bell here: on a shared store a waiter also looks by itself, ever less often.
        let mut look_again = self.shared.shared.then_some(RECHECK_FIRST);
        while let Reply::Fence(fence::Reply::InFlight { lease_expires, .. }) = reply {
            if self.shared.waiters.closed() {
                break;
            }
            let mut bells: Vec<_> = seats.iter().map(|seat| Box::pin(seat.woken())).collect();
            // Listening begins before the second look: a seal in between is not missed.
            for bell in &mut bells {
                bell.as_mut().enable();
            }
            reply = self.ask(command.clone()).await?;
            let Reply::Fence(fence::Reply::InFlight { .. }) = reply else { break };
            let lapse = tokio::time::Instant::now() + Duration::from_millis(lease_expires.since(self.now()) + 1);
            let recheck = look_again.map(|wait| tokio::time::Instant::now() + wait);
            look_again = look_again.map(|wait| (wait * 2).min(RECHECK_MAX));
            let until = deadline.min(lapse).min(recheck.unwrap_or(deadline));
            is_waiting.store(true, Ordering::Release);
            let woken = tokio::time::timeout_at(until, select_all(bells)).await;
            is_waiting.store(false, Ordering::Release);
            if woken.is_err() && tokio::time::Instant::now() >= deadline {
                return self.ask(command).await;
            }
            reply = self.ask(command.clone()).await?;
        }
        Ok(reply)
    }
}

/// A place in the room; given up when dropped.
pub(super) struct Seat<'a> {
    room: &'a Waiters,
    key: FenceKey,
    tenant: Tenant,
    bell: Arc<Notify>,
}

impl Seat<'_> {
    pub(super) fn woken(&self) -> Notified<'_> {
        self.bell.notified()
    }
}

impl Drop for Seat<'_> {
    fn drop(&mut self) {
        let mut seats = self.room.lock();
        if let Some((_, count)) = seats.by_key.get_mut(&self.key) {
            *count -= 1;
            if *count == 0 {
                seats.by_key.remove(&self.key);
            }
        }
        if let Some(count) = seats.by_tenant.get_mut(&self.tenant) {
            *count -= 1;
            if *count == 0 {
                seats.by_tenant.remove(&self.tenant);
            }
        }
        self.room.taken.fetch_sub(1, Ordering::SeqCst);
    }
}

#[cfg(test)]
#[allow(clippy::unwrap_used)]
mod tests {
    use super::*;

    #[test]
    fn tenant_with_all_its_seats_taken_leaves_the_others_theirs() {
        let (room, key) = (Waiters::new(3, 2), FenceKey([1; 32]));
        let [acme, globex] = ["acme", "globex"].map(Tenant::new);
        let first = room.sit(key, &acme).unwrap();
        let _second = room.sit(key, &acme).unwrap();
        assert!(room.sit(key, &acme).is_none());
        let other = room.sit(key, &globex).unwrap();
        assert!(room.sit(key, &globex).is_none(), "the room is full");
        drop((first, other));
        assert_eq!((room.len(), room.lock().by_tenant.len()), (1, 1));
        assert!(room.sit(key, &acme).is_some());
    }
}
