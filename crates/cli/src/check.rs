//! `fencepost check`: lints a policy and says what to do about it.

use std::{path::PathBuf, process::ExitCode};

use anyhow::Context;
use fencepost::policy::{check::check, finding};

/// Lint policy files. Exits 1 on an error, 0 on warnings and notes.
#[derive(clap::Args)]
#[command(after_help = "Examples:\n  fencepost check idempotency.yml\n  fencepost check --format json contracts/*.yml")]
pub struct Args {
    /// The files
    #[arg(required = true, value_name = "FILE")]
    files: Vec<PathBuf>,
    /// How findings are printed
    #[arg(long, value_enum, default_value_t = Format::Human)]
    format: Format,
}

#[derive(Clone, Copy, clap::ValueEnum)]
enum Format {
    /// One finding a line, with a fix
    Human,
    /// One JSON object: counts, and the findings
    Json,
}

pub fn run(args: Args) -> anyhow::Result<ExitCode> {
    let mut findings = Vec::new();
    for path in &args.files {
        let text = std::fs::read_to_string(path).with_context(|| format!("cannot read {}", path.display()))?;
        findings.extend(check(&path.display().to_string(), &text));
    }
    match args.format {
        Format::Human => {
            print!("{}", finding::human(&findings));
            let errors = findings.iter().filter(|finding| finding.is_error()).count();
            println!("{} checked: {errors} errors, {} other findings", args.files.len(), findings.len() - errors);
        }
        Format::Json => println!("{}", finding::json(&findings)),
    }
    Ok(if finding::has_errors(&findings) { ExitCode::FAILURE } else { ExitCode::SUCCESS })
}
