//! Keeps the polls that wait for a lane to change, and the position up to which each lane was ever served.
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

/// How often a waiting poll reads the lane without a wake-up, where other nodes publish too.
const RECHECK: Duration = Duration::from_millis(500);

pub(super) struct Polls {
    lanes: Mutex<HashMap<LaneId, Poll>>,
    /// Whether other nodes publish and serve too.
    shared: bool,
    closed: AtomicBool,
}

#[derive(Default)]
struct Poll {
    bell: Arc<Notify>,
    waiting: usize,
    /// The last position that an earlier process may have served; none where it is unknown.
    before: Option<u64>,
    /// The last position that this process has served.
    served: u64,
}

impl Polls {
    pub(super) fn new(shared: bool) -> Self {
        Self { lanes: Mutex::default(), shared, closed: AtomicBool::new(false) }
    }

    fn lanes(&self) -> MutexGuard<'_, HashMap<LaneId, Poll>> {
        self.lanes.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Wakes the polls of a lane that has a new entry, at `seq` if the position is known.
    pub(super) fn appended(&self, lane: LaneId, seq: Option<u64>) {
        let Some(seq) = seq.filter(|_| !self.shared) else { return self.ring(lane) };
        let mut lanes = self.lanes();
        let poll = lanes.entry(lane).or_default();
        // An earlier process may have served the entries before this one.
        poll.before.get_or_insert(seq - 1);
        poll.bell.notify_waiters();
    }

    /// Wakes the polls of a lane that has changed in another way.
    pub(super) fn ring(&self, lane: LaneId) {
        if let Some(poll) = self.lanes().get(&lane) {
            poll.bell.notify_waiters();
        }
    }

    /// Records that entries up to this position are handed out. A poller may read an entry before its append is reported here.
    pub(super) fn serve(&self, lane: LaneId, seq: u64) {
        if !self.shared {
            let mut lanes = self.lanes();
            let poll = lanes.entry(lane).or_default();
            poll.served = poll.served.max(seq);
        }
    }

    /// The last position that may have been served; none where it is unknown.
    pub(super) fn served(&self, lane: LaneId) -> Option<u64> {
        self.lanes().get(&lane).and_then(|poll| Some(poll.before?.max(poll.served)))
    }

    /// How many polls wait.
    pub(super) fn waiting(&self) -> usize {
        self.lanes().values().map(|poll| poll.waiting).sum()
    }

    /// Ends all waiting: each poll looks once more and answers.
    pub(super) fn close(&self) {
        self.closed.store(true, Ordering::Release);
        self.lanes().values().for_each(|poll| poll.bell.notify_waiters());
    }

    /// Calls `look` until it finds anything or the time is over, and returns its last result.
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
            // Listening begins before the look, so that no entry in between is missed.
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

// The place of one waiting poll; given back also where the poller goes away.
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
            if poll.waiting == 0 && poll.before.is_none() && poll.served == 0 {
                lanes.remove(&self.lane);
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const LANE: LaneId = LaneId([1; 24]);

    // Seeds 30000026346 and 30000030302: a poller got an event as soon as its commit was synced, and then the append was reported.
    // A cancellation was told that nobody had seen the event.
    #[test]
    fn entry_that_is_served_before_its_append_is_reported_counts_as_served() {
        let polls = Polls::new(false);
        polls.serve(LANE, 2);
        assert_eq!(polls.served(LANE), None, "an earlier process may have served more");
        polls.appended(LANE, Some(1));
        polls.appended(LANE, Some(2));
        polls.appended(LANE, Some(3));
        assert_eq!(polls.served(LANE), Some(2));
        polls.serve(LANE, 3);
        assert_eq!(polls.served(LANE), Some(3));
        drop(Seat::take(&polls, LANE));
        assert_eq!(polls.served(LANE), Some(3), "a poll that has ended takes nothing with it");
    }
}
