//! Posts events to receivers: one attempt, one signed request, one verdict.
//! Never decides when to try again, never follows a redirect, and never sends an event that it cannot sign.
//! Made by the binary, called by the driver through the port.

mod answer;
mod connect;
mod judge;
mod lookup;
mod nets;
mod request;
pub use fencepost::signature;

use std::{path::PathBuf, sync::Arc, time::Duration};

use bytes::Bytes;
use fencepost::{
    clock::Clock,
    dispatch::{Delivery, Sink, Vault, origin},
};
use fencepost_kernel::{
    dispatch::{Transport, WarehouseTransport},
    lane::{AttemptFailure, ReceiverAnswer},
};
use futures::future::BoxFuture;
use http_body_util::Full;
use hyper_util::{
    client::legacy::Client,
    rt::{TokioExecutor, TokioTimer},
};
use tokio::time::timeout;

use answer::{fault, later, understood};
use connect::Connector;
pub use judge::{Egress, URL_BYTES_MAX};
use request::{Signing, request};
use signature::Secret;

/// The largest head of an answer; a larger one is a failure.
const HEAD_BYTES_MAX: usize = 16 * 1024;

/// The limits of deliveries.
#[derive(Clone, Debug)]
pub struct WebhookSettings {
    /// From the beginning of an attempt to the head of its answer.
    pub attempt_ms_max: u64,
    /// The part of that for connecting: name lookup, TCP and TLS.
    pub connect_ms_max: u64,
    /// How long a connection is kept for the next event.
    pub idle_ms_max: u64,
    /// How many idle connections are kept for one host.
    pub idle_per_host_max: usize,
    /// While more than this are open in all, new ones are not kept.
    pub kept_max: usize,
    /// Certificates of private authorities beside the public ones: a PEM file.
    pub authorities: Option<PathBuf>,
}

impl Default for WebhookSettings {
    fn default() -> Self {
        Self {
            attempt_ms_max: 15_000,
            connect_ms_max: 5_000,
            // Common servers close after 5 s: an event must not meet a connection that is just being closed.
            idle_ms_max: 4_000,
            idle_per_host_max: 256,
            kept_max: 2_048,
            authorities: None,
        }
    }
}

/// Sends events to webhooks. Clones share their connections.
#[derive(Clone)]
pub struct WebhookSink {
    client: Client<Connector, Full<Bytes>>,
    vault: Arc<Vault>,
    clock: Arc<dyn Clock>,
    attempt_ms_max: u64,
}

impl WebhookSink {
    /// Fails only where the file of authorities cannot be used.
    pub fn new(
        egress: Egress,
        vault: Arc<Vault>,
        clock: Arc<dyn Clock>,
        settings: &WebhookSettings,
    ) -> Result<Self, String> {
        let connector = Connector::new(egress, settings)?;
        let client = Client::builder(TokioExecutor::new())
            .pool_timer(TokioTimer::new())
            .pool_idle_timeout(Duration::from_millis(settings.idle_ms_max))
            .pool_max_idle_per_host(settings.idle_per_host_max)
            .http1_max_buf_size(HEAD_BYTES_MAX)
            .build(connector);
        Ok(Self { client, vault, clock, attempt_ms_max: settings.attempt_ms_max })
    }

    async fn attempt(self, delivery: Delivery) -> Result<(), AttemptFailure> {
        let Transport::Webhook(webhook) = &delivery.transport.transport else {
            return Err(later("the transport is not a webhook"));
        };
        // A missing key is this node's fault, not the event's: it must not make the event a dead letter.
        let away = |why: String| AttemptFailure::Away(ReceiverAnswer::new(None, &why));
        // Decrypted for each attempt: that takes a few microseconds, and no plain text stays in memory.
        let WarehouseTransport { planner, warehouse, .. } = &*delivery.transport;
        let open = self.vault.open_webhook(planner, warehouse, webhook).map_err(away)?;
        let (uri, _) = judge::read(&open.url).map_err(|why| later(&why))?;
        let secrets = open.secrets.iter().map(|secret| Secret::new(secret));
        let secrets = secrets.collect::<Result<Vec<_>, _>>().map_err(away)?;
        let at_s = self.clock.wall_ms() / 1_000;
        let signing = Signing { secrets: &secrets, standard: webhook.standard, at_s };
        let request = request(&delivery, uri, &signing).map_err(|why| later(&why))?;
        let answering = self.client.request(request);
        match timeout(Duration::from_millis(self.attempt_ms_max), answering).await {
            Ok(Ok(response)) => understood(response, self.clock.wall_ms(), &open.url).await,
            Ok(Err(error)) => Err(later(&fault(&error))),
            Err(_) => Err(later(&format!("no answer within {} ms", self.attempt_ms_max))),
        }
    }
}

impl Sink for WebhookSink {
    fn host(&self, of: &WarehouseTransport) -> String {
        match &of.transport {
            Transport::Webhook(webhook) => {
                let origin = origin(&webhook.url);
                judge::read(origin).map_or_else(|_| origin.to_owned(), |(_, target)| target.name())
            }
            _ => String::new(),
        }
    }

    fn deliver(&self, delivery: Delivery) -> BoxFuture<'static, Result<(), AttemptFailure>> {
        Box::pin(self.clone().attempt(delivery))
    }
}
