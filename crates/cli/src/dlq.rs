//! `fencepost dlq`: lists the events that no receiver took, and redrives or discards them.
//! Asks a running server, which decides. Every command is safe to repeat: a repeat changes nothing. Called by `main`.

mod decide;
mod show;

use std::process::ExitCode;

use clap::{Subcommand, builder::PossibleValuesParser};
use fencepost_kernel::{LaneId, json::JsonNode, lane::DeadLetterReason};

use crate::{
    client::ServerArgs,
    table::{since, table},
    wes::{ServerRefusal, answer, number, page_text, pages, parse, query, text},
};

const LETTERS: &str = "/wes/v1/dispatch/dlq";

/// Work through dead letters: list, show, redrive, discard.
#[derive(clap::Args)]
#[command(after_help = AFTER)]
pub struct Args {
    #[command(subcommand)]
    action: Action,
}

const AFTER: &str = "\
ID is that of the dead letter, or the correlation_id of its event, which logs and alerts name.

Examples:
  fencepost dlq list                               what waits for a decision
  fencepost dlq list --warehouse WH-1 --state all  and what was decided
  fencepost dlq show cid-41                        the event and its last answer
  fencepost dlq redrive cid-41 cid-42              send both again, out of order
  fencepost dlq redrive cid-41 --force 'WH-1 lost its database, never had it'
  fencepost dlq redrive --all --warehouse WH-1 --preview
  fencepost dlq redrive --all --warehouse WH-1 --rate 20
  fencepost dlq discard cid-41 --why 'shipped by hand'

Every command is safe to repeat. Exits 0 when all is done, 1 when something is refused or the server does not answer, 2 \
on a wrong command line.";

#[derive(Subcommand)]
enum Action {
    /// Dead letters: those that wait for a decision, or others by --state
    List(List),
    /// One dead letter: the event, the attempts, the last answer, whether it was cancelled
    Show(Show),
    /// Send events again: one, several, or all that match
    Redrive(Box<decide::Redrive>),
    /// Give events up, for good
    Discard(decide::Discard),
}

fn reasons() -> PossibleValuesParser {
    DeadLetterReason::ALL.map(DeadLetterReason::name).into()
}

#[derive(clap::Args)]
struct List {
    /// Only those of this planner
    #[arg(long, value_name = "ID")]
    planner: Option<String>,
    /// Only those for this warehouse
    #[arg(long, value_name = "ID")]
    warehouse: Option<String>,
    /// Only those with this reason
    #[arg(long, value_parser = reasons())]
    reason: Option<String>,
    /// Only those in this state [default: waiting]
    #[arg(long, value_parser = ["waiting", "redriven", "discarded", "all"])]
    state: Option<String>,
    /// Only events of this kind, such as SHIPPER_RELEASED
    #[arg(long)]
    kind: Option<String>,
    /// At most this many
    #[arg(long, value_name = "N", default_value_t = 100, value_parser = clap::value_parser!(u32).range(1..))]
    limit: u32,
    /// Continue after this one
    #[arg(long, value_name = "ID")]
    after: Option<String>,
    /// Print the server's answer as it is
    #[arg(long)]
    json: bool,
    #[command(flatten)]
    server: ServerArgs,
}

#[derive(clap::Args)]
struct Show {
    /// The dead letter, or the correlation_id of its event
    id: String,
    /// Print the server's answer as it is
    #[arg(long)]
    json: bool,
    #[command(flatten)]
    server: ServerArgs,
}

pub fn run(args: Args) -> anyhow::Result<ExitCode> {
    match args.action {
        Action::List(args) => list(&args)?,
        Action::Show(args) => {
            let id = id_of(&args.server, &args.id)?;
            show::show(&crate::wes::get(&args.server, &format!("{LETTERS}/{id}"))?, args.json)?;
        }
        Action::Redrive(args) => return decide::redrive(&args),
        Action::Discard(args) => return decide::discard(&args),
    }
    Ok(ExitCode::SUCCESS)
}

fn list(args: &List) -> anyhow::Result<()> {
    let parameters = [
        ("planner_id", args.planner.as_deref()),
        ("warehouse_id", args.warehouse.as_deref()),
        ("reason", args.reason.as_deref()),
        ("state", args.state.as_deref()),
        ("kind", args.kind.as_deref()),
    ];
    let after = args.after.as_deref().unwrap_or_default();
    let path = query(LETTERS, &parameters);
    let (items, next) = pages(&args.server, &path, args.limit as usize, after)?;
    if args.json {
        println!("{}", page_text(&items, &next));
        return Ok(());
    }
    if items.is_empty() {
        println!("no dead letters");
        return Ok(());
    }
    let letters = items.iter().map(|item| parse(item.as_bytes())).collect::<anyhow::Result<Vec<_>>>()?;
    let head = ["id", "event", "kind", "warehouse", "reason", "attempts", "died", "state", "last answer"];
    print!("{}", table(&head, &letters.iter().map(row).collect::<Vec<_>>()));
    if !next.is_empty() {
        println!("There are more: --after {next}");
    }
    Ok(())
}

fn row(letter: &JsonNode<'_>) -> Vec<String> {
    let part = |name: &str| text(letter, name).to_owned();
    let cancelled = if letter.get("cancelled_by").is_some() { ", cancelled" } else { "" };
    vec![
        part("id"),
        part("correlation_id"),
        part("kind"),
        part("warehouse_id"),
        part("reason"),
        number(letter, "attempts").to_string(),
        format!("{} ago", since(text(letter, "died_at"))),
        format!("{}{cancelled}", text(letter, "state")),
        answer(letter),
    ]
}

/// The id of the dead letter that is named by its own id, or by the correlation_id of its event.
fn id_of(server: &ServerArgs, named: &str) -> anyhow::Result<String> {
    let is_id = |(lane, seq): (&str, &str)| LaneId::from_hex(lane).is_some() && seq.parse::<u64>().is_ok();
    if named.split_once('-').is_some_and(is_id) {
        return Ok(named.to_owned());
    }
    let path = query(LETTERS, &[("correlation_id", Some(named)), ("state", Some("all"))]);
    let (found, _) = pages(server, &path, 2, "")?;
    match found.as_slice() {
        [one] => Ok(text(&parse(one.as_bytes())?, "id").to_owned()),
        [] => Err(ServerRefusal {
            status: 404,
            code: "unknown-dead-letter".to_owned(),
            detail: format!("there is no dead letter {named:?}, and no event of that id is one"),
        }
        .into()),
        _ => Err(ServerRefusal {
            status: 409,
            code: "ambiguous".to_owned(),
            detail: format!("several planners have a dead letter of the event {named:?}: name it by its own id"),
        }
        .into()),
    }
}
