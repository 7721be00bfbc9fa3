//! Measures whether lanes that are blocked by a dead receiver slow down healthy lanes.
//! Never lets a healthy lane share a host with a dead one. Called by `dispatch`.

use std::time::{Duration, Instant};

use anyhow::{Context, Result, bail};
use fencepost_rig::programs::free_port;
use serde_json::json;

use super::planner::{self, Load, MANY, PUBLISHERS};
use super::receiver::{DELIVER, SILENT};
use super::table::{Finding, Goal};
use super::world::{Receiver, World, delays, drive};
use super::{Bench, Sizes};
use crate::http::Connection;
use crate::stats::median;

/// Lanes with a receiver that answers, and the events a second that are published to all of them together.
const HEALTHY: u64 = 100;
const PER_SECOND: f64 = 500.0;
/// The first share of a window is not counted: connections are opened and caches are filled then.
const WARM_UP: f64 = 0.1;
/// The server's bound on attempts in flight to one host: a silent receiver never gets more than these at once.
const PER_HOST_MAX: u64 = 256;
/// The longest wait until all lanes are blocked.
const BLOCK_MAX: Duration = Duration::from_secs(120);

/// The ways in which a receiver is dead.
#[derive(Clone, Copy, PartialEq, Eq)]
enum Dead {
    /// No process listens on the port: every attempt fails at once.
    Closed,
    /// The receiver accepts, reads and never answers.
    Silent,
}

/// Measures both kinds of dead receiver.
pub fn lanes(bench: &Bench<'_>) -> Result<Vec<Finding>> {
    let mut findings = Vec::new();
    for (dead, word) in [(Dead::Closed, "closed port"), (Dead::Silent, "never answers")] {
        let mut runs = Vec::new();
        for run in 1..=bench.sizes.runs {
            let (without, with) = self::run(bench, dead)?;
            eprintln!("d  {word}, run {run}: p99 {without:.2} ms without, {with:.2} ms with");
            runs.push((without, with));
        }
        let (without, with): (Vec<f64>, Vec<f64>) = runs.into_iter().unzip();
        let label = format!("{} lanes blocked ({word}): healthy p99 ms", bench.sizes.blocked);
        let mark = ("without the blocked ones".to_owned(), median(&without));
        let more = json!({
            "healthy_lanes": HEALTHY, "per_second": PER_SECOND, "p99_ms_without": without, "p99_ms_with": with,
        });
        findings.push(Finding::ratio('d', &label, median(&with), mark, Goal::AtMost(1.5)).with(more));
    }
    Ok(findings)
}

// The p99 of the healthy lanes in milliseconds, without and with the blocked lanes, on one server.
fn run(bench: &Bench<'_>, dead: Dead) -> Result<(f64, f64)> {
    let Sizes { blocked, window, .. } = bench.sizes;
    let receiver = Receiver::start(bench.ground, "receiver", free_port()?)?;
    let silent = match dead {
        Dead::Closed => None,
        Dead::Silent => Some(Receiver::start(bench.ground, "silent-receiver", free_port()?)?),
    };
    let dead_port = silent.as_ref().map_or_else(free_port, |silent| Ok(silent.port()))?;
    let world = World::start(bench.ground, bench.store, "blocked")?;
    let port = world.port()?;
    let events = (window.as_secs_f64() * PER_SECOND) as u64;
    let blocked_lanes = HEALTHY..HEALTHY + blocked;
    let p99 = drive(async {
        planner::route_to_webhook(port, 0..HEALTHY, receiver.port(), DELIVER).await?;
        planner::route_to_webhook(port, blocked_lanes.clone(), dead_port, SILENT).await?;
        let without = healthy(&receiver, port, 0, events).await?;
        let numbers = 2 * events..2 * events + blocked;
        let load = Load { port, connections: MANY, per_request: 10, numbers, lanes: blocked_lanes };
        load.publish().await?;
        match &silent {
            Some(silent) => silent.wait(blocked.min(PER_HOST_MAX)).await?,
            None => all_failed(port, blocked).await?,
        }
        let with = healthy(&receiver, port, events, events).await?;
        Ok((without, with))
    });
    // Stopped before the server, which would otherwise wait for its answers.
    drop(silent);
    p99
}

async fn healthy(receiver: &Receiver, port: u16, first: u64, events: u64) -> Result<f64> {
    let numbers = first..first + events;
    let load = Load { port, connections: PUBLISHERS, per_request: 1, numbers: numbers.clone(), lanes: 0..HEALTHY };
    let due = load.pace(PER_SECOND).await?;
    receiver.wait(numbers.end).await?;
    let counted = first + (events as f64 * WARM_UP) as u64..numbers.end;
    Ok(delays(&due, &receiver.times_ns().await?, counted)?.percentile_ms(99.0))
}

// Waits until the server's own metrics count one failed attempt for each lane.
async fn all_failed(port: u16, lanes: u64) -> Result<()> {
    const FAILED: &str = r#"fencepost_delivery_attempts_total{outcome="failed"} "#;
    let began = Instant::now();
    let mut connection = Connection::open(port).await?;
    while began.elapsed() < BLOCK_MAX {
        let reply = connection.exchange(b"GET /metrics HTTP/1.1\r\nHost: 127.0.0.1\r\n\r\n").await?;
        let text = std::str::from_utf8(reply.body)?;
        let count = text.lines().find_map(|line| line.strip_prefix(FAILED));
        if count.map_or(Ok(0), str::parse::<u64>).context("a count of attempts")? >= lanes {
            return Ok(());
        }
        tokio::time::sleep(Duration::from_millis(50)).await;
    }
    bail!("{lanes} lanes were not blocked within {BLOCK_MAX:?}")
}
