//! Sinks send events out: each transport that pushes has one, and [`Sinks`] is all of them behind the driver's port.
//! Never decides when or whether to try; the driver does. Made by the binary, called by the driver.

pub mod kafka;
pub mod webhook;

use fencepost::dispatch::{Delivery, Sink};
use fencepost_kernel::{
    dispatch::{Transport, WarehouseTransport},
    lane::{AttemptFailure, ReceiverAnswer},
};
use futures::future::BoxFuture;

use kafka::KafkaSink;
use webhook::WebhookSink;

/// The sinks of all transports that push.
pub struct Sinks {
    pub webhook: WebhookSink,
    /// To Kafka, where a cluster is configured.
    pub kafka: Option<KafkaSink>,
}

impl Sink for Sinks {
    fn host(&self, of: &WarehouseTransport) -> String {
        match &of.transport {
            Transport::Kafka { topic } => format!("kafka:{topic}"),
            _ => self.webhook.host(of),
        }
    }

    fn deliver(&self, delivery: Delivery) -> BoxFuture<'static, Result<(), AttemptFailure>> {
        match (&delivery.transport.transport, &self.kafka) {
            (Transport::Kafka { .. }, Some(kafka)) => Box::pin(kafka.clone().attempt(delivery)),
            (Transport::Kafka { .. }, None) => Box::pin(async {
                Err(AttemptFailure::Away(ReceiverAnswer::new(None, "no Kafka cluster is configured")))
            }),
            _ => self.webhook.deliver(delivery),
        }
    }
}
