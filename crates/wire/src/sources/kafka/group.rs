//! Handles the events of a group: partitions are assigned, revoked and committed. Called by the client library.
//! Never waits for a handler: a record in hand when its partition is revoked is finished, and not committed.

use std::{
    collections::{BTreeSet, HashMap},
    sync::{Arc, Mutex, MutexGuard, PoisonError},
};

use rdkafka::{
    ClientContext, Statistics, TopicPartitionList,
    consumer::{BaseConsumer, CommitMode, Consumer, ConsumerContext, Rebalance},
    error::KafkaResult,
};

use super::{
    Begin, Kafka, SourceState, begin,
    partition::{Partition, Worker},
    record::Record,
};

/// This process as a member, with the partitions that it has.
pub(super) struct Member {
    state: Arc<SourceState>,
    partitions: Mutex<HashMap<(String, i32), Partition>>,
    begin: Begin,
    begun: Mutex<Begun>,
}

/// For groups that begin at the end: the topics that have begun, and why one could not.
#[derive(Default)]
struct Begun {
    topics: BTreeSet<String>,
    failed: Option<String>,
}

impl Member {
    pub fn new(state: Arc<SourceState>, begin: Begin) -> Self {
        Self { state, partitions: Mutex::default(), begin, begun: Mutex::default() }
    }

    /// Fails where the end of a topic could not be found: no record may be taken then.
    pub fn begun(&self) -> Result<(), String> {
        let begun = self.begun.lock().unwrap_or_else(PoisonError::into_inner);
        begun.failed.clone().map_or(Ok(()), Err)
    }

    fn begin(&self, kafka: &BaseConsumer<Self>, new: &TopicPartitionList) {
        let mut begun = self.begun.lock().unwrap_or_else(PoisonError::into_inner);
        for one in new.elements() {
            if begun.topics.contains(one.topic()) {
                continue;
            }
            match begin::at_the_end(kafka, one.topic()) {
                Ok(()) => drop(begun.topics.insert(one.topic().to_owned())),
                Err(error) => {
                    begun.failed = Some(format!("the cluster does not say where {} ends: {error}", one.topic()));
                    return;
                }
            }
        }
    }

    fn lock(&self) -> MutexGuard<'_, HashMap<(String, i32), Partition>> {
        self.partitions.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Hands a record to its partition. For the first record of a partition, returns the worker that must be run.
    pub fn take(&self, record: Record, state: &Arc<SourceState>, kafka: &Arc<Kafka>) -> Option<Worker> {
        let mut partitions = self.lock();
        let (topic, number) = (record.message.topic.clone(), record.message.partition);
        if let Some(known) = partitions.get(&(topic.clone(), number)) {
            known.take(record, kafka);
            return None;
        }
        let (new, worker) = Partition::new(&topic, number, state.clone(), kafka.clone());
        new.take(record, kafka);
        partitions.insert((topic, number), new);
        Some(worker)
    }

    /// Asks every worker to end after its current record.
    pub fn stop(&self) {
        self.lock().values().for_each(Partition::stop);
    }

    fn forget(&self, gone: &TopicPartitionList) {
        let mut partitions = self.lock();
        for one in gone.elements() {
            partitions.remove(&(one.topic().to_owned(), one.partition()));
        }
    }
}

impl ClientContext for Member {
    fn stats(&self, statistics: Statistics) {
        let partitions = statistics.topics.values().flat_map(|topic| topic.partitions.values());
        self.state.lag(partitions.filter_map(|partition| u64::try_from(partition.consumer_lag).ok()).sum());
    }
}

impl ConsumerContext for Member {
    fn pre_rebalance(&self, kafka: &BaseConsumer<Self>, rebalance: &Rebalance<'_>) {
        match rebalance {
            Rebalance::Revoke(gone) => {
                self.forget(gone);
                // The next member then need not ask the fences about records that are done.
                if self.state.take_stored() {
                    let _ = kafka.commit_consumer_state(CommitMode::Async);
                }
                self.state.tell_partitions("partitions taken away", gone);
            }
            Rebalance::Assign(new) => {
                if self.begin == Begin::Latest {
                    self.begin(kafka, new);
                }
                self.state.tell_partitions("partitions assigned", new);
            }
            Rebalance::Error(_) => self.lock().clear(),
        }
    }

    // A partition that was paused when it was revoked must not be paused when it is assigned again.
    fn post_rebalance(&self, kafka: &BaseConsumer<Self>, rebalance: &Rebalance<'_>) {
        if let Rebalance::Assign(new) = rebalance {
            let _ = kafka.resume(new);
        }
    }

    fn commit_callback(&self, result: KafkaResult<()>, _: &TopicPartitionList) {
        if let Err(error) = result {
            self.state.uncommitted(&error);
        }
    }
}
