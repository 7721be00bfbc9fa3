//! Starts what sends events out, as the configuration has it; and posts alerts.
//! Never starts on a store that cannot carry lanes. Called by `serve`.

use std::{sync::Arc, time::Duration};

use anyhow::Context;
use fencepost::{
    Fencepost,
    clock::SystemClock,
    dispatch::{Dispatch, SCOPE, Settings, Vault},
    policy::Policy,
};
use fencepost_wire::{
    deliveries::Alerts,
    log::{Level, Log},
    metrics::Metrics,
    sinks::{
        Sinks,
        kafka::{self, KafkaSink},
        webhook::{self, Egress, WebhookSink},
    },
};
use tokio::sync::mpsc;

/// Nothing is secret under --dev, and nodes that share a store must share the key.
const DEV_KEY: [u8; 32] = *b"fencepost dev key: not a secret.";
/// How often an alert is posted before it is only in the log.
const POSTS_MAX: u32 = 4;
const POST_TIMEOUT: Duration = Duration::from_secs(10);

/// What webhooks may reach.
pub fn egress(policy: &Policy, dev: bool) -> anyhow::Result<Egress> {
    Egress::new(&policy.dispatch.egress_allow, dev).map_err(anyhow::Error::msg).context("dispatch.egress_allow")
}

/// The driver of lanes; none where the store carries fences only.
pub async fn start(
    fencepost: &Fencepost,
    node: &str,
    egress: Egress,
    dev: bool,
    log: &Log,
    metrics: &Metrics,
) -> anyhow::Result<Option<Dispatch>> {
    let engine = fencepost.engine();
    if !engine.promises().lanes {
        return Ok(None);
    }
    let (policy, settings) = (fencepost.policy(), &fencepost.policy().dispatch);
    let Ok(scope) = policy.scope(SCOPE) else { return Ok(None) };
    let vault = Arc::new(if dev {
        Vault::fixed(DEV_KEY)
    } else {
        let path = settings.key_file.clone().unwrap_or_else(|| policy.server.data.join("secret.key"));
        Vault::open(&path).map_err(anyhow::Error::msg)?
    });
    let clock = Arc::new(SystemClock::default());
    let sending = webhook::Settings {
        attempt_ms_max: settings.timeout.as_millis() as u64,
        authorities: settings.ca.clone(),
        idle_per_host_max: settings.per_host_max,
        ..webhook::Settings::default()
    };
    let webhook = WebhookSink::new(egress, vault.clone(), clock, &sending).map_err(anyhow::Error::msg)?;
    let kafka = settings.kafka_brokers.clone().map(|brokers| {
        let (account, attempt_ms_max) = (settings.kafka_account.clone(), sending.attempt_ms_max);
        let message_bytes_max = settings.kafka_message_bytes_max;
        KafkaSink::new(kafka::Settings { brokers, account, attempt_ms_max, message_bytes_max })
    });
    let kafka = kafka.transpose().map_err(anyhow::Error::msg).context("dispatch.kafka_brokers")?;
    let sink = Sinks { webhook, kafka };
    let weak = engine.downgrade();
    let now = move || weak.upgrade().map_or_else(Default::default, |engine| engine.now());
    let (alerts, posts) = Alerts::new(log.clone(), metrics.deliveries.clone(), now, settings.alert_webhook.is_some());
    if let (Some(posts), Some(url)) = (posts, settings.alert_webhook.clone()) {
        tokio::task::spawn_blocking({
            let log = log.clone();
            move || post(posts, &url, &log)
        });
    }
    let driving = Settings {
        node: node.to_owned(),
        in_flight_max: settings.in_flight_max,
        per_host_max: settings.per_host_max,
        blocked_after: settings.blocked_after,
    };
    let dispatch = Dispatch::start(engine.clone(), scope.clone(), vault, Arc::new(sink), alerts, driving).await?;
    Ok(Some(dispatch))
}

// Posts alerts one after the other until there are no more to come.
fn post(mut posts: mpsc::Receiver<String>, url: &str, log: &Log) {
    let agent: ureq::Agent = ureq::Agent::config_builder().timeout_global(Some(POST_TIMEOUT)).build().into();
    while let Some(alert) = posts.blocking_recv() {
        let mut wait = Duration::from_millis(500);
        for tried in 1..=POSTS_MAX {
            let sent = agent.post(url).header("content-type", "application/json").send(&alert);
            match sent {
                Ok(_) => break,
                Err(error) if tried == POSTS_MAX => {
                    log.line(Level::Error, 0, "an alert could not be posted")
                        .text("why", &error.to_string())
                        .text("alert", &alert);
                }
                Err(_) => std::thread::sleep(wait),
            }
            wait *= 4;
        }
    }
}
