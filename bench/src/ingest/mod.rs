//! Measures ingest: items of partners a second, durable, next to clients that write the same items straight into PostgreSQL.
//! Never compares figures of two runs, and never runs two contestants at once.
//! Called by `main` for `--ingest`.

mod direct;
mod items;
mod shares;

use std::cell::RefCell;
use std::collections::BTreeMap;
use std::path::Path;

use anyhow::{Context, Result, bail, ensure};
use serde_json::{Value, json};

use crate::contest::{self, CLUSTER, Contestant, Ground, Group, Outcome, Row};
use crate::keys::Numbering;
use crate::load::{self, Connect};
use crate::machine::{self, Machine};
use crate::plot::thousands;
use crate::report;
use crate::server::{self, Server};
use crate::stats::{Sample, median};
use crate::targets::{self, Target};
use direct::{Rows, Upserts};
use items::{ITEM_BYTES, Repeats, Sends};
use shares::Shares;

/// Items that are sent before they are sent again.
const KNOWN: u64 = 50_000;
/// Most items in one request, as the policy has it.
const PER_REQUEST_MAX: u64 = 5_000;

/// All contestants, in the order of a round.
pub const ALL: &[Contestant] = &[
    contestant("postgres-items", "PostgreSQL, one upsert a request"),
    contestant("fencepost-items", "fencepost, new items"),
    contestant("fencepost-items-again", "fencepost, the same items again"),
    contestant("postgres-item-rows", "PostgreSQL, the rows of our store"),
    contestant("fencepost-postgres-items", "fencepost on PostgreSQL, new items"),
];

const fn contestant(name: &'static str, label: &'static str) -> Contestant {
    Contestant { name, label, group: Group::Items, per_step: 1, step: "request" }
}

/// The promised ratios.
const TARGETS: [Target; 3] = [
    Target { of: "fencepost-items", over: "postgres-items", least: 1.0, aim: Some(2.0) },
    Target { of: "fencepost-postgres-items", over: "postgres-item-rows", least: 0.6, aim: None },
    Target { of: "fencepost-items-again", over: "fencepost-items", least: 2.0, aim: None },
];

/// Processor time of the server and of the load generator for one item, in microseconds: one entry a round.
type Costs = BTreeMap<&'static str, Vec<(f64, f64)>>;

/// Measures the contestants and the steps of one request, and reports.
pub fn run(
    ground: &Ground,
    machine: &Machine,
    chosen: &[&'static Contestant],
    rounds: u32,
    per_request: u64,
    out: &Path,
) -> Result<()> {
    ensure!((1..=PER_REQUEST_MAX).contains(&per_request), "--ingest takes 1 to {PER_REQUEST_MAX} items a request");
    let cluster = ground.work.join(CLUSTER);
    server::postgres_cluster(&cluster)?;
    let bench = Bench { ground, per_request: per_request as usize, costs: RefCell::default() };
    let mut outcome =
        contest::in_rounds(ground, chosen, rounds, |contestant, dir, salt| bench.measure(contestant, dir, salt))?;
    for row in &mut outcome.rows {
        row.rates.iter_mut().for_each(|rate| *rate *= per_request as f64);
    }
    let shares = shares::measure(&ground.work.join("shares"), bench.per_request, ground.shape.measure)?;
    let costs = bench.costs.take();

    report::print_conditions(ground, &outcome);
    println!("{per_request} items a request, of {ITEM_BYTES} bytes each");
    print_table(&outcome, &costs);
    println!("\ntargets");
    for target in &TARGETS {
        println!("  {}", report::verdict(target, targets::ratio(&outcome, target.of, target.over)));
    }
    print_shares(&shares, bench.per_request);
    let path = out.join("ingest.json");
    let results = results(ground, machine, &outcome, &costs, &shares, per_request);
    std::fs::write(&path, serde_json::to_string_pretty(&results)? + "\n")?;
    println!("\nwrote {}", path.display());
    Ok(())
}

struct Bench<'a> {
    ground: &'a Ground,
    per_request: usize,
    costs: RefCell<Costs>,
}

impl Bench<'_> {
    fn measure(&self, contestant: &'static Contestant, dir: &Path, salt: u64) -> Result<Sample> {
        let Self { ground, per_request, .. } = *self;
        let connections = ground.shape.connections;
        std::fs::create_dir_all(dir)?;
        let numbering = Numbering::new(salt);
        let fencepost = |store: Option<&str>| {
            Server::fencepost(ground.fencepost.as_deref().context("no fencepost binary")?, dir, store)
        };
        // All rounds use one cluster; each server start empties it.
        let postgres = || Server::postgres(&ground.work.join(CLUSTER), connections);
        let on = |database: &Server| format!("postgres://postgres@127.0.0.1:{}/postgres", database.port);
        let sends = |port: u16| Sends { port, numbering, per_request, shared: None };
        let sample = match contestant.name {
            "postgres-items" => {
                let database = postgres()?;
                let port = database.port;
                Upserts::prepare(port)?;
                self.drive(contestant, &[&database], Upserts { port, numbering, per_request })
            }
            "postgres-item-rows" => {
                let database = postgres()?;
                let node = fencepost(Some(&on(&database)))?;
                items::prepare(node.port)?;
                items::send_first(&sends(node.port), 1, 1)?;
                drop(node);
                let rows = Rows::of_store(database.port, numbering, per_request)?;
                self.drive(contestant, &[&database], rows)
            }
            "fencepost-items" => {
                let node = fencepost(None)?;
                items::prepare(node.port)?;
                self.drive(contestant, &[&node], sends(node.port))
            }
            "fencepost-items-again" => {
                let node = fencepost(None)?;
                items::prepare(node.port)?;
                let sent = sends(node.port);
                let known = items::send_first(&sent, KNOWN, connections)?;
                self.drive(contestant, &[&node], Repeats { sent, salt, known })
            }
            "fencepost-postgres-items" => {
                let database = postgres()?;
                let node = fencepost(Some(&on(&database)))?;
                items::prepare(node.port)?;
                self.drive(contestant, &[&database, &node], sends(node.port))
            }
            other => bail!("nobody knows how to measure {other}"),
        };
        std::fs::remove_dir_all(dir)?;
        sample
    }

    // The processor time is of the warm-up, too: divided by all items, as many as there were.
    fn drive<C: Connect>(&self, contestant: &'static Contestant, servers: &[&Server], connect: C) -> Result<Sample> {
        let used = || -> Result<(u64, u64)> {
            let servers = servers.iter().map(|server| machine::cpu_us_with_descendants(server.pid()));
            Ok((servers.sum::<Result<u64>>()?, machine::cpu_us(std::process::id())?))
        };
        let before = used()?;
        let sample = load::run(self.ground.shape, connect)?;
        let after = used()?;
        let items = (sample.steps_all * self.per_request as u64).max(1) as f64;
        let cost = ((after.0 - before.0) as f64 / items, (after.1 - before.1) as f64 / items);
        self.costs.borrow_mut().entry(contestant.name).or_default().push(cost);
        Ok(sample)
    }
}

fn cost_of(costs: &Costs, row: &Row) -> (f64, f64) {
    let of = costs.get(row.contestant.name).map_or(&[][..], Vec::as_slice);
    let middle = |one: fn(&(f64, f64)) -> f64| median(&of.iter().map(one).collect::<Vec<_>>());
    (middle(|cost| cost.0), middle(|cost| cost.1))
}

fn print_table(outcome: &Outcome, costs: &Costs) {
    println!("\nabsolute figures are of this machine and this hour; the ratios are the claim\n");
    println!(
        "  {:<36}{:>12}{:>12}{:>12}{:>20}{:>20}",
        "", "items/s", "p50 ms", "p99 ms", "server's us/item", "client's us/item"
    );
    for row in &outcome.rows {
        let (server_us, client_us) = cost_of(costs, row);
        println!(
            "  {:<36}{:>12}{:>12.2}{:>12.2}{server_us:>20.2}{client_us:>20.2}",
            row.contestant.label,
            thousands(row.rate()),
            row.percentile_ms(0),
            row.percentile_ms(2),
        );
    }
}

fn print_shares(shares: &Shares, per_request: usize) {
    let Shares { steps, library_us, requests } = shares;
    let sum: f64 = steps.iter().map(|step| step.us).sum();
    println!(
        "\none request of {per_request} new items, step by step on one thread in process, embedded store: medians of {requests}\n"
    );
    for (part, us) in by_part(shares) {
        println!("  {part:<10}{us:>10.0} us {:>5.1} %", 100.0 * us / sum);
        for step in steps.iter().filter(|step| step.part == part) {
            println!("    {:<42}{:>8.0} us {:>5.1} %", step.name, step.us, 100.0 * step.us / sum);
        }
    }
    println!("  {:<10}{sum:>10.0} us", "sum");
    println!("  the same through the library, with its commit thread: {library_us:.0} us");
}

fn by_part(shares: &Shares) -> Vec<(&'static str, f64)> {
    let mut parts: Vec<(&'static str, f64)> = Vec::new();
    for step in &shares.steps {
        match parts.iter_mut().find(|(part, _)| *part == step.part) {
            Some((_, us)) => *us += step.us,
            None => parts.push((step.part, step.us)),
        }
    }
    parts
}

fn results(
    ground: &Ground,
    machine: &Machine,
    outcome: &Outcome,
    costs: &Costs,
    shares: &Shares,
    per_request: u64,
) -> Value {
    let rows: Vec<Value> = outcome
        .rows
        .iter()
        .map(|row| {
            let (server_us, client_us) = cost_of(costs, row);
            json!({
                "name": row.contestant.name, "items_per_second": row.rate(), "items_per_second_by_round": row.rates,
                "request_p50_ms": row.percentile_ms(0), "request_p99_ms": row.percentile_ms(2),
                "server_us_an_item": server_us, "client_us_an_item": client_us,
            })
        })
        .collect();
    let judged: Vec<Value> = TARGETS
        .iter()
        .map(|target| {
            let ratio = targets::ratio(outcome, target.of, target.over);
            json!({
                "of": target.of, "over": target.over, "least": target.least, "aim": target.aim,
                "ratio": ratio.map(|ratio| ratio.value),
                "rounds_low": ratio.map(|ratio| ratio.low), "rounds_high": ratio.map(|ratio| ratio.high),
                "met": ratio.map(|ratio| ratio.value >= target.least),
            })
        })
        .collect();
    let steps: Vec<Value> =
        shares.steps.iter().map(|step| json!({ "part": step.part, "what": step.name, "us": step.us })).collect();
    json!({
        "note": "absolute figures are of this machine and this run; the ratios are the claim",
        "machine": machine.json(), "others_busy": outcome.others_busy,
        "fdatasync_p50_ms": outcome.sync.percentile_ms(50.0),
        "items_a_request": per_request, "item_bytes": ITEM_BYTES, "connections": ground.shape.connections,
        "measured_s": ground.shape.measure.as_secs_f64(),
        "rows": rows, "targets": judged, "steps_of_one_request": steps, "library_us": shares.library_us,
    })
}
