//! Measures fencepost against Redis, PostgreSQL, nginx, a no-op server and raw fjall, in one run on one machine.
//! Never promises an absolute figure: those depend on the machine; only ratios are compared.
//! Called by people: `cargo run --release -p fencepost-bench`.

#![cfg_attr(test, allow(clippy::unwrap_used))]

mod contest;
mod dispatch;
mod fence;
mod gateway;
mod http;
mod ingest;
mod keys;
mod library;
mod load;
mod machine;
mod noop;
mod plot;
mod report;
mod rivals;
mod scale;
mod server;
mod stats;
mod stop;
mod targets;

use std::os::unix::fs::PermissionsExt;
use std::path::{Path, PathBuf};
use std::process::{Command, ExitCode};
use std::time::Duration;

use anyhow::{Context, Result, ensure};
use clap::{Parser, Subcommand};

use contest::{Contestant, Ground};
use load::Shape;
use machine::Machine;

/// Measures fencepost side by side with what it could be replaced by.
#[derive(Parser)]
#[command(name = "fencepost-bench")]
struct Arguments {
    /// Length of each measurement; the warm-up before it is a fifth of that, at least 0.5 s
    #[arg(long, default_value_t = 3.0, value_name = "N")]
    seconds: f64,
    /// Connections, each with one request in flight; 64 if absent, and 4 with --ingest
    #[arg(long, value_name = "N")]
    connections: Option<usize>,
    /// Threads of the load generator
    #[arg(long, default_value_t = 1, value_name = "N")]
    client_threads: usize,
    /// Rounds; each measures all contestants in turn, and the medians are reported
    #[arg(long, default_value_t = 5, value_name = "N")]
    rounds: u32,
    /// Before each measurement, wait up to this many seconds for other processes to be quiet
    #[arg(long, default_value_t = 0, value_name = "N")]
    patience: u64,
    /// Measure only these (repeat it, or separate names with commas)
    #[arg(long, value_delimiter = ',', value_name = "NAME", value_parser = contestant)]
    only: Vec<&'static Contestant>,
    /// Fill this many sealed fences (1,000,000 where no number follows) and report speed, memory and disk instead
    #[arg(long, num_args = 0..=1, default_missing_value = "1000000", value_name = "KEYS", value_parser = count)]
    scale: Option<u64>,
    /// Measure dispatch instead, with this many events (100,000 where no number follows)
    #[arg(long, num_args = 0..=1, default_missing_value = "100000", value_name = "EVENTS", value_parser = count)]
    dispatch: Option<u64>,
    /// Only these parts of dispatch, a to f (repeat it, or separate letters with commas)
    #[arg(long, value_delimiter = ',', value_name = "LETTER", value_parser = dispatch::part, requires = "dispatch")]
    part: Vec<char>,
    /// Where dispatch keeps its lanes
    #[arg(long, value_enum, default_value = "embedded", value_name = "STORE", requires = "dispatch")]
    lanes_on: dispatch::Store,
    /// Measure ingest instead, with this many items a request (1,000 where no number follows)
    #[arg(long, num_args = 0..=1, default_missing_value = "1000", value_name = "SKUS_PER_REQUEST", value_parser = count)]
    ingest: Option<u64>,
    /// Where results.json, results.svg, scale.json, dispatch.json and ingest.json go
    #[arg(long, default_value = "target/bench", value_name = "DIR")]
    out: PathBuf,
    /// Where the servers keep their data while they run; it must be on a real disk
    #[arg(long, value_name = "DIR")]
    work: Option<PathBuf>,
    /// The server to measure, instead of the one built from this workspace
    #[arg(long, value_name = "FILE")]
    fencepost: Option<PathBuf>,
    #[command(subcommand)]
    hidden: Option<Hidden>,
}

#[derive(Subcommand)]
enum Hidden {
    /// The no-op server, in a process of its own
    #[command(hide = true)]
    NoopServer {
        /// The port on 127.0.0.1
        port: u16,
    },
    /// The receiver of deliveries, in a process of its own
    #[command(hide = true)]
    Receiver {
        /// The port on 127.0.0.1
        port: u16,
    },
}

fn contestant(name: &str) -> Result<&'static Contestant, String> {
    let all = || contest::ALL.iter().chain(ingest::ALL);
    all().find(|contestant| contestant.name == name).ok_or_else(|| {
        let names: Vec<_> = all().map(|contestant| contestant.name).collect();
        format!("one of {}", names.join(", "))
    })
}

fn count(text: &str) -> Result<u64, String> {
    text.replace(['_', ','], "").parse().map_err(|_| "a number such as 10_000_000".to_owned())
}

fn main() -> ExitCode {
    match run(Arguments::parse()) {
        Ok(()) => ExitCode::SUCCESS,
        Err(error) => {
            eprintln!("error: {error:#}");
            ExitCode::FAILURE
        }
    }
}

fn run(arguments: Arguments) -> Result<()> {
    match arguments.hidden {
        Some(Hidden::NoopServer { port }) => return noop::serve(port),
        Some(Hidden::Receiver { port }) => return dispatch::receiver::serve(port),
        None => {}
    }
    let connections = arguments.connections.unwrap_or(if arguments.ingest.is_some() { 4 } else { 64 });
    ensure!(arguments.seconds > 0.0 && arguments.rounds > 0 && connections > 0, "nothing to measure");
    stop::listen()?;

    let all = if arguments.ingest.is_some() { ingest::ALL } else { contest::ALL };
    let chosen: Vec<_> =
        all.iter().filter(|each| arguments.only.is_empty() || chosen_by(&arguments.only, each)).collect();
    let side_by_side = arguments.scale.is_none() && arguments.dispatch.is_none() && arguments.ingest.is_none();
    let needs_fencepost = !side_by_side || chosen.iter().any(|each| each.is_fencepost());
    if side_by_side || arguments.ingest.is_some() {
        contest::require_programs(&chosen)?;
    }
    let fencepost = match (needs_fencepost, &arguments.fencepost) {
        (false, _) => None,
        (true, Some(path)) => Some(path.canonicalize().with_context(|| path.display().to_string())?),
        (true, None) => Some(build_fencepost()?),
    };

    let work = work_folder(arguments.work.as_deref())?;
    let measure = Duration::from_secs_f64(arguments.seconds);
    let warm_up = (measure / 5).max(Duration::from_millis(500));
    let ground = Ground {
        shape: Shape { connections, threads: arguments.client_threads, warm_up, measure },
        patience: Duration::from_secs(arguments.patience),
        work: work.path().to_owned(),
        fencepost,
    };
    let machine = Machine::look(&ground.work);
    std::fs::create_dir_all(&arguments.out)?;
    report::print_machine(&machine);
    match (arguments.scale, arguments.dispatch) {
        (None, None) if arguments.ingest.is_some() => {
            let per_request = arguments.ingest.unwrap_or_default();
            ingest::run(&ground, &machine, &chosen, arguments.rounds, per_request, &arguments.out)
        }
        (Some(keys), _) => scale::run(&ground, &machine, keys, &arguments.out),
        (None, Some(events)) => {
            dispatch::run(&ground, &machine, events, &arguments.part, arguments.lanes_on, &arguments.out)
        }
        (None, None) => {
            let outcome = contest::run(&ground, &chosen, arguments.rounds)?;
            report::publish(&ground, &machine, &outcome, &arguments.out)
        }
    }
}

fn chosen_by(only: &[&'static Contestant], each: &Contestant) -> bool {
    only.iter().any(|one| one.name == each.name)
}

/// A folder that is deleted at the end and that the user postgres may enter.
fn work_folder(parent: Option<&Path>) -> Result<tempfile::TempDir> {
    let mut builder = tempfile::Builder::new();
    builder.prefix("fencepost-bench-").permissions(std::fs::Permissions::from_mode(0o711));
    let folder = match parent {
        Some(parent) => builder.tempdir_in(std::path::absolute(parent)?),
        None => builder.tempdir(),
    };
    folder.context("making a folder for the data")
}

/// Builds the server in the profile of this binary, so that the run never measures a stale one.
fn build_fencepost() -> Result<PathBuf> {
    let own = std::env::current_exe()?;
    let folder = own.parent().context("a binary without a folder")?;
    if let Some(cargo) = std::env::var_os("CARGO") {
        let mut command = Command::new(cargo);
        command.args(["build", "--quiet", "--package", "fencepost-cli", "--bin", "fencepost"]);
        if !cfg!(debug_assertions) {
            command.arg("--release");
        }
        let status = command.status().context("building fencepost")?;
        ensure!(status.success(), "fencepost did not build");
    }
    let binary = folder.join("fencepost");
    ensure!(binary.is_file(), "{} does not exist; name a binary with --fencepost", binary.display());
    Ok(binary)
}
