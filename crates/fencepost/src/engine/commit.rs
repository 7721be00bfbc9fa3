//! The commit loop: commands that arrive while a commit is being synced are decided and committed together in the
//! next one. Never releases a reply before the commit it depends on is durable. On a store of its own it never runs two
//! commits at once; on a shared one, where others commit anyway, the next may leave before the last one has come back.
//! Runs on a thread of its own, or under the simulator.

use std::{
    collections::BTreeMap,
    future::poll_fn,
    pin::pin,
    sync::{
        Arc,
        atomic::{AtomicUsize, Ordering},
    },
    task::Poll,
    time::Instant,
};

use ahash::HashSet;
use fencepost_kernel::{
    Command, Decision, FenceKey, Millis, Reply, RowKey,
    command::{Also, CommitId},
    decide,
    fence::{Record, State},
    key::LaneId,
    lane::{self, Append},
    merge::{Merge, Merged},
};
use fencepost_store::{Verdict, WriteSet};
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
    bounds::{Reading, fitting, load_fitting, page},
    rows::{Draft, View, World, torn, touches},
};

/// Commands that are decided side by side and answered together.
pub(super) struct Job {
    /// Shared with the asker, who answers from them.
    pub(super) commands: Arc<[Command]>,
    /// Rows that were read for it already. They may have moved since, which the store will say.
    pub(super) view: Option<Arc<View>>,
    pub(super) reply: oneshot::Sender<Result<Vec<Reply>, Error>>,
}

/// A command of a job, and the time before its rows were read where that was earlier.
#[derive(Clone, Copy)]
pub(super) struct Asked<'j> {
    pub(super) job: usize,
    command: &'j Command,
    read_at: Option<Millis>,
    /// Nobody read for it: it may be written, but not answered.
    guessed: bool,
    /// What was read for it has moved, as a later reading tells.
    torn: bool,
}

fn asked((job, asked): (usize, &Job)) -> impl Iterator<Item = Asked<'_>> {
    let read_at = asked.view.as_ref().map(|view| view.at);
    let guessed = asked.view.as_ref().is_some_and(|view| view.guessed);
    asked.commands.iter().map(move |command| Asked { job, command, read_at, guessed, torn: false })
}

const HELD: &str = "another transaction holds the row, or its server takes no writes";
const OVERFLOW: &str = "a counter cannot take what would be added to it";
/// So few askers are woken one by one: a task to do it would only be a step more.
const WOKEN_HERE_MAX: usize = 2;
/// How many turns of the executor a commit waits for those who are about to ask: some microseconds where nobody is.
const LET_IN_TURNS: usize = 12;
/// How often a command is decided again because others keep moving its rows.
const ROUNDS_MAX: usize = 16;
/// How often a commit with an unknown outcome is repeated under its own ids.
const REPEATS_MAX: usize = 3;

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

type Outcome = Result<Vec<Result<Reply, Error>>, Error>;

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
            Command::Claim(_) | Command::Seal(_) | Command::Renew(_) | Command::Release(_) | Command::Observe(_)
        )
    };
    jobs.iter().flat_map(|job| job.commands.iter()).all(of_a_fence)
}

fn count(jobs: &[Job]) -> usize {
    jobs.iter().map(|job| job.commands.len()).sum()
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

/// One command's share of a batch.
enum Decided {
    /// An answer alone. It may rest on rows that others of the batch write, with so many sets before it.
    Answer(Reply, usize),
    /// An answer that counts once its set does.
    Written(Reply, usize),
    /// It must be decided again: it rests on a guess, on rows of two moments, on a time before its rows, on a position that is
    /// not given yet, or comes after such a one.
    Later,
}

// The replies to the commands of those jobs that one commit takes: of the first, at least.
async fn commit(shared: &Shared, jobs: &[Job]) -> Outcome {
    if let Some(why) = shared.stopped.get() {
        return Err(Error::Stopped(why.clone()));
    }
    let mut commands: Vec<Asked<'_>> = Vec::with_capacity(count(jobs));
    commands.extend(jobs.iter().enumerate().flat_map(asked));
    let mut replies: Vec<Option<Result<Reply, Error>>> = Vec::new();
    replies.resize_with(commands.len(), || None);
    let mut open: Vec<usize> = (0..commands.len()).collect();
    // A job has one answer: where one of its commands has failed, those that are still open must not happen any more.
    let mut failed: BTreeMap<usize, Error> = BTreeMap::new();
    // The first round is everybody together, over what is known already. Those whose rows have moved since, or were
    // guessed wrongly, are read for together; later rounds are those that others keep moving, alone.
    for round in 0..ROUNDS_MAX {
        let mut again: Vec<usize> = Vec::new();
        let batches: Vec<&[usize]> = if round <= 1 { vec![&open] } else { open.chunks(1).collect() };
        for batch in batches {
            // Those of one job keep their order: whoever comes after one that has moved again waits for it.
            if let (Some(waits_for), [index]) = (again.last(), batch)
                && commands[*waits_for].job == commands[*index].job
            {
                again.push(*index);
                continue;
            }
            if let [index] = batch
                && let Some(error) = failed.get(&commands[*index].job)
            {
                replies[*index] = Some(Err(error.clone()));
                continue;
            }
            let mut part: Vec<Asked<'_>> = batch.iter().map(|index| commands[*index]).collect();
            // What was read earlier counts once: what has moved since is read again.
            let (known, moved) = if round == 0 { World::merged(jobs) } else { Default::default() };
            for asked in &mut part {
                match &jobs[asked.job].view {
                    Some(view) if round == 0 => asked.torn = torn(asked.command, &known, &moved, view),
                    _ => (asked.read_at, asked.guessed) = (None, false),
                }
            }
            let reading = if round == 0 { Reading::Fitting } else { Reading::All };
            let decided = match attempt(shared, &part, known, reading).await {
                Ok(decided) => decided,
                // Only the first round speaks for everybody: later, others are already durable.
                Err(error) if round == 0 || matches!(error, Error::Stopped(_)) => return Err(error),
                Err(error) => batch.iter().map(|_| Some(Err(error.clone()))).collect(),
            };
            // The first round says how much one commit takes.
            replies.truncate(if round == 0 { decided.len() } else { replies.len() });
            for (index, reply) in batch.iter().zip(decided) {
                match reply {
                    Some(reply) => {
                        if let Err(error) = &reply {
                            failed.entry(commands[*index].job).or_insert_with(|| error.clone());
                        }
                        replies[*index] = Some(reply);
                    }
                    None => again.push(*index),
                }
            }
        }
        if round == 0 {
            open.truncate(replies.len());
            let guessed = |indices: &[usize]| indices.iter().filter(|index| commands[**index].guessed).count();
            shared.luck.note(guessed(&open), guessed(&again));
        }
        again.retain(|index| {
            let error = failed.get(&commands[*index].job);
            replies[*index] = error.map(|error| Err(error.clone()));
            error.is_none()
        });
        if again.is_empty() {
            break;
        }
        open = again;
    }
    let unheard = || Err(Error::Unavailable("too many writers on one key".to_owned()));
    Ok(replies.into_iter().map(|reply| reply.unwrap_or_else(unheard)).collect())
}

// Decides and commits once; where only as many are read for as fit, that many. No reply where the rows it stands on have moved.
async fn attempt(
    shared: &Shared,
    asked: &[Asked<'_>],
    known: World,
    reading: Reading,
) -> Result<Vec<Option<Result<Reply, Error>>>, Error> {
    let commands: Vec<&Command> = asked.iter().map(|asked| asked.command).collect();
    let before = shared.time.now();
    let (world, end) = load_fitting(shared, asked, &commands, known, reading).await?;
    let (asked, commands) = (&asked[..end], &commands[..end]);
    let mut draft = Draft::new(world, commands.len());
    // A write is dated after its rows were read: they hold until the commit, or the store says that they moved.
    let now = shared.time.now();
    let mut decided = Vec::with_capacity(commands.len());
    // Rows that tell a position once the store has given it, and the job whose commands wait for one.
    let mut unplaced = HashSet::default();
    let mut waits = None;
    // What each job appended to a lane last: what it appends there next comes after that, or not at all.
    let mut ahead: BTreeMap<(usize, LaneId), (RowKey, CommitId)> = BTreeMap::new();
    for Asked { job, command, read_at, guessed, torn } in asked {
        if waits == Some(*job) || *torn || touches(command, &draft, &unplaced) {
            waits = Some(*job);
            decided.push(Decided::Later);
            continue;
        }
        let decision = decide(command, &draft, now);
        if decision.only_answers() {
            // Nothing compares these rows again: judged later than read, a lease would lapse although renewed since.
            let earlier = decide(command, &draft, read_at.unwrap_or(before));
            // A write must not be dated before its rows: where it would have been one then, only rows read anew can tell.
            if *guessed || !earlier.only_answers() {
                waits = Some(*job);
                decided.push(Decided::Later);
                continue;
            }
            if let Some(target) = command.target() {
                shared.note(target.key, &earlier.reply, now);
            }
            decided.push(Decided::Answer(earlier.reply, draft.sets.len()));
            continue;
        }
        let Decision { writes, mut also, reply } = decision;
        // What was decided over another's write must not stand where that falls, also if it leaves that row alone.
        if shared.many_rows {
            also.held.extend(draft.leans(command, &writes));
        }
        let id = shared.next_id();
        let Also { merges, held, .. } = &mut also;
        for append in appends(merges) {
            unplaced.insert(append.position_row);
            let before = ahead.insert((*job, append.lane), (append.position_row, id));
            // Those of one set come in their order anyway.
            let before = before.filter(|(_, before)| *before != id);
            held.extend(before.map(|(position_row, id)| (position_row, Some(id))));
        }
        decided.push(Decided::Written(reply, draft.sets.len()));
        draft.add(WriteSet { id, writes, also });
    }
    let sets = &draft.sets;
    if sets.is_empty() {
        let told = |one| if let Decided::Answer(reply, _) = one { Some(Ok(reply)) } else { None };
        return Ok(decided.into_iter().map(told).collect());
    }
    let Persisted { verdicts, repeated } = persist(shared, sets, now).await.inspect_err(|error| {
        if let Error::Unknown(_) = error {
            shared.herald_perhaps(sets);
        }
    })?;
    let positions = positions(shared, sets, &verdicts).await;
    let fallen: Vec<usize> = (0..sets.len()).filter(|set| !verdicts[*set].applied()).collect();
    let fallen_before = |end: usize| -> HashSet<RowKey> {
        let before = fallen.iter().filter(|set| **set < end);
        before.flat_map(|set| sets[*set].writes.iter().map(|write| write.key)).collect()
    };
    shared.waiters.wake(freed(sets));
    let applied = sets.iter().zip(&positions).zip(&verdicts).filter(|(_, verdict)| verdict.applied());
    shared.herald(applied.map(|((set, positions), _)| (set, &positions[..])));
    let applied_set = |one: &Decided| match one {
        Decided::Written(_, set) if verdicts[*set].applied() => Some(*set),
        Decided::Written(..) | Decided::Answer(..) | Decided::Later => None,
    };
    let happened: Vec<Option<usize>> = decided.iter().map(applied_set).collect();
    // The rows that commands of the same job have written behind the one at this place.
    let written_behind = |at: usize| -> HashSet<RowKey> {
        let behind = (at + 1..asked.len()).take_while(|other| asked[*other].job == asked[at].job);
        behind.filter_map(|other| happened[other]).flat_map(|set| sets[set].writes.iter().map(|w| w.key)).collect()
    };
    Ok(decided
        .into_iter()
        .zip(commands)
        .enumerate()
        .map(|(at, (one, command))| match one {
            Decided::Written(reply, set) => match &verdicts[set] {
                // A reply tells of one position, where there is any: the first.
                verdict if verdict.applied() => Some(match positions[set].first() {
                    Some(Some(seq)) => Ok(reply.placed(*seq)),
                    None => Ok(reply),
                    // It is durable, but where it is cannot be told now: asked again, it is a duplicate that knows.
                    Some(None) => Err(Error::Unknown("the position cannot be read".to_owned())),
                }),
                // The first try may have gone through and been written over since: decided again, it would happen twice.
                _ if repeated => Some(Err(Error::Unknown("another node wrote meanwhile".to_owned()))),
                // Waiting here would make everybody wait.
                Verdict::Held => Some(Err(Error::Unavailable(HELD.to_owned()))),
                Verdict::Overflow => Some(Err(Error::Unavailable(OVERFLOW.to_owned()))),
                _ => None,
            },
            // A refusal that was decided over a write which then did not happen must be decided again. One that was decided before
            // that stands: decided again, it would come after those that its asker put behind it.
            Decided::Answer(reply, sets_before) => {
                if !touches(command, &draft, &fallen_before(sets_before)) {
                    return Some(Ok(reply));
                }
                // What its asker put behind it on the same rows has happened already: decided now, it would come after that.
                let overtaken = touches(command, &draft, &written_behind(at));
                overtaken.then(|| Err(Error::Unknown("a write that the answer rests on did not happen".to_owned())))
            }
            Decided::Later => None,
        })
        .collect())
}

fn appends(merges: &[Merge]) -> impl Iterator<Item = &Append> {
    merges.iter().filter_map(|merge| if let Merge::Append(append) = merge { Some(append) } else { None })
}

// The positions that the appends of each set got, in their order. A repeated commit no longer knows them: the rows that were
// told do.
async fn positions(shared: &Shared, sets: &[WriteSet], verdicts: &[Verdict]) -> Vec<Vec<Option<u64>>> {
    let told = |verdict: &Verdict| match verdict {
        Verdict::Merged(merged) => merged.iter().filter_map(position).collect(),
        _ => Vec::new(),
    };
    let mut positions: Vec<Vec<Option<u64>>> = verdicts.iter().map(told).collect();
    let untold: Vec<(usize, RowKey)> = sets
        .iter()
        .zip(verdicts)
        .enumerate()
        .filter(|(_, (_, verdict))| **verdict == Verdict::Applied)
        .flat_map(|(at, (set, _))| set.also.appends().map(move |append| (at, append.position_row)))
        .collect();
    if untold.is_empty() {
        return positions;
    }
    let keys: Vec<RowKey> = untold.iter().map(|(_, key)| *key).collect();
    let rows = shared.store.load(&keys).await.unwrap_or_else(|_| vec![None; keys.len()]);
    for ((at, _), row) in untold.iter().zip(rows) {
        positions[*at].push(row.and_then(|row| lane::position(&row.record)));
    }
    positions
}

fn position(merged: &Merged) -> Option<Option<u64>> {
    if let Merged::Position(seq) = merged { Some(Some(*seq)) } else { None }
}

/// What the store said of a commit, and whether that was only when it was asked once more.
struct Persisted {
    verdicts: Vec<Verdict>,
    repeated: bool,
}

async fn persist(shared: &Shared, sets: &[WriteSet], now: Millis) -> Result<Persisted, Error> {
    let mut perhaps = None;
    for _ in 0..REPEATS_MAX {
        match shared.store.commit(sets, now).await {
            Err(fencepost_store::Error::Unknown(why)) => perhaps = Some(why),
            // This try did nothing, but an earlier one may have: only a verdict says that nothing happened.
            Err(fencepost_store::Error::NotApplied(_)) if perhaps.is_some() => {}
            outcome => return Ok(Persisted { verdicts: outcome?, repeated: perhaps.is_some() }),
        }
    }
    Err(Error::Unknown(perhaps.unwrap_or_default()))
}

// Keys that somebody may be waiting for.
fn freed(sets: &[WriteSet]) -> impl Iterator<Item = FenceKey> {
    sets.iter().flat_map(|set| &set.writes).filter_map(|write| match &write.put {
        Some(Record::Fence(fence)) if !matches!(fence.state, State::Pending { .. }) => Some(FenceKey(write.key.id)),
        _ => None,
    })
}
