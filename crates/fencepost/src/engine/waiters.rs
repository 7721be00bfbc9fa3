//! Callers that wait for somebody else's claim to end. Bounded; woken by the commit that ends the claim.
//! Never polls, and never holds its lock while waking or waiting. Called by `claim` and the commit loop.

use std::{
    collections::HashMap,
    sync::{
        Arc, Mutex, MutexGuard, PoisonError,
        atomic::{AtomicBool, AtomicUsize, Ordering},
    },
};

use fencepost_kernel::FenceKey;
use tokio::sync::{Notify, futures::Notified};

pub(super) struct Waiters {
    seats: Mutex<HashMap<FenceKey, (Arc<Notify>, usize)>>,
    taken: AtomicUsize,
    max: usize,
    closed: AtomicBool,
}

impl Waiters {
    pub(super) fn new(max: usize) -> Self {
        Self { seats: Mutex::default(), taken: AtomicUsize::new(0), max, closed: AtomicBool::new(false) }
    }

    pub(super) fn len(&self) -> usize {
        self.taken.load(Ordering::Relaxed)
    }

    /// A place to wait; none when the room is full.
    pub(super) fn sit(&self, key: FenceKey) -> Option<Seat<'_>> {
        let mut seats = self.lock();
        if self.taken.load(Ordering::Relaxed) >= self.max {
            return None;
        }
        self.taken.fetch_add(1, Ordering::SeqCst);
        let (bell, count) = seats.entry(key).or_default();
        *count += 1;
        Some(Seat { room: self, key, bell: bell.clone() })
    }

    pub(super) fn closed(&self) -> bool {
        self.closed.load(Ordering::SeqCst)
    }

    pub(super) fn close(&self) {
        self.closed.store(true, Ordering::SeqCst);
        let keys: Vec<FenceKey> = self.lock().keys().copied().collect();
        self.wake(keys.into_iter());
    }

    pub(super) fn wake(&self, keys: impl Iterator<Item = FenceKey>) {
        if self.taken.load(Ordering::SeqCst) == 0 {
            return;
        }
        let bells: Vec<Arc<Notify>> = {
            let seats = self.lock();
            keys.filter_map(|key| seats.get(&key).map(|(bell, _)| bell.clone())).collect()
        };
        for bell in bells {
            bell.notify_waiters();
        }
    }

    fn lock(&self) -> MutexGuard<'_, HashMap<FenceKey, (Arc<Notify>, usize)>> {
        self.seats.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

/// A place in the room; given up when dropped.
pub(super) struct Seat<'a> {
    room: &'a Waiters,
    key: FenceKey,
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
        if let Some((_, count)) = seats.get_mut(&self.key) {
            *count -= 1;
            if *count == 0 {
                seats.remove(&self.key);
            }
        }
        self.room.taken.fetch_sub(1, Ordering::SeqCst);
    }
}
