//! Replays a seed with its whole history, or searches many for a broken promise.
//! Never judges by itself: it prints what the auditor found. Run by people, and named in every failing test.

use std::{collections::BTreeMap, process::ExitCode};

use clap::Parser;
use fencepost_sim::{plant::Plant, run, run_with_text};

// A world is many small allocations.
#[global_allocator]
static ALLOCATOR: mimalloc::MiMalloc = mimalloc::MiMalloc;

/// Lives seeded worlds and judges them.
#[derive(Parser)]
#[command(after_help = "Examples:\n  fencepost-sim --seed 42\n  fencepost-sim --from 2000 --seeds 100000\n  \
                        fencepost-sim --seeds 200 --plant reply-before-sync")]
struct Options {
    /// Lives this one seed and prints its whole history.
    #[arg(long)]
    seed: Option<u64>,
    /// How many seeds to live.
    #[arg(long, env = "FENCEPOST_SIM_SEEDS", default_value_t = 2_000)]
    seeds: u64,
    /// The first of them.
    #[arg(long, default_value_t = 0)]
    from: u64,
    /// Builds a bug in on purpose, by its name; a wrong one lists them.
    #[arg(long)]
    plant: Option<Plant>,
}

fn main() -> Result<ExitCode, std::io::Error> {
    let options = Options::parse();
    let seeds = options.seed.map_or(options.from..options.from + options.seeds, |seed| seed..seed + 1);
    let mut counts: BTreeMap<String, u64> = BTreeMap::new();
    let (mut lived, mut failed) = (0, 0);
    for seed in seeds {
        let run = if options.seed.is_some() { run_with_text } else { run }(seed, options.plant)?;
        if options.seed.is_some() {
            run.history.lines.iter().for_each(|line| println!("{line}"));
        }
        for (name, count) in run.coverage() {
            *counts.entry(name).or_default() += count;
        }
        for violation in &run.violations {
            println!("seed {seed}: {violation}");
        }
        lived += 1;
        if !run.violations.is_empty() {
            failed += 1;
            println!("{}", run.replay(options.plant));
        }
    }
    counts.iter().for_each(|(name, count)| println!("{name:>24} {count}"));
    println!("{lived} seeds, {failed} with a broken promise");
    Ok(if failed == 0 { ExitCode::SUCCESS } else { ExitCode::FAILURE })
}
