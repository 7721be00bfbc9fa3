//! Those who wait for something new in a lane, and how far each lane was ever served.
//! Never makes a poller wait longer than it asked. A wake-up is a hint: the lane is read again after it.

use std::{
    collections::HashMap,
    sync::{
        Arc, Mutex, MutexGuard, PoisonError,
        atomic::{AtomicBool, Ordering},
    },
    time::Duration,
};

use fencepost_kernel::LaneId;
use tokio::{sync::Notify, time::Instant};

/// How often a poller looks by itself where other nodes publish, too.
const RECHECK: Duration = Duration::from_millis(500);

pub(super) struct Polls {
    lanes: Mutex<HashMap<LaneId, Poll>>,
    /// Whether other nodes publish and serve, too.
    shared: bool,
    closed: AtomicBool,
}

#[derive(Default)]
struct Poll {
    bell: Arc<Notify>,
    waiting: usize,
    /// Up to here it may have been served; none where nobody knows.
    served: Option<u64>,
}

impl Polls {
    pub(super) fn new(shared: bool) -> Self {
        Self { lanes: Mutex::default(), shared, closed: AtomicBool::new(false) }
    }

    fn lanes(&self) -> MutexGuard<'_, HashMap<LaneId, Poll>> {
        self.lanes.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// An entry is in a lane.
    pub(super) fn appended(&self, lane: LaneId, seq: Option<u64>) {
        let Some(seq) = seq.filter(|_| !self.shared) else { return self.ring(lane) };
        let mut lanes = self.lanes();
        let poll = lanes.entry(lane).or_default();
        // What was there before this process may have been served by an earlier one.
        poll.served.get_or_insert(seq - 1);
        poll.bell.notify_waiters();
    }

    /// Something else about a lane is new.
    pub(super) fn ring(&self, lane: LaneId) {
        if let Some(poll) = self.lanes().get(&lane) {
            poll.bell.notify_waiters();
        }
    }

    /// A page up to here is handed out.
    pub(super) fn serve(&self, lane: LaneId, seq: u64) {
        if let Some(served) = self.lanes().get_mut(&lane).and_then(|poll| poll.served.as_mut()) {
            *served = (*served).max(seq);
        }
    }

    pub(super) fn served(&self, lane: LaneId) -> Option<u64> {
        self.lanes().get(&lane).and_then(|poll| poll.served)
    }

    /// How many polls wait.
    pub(super) fn waiting(&self) -> usize {
        self.lanes().values().map(|poll| poll.waiting).sum()
    }

    /// Nobody waits any more.
    pub(super) fn close(&self) {
        self.closed.store(true, Ordering::Release);
        self.lanes().values().for_each(|poll| poll.bell.notify_waiters());
    }

    /// What `look` finds, as soon as it finds anything, or when the time is over.
    pub(super) async fn wait<T, E, F>(&self, lane: LaneId, wait: Duration, look: impl Fn() -> F) -> Result<Vec<T>, E>
    where
        F: Future<Output = Result<Vec<T>, E>>,
    {
        if wait.is_zero() {
            return look().await;
        }
        let until = Instant::now() + wait;
        let seat = Seat::take(self, lane);
        loop {
            // Listening begins before the look: what comes in between is not missed.
            let mut bell = std::pin::pin!(seat.bell.notified());
            bell.as_mut().enable();
            let found = look().await?;
            if !found.is_empty() || Instant::now() >= until || self.closed.load(Ordering::Acquire) {
                return Ok(found);
            }
            let next = if self.shared { until.min(Instant::now() + RECHECK) } else { until };
            let _ = tokio::time::timeout_at(next, bell).await;
        }
    }
}

// A place among those who wait; given back also where the poller goes away.
struct Seat<'p> {
    polls: &'p Polls,
    lane: LaneId,
    bell: Arc<Notify>,
}

impl<'p> Seat<'p> {
    fn take(polls: &'p Polls, lane: LaneId) -> Self {
        let mut lanes = polls.lanes();
        let poll = lanes.entry(lane).or_default();
        poll.waiting += 1;
        Self { polls, lane, bell: poll.bell.clone() }
    }
}

impl Drop for Seat<'_> {
    fn drop(&mut self) {
        let mut lanes = self.polls.lanes();
        if let Some(poll) = lanes.get_mut(&self.lane) {
            poll.waiting -= 1;
            if poll.waiting == 0 && poll.served.is_none() {
                lanes.remove(&self.lane);
            }
        }
    }
}
