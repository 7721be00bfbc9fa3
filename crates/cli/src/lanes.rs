//! `fencepost lanes`: shows the state of every lane, live if asked, and runs operator commands on one of them.
//! Asks a running server, which decides. Every command is safe to repeat: a repeat changes nothing. Called by `main`.

mod show;

use std::{
    collections::BTreeMap,
    io::{self, ErrorKind, IsTerminal, Write, stdout},
    process::ExitCode,
    time::Duration,
};

use clap::Subcommand;
use fencepost_kernel::json::JsonNode;

use crate::{
    client::{ServerArgs, encode},
    table::{cut, now_ms, since, table, terminal, until},
    wes::{ServerRefusal, answer, get, is, number, page_text, pages, parse, post, query, quoted, text},
};

const LANES: &str = "/wes/v1/dispatch/lanes";
/// The states of a lane in the order of the list: those that need an operator come first.
const STATES: [&str; 6] = ["blocked", "paused", "retrying", "delivering", "waiting", "idle"];

/// Show the state of lanes; pause, resume or skip.
#[derive(clap::Args)]
#[command(after_help = AFTER, args_conflicts_with_subcommands = true)]
pub struct Args {
    #[command(subcommand)]
    action: Option<Action>,
    #[command(flatten)]
    list: List,
}

const AFTER: &str = "\
A lane is called PLANNER:WAREHOUSE, or PLANNER:poll:EXECUTOR where the executor polls. A lane_id works too.

Examples:
  fencepost lanes                          every lane, those that need you first
  fencepost lanes --watch                  the same, live, every 2 seconds
  fencepost lanes --state retrying --json  lanes whose head fails, for a program
  fencepost lanes show fgai-wms:WH-1       one lane, its head, and what to do
  fencepost lanes pause fgai-wms:WH-1 --why 'dock 4 is rebuilt'
  fencepost lanes resume fgai-wms:WH-1
  fencepost lanes skip fgai-wms:WH-1 41    its head to the dead letters, now

Every command is safe to repeat. Exits 0 when it is done, 1 when the server refuses or does not answer, 2 on a wrong \
command line.";

#[derive(clap::Args)]
struct List {
    /// Only the lanes of this planner
    #[arg(long, value_name = "ID")]
    planner: Option<String>,
    /// Only lanes in this state
    #[arg(long, value_parser = STATES)]
    state: Option<String>,
    /// At most this many lanes
    #[arg(long, value_name = "N", default_value_t = 100, value_parser = clap::value_parser!(u32).range(1..))]
    limit: u32,
    /// Draw it again every so many seconds, until Ctrl-C
    #[arg(long, value_name = "SECONDS", num_args = 0..=1, default_missing_value = "2",
          value_parser = clap::value_parser!(u64).range(1..=3_600))]
    watch: Option<u64>,
    /// Print the server's answer as it is
    #[arg(long)]
    json: bool,
    #[command(flatten)]
    server: ServerArgs,
}

#[derive(Subcommand)]
enum Action {
    /// One lane: its head, the last attempt, and what to do
    Show {
        #[command(flatten)]
        on: On,
        /// Print the server's answer as it is
        #[arg(long)]
        json: bool,
    },
    /// Stop deliveries; nothing is lost, and the 24 hours of its head stop counting
    Pause {
        #[command(flatten)]
        on: On,
        /// The reason, shown to others
        #[arg(long)]
        why: String,
    },
    /// Continue after a pause, at once
    Resume {
        #[command(flatten)]
        on: On,
    },
    /// Move its head to the dead letters, and continue with the next
    Skip {
        #[command(flatten)]
        on: On,
        /// The position of the head, so that a repeat does not skip another
        #[arg(value_parser = clap::value_parser!(u64).range(1..))]
        seq: u64,
    },
}

#[derive(clap::Args)]
struct On {
    /// The lane's name, or its lane_id
    lane: String,
    /// The planner that owns the lane, where the name does not say
    #[arg(long, value_name = "ID")]
    planner: Option<String>,
    #[command(flatten)]
    server: ServerArgs,
}

pub fn run(args: Args) -> anyhow::Result<ExitCode> {
    match args.action {
        None if args.list.watch.is_some() => return watch(&args.list),
        None => print!("{}", drawn(&args.list)?),
        Some(Action::Show { on, json }) => show::show(&find(&on)?, json)?,
        Some(Action::Pause { on, why }) => {
            let (name, done) = act(&on, "pause", &format!("{{\"why\":{}}}", quoted(&why)))?;
            println!("{name} {}", if done.is_none() { "was paused already" } else { "is paused" });
        }
        Some(Action::Resume { on }) => {
            let (name, done) = act(&on, "resume", "{}")?;
            println!("{name} {}", if done.is_none() { "was not paused" } else { "goes on" });
        }
        Some(Action::Skip { on, seq }) => {
            let (name, done) = act(&on, "skip", &format!("{{\"seq\":{seq}}}"))?;
            match done {
                Some(letter) => println!("position {seq} of {name} is a dead letter now: {letter}"),
                None => println!("position {seq} of {name} was skipped already"),
            }
        }
    }
    Ok(ExitCode::SUCCESS)
}

// The server's answer about the lane. An admin must name its planner: after a 404, the one in the lane's name is tried.
fn find(on: &On) -> anyhow::Result<Vec<u8>> {
    let path = format!("{LANES}/{}", encode(&on.lane));
    let ask = |planner: Option<&str>| get(&on.server, &query(&path, &[("planner_id", planner)]));
    let found = ask(on.planner.as_deref());
    match (&found, on.lane.split_once(':')) {
        (Err(error), Some((planner, _)))
            if on.planner.is_none() && error.downcast_ref::<ServerRefusal>().is_some_and(|no| no.status == 404) =>
        {
            ask(Some(planner))
        }
        _ => found,
    }
}

// The lane's name, and the dead letter that the command made (empty without one); `None` where it was done before.
fn act(on: &On, verb: &str, body: &str) -> anyhow::Result<(String, Option<String>)> {
    let found = find(on)?;
    let lane = parse(&found)?;
    let answer = post(&on.server, &format!("{LANES}/{}/{verb}", text(&lane, "lane_id")), body)?;
    let answer = parse(&answer)?;
    let done = (!is(&answer, "replay")).then(|| text(&answer, "dead_letter").to_owned());
    Ok((text(&lane, "lane").to_owned(), done))
}

fn watch(list: &List) -> anyhow::Result<ExitCode> {
    let every = Duration::from_secs(list.watch.unwrap_or(2));
    let screen = stdout().is_terminal() && !list.json;
    loop {
        let block = match drawn(list) {
            Ok(block) => block,
            Err(error) if error.downcast_ref::<ServerRefusal>().is_some_and(|no| no.status < 500) => return Err(error),
            // A server that does not answer may come back, and the operator watches for that.
            Err(error) => format!("{error:#}\n"),
        };
        match put(&block, screen) {
            Err(error) if error.kind() == ErrorKind::BrokenPipe => return Ok(ExitCode::SUCCESS),
            put => put?,
        }
        std::thread::sleep(every);
    }
}

fn put(block: &str, screen: bool) -> io::Result<()> {
    let mut out = stdout().lock();
    if screen {
        // Overwrites the block before line by line: to clear the screen first would flicker.
        let (columns, rows) = terminal().unwrap_or((80, 24));
        let lines: String =
            block.lines().take(rows.saturating_sub(1)).map(|line| format!("{}\x1b[K\n", cut(line, columns))).collect();
        write!(out, "\x1b[H{lines}\x1b[J")?;
    } else {
        write!(out, "{block}")?;
    }
    out.flush()
}

fn drawn(list: &List) -> anyhow::Result<String> {
    let path = query(LANES, &[("planner_id", list.planner.as_deref()), ("state", list.state.as_deref())]);
    let (items, next) = pages(&list.server, &path, list.limit as usize, "")?;
    if list.json {
        return Ok(page_text(&items, &next) + "\n");
    }
    let mut lanes = items.iter().map(|item| parse(item.as_bytes())).collect::<anyhow::Result<Vec<_>>>()?;
    let rank = |lane: &JsonNode<'_>| STATES.iter().position(|state| *state == text(lane, "state"));
    lanes.sort_by(|a, b| rank(a).cmp(&rank(b)).then_with(|| text(a, "lane").cmp(text(b, "lane"))));
    let head = ["lane", "transport", "state", "backlog", "head", "attempts", "next in", "last answer"];
    let mut out = summary(&lanes, list.watch.is_some());
    if !lanes.is_empty() {
        out += &table(&head, &lanes.iter().map(row).collect::<Vec<_>>());
    }
    if !next.is_empty() {
        out += "There are more. --limit shows more of them, --state retrying those that fail.\n";
    }
    if list.watch.is_some() {
        out.push('\n');
    }
    Ok(out)
}

fn summary(lanes: &[JsonNode<'_>], dated: bool) -> String {
    let mut states: BTreeMap<&str, usize> = BTreeMap::new();
    for lane in lanes {
        *states.entry(text(lane, "state")).or_default() += 1;
    }
    let known = STATES.iter().filter_map(|state| states.get(state).map(|count| format!("{count} {state}")));
    let known = known.collect::<Vec<_>>().join(", ");
    let backlog: u64 = lanes.iter().map(|lane| number(lane, "backlog")).sum();
    let at = if dated { format!("{}  ", &*fencepost_wire::time::rfc3339(now_ms())) } else { String::new() };
    match lanes.len() {
        0 => format!("{at}no lanes\n"),
        1 => format!("{at}1 lane: {known}; backlog {backlog}\n"),
        count => format!("{at}{count} lanes: {known}; backlog {backlog}\n"),
    }
}

fn row(lane: &JsonNode<'_>) -> Vec<String> {
    let head = lane.get("head");
    let of_head = |name: &str| head.and_then(|head| head.get(name)?.as_u64()).map(|number| number.to_string());
    let said = match lane.get("paused") {
        Some(pause) => {
            let (by, why) = (text(pause, "by"), text(pause, "why"));
            format!("paused by {by} {} ago: {why}", since(text(pause, "at")))
        }
        None if !text(lane, "missing_key").is_empty() => format!("waits for key {}", text(lane, "missing_key")),
        None => head.map(answer).unwrap_or_default(),
    };
    vec![
        text(lane, "lane").to_owned(),
        text(lane, "transport").to_owned(),
        text(lane, "state").to_owned(),
        number(lane, "backlog").to_string(),
        of_head("seq").unwrap_or_default(),
        of_head("attempts").unwrap_or_default(),
        head.map(|head| until(text(head, "next_attempt_at"))).unwrap_or_default(),
        said,
    ]
}
