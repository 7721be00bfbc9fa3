//! Counts, logs and posts the fate of outgoing events: attempts, halted lanes, dead letters.
//! Never delays a delivery: an alert that cannot be posted is dropped, and the log still has it.
//! Called by the driver; `/metrics` reads the figures.

use std::{
    sync::{Arc, atomic::AtomicU64},
    time::Duration,
};

use fencepost::dispatch::{Alarm, LaneCounts};
use fencepost_kernel::{
    LaneId, Millis,
    lane::{AttemptFailure, DeadLetter, DeadLetterReason, Pause, Trouble},
};
use prometheus_client::{
    metrics::{counter::Counter, family::Family, gauge::Gauge, histogram::Histogram},
    registry::{Registry, Unit},
};
use serde_json::{Value, json};
use tokio::sync::mpsc;

use crate::{
    log::{Level, Log},
    time::rfc3339,
};

/// Alerts that may wait to be posted; further ones are in the log only.
const WAITING_MAX: usize = 1_000;

type ByWord = Vec<(&'static str, &'static str)>;

/// Counters and gauges about lanes. Clones share them.
#[derive(Clone, Default)]
pub struct Figures {
    attempts: Family<ByWord, Counter>,
    attempt_seconds: Option<Histogram>,
    dead: Family<ByWord, Counter>,
    blocked: Counter,
    lanes: Family<ByWord, Gauge>,
    in_flight: Gauge,
    polling: Gauge,
    oldest_s: Gauge<f64, AtomicU64>,
}

impl Figures {
    /// Creates the figures and registers them.
    pub(crate) fn register(registry: &mut Registry) -> Self {
        let attempt_seconds = Histogram::new([0.001, 0.005, 0.02, 0.1, 0.5, 2.0, 5.0, 15.0]);
        let own = Self { attempt_seconds: Some(attempt_seconds.clone()), ..Self::default() };
        registry.register("delivery_attempts", "Attempts at deliveries by outcome", own.attempts.clone());
        registry.register_with_unit("delivery_attempt", "Time of one attempt", Unit::Seconds, attempt_seconds);
        registry.register("dead_letters", "Events that left their lane undelivered, by reason", own.dead.clone());
        registry.register(
            "lanes_blocked",
            "Times that a lane failed for long, was paused by its receiver, or lacked the key of its transport",
            own.blocked.clone(),
        );
        registry.register("lanes", "Lanes with something to send, by state", own.lanes.clone());
        registry.register("deliveries_in_flight", "Attempts under way", own.in_flight.clone());
        registry.register("pollers", "Polls that wait for something new", own.polling.clone());
        registry.register_with_unit(
            "oldest_undelivered",
            "Age of the oldest head of a lane that this process knows",
            Unit::Seconds,
            own.oldest_s.clone(),
        );
        own
    }

    /// Sets the gauges from the driver's counts of lanes. `now` is store time.
    pub fn lanes(&self, counts: LaneCounts, now: Millis) {
        let set = |state, count| self.lanes.get_or_create(&vec![("state", state)]).set(count as i64);
        set("busy", counts.busy);
        set("retrying", counts.retrying);
        set("standing", counts.standing);
        set("without_key", counts.without_key);
        self.in_flight.set(counts.in_flight as i64);
        self.polling.set(counts.polling as i64);
        self.oldest_s.set(counts.oldest.map_or(0.0, |oldest| now.since(oldest) as f64 / 1_000.0));
    }

    fn died(&self, reason: DeadLetterReason) {
        self.dead.get_or_create(&vec![("reason", reason.name())]).inc();
    }
}

/// Logs events that need a person, and queues them for the receiver of alerts.
pub struct Alerts {
    log: Log,
    figures: Figures,
    now: Box<dyn Fn() -> Millis + Send + Sync>,
    posts: Option<mpsc::Sender<String>>,
}

impl Alerts {
    /// Alerts to a log. Where they are `posted`, too, the second value yields the JSON text of each alert to post.
    pub fn new(
        log: Log,
        figures: Figures,
        now: impl Fn() -> Millis + Send + Sync + 'static,
        posted: bool,
    ) -> (Arc<Self>, Option<mpsc::Receiver<String>>) {
        let (posts, waiting) = mpsc::channel(WAITING_MAX);
        let own = Self { log, figures, now: Box::new(now), posts: posted.then_some(posts) };
        (Arc::new(own), posted.then_some(waiting))
    }

    fn post(&self, alert: &Value) {
        if let Some(posts) = &self.posts
            && posts.try_send(alert.to_string()).is_err()
        {
            self.log.line(Level::Warn, (self.now)().0, "an alert was not posted: too many wait");
        }
    }
}

/// The id of a dead letter in the API and in alerts: `LANE_ID-SEQ`.
pub fn letter_id(lane: LaneId, seq: u64) -> String {
    format!("{lane}-{seq}")
}

impl Alarm for Alerts {
    fn died(&self, lane: &str, (at, seq): (LaneId, u64), letter: &DeadLetter) {
        self.figures.died(letter.reason);
        let entry = &letter.entry;
        self.log
            .line(Level::Error, letter.at.0, "an event is a dead letter")
            .text("id", &letter_id(at, seq))
            .text("lane", lane)
            .text("correlation_id", &entry.correlation_id)
            .text("kind", &entry.kind)
            .text("reason", letter.reason.name())
            .number("attempts", letter.attempts.into())
            .number("status", letter.answer.status.unwrap_or_default().into())
            .text("answer", &letter.answer.note);
        self.post(&json!({
            "alert": "dead_letter", "id": letter_id(at, seq), "at": &*rfc3339(letter.at.0), "lane": lane, "planner_id": letter.planner.as_str(),
            "warehouse_id": entry.warehouse, "correlation_id": entry.correlation_id, "kind": entry.kind,
            "reason": letter.reason.name(), "attempts": letter.attempts, "last_status": letter.answer.status,
            "last_answer": letter.answer.note, "lane_waits": letter.blocks,
        }));
    }

    fn blocked(&self, lane: &str, seq: u64, trouble: &Trouble) {
        self.figures.blocked.inc();
        let now = (self.now)();
        self.log
            .line(Level::Warn, now.0, "a lane is blocked")
            .text("lane", lane)
            .number("seq", seq)
            .number("attempts", trouble.attempts.into())
            .number("since_ms", now.since(trouble.first_at))
            .number("status", trouble.answer.status.unwrap_or_default().into())
            .text("answer", &trouble.answer.note);
        self.post(&json!({
            "alert": "lane_blocked", "at": &*rfc3339(now.0), "lane": lane, "seq": seq, "attempts": trouble.attempts,
            "since": &*rfc3339(trouble.first_at.0), "next_attempt_at": &*rfc3339(trouble.next_at.0),
            "last_status": trouble.answer.status, "last_answer": trouble.answer.note,
        }));
    }

    fn halted(&self, lane: &str, seq: u64, pause: &Pause, trouble: Option<&Trouble>) {
        self.figures.blocked.inc();
        let (attempts, answer) = trouble.map(|trouble| (trouble.attempts, &trouble.answer)).unzip();
        let status = answer.and_then(|answer| answer.status);
        let note = answer.map_or("", |answer| &answer.note);
        self.log
            .line(
                Level::Error,
                (self.now)().0,
                "a receiver has paused its lane; nothing is sent until a person resumes it",
            )
            .text("lane", lane)
            .number("seq", seq)
            .text("why", &pause.why)
            .text("since", &rfc3339(pause.at.0))
            .number("attempts", attempts.unwrap_or_default().into())
            .number("status", status.unwrap_or_default().into())
            .text("answer", note);
        self.post(&json!({
            "alert": "lane_paused", "at": &*rfc3339((self.now)().0), "lane": lane, "seq": seq, "by": pause.by, "why": pause.why,
            "since": &*rfc3339(pause.at.0), "attempts": attempts, "last_status": status, "last_answer": note,
        }));
    }

    fn key_missing(&self, lane: &str, key: &str) {
        self.figures.blocked.inc();
        let now = (self.now)();
        self.log
            .line(
                Level::Error,
                now.0,
                "lanes do not start: their transports are sealed with a key that is not in the key file",
            )
            .text("key", key)
            .text("lane", lane);
        self.post(&json!({ "alert": "key_missing", "at": &*rfc3339(now.0), "key": key, "lane": lane }));
    }

    fn failed(&self, lane: &str, seq: u64, trouble: &Trouble, paused: Option<&Pause>) {
        // Only the first failure is a warning: a head that fails for a day would repeat it with each attempt.
        let level = if trouble.attempts == 1 { Level::Warn } else { Level::Debug };
        let mut line = self.log.line(level, (self.now)().0, "a delivery failed").text("lane", lane).number("seq", seq);
        line = line.number("attempt", trouble.attempts.into());
        if let Some(status) = trouble.answer.status {
            line = line.number("status", status.into());
        }
        line = line.text("answer", &trouble.answer.note);
        match paused {
            Some(pause) => drop(line.text("paused_by", &pause.by)),
            None => drop(line.text("next_attempt_at", &rfc3339(trouble.next_at.0))),
        }
    }

    fn attempted(&self, _: &str, outcome: Result<(), &AttemptFailure>, took: Duration) {
        let word = match outcome {
            Ok(()) => "acknowledged",
            Err(AttemptFailure::Later { .. }) => "failed",
            Err(AttemptFailure::Away(_)) => "away",
            Err(AttemptFailure::Gone(_)) => "gone",
            Err(AttemptFailure::Never(..)) => "refused",
        };
        self.figures.attempts.get_or_create(&vec![("outcome", word)]).inc();
        if let Some(seconds) = &self.figures.attempt_seconds {
            seconds.observe(took.as_secs_f64());
        }
    }
}
