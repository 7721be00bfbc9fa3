//! Each rule of the checker is broken by the smallest history that breaks it, and by that rule's name.

use super::{
    checker::{Rule, check},
    history::{Ask, Content, Effect, Heard, Op},
};

const LONG: Ask = Ask::Claim { lease_ms: 3_600_000, wait_ms: 0 };
const FIRST: Heard = Heard::Sealed { replay: false };
const AGAIN: Heard = Heard::Sealed { replay: true };

fn new(token: u64) -> Heard {
    Heard::New { token }
}

fn seal(token: u64) -> Ask {
    Ask::Seal { token, content: content(token) }
}

fn content(token: u64) -> Content {
    Content::of(1, token, 0)
}

fn duplicate(token: u64) -> Heard {
    Heard::Duplicate(content(token))
}

fn release(token: u64) -> Ask {
    Ask::Release { token }
}

/// One after the other, a second each, at node 0; tokens 1 to 9 had their effects.
fn judged(history: Vec<(Ask, Heard)>) -> Vec<Rule> {
    let op = |(index, (ask, heard)): (usize, (Ask, Heard))| {
        let start_us = index as u64 * 1_000_000;
        Op { key: 1, node: 0, ask, heard, start_us, end_us: start_us + 500_000 }
    };
    let ops: Vec<Op> = history.into_iter().enumerate().map(op).collect();
    let effects: Vec<Effect> = (1..10).map(|token| Effect { key: 1, token }).collect();
    let mut rules: Vec<Rule> = check(&ops, &effects, 1).into_iter().map(|breach| breach.rule).collect();
    rules.sort_unstable();
    rules.dedup();
    rules
}

#[test]
fn an_ordinary_life_breaks_no_rule() {
    let short = Ask::Claim { lease_ms: 1, wait_ms: 0 };
    let history = vec![
        (LONG, Heard::NothingDone),
        (short, new(1)),
        (LONG, new(2)),
        (seal(1), Heard::FencedOff),
        (release(2), Heard::Released),
        (LONG, Heard::Unknown),
        (LONG, Heard::InFlight),
        (LONG, new(4)),
        (seal(4), Heard::Unknown),
        (seal(4), AGAIN),
        (Ask::Seal { token: 4, content: content(5) }, Heard::OtherContent),
        (release(4), Heard::FencedOff),
        (LONG, duplicate(4)),
    ];
    // A grant that nobody heard of is not judged: it may never have been.
    assert_eq!(judged(history), []);
}

#[test]
fn each_rule_is_broken_by_its_own_smallest_history() {
    let known = (LONG, duplicate(1));
    let cases: Vec<(Rule, Vec<(Ask, Heard)>)> = vec![
        (Rule::Strange, vec![(LONG, Heard::Strange("500".to_owned()))]),
        (Rule::Strange, vec![(LONG, Heard::Released)]),
        (
            Rule::OneReceipt,
            vec![(LONG, new(1)), (seal(1), FIRST), (seal(2), Heard::Unknown), known.clone(), (LONG, duplicate(2))],
        ),
        (Rule::NotInvented, vec![(LONG, new(1)), (seal(1), Heard::NothingDone), known.clone()]),
        (Rule::TrueRepeat, vec![(LONG, new(1)), (seal(1), AGAIN), known.clone()]),
        (Rule::RealEffect, vec![(LONG, new(99)), (seal(99), FIRST), (LONG, duplicate(99))]),
        (Rule::SealedForGood, vec![(LONG, new(1)), (seal(1), FIRST), (LONG, Heard::InFlight), known.clone()]),
        (Rule::OnEveryNode, vec![(LONG, new(1)), (seal(1), FIRST)]),
        (Rule::FirstOnce, vec![(LONG, new(1)), (seal(1), FIRST), (seal(1), FIRST), known.clone()]),
        (Rule::TokensGrow, vec![(LONG, new(2)), (release(2), Heard::Released), (LONG, new(1))]),
        (Rule::TokensGrow, vec![(LONG, new(1)), (release(1), Heard::Released), (LONG, new(1))]),
        (Rule::OneHolder, vec![(LONG, new(1)), (LONG, new(2))]),
        (Rule::NotOvertaken, vec![(LONG, new(1)), (LONG, new(2)), (seal(1), FIRST), known.clone()]),
        (Rule::ReleaseIsFinal, vec![(LONG, new(1)), (release(1), Heard::Released), (seal(1), FIRST), known]),
        (Rule::ClaimKept, vec![(LONG, new(1)), (seal(1), Heard::FencedOff)]),
        (Rule::ClaimKept, vec![(LONG, new(1)), (release(1), Heard::FencedOff)]),
        (Rule::SomebodyHolds, vec![(LONG, Heard::InFlight)]),
    ];
    for (rule, history) in cases {
        let broken = judged(history.clone());
        assert!(broken.contains(&rule), "{rule:?} is not among {broken:?}: {history:?}");
    }
}
