//! The `fencepost` binary: parses the command line and hands over. Holds no rules.

mod backup;
mod check;
mod client;
mod consume;
mod copy;
mod credential;
mod dlq;
mod doctor;
mod executor;
mod lanes;
mod moving;
mod outbound;
mod restore;
mod serve;
mod table;
mod threads;
mod watch;
mod wes;
mod why;

use std::process::ExitCode;

use clap::{Parser, Subcommand};

// Requests are many small allocations that cross threads, which the system's allocator is slow at.
#[global_allocator]
static ALLOCATOR: mimalloc::MiMalloc = mimalloc::MiMalloc;

/// Makes every retry safe: the same request, item, webhook or message has its effect once, and the second sender gets
/// the first one's answer.
#[derive(Parser)]
#[command(name = "fencepost", version, after_help = EXAMPLES)]
struct Cli {
    #[command(subcommand)]
    command: Command,
}

const EXAMPLES: &str = "\
Examples:
  fencepost serve --dev                          try it on this machine, no other software needed
  fencepost check idempotency.yml                lint a policy before it is deployed
  fencepost why BOOKING caseUrn=urn:case:7 waveUrn=urn:wave:1 groupId=G-42
                                                 why did this not run again?
  fencepost lanes --watch                        what is on its way out, live
  fencepost dlq list                             what nobody took
  fencepost consume --brokers 127.0.0.1:9092 --group billing --topic orders --to http://127.0.0.1:8000/handle
                                                 a queue's messages, each with its effect once
  fencepost credential create acme --role partner
  fencepost doctor                               is this machine fit to hold fences?
  fencepost backup --out today.fpb               back up a running server
  fencepost copy ./fencepost-data postgres://fp@db/fences
                                                 move to another store

Start with:
  fencepost serve --dev &
  curl -s http://127.0.0.1:7411/v1/fences/claim -H 'Authorization: Bearer dev-partner' \\
       -H 'Content-Type: application/json' -d '{\"scope\":\"INDEX_BUILD\",\"key\":{\"index_hash\":\"9f2c\"}}'";

#[derive(Subcommand)]
enum Command {
    Serve(serve::Args),
    Why(why::Args),
    Lanes(lanes::Args),
    Dlq(dlq::Args),
    Executor(executor::Args),
    Consume(consume::Args),
    Check(check::Args),
    Credential(credential::Args),
    Doctor(doctor::Args),
    Backup(backup::Args),
    Restore(restore::Args),
    Copy(copy::Args),
}

// A reader that has seen enough, such as `head`, is no error.
fn end_quietly_with_the_reader() {
    let usual = std::panic::take_hook();
    std::panic::set_hook(Box::new(move |panic| {
        let said = panic.payload().downcast_ref::<String>();
        if said.is_some_and(|said| said.starts_with("failed printing to stdout") && said.contains("Broken pipe")) {
            std::process::exit(0);
        }
        usual(panic);
    }));
}

// The allocator asks the kernel for pages of 2 MiB. They make nothing here faster, resident memory a quarter larger at its
// peak, and whoever meets a fresh one first stands until it is cleared. A kernel that cannot be told so does no harm.
fn take_small_pages() {
    #[cfg(target_os = "linux")]
    let _ = rustix::thread::disable_transparent_huge_pages(true);
}

// Whatever this process makes is its user's alone: the store's journal and tables, which fjall makes and makes anew with every
// compaction, credentials, keys, backups, and what is written on the way to them.
fn keep_files_private() {
    rustix::process::umask(rustix::fs::Mode::from_raw_mode(0o077));
}

fn main() -> ExitCode {
    end_quietly_with_the_reader();
    take_small_pages();
    keep_files_private();
    let command = Cli::parse().command;
    let outcome = fencepost::clock::check_wall().map_err(anyhow::Error::msg).and_then(|()| match command {
        Command::Serve(args) => serve::run(args),
        Command::Why(args) => why::run(args),
        Command::Lanes(args) => lanes::run(args),
        Command::Dlq(args) => dlq::run(args),
        Command::Executor(args) => executor::run(args),
        Command::Consume(args) => consume::run(args),
        Command::Check(args) => check::run(args),
        Command::Credential(args) => credential::run(args),
        Command::Doctor(args) => doctor::run(args),
        Command::Backup(args) => backup::run(args),
        Command::Restore(args) => restore::run(args),
        Command::Copy(args) => copy::run(args),
    });
    outcome.unwrap_or_else(|error| {
        eprintln!("fencepost: {error:#}");
        ExitCode::FAILURE
    })
}
