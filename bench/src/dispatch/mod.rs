//! Measures event delivery through the real server: throughput, latency, blocked lanes, many due lanes, a long backlog.
//! Never compares figures of two runs: every figure and its baseline are measured in one run.
//! Called by `main` for `--dispatch`.

mod blocked;
mod due;
mod events;
mod flow;
mod idle;
mod planner;
mod poll;
pub mod receiver;
mod table;
mod world;

use std::path::Path;
use std::time::Duration;

use anyhow::{Context, Result};
use serde_json::json;

use crate::contest::Ground;
use crate::machine::{self, Machine};
use crate::plot::thousands;
use crate::stats::Sample;
use table::Finding;
pub use world::Store;

/// Measures one part and returns its figures.
type Part = fn(&Bench<'_>) -> Result<Vec<Finding>>;

const PARTS: [(char, Part); 6] = [
    ('a', flow::many_lanes),
    ('b', idle::idle),
    ('c', flow::one_lane),
    ('d', blocked::lanes),
    ('e', due::at_once),
    ('f', poll::backlog),
];

/// Parses the letter of a part, for the command line.
pub fn part(letter: &str) -> Result<char, String> {
    let known = PARTS.iter().map(|(known, _)| *known);
    let mut letters = known.clone().filter(|known| known.to_string() == letter);
    letters.next().ok_or_else(|| format!("one of {}", known.map(String::from).collect::<Vec<_>>().join(", ")))
}

/// The size of each part, derived from the number of events.
#[derive(Clone, Copy)]
struct Sizes {
    /// Events of the throughput parts; also the number of lanes that are due at once.
    events: u64,
    /// Lanes of the throughput part.
    lanes: u64,
    /// Events of the idle part, one at a time.
    idle: u64,
    /// Events of the part with one lane.
    one_lane: u64,
    /// Lanes whose receiver is dead.
    blocked: u64,
    /// How long the healthy lanes are measured, and how often the whole comparison is repeated.
    window: Duration,
    runs: u32,
    /// Events of the backlog that one poller drains.
    backlog: u64,
    /// How long sync latency is measured, before and after a part.
    sync: Duration,
}

/// The number of events that the project's targets assume.
const EVENTS_FULL: u64 = 100_000;

impl Sizes {
    fn of(events: u64) -> Sizes {
        let full = events as f64 / EVENTS_FULL as f64;
        Sizes {
            events,
            lanes: (events / 100).clamp(1, 1_000),
            idle: (events / 200).clamp(20, 500),
            one_lane: (events / 50).clamp(20, 2_000),
            blocked: (events / 10).clamp(10, 10_000),
            window: Duration::from_secs_f64((10.0 * full).clamp(0.5, 10.0)),
            runs: if events < EVENTS_FULL / 2 { 1 } else { 5 },
            backlog: 10 * events,
            sync: Duration::from_secs_f64(full.clamp(0.2, 1.0)),
        }
    }
}

/// The input of every part.
struct Bench<'a> {
    ground: &'a Ground,
    store: Store,
    sizes: Sizes,
}

impl Bench<'_> {
    /// Measures the latency of a sync in the folder that the server writes to.
    fn syncs(&self, dir: &Path) -> Result<Sample> {
        machine::sync_latency(dir, self.sizes.sync)
    }
}

/// Measures the chosen parts, or all of them, and writes the report.
pub fn run(ground: &Ground, machine: &Machine, events: u64, parts: &[char], store: Store, out: &Path) -> Result<()> {
    anyhow::ensure!(events >= 100, "--dispatch wants at least 100 events");
    let bench = Bench { ground, store, sizes: Sizes::of(events) };
    println!(
        "dispatch, {} events of {} bytes, {store:?} store; absolute figures are of this machine",
        thousands(events as f64),
        events::EVENT_LEN
    );
    if events < EVENTS_FULL {
        println!("goals are meant for {} events: these are for a look only", thousands(EVENTS_FULL as f64));
    }
    let mut found = Vec::new();
    for (letter, part) in PARTS.iter().filter(|(letter, _)| parts.is_empty() || parts.contains(letter)) {
        let findings = part(&bench).with_context(|| format!("part {letter}"))?;
        findings.iter().for_each(Finding::print);
        found.extend(findings.iter().map(Finding::json));
    }
    let name = match store {
        Store::Embedded => "dispatch.json",
        Store::Postgres => "dispatch-postgres.json",
    };
    let path = out.join(name);
    let results = json!({
        "note": "absolute figures are of this machine and this run; ratios are what is compared",
        "machine": machine.json(), "events": events, "found": found,
    });
    std::fs::write(&path, serde_json::to_string_pretty(&results)? + "\n")?;
    println!("\nwrote {}", path.display());
    Ok(())
}
