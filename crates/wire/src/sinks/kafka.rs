//! Produces events to a Kafka topic: idempotent, acknowledged by all replicas in sync, keyed by warehouse, so that a
//! warehouse's events are in one partition, in order. Never takes an event for sent before the broker has acknowledged
//! it. Made by the binary, called by the driver through the port.

use std::{
    sync::{Arc, PoisonError, RwLock},
    time::Duration,
};

use fencepost::dispatch::Delivery;
use fencepost_kernel::{
    dispatch::{Transport, WarehouseTransport},
    lane::{AttemptFailure, DeadLetterReason, ReceiverAnswer},
};
use rdkafka::{
    ClientConfig,
    error::{KafkaError, RDKafkaErrorCode},
    message::{Header, OwnedHeaders},
    producer::{FutureProducer, FutureRecord, Producer},
};

/// How events are produced.
#[derive(Clone, Debug)]
pub struct KafkaSinkSettings {
    /// Where the cluster is found: `host:port`, several with commas.
    pub brokers: String,
    /// The account in the keys of messages; the planner's own id where none is set.
    pub account: Option<String>,
    /// How long one attempt may take.
    pub attempt_ms_max: u64,
    /// The largest message that the cluster takes.
    pub message_bytes_max: usize,
}

/// Sends events to Kafka. Clones share their connections.
#[derive(Clone)]
pub struct KafkaSink {
    settings: Arc<KafkaSinkSettings>,
    producer: Arc<RwLock<FutureProducer>>,
}

impl KafkaSink {
    /// Fails only where the settings make no producer. An unreachable cluster shows when something is sent.
    pub fn new(settings: KafkaSinkSettings) -> Result<Self, String> {
        let producer = producer(&settings)?;
        Ok(Self { settings: settings.into(), producer: Arc::new(producer.into()) })
    }

    /// The topic of a planner, where its transport names none.
    pub fn topic(planner: &str) -> String {
        format!("{}v1", prefix(planner))
    }

    /// Whether a topic is a planner's own, by its name. The part after the planner's id has no dot: ids may have dots,
    /// and that part could belong to a longer id.
    pub fn is_own(planner: &str, topic: &str) -> bool {
        topic.strip_prefix(&prefix(planner)).is_some_and(|rest| !rest.is_empty() && !rest.contains('.'))
    }

    /// The message key of a warehouse's events.
    fn key(&self, of: &WarehouseTransport) -> String {
        let account = self.settings.account.as_deref().unwrap_or(of.planner.as_str());
        format!("frn:{account}:wms:warehouse/{}", of.warehouse)
    }

    /// Makes one attempt at a delivery.
    pub async fn attempt(self, delivery: Delivery) -> Result<(), AttemptFailure> {
        let Transport::Kafka { topic } = &delivery.transport.transport else {
            return Err(AttemptFailure::Away(ReceiverAnswer::new(None, "the transport is not a topic")));
        };
        let key = self.key(&delivery.transport);
        let (seq, prev, attempt) =
            (delivery.seq.to_string(), delivery.prev_seq.to_string(), delivery.attempt.to_string());
        let mut headers = OwnedHeaders::new();
        for (name, value) in [
            ("correlation_id", delivery.entry.correlation_id.as_str()),
            ("Fencepost-Lane", &*delivery.lane),
            ("Fencepost-Seq", &seq),
            ("Fencepost-Prev-Seq", &prev),
            ("Fencepost-Attempt", &attempt),
        ] {
            headers = headers.insert(Header { key: name, value: Some(value) });
        }
        if delivery.redrive() {
            headers = headers.insert(Header { key: "Fencepost-Redrive", value: Some("true") });
        }
        let producer = self.producer.read().unwrap_or_else(PoisonError::into_inner).clone();
        let record = FutureRecord::to(topic).key(&key).payload(&delivery.entry.body[..]).headers(headers);
        let sent = producer.send(record, Duration::ZERO).await;
        sent.map(drop).map_err(|(error, _)| self.failed(&producer, &error))
    }

    fn failed(&self, producer: &FutureProducer, error: &KafkaError) -> AttemptFailure {
        if lost(producer) {
            self.replace();
        }
        let answer = ReceiverAnswer::new(None, &error.to_string());
        match error.rdkafka_error_code() {
            Some(RDKafkaErrorCode::MessageSizeTooLarge | RDKafkaErrorCode::InvalidMessageSize) => {
                AttemptFailure::Never(answer, DeadLetterReason::TooLarge)
            }
            _ => AttemptFailure::Away(answer),
        }
    }

    // Many attempts may fail with one producer: the first of them replaces it, and the others keep the new one.
    fn replace(&self) {
        let mut current = self.producer.write().unwrap_or_else(PoisonError::into_inner);
        if lost(&current)
            && let Ok(new) = producer(&self.settings)
        {
            *current = new;
        }
    }
}

// After a fatal error, an idempotent producer never recovers.
fn lost(producer: &FutureProducer) -> bool {
    producer.client().fatal_error().is_some()
}

fn prefix(planner: &str) -> String {
    format!("wms-wes.dispatch.{planner}.")
}

fn producer(settings: &KafkaSinkSettings) -> Result<FutureProducer, String> {
    ClientConfig::new()
        .set("bootstrap.servers", &settings.brokers)
        .set("client.id", "fencepost")
        .set("enable.idempotence", "true")
        .set("acks", "all")
        .set("linger.ms", "0")
        .set("message.timeout.ms", settings.attempt_ms_max.to_string())
        .set("message.max.bytes", settings.message_bytes_max.to_string())
        .create()
        .map_err(|error| error.to_string())
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used)]

    use rdkafka::{
        mocking::MockCluster,
        types::{RDKafkaApiKey, RDKafkaRespErr},
    };

    use super::*;

    #[tokio::test]
    async fn a_producer_that_is_lost_is_replaced_once_however_many_attempts_it_fails() {
        let cluster = MockCluster::new(1).unwrap();
        let refused = RDKafkaRespErr::RD_KAFKA_RESP_ERR_CLUSTER_AUTHORIZATION_FAILED;
        cluster.request_errors(RDKafkaApiKey::InitProducerId, &[refused]);
        let settings = KafkaSinkSettings {
            brokers: cluster.bootstrap_servers(),
            account: None,
            attempt_ms_max: 10_000,
            message_bytes_max: 1_000_000,
        };
        let sink = KafkaSink::new(settings).unwrap();
        let current = || sink.producer.read().unwrap().clone();
        let old = current();
        let record = || FutureRecord::<str, str>::to("topic").payload("event");
        let (error, _) = old.send(record(), Duration::ZERO).await.unwrap_err();
        assert!(lost(&old), "{error}");

        sink.failed(&old, &error);
        let new = current();
        assert_ne!(new.client().native_ptr(), old.client().native_ptr());
        sink.failed(&old, &error);
        assert_eq!(current().client().native_ptr(), new.client().native_ptr());
        new.send(record(), Duration::ZERO).await.unwrap();
    }
}
