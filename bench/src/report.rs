//! Prints the table and the promised ratios, and writes the results file.
//! Never prints an absolute figure without naming its machine.
//! Called by `main` and `ingest`.

use std::path::Path;

use anyhow::Result;
use serde_json::{Value, json};

use crate::contest::{Ground, Group, Outcome, Row};
use crate::machine::{Machine, OTHERS_BUSY_MAX, version_of};
use crate::plot;
use crate::stats::PERCENTILES;
use crate::targets::{self, Ratio, Target};

/// Prints the machine, at the head of every report.
pub fn print_machine(machine: &Machine) {
    println!(
        "machine: {} cores ({}), {} MiB, Linux {}, data on {}",
        machine.cores, machine.cpu, machine.memory_mib, machine.kernel, machine.filesystem
    );
    for warning in machine.warnings() {
        println!("WARNING: {warning}");
    }
}

/// Prints the table and the verdicts; writes results.json and results.svg.
pub fn publish(ground: &Ground, machine: &Machine, outcome: &Outcome, out: &Path) -> Result<()> {
    print_conditions(ground, outcome);
    print_table(outcome);
    print_targets(outcome);
    let json_path = out.join("results.json");
    std::fs::write(&json_path, serde_json::to_string_pretty(&results(ground, machine, outcome))? + "\n")?;
    let svg_path = out.join("results.svg");
    std::fs::write(&svg_path, plot::svg(machine, outcome))?;
    println!("\nwrote {} and {}", json_path.display(), svg_path.display());
    Ok(())
}

/// Prints the settings of the run and what the machine was like meanwhile.
pub fn print_conditions(ground: &Ground, outcome: &Outcome) {
    let shape = ground.shape;
    if let Some(binary) = &ground.fencepost {
        println!("fencepost server: {} ({})", binary.display(), version_of(binary));
    }
    println!(
        "4 KiB append + fdatasync in this run: p50 {:.2} ms, mean {:.2} ms, p99 {:.2} ms",
        outcome.sync.percentile_ms(50.0),
        outcome.sync.mean_ms(),
        outcome.sync.percentile_ms(99.0)
    );
    println!(
        "{} connections, one request in flight each; {} client thread(s); {:.1} s measured after {:.1} s of warm-up; medians of {} round(s)",
        shape.connections,
        shape.threads,
        shape.measure.as_secs_f64(),
        shape.warm_up.as_secs_f64(),
        outcome.rows.first().map_or(0, |row| row.rates.len())
    );
    if outcome.others_busy > OTHERS_BUSY_MAX {
        println!(
            "WARNING: others used up to {:.0} % of the cores between measurements; repeat on a quiet machine",
            100.0 * outcome.others_busy
        );
    }
}

/// The columns of ratios: heading, and the name of the row to divide by.
const OVER: [(&str, &str); 5] =
    [("x Redis", "redis"), ("x PG", "postgres"), ("x no-op", "noop"), ("x nginx", "nginx"), ("x fjall", "fjall")];

/// Whether the ratio of a row to a baseline has a meaning: both must do comparable work.
fn comparable(row: &Row, over: &str) -> bool {
    match over {
        "redis" | "postgres" => row.contestant.group == Group::Durable,
        "noop" => row.contestant.group == Group::Http,
        "nginx" => row.contestant.group == Group::Gateway,
        _ => row.contestant.group == Group::InProcess,
    }
}

fn print_table(outcome: &Outcome) {
    println!("\nabsolute figures are of this machine and this hour; the ratios are the claim\n");
    let mut head = format!("{:<38}{:>10}", "", "per second");
    for (heading, _) in OVER {
        head += &format!("{heading:>9}");
    }
    for (label, _) in PERCENTILES {
        head += &format!("{:>10}", format!("{label} ms"));
    }
    println!("{head}   latency of");
    for (group, title) in [
        (Group::Durable, "durable cycles (claim + seal)"),
        (Group::Http, "requests that write nothing"),
        (Group::Gateway, "requests through a proxy to one upstream"),
        (Group::InProcess, "keys, in process, synced"),
    ] {
        let rows: Vec<_> = outcome.rows.iter().filter(|row| row.contestant.group == group).collect();
        if rows.is_empty() {
            continue;
        }
        println!("{title}");
        for row in rows {
            print_row(outcome, row);
        }
    }
}

fn print_row(outcome: &Outcome, row: &Row) {
    let mut line = format!("  {:<36}{:>10.0}", row.contestant.label, row.rate());
    for (_, over) in OVER {
        let ratio = targets::ratio(outcome, row.contestant.name, over).filter(|_| comparable(row, over));
        line += &ratio.map_or_else(|| format!("{:>9}", "-"), |ratio| format!("{:>9.2}", ratio.value));
    }
    for index in 0..PERCENTILES.len() {
        line += &format!("{:>10.2}", row.percentile_ms(index));
    }
    println!("{line}   {}", row.contestant.step);
}

fn print_targets(outcome: &Outcome) {
    println!("\ntargets");
    for (target, ratio) in targets::judge(outcome) {
        println!("  {}", verdict(target, ratio));
    }
    if let Some(added) = targets::added(outcome) {
        println!("  {added}");
    }
}

/// One line that says whether a promised ratio was kept.
pub fn verdict(target: &Target, ratio: Option<Ratio>) -> String {
    let aim = target.aim.map_or_else(String::new, |aim| format!(", aim {aim}"));
    let promise = format!("{} / {} at least {}{aim}", target.of, target.over, target.least);
    match ratio {
        None => format!("not measured  {promise}"),
        Some(Ratio { value, low, high }) => {
            let word = if value >= target.least { "met" } else { "MISSED" };
            format!("{word:<12}  {promise}: {value:.2} (rounds {low:.2} to {high:.2})")
        }
    }
}

fn results(ground: &Ground, machine: &Machine, outcome: &Outcome) -> Value {
    let shape = ground.shape;
    let rows: Vec<Value> = outcome.rows.iter().map(row_json).collect();
    let judged: Vec<Value> = targets::judge(outcome)
        .into_iter()
        .map(|(target, ratio)| {
            json!({
                "of": target.of, "over": target.over, "least": target.least, "aim": target.aim,
                "ratio": ratio.map(|ratio| ratio.value),
                "rounds_low": ratio.map(|ratio| ratio.low), "rounds_high": ratio.map(|ratio| ratio.high),
                "met": ratio.map(|ratio| ratio.value >= target.least),
            })
        })
        .collect();
    let version = |program: &str| fencepost_rig::programs::find(program).map(|path| version_of(&path));
    json!({
        "note": "absolute figures are of this machine and this run; the ratios are the claim",
        "machine": machine.json(),
        "fdatasync_ms": {
            "p50": outcome.sync.percentile_ms(50.0), "mean": outcome.sync.mean_ms(), "p99": outcome.sync.percentile_ms(99.0),
        },
        "others_busy": outcome.others_busy,
        "versions": {
            "redis": version("redis-server"), "postgres": version("postgres"),
            "fencepost": ground.fencepost.as_deref().map(version_of),
        },
        "shape": {
            "connections": shape.connections, "client_threads": shape.threads,
            "warm_up_s": shape.warm_up.as_secs_f64(), "measured_s": shape.measure.as_secs_f64(),
        },
        "rows": rows,
        "targets": judged,
    })
}

fn row_json(row: &Row) -> Value {
    let percentiles: serde_json::Map<String, Value> = PERCENTILES
        .iter()
        .enumerate()
        .map(|(index, (label, _))| ((*label).to_owned(), json!(row.percentile_ms(index))))
        .collect();
    json!({
        "name": row.contestant.name, "label": row.contestant.label, "per_second": row.rate(),
        "per_second_by_round": row.rates, "latency_of": row.contestant.step, "latency_ms": percentiles,
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_missed_target_says_so() {
        let target = Target { of: "a", over: "b", least: 2.0, aim: None };
        let ratio = |value| Some(Ratio { value, low: value, high: value });
        assert!(verdict(&target, ratio(1.9)).starts_with("MISSED"));
        assert!(verdict(&target, ratio(2.0)).starts_with("met"));
        assert!(verdict(&target, None).starts_with("not measured"));
    }
}
