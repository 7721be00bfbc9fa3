//! The `fencepost` binary: parses the command line and hands over. Holds no rules.

mod audit;
mod backup;
mod check;
mod client;
mod consume;
mod copy;
mod credential;
mod dlq;
mod doctor;
mod executor;
mod forget;
mod keys;
mod lanes;
mod moving;
mod outbound;
mod place;
mod restore;
mod serve;
mod table;
mod threads;
mod watch;
mod wes;
mod why;

use std::process::ExitCode;

use clap::{CommandFactory as _, Parser, Subcommand};
use fencepost::policy::CLIENT_VARIABLES;

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
  fencepost serve --dev             try it here, no other software needed
  fencepost check idempotency.yml   lint a policy before it is deployed
  fencepost why BOOKING caseUrn=urn:case:7 waveUrn=urn:wave:1 groupId=G-42
                                    why did this not run again?
  fencepost lanes --watch           events on their way out, live
  fencepost dlq list                events that no receiver took
  fencepost audit log               what operators changed, and why
  fencepost consume --brokers 127.0.0.1:9092 --group billing --topic orders \\
      --to http://127.0.0.1:8000/handle
                                    a queue's messages, each handled once
  fencepost credential create acme --role partner
  fencepost doctor                  is this machine fit to hold fences?
  fencepost backup --out today.fpb  back up a running server
  fencepost copy ./fencepost-data postgres://fp@db/fences
                                    move to another store

Start with:
  fencepost serve --dev &
  curl -s http://127.0.0.1:7411/v1/fences/claim \\
       -H 'Authorization: Bearer dev-partner' \\
       -H 'Content-Type: application/json' \\
       -d '{\"scope\":\"INDEX_BUILD\",\"key\":{\"index_hash\":\"9f2c\"}}'";

#[derive(Subcommand)]
enum Command {
    Serve(serve::Args),
    Why(why::Args),
    Forget(forget::Args),
    Audit(audit::Args),
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

// Turns transparent huge pages (2 MiB) off. They make nothing here faster, peak resident memory a quarter larger, and
// the first thread that touches one waits until the kernel has cleared it. A kernel without this setting does no harm.
fn take_small_pages() {
    #[cfg(target_os = "linux")]
    let _ = rustix::thread::disable_transparent_huge_pages(true);
}

// Only the user of this process may read the files that it creates: the store's journal and tables, which fjall creates
// again with every compaction, credentials, keys, backups and temporary files.
fn keep_files_private() {
    rustix::process::umask(rustix::fs::Mode::from_raw_mode(0o077));
}

// Prints a command line's error as if no environment variable were set. The user did not type what a variable sets, and
// clap would show its flag as if it were required.
fn refuse(error: clap::Error) -> ! {
    fn without_variables(command: clap::Command) -> clap::Command {
        command.mut_args(|arg| arg.env(None)).mut_subcommands(without_variables)
    }
    match without_variables(Cli::command()).try_get_matches() {
        Err(bare) if bare.kind() == error.kind() => bare.exit(),
        Ok(_) if error.use_stderr() => {
            // The command is valid as typed: only a variable makes it wrong.
            let _ = error.print();
            let set = std::env::vars_os().map(|(name, _)| name.to_string_lossy().into_owned());
            let mut set: Vec<String> = set.filter(|name| CLIENT_VARIABLES.contains(&name.as_str())).collect();
            set.sort();
            eprintln!("The environment sets {}.", set.join(", "));
            std::process::exit(error.exit_code());
        }
        _ => error.exit(),
    }
}

fn main() -> ExitCode {
    end_quietly_with_the_reader();
    take_small_pages();
    keep_files_private();
    let command = Cli::try_parse().unwrap_or_else(|error| refuse(error)).command;
    let outcome = fencepost::clock::check_wall().map_err(anyhow::Error::msg).and_then(|()| match command {
        Command::Serve(args) => serve::run(args),
        Command::Why(args) => why::run(args),
        Command::Forget(args) => forget::run(args),
        Command::Audit(args) => audit::run(args),
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

#[cfg(test)]
mod tests {
    use super::*;

    // Every command with its path, such as `credential rotate-key`.
    fn commands(command: &clap::Command, path: &str, found: &mut Vec<(String, clap::Command)>) {
        found.push((path.to_owned(), command.clone()));
        for one in command.get_subcommands() {
            commands(one, &format!("{path} {}", one.get_name()), found);
        }
    }

    #[test]
    fn help_at_80_columns_wraps_each_paragraph_once() {
        let mut command = Cli::command();
        command.build();
        let mut found = Vec::new();
        commands(&command, "fencepost", &mut found);
        for (path, command) in found {
            let footer = command.get_after_help().map(ToString::to_string).unwrap_or_default();
            let lines: Vec<&str> = footer.lines().collect();
            for pair in lines.windows(2) {
                // A paragraph must be one line: clap wraps it, and a line break made by hand would break it twice.
                let (one, next) = (pair[0], pair[1]);
                let ends = one.is_empty() || one.starts_with(' ') || one.ends_with(['.', ':', ';']);
                assert!(ends || next.is_empty() || next.starts_with(' '), "{path}: {one:?} goes on in {next:?}");
            }
            for line in lines.iter().filter(|line| line.starts_with(' ')) {
                assert!(line.chars().count() <= 80, "{path}: an example of more than 80 columns: {line}");
            }
            let help = command.term_width(80).render_long_help().to_string();
            // clap never wraps the usage line.
            for line in help.lines().filter(|line| !line.starts_with("Usage:")) {
                assert!(line.chars().count() <= 80, "{path}: {line}");
            }
        }
    }
}
