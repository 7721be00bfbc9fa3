//! `fencepost check`: lints policy files and prints findings with fixes, for people or for CI. Called by `main`.

use std::{path::PathBuf, process::ExitCode};

use fencepost::policy::{config::Config, finding, formats};

use crate::table::counted;

/// Lint policy files. Exits 1 on an error, 0 on warnings and notes.
#[derive(clap::Args)]
#[command(after_help = AFTER)]
pub struct Args {
    /// The files, each judged by itself
    #[arg(required = true, value_name = "FILE")]
    files: Vec<PathBuf>,
    /// How findings are printed
    #[arg(long, value_enum, default_value_t = Format::Human)]
    format: Format,
}

const AFTER: &str = "\
Examples:
  fencepost check idempotency.yml
  fencepost check --format json contracts/*.yml
  fencepost check --format github policy.yml    notes in a pull request
  fencepost check --format sarif policy.yml > p.sarif    for code scanning";

#[derive(Clone, Copy, clap::ValueEnum)]
enum Format {
    /// Each finding with its place and a fix, and a count
    Human,
    /// One JSON object: counts, and the findings
    Json,
    /// SARIF 2.1.0
    Sarif,
    /// GitHub's workflow commands, one a line
    Github,
}

pub fn run(args: Args) -> anyhow::Result<ExitCode> {
    // `serve --config` reads it the same way: both refuse the same files.
    let judged = |path: &PathBuf| match (Config { file: Some(path.clone()), ..Config::default() }).read() {
        Ok(policy) => policy.findings,
        Err(findings) => findings,
    };
    let findings: Vec<_> = args.files.iter().flat_map(judged).collect();
    match args.format {
        Format::Human => {
            print!("{}", finding::human(&findings));
            let errors = findings.iter().filter(|finding| finding.is_error()).count();
            let (files, others) =
                (counted(args.files.len(), "file"), counted(findings.len() - errors, "other finding"));
            println!("{files} checked: {}, {others}", counted(errors, "error"));
        }
        Format::Json => println!("{}", finding::json(&findings)),
        Format::Sarif => print!("{}", formats::sarif(&findings)),
        Format::Github => print!("{}", formats::github(&findings)),
    }
    Ok(if finding::has_errors(&findings) { ExitCode::FAILURE } else { ExitCode::SUCCESS })
}
