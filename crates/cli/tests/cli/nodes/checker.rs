//! Judges a recorded history: one outcome per key, nothing acknowledged lost, one holder at a time, tokens that grow.
//! Shares no code with the product, reads nothing but the recording, and holds for any order that the times allow.
//! A request without an answer may have happened at any time after it began, or not at all.

use std::collections::{BTreeMap, BTreeSet};

use super::history::{Ask, Content, Effect, Heard, Op};

/// How far the nodes' ideas of the store's time may lie apart: a lease is not called cut short within it.
const CLOCK_SLACK_US: u64 = 500_000;

#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Debug)]
pub enum Rule {
    /// An answer that nobody may give.
    Strange,
    /// A key has one sealed content, for ever and on every node.
    OneReceipt,
    /// A sealed content was sent by a client that was not told that nothing was done.
    NotInvented,
    /// A seal is called a repetition only where another may have come before it.
    TrueRepeat,
    /// A sealed content names an effect that its sealer had.
    RealEffect,
    /// Once a client was told that a key is sealed, every later reply says so.
    SealedForGood,
    /// At the end every node was asked for a sealed key, and knows it.
    OnEveryNode,
    /// Only one seal of a key is the first.
    FirstOnce,
    /// A token is given once, and a later one is higher.
    TokensGrow,
    /// No client is let in while another's lease runs.
    OneHolder,
    /// No token above the one that sealed.
    NotOvertaken,
    /// A token seals or gives up, never both.
    ReleaseIsFinal,
    /// A holder is fenced off only where somebody else may have come in, or it gave up itself.
    ClaimKept,
    /// Somebody is in flight only where somebody may have been let in.
    SomebodyHolds,
}

#[derive(Clone, Debug)]
pub struct Breach {
    pub rule: Rule,
    pub what: String,
}

/// Everything that is wrong with a history of so many nodes; nothing for one that keeps the promises.
pub fn check(ops: &[Op], effects: &[Effect], nodes: usize) -> Vec<Breach> {
    let effects: BTreeSet<Effect> = effects.iter().copied().collect();
    let mut keys: BTreeMap<u64, Vec<&Op>> = BTreeMap::new();
    for op in ops {
        keys.entry(op.key).or_default().push(op);
    }
    let mut breaches = Vec::new();
    for (key, mut ops) in keys {
        ops.sort_by_key(|op| op.start_us);
        let mut found = Found { key, ops, breaches: &mut breaches };
        found.strange();
        found.seals(&effects);
        found.sealed_for_good();
        found.on_every_node(nodes);
        found.grants();
        found.refusals();
    }
    breaches
}

struct Found<'a> {
    key: u64,
    ops: Vec<&'a Op>,
    breaches: &'a mut Vec<Breach>,
}

/// A claim that was let in.
#[derive(Clone, Copy)]
struct Grant<'a> {
    op: &'a Op,
    token: u64,
    lease_us: u64,
}

impl<'a> Found<'a> {
    fn breach(&mut self, rule: Rule, ops: &[&Op]) {
        let told: Vec<String> = ops.iter().map(|op| format!("\n    {op:?}")).collect();
        let what = format!("{rule:?} of key {}:{}", self.key, told.concat());
        self.breaches.push(Breach { rule, what });
    }

    fn strange(&mut self) {
        for op in self.ops.clone() {
            let fits = match (&op.ask, &op.heard) {
                (_, Heard::Strange(_)) => false,
                (_, Heard::NothingDone | Heard::Unknown) => true,
                (Ask::Claim { .. }, heard) => {
                    matches!(heard, Heard::New { .. } | Heard::Duplicate(_) | Heard::InFlight)
                }
                (Ask::Seal { .. }, heard) => {
                    matches!(heard, Heard::Sealed { .. } | Heard::FencedOff | Heard::OtherContent)
                }
                (Ask::Release { .. }, heard) => matches!(heard, Heard::Released | Heard::FencedOff),
            };
            if !fits {
                self.breach(Rule::Strange, &[op]);
            }
        }
    }

    fn seals(&mut self, effects: &BTreeSet<Effect>) {
        let shown: Vec<(&Op, &Content)> = self.ops.iter().copied().filter_map(|op| Some((op, shown(op)?))).collect();
        for (op, content) in &shown {
            if *content != shown[0].1 {
                self.breach(Rule::OneReceipt, &[shown[0].0, op]);
            }
            let before = self.ops.iter().filter(|other| other.start_us <= op.end_us);
            let sealer = before.filter(|other| may_have_sealed(other, content)).find_map(|seal| seal.ask.token());
            let repeats = op.heard == Heard::Sealed { replay: true };
            if repeats && !self.ops.iter().any(|other| !std::ptr::eq(*other, *op) && may_have_sealed(other, content)) {
                self.breach(Rule::TrueRepeat, &[op]);
            }
            match sealer {
                None => self.breach(Rule::NotInvented, &[op]),
                Some(token) if !effects.contains(&Effect { key: self.key, token }) => {
                    self.breach(Rule::RealEffect, &[op]);
                }
                Some(_) => {}
            }
        }
        let first: Vec<&Op> =
            self.ops.iter().copied().filter(|op| op.heard == Heard::Sealed { replay: false }).collect();
        if first.len() > 1 {
            self.breach(Rule::FirstOnce, &first);
        }
    }

    fn sealed_for_good(&mut self) {
        let Some(proof) = self.ops.iter().copied().filter(|op| shown(op).is_some()).min_by_key(|op| op.end_us) else {
            return;
        };
        for op in self.ops.clone().into_iter().filter(|op| op.start_us > proof.end_us) {
            let denies = match op.heard {
                Heard::New { .. } | Heard::InFlight | Heard::Released => true,
                Heard::Sealed { replay } => !replay,
                _ => false,
            };
            if denies {
                self.breach(Rule::SealedForGood, &[proof, op]);
            }
        }
    }

    fn on_every_node(&mut self, nodes: usize) {
        let Some(proof) = self.ops.iter().copied().find(|op| shown(op).is_some()) else { return };
        let knows = |node: usize| {
            self.ops
                .iter()
                .any(|op| op.node == node && op.end_us >= proof.end_us && matches!(op.heard, Heard::Duplicate(_)))
        };
        if !(0..nodes).all(knows) {
            self.breach(Rule::OnEveryNode, &[proof]);
        }
    }

    fn granted(&self) -> Vec<Grant<'a>> {
        let grant = |op: &'a Op| match (&op.ask, &op.heard) {
            (Ask::Claim { lease_ms, .. }, Heard::New { token }) => {
                Some(Grant { op, token: *token, lease_us: lease_ms * 1_000 })
            }
            _ => None,
        };
        self.ops.iter().copied().filter_map(grant).collect()
    }

    fn grants(&mut self) {
        let grants = self.granted();
        for (index, a) in grants.iter().enumerate() {
            for b in &grants[index + 1..] {
                let (early, late) = if a.token <= b.token { (a, b) } else { (b, a) };
                // Of two that did not overlap, the later has the higher token.
                if early.token == late.token || late.op.end_us <= early.op.start_us {
                    self.breach(Rule::TokensGrow, &[early.op, late.op]);
                }
                let lease_end_us = early.op.start_us + early.lease_us;
                if late.op.end_us + CLOCK_SLACK_US < lease_end_us && !self.may_be_released(early.token, late.op.end_us)
                {
                    self.breach(Rule::OneHolder, &[early.op, late.op]);
                }
            }
        }
        for op in self.ops.clone() {
            let (Ask::Seal { token, .. }, Heard::Sealed { .. }) = (&op.ask, &op.heard) else { continue };
            for above in grants.iter().filter(|grant| grant.token > *token) {
                self.breach(Rule::NotOvertaken, &[op, above.op]);
            }
            let gave_up = |other: &&&Op| other.heard == Heard::Released && other.ask == Ask::Release { token: *token };
            if let Some(release) = self.ops.iter().find(gave_up).copied() {
                self.breach(Rule::ReleaseIsFinal, &[op, release]);
            }
        }
    }

    fn refusals(&mut self) {
        for op in self.ops.clone() {
            match (&op.ask, &op.heard) {
                (Ask::Seal { token, .. } | Ask::Release { token }, Heard::FencedOff) => {
                    // A holder that has sealed cannot give up any more.
                    let sealed = matches!(op.ask, Ask::Release { .. }) && self.may_be_sealed(*token, op.end_us);
                    let released = self.may_be_released(*token, op.end_us);
                    if !sealed && !released && !self.may_be_let_in(Some(*token), op.end_us) {
                        self.breach(Rule::ClaimKept, &[op]);
                    }
                }
                (_, Heard::InFlight) if !self.may_be_let_in(None, op.end_us) => {
                    self.breach(Rule::SomebodyHolds, &[op]);
                }
                _ => {}
            }
        }
    }

    fn may_be_released(&self, token: u64, before_us: u64) -> bool {
        let may = |op: &&&Op| op.start_us <= before_us && matches!(op.heard, Heard::Released | Heard::Unknown);
        self.ops.iter().filter(may).any(|op| op.ask == Ask::Release { token })
    }

    fn may_be_sealed(&self, token: u64, before_us: u64) -> bool {
        let may = |op: &&&Op| op.start_us <= before_us && matches!(op.heard, Heard::Sealed { .. } | Heard::Unknown);
        self.ops.iter().filter(may).any(|op| matches!(op.ask, Ask::Seal { token: own, .. } if own == token))
    }

    // Whether anybody may have come in by then: above a token, where one is given.
    fn may_be_let_in(&self, above: Option<u64>, before_us: u64) -> bool {
        self.ops.iter().filter(|op| op.start_us <= before_us).any(|op| match (&op.ask, &op.heard) {
            (Ask::Claim { .. }, Heard::New { token }) => above.is_none_or(|above| *token > above),
            (Ask::Claim { .. }, Heard::Unknown) => true,
            _ => false,
        })
    }
}

// The sealed content that an answer proves.
fn shown(op: &Op) -> Option<&Content> {
    match (&op.ask, &op.heard) {
        (Ask::Seal { content, .. }, Heard::Sealed { .. }) => Some(content),
        (_, Heard::Duplicate(content)) => Some(content),
        _ => None,
    }
}

fn may_have_sealed(op: &Op, content: &Content) -> bool {
    let may = matches!(op.heard, Heard::Sealed { .. } | Heard::Unknown);
    may && matches!(&op.ask, Ask::Seal { content: own, .. } if own == content)
}
