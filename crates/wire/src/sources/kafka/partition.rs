//! Hands one partition's records to the handler, in order: a record that must be tried again holds up its own partition
//! and no other. Never stores an offset before the fence is sealed, nor after the partition was revoked.

use std::{
    sync::{Arc, Mutex, MutexGuard, PoisonError},
    time::Duration,
};

use fencepost::{
    Claim, Done,
    queue::{Because, Handled, HandlerFailure, MessageVerdict},
};
use rdkafka::{TopicPartitionList, consumer::Consumer};
use tokio::{
    sync::{mpsc, watch},
    time::Instant,
};

use super::{Kafka, SourceState, letters::Words, record::Record};

/// How many records and bytes of a partition may wait here before it is paused.
const QUEUE_MAX: usize = 64;
const QUEUE_BYTES_MAX: usize = 4 << 20;
/// How long a dead letter that could not be sent waits for its next attempt.
const SEND_AGAIN: Duration = Duration::from_secs(1);

/// A handle to the worker of a partition. Dropping it revokes the partition: the worker finishes its current record,
/// and stores no further offset.
pub(super) struct Partition {
    queue: mpsc::UnboundedSender<Record>,
    room: Arc<Room>,
    stop: watch::Sender<bool>,
}

/// The records of a partition that wait, counted.
struct Room {
    topic: String,
    number: i32,
    held: Mutex<Held>,
}

#[derive(Default)]
struct Held {
    records: usize,
    bytes: usize,
    paused: bool,
}

impl Partition {
    /// A partition, and the worker that must be run for it.
    pub fn new(topic: &str, number: i32, state: Arc<SourceState>, kafka: Arc<Kafka>) -> (Self, Worker) {
        let (queue, records) = mpsc::unbounded_channel();
        let (stop, stopped) = watch::channel(false);
        let room = Arc::new(Room { topic: topic.to_owned(), number, held: Mutex::default() });
        (Self { queue, room: room.clone(), stop }, Worker { state, kafka, room, records, stopped })
    }

    /// Queues one more record; past its bound the partition is paused. The client keeps being polled, so the group
    /// never takes a slow handler for a dead consumer.
    pub fn take(&self, record: Record, kafka: &Kafka) {
        let mut held = self.room.lock();
        held.records += 1;
        held.bytes += record.bytes();
        if !held.paused && (held.records >= QUEUE_MAX || held.bytes >= QUEUE_BYTES_MAX) {
            held.paused = kafka.pause(&self.room.list()).is_ok();
        }
        drop(held);
        // This fails only where the worker has ended, which is where the whole process ends.
        let _ = self.queue.send(record);
    }

    /// Asks the worker to end after its current record, which still counts.
    pub fn stop(&self) {
        self.stop.send_replace(true);
    }
}

impl Room {
    fn lock(&self) -> MutexGuard<'_, Held> {
        self.held.lock().unwrap_or_else(PoisonError::into_inner)
    }

    fn list(&self) -> TopicPartitionList {
        let mut list = TopicPartitionList::new();
        list.add_partition(&self.topic, self.number);
        list
    }

    // Resumes a paused partition once half of its room is free.
    fn leave(&self, record: &Record, kafka: &Kafka) {
        let mut held = self.lock();
        held.records -= 1;
        held.bytes -= record.bytes();
        if held.paused && held.records <= QUEUE_MAX / 2 && held.bytes <= QUEUE_BYTES_MAX / 2 {
            held.paused = kafka.resume(&self.list()).is_err();
        }
    }
}

/// Handles the records of one partition, one after the other.
pub(super) struct Worker {
    state: Arc<SourceState>,
    kafka: Arc<Kafka>,
    room: Arc<Room>,
    records: mpsc::UnboundedReceiver<Record>,
    stopped: watch::Receiver<bool>,
}

/// Whether a record is settled, so that its offset may be stored.
#[derive(PartialEq, Eq)]
enum Settled {
    Yes,
    No,
}

impl Worker {
    /// Runs until the partition is revoked, or it is asked to stop. Fails where the store has stopped for good.
    pub async fn run(mut self) -> Result<(), String> {
        let mut stopped = self.stopped.clone();
        loop {
            let record = tokio::select! {
                biased;
                () = ended(&mut stopped) => return Ok(()),
                record = self.records.recv() => record,
            };
            let Some(record) = record else { return Ok(()) };
            if self.settle(&record, &mut stopped).await? == Settled::No {
                return Ok(());
            }
            self.room.leave(&record, &self.kafka);
            // The handle is gone: another member has the partition, and the fence answers it for this record.
            if self.stopped.has_changed().is_err() {
                return Ok(());
            }
            if self.kafka.store_offset(&self.room.topic, self.room.number, record.message.offset).is_ok() {
                self.state.stored();
            }
        }
    }

    async fn settle(&self, record: &Record, stopped: &mut watch::Receiver<bool>) -> Result<Settled, String> {
        loop {
            let begun = Instant::now();
            let hand_over = |_, claim| self.hand_over(record, claim, stopped.clone());
            let handled = self.state.consumer.handle(&record.message, hand_over).await;
            let handled = self.bury(record, handled, stopped).await;
            self.state.tell(record, &handled, begun.elapsed());
            let (after, because) = match handled.verdict {
                MessageVerdict::Redeliver { after, because } => (after, because),
                _ => return Ok(Settled::Yes),
            };
            if let Because::Stopped(why) = because {
                return Err(why);
            }
            let pause = async {
                if let Because::Away(_) = because {
                    self.state.handler.until_there().await;
                }
                tokio::time::sleep(after).await;
            };
            tokio::select! {
                biased;
                () = ended(stopped) => return Ok(Settled::No),
                () = pause => {}
            }
        }
    }

    // A turn is taken only under a claim: a record that waits for another's seal, or for a lease, takes none.
    async fn hand_over(
        &self,
        record: &Record,
        claim: Claim,
        mut stopped: watch::Receiver<bool>,
    ) -> Result<Done, HandlerFailure<String>> {
        let turn = tokio::select! {
            biased;
            () = ended(&mut stopped) => return Err(HandlerFailure::Away("it is time to go".to_owned())),
            turn = self.state.turns.acquire() => turn,
        };
        let done = self.state.handler.hand_over(&record.message, record.http_headers(), claim).await;
        drop(turn);
        done
    }

    // Sends a dead letter again and again until the brokers take it: only then may the partition go on.
    async fn bury(&self, record: &Record, handled: Handled, stopped: &watch::Receiver<bool>) -> Handled {
        let MessageVerdict::Dead(letter) = handled.verdict else { return handled };
        let words = Words::new(&letter, &handled.idempotency_key, self.state.consumer.tenant());
        let mut stopped = stopped.clone();
        self.state.tell_dead(record, &letter);
        let send = async {
            loop {
                let error = match self.state.letters.send(record, &words).await {
                    Ok(place) => return Ok(place),
                    Err(error) => error,
                };
                self.state.tell_unburied(record, &error);
                tokio::select! {
                    biased;
                    () = ended(&mut stopped) => return Err(error),
                    () = tokio::time::sleep(SEND_AGAIN) => {}
                }
            }
        };
        let verdict = letter.bury(send).await;
        Handled { verdict, ..handled }
    }
}

// Returns when the worker is asked to stop, or its handle is gone.
async fn ended(stopped: &mut watch::Receiver<bool>) {
    let _ = stopped.wait_for(|stopped| *stopped).await;
}
