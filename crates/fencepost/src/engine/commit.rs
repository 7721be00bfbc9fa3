//! The commit loop: commands that arrive while a commit is being synced are decided and committed together in the
//! next one. Never releases a reply before the commit it depends on is durable. On a store of its own it never runs two
//! commits at once; on a shared one, where others commit anyway, the next may leave before the last one has come back.
//! Runs on a thread of its own, or under the simulator.

use std::{
    future::poll_fn,
    pin::pin,
    sync::{
        Arc,
        atomic::{AtomicUsize, Ordering},
    },
    task::Poll,
    time::Instant,
};

use fencepost_kernel::{
    Command, Reply,
    fence::{self},
};
use futures::{
    StreamExt,
    future::{Either, select},
    stream::FuturesUnordered,
};
use tokio::{
    runtime::Handle,
    sync::{
        Notify,
        mpsc::{self, error::TrySendError},
        oneshot,
    },
};

use super::{
    Error, Limits, Shared,
    batch::commit,
    rows::{View, page},
};

/// Commands that are decided side by side and answered together.
pub(super) struct Job {
    /// Shared with the asker, who answers from them.
    pub(super) commands: Arc<[Command]>,
    /// Rows that were read for it already. They may have moved since, which the store will say.
    pub(super) view: Option<Arc<View>>,
    pub(super) reply: oneshot::Sender<Result<Vec<Reply>, Error>>,
}

/// So few askers are woken one by one: a task to do it would only be a step more.
const WOKEN_HERE_MAX: usize = 2;
/// How many turns of the executor a commit waits for those who are about to ask: some microseconds where nobody is.
const LET_IN_TURNS: usize = 12;

pub(super) async fn run(shared: Arc<Shared>, mut queue: mpsc::Receiver<Job>, askers: Option<Handle>) {
    let Limits { batch_max, beside_min, .. } = shared.limits;
    // Jobs that no commit has taken yet, in their order.
    let mut waiting = Vec::new();
    // How many jobs and commands are under way, and whether one more commit may go beside them.
    let (mut busy, mut commands, mut room) = (0, 0, true);
    let mut rounds = FuturesUnordered::new();
    loop {
        if busy == 0 {
            if waiting.is_empty() && queue.recv_many(&mut waiting, batch_max).await == 0 {
                return;
            }
            // Whoever is about to ask comes first: the more share a commit, the less it costs each. Who is alone does not wait.
            if shared.shared && (waiting.len() > 1 || shared.crowd.load(Ordering::Relaxed) > 1) {
                for _ in 0..LET_IN_TURNS {
                    tokio::task::yield_now().await;
                }
            }
        }
        while waiting.len() < batch_max
            && let Ok(job) = queue.try_recv()
        {
            waiting.push(job);
        }
        // A second commit is worth its sync when it is as large as the first, and that is not small.
        let wanted = if commands < beside_min { beside_min } else { busy };
        let beside = shared.shared && all_of_fences(&waiting);
        if busy == 0 || (room && beside && waiting.len() >= wanted) {
            let jobs: Vec<Job> = waiting.drain(..fitting(&waiting, &shared.limits)).collect();
            room = busy == 0 && beside;
            (busy, commands) = (busy + jobs.len(), commands + count(&jobs));
            rounds.push(in_turn(&shared, jobs, beside));
            continue;
        }
        let ended = if room && waiting.len() < wanted {
            match select(rounds.next(), pin!(shared.enough.are_in(&queue, wanted - waiting.len()))).await {
                Either::Left((ended, _)) => ended,
                Either::Right(_) => continue,
            }
        } else {
            rounds.next().await
        };
        let Some(Ended { jobs, rest, outcome, beside }) = ended else { continue };
        (busy, commands) = (busy - jobs.len() - rest.len(), commands - count(&jobs) - count(&rest));
        room = beside;
        // Those that it was too much for come first in the next one.
        waiting.splice(..0, rest);
        match &askers {
            // One wake-up across threads for the whole batch; the askers' own executor wakes each of them.
            Some(executor) if jobs.len() > WOKEN_HERE_MAX => {
                drop(executor.spawn(async move { release(jobs, outcome) }))
            }
            _ => release(jobs, outcome),
        }
    }
}

/// Jobs that are worth a commit beside the one under way. Whoever brings one rings only when it makes up the number: the loop
/// need not wake for each.
pub(super) struct Enough {
    wanted: AtomicUsize,
    bell: Notify,
}

impl Default for Enough {
    fn default() -> Self {
        Self { wanted: AtomicUsize::new(usize::MAX), bell: Notify::new() }
    }
}

impl Enough {
    // May end too early: a ring that came too late to be heard is heard the next time.
    async fn are_in(&self, queue: &mpsc::Receiver<Job>, wanted: usize) {
        self.wanted.store(wanted, Ordering::SeqCst);
        if queue.len() < wanted {
            self.bell.notified().await;
        }
    }

    fn ring(&self, queue: &mpsc::Sender<Job>) {
        let wanted = self.wanted.load(Ordering::SeqCst);
        if wanted < usize::MAX && queue.max_capacity() - queue.capacity() >= wanted {
            self.wanted.store(usize::MAX, Ordering::Relaxed);
            self.bell.notify_one();
        }
    }
}

/// Brings a job to the commit loop.
pub(super) async fn hand_on(shared: &Shared, queue: &mpsc::Sender<Job>, job: Job) -> Result<(), Error> {
    let gone = |_| Error::Stopped("the engine is closed".to_owned());
    queue.send(job).await.map_err(gone)?;
    shared.enough.ring(queue);
    Ok(())
}

pub(super) type Outcome = Result<Vec<Result<Reply, Error>>, Error>;

/// A commit that has come back.
struct Ended {
    jobs: Vec<Job>,
    /// Those that did not fit into it: nobody has decided anything about them.
    rest: Vec<Job>,
    outcome: Outcome,
    beside: bool,
}

async fn in_turn(shared: &Shared, mut jobs: Vec<Job>, beside: bool) -> Ended {
    let outcome = if beside {
        let _turn = shared.turn.read().await;
        round(shared, &jobs).await
    } else {
        let _turn = shared.turn.write().await;
        round(shared, &jobs).await
    };
    let done = match &outcome {
        Ok(replies) => page(&jobs, replies.len()),
        Err(_) => jobs.len(),
    };
    let rest = jobs.split_off(done);
    Ended { jobs, rest, outcome, beside }
}

// Lanes are told of in the order in which they were written: those who write to them commit alone.
fn all_of_fences(jobs: &[Job]) -> bool {
    let of_a_fence = |command: &Command| {
        matches!(
            command,
            Command::Fence(fence::Command::Claim(_))
                | Command::Fence(fence::Command::Seal(_))
                | Command::Fence(fence::Command::Renew(_))
                | Command::Fence(fence::Command::Release(_))
                | Command::Fence(fence::Command::Observe(_))
        )
    };
    jobs.iter().flat_map(|job| job.commands.iter()).all(of_a_fence)
}

pub(super) fn count(jobs: &[Job]) -> usize {
    jobs.iter().map(|job| job.commands.len()).sum()
}

// How many jobs bring no more commands and bytes than one commit takes: at least one. Rows that were read for jobs together
// count once.
fn fitting(jobs: &[Job], limits: &Limits) -> usize {
    let (mut commands, mut rows, mut bytes, mut loaded) = (0, 0, 0, 0);
    let mut before: Option<&Arc<View>> = None;
    for (count, job) in jobs.iter().enumerate() {
        commands += job.commands.len();
        bytes += job.commands.iter().map(Command::weight_bytes).sum::<usize>();
        if let Some(view) = &job.view
            && !before.is_some_and(|before| Arc::ptr_eq(before, view))
        {
            (rows, loaded) = (rows + view.rows.rows.len(), loaded + view.rows.bytes);
            before = Some(view);
        }
        let fits = commands <= limits.batch_max
            && rows <= limits.batch_rows_max
            && bytes.max(loaded) <= limits.batch_bytes_max;
        if !fits {
            return count.max(1);
        }
    }
    jobs.len()
}

/// Commits the job of an asker who is alone, as a task beside the asker's own: the two changes of thread that it saves
/// take as long as a sync. Blocks that thread of several for one sync. Whoever asks meanwhile goes through the queue, and
/// the asker itself waits no longer than ever: the other threads keep the time and watch the sockets.
pub(super) async fn at_once(queue: mpsc::Sender<Job>, shared: Arc<Shared>, job: Job) {
    wake_another_thread().await;
    let Ok(_turn) = shared.turn.try_write() else {
        if let Err(refused) = queue.try_send(job) {
            let why = match &refused {
                TrySendError::Full(_) => Error::Unavailable("the commit queue is full".to_owned()),
                TrySendError::Closed(_) => Error::Stopped("the engine is closed".to_owned()),
            };
            drop(refused.into_inner().reply.send(Err(why)));
        }
        return;
    };
    let jobs = vec![job];
    let outcome = round(&shared, &jobs).await;
    release(jobs, outcome);
}

// A worker of tokio that has one task at hand wakes nobody, though it may be the one that watches the sockets, and blocks. A
// task that wakes itself goes to the end of the queue, and for that another worker is woken; `yield_now` does not do that.
async fn wake_another_thread() {
    let mut woken = false;
    poll_fn(|context| {
        if std::mem::replace(&mut woken, true) {
            return Poll::Ready(());
        }
        context.waker().wake_by_ref();
        Poll::Pending
    })
    .await;
}

async fn round(shared: &Shared, jobs: &[Job]) -> Outcome {
    let started = Instant::now();
    let outcome = commit(shared, jobs).await;
    shared.crowd.store(jobs.len(), Ordering::Relaxed);
    let committed = outcome.as_ref().map_or_else(|_| count(jobs), Vec::len);
    shared.observer.committed(committed, started.elapsed());
    if let Err(Error::Stopped(why)) = &outcome {
        // INVARIANT fail-stop: after a failed sync nothing is acknowledged any more, but for what was under way beside it on a
        // store that is shared: that has a sync of its own.
        let _ = shared.stopped.set(why.clone());
    }
    outcome
}

fn release(jobs: Vec<Job>, outcome: Outcome) {
    match outcome {
        Ok(replies) => {
            let mut replies = replies.into_iter();
            for Job { commands, reply, .. } in jobs {
                let own = replies.by_ref().take(commands.len()).collect();
                // The asker frees them, whose thread made them.
                drop(commands);
                // An asker that went away is not an error: what it asked for is recorded all the same.
                let _ = reply.send(together(own));
            }
        }
        Err(error) => {
            for job in jobs {
                let _ = job.reply.send(Err(error.clone()));
            }
        }
    }
}

// Several commands have one answer: that nothing happened is true only where it is true of each.
fn together(replies: Vec<Result<Reply, Error>>) -> Result<Vec<Reply>, Error> {
    let some_happened = replies.iter().any(|reply| !matches!(reply, Err(Error::Unavailable(_))));
    replies.into_iter().collect::<Result<_, _>>().map_err(|error| match error {
        Error::Unavailable(why) if some_happened => Error::Unknown(why),
        error => error,
    })
}
