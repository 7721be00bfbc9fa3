//! Decides the items of jobs, some hundreds in each commit: a job of each tenant in turn, and at one node the jobs of a tenant
//! one after the other.
//! Never decides an item twice: a commit stands only where as many items are decided as when it was prepared, so a node that
//! takes up what another one still does only wastes its work. Runs beside the server.

use std::{
    collections::{BTreeMap, VecDeque},
    sync::Arc,
    time::{Duration, Instant},
};

use bytes::{Buf, Bytes};
use fencepost_kernel::{
    Command, Millis, Reply, RowKey, Tenant,
    item::{Change, ItemFault, Submit},
    job::{self, Clear, Fail, Job, JobFailure, JobProgress, JobState, Step},
    json,
    key::Kind,
};
use futures::{FutureExt, future::join};
use tokio::time::{sleep, timeout};

use super::{
    super::{
        Ingest, IngestSignals,
        items::{ITEM_BYTES_MAX, read_items},
    },
    CLEARED_AT_ONCE, CUT, JOB_MS_MAX,
};
use crate::engine::Error;

/// How often jobs are looked for that no signal announced: those of other nodes, and those from before a crash.
const LOOK_EVERY: Duration = Duration::from_secs(1);
/// How often open jobs are counted.
const COUNT_EVERY: Duration = Duration::from_secs(10);
/// Another node takes a job up that has not moved for so long.
const LEASE_MS: u64 = 5_000;
/// How long the work waits where every job rests after an error.
const REST: Duration = Duration::from_millis(100);
/// How many due jobs are read at once.
const DUE: usize = 100;
/// How many references the items of one commit make: each may become a row.
const REFERENCES_MAX: usize = 900;
/// A node whose policy lacks the collection of a job leaves it to others for so long.
const UNKNOWN_MS_MAX: u64 = 600_000;

/// Jobs that have not ended, as the background work saw them last.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub struct JobFigures {
    /// How many of them wait for their first step.
    pub queued: usize,
    /// How many have begun.
    pub running: usize,
    /// When the oldest of them was made.
    pub oldest: Option<Millis>,
}

/// Moves jobs on. `current` is asked each time for the rules in force: `None` ends the work, `Some(None)` waits until jobs can be
/// kept. `decided` hears what became of items of a collection, `counted` how many jobs are open.
pub async fn run(
    signals: Arc<IngestSignals>,
    current: impl Fn() -> Option<Option<Ingest>>,
    decided: impl Fn(&Arc<str>, JobProgress),
    counted: impl Fn(JobFigures),
) {
    let mut turns = Turns::default();
    let (mut looked_at, mut counted_at): (Option<Instant>, Option<Instant>) = (None, None);
    let passed = |at: Option<Instant>, span| at.is_none_or(|at| at.elapsed() >= span);
    loop {
        if turns.0.is_empty() {
            let _ = timeout(LOOK_EVERY, signals.queued.notified()).await;
            looked_at = None;
        }
        // A job that came meanwhile does not wait for those under way.
        if signals.queued.notified().now_or_never().is_some() {
            looked_at = None;
        }
        let Some(ingest) = current() else { return };
        let Some(ingest) = ingest else {
            turns.0.clear();
            sleep(LOOK_EVERY).await;
            continue;
        };
        if passed(looked_at, LOOK_EVERY) {
            looked_at = Some(Instant::now());
            if let Ok(due) = ingest.due_jobs().await {
                due.into_iter().for_each(|job| turns.add(job));
            }
        }
        if passed(counted_at, COUNT_EVERY) {
            counted_at = Some(Instant::now());
            if let Ok(figures) = ingest.job_figures().await {
                counted(figures);
            }
        }
        let Some((tenant, mut turn)) = turns.next() else {
            sleep(REST).await;
            continue;
        };
        let Some(work) = turn.front_mut() else { continue };
        work.rests_until = None;
        let before = work.job.progress;
        let moved = ingest.move_on(work).await;
        if !work.job.dry_run && work.job.progress != before {
            decided(&work.job.collection, since(before, work.job.progress));
        }
        match moved {
            Ok(More::Yes) => {}
            Ok(More::No) => drop(turn.pop_front()),
            Err(_) => work.rests_until = Some(Instant::now() + LOOK_EVERY),
        }
        if !turn.is_empty() {
            turns.0.push_back((tenant, turn));
        }
    }
}

fn since(before: JobProgress, now: JobProgress) -> JobProgress {
    JobProgress {
        accepted: now.accepted.saturating_sub(before.accepted),
        replay: now.replay.saturating_sub(before.replay),
        quarantined: now.quarantined.saturating_sub(before.quarantined),
        rejected: now.rejected.saturating_sub(before.rejected),
    }
}

/// The jobs that this node works on: tenants take turns.
#[derive(Default)]
struct Turns(VecDeque<(Tenant, VecDeque<Work>)>);

impl Turns {
    // The tenant whose turn it is; none where the jobs of all of them rest.
    fn next(&mut self) -> Option<(Tenant, VecDeque<Work>)> {
        let now = Instant::now();
        let rests =
            |turn: &VecDeque<Work>| turn.front().and_then(|work| work.rests_until).is_some_and(|until| now < until);
        let place = self.0.iter().position(|(_, turn)| !rests(turn))?;
        self.0.remove(place)
    }

    fn add(&mut self, job: Arc<Job>) {
        let own = self.0.iter_mut().find(|(tenant, _)| *tenant == job.tenant);
        let turn = match own {
            Some((_, turn)) => turn,
            None => {
                self.0.push_back((job.tenant.clone(), VecDeque::new()));
                &mut self.0.back_mut().expect("it was pushed").1
            }
        };
        if turn.iter().all(|work| work.job.id != job.id) {
            turn.push_back(Work { job, prepared: None, rests_until: None });
        }
    }
}

/// A job that this node works on.
struct Work {
    job: Arc<Job>,
    /// Its next items, read while those before them were committed.
    prepared: Option<Prepared>,
    /// After an error, until when it waits.
    rests_until: Option<Instant>,
}

/// Items that are read and wait for their commit.
struct Prepared {
    done: u64,
    submit: Submit,
    items: Vec<Bytes>,
    ends_chunk: Option<u64>,
}

/// Whether a job needs further turns of this node.
enum More {
    Yes,
    No,
}

enum Preparation {
    Ready(Prepared),
    /// The job cannot go on.
    Impossible(JobFailure),
}

impl Ingest {
    // Of each tenant the job that is due for longest.
    async fn due_jobs(&self) -> Result<Vec<Arc<Job>>, Error> {
        let (mut first, mut after) = (BTreeMap::new(), None);
        loop {
            let page = self.engine.due(Kind::Job, after, DUE).await?;
            for job in page.iter().filter_map(|(_, row)| row.record.as_job()) {
                first.entry(job.tenant.clone()).or_insert_with(|| job.clone());
            }
            match page.last().filter(|_| page.len() == DUE) {
                Some((key, row)) => after = row.record.due_at().map(|due| (due, *key)),
                None => return Ok(first.into_values().collect()),
            }
        }
    }

    async fn job_figures(&self) -> Result<JobFigures, Error> {
        let (mut figures, mut after) = (JobFigures::default(), None);
        loop {
            let page = self.engine.due_by(Kind::Job, self.engine.now().plus(LEASE_MS), after, DUE).await?;
            for job in page.iter().filter_map(|(_, row)| row.record.as_job()).filter(|job| job.state.is_open()) {
                figures.queued += usize::from(job.state == JobState::Queued);
                figures.running += usize::from(job.state == JobState::Running);
                figures.oldest = Some(figures.oldest.map_or(job.created, |oldest| oldest.min(job.created)));
            }
            match page.last().filter(|_| page.len() == DUE) {
                Some((key, row)) => after = row.record.due_at().map(|due| (due, *key)),
                None => return Ok(figures),
            }
        }
    }

    /// Decides the next items of a job, or drops chunks of one that has ended.
    async fn move_on(&self, work: &mut Work) -> Result<More, Error> {
        if !work.job.state.is_open() {
            return self.clear(work).await;
        }
        let prepared = match work.prepared.take().filter(|prepared| prepared.done == work.job.progress.done()) {
            Some(prepared) => prepared,
            None => match self.prepare(&work.job, work.job.progress.done(), work.job.first_chunk).await? {
                Preparation::Ready(prepared) => prepared,
                Preparation::Impossible(failure) => return self.fail(work, failure).await,
            },
        };
        let (next_line, ends_chunk) = (prepared.done + prepared.items.len() as u64, prepared.ends_chunk);
        let step = Step {
            job: work.job.id,
            done: prepared.done,
            submit: prepared.submit,
            items: prepared.items,
            ends_chunk,
            lease_ms: LEASE_MS,
            retain_ms: self.rules.settings.job_retain_ms,
            results_retain_ms: self.rules.settings.job_retain_ms + JOB_MS_MAX,
        };
        let next_chunk = ends_chunk.map_or(work.job.first_chunk, |chunk| chunk + 1);
        let next = async {
            if next_line >= work.job.lines {
                return None;
            }
            match self.prepare(&work.job, next_line, next_chunk).await {
                Ok(Preparation::Ready(prepared)) => Some(prepared),
                // It is tried again when it is its turn.
                Ok(Preparation::Impossible(_)) | Err(_) => None,
            }
        };
        let (reply, next) = join(self.engine.ask(Command::from(job::Command::Step(step.into()))), next).await;
        work.prepared = next;
        if self.rules.settings.auto_release {
            self.signals.arrived.notify_one();
        }
        self.take(work, reply).await
    }

    async fn fail(&self, work: &mut Work, failure: JobFailure) -> Result<More, Error> {
        let (job, retain_ms) = (work.job.id, self.rules.settings.job_retain_ms);
        let fail = Fail { job, done: work.job.progress.done(), failure, retain_ms };
        let reply = self.engine.ask(Command::from(job::Command::Fail(fail.into()))).await;
        self.take(work, reply).await
    }

    async fn clear(&self, work: &mut Work) -> Result<More, Error> {
        let clear = Clear { job: work.job.id, given_up: false, chunks_max: CLEARED_AT_ONCE };
        let reply = self.engine.ask(Command::from(job::Command::Clear(clear))).await;
        self.take(work, reply).await
    }

    // The job as the reply says it. Where another node has moved it on, that one goes on with it.
    async fn take(&self, work: &mut Work, reply: Result<Reply, Error>) -> Result<More, Error> {
        match reply {
            Ok(Reply::Job(job::Reply::Job(job))) => work.job = job,
            Ok(_) => return Ok(More::No),
            Err(error) => {
                // It may have happened.
                match self.engine.load(&[RowKey::job(work.job.id)]).await?.pop().flatten() {
                    Some(row) => work.job = row.record.as_job().cloned().unwrap_or_else(|| work.job.clone()),
                    None => return Ok(More::No),
                }
                return Err(error);
            }
        }
        Ok(if work.job.due.is_some() { More::Yes } else { More::No })
    }

    // Reads the items from a line on, as many as one commit takes.
    async fn prepare(&self, job: &Job, done: u64, chunk_number: u64) -> Result<Preparation, Error> {
        let impossible =
            |code: &str, message: String| Ok(Preparation::Impossible(JobFailure { code: code.to_owned(), message }));
        let Some(collection) = self.rules.collections.get(&job.collection) else {
            // Another node's policy may know it already, or still.
            if job.due.is_none_or(|due| self.engine.now().since(due) < UNKNOWN_MS_MAX) {
                return Err(Error::Unavailable(format!("there is no collection {:?}", &*job.collection)));
            }
            return impossible("unknown-collection", format!("there is no collection {:?} any more", &*job.collection));
        };
        let row = self.engine.load(&[RowKey::job_chunk(job.id, chunk_number)]).await?.pop().flatten();
        let Some(chunk) = row.as_ref().and_then(|row| row.record.as_chunk()) else {
            let message = format!("the items from number {done} on are not there any more; send them again");
            return impossible("upload-incomplete", message);
        };
        let (mut changes, mut items, mut references) = (Vec::new(), Vec::new(), 0);
        let skipped = usize::try_from(done.saturating_sub(chunk.first_line)).unwrap_or(usize::MAX);
        let mut rest = chunk.content.clone();
        let mut is_last = true;
        for (number, (item, is_whole)) in std::iter::from_fn(|| take_item(&mut rest)).enumerate() {
            if number < skipped {
                continue;
            }
            let change = read(collection, &job.tenant, &item, is_whole);
            references += change.references();
            if references > REFERENCES_MAX && !changes.is_empty() {
                is_last = false;
                break;
            }
            changes.push(change);
            items.push(item);
        }
        let submit = Submit {
            tenant: job.tenant.clone(),
            claim: None,
            by: job.by.clone(),
            correlation_id: job.correlation_id.clone(),
            collection: job.collection.clone(),
            changes,
            auto_release: self.rules.settings.auto_release,
            quarantine_retain_ms: self.rules.settings.quarantine_retain_ms,
            answer: |_, _| Bytes::new(),
        };
        let ends_chunk = is_last.then_some(chunk_number);
        Ok(Preparation::Ready(Prepared { done, submit, items, ends_chunk }))
    }
}

// The next item of a chunk, and whether it is whole.
fn take_item(rest: &mut Bytes) -> Option<(Bytes, bool)> {
    if rest.len() < 4 {
        return None;
    }
    let len = rest.get_u32();
    let bytes = ((len & !CUT) as usize).min(rest.len());
    Some((rest.split_to(bytes), len & CUT == 0))
}

fn read(
    collection: &fencepost_policy::collections::Collection,
    tenant: &Tenant,
    item: &Bytes,
    is_whole: bool,
) -> Change {
    let refused = |message: String| {
        let faults = vec![ItemFault { pointer: String::new(), message }];
        Change::Refuse { source_id: None, faults }
    };
    if !is_whole {
        return refused(format!("has more than {ITEM_BYTES_MAX} bytes"));
    }
    match json::parse(item) {
        Ok(node) if matches!(node.value, json::Value::Object(_)) => {
            let mut changes = read_items(collection, tenant, std::slice::from_ref(&node), item);
            changes.pop().unwrap_or_else(|| refused("is no item".to_owned()))
        }
        Ok(_) => refused("must be a JSON object".to_owned()),
        Err(bad) => refused(bad.to_string()),
    }
}

#[cfg(test)]
mod tests {
    use fencepost_kernel::job::JobId;

    use super::*;

    #[test]
    fn items_of_a_chunk_read_back_and_damage_ends_it() {
        let mut chunk = Vec::new();
        for (item, cut) in [("{}", 0), ("{\"a\"", CUT)] {
            chunk.extend_from_slice(&(item.len() as u32 | cut).to_be_bytes());
            chunk.extend_from_slice(item.as_bytes());
        }
        chunk.extend_from_slice(b"\0\0");
        let mut rest = Bytes::from(chunk);
        assert_eq!(take_item(&mut rest), Some((Bytes::from_static(b"{}"), true)));
        assert_eq!(take_item(&mut rest), Some((Bytes::from_static(b"{\"a\""), false)));
        assert_eq!(take_item(&mut rest), None);
    }

    #[test]
    fn tenants_take_turns_and_one_job_of_a_tenant_is_worked_on_at_a_time() {
        let job = |tenant: &str, created| {
            let tenant = Tenant::new(tenant);
            Arc::new(Job {
                id: JobId::new(&tenant, Millis(created), 1),
                tenant,
                by: "".into(),
                correlation_id: "".into(),
                collection: "skus".into(),
                dry_run: false,
                state: JobState::Queued,
                chunks: 1,
                first_chunk: 0,
                lines: 1,
                bytes: 1,
                progress: JobProgress::default(),
                created: Millis(created),
                ended: None,
                due: Some(Millis(created)),
                expires: None,
            })
        };
        let mut turns = Turns::default();
        for due in [job("a", 1), job("a", 2), job("b", 3), job("a", 1)] {
            turns.add(due);
        }
        let waiting: Vec<_> = turns.0.iter().map(|(tenant, turn)| (tenant.as_str(), turn.len())).collect();
        assert_eq!(waiting, [("a", 2), ("b", 1)]);
    }
}
