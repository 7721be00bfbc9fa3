//! The desk's queue of jobs. It delivers at least once, as every queue: each job has several copies, and one that is
//! not reported done is delivered again. A journal survives crashes. Never knows what a job means. Called by `main`.

use std::{
    path::Path,
    sync::{Arc, Mutex, MutexGuard, PoisonError},
    time::{Duration, Instant},
};

use axum::{
    Router,
    body::Bytes,
    extract::{Path as Segment, State},
    response::{IntoResponse as _, Response},
    routing::{get, post},
};
use serde_json::{Value, json};

use crate::effects::Journal;

/// The jobs, each with its copies, in memory and in a journal.
pub struct Queue {
    jobs: Mutex<Vec<Job>>,
    journal: Journal,
    copies: usize,
    redeliver: Duration,
}

struct Job {
    work: Value,
    hidden_until: Instant,
    end: Option<String>,
}

impl Queue {
    /// Opens a queue with the jobs of its journal.
    pub fn open(path: &Path, copies: usize, redeliver: Duration) -> anyhow::Result<Self> {
        let (journal, lines) = Journal::open(path)?;
        let mut jobs: Vec<Job> = Vec::new();
        for line in lines {
            match line["end"].as_str() {
                None => jobs.push(Job { work: line["work"].clone(), hidden_until: Instant::now(), end: None }),
                Some(end) => {
                    let job = line["job"].as_u64().and_then(|id| jobs.get_mut(id as usize));
                    if let Some(job) = job {
                        job.end = Some(end.to_owned());
                    }
                }
            }
        }
        Ok(Self { jobs: Mutex::new(jobs), journal, copies, redeliver })
    }

    /// The HTTP routes of the queue.
    pub fn router(self: Arc<Self>) -> Router {
        Router::new()
            .route("/jobs", get(list).post(enqueue))
            .route("/jobs/take", post(take))
            .route("/jobs/{id}/end", post(end))
            .with_state(self)
    }

    fn lock(&self) -> MutexGuard<'_, Vec<Job>> {
        self.jobs.lock().unwrap_or_else(PoisonError::into_inner)
    }

    fn add(&self, work: &Value) -> std::io::Result<()> {
        let mut jobs = self.lock();
        for _ in 0..self.copies {
            self.journal.add(&json!({"work": work}))?;
            jobs.push(Job { work: work.clone(), hidden_until: Instant::now(), end: None });
        }
        Ok(())
    }
}

fn said(body: &Value) -> Response {
    ([("content-type", "application/json")], body.to_string()).into_response()
}

fn failed(error: &std::io::Error) -> Response {
    (axum::http::StatusCode::INTERNAL_SERVER_ERROR, error.to_string()).into_response()
}

async fn enqueue(State(queue): State<Arc<Queue>>, body: Bytes) -> Response {
    let work: Value = serde_json::from_slice(&body).unwrap_or_default();
    queue.add(&work).map_or_else(|error| failed(&error), |()| said(&json!({"enqueued": true})))
}

/// Returns the next job, which stays hidden from others for a while, and the number of jobs without an end.
async fn take(State(queue): State<Arc<Queue>>) -> Response {
    let (mut jobs, now) = (queue.lock(), Instant::now());
    let open = jobs.iter().filter(|job| job.end.is_none()).count();
    let next = jobs.iter_mut().enumerate().find(|(_, job)| job.end.is_none() && job.hidden_until <= now);
    said(&match next {
        Some((id, job)) => {
            job.hidden_until = now + queue.redeliver;
            json!({"job": id, "work": job.work, "open": open})
        }
        None => json!({"open": open}),
    })
}

/// `{"end":"done","then":[work…]}`; any other `end` says why a person must look at the job.
async fn end(State(queue): State<Arc<Queue>>, Segment(id): Segment<usize>, body: Bytes) -> Response {
    let told: Value = serde_json::from_slice(&body).unwrap_or_default();
    let end = told["end"].as_str().unwrap_or("done").to_owned();
    // Enqueues the next jobs first: a crash in between makes copies, never a gap.
    for work in told["then"].as_array().into_iter().flatten() {
        if let Err(error) = queue.add(work) {
            return failed(&error);
        }
    }
    if let Err(error) = queue.journal.add(&json!({"job": id, "end": end})) {
        return failed(&error);
    }
    if let Some(job) = queue.lock().get_mut(id) {
        job.end = Some(end);
    }
    said(&json!({"ended": true}))
}

async fn list(State(queue): State<Arc<Queue>>) -> Response {
    let jobs = queue.lock();
    let shown: Vec<Value> = jobs.iter().map(|job| json!({"work": job.work, "end": job.end})).collect();
    said(&json!({"jobs": shown}))
}
