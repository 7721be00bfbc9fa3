//! Consumes topics as a member of a group: partitions side by side, each in order. Commits an offset only after the
//! fence of its record is sealed. A record that was sealed and not committed comes again, and its fence answers it: so
//! a partition may be revoked at any moment. Never decides the fate of a record; the library does.

mod begin;
mod group;
mod letters;
mod partition;
mod record;
mod redrive;
mod source_state;

use std::{sync::Arc, time::Duration};

use fencepost::queue;
use rdkafka::{
    ClientConfig,
    consumer::{CommitMode, Consumer, StreamConsumer},
    error::KafkaError,
};
use tokio::{
    task::{JoinSet, spawn_blocking},
    time::{Instant, timeout},
};

use crate::{log::Log, sources::handler::MessageHandler};
use group::Member;
use letters::Letters;
use record::Record;
use source_state::SourceState;

type Kafka = StreamConsumer<Member>;

/// How often offsets of sealed records are committed. After a crash in between they come again, and the fences answer.
const COMMIT_EVERY: Duration = Duration::from_millis(500);
/// How often figures are logged, where they have changed.
const PROGRESS_EVERY: Duration = Duration::from_secs(10);
/// How long the cluster may take over the last commit, over leaving, and over the list of its topics.
const CLUSTER_PATIENCE: Duration = Duration::from_secs(5);
/// How long messages at the handler may take at shutdown.
const DRAIN_MAX: Duration = Duration::from_secs(60);
/// The pause after an error from the cluster.
const ERROR_PAUSE: Duration = Duration::from_millis(100);

/// Settings that the delivery promise rests on: a user may not change them.
const OURS: [&str; 5] =
    ["bootstrap.servers", "group.id", "enable.auto.commit", "enable.auto.offset.store", "auto.offset.reset"];

/// Where a group begins a topic of which it has committed no offset.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Begin {
    /// With the oldest record that is still there.
    Earliest,
    /// With the records to come. The current ends of its partitions are committed before anything else.
    Latest,
}

/// The settings of a consumer.
#[derive(Clone, Debug)]
pub struct KafkaSourceSettings {
    /// Where the cluster is found: `host:port`, several with commas.
    pub brokers: String,
    /// The consumer group, `group.id`.
    pub group: String,
    /// The topics; at least one.
    pub topics: Vec<String>,
    /// Where to begin a topic that is new to the group.
    pub begin: Begin,
    /// The record header that names a message.
    pub dedupe_header: String,
    /// Where dead messages go; without it, [`dead_letter_topic`] of each topic.
    pub dead_letter: Option<String>,
    /// How many messages may be at the handler at one time.
    pub concurrency_max: usize,
    /// More settings of the client library, by name and value.
    pub more: Vec<(String, String)>,
}

/// The topic for the dead letters of a topic, where the settings name none.
pub fn dead_letter_topic(of: &str) -> String {
    format!("{of}.dead")
}

impl KafkaSourceSettings {
    fn client(&self) -> Result<ClientConfig, String> {
        let mut config = ClientConfig::new();
        for (name, value) in &self.more {
            if OURS.contains(&name.as_str()) {
                return Err(format!("{name} cannot be set: the promise rests on it"));
            }
            config.set(name, value);
        }
        config.set("bootstrap.servers", &self.brokers);
        Ok(config)
    }

    fn consumer(&self) -> Result<ClientConfig, String> {
        let mut config = ClientConfig::new();
        // Bounds the client library's read-ahead; the partitions here hold little.
        config
            .set("client.id", "fencepost")
            .set("queued.max.messages.kbytes", "16384")
            .set("statistics.interval.ms", "5000");
        config
            .extend(self.client()?.config_map().iter().map(|(name, value)| ((*name).to_owned(), (*value).to_owned())));
        // A partition without an offset is new, or its offset was lost: none of its records may be skipped.
        config
            .set("group.id", &self.group)
            .set("enable.auto.commit", "false")
            .set("enable.auto.offset.store", "false")
            .set("auto.offset.reset", "earliest");
        Ok(config)
    }

    // Dead letters must not go to a topic that is consumed: they would come back without end.
    fn check(&self) -> Result<(), String> {
        if self.topics.is_empty() {
            return Err("no topic is named".to_owned());
        }
        for topic in &self.topics {
            let dead = self.dead_letter.clone().unwrap_or_else(|| dead_letter_topic(topic));
            if self.topics.contains(&dead) {
                return Err(format!("the dead letters of {topic} go to {dead}, which is consumed itself"));
            }
        }
        Ok(())
    }
}

/// A consumer that has not begun yet.
pub struct KafkaSource {
    kafka: Arc<Kafka>,
    state: Arc<SourceState>,
    settings: KafkaSourceSettings,
}

impl KafkaSource {
    /// Fails only where the settings make no client. An unreachable cluster shows later, and the consumer waits for it.
    pub fn new(
        settings: KafkaSourceSettings,
        consumer: queue::Consumer,
        handler: MessageHandler,
        log: Log,
    ) -> Result<Self, String> {
        settings.check()?;
        // The producer gets the user's settings for consumers, too: the client library ignores them there.
        let letters = Letters::new(settings.client()?, settings.dead_letter.clone())?;
        let state = Arc::new(SourceState::new(consumer, handler, letters, settings.concurrency_max, log));
        let member = Member::new(state.clone(), settings.begin);
        let kafka: Kafka = settings.consumer()?.create_with_context(member).map_err(|error| error.to_string())?;
        Ok(Self { kafka: Arc::new(kafka), state, settings })
    }

    /// Consumes until `stop`. Then it finishes the messages at the handler, commits them and leaves the group.
    pub async fn run(self, stop: impl Future<Output = ()>) -> Result<(), String> {
        let topics: Vec<&str> = self.settings.topics.iter().map(String::as_str).collect();
        self.kafka.subscribe(&topics).map_err(|error| error.to_string())?;
        tokio::spawn(look_for_topics(self.kafka.clone(), self.state.clone(), self.settings.topics.clone()));
        let mut workers = JoinSet::new();
        let ended = self.consume(stop, &mut workers).await;
        self.drain(workers).await;
        self.leave().await;
        ended
    }

    async fn consume(
        &self,
        stop: impl Future<Output = ()>,
        workers: &mut JoinSet<Result<(), String>>,
    ) -> Result<(), String> {
        tokio::pin!(stop);
        let mut commit = tokio::time::interval(COMMIT_EVERY);
        let mut progress = tokio::time::interval(PROGRESS_EVERY);
        loop {
            tokio::select! {
                () = &mut stop => return Ok(()),
                received = self.kafka.recv() => match received {
                    Ok(record) => {
                        self.kafka.context().begun()?;
                        let tenant = self.state.consumer.tenant();
                        let record = Record::new(&record, &self.settings.dedupe_header, tenant);
                        if let Some(worker) = self.kafka.context().take(record, &self.state, &self.kafka) {
                            workers.spawn(worker.run());
                        }
                    }
                    Err(KafkaError::MessageConsumptionFatal(code)) => return Err(code.to_string()),
                    Err(error) => {
                        self.state.tell_trouble(&error.to_string());
                        tokio::time::sleep(ERROR_PAUSE).await;
                    }
                },
                _ = commit.tick() => {
                    self.kafka.context().begun()?;
                    self.commit();
                }
                _ = progress.tick() => self.state.tell_progress(),
                Some(ended) = workers.join_next() => match ended {
                    Ok(Ok(())) => {}
                    Ok(Err(why)) => return Err(why),
                    Err(panic) => return Err(format!("a partition's worker broke: {panic}")),
                },
            }
        }
    }

    fn commit(&self) {
        if self.state.take_stored()
            && let Err(error) = self.kafka.commit_consumer_state(CommitMode::Async)
        {
            self.state.uncommitted(&error);
        }
    }

    // The group is still polled, so that the cluster does not take a slow handler for a dead consumer.
    async fn drain(&self, mut workers: JoinSet<Result<(), String>>) {
        self.kafka.context().stop();
        self.state.consumer.fencepost().engine().dismiss_waiters();
        if let Ok(all) = self.kafka.assignment() {
            let _ = self.kafka.pause(&all);
        }
        let until = Instant::now() + DRAIN_MAX;
        loop {
            tokio::select! {
                ended = workers.join_next() => if ended.is_none() { return },
                // A record that still arrives is dropped: its offset is not committed, so it comes again.
                _ = self.kafka.recv() => {}
                () = tokio::time::sleep_until(until) => return,
            }
        }
    }

    async fn leave(self) {
        let Self { kafka, state, .. } = self;
        let committed = spawn_blocking({
            let kafka = kafka.clone();
            move || kafka.commit_consumer_state(CommitMode::Sync)
        });
        match timeout(CLUSTER_PATIENCE, committed).await {
            Ok(Ok(Err(error))) => state.uncommitted(&error),
            Ok(_) => {}
            Err(_) => state.tell_trouble("the last commit got no answer; what it names comes again"),
        }
        // Dropping the last handle leaves the group, which takes a moment.
        let _ = timeout(CLUSTER_PATIENCE, spawn_blocking(move || drop(kafka))).await;
        state.tell_progress();
    }
}

// Asks for all topics, since a request for one may create it.
async fn look_for_topics(kafka: Arc<Kafka>, state: Arc<SourceState>, topics: Vec<String>) {
    let asked = spawn_blocking(move || {
        let known = kafka.client().fetch_metadata(None, CLUSTER_PATIENCE)?;
        Ok::<Vec<String>, KafkaError>(known.topics().iter().map(|topic| topic.name().to_owned()).collect())
    });
    // The client itself reports a cluster that is away.
    let Ok(Ok(known)) = asked.await else { return };
    for topic in topics {
        let dead = state.letters.topic(&topic);
        for (name, what) in [(topic, "no such topic"), (dead, "no such topic: dead messages would wait for it")] {
            if !known.contains(&name) {
                state.tell_missing(&name, what);
            }
        }
    }
}
