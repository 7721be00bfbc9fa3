//! `fencepost check`: lints policies and says what to do about them, to people and to the machines of a pipeline.

use std::{path::PathBuf, process::ExitCode};

use fencepost::policy::{check::check, config, finding, formats};

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
  fencepost check --format github policy.yml           notes beside the lines of a pull request
  fencepost check --format sarif policy.yml > p.sarif  for code scanning";

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
    let judged = |path: &PathBuf| match config::read(path) {
        Ok((name, text)) => check(&name, &text),
        Err(findings) => findings,
    };
    let findings: Vec<_> = args.files.iter().flat_map(judged).collect();
    match args.format {
        Format::Human => {
            print!("{}", finding::human(&findings));
            let errors = findings.iter().filter(|finding| finding.is_error()).count();
            println!("{} checked: {errors} errors, {} other findings", args.files.len(), findings.len() - errors);
        }
        Format::Json => println!("{}", finding::json(&findings)),
        Format::Sarif => print!("{}", formats::sarif(&findings)),
        Format::Github => print!("{}", formats::github(&findings)),
    }
    Ok(if finding::has_errors(&findings) { ExitCode::FAILURE } else { ExitCode::SUCCESS })
}
