//! Counts what happened, so that a simulation in which nothing goes wrong cannot pass for a proof.
//! Never judges. Called by the tests and the binary.

mod items;
mod lanes;

use std::collections::{BTreeMap, BTreeSet};

use crate::{
    Run,
    history::{Ask, ObservedAnswer, Op, RequestOutcome},
};

/// Everything that must have happened somewhere in a set of seeds.
pub fn expected() -> impl Iterator<Item = &'static str> {
    EXPECTED.into_iter().chain(lanes::EXPECTED).chain(items::EXPECTED)
}

const EXPECTED: [&str; 85] = [
    "aliased",
    "audit_read",
    "answered_by_another_node",
    "batch",
    "claim_waited",
    "commit_hung",
    "commit_in_parts",
    "commit_refused",
    "commits_at_once",
    "conflict",
    "crash_any_time",
    "crash_in_commit",
    "doubt_shown",
    "duplicate",
    "duplicate_after_crash",
    "duplicate_other_body",
    "effect",
    "expired_then_new",
    "failover",
    "failover_in_commit",
    "failover_to_clock_behind",
    "failover_lost_acknowledged",
    "fenced_off",
    "forgotten",
    "forgotten_again",
    "gap",
    "gave_up",
    "guess_stale",
    "housekeeping",
    "in_doubt",
    "in_flight",
    "incomparable",
    "key_shown",
    "landed_late",
    "late_commit_refused",
    "list_empty",
    "list_shown",
    "load_refused",
    "moved",
    "name_found",
    "name_unknown",
    "new",
    "node_clock_behind",
    "node_closed",
    "node_died",
    "node_joined",
    "node_paused",
    "node_started_ahead_of_server",
    "not_applied",
    "not_sealed",
    "policy_changed",
    "read_from_old_primary",
    "read_overtaken",
    "recovered",
    "recovered_without_version",
    "released",
    "renewed",
    "reply_lost",
    "request_lost",
    "request_repeated",
    "resolved",
    "row_held",
    "seal_conflict",
    "seal_replayed",
    "sealed",
    "server_clock_back",
    "server_clock_forward",
    "single_row_store",
    "slow_sync",
    "stale",
    "stale_without_version",
    "store_swept",
    "sync_failed",
    "tail_garbled",
    "tail_kept",
    "tail_lost",
    "tail_torn",
    "told_doubt_then_outcome",
    "unknown",
    "user_committed",
    "user_must_begin_again",
    "waited_for_another_node",
    "waiters_dismissed",
    "wall_back",
    "zombie_seal_refused",
];

// A claim in the scope where only claims carry versions.
fn forgot_version(op: &Op) -> bool {
    op.base.contains("/SYNC/") && matches!(op.ask, Ask::Claim { version: None, .. })
}

impl Run {
    /// How often each kind of event happened in this seed.
    pub fn coverage(&self) -> BTreeMap<String, u64> {
        let mut counts = self.history.counts.clone();
        let mut add = |name: &str| *counts.entry(name.to_owned()).or_default() += 1;
        let mut sealed_by: BTreeMap<String, &Op> = BTreeMap::new();
        let mut lives: BTreeMap<String, u64> = BTreeMap::new();
        let mut doubts: BTreeSet<String> = BTreeSet::new();
        lanes::count(&self.history, &mut add);
        items::count(&self.history, &mut add);
        self.history.effects.iter().for_each(|_| add("effect"));
        for list in &self.history.lists {
            add(if list.shown.is_empty() { "list_empty" } else { "list_shown" });
        }
        for lookup in &self.history.lookups {
            add(if lookup.shown.is_some() { "name_found" } else { "name_unknown" });
        }
        for op in &self.history.ops {
            let RequestOutcome::Answered(answer) = &op.outcome else {
                add(if op.outcome == RequestOutcome::Maybe { "unknown" } else { "not_applied" });
                continue;
            };
            if op.ask == Ask::Look {
                add(if matches!(answer, ObservedAnswer::InDoubt { .. }) { "doubt_shown" } else { "key_shown" });
                continue;
            }
            match answer {
                ObservedAnswer::New { recovering, first_seen, .. } => {
                    add("new");
                    if recovering.is_some() {
                        add("recovered");
                        if forgot_version(op) {
                            add("recovered_without_version");
                        }
                    }
                    if lives.insert(op.key(), *first_seen).is_some_and(|earlier| earlier != *first_seen) {
                        add("expired_then_new");
                    }
                }
                ObservedAnswer::Duplicate { token, body_differs, .. } => {
                    add("duplicate");
                    if *body_differs {
                        add("duplicate_other_body");
                    }
                    let seal = sealed_by.get(&op.key());
                    if seal.is_some_and(|seal| seal.run < op.run) {
                        add("duplicate_after_crash");
                    }
                    if seal.is_some_and(|seal| seal.run == op.run && seal.node != op.node) {
                        add("answered_by_another_node");
                    }
                    if self.waited_for_another_node(op, *token) {
                        add("waited_for_another_node");
                    }
                }
                ObservedAnswer::Sealed { replay, .. } => {
                    add(if *replay { "seal_replayed" } else { "sealed" });
                    if doubts.remove(&op.key()) {
                        add("told_doubt_then_outcome");
                    }
                    sealed_by.insert(op.key(), op);
                }
                ObservedAnswer::FencedOff { .. } => {
                    add("fenced_off");
                    if matches!(op.ask, Ask::Seal { .. }) {
                        add("zombie_seal_refused");
                    }
                }
                ObservedAnswer::InFlight { .. } => add("in_flight"),
                ObservedAnswer::Conflict { .. } => add("conflict"),
                ObservedAnswer::Stale { .. } => {
                    add("stale");
                    if forgot_version(op) {
                        add("stale_without_version");
                    }
                }
                ObservedAnswer::InDoubt { .. } => {
                    add("in_doubt");
                    doubts.insert(op.key());
                }
                ObservedAnswer::Gap { .. } => add("gap"),
                ObservedAnswer::SealConflict => add("seal_conflict"),
                ObservedAnswer::Renewed { .. } => add("renewed"),
                ObservedAnswer::Released { .. } => add("released"),
                ObservedAnswer::Resolved { .. } => add("resolved"),
                ObservedAnswer::NotInDoubt => add("not_in_doubt"),
                ObservedAnswer::Forgotten { replay, .. } => add(if *replay { "forgotten_again" } else { "forgotten" }),
                ObservedAnswer::Incomparable { .. } => add("incomparable"),
                ObservedAnswer::Aliased { .. } => add("aliased"),
                ObservedAnswer::NotSealed => add("not_sealed"),
                ObservedAnswer::Seen { .. } | ObservedAnswer::Absent => {}
                ObservedAnswer::Other(_) => add("other"),
            }
            if let (Ask::Claim { wait_ms, .. }, Some(closed)) = (&op.ask, op.closed)
                && *wait_ms > 0
                && closed.at > op.invoked.at + 50
                && !matches!(answer, ObservedAnswer::InFlight { .. })
            {
                add("claim_waited");
            }
        }
        counts
    }

    // The seal that ended its wait was asked for later, of another node.
    fn waited_for_another_node(&self, claim: &Op, sealed: u64) -> bool {
        let waits = matches!(claim.ask, Ask::Claim { wait_ms, .. } if wait_ms > 0);
        let during = claim.invoked.line..claim.closed.map_or(usize::MAX, |stamp| stamp.line);
        waits
            && self.history.ops.iter().any(|op| {
                matches!(op.ask, Ask::Seal { token, .. } if token == sealed)
                    && during.contains(&op.invoked.line)
                    && (op.run == claim.run && op.node != claim.node)
                    && op.key() == claim.key()
            })
    }
}
