//! One batch: the commands of several jobs, decided one over the writes of another and committed together.
//! Never decides a command over rows of two moments, and never gives a reply whose write did not happen. A command
//! whose rows moved is decided again, and one that does not fit into memory is left to the next batch.
//! Called by the commit loop.

use std::collections::BTreeMap;

use ahash::HashSet;
use fencepost_kernel::{
    Command, Decision, FenceKey, Millis, Reply, RowKey, decide,
    fence::State,
    lane::{Append, LaneId},
    law::Also,
    merge::Merge,
    row::CommitId,
};
use fencepost_store::{Verdict, WriteSet};

use super::{
    EngineLimits, Error, Shared,
    commit::{Job, Outcome, count},
    rows::{Draft, LoadedRows, PAGE_COMMANDS, load, reads_inconsistent, touches},
};

const HELD: &str = "another transaction holds the row, or its server takes no writes";
pub(super) const OVERFLOW: &str = "a counter cannot take what would be added to it";
pub(super) const TOO_MANY_WRITERS: &str = "too many writers on one key";
/// How often a command is decided again because others keep moving its rows.
const ROUNDS_MAX: usize = 16;
/// How often a commit with an unknown outcome is repeated under its own ids.
const REPEATS_MAX: usize = 3;

/// A command of a job, and the time before its rows were read where that was earlier.
#[derive(Clone, Copy)]
struct Asked<'j> {
    job: usize,
    command: &'j Command,
    read_at: Option<Millis>,
    /// Its rows were guessed, not read: it may be written, but not answered.
    guessed: bool,
    /// A later reading shows that its rows have moved.
    inconsistent: bool,
}

fn asked((job, asked): (usize, &Job)) -> impl Iterator<Item = Asked<'_>> {
    let read_at = asked.view.as_ref().map(|view| view.at);
    let guessed = asked.view.as_ref().is_some_and(|view| view.guessed);
    asked.commands.iter().map(move |command| Asked { job, command, read_at, guessed, inconsistent: false })
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
pub(super) async fn commit(shared: &Shared, jobs: &[Job]) -> Outcome {
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
            // Rows that were read earlier are used once: those that have moved since are read again.
            let (known, moved) = if round == 0 { LoadedRows::merged(jobs) } else { Default::default() };
            for asked in &mut part {
                match &jobs[asked.job].view {
                    Some(view) if round == 0 => {
                        asked.inconsistent = reads_inconsistent(asked.command, &known, &moved, view)
                    }
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
    let unheard = || Err(Error::Unavailable(TOO_MANY_WRITERS.to_owned()));
    Ok(replies.into_iter().map(|reply| reply.unwrap_or_else(unheard)).collect())
}

/// How many commands rows are read for.
#[derive(Clone, Copy)]
enum Reading {
    All,
    /// As many of the first as one commit takes.
    Fitting,
}

// Page by page, since what a row weighs is known only once it is there. How many commands that was: all of a job, or none.
async fn load_fitting(
    shared: &Shared,
    asked: &[Asked<'_>],
    commands: &[&Command],
    known: LoadedRows,
    reading: Reading,
) -> Result<(LoadedRows, usize), Error> {
    let EngineLimits { batch_rows_max, batch_bytes_max, .. } = shared.limits;
    let (mut loaded, mut end) = (known, 0);
    let mut page = match reading {
        Reading::All => commands.len(),
        Reading::Fitting => PAGE_COMMANDS.min(batch_rows_max).max(1),
    };
    let already = loaded.rows.len();
    while end < commands.len() {
        let full = loaded.bytes >= batch_bytes_max || loaded.rows.len() - already >= batch_rows_max;
        if end > 0 && full {
            break;
        }
        let from = end;
        end = (from + page).min(commands.len());
        while end < commands.len() && asked[end].job == asked[end - 1].job {
            end += 1;
        }
        loaded = load(&mut &*shared, &commands[from..end], loaded).await?;
        // The rows so far tell how many of the next are left room for.
        let left = end * batch_bytes_max.saturating_sub(loaded.bytes) / loaded.bytes.max(1);
        page = left.clamp(1, page);
    }
    Ok((loaded, end))
}

// Decides and commits once; where only as many are read for as fit, that many. No reply where the rows it stands on have moved.
async fn attempt(
    shared: &Shared,
    asked: &[Asked<'_>],
    known: LoadedRows,
    reading: Reading,
) -> Result<Vec<Option<Result<Reply, Error>>>, Error> {
    let commands: Vec<&Command> = asked.iter().map(|asked| asked.command).collect();
    let before = shared.time.now();
    let (loaded, end) = load_fitting(shared, asked, &commands, known, reading).await?;
    let (asked, commands) = (&asked[..end], &commands[..end]);
    let mut draft = Draft::new(loaded, commands.len());
    // A write is dated after its rows were read: they hold until the commit, or the store says that they moved.
    let now = shared.time.now();
    let mut decided = Vec::with_capacity(commands.len());
    // Rows that tell a position once the store has given it, and the job whose commands wait for one.
    let mut positions_pending = HashSet::default();
    let mut waits = None;
    // The last entry that each job appended to a lane: the next one comes after that, or not at all.
    let mut ahead: BTreeMap<(usize, LaneId), (RowKey, CommitId)> = BTreeMap::new();
    for Asked { job, command, read_at, guessed, inconsistent } in asked {
        if waits == Some(*job) || *inconsistent || touches(command, &draft, &positions_pending) {
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
        // A decision over another's write must not stand where that falls, also if it leaves that row alone.
        if shared.many_rows {
            also.held.extend(draft.read_dependencies(command, &writes));
        }
        let id = shared.next_id();
        let Also { merges, held, .. } = &mut also;
        for append in appends(merges) {
            positions_pending.insert(append.position_row);
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
            shared.notify_listeners_of_unknown(sets);
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
    shared.notify_listeners(applied.map(|((set, positions), _)| (set, &positions[..])));
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
                    Some(Some(seq)) => Ok(reply.with_position(*seq)),
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
                // Later commands of the same job wrote these rows already: decided now, it would come after them.
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
    let mut positions: Vec<Vec<Option<u64>>> =
        verdicts.iter().map(|verdict| verdict.positions().map(Some).collect()).collect();
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
        positions[*at].push(row.and_then(|row| row.record.position()));
    }
    positions
}

/// The store's verdicts on a commit, and whether they were known only when it was repeated.
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
    sets.iter().flat_map(|set| &set.writes).filter_map(|write| {
        let fence = write.put.as_ref()?.as_fence()?;
        (!matches!(fence.state, State::Pending { .. })).then_some(FenceKey(write.key.id))
    })
}
