//! `fencepost dlq redrive` and `discard`: operator commands on dead letters by id; `redrive` also on all that match.
//! A refusal never stops the rest. Prints each one with its code, and one hint per code at the end. Called by `dlq`.

use std::{collections::BTreeSet, process::ExitCode};

use anyhow::Context;
use fencepost_kernel::json::{JsonNode, Value};

use super::{LETTERS, id_of, reasons};
use crate::{
    client::ServerArgs,
    moving::Teller,
    table::plain,
    wes::{ServerRefusal, hint, is, number, parse, post, query, quoted, text},
};

#[derive(clap::Args)]
pub(super) struct Redrive {
    /// Dead letters, or the correlation_ids of their events
    #[arg(value_name = "ID", required_unless_present = "all", conflicts_with = "all")]
    ids: Vec<String>,
    /// Send even an event that its receiver may have had and forgotten, for this reason
    #[arg(long, value_name = "WHY")]
    force: Option<String>,
    /// All dead letters that wait for a decision and match
    #[arg(long)]
    all: bool,
    /// With --all: only those of this planner
    #[arg(long, value_name = "ID", requires = "all", conflicts_with = "ids")]
    planner: Option<String>,
    /// With --all: only those for this warehouse
    #[arg(long, value_name = "ID", requires = "all", conflicts_with = "ids")]
    warehouse: Option<String>,
    /// With --all: only those with this reason
    #[arg(long, requires = "all", conflicts_with = "ids", value_parser = reasons())]
    reason: Option<String>,
    /// With --all: only events of this kind
    #[arg(long, requires = "all", conflicts_with = "ids")]
    kind: Option<String>,
    /// With --all: at most this many events a second
    #[arg(long, value_name = "N", requires = "all", conflicts_with = "ids", default_value_t = 50,
          value_parser = clap::value_parser!(u64).range(1..=1_000))]
    rate: u64,
    /// With --all: change nothing, and say what would be done
    #[arg(long, requires = "all", conflicts_with = "ids")]
    preview: bool,
    /// With --all: continue after this one, where an earlier run stopped
    #[arg(long, value_name = "ID", requires = "all", conflicts_with = "ids")]
    after: Option<String>,
    #[command(flatten)]
    server: ServerArgs,
}

#[derive(clap::Args)]
pub(super) struct Discard {
    /// Dead letters, or the correlation_ids of their events
    #[arg(value_name = "ID", required = true)]
    ids: Vec<String>,
    /// The reason, shown to others
    #[arg(long)]
    why: String,
    #[command(flatten)]
    server: ServerArgs,
}

/// Prints each refusal as it comes, and one hint per code at the end.
#[derive(Default)]
struct Refused {
    count: usize,
    codes: BTreeSet<String>,
}

impl Refused {
    fn tell(&mut self, id: &str, code: &str, detail: &str) {
        println!("refused   {id}  {code}: {}", plain(detail));
        self.count += 1;
        self.codes.insert(code.to_owned());
    }

    fn end(&self) -> ExitCode {
        for code in &self.codes {
            if let Some(hint) = hint(code) {
                println!("{code}: {hint}");
            }
        }
        if self.count == 0 { ExitCode::SUCCESS } else { ExitCode::FAILURE }
    }
}

/// Redrives dead letters: sends their events again.
pub(super) fn redrive(args: &Redrive) -> anyhow::Result<ExitCode> {
    if args.all {
        return redrive_all(args);
    }
    let body = force(args).map_or_else(|| "{}".to_owned(), |force| format!("{{{force}}}"));
    each(&args.server, &args.ids, "redrive", &body, |letter, replay| {
        let to = letter.get("decided").map(|decided| number(decided, "seq")).unwrap_or_default();
        let word = if replay { "was sent again before" } else { "sent again" };
        println!("redriven  {}  {} {word}, at position {to}", text(letter, "id"), text(letter, "correlation_id"));
    })
}

/// Discards dead letters: gives their events up for good.
pub(super) fn discard(args: &Discard) -> anyhow::Result<ExitCode> {
    let body = format!("{{\"why\":{}}}", quoted(&args.why));
    each(&args.server, &args.ids, "discard", &body, |letter, replay| {
        let word = if replay { "was given up before" } else { "given up" };
        println!("discarded {}  {} {word}", text(letter, "id"), text(letter, "correlation_id"));
    })
}

fn force(args: &Redrive) -> Option<String> {
    args.force.as_deref().map(|why| format!("\"force\":{{\"why\":{}}}", quoted(why)))
}

// One after the other. A refusal does not stop the rest; a server that does not answer does.
fn each(
    server: &ServerArgs,
    ids: &[String],
    verb: &str,
    body: &str,
    tell: impl Fn(&JsonNode<'_>, bool),
) -> anyhow::Result<ExitCode> {
    let mut refused = Refused::default();
    for named in ids {
        let done = id_of(server, named).and_then(|id| post(server, &format!("{LETTERS}/{id}/{verb}"), body));
        match done {
            Ok(answer) => {
                let letter = parse(&answer)?;
                tell(&letter, is(&letter, "replay"));
            }
            Err(error) => {
                let refusal: ServerRefusal = error.downcast()?;
                refused.tell(named, &refusal.code, &refusal.detail);
            }
        }
    }
    Ok(refused.end())
}

/// The most events of one request: about as many as a second allows, so that progress shows every second.
fn page_size(args: &Redrive) -> u64 {
    if args.preview { 1_000 } else { args.rate }
}

fn redrive_all(args: &Redrive) -> anyhow::Result<ExitCode> {
    let path = query(&format!("{LETTERS}/redrive"), &[("planner_id", args.planner.as_deref())]);
    let mut after = args.after.clone().unwrap_or_default();
    let (mut sent, mut before) = (0, 0);
    let (mut refused, mut teller) = (Refused::default(), Teller::default());
    loop {
        let answer = post(&args.server, &path, &asked(args, &after)).with_context(|| stopped(sent, &after))?;
        let answer = parse(&answer)?;
        sent += number(&answer, if args.preview { "would_redrive" } else { "redriven" });
        before += number(&answer, "replayed");
        if let Some(Value::Array(all)) = answer.get("refused").map(|refused| &refused.value)
            && !all.is_empty()
        {
            // Removes the progress line first: each refusal has a line of its own.
            drop(std::mem::take(&mut teller));
            for one in all {
                refused.tell(text(one, "id"), text(one, "code"), text(one, "detail"));
            }
        }
        after = text(&answer, "next_cursor").to_owned();
        if after.is_empty() {
            break;
        }
        teller.say(|| format!("{sent} redriven, {} refused; up to {after}", refused.count));
    }
    drop(teller);
    match args.preview {
        true => println!("{sent} would be redriven, {} would be refused; nothing was changed", refused.count),
        false if before > 0 => println!("{sent} redriven, {before} were before, {} refused", refused.count),
        false => println!("{sent} redriven, {} refused", refused.count),
    }
    Ok(refused.end())
}

fn stopped(sent: u64, after: &str) -> String {
    match after {
        "" => "nothing was redriven that is known of".to_owned(),
        after => format!("stopped after {sent} redriven; go on with --after {after}"),
    }
}

fn asked(args: &Redrive, after: &str) -> String {
    let filter = [("warehouse_id", &args.warehouse), ("reason", &args.reason), ("kind", &args.kind)];
    let filter = filter.iter().filter_map(|(name, value)| value.as_ref().map(|v| format!("\"{name}\":{}", quoted(v))));
    let mut members = vec![
        format!("\"filter\":{{{}}}", filter.collect::<Vec<_>>().join(",")),
        format!("\"preview\":{}", args.preview),
        format!("\"limit\":{}", page_size(args)),
        format!("\"rate_per_second\":{}", args.rate),
        format!("\"after\":{}", quoted(after)),
    ];
    members.extend(force(args));
    format!("{{{}}}", members.join(","))
}
