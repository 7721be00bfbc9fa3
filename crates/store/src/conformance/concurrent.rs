//! The part of law 7 that needs several writers: no gap, no position twice, and no reader that sees n+1 before n.
//! Never relies on which writer is first. Called by the law on order; the one on moved rows races by the same means.

use std::{
    future::poll_fn,
    sync::{
        Arc,
        atomic::{AtomicU64, Ordering},
    },
    task::Poll,
};

use fencepost_kernel::{RowKey, key::Kind, lane::LaneId, merge::Merged};
use futures::future::BoxFuture;

use super::{
    Harness, LawViolation, holds,
    ordered::{LANE, holding, insist, publish},
    rows::{NOW, key, put, record, set},
    same,
};
use crate::{
    Store,
    Verdict::{self, Applied},
};

const WRITERS: u64 = 2;
const COMMITS: u64 = 25;
const BATCH: u64 = 3;
const PAGE: usize = 4;
const RACES: u64 = 20;

/// One of several jobs that run at the same time.
pub(super) type Job = BoxFuture<'static, Result<(), LawViolation>>;

pub(super) async fn check(harness: &mut dyn Harness) -> Result<(), LawViolation> {
    writers_and_readers_of_one_lane(harness)?;
    a_lane_is_left_or_written_to(harness).await
}

fn writers_and_readers_of_one_lane(harness: &mut dyn Harness) -> Result<(), LawViolation> {
    let store = harness.open();
    let running = Arc::new(AtomicU64::new(WRITERS));
    let mut jobs: Vec<Job> = Vec::new();
    for writer in 0..WRITERS {
        let (store, running) = (if writer == 0 { store.clone() } else { harness.beside(&store) }, running.clone());
        jobs.push(Box::pin(async move {
            let written = write(&*store, writer).await;
            running.fetch_sub(1, Ordering::AcqRel);
            written
        }));
    }
    jobs.push(Box::pin(async move { follow(&*store, &running).await }));
    harness.together(jobs)
}

async fn write(store: &dyn Store, writer: u64) -> Result<(), LawViolation> {
    let mut last = 0;
    for turn in 0..COMMITS {
        let ids = (0..BATCH).map(|at| 1 + (turn * WRITERS + writer) * BATCH + at);
        let sets: Vec<_> = ids.map(|id| publish(id, LANE, id)).collect();
        for verdict in insist(store, &sets).await? {
            let Some(seq) = position(&verdict) else {
                return Err(LawViolation(format!("an append that nothing is in the way of: {verdict:?}")));
            };
            holds("a writer's own positions grow", seq > last)?;
            last = seq;
        }
    }
    Ok(())
}

fn position(verdict: &Verdict) -> Option<u64> {
    match verdict {
        Verdict::Merged(merged) => match merged[..] {
            [Merged::Position(seq)] => Some(seq),
            _ => None,
        },
        _ => None,
    }
}

// Reads pages as a driver does: each page starts where the last one ended.
async fn follow(store: &dyn Store, running: &AtomicU64) -> Result<(), LawViolation> {
    let (mut seen, mut sets) = (0, Vec::new());
    loop {
        let done = running.load(Ordering::Acquire) == 0;
        let page = store.scan(Kind::Entry, Some(RowKey::entry(LANE, seen)), PAGE).await?;
        for (key, row) in &page {
            same("the position after the last that was seen", key.place(), (LANE, seen + 1))?;
            seen += 1;
            sets.push(row.revision.0);
        }
        if done && page.is_empty() {
            sets.sort_unstable();
            return same("the sets in the lane, each once", sets, (1..=WRITERS * COMMITS * BATCH).collect());
        }
    }
}

// One writer changes a route because its lane was empty; the other appends because it saw that route. Only one may win.
async fn a_lane_is_left_or_written_to(harness: &mut dyn Harness) -> Result<(), LawViolation> {
    let store = harness.open();
    let beside = harness.beside(&store);
    let wins: Arc<[AtomicU64]> = (0..RACES).map(|_| AtomicU64::new(0)).collect();
    let arrived = Arc::new(AtomicU64::new(0));
    let route = |race: u64| key(Kind::Transport, race);
    let lane = |race: u64| LaneId([race as u8; 24]);
    let made = (0..RACES).map(|number| set(1 + number, [put(route(number), None, record(Kind::Transport, 1))]));
    let verdicts = store.commit(&made.collect::<Vec<_>>(), NOW).await?;
    same("the verdicts on the routes", verdicts, vec![Applied; RACES as usize])?;
    let race = |store: Arc<dyn Store>, leaves: bool| -> Job {
        let (wins, arrived) = (wins.clone(), arrived.clone());
        Box::pin(async move {
            for number in 0..RACES {
                let (id, expect) = (1 + number, Some(1 + number));
                let set = if leaves {
                    let change = set(id + 100, [put(route(number), expect, record(Kind::Transport, 2))]);
                    holding(change, [(RowKey::tail(lane(number)), None)])
                } else {
                    holding(publish(id + 200, lane(number), number), [(route(number), expect)])
                };
                meet(&arrived, 2 * id).await;
                match insist(&*store, &[set]).await {
                    Ok(verdicts) if verdicts.iter().all(|verdict| verdict.applied()) => {
                        wins[number as usize].fetch_add(1, Ordering::AcqRel);
                    }
                    Ok(_) => {}
                    Err(violation) => {
                        let_go(&arrived);
                        return Err(violation);
                    }
                }
            }
            Ok(())
        })
    };
    harness.together(vec![race(store, true), race(beside, false)])?;
    let wins: Vec<u64> = wins.iter().map(|wins| wins.load(Ordering::Acquire)).collect();
    same("the winners of each race", wins, vec![1; RACES as usize])
}

/// Lets the other jobs end after one has failed: no [`meet`] waits any more.
pub(super) fn let_go(arrived: &AtomicU64) {
    arrived.store(u64::MAX / 2, Ordering::Release);
}

/// Waits until `wanted` arrivals are counted, this one included. Yields, so that jobs on one thread can run.
pub(super) async fn meet(arrived: &AtomicU64, wanted: u64) {
    arrived.fetch_add(1, Ordering::AcqRel);
    poll_fn(|context| {
        if arrived.load(Ordering::Acquire) >= wanted {
            return Poll::Ready(());
        }
        context.waker().wake_by_ref();
        Poll::Pending
    })
    .await;
}
