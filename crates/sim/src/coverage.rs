//! Counts what happened, so that a simulation in which nothing goes wrong cannot pass for a proof.
//! Never judges. Called by the tests and the binary.

use std::collections::BTreeMap;

use crate::{
    Run,
    history::{Answer, Ask, Outcome},
};

/// Everything that must have happened somewhere in a set of seeds.
pub const EXPECTED: [&str; 42] = [
    "batch",
    "claim_waited",
    "commit_refused",
    "conflict",
    "crash_any_time",
    "crash_in_commit",
    "duplicate",
    "duplicate_after_crash",
    "duplicate_other_body",
    "effect",
    "expired_then_new",
    "fenced_off",
    "gap",
    "gave_up",
    "housekeeping",
    "in_doubt",
    "in_flight",
    "landed_late",
    "load_refused",
    "moved",
    "new",
    "not_applied",
    "recovered",
    "released",
    "renewed",
    "reply_lost",
    "request_lost",
    "request_repeated",
    "resolved",
    "seal_conflict",
    "seal_replayed",
    "sealed",
    "slow_sync",
    "stale",
    "sync_failed",
    "tail_garbled",
    "tail_kept",
    "tail_lost",
    "tail_torn",
    "unknown",
    "wall_back",
    "zombie_seal_refused",
];

impl Run {
    /// How often each kind of event happened in this seed.
    pub fn coverage(&self) -> BTreeMap<String, u64> {
        let mut counts = self.history.counts.clone();
        let mut add = |name: &str| *counts.entry(name.to_owned()).or_default() += 1;
        let mut sealed_in: BTreeMap<String, usize> = BTreeMap::new();
        let mut lives: BTreeMap<String, u64> = BTreeMap::new();
        self.history.effects.iter().for_each(|_| add("effect"));
        for op in &self.history.ops {
            let Outcome::Answered(answer) = &op.outcome else {
                add(if op.outcome == Outcome::Maybe { "unknown" } else { "not_applied" });
                continue;
            };
            match answer {
                Answer::New { recovering, first_seen, .. } => {
                    add("new");
                    if recovering.is_some() {
                        add("recovered");
                    }
                    if lives.insert(op.key(), *first_seen).is_some_and(|earlier| earlier != *first_seen) {
                        add("expired_then_new");
                    }
                }
                Answer::Duplicate { body_differs, .. } => {
                    add("duplicate");
                    if *body_differs {
                        add("duplicate_other_body");
                    }
                    if sealed_in.get(&op.key()).is_some_and(|run| *run < op.run) {
                        add("duplicate_after_crash");
                    }
                }
                Answer::Sealed { replay, .. } => {
                    add(if *replay { "seal_replayed" } else { "sealed" });
                    sealed_in.insert(op.key(), op.run);
                }
                Answer::FencedOff { .. } => {
                    add("fenced_off");
                    if matches!(op.ask, Ask::Seal { .. }) {
                        add("zombie_seal_refused");
                    }
                }
                Answer::InFlight { .. } => add("in_flight"),
                Answer::Conflict { .. } => add("conflict"),
                Answer::Stale { .. } => add("stale"),
                Answer::InDoubt { .. } => add("in_doubt"),
                Answer::Gap { .. } => add("gap"),
                Answer::SealConflict => add("seal_conflict"),
                Answer::Renewed { .. } => add("renewed"),
                Answer::Released { .. } => add("released"),
                Answer::Resolved { .. } => add("resolved"),
                Answer::NotInDoubt => add("not_in_doubt"),
                Answer::Other(_) => add("other"),
            }
            if let (Ask::Claim { wait_ms, .. }, Some(closed)) = (&op.ask, op.closed)
                && *wait_ms > 0
                && closed.at > op.invoked.at + 50
                && !matches!(answer, Answer::InFlight { .. })
            {
                add("claim_waited");
            }
        }
        counts
    }
}
