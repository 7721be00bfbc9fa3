//! The commit loop: commands that arrive while a commit is being synced are decided and committed together in the
//! next one; `pacing` says when that one leaves. Never releases a reply before the commit it depends on is durable.
//! Runs on a thread of its own, or under the simulator.

use std::{pin::pin, sync::Arc, time::Instant};

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
    sync::{mpsc, oneshot},
};

use super::{
    EngineLimits, Error, Shared,
    batch::commit,
    pacing::{Next, Overlap, Pacing},
    rows::{View, page},
};

/// Commands that are decided side by side and answered together.
pub(super) struct Job {
    /// Shared with the caller, who builds the answer from them.
    pub(super) commands: Arc<[Command]>,
    /// Rows that were read for it already. They may have moved since, which the store will say.
    pub(super) view: Option<Arc<View>>,
    pub(super) reply: oneshot::Sender<Result<Vec<Reply>, Error>>,
}

/// So few callers are woken one by one: a task to do it would only be a step more.
const WOKEN_INLINE_MAX: usize = 2;

pub(super) async fn run(shared: Arc<Shared>, mut queue: mpsc::Receiver<Job>, callers: Option<Handle>) {
    let batch_max = shared.limits.batch_max;
    let mut pacing = Pacing::new(shared.shared, shared.limits.beside_min);
    // Jobs that no commit has taken yet, in their order.
    let mut waiting = Vec::new();
    let mut commits = FuturesUnordered::new();
    loop {
        if pacing.is_idle() {
            if waiting.is_empty() && queue.recv_many(&mut waiting, batch_max).await == 0 {
                return;
            }
            for _ in 0..pacing.yields_before_commit(waiting.len()) {
                tokio::task::yield_now().await;
            }
        }
        while waiting.len() < batch_max
            && let Ok(job) = queue.try_recv()
        {
            waiting.push(job);
        }
        let ended = match pacing.next(waiting.len(), all_of_fences(&waiting)) {
            Next::Start(overlap) => {
                let jobs: Vec<Job> = waiting.drain(..fitting(&waiting, &shared.limits)).collect();
                pacing.started(jobs.len(), count(&jobs), overlap);
                commits.push(in_turn(&shared, jobs, overlap));
                continue;
            }
            Next::WaitForJobs(more) => match select(commits.next(), pin!(shared.backlog.reaches(&queue, more))).await {
                Either::Left((ended, _)) => ended,
                Either::Right(_) => continue,
            },
            Next::WaitForEnd => commits.next().await,
        };
        let Some(Ended { jobs, rest, outcome, overlap }) = ended else { continue };
        pacing.ended(jobs.len() + rest.len(), count(&jobs) + count(&rest), overlap);
        // Jobs that did not fit into this commit come first in the next one.
        waiting.splice(..0, rest);
        match &callers {
            // One wake-up across threads for the whole batch; the callers' own executor wakes each of them.
            Some(executor) if jobs.len() > WOKEN_INLINE_MAX => {
                drop(executor.spawn(async move { release(jobs, outcome) }))
            }
            _ => release(jobs, outcome),
        }
    }
}

/// Brings a job to the commit loop.
pub(super) async fn hand_on(shared: &Shared, queue: &mpsc::Sender<Job>, job: Job) -> Result<(), Error> {
    let gone = |_| Error::Stopped("the engine is closed".to_owned());
    queue.send(job).await.map_err(gone)?;
    shared.backlog.notify(queue);
    Ok(())
}

pub(super) type Outcome = Result<Vec<Result<Reply, Error>>, Error>;

/// A commit that has come back.
struct Ended {
    jobs: Vec<Job>,
    /// Those that did not fit into it: nobody has decided anything about them.
    rest: Vec<Job>,
    outcome: Outcome,
    overlap: Overlap,
}

async fn in_turn(shared: &Shared, mut jobs: Vec<Job>, overlap: Overlap) -> Ended {
    let outcome = match overlap {
        Overlap::Allowed => {
            let _turn = shared.turn.read().await;
            round(shared, &jobs).await
        }
        Overlap::Refused => {
            let _turn = shared.turn.write().await;
            round(shared, &jobs).await
        }
    };
    let done = match &outcome {
        Ok(replies) => page(&jobs, replies.len()),
        Err(_) => jobs.len(),
    };
    let rest = jobs.split_off(done);
    Ended { jobs, rest, outcome, overlap }
}

// Listeners hear of a lane's writes in their order, so a commit that writes to a lane overlaps with no other.
fn all_of_fences(jobs: &[Job]) -> Overlap {
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
    if jobs.iter().flat_map(|job| job.commands.iter()).all(of_a_fence) { Overlap::Allowed } else { Overlap::Refused }
}

pub(super) fn count(jobs: &[Job]) -> usize {
    jobs.iter().map(|job| job.commands.len()).sum()
}

// How many jobs bring no more commands and bytes than one commit takes: at least one. Rows that were read for jobs together
// count once.
fn fitting(jobs: &[Job], limits: &EngineLimits) -> usize {
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

async fn round(shared: &Shared, jobs: &[Job]) -> Outcome {
    let started = Instant::now();
    let outcome = commit(shared, jobs).await;
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
                // The caller frees them, on the thread that made them.
                drop(commands);
                // A caller that went away is not an error: its command is recorded all the same.
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
