//! Measures throughput: deliveries a second over many lanes, and over one.
//! Never counts from anything but the first publication and the receiver's clock. Called by `dispatch`.

use anyhow::{Context, Result, ensure};
use fencepost_rig::programs::free_port;
use serde_json::json;

use super::planner::{self, Load, MANY, PUBLISHERS};
use super::receiver::{DELIVER, now_ns};
use super::table::{Finding, Goal};
use super::world::{Receiver, World, delays, drive};
use super::{Bench, Sizes};
use crate::machine;

/// Deliveries a second that Svix reached on a comparable machine; for information only.
const SVIX_PER_SECOND: f64 = 794.0;
const SVIX_TIMES: f64 = 10.0;
/// Exchanges that the figure for a round trip is taken from.
pub const ROUND_TRIPS: u64 = 2_000;

/// The figures of one load, from the first publication to the last receipt.
struct Through {
    per_second: f64,
    published_per_second: f64,
    p50_ms: f64,
    p99_ms: f64,
    cpu_us: f64,
}

/// Measures many lanes with one event a request, then with a hundred.
pub fn many_lanes(bench: &Bench<'_>) -> Result<Vec<Finding>> {
    let Sizes { events, lanes, .. } = bench.sizes;
    let bare = bare(bench, events)?;
    let mut findings = Vec::new();
    for per_request in [1, 100] {
        let through = through(bench, events, lanes, per_request)?;
        let label = format!("{lanes} lanes, {per_request} a request: deliveries/s");
        let mark = ("bare client/s".to_owned(), bare);
        let more = json!({
            "events": events, "lanes": lanes, "published_per_second": through.published_per_second,
            "p50_ms": through.p50_ms, "p99_ms": through.p99_ms, "ten_times_svix": SVIX_TIMES * SVIX_PER_SECOND,
        });
        findings.push(Finding::ratio('a', &label, through.per_second, mark, Goal::AtLeast(0.5)).with(more));
        let mark = ("10 x Svix as measured once".to_owned(), SVIX_TIMES * SVIX_PER_SECOND);
        findings.push(Finding::ratio('a', "  for information", through.per_second, mark, Goal::None));
        findings.push(Finding::alone('a', "  the server's processor time for one event, us", through.cpu_us));
    }
    Ok(findings)
}

fn bare(bench: &Bench<'_>, events: u64) -> Result<f64> {
    let receiver = Receiver::start(bench.ground, "receiver", free_port()?)?;
    machine::settle(bench.ground.patience)?;
    let load = Load { port: receiver.port(), connections: MANY, per_request: 1, numbers: 0..events, lanes: 0..1 };
    let (began, times) = drive(async {
        let began = now_ns();
        load.send_bare().await?;
        Ok((began, receiver.times_ns().await?))
    })?;
    Ok(per_second(events, began, &times))
}

fn through(bench: &Bench<'_>, events: u64, lanes: u64, per_request: usize) -> Result<Through> {
    let receiver = Receiver::start(bench.ground, "receiver", free_port()?)?;
    let world = World::start(bench.ground, bench.store, "many-lanes")?;
    let port = world.port()?;
    drive(async {
        planner::route_to_webhook(port, 0..lanes, receiver.port(), DELIVER).await?;
        let load = Load { port, connections: PUBLISHERS, per_request, numbers: 0..events, lanes: 0..lanes };
        let (began, cpu_us) = (now_ns(), world.cpu_us()?);
        let sent = load.publish().await?;
        let published = now_ns();
        receiver.wait(events).await?;
        let cpu_us_after = world.cpu_us()?;
        let times = receiver.times_ns().await?;
        let delays = delays(&sent, &times, 0..events)?;
        Ok(Through {
            per_second: per_second(events, began, &times),
            published_per_second: per_second(events, began, &[published]),
            p50_ms: delays.percentile_ms(50.0),
            p99_ms: delays.percentile_ms(99.0),
            cpu_us: (cpu_us_after - cpu_us) as f64 / events as f64,
        })
    })
}

fn per_second(events: u64, began_ns: u64, times_ns: &[u64]) -> f64 {
    let last = times_ns.iter().copied().max().unwrap_or(began_ns);
    events as f64 * 1e9 / (last - began_ns) as f64
}

/// Measures one lane whose events are all published: each delivery waits until the one before it is recorded.
pub fn one_lane(bench: &Bench<'_>) -> Result<Vec<Finding>> {
    let events = bench.sizes.one_lane;
    ensure!(events > 1, "one event has no rate");
    let receiver = Receiver::start(bench.ground, "receiver", free_port()?)?;
    let bare = Receiver::start(bench.ground, "bare-receiver", free_port()?)?;
    let world = World::start(bench.ground, bench.store, "one-lane")?;
    let port = world.port()?;
    let round_trip = bare.round_trips(ROUND_TRIPS)?;
    let mut sync = bench.syncs(world.dir())?;
    let per_request = events.min(1_000) as usize;
    let times = drive(async {
        planner::route_to_webhook(port, 0..1, receiver.port(), DELIVER).await?;
        let load = Load { port, connections: 1, per_request, numbers: 0..events, lanes: 0..1 };
        load.publish().await?;
        receiver.wait(events).await?;
        receiver.times_ns().await
    })?;
    sync.add(&bench.syncs(world.dir())?)?;
    let in_order = times.windows(2).all(|pair| pair[0] < pair[1]);
    ensure!(in_order, "events of one lane came in another order");
    let first = times.first().copied().context("nothing came")?;
    let rate = per_second(events - 1, first, &times);
    // Means, not medians: a slow sync delays every later event of the lane, and the rate counts all of that delay.
    let mark = 1_000.0 / (round_trip.mean_ms() + sync.mean_ms());
    let more = json!({
        "events": events, "round_trip_mean_ms": round_trip.mean_ms(), "sync_mean_ms": sync.mean_ms(),
        "sync_p50_ms": sync.percentile_ms(50.0), "round_trip_p50_ms": round_trip.percentile_ms(50.0),
    });
    let mark = ("1/(round trip + sync)".to_owned(), mark);
    Ok(vec![Finding::ratio('c', "one lane: deliveries/s", rate, mark, Goal::AtLeast(0.8)).with(more)])
}
