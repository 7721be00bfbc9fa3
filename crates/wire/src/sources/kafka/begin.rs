//! Begins a topic at its end for a group that has committed no offset of it: older records are not for this group.
//! Never moves a group that has begun. Called by `group`, before partitions of the topic are assigned.

use std::{
    thread,
    time::{Duration, Instant},
};

use rdkafka::{
    Offset, TopicPartitionList,
    consumer::{CommitMode, Consumer, ConsumerContext},
    error::{KafkaError, KafkaResult},
};

use super::{CLUSTER_PATIENCE, ERROR_PAUSE};

/// How long the cluster may fail to say where a topic ends.
const BEGIN_FOR: Duration = Duration::from_secs(20);

/// Returns when the group has offsets of the topic: those that it had, or the current ends. The group is blocked
/// meanwhile: without an answer it is unknown which records are old.
pub(super) fn at_the_end<C: ConsumerContext>(kafka: &impl Consumer<C>, topic: &str) -> KafkaResult<()> {
    let until = Instant::now() + BEGIN_FOR;
    loop {
        match attempt(kafka, topic) {
            Err(_) if Instant::now() < until => thread::sleep(ERROR_PAUSE),
            ended => return ended,
        }
    }
}

// Commits the ends of all partitions, also of those of other members. Otherwise another member would see a group that
// has begun, and take its own partitions, without an offset, for new ones.
fn attempt<C: ConsumerContext>(kafka: &impl Consumer<C>, topic: &str) -> KafkaResult<()> {
    let known = kafka.fetch_metadata(Some(topic), CLUSTER_PATIENCE)?;
    let mut all = TopicPartitionList::new();
    for partition in known.topics().iter().flat_map(|topic| topic.partitions()) {
        all.add_partition(topic, partition.id());
    }
    if has_begun(&kafka.committed_offsets(all.clone(), CLUSTER_PATIENCE)?)? {
        return Ok(());
    }
    let mut ends = TopicPartitionList::new();
    for one in all.elements() {
        let (_, end) = kafka.fetch_watermarks(topic, one.partition(), CLUSTER_PATIENCE)?;
        ends.add_partition_offset(topic, one.partition(), Offset::Offset(end))?;
    }
    kafka.commit(&ends, CommitMode::Sync)
}

fn has_begun(committed: &TopicPartitionList) -> Result<bool, KafkaError> {
    let mut begun = false;
    for one in committed.elements() {
        one.error()?;
        begun |= matches!(one.offset(), Offset::Offset(_));
    }
    Ok(begun)
}
