//! Sends dead messages to their topic: idempotent, acknowledged by all replicas in sync, one attempt for each call.
//! Never reports a letter as sent before the brokers have it. Called by the workers of partitions, under a claim.

use std::{
    sync::{Mutex, PoisonError},
    time::Duration,
};

use fencepost::queue::DeadMessage;
use rdkafka::{
    ClientConfig,
    message::Header,
    producer::{FutureProducer, FutureRecord, Producer},
};

use super::{record::Record, redrive};

/// How long one attempt may take.
const ATTEMPT_MS_MAX: u32 = 10_000;
/// As large as the client library allows: a consumed message must fit, with a few headers more.
const MESSAGE_BYTES_MAX: u32 = 1_000_000_000;

/// The values of a dead letter's own headers.
pub(super) struct Words {
    reason: &'static str,
    detail: String,
    attempts: String,
    idempotency_key: String,
    tenant: String,
}

impl Words {
    /// `tenant` is that of the consumer that sends the letter.
    pub fn new(letter: &DeadMessage, idempotency_key: &str, tenant: &str) -> Self {
        Self {
            reason: letter.reason.name(),
            detail: letter.detail.clone(),
            attempts: letter.attempts.to_string(),
            idempotency_key: idempotency_key.to_owned(),
            tenant: tenant.to_owned(),
        }
    }
}

/// The producer of dead letters.
pub(super) struct Letters {
    config: ClientConfig,
    topic: Option<String>,
    producer: Mutex<FutureProducer>,
}

impl Letters {
    /// `topic` takes the letters of all topics; without it, each topic has its own.
    pub fn new(mut config: ClientConfig, topic: Option<String>) -> Result<Self, String> {
        config
            .set("enable.idempotence", "true")
            .set("acks", "all")
            .set("linger.ms", "0")
            .set("message.timeout.ms", ATTEMPT_MS_MAX.to_string())
            .set("message.max.bytes", MESSAGE_BYTES_MAX.to_string());
        let producer = config.create().map_err(|error| error.to_string())?;
        Ok(Self { config, topic, producer: Mutex::new(producer) })
    }

    /// The topic that takes the dead letters of another.
    pub fn topic(&self, of: &str) -> String {
        self.topic.clone().unwrap_or_else(|| super::dead_letter_topic(of))
    }

    /// Makes one attempt. Gives the letter's place: `topic/partition/offset`.
    pub async fn send(&self, record: &Record, words: &Words) -> Result<String, String> {
        let message = &record.message;
        let topic = self.topic(&message.topic);
        let numbers = [message.partition.into(), message.offset, record.first_offset];
        let [partition, offset, first_offset] = numbers.map(|number: i64| number.to_string());
        let mut headers = redrive::before_death(record.headers.as_ref());
        for (key, value) in [
            (redrive::REASON, words.reason),
            (redrive::DETAIL, &words.detail),
            (redrive::TENANT, &words.tenant),
            (redrive::TOPIC, &message.topic),
            (redrive::PARTITION, &partition),
            (redrive::OFFSET, &offset),
            (redrive::FIRST_OFFSET, &first_offset),
            (redrive::ATTEMPTS, &words.attempts),
            (redrive::KEY, &words.idempotency_key),
        ] {
            headers = headers.insert(Header { key, value: Some(value) });
        }
        let mut letter = FutureRecord::<[u8], [u8]>::to(&topic).headers(headers);
        if !record.tombstone {
            letter = letter.payload(&message.body);
        }
        if let Some(key) = &record.key {
            letter = letter.key(key);
        }
        let producer = self.producer.lock().unwrap_or_else(PoisonError::into_inner).clone();
        match producer.send(letter, Duration::ZERO).await {
            Ok(sent) => Ok(format!("{topic}/{}/{}", sent.partition, sent.offset)),
            Err((error, _)) => {
                self.replace_lost();
                Err(format!("{topic}: {error}"))
            }
        }
    }

    // After a fatal error, an idempotent producer never recovers.
    fn replace_lost(&self) {
        let mut current = self.producer.lock().unwrap_or_else(PoisonError::into_inner);
        if current.client().fatal_error().is_some()
            && let Ok(new) = self.config.create()
        {
            *current = new;
        }
    }
}
