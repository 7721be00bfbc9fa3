//! State that the workers of all partitions share, and their log lines: one for every verdict, with the fields that
//! every decision is logged with. Never decides anything. Called by the source, its group member and its workers.

use std::{
    sync::{
        Mutex, PoisonError,
        atomic::{AtomicBool, AtomicU64, Ordering::Relaxed},
    },
    time::Duration,
};

use fencepost::queue::{self, Because, DeadMessage, Handled, MessageVerdict};
use rdkafka::{TopicPartitionList, error::KafkaError, types::RDKafkaErrorCode};
use tokio::{sync::Semaphore, time::Instant};

use super::{letters::Letters, record::Record};
use crate::{
    log::{Level, Line, Log},
    sources::handler::MessageHandler,
};

/// The same trouble is logged again only after this long.
const TROUBLE_EVERY: Duration = Duration::from_secs(10);

pub(super) struct SourceState {
    pub consumer: queue::Consumer,
    pub handler: MessageHandler,
    pub letters: Letters,
    /// One permit for each message that may be at the handler.
    pub turns: Semaphore,
    log: Log,
    /// Whether an offset is stored that was not committed.
    stored: AtomicBool,
    figures: Figures,
    trouble: Mutex<Option<(String, Instant)>>,
}

/// Counters since the start, the latest lag in records, and the sum that was logged last.
#[derive(Default)]
struct Figures {
    sealed: AtomicU64,
    replayed: AtomicU64,
    redelivered: AtomicU64,
    dead: AtomicU64,
    lag: AtomicU64,
    told: AtomicU64,
}

impl SourceState {
    pub fn new(
        consumer: queue::Consumer,
        handler: MessageHandler,
        letters: Letters,
        concurrency_max: usize,
        log: Log,
    ) -> Self {
        Self {
            consumer,
            handler,
            letters,
            turns: Semaphore::new(concurrency_max.max(1)),
            log,
            stored: AtomicBool::new(false),
            figures: Figures::default(),
            trouble: Mutex::default(),
        }
    }

    /// Notes that an offset may be committed.
    pub fn stored(&self) {
        self.stored.store(true, Relaxed);
    }

    /// Whether there is an offset to commit. Clears the note: the caller commits.
    pub fn take_stored(&self) -> bool {
        self.stored.swap(false, Relaxed)
    }

    /// Logs a failed commit, and notes that the next one must name the same offsets, or later ones.
    pub fn uncommitted(&self, error: &KafkaError) {
        // Not a failure: there was nothing new since the last commit.
        if error.rdkafka_error_code() == Some(RDKafkaErrorCode::NoOffset) {
            return;
        }
        self.stored();
        self.tell_trouble(&format!("not committed: {error}"));
    }

    pub fn lag(&self, records: u64) {
        self.figures.lag.store(records, Relaxed);
    }

    fn line(&self, level: Level, msg: &str) -> Line<'_> {
        self.log.line(level, self.consumer.fencepost().engine().now().0, msg)
    }

    fn about(&self, level: Level, msg: &str, record: &Record) -> Line<'_> {
        self.line(level, msg)
            .text("source_type", "queue")
            .text("source_id", &record.place())
            .text("tenant", self.consumer.tenant())
            .text("trace_id", &record.trace)
    }

    /// Logs and counts the outcome of handling a record once.
    pub fn tell(&self, record: &Record, handled: &Handled, took: Duration) {
        let count = |figure: &AtomicU64| {
            figure.fetch_add(1, Relaxed);
        };
        let (level, msg, why) = match &handled.verdict {
            MessageVerdict::Acknowledge { replayed, .. } => {
                count(if *replayed { &self.figures.replayed } else { &self.figures.sealed });
                (Level::Info, "sealed", "")
            }
            MessageVerdict::Redeliver { because, .. } => {
                count(&self.figures.redelivered);
                let (level, why) = explain(because);
                (level, "to be tried again", why)
            }
            MessageVerdict::Dead(letter) => (Level::Warn, "dead", letter.detail.as_str()),
        };
        let line = self.about(level, msg, record);
        let line = line
            .text("idempotency_key", &handled.idempotency_key)
            .text("decision", handled.decision)
            .text("effect_id", handled.effect_id.as_deref().unwrap_or_default())
            .number("attempt", handled.attempt.into())
            .number("took_ms", took.as_millis() as u64);
        if !why.is_empty() {
            line.text("why", why);
        }
    }

    pub fn tell_dead(&self, record: &Record, letter: &DeadMessage) {
        self.figures.dead.fetch_add(1, Relaxed);
        self.about(Level::Warn, "dead", record)
            .text("reason", letter.reason.name())
            .text("why", &letter.detail)
            .number("attempt", letter.attempts.into())
            .text("dead_letter_topic", &self.letters.topic(&record.message.topic));
    }

    pub fn tell_unburied(&self, record: &Record, why: &str) {
        self.about(Level::Error, "a dead message could not be sent away; its partition waits", record).text("why", why);
    }

    pub fn tell_missing(&self, topic: &str, what: &str) {
        self.line(Level::Warn, what).text("topic", topic);
    }

    pub fn tell_partitions(&self, msg: &str, list: &TopicPartitionList) {
        let names: Vec<String> =
            list.elements().iter().map(|one| format!("{}/{}", one.topic(), one.partition())).collect();
        self.line(Level::Info, msg).text("partitions", &names.join(" "));
    }

    /// Logs trouble with the cluster, the same trouble only now and then: the client reports it again and again.
    pub fn tell_trouble(&self, why: &str) {
        let mut last = self.trouble.lock().unwrap_or_else(PoisonError::into_inner);
        let known = last.as_ref().is_some_and(|(known, at)| known == why && at.elapsed() < TROUBLE_EVERY);
        if !known {
            *last = Some((why.to_owned(), Instant::now()));
            self.line(Level::Warn, "trouble with the cluster").text("why", why);
        }
    }

    /// Logs the counters, where they have changed.
    pub fn tell_progress(&self) {
        let Figures { sealed, replayed, redelivered, dead, lag, told } = &self.figures;
        let [sealed, replayed, redelivered, dead] = [sealed, replayed, redelivered, dead].map(|one| one.load(Relaxed));
        let sum = sealed + replayed + redelivered;
        if told.swap(sum, Relaxed) != sum {
            self.line(Level::Info, "progress")
                .number("sealed", sealed)
                .number("replayed", replayed)
                .number("redelivered", redelivered)
                .number("dead", dead)
                .number("lag", lag.load(Relaxed));
        }
    }
}

fn explain(because: &Because) -> (Level, &str) {
    match because {
        Because::InFlight => (Level::Info, "a first copy is still pending"),
        Because::InDoubt => (Level::Error, "in doubt: a person must resolve it; until then its partition waits"),
        Because::FencedOff => (Level::Warn, "the lease ran out and somebody else was let in"),
        Because::Resolved(why)
        | Because::Temporary(why)
        | Because::Away(why)
        | Because::Unknown(why)
        | Because::Unburied(why) => (Level::Warn, why),
        Because::Store(why) | Because::Stopped(why) => (Level::Error, why),
    }
}
