//! Three nodes on one PostgreSQL, with everything between the clients and the disk failing: one outcome per key, and
//! nothing acknowledged lost.

use std::collections::BTreeMap;

use super::{super::ledger::seed, history::Heard, rounds::Rounds, town::Town};

/// How many rounds: `FENCEPOST_ROUNDS`, else few, or many where `FENCEPOST_LONG=1` asks for it.
fn rounds() -> u64 {
    let asked = std::env::var("FENCEPOST_ROUNDS").ok().and_then(|rounds| rounds.parse().ok());
    let long = std::env::var("FENCEPOST_LONG").is_ok_and(|long| long == "1");
    asked.unwrap_or(if long { 100 } else { 9 })
}

#[test]
fn one_outcome_per_key_whatever_fails_between_three_nodes_and_their_database() {
    let seed = seed();
    let mut rounds_run = Rounds::new(Town::start(3));
    let mut struck: BTreeMap<String, usize> = BTreeMap::new();
    for round in 0..rounds() {
        for fault in rounds_run.round(seed.wrapping_add(round)) {
            *struck.entry(format!("{fault:?}")).or_default() += 1;
        }
    }
    rounds_run.finish(seed);
    let ops = rounds_run.history.ops();
    let count = |what: fn(&Heard) -> bool| ops.iter().filter(|op| what(&op.heard)).count();
    eprintln!(
        "faults: {} rounds, {struck:?}; {} requests, {} claims let in, {} seals, {} duplicates, {} fenced off, \
         {} of unknown outcome, {} refused with nothing done; 0 breaches",
        rounds(),
        ops.len(),
        count(|heard| matches!(heard, Heard::New { .. })),
        count(|heard| *heard == Heard::Sealed { replay: false }),
        count(|heard| matches!(heard, Heard::Duplicate(_))),
        count(|heard| *heard == Heard::FencedOff),
        count(|heard| *heard == Heard::Unknown),
        count(|heard| *heard == Heard::NothingDone),
    );
    assert!(count(|heard| *heard == Heard::Unknown) > 0, "no outcome was unknown: the faults did nothing");
}
