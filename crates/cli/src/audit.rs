//! `fencepost audit log`: lists what operators changed. Asks a running server, and only reads. Called by `main`.

use std::process::ExitCode;

use clap::Subcommand;
use fencepost_kernel::json::JsonNode;

use crate::{
    client::ServerArgs,
    table::table,
    wes::{page_text, pages, parse, query, text},
};

/// Show what operators changed: when, by whom, what, and why.
#[derive(clap::Args)]
#[command(after_help = AFTER)]
pub struct Args {
    #[command(subcommand)]
    action: Action,
}

const AFTER: &str = "\
Examples:
  fencepost audit log                         the latest acts, the newest first
  fencepost audit log --by ann --limit 20
  fencepost audit log --what pauseLane --json
  fencepost audit log --on fgai-wms:WH-1      what was done to one lane

Exits 0 when it is done, 1 when the server refuses or does not answer, 2 on a wrong command line.";

#[derive(Subcommand)]
enum Action {
    /// Acts that changed something, the newest first
    Log(Log),
}

#[derive(clap::Args)]
struct Log {
    /// Only acts of this identity
    #[arg(long, value_name = "ID")]
    by: Option<String>,
    /// Only this operation, such as forget, resolve or pauseLane
    #[arg(long, value_name = "OPERATION")]
    what: Option<String>,
    /// Only acts on this: SCOPE/KEY, a lane, a dead letter
    #[arg(long, value_name = "NAME")]
    on: Option<String>,
    /// Only acts on what is this tenant's
    #[arg(long, value_name = "ID")]
    tenant: Option<String>,
    /// At most this many
    #[arg(long, value_name = "N", default_value_t = 100, value_parser = clap::value_parser!(u32).range(1..))]
    limit: u32,
    /// Continue after this cursor
    #[arg(long, value_name = "CURSOR")]
    after: Option<String>,
    /// Print the server's answer as it is
    #[arg(long)]
    json: bool,
    #[command(flatten)]
    server: ServerArgs,
}

pub fn run(args: Args) -> anyhow::Result<ExitCode> {
    let Action::Log(log) = args.action;
    let parameters = [
        ("by", log.by.as_deref()),
        ("what", log.what.as_deref()),
        ("on", log.on.as_deref()),
        ("tenant", log.tenant.as_deref()),
    ];
    let after = log.after.as_deref().unwrap_or_default();
    let (items, next) = pages(&log.server, &query("/admin/audit", &parameters), log.limit as usize, after)?;
    if log.json {
        println!("{}", page_text(&items, &next));
        return Ok(ExitCode::SUCCESS);
    }
    if items.is_empty() {
        println!("no acts");
    } else {
        let acts = items.iter().map(|item| parse(item.as_bytes())).collect::<anyhow::Result<Vec<_>>>()?;
        print!("{}", table(&["at", "by", "what", "on", "why"], &acts.iter().map(row).collect::<Vec<_>>()));
    }
    if !next.is_empty() {
        println!("There are more: --after {next}");
    }
    Ok(ExitCode::SUCCESS)
}

fn row(act: &JsonNode<'_>) -> Vec<String> {
    ["at", "by", "what", "on", "why"].map(|name| text(act, name).to_owned()).into()
}
