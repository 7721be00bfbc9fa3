//! Reads the `gateway` section: how large an answer the gateway keeps, and how long it waits for an upstream.
//! Never opens or connects anything: these are plain values.
//! Called by `Policy::load`; read by the gateway.

use std::path::PathBuf;
use std::time::Duration;

use super::read::Reader;
use super::yaml::{YamlNode, YamlValue};

/// The `gateway` section.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct GatewaySettings {
    /// The largest answer that is kept whole and replayed, in bytes.
    pub answer_bytes_max: usize,
    /// The longest silence of an upstream, where its route does not say.
    pub timeout: Duration,
    /// The time limit for opening a connection to an upstream.
    pub connect_timeout: Duration,
    /// Writes to upstreams in flight at one time, and as many reads; one more is refused.
    pub in_flight_max: usize,
    /// Connections to one upstream that are kept for the next request.
    pub idle_connections_max: usize,
    /// A PEM file of certificate authorities for upstreams, beside the public ones.
    pub ca: Option<PathBuf>,
}

const FIELDS: [&str; 6] =
    ["answer_bytes_max", "timeout", "connect_timeout", "in_flight_max", "idle_connections_max", "ca"];

/// Reads the section. `None` means that at least one error was recorded.
pub fn read(reader: &mut Reader, node: &YamlNode) -> Option<GatewaySettings> {
    let fields = reader.fields(node, "`gateway`", &FIELDS)?;
    let span = |reader: &mut Reader, name: &str| {
        reader.duration(fields.get(name)?, &format!("`{name}`")).map(Duration::from_millis)
    };
    let size = fields.get("answer_bytes_max").and_then(|node| reader.size(node, "`answer_bytes_max`"));
    let count = |reader: &mut Reader, name: &str, least: u64| {
        let count = reader.integer(fields.get(name)?, &format!("`{name}`"), least..=100_000)?;
        usize::try_from(count).ok()
    };
    let (flights, idle) = (count(reader, "in_flight_max", 1), count(reader, "idle_connections_max", 0));
    let ca = match fields.get("ca") {
        Some(node) if !matches!(node.value, YamlValue::Null) => reader.text(node, "`ca`").map(Some),
        _ => Some(None),
    };
    let (timeout, connect_timeout) = (span(reader, "timeout"), span(reader, "connect_timeout"));
    Some(GatewaySettings {
        answer_bytes_max: usize::try_from(size?).ok()?,
        timeout: timeout?,
        connect_timeout: connect_timeout?,
        in_flight_max: flights?,
        idle_connections_max: idle?,
        ca: ca?.map(PathBuf::from),
    })
}
