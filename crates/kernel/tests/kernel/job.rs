//! Jobs: an upload that becomes one, its items decided once each, and what is left when it ends.

use std::sync::Arc;

use bytes::Bytes;
use fencepost_kernel::{
    Command, Millis, Reply, RowKey,
    fence::{self, Target, scope::OnLapse},
    item::StayOutcome,
    job::{
        self, BeginUpload, Cancel, Chunk, Clear, Enqueue, Fail, Job, JobFailure, JobId, JobProgress, JobState,
        LineVerdict, Results, Step, UploadPart,
    },
    row::Record,
};

use super::{
    item::desk::{Desk, tenant},
    world::{START, claim_body, scope, target_in},
};

const PATIENCE_MS: u64 = 1_000;
const LEASE_MS: u64 = 100;
const RETAIN_MS: u64 = 5_000;
const EXPIRES: Millis = Millis(u64::MAX);

fn id() -> JobId {
    JobId::new(&tenant(), START, 1)
}

fn request(name: &str) -> Target {
    target_in(scope(OnLapse::Recover), name)
}

fn begin(dry_run: bool) -> Command {
    let job = Job {
        id: id(),
        tenant: tenant(),
        by: "ann".into(),
        correlation_id: "c1".into(),
        collection: "skus".into(),
        dry_run,
        state: JobState::Uploading,
        chunks: 0,
        first_chunk: 0,
        lines: 0,
        bytes: 0,
        progress: JobProgress::default(),
        created: Millis(0),
        ended: None,
        due: None,
        expires: None,
    };
    job::Command::Upload(BeginUpload { job, patience_ms: PATIENCE_MS }.into()).into()
}

fn part(first_line: u64, lines: u64) -> Command {
    let chunk = Chunk { job: id(), first_line, lines, content: Bytes::from_static(b"items"), expires: EXPIRES };
    job::Command::Part(UploadPart { chunk, patience_ms: PATIENCE_MS }.into()).into()
}

fn enqueue(request: Option<(&Target, &str)>) -> Command {
    let claim = request.map(|(target, body)| {
        let Command::Fence(fence::Command::Claim(claim)) = claim_body(target, body) else { unreachable!() };
        claim.into()
    });
    let answer = |job: &Job| format!("{} items", job.lines).into();
    job::Command::Enqueue(Enqueue { job: id(), claim, retain_ms: RETAIN_MS, answer }.into()).into()
}

fn clear(given_up: bool) -> Command {
    job::Command::Clear(Clear { job: id(), given_up, chunks_max: 2 }).into()
}

fn cancel() -> Command {
    job::Command::Cancel(Cancel { job: id(), retain_ms: RETAIN_MS }).into()
}

// The step that decides the items of a text when `done` are decided.
fn step(desk: &Desk, done: u64, text: &str, ends_chunk: Option<u64>) -> Command {
    let submit = desk.command(text);
    let items = text.split(" + ").map(|item| Bytes::from(item.to_owned())).collect();
    let (lease_ms, retain_ms, results_retain_ms) = (LEASE_MS, RETAIN_MS, 2 * RETAIN_MS);
    let step = Step { job: id(), done, submit, items, ends_chunk, lease_ms, retain_ms, results_retain_ms };
    job::Command::Step(step.into()).into()
}

// A job of so many chunks of two items.
fn queued(chunks: u64) -> Desk {
    let mut desk = Desk::new();
    desk.world.run(&begin(false));
    (0..chunks).for_each(|chunk| assert_eq!(said(&desk.world.run(&part(2 * chunk, 2))), "UPLOADING"));
    assert_eq!(said(&desk.world.run(&enqueue(Some((&request("r1"), "1"))))), "new");
    desk
}

fn said(reply: &Reply) -> String {
    match reply {
        Reply::Job(job::Reply::Job(job)) => job.state.name().to_owned(),
        other => other.decision().to_owned(),
    }
}

fn job_of(desk: &Desk) -> Option<Arc<Job>> {
    desk.world.record(RowKey::job(id()))?.as_job().cloned()
}

fn chunks_of(desk: &Desk) -> Vec<u64> {
    (0..9).filter(|chunk| desk.world.record(RowKey::job_chunk(id(), *chunk)).is_some()).collect()
}

fn results_of(desk: &Desk, first_line: u64) -> Option<Arc<Results>> {
    desk.world.record(RowKey::job_results(id(), first_line))?.as_results().cloned()
}

#[test]
fn chunks_of_an_upload_are_added_in_their_order() {
    let mut desk = Desk::new();
    assert_eq!(said(&desk.world.run(&part(0, 2))), "no_such_job");
    desk.world.run(&begin(false));
    for (first_line, reply) in [(1, "no_such_job"), (0, "UPLOADING"), (0, "no_such_job"), (2, "UPLOADING")] {
        assert_eq!(said(&desk.world.run(&part(first_line, 2))), reply, "{first_line}");
    }
    let job = job_of(&desk).unwrap();
    assert_eq!((job.lines, job.chunks, job.bytes), (4, 2, 10));
    assert_eq!(job.due, Some(desk.world.now.plus(PATIENCE_MS)));
    assert_eq!(chunks_of(&desk), [0, 1]);
}

#[test]
fn upload_becomes_a_job_in_the_commit_that_seals_its_request() {
    let (mut desk, target) = (queued(2), request("r1"));
    assert_eq!(desk.world.phase(&target), "sealed");
    assert_eq!(desk.world.receipt(&target).as_deref(), Some("4 items"));
    assert_eq!(job_of(&desk).unwrap().state, JobState::Queued);
    // A repeat has uploaded nothing, and gets the first answer; another body is refused.
    let again = desk.world.decide(&enqueue(Some((&target, "1"))));
    assert_eq!((again.reply.decision(), again.only_answers()), ("duplicate", true));
    assert_eq!(desk.world.decide(&enqueue(Some((&target, "2")))).reply.decision(), "conflict");
    // Nothing is added to a job.
    assert_eq!(said(&desk.world.run(&part(4, 1))), "no_such_job");
}

#[test]
fn request_without_an_upload_spends_no_id() {
    let (mut desk, target) = (Desk::new(), request("r1"));
    let decision = desk.world.decide(&enqueue(Some((&target, "1"))));
    assert_eq!((decision.reply.decision(), decision.only_answers()), ("no_such_job", true));
    desk.world.run(&begin(false));
    // Another job may have been made meanwhile, but not of this upload.
    assert_eq!(said(&desk.world.run(&enqueue(Some((&target, "1"))))), "new");
    assert_eq!(desk.world.decide(&enqueue(Some((&request("r2"), "1")))).reply.decision(), "no_such_job");
}

#[test]
fn job_without_items_has_ended_at_once() {
    let desk = queued(0);
    let job = job_of(&desk).unwrap();
    assert_eq!((&job.state, job.due, job.ended), (&JobState::Completed, None, Some(desk.world.now)));
    assert_eq!(job.expires, Some(desk.world.now.plus(RETAIN_MS)));
}

#[test]
fn each_item_is_decided_once_and_its_chunk_is_dropped_with_its_last() {
    let mut desk = queued(2);
    let first = step(&desk, 0, "a@1 + b@1 needs c", Some(0));
    assert_eq!(said(&desk.world.run(&first)), "RUNNING");
    assert_eq!(job_of(&desk).unwrap().due, Some(desk.world.now.plus(LEASE_MS)));
    assert_eq!(chunks_of(&desk), [1]);
    // The same step again, as of a node that was slow; and one that is ahead.
    for late in [first, step(&desk, 3, "x@1", None)] {
        let decision = desk.world.decide(&late);
        assert_eq!((said(&decision.reply).as_str(), decision.only_answers()), ("moved", true));
    }
    assert_eq!(said(&desk.world.run(&step(&desk, 2, "a@1", None))), "RUNNING");
    assert_eq!(chunks_of(&desk), [1], "its second item is still to come");
    assert_eq!(said(&desk.world.run(&step(&desk, 3, "refuse d", Some(1)))), "COMPLETED");
    let job = job_of(&desk).unwrap();
    assert_eq!(job.progress, JobProgress { accepted: 1, replay: 1, quarantined: 1, rejected: 1 });
    assert_eq!((job.due, chunks_of(&desk)), (None, Vec::new()));
    assert_eq!(desk.item("a").map(|item| item.seq), Some(1));
    assert_eq!(desk.quarantined("b").map(|stay| stay.resolved.is_none()), Some(true));
    assert_eq!(said(&desk.world.run(&step(&desk, 4, "e@1", None))), "moved");
}

#[test]
fn results_keep_an_item_that_was_not_taken_as_it_was_sent() {
    let mut desk = queued(2);
    desk.world.run(&step(&desk, 0, "a@1 + b@1 needs c + refuse d", None));
    let results = results_of(&desk, 0).unwrap();
    let lines: Vec<_> = results.lines.iter().map(|line| (line.source_id.as_deref(), line.item.as_deref())).collect();
    let expected: [(Option<&str>, Option<&[u8]>); 3] =
        [(Some("a"), None), (Some("b"), Some(b"b@1 needs c")), (Some("d"), Some(b"refuse d"))];
    assert_eq!(lines, expected);
    assert_eq!(results.lines[0].verdict, LineVerdict::Accepted { reactivated: false });
    assert_eq!(results.expires, desk.world.now.plus(2 * RETAIN_MS));
    let shown = results.lines[1].change_verdict(&results);
    assert_eq!(shown.status(), "QUARANTINED");
    // The id in the results is the one that a release takes.
    assert_eq!(desk.quarantined("b").map(|stay| stay.id()), Some(quarantine_of(&shown)));
}

fn quarantine_of(verdict: &fencepost_kernel::item::ChangeVerdict) -> fencepost_kernel::item::QuarantineId {
    let fencepost_kernel::item::ChangeVerdict::Quarantined { quarantine, .. } = verdict else { panic!() };
    *quarantine
}

#[test]
fn dry_run_changes_its_job_and_no_item() {
    let mut desk = Desk::after("a@1");
    desk.world.run(&begin(true));
    desk.world.run(&part(0, 2));
    assert_eq!(said(&desk.world.run(&enqueue(None))), "new");
    assert_eq!(said(&desk.world.run(&step(&desk, 0, "a@2 + b@1 needs c", Some(0)))), "COMPLETED");
    let progress = JobProgress { accepted: 1, quarantined: 1, ..JobProgress::default() };
    assert_eq!(job_of(&desk).unwrap().progress, progress);
    assert_eq!(desk.item("a").map(|item| item.seq), Some(1));
    assert_eq!((desk.item("c"), desk.quarantined("b")), (None, None));
    assert_eq!(results_of(&desk, 0).map(|results| results.lines.len()), Some(2));
}

#[test]
fn cancelled_job_decides_nothing_more_and_its_chunks_are_dropped_step_by_step() {
    let mut desk = queued(5);
    desk.world.run(&step(&desk, 0, "a@1 + b@1", Some(0)));
    assert_eq!(said(&desk.world.run(&cancel())), "CANCELLED");
    let ended = job_of(&desk).unwrap();
    assert_eq!(said(&desk.world.run(&step(&desk, 2, "c@1 + d@1", Some(1)))), "moved");
    desk.world.pass(10);
    // Cancelled again, it ended when it first did.
    assert_eq!(said(&desk.world.run(&cancel())), "CANCELLED");
    assert_eq!(job_of(&desk).unwrap(), ended);
    for left in [vec![3, 4], vec![]] {
        assert!(job_of(&desk).unwrap().due.is_some_and(|due| due <= desk.world.now), "a node takes it up");
        assert_eq!(said(&desk.world.run(&clear(false))), "CANCELLED");
        assert_eq!(chunks_of(&desk), left);
    }
    assert_eq!(job_of(&desk).unwrap().due, None);
    assert!(desk.item("a").is_some() && desk.item("c").is_none());
}

#[test]
fn upload_that_has_stopped_leaves_nothing() {
    for given_up in [true, false] {
        let mut desk = Desk::new();
        desk.world.run(&begin(false));
        (0..3).for_each(|chunk| drop(desk.world.run(&part(2 * chunk, 2))));
        if !given_up {
            assert_eq!(said(&desk.world.run(&clear(false))), "moved", "it may go on");
            desk.world.pass(PATIENCE_MS);
        }
        desk.world.run(&clear(given_up));
        assert_eq!(chunks_of(&desk), [2]);
        // Its sender comes too late.
        assert_eq!(said(&desk.world.run(&part(6, 2))), "no_such_job");
        assert_eq!(said(&desk.world.run(&enqueue(Some((&request("r1"), "1"))))), "no_such_job");
        desk.world.run(&clear(false));
        assert_eq!((chunks_of(&desk), job_of(&desk)), (Vec::new(), None));
        assert_eq!(said(&desk.world.run(&clear(false))), "no_such_job");
    }
}

#[test]
fn chunks_of_a_job_that_goes_on_are_not_dropped() {
    let mut desk = queued(3);
    desk.world.pass(10 * PATIENCE_MS);
    for given_up in [true, false] {
        assert_eq!(said(&desk.world.run(&clear(given_up))), "moved");
    }
    assert_eq!(chunks_of(&desk), [0, 1, 2]);
}

#[test]
fn job_that_cannot_go_on_fails_with_the_reason_unless_it_has_gone_on() {
    let mut desk = queued(2);
    let failure = JobFailure { code: "upload-incomplete".to_owned(), message: "gone".to_owned() };
    let fail = |done| -> Command {
        let fail = Fail { job: id(), done, failure: failure.clone(), retain_ms: RETAIN_MS };
        job::Command::Fail(fail.into()).into()
    };
    desk.world.run(&step(&desk, 0, "a@1 + b@1", Some(0)));
    assert_eq!(said(&desk.world.run(&fail(0))), "moved");
    assert_eq!(said(&desk.world.run(&fail(2))), "FAILED");
    assert_eq!(job_of(&desk).unwrap().state, JobState::Failed(failure.clone()));
    assert_eq!(said(&desk.world.run(&cancel())), "FAILED");
    assert_eq!(said(&desk.world.run(&clear(false))), "FAILED");
    assert_eq!(chunks_of(&desk), Vec::<u64>::new());
}

// INVARIANT one-verdict-a-line: two nodes prepare steps over what they saw some time ago, and some commits come late: no item is decided twice or left out.
#[test]
fn nodes_that_run_one_job_decide_each_item_once_whatever_they_saw() {
    for seed in 0..200 {
        let mut rng = fastrand::Rng::with_seed(seed);
        let mut desk = queued(6);
        let text =
            |line: u64| if line.is_multiple_of(3) { format!("i{line}@1 needs none") } else { format!("i{line}@1") };
        let mut prepared = Vec::new();
        for _ in 0..400 {
            let done = job_of(&desk).unwrap().progress.done();
            if done < 12 && rng.bool() {
                let lines = if done.is_multiple_of(2) && rng.bool() { 2 } else { 1 };
                let end = done + lines;
                let items: Vec<String> = (done..end).map(text).collect();
                let ends_chunk = end.is_multiple_of(2).then(|| end / 2 - 1);
                prepared.push(desk.world.decide(&step(&desk, done, &items.join(" + "), ends_chunk)));
            } else if !prepared.is_empty() {
                let decision = prepared.swap_remove(rng.usize(..prepared.len()));
                // A commit over rows that have moved is refused whole.
                let _ = desk.world.commit_also(&decision.writes, &decision.also);
            }
        }
        let job = job_of(&desk).unwrap();
        let progress = JobProgress { accepted: 8, quarantined: 4, ..JobProgress::default() };
        assert_eq!((&job.state, job.progress), (&JobState::Completed, progress), "seed {seed}");
        let lines: Vec<_> = (0..12).filter_map(|line| results_of(&desk, line)).collect();
        let names: Vec<_> =
            lines.iter().flat_map(|results| &results.lines).map(|line| line.source_id.clone()).collect();
        assert_eq!(names, (0..12).map(|line| Some(format!("i{line}"))).collect::<Vec<_>>(), "seed {seed}");
        assert_eq!(chunks_of(&desk), Vec::<u64>::new(), "seed {seed}");
    }
}

#[test]
fn released_item_of_a_job_says_its_request() {
    let mut desk = queued(1);
    desk.world.run(&step(&desk, 0, "a@1 needs b", None));
    let stay = desk.quarantined("a").unwrap();
    assert_eq!((&*stay.from.by, &*stay.from.correlation_id), ("ann", "c1"));
    desk.ask("b@1 + release a@1 needs b");
    let how = desk.quarantined("a").unwrap().resolved.clone().map(|end| end.how);
    assert_eq!(how, Some(StayOutcome::Released));
    assert!(matches!(desk.world.record(RowKey::job(id())), Some(Record::Job(_))));
}
