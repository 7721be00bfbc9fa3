//! Reads the `dispatch` section: how events are delivered, where they may go, and where alerts go.
//! Never opens or connects anything: these are plain values.
//! Called by `Policy::load`; read by the command line and the sinks.

use std::path::PathBuf;
use std::time::Duration;

use super::egress::EgressRule;
use super::read::Reader;
use super::yaml::{YamlNode, YamlValue};

/// The `dispatch` section.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct DispatchSettings {
    /// Delivery attempts in flight at one time.
    pub in_flight_max: usize,
    /// Delivery attempts in flight to one host.
    pub per_host_max: usize,
    /// The time limit of one attempt; at a webhook from the connection to the answer.
    pub timeout: Duration,
    /// How long the head of a lane may fail before an alert.
    pub blocked_after: Duration,
    /// The url that alerts are posted to, if any.
    pub alert_webhook: Option<String>,
    /// Addresses, networks and hosts that webhooks may go to although they are not public, each an [`EgressRule`].
    pub egress_allow: Vec<String>,
    /// A PEM file of certificate authorities for receivers, beside the public ones.
    pub ca: Option<PathBuf>,
    /// The file with the keys that seal secrets and cursors.
    pub key_file: Option<PathBuf>,
    /// The Kafka cluster that events may go to: `host:port`, several with commas.
    pub kafka_brokers: Option<String>,
    /// The account in the keys of messages; the planner's id where unset.
    pub kafka_account: Option<String>,
    /// Topics that any planner may name, beside its own.
    pub kafka_topics: Vec<String>,
    /// The largest message that the cluster takes, in bytes; a larger event becomes a dead letter.
    pub kafka_message_bytes_max: usize,
}

const FIELDS: [&str; 12] = [
    "in_flight_max",
    "per_host_max",
    "timeout",
    "blocked_after",
    "alert_webhook",
    "egress_allow",
    "ca",
    "key_file",
    "kafka_brokers",
    "kafka_account",
    "kafka_topics",
    "kafka_message_bytes_max",
];

/// Reads the section. `None` means that at least one error was recorded.
pub fn read(reader: &mut Reader, node: &YamlNode) -> Option<DispatchSettings> {
    let fields = reader.fields(node, "`dispatch`", &FIELDS)?;
    let count = |reader: &mut Reader, name: &str| {
        let count = reader.integer(fields.get(name)?, &format!("`{name}`"), 1..=100_000)?;
        usize::try_from(count).ok()
    };
    let span = |reader: &mut Reader, name: &str| {
        reader.duration(fields.get(name)?, &format!("`{name}`")).map(Duration::from_millis)
    };
    // `Some(None)` is a setting that is off, `None` a wrong one.
    let text = |reader: &mut Reader, name: &str| match fields.get(name) {
        Some(node) if !matches!(node.value, YamlValue::Null) => reader.text(node, &format!("`{name}`")).map(Some),
        _ => Some(None),
    };
    let (in_flight_max, per_host_max) = (count(reader, "in_flight_max"), count(reader, "per_host_max"));
    let (timeout, blocked_after) = (span(reader, "timeout"), span(reader, "blocked_after"));
    let (alert_webhook, ca) = (text(reader, "alert_webhook"), text(reader, "ca"));
    let key_file = text(reader, "key_file");
    let (kafka_brokers, kafka_account) = (text(reader, "kafka_brokers"), text(reader, "kafka_account"));
    let size = fields.get("kafka_message_bytes_max");
    let size = size.and_then(|node| usize::try_from(reader.size(node, "`kafka_message_bytes_max`")?).ok());
    let texts = |reader: &mut Reader, name: &str| reader.texts(fields.get(name)?, &format!("`{name}`"));
    let (egress_allow, kafka_topics) = (texts(reader, "egress_allow"), texts(reader, "kafka_topics"));
    let egress_allow = egress_allow.and_then(|entries| {
        let node = fields.get("egress_allow")?;
        let read = entries.iter().try_for_each(|entry| EgressRule::parse(entry).map(drop));
        let fix = "write addresses, networks or hosts: [10.1.2.0/24, \"192.168.0.7:8443\", \"https://hooks.internal\"]";
        reader.accept(node, "`egress_allow`", read, fix).map(|()| entries)
    });
    Some(DispatchSettings {
        in_flight_max: in_flight_max?,
        per_host_max: per_host_max?,
        timeout: timeout?,
        blocked_after: blocked_after?,
        alert_webhook: alert_webhook?,
        egress_allow: egress_allow?,
        ca: ca?.map(PathBuf::from),
        key_file: key_file?.map(PathBuf::from),
        kafka_brokers: kafka_brokers?,
        kafka_account: kafka_account?,
        kafka_topics: kafka_topics?,
        kafka_message_bytes_max: size?,
    })
}
