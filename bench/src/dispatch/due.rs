//! Measures many lanes that are due at one moment: whether each is served, how soon, and with how much memory.
//! Never measures the process that accepted the events: a restarted server finds them all due. Called by `dispatch`.

use anyhow::Result;
use fencepost_rig::programs::free_port;
use serde_json::json;

use super::Bench;
use super::planner::{self, Load};
use super::receiver::{DELIVER, now_ns};
use super::table::{Finding, Goal};
use super::world::{Receiver, World, drive};

const MIB: f64 = 1024.0 * 1024.0;
const RSS_MAX_MIB: f64 = 1_024.0;
/// Connections that publish while every delivery fails.
const FILLERS: usize = 8;

/// Publishes one event in each lane while the receiver is down; then starts the receiver and restarts the server.
pub fn at_once(bench: &Bench<'_>) -> Result<Vec<Finding>> {
    let lanes = bench.sizes.events;
    let receiver_port = free_port()?;
    let mut world = World::start(bench.ground, bench.store, "due")?;
    let port = world.port()?;
    drive(async {
        planner::route_to_webhook(port, 0..lanes, receiver_port, DELIVER).await?;
        let load = Load { port, connections: FILLERS, per_request: 100, numbers: 0..lanes, lanes: 0..lanes };
        load.publish().await
    })?;
    let peak_before = world.peak_bytes()? as f64 / MIB;
    world.end();

    let receiver = Receiver::start(bench.ground, "receiver", receiver_port)?;
    let began = now_ns();
    world.begin()?;
    let ready = now_ns();
    let times = drive(async {
        receiver.wait(lanes).await?;
        receiver.times_ns().await
    })?;
    let received = times.iter().filter(|ns| **ns > 0).count();
    let last = times.iter().copied().max().unwrap_or(began);
    let seconds = (last - began) as f64 / 1e9;
    let peak = world.peak_bytes()? as f64 / MIB;
    let more = json!({
        "lanes": lanes, "received": received, "ready_after_s": (ready - began) as f64 / 1e9,
        "peak_mib_while_published_and_failing": peak_before, "peak_mib_when_all_were_due": peak,
    });
    let label = format!("{lanes} lanes due at once: received");
    let every = Finding::ratio('e', &label, received as f64, ("lanes".to_owned(), lanes as f64), Goal::AtLeast(1.0));
    let mark = ("MiB".to_owned(), RSS_MAX_MIB);
    let memory = Finding::ratio('e', "  peak RSS, MiB", peak.max(peak_before), mark, Goal::AtMost(1.0)).with(more);
    let time = Finding::alone('e', "  from the start of the server to the last receipt, s", seconds);
    Ok(vec![every, memory, time, Finding::alone('e', "  that is, deliveries/s", lanes as f64 / seconds)])
}
