//! Measures speed, memory and disk with few and with very many sealed fences in one store.
//! Never deletes or compacts on purpose: the figures are those of a server that just runs.
//! Called by `main` for `--scale`.

use std::path::Path;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::{Duration, Instant};

use anyhow::{Context, Result, bail};
use serde_json::{Value, json};

use crate::contest::Ground;
use crate::fence::{self, Batches, Cycles, Numbers, Replays};
use crate::keys::Numbering;
use crate::load;
use crate::machine::{self, Machine};
use crate::plot::thousands;
use crate::server::{Server, data_of};
use crate::stats::Sample;
use crate::stop;

/// Sealed keys at the first measurement.
const FEW: u64 = 100_000;
/// The store is at rest once its size on disk is unchanged for this long ...
const REST: Duration = Duration::from_secs(10);
/// ... or this longest wait is over.
const REST_WAIT_MAX: Duration = Duration::from_secs(300);
const MIB: f64 = 1024.0 * 1024.0;

/// The bounds that the project promises at ten million keys.
const SPEED_LEAST: f64 = 0.6;
const RSS_MAX_MIB: f64 = 512.0;
const DISK_MAX_PER_KEY: f64 = 200.0;

/// The rates at one size of the store.
struct Point {
    keys: u64,
    single: Sample,
    batch: Sample,
    replay: Sample,
}

impl Point {
    fn batch_rate(&self) -> f64 {
        self.batch.rate() * fence::BATCH as f64
    }

    fn print(&self) {
        println!(
            "at {:>12} keys: {:>9} cycles/s one by one, {:>9} cycles/s in batches, {:>9} replays/s (p99 {:.2} ms)",
            thousands(self.keys as f64),
            thousands(self.single.rate()),
            thousands(self.batch_rate()),
            thousands(self.replay.rate()),
            self.replay.percentile_ms(99.0)
        );
    }

    fn json(&self) -> Value {
        json!({
            "keys": self.keys, "cycles_per_second": self.single.rate(), "batch_cycles_per_second": self.batch_rate(),
            "replays_per_second": self.replay.rate(), "replay_p99_ms": self.replay.percentile_ms(99.0),
            "cycle_p99_ms": self.single.percentile_ms(99.0),
        })
    }
}

/// Fills the store, measures with few keys and with many, and reports.
pub fn run(ground: &Ground, machine: &Machine, keys: u64, out: &Path) -> Result<()> {
    if keys <= FEW {
        bail!("--scale compares with {}: ask for more than that", thousands(FEW as f64));
    }
    let dir = ground.work.join("scale");
    std::fs::create_dir_all(&dir)?;
    let server = Server::fencepost(ground.fencepost.as_deref().context("no fencepost binary")?, &dir, None)?;
    let numbering = Numbering::new(0);
    let next = Arc::new(AtomicU64::new(0));
    // Keys of the one-by-one measurements: they have salts of their own, so `next` does not count them.
    let mut extra = 0;

    fence::fill(server.port, numbering, &next, FEW, ground.shape.connections)?;
    let few = measure(ground, &server, &next, 1, &mut extra)?;
    few.print();

    let began = Instant::now();
    let before = next.load(Ordering::Relaxed);
    let target = keys.saturating_sub(extra).max(before);
    fence::fill(server.port, numbering, &next, target, ground.shape.connections)?;
    let filled = next.load(Ordering::Relaxed) - before;
    let fill_rate = filled as f64 / began.elapsed().as_secs_f64();
    println!("filled {} more at {} cycles/s", thousands(filled as f64), thousands(fill_rate));
    let many = measure(ground, &server, &next, 2, &mut extra)?;
    many.print();

    let sealed = next.load(Ordering::Relaxed) + extra;
    let (_, rss_peak) = machine::resident(server.pid())?;
    let disk_at_once = machine::disk_bytes(&data_of(&dir))?;
    let rested = rest(&data_of(&dir))?;
    let (rss, _) = machine::resident(server.pid())?;
    let disk = machine::disk_bytes(&data_of(&dir))?;
    drop(server);

    let speed = many.batch_rate() / few.batch_rate();
    let speed_single = many.single.rate() / few.single.rate();
    let (rss_mib, rss_peak_mib) = (rss as f64 / MIB, rss_peak as f64 / MIB);
    let per_key = disk as f64 / sealed as f64;
    println!("\nabsolute figures are of this machine; targets are meant for 10,000,000 keys with 40-byte receipts");
    say(
        speed_single >= SPEED_LEAST,
        format!("speed one by one against {}: {speed_single:.2} (at least {SPEED_LEAST})", thousands(FEW as f64)),
    );
    say(
        speed >= SPEED_LEAST,
        format!("speed in batches against {}: {speed:.2} (at least {SPEED_LEAST})", thousands(FEW as f64)),
    );
    say(
        rss_peak_mib < RSS_MAX_MIB,
        format!("RSS peak {rss_peak_mib:.0} MiB, at rest {rss_mib:.0} MiB (under {RSS_MAX_MIB})"),
    );
    say(
        per_key <= DISK_MAX_PER_KEY,
        format!(
            "disk {per_key:.0} bytes a key at rest (at most {DISK_MAX_PER_KEY}); {:.0} right after the load; {rested}",
            disk_at_once as f64 / sealed as f64
        ),
    );

    let path = out.join("scale.json");
    let results = json!({
        "note": "absolute figures are of this machine and this run",
        "machine": machine.json(), "sealed": sealed, "points": [few.json(), many.json()], "fill_cycles_per_second": fill_rate,
        "speed_ratio": speed, "speed_ratio_one_by_one": speed_single, "rss_bytes": rss, "rss_peak_bytes": rss_peak,
        "disk_bytes": disk, "disk_bytes_at_once": disk_at_once, "disk_bytes_per_key": per_key, "rest": rested,
    });
    std::fs::write(&path, serde_json::to_string_pretty(&results)? + "\n")?;
    println!("\nwrote {}", path.display());
    Ok(())
}

fn say(met: bool, line: String) {
    println!("{:<8}{line}", if met { "met" } else { "MISSED" });
}

fn measure(ground: &Ground, server: &Server, next: &Arc<AtomicU64>, salt: u64, extra: &mut u64) -> Result<Point> {
    let shape = ground.shape;
    // All keys below this number are sealed: every fill and every load waits for its last step.
    let filled = next.load(Ordering::Relaxed);
    let keys = filled + *extra;
    let (port, numbering) = (server.port, Numbering::new(0));
    let single = checked(load::run(shape, Cycles { ports: vec![port], numbering: Numbering::new(salt) })?)?;
    *extra += single.steps_all;
    let batch = checked(load::run(shape, Batches { port, numbering, numbers: Numbers::Shared(next.clone()) })?)?;
    let replay = checked(load::run(shape, Replays { port, numbering, sealed: filled })?)?;
    Ok(Point { keys, single, batch, replay })
}

fn checked(sample: Sample) -> Result<Sample> {
    match &sample.first_error {
        Some(error) => bail!("{} connections met an unexpected reply, first: {error}", sample.errors),
        None => Ok(sample),
    }
}

/// Waits until the size on disk no longer changes, so that background compaction is over.
fn rest(dir: &Path) -> Result<String> {
    let began = Instant::now();
    let mut last = (machine::disk_bytes(dir)?, Instant::now());
    while began.elapsed() < REST_WAIT_MAX {
        stop::check()?;
        std::thread::sleep(Duration::from_millis(500));
        let now = machine::disk_bytes(dir)?;
        if now != last.0 {
            last = (now, Instant::now());
        } else if last.1.elapsed() >= REST {
            return Ok(format!("at rest after {:.0} s", (began.elapsed() - REST).as_secs_f64()));
        }
    }
    Ok(format!("still changing after {REST_WAIT_MAX:?}"))
}
