//! A broker with a topic, a handler, and consumers between them.

use std::{
    collections::BTreeMap,
    io::{BufRead, BufReader, Read},
    process::{Child, Command, ExitStatus, Stdio},
    sync::{Arc, Condvar, Mutex},
    thread,
    time::Duration,
};

use fencepost_rig::Kafka;
use rdkafka::{
    ClientConfig, Message, Offset, TopicPartitionList,
    consumer::{BaseConsumer, CommitMode, Consumer as _},
    message::{Header, Headers, OwnedHeaders, OwnedMessage, ToBytes},
    producer::{BaseProducer, BaseRecord, Producer},
};
use rustix::process::{Pid, Signal};
use tempfile::TempDir;

use super::super::{
    dispatch::{delivery::Delivery, receiver::Receiver},
    server::{BINARY, PATIENCE, command, until},
};

pub const TOPIC: &str = "orders";
pub const DEAD: &str = "orders.dead";
pub const GROUP: &str = "billing";

/// A short lease: claims of a killed consumer are taken over soon. The topic and the fields are the built-in scope's.
const POLICY: &str = "\
scopes:
  QUEUE_MESSAGE: { key: [topic, partition, message_key, dedupe_id], lease: 2s, retain: 14d, source: queue }
";

pub struct Scene {
    pub kafka: Kafka,
    pub handler: Receiver,
    dir: TempDir,
    producer: BaseProducer,
    /// Asks for the group's offsets; never one of its members.
    asker: BaseConsumer,
    partitions: u32,
}

impl Scene {
    pub fn new(partitions: u32) -> Self {
        let (kafka, handler, dir) = (Kafka::start(), Receiver::start(), tempfile::tempdir().unwrap());
        handler.knows(&[]);
        kafka.topic(TOPIC, partitions);
        kafka.topic(DEAD, 1);
        std::fs::write(dir.path().join("policy.yml"), POLICY).unwrap();
        let mut config = ClientConfig::new();
        config.set("bootstrap.servers", kafka.brokers()).set("enable.idempotence", "true");
        Self { producer: config.create().unwrap(), asker: reader(&kafka, GROUP), kafka, handler, dir, partitions }
    }

    /// A consumer whose fences are in the scene's own directory.
    pub fn consumer(&self) -> Command {
        self.consumer_of(GROUP)
    }

    /// The same in another group.
    pub fn consumer_of(&self, group: &str) -> Command {
        self.command(group, "--data", self.dir.path().join("fences").to_str().unwrap())
    }

    /// A consumer whose fences others use, too.
    pub fn sharing(&self, store: &str) -> Command {
        self.command(GROUP, "--store", store)
    }

    fn command(&self, group: &str, flag: &str, store: &str) -> Command {
        let mut command = command(BINARY);
        command.args(["consume", "--brokers", &self.kafka.brokers(), "--group", group, "--topic", TOPIC]);
        command.args(["--to", &self.handler.url(), flag, store, "--config"]).arg(self.dir.path().join("policy.yml"));
        // A killed member is missed soon.
        command.args(["--set", "session.timeout.ms=2000", "--set", "heartbeat.interval.ms=300"]);
        command.args(["--set", "reconnect.backoff.max.ms=500"]);
        command
    }

    pub fn start(&self, command: Command) -> Consumer {
        Consumer::start(command)
    }

    pub fn produce(&self, partition: i32, key: &str, dedupe_id: Option<&str>, body: &str) {
        let mut record = BaseRecord::to(TOPIC).partition(partition).key(key).payload(body);
        if let Some(id) = dedupe_id {
            record = record.headers(OwnedHeaders::new().insert(Header { key: "dedupe-id", value: Some(id) }));
        }
        self.send(record);
    }

    /// A record without a value.
    pub fn produce_tombstone(&self, partition: i32, key: &str) {
        self.send(BaseRecord::<str, str>::to(TOPIC).partition(partition).key(key));
        self.flush();
    }

    fn send<K: ToBytes + ?Sized, P: ToBytes + ?Sized>(&self, record: BaseRecord<'_, K, P>) {
        self.producer.send(record).map_err(|(error, _)| error).unwrap();
    }

    /// So many messages in each partition, numbered on from `first`: `p1-0007`.
    pub fn fill(&self, first: u32, count: u32) {
        for number in first..first + count {
            for partition in 0..self.partitions {
                self.produce(partition as i32, "k", None, &format!("p{partition}-{number:04}"));
            }
        }
        self.flush();
    }

    pub fn flush(&self) {
        self.producer.flush(PATIENCE).unwrap();
    }

    /// Where the group goes on in a partition; 0 where it has committed nothing.
    pub fn committed(&self, partition: i32) -> i64 {
        let mut list = TopicPartitionList::new();
        list.add_partition(TOPIC, partition);
        let known = self.asker.committed_offsets(list, PATIENCE).unwrap();
        match known.elements()[0].offset() {
            Offset::Offset(offset) => offset,
            _ => 0,
        }
    }

    /// Commits for the group while nobody is in it.
    pub fn commit(&self, partition: i32, offset: i64) {
        let mut list = TopicPartitionList::new();
        list.add_partition_offset(TOPIC, partition, Offset::Offset(offset)).unwrap();
        self.asker.commit(&list, CommitMode::Sync).unwrap();
    }

    pub fn until_committed(&self, partition: i32, offset: i64) {
        until(&format!("partition {partition} is committed up to {offset}"), || self.committed(partition) == offset);
    }

    /// The dead letters, as soon as there are so many: their headers and bodies.
    pub fn dead(&self, count: usize) -> Vec<(BTreeMap<String, String>, String)> {
        let text = |bytes: &[u8]| String::from_utf8_lossy(bytes).into_owned();
        let tell = |letter: &OwnedMessage| {
            let headers = letter.headers().unwrap();
            let headers = headers.iter().map(|one| (one.key.to_owned(), text(one.value.unwrap()))).collect();
            (headers, text(letter.payload().unwrap()))
        };
        self.letters(count).iter().map(tell).collect()
    }

    /// The same as they are.
    pub fn letters(&self, count: usize) -> Vec<OwnedMessage> {
        let reader = reader(&self.kafka, "undertaker");
        let mut list = TopicPartitionList::new();
        list.add_partition_offset(DEAD, 0, Offset::Beginning).unwrap();
        reader.assign(&list).unwrap();
        let mut letters = Vec::new();
        until("the dead letters are there", || {
            if let Some(Ok(record)) = reader.poll(Duration::from_millis(100)) {
                letters.push(record.detach());
            }
            (letters.len() >= count).then_some(())
        });
        letters
    }

    /// Sends a letter to the first partition of the topic, as it is.
    pub fn copy_back(&self, letter: &OwnedMessage) {
        let mut record = BaseRecord::<[u8], [u8]>::to(TOPIC).partition(0).headers(letter.headers().unwrap().clone());
        record.key = letter.key();
        record.payload = letter.payload();
        self.send(record);
        self.flush();
    }

    /// Every message that the handler had its effect for so far.
    pub fn effects(&self) -> Vec<String> {
        effects_of(&self.handler.heard())
    }

    /// Whether every one of so many messages a partition had its effect once, and each partition in order.
    #[track_caller]
    pub fn assert_whole(&self, count: u32) {
        let effects = self.effects();
        for partition in 0..self.partitions {
            let prefix = format!("p{partition}-");
            let own: Vec<&String> = effects.iter().filter(|body| body.starts_with(&prefix)).collect();
            let all: Vec<String> = (0..count).map(|number| format!("{prefix}{number:04}")).collect();
            assert_eq!(own, all.iter().collect::<Vec<_>>(), "partition {partition}");
        }
    }

    /// Returns when so many messages had their effect.
    pub fn until_effects(&self, count: usize) {
        let mut needed = count;
        loop {
            let heard = self.handler.until(needed);
            let effects = effects_of(&heard).len();
            if effects >= count {
                return;
            }
            // Copies do not count: so many more deliveries are needed at least.
            needed = heard.len() + count - effects;
        }
    }
}

/// Every message that the handler had its effect for, in order, as a handler sees it that knows its keys: what it has seen
/// under a key it does not do again. Fails where a message came again and was not said to be recovering.
fn effects_of(heard: &[Delivery]) -> Vec<String> {
    let (mut known, mut effects) = (BTreeMap::new(), Vec::new());
    for delivery in heard {
        let (key, body) = (delivery.header("idempotency-key").unwrap(), body(delivery));
        match known.insert(key, body.clone()) {
            None => effects.push(body),
            Some(earlier) => {
                assert_eq!(earlier, body);
                let told = (delivery.attempt() > 1, delivery.header("fencepost-recovering"));
                assert_eq!(told, (true, Some("true")), "{body} came again without a word");
            }
        }
    }
    effects
}

fn reader(kafka: &Kafka, group: &str) -> BaseConsumer {
    let mut config = ClientConfig::new();
    config.set("bootstrap.servers", kafka.brokers()).set("group.id", group).set("enable.auto.commit", "false");
    config.create().unwrap()
}

pub fn body(delivery: &Delivery) -> String {
    String::from_utf8(delivery.body.clone()).unwrap()
}

/// A running consumer; killed when dropped.
pub struct Consumer {
    child: Child,
    said: Arc<(Mutex<Said>, Condvar)>,
}

/// A consumer's output so far on either stream.
#[derive(Default)]
struct Said {
    text: String,
    streams_ended: usize,
}

impl Consumer {
    fn start(mut command: Command) -> Self {
        let mut child = command.stdout(Stdio::piped()).stderr(Stdio::piped()).spawn().unwrap();
        let said = Arc::<(Mutex<Said>, Condvar)>::default();
        listen(child.stdout.take().unwrap(), said.clone());
        listen(child.stderr.take().unwrap(), said.clone());
        Self { child, said }
    }

    fn wait_while(&self, what: &str, holds: impl FnMut(&mut Said) -> bool) {
        let (said, waited) = self.said.1.wait_timeout_while(self.said.0.lock().unwrap(), PATIENCE, holds).unwrap();
        // Not under the lock: the output is printed on the way out.
        drop(said);
        assert!(!waited.timed_out(), "never: {what}");
    }

    pub fn said(&self) -> String {
        self.said.0.lock().unwrap().text.clone()
    }

    pub fn until_said(&self, words: &str) {
        self.wait_while(words, |said| !said.text.contains(words));
    }

    /// kill -9, and gone when this returns.
    pub fn kill(mut self) {
        self.child.kill().unwrap();
        self.child.wait().unwrap();
    }

    /// SIGTERM, and how it ended.
    pub fn stop(mut self) -> (ExitStatus, String) {
        rustix::process::kill_process(Pid::from_child(&self.child), Signal::TERM).unwrap();
        self.wait_while("the consumer ends", |said| said.streams_ended < 2);
        (self.child.wait().unwrap(), self.said())
    }
}

fn listen(stream: impl Read + Send + 'static, said: Arc<(Mutex<Said>, Condvar)>) {
    thread::spawn(move || {
        for line in BufReader::new(stream).lines().map_while(Result::ok) {
            said.0.lock().unwrap().text += &(line + "\n");
            said.1.notify_all();
        }
        said.0.lock().unwrap().streams_ended += 1;
        said.1.notify_all();
    });
}

impl Drop for Consumer {
    fn drop(&mut self) {
        let _ = self.child.kill();
        let _ = self.child.wait();
        if thread::panicking() {
            eprintln!("a consumer said:\n{}", self.said());
        }
    }
}

/// One run that ends by itself: how, and its last words.
pub fn refused(mut command: Command) -> (ExitStatus, String) {
    let output = command.stdout(Stdio::null()).output().unwrap();
    (output.status, String::from_utf8_lossy(&output.stderr).into_owned())
}
