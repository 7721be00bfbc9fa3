//! Decides when the next commit leaves: at once, when more jobs are waiting, or when the commit under way has ended.
//! On a store of our own, two commits never run at the same time. On a shared one, where other nodes commit anyway, a second
//! one may leave before the first has come back. Never waits itself, but for `BacklogSignal`. Called by the commit loop.

use std::sync::atomic::{AtomicUsize, Ordering};

use tokio::sync::{Notify, mpsc};

use super::commit::Job;

/// Whether a commit may run at the same time as another.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(super) enum Overlap {
    Allowed,
    Refused,
}

/// The commit loop's next step.
#[derive(PartialEq, Eq, Debug)]
pub(super) enum Next {
    /// A commit of the waiting jobs leaves now.
    Start(Overlap),
    /// So many more jobs would make an overlapping commit worth its sync; until then, or until a commit ends, wait.
    WaitForJobs(usize),
    /// Wait until a commit ends.
    WaitForEnd,
}

/// How often the loop yields to its executor before a commit leaves, so that callers who are about to ask get into it: some
/// microseconds where there are none.
const YIELDS: usize = 12;

/// Counts what is under way.
pub(super) struct Pacing {
    shared_store: bool,
    /// Commands that must be under way, or jobs that must be waiting, before commits overlap.
    overlap_min: usize,
    jobs_in_flight: usize,
    commands_in_flight: usize,
    /// Jobs that shared the commit that ended last.
    last_batch_len: usize,
    /// Whether one more commit may leave before those under way have ended.
    room: bool,
}

impl Pacing {
    pub(super) fn new(shared_store: bool, overlap_min: usize) -> Self {
        Self { shared_store, overlap_min, jobs_in_flight: 0, commands_in_flight: 0, last_batch_len: 0, room: true }
    }

    pub(super) fn is_idle(&self) -> bool {
        self.jobs_in_flight == 0
    }

    /// How often to yield before an idle loop commits the waiting jobs. On a shared store each commit costs round trips: a lone
    /// caller does not wait, several share one.
    pub(super) fn yields_before_commit(&self, waiting: usize) -> usize {
        if self.shared_store && (waiting > 1 || self.last_batch_len > 1) { YIELDS } else { 0 }
    }

    /// `jobs` says whether the waiting jobs may be committed beside others.
    pub(super) fn next(&self, waiting: usize, jobs: Overlap) -> Next {
        let overlap = if self.shared_store { jobs } else { Overlap::Refused };
        // A second commit is worth its sync when it is as large as the first, and that is not small.
        let wanted = if self.commands_in_flight < self.overlap_min { self.overlap_min } else { self.jobs_in_flight };
        if self.is_idle() || (self.room && overlap == Overlap::Allowed && waiting >= wanted) {
            Next::Start(overlap)
        } else if self.room && waiting < wanted {
            Next::WaitForJobs(wanted - waiting)
        } else {
            Next::WaitForEnd
        }
    }

    pub(super) fn started(&mut self, jobs: usize, commands: usize, overlap: Overlap) {
        // At most two commits overlap: the second leaves no room for a third.
        self.room = self.is_idle() && overlap == Overlap::Allowed;
        self.jobs_in_flight += jobs;
        self.commands_in_flight += commands;
    }

    /// `overlap` is that of the commit that ended.
    pub(super) fn ended(&mut self, jobs: usize, commands: usize, overlap: Overlap) {
        self.jobs_in_flight -= jobs;
        self.commands_in_flight -= commands;
        self.last_batch_len = jobs;
        self.room = overlap == Overlap::Allowed;
    }
}

/// Wakes the commit loop when enough jobs are queued, so that it need not wake for each.
pub(super) struct BacklogSignal {
    /// The length of the queue that the loop waits for; `usize::MAX` while it does not wait.
    wanted: AtomicUsize,
    reached: Notify,
}

impl Default for BacklogSignal {
    fn default() -> Self {
        Self { wanted: AtomicUsize::new(usize::MAX), reached: Notify::new() }
    }
}

impl BacklogSignal {
    /// Ends when `wanted` jobs are queued. May end too early: a notification that nobody waited for ends the next wait.
    pub(super) async fn reaches(&self, queue: &mpsc::Receiver<Job>, wanted: usize) {
        self.wanted.store(wanted, Ordering::SeqCst);
        if queue.len() < wanted {
            self.reached.notified().await;
        }
    }

    /// Called after each job that was queued.
    pub(super) fn notify(&self, queue: &mpsc::Sender<Job>) {
        let wanted = self.wanted.load(Ordering::SeqCst);
        if wanted < usize::MAX && queue.max_capacity() - queue.capacity() >= wanted {
            self.wanted.store(usize::MAX, Ordering::Relaxed);
            self.reached.notify_one();
        }
    }
}

#[cfg(test)]
mod tests {
    use futures::future::poll_immediate;
    use tokio::sync::oneshot;

    use super::*;

    #[test]
    fn an_idle_loop_commits_whatever_waits_at_once() {
        for shared in [true, false] {
            assert_eq!(Pacing::new(shared, 16).next(1, Overlap::Refused), Next::Start(Overlap::Refused));
        }
        assert_eq!(Pacing::new(true, 16).next(1, Overlap::Allowed), Next::Start(Overlap::Allowed));
    }

    #[test]
    fn loop_yields_only_for_several_callers_on_a_shared_store() {
        for (shared, last, waiting, yields) in
            [(true, 0, 1, 0), (true, 0, 2, YIELDS), (true, 1, 1, 0), (true, 2, 1, YIELDS), (false, 2, 2, 0)]
        {
            let mut pacing = Pacing::new(shared, 16);
            pacing.started(last, last, Overlap::Refused);
            pacing.ended(last, last, Overlap::Refused);
            assert_eq!(pacing.yields_before_commit(waiting), yields, "{shared} {last} {waiting}");
        }
    }

    #[test]
    fn commits_never_overlap_on_a_store_of_our_own() {
        let mut pacing = Pacing::new(false, 16);
        pacing.started(1, 1, Overlap::Refused);
        assert_eq!(pacing.next(1_000, Overlap::Allowed), Next::WaitForEnd);
    }

    #[test]
    fn a_second_commit_leaves_when_it_is_as_large_as_the_first_and_not_small() {
        let mut pacing = Pacing::new(true, 16);
        pacing.started(2, 2, Overlap::Allowed);
        assert_eq!(pacing.next(15, Overlap::Allowed), Next::WaitForJobs(1));
        assert_eq!(pacing.next(16, Overlap::Allowed), Next::Start(Overlap::Allowed));
        pacing.started(98, 98, Overlap::Allowed);
        pacing.ended(2, 2, Overlap::Allowed);
        assert_eq!(pacing.next(97, Overlap::Allowed), Next::WaitForJobs(1), "as large as the 98 under way");
        assert_eq!(pacing.next(98, Overlap::Allowed), Next::Start(Overlap::Allowed));
    }

    #[test]
    fn a_third_commit_waits_until_one_of_two_has_ended() {
        let mut pacing = Pacing::new(true, 1);
        pacing.started(1, 1, Overlap::Allowed);
        pacing.started(1, 1, Overlap::Allowed);
        assert_eq!(pacing.next(100, Overlap::Allowed), Next::WaitForEnd);
        pacing.ended(1, 1, Overlap::Allowed);
        assert_eq!(pacing.next(100, Overlap::Allowed), Next::Start(Overlap::Allowed));
    }

    #[test]
    fn a_commit_that_writes_to_a_lane_runs_alone() {
        let mut pacing = Pacing::new(true, 1);
        pacing.started(1, 1, Overlap::Allowed);
        assert_eq!(pacing.next(100, Overlap::Refused), Next::WaitForEnd, "not beside a commit of fences");
        pacing.ended(1, 1, Overlap::Allowed);
        pacing.started(1, 1, Overlap::Refused);
        assert_eq!(pacing.next(100, Overlap::Allowed), Next::WaitForEnd, "and no commit of fences beside it");
    }

    #[tokio::test]
    async fn the_loop_is_woken_by_the_job_that_makes_up_the_number() {
        let (signal, (jobs, queue)) = (BacklogSignal::default(), mpsc::channel(8));
        let mut reached = Box::pin(signal.reaches(&queue, 2));
        for woken in [None, Some(())] {
            let (reply, _) = oneshot::channel();
            assert!(jobs.try_send(Job { commands: [].into(), view: None, reply }).is_ok());
            signal.notify(&jobs);
            assert_eq!(poll_immediate(reached.as_mut()).await, woken);
        }
    }
}
