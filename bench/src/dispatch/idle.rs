//! Measures how long one event takes on a server that does nothing else.
//! Never sends the next event before the last is received and recorded. Called by `dispatch`.

use std::time::Duration;

use anyhow::Result;
use fencepost_rig::programs::free_port;
use serde_json::json;

use super::Bench;
use super::events::Request;
use super::flow::ROUND_TRIPS;
use super::planner;
use super::receiver::{DELIVER, now_ns};
use super::table::{Finding, Goal};
use super::world::{Receiver, World, delays, drive};
use crate::http::Connection;
use crate::machine::Probe;
use crate::stats::Sample;

/// The pause between a receipt and the next event.
const REST: Duration = Duration::from_millis(10);

/// Publishes one event at a time and measures from publish to receipt.
pub fn idle(bench: &Bench<'_>) -> Result<Vec<Finding>> {
    let events = bench.sizes.idle;
    let receiver = Receiver::start(bench.ground, "receiver", free_port()?)?;
    let bare = Receiver::start(bench.ground, "bare-receiver", free_port()?)?;
    let world = World::start(bench.ground, bench.store, "idle")?;
    let port = world.port()?;
    let round_trip = bare.round_trips(ROUND_TRIPS)?;
    let (mut probe, mut sync) = (Probe::open(world.dir())?, Sample::new(Duration::ZERO));
    let delays = drive(async {
        planner::route_to_webhook(port, 0..1, receiver.port(), DELIVER).await?;
        let mut connection = Connection::open(port).await?;
        let (mut request, mut sent) = (Request::publish(1), Vec::new());
        for number in 0..events {
            request.set(0, number, 0);
            sent.push(now_ns());
            planner::expect_accepted(&mut connection, &request).await?;
            receiver.wait(number + 1).await?;
            // The server still has to record the receipt.
            tokio::time::sleep(REST).await;
            // The probe syncs between the events, so that other work on the disk slows both figures alike.
            probe.sync(&mut sync)?;
        }
        delays(&sent, &receiver.times_ns().await?, 0..events)
    })?;
    let (p50, p99) = (delays.percentile_ms(50.0), delays.percentile_ms(99.0));
    let mark = 2.0 * sync.percentile_ms(50.0) + round_trip.percentile_ms(50.0) + 2.0;
    let more = json!({
        "events": events, "p99_ms": p99, "sync_p50_ms": sync.percentile_ms(50.0), "sync_p99_ms": sync.percentile_ms(99.0),
        "round_trip_p50_ms": round_trip.percentile_ms(50.0),
    });
    let mark = ("2 syncs + round trip + 2 ms".to_owned(), mark);
    let p50 = Finding::ratio('b', "idle: publish to receipt, p50 ms", p50, mark, Goal::AtMost(1.0)).with(more);
    Ok(vec![p50, Finding::alone('b', "idle: publish to receipt, p99 ms", p99)])
}
