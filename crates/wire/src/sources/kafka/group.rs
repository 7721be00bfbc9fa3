//! What a member of a group is told by it: partitions come, go, and are committed.
//! Never waits in here: what is being handled when its partition goes is finished, and left uncommitted.

use std::{
    collections::HashMap,
    sync::{Arc, Mutex, MutexGuard, PoisonError},
};

use rdkafka::{
    ClientContext, Statistics, TopicPartitionList,
    consumer::{BaseConsumer, CommitMode, Consumer, ConsumerContext, Rebalance},
    error::KafkaResult,
};

use super::{
    Desk, Kafka,
    partition::{Partition, Worker},
    record::Record,
};

/// This process as a member, with the partitions that it has.
pub(super) struct Member {
    desk: Arc<Desk>,
    partitions: Mutex<HashMap<(String, i32), Partition>>,
}

impl Member {
    pub fn new(desk: Arc<Desk>) -> Self {
        Self { desk, partitions: Mutex::default() }
    }

    fn lock(&self) -> MutexGuard<'_, HashMap<(String, i32), Partition>> {
        self.partitions.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Hands a record to its partition, and gives back a worker to be run where it is the first.
    pub fn take(&self, record: Record, desk: &Arc<Desk>, kafka: &Arc<Kafka>) -> Option<Worker> {
        let mut partitions = self.lock();
        let (topic, number) = (record.message.topic.clone(), record.message.partition);
        if let Some(known) = partitions.get(&(topic.clone(), number)) {
            known.take(record, kafka);
            return None;
        }
        let (new, worker) = Partition::new(&topic, number, desk.clone(), kafka.clone());
        new.take(record, kafka);
        partitions.insert((topic, number), new);
        Some(worker)
    }

    /// Asks every worker to end after what it is handling.
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
        self.desk.lag(partitions.filter_map(|partition| u64::try_from(partition.consumer_lag).ok()).sum());
    }
}

impl ConsumerContext for Member {
    fn pre_rebalance(&self, kafka: &BaseConsumer<Self>, rebalance: &Rebalance<'_>) {
        match rebalance {
            Rebalance::Revoke(gone) => {
                self.forget(gone);
                // Whoever comes next need not ask the fences for what is known to be done.
                if self.desk.take_stored() {
                    let _ = kafka.commit_consumer_state(CommitMode::Async);
                }
                self.desk.tell_partitions("partitions taken away", gone);
            }
            Rebalance::Assign(new) => self.desk.tell_partitions("partitions assigned", new),
            Rebalance::Error(_) => self.lock().clear(),
        }
    }

    // A partition that was paused before it went is not paused when it comes again.
    fn post_rebalance(&self, kafka: &BaseConsumer<Self>, rebalance: &Rebalance<'_>) {
        if let Rebalance::Assign(new) = rebalance {
            let _ = kafka.resume(new);
        }
    }

    fn commit_callback(&self, result: KafkaResult<()>, _: &TopicPartitionList) {
        if let Err(error) = result {
            self.desk.uncommitted(&error);
        }
    }
}
