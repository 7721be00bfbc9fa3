//! The checker catches what it is there for: bugs planted between the clients and a node, and rows that vanish from
//! under the nodes. An honest history passes.

use std::{collections::BTreeSet, time::Duration};

use super::{
    super::server::dev,
    callers::{Addresses, Load},
    checker::{Rule, check},
    front::{Front, Lie},
    history::History,
    town::{Town, audit},
};

const ENOUGH: Duration = Duration::from_secs(20);

/// The rules that a load through a lying front breaks.
fn broken_by(lie: Lie) -> BTreeSet<Rule> {
    let node = dev();
    let history = History::default();
    let addresses = Addresses::default();
    addresses.set(vec![Front::start(node.address, lie, 7).address]);
    let load = Load { history: &history, addresses: &addresses, seed: 11, first_key: 0 };
    let next = load.run(|acks| assert!(acks.hear(150, ENOUGH), "the load did too little"));
    // Past the front: the node's own receipt.
    addresses.set(vec![node.address]);
    audit(&addresses, &history, 0..next);
    rules(&history, 1)
}

fn rules(history: &History, nodes: usize) -> BTreeSet<Rule> {
    check(&history.ops(), &history.effects(), nodes).into_iter().map(|breach| breach.rule).collect()
}

#[track_caller]
fn caught(lie: Lie, rule: Rule) {
    let broken = broken_by(lie);
    assert!(broken.contains(&rule), "{lie:?} breaks {broken:?}");
}

#[test]
fn an_honest_front_breaks_no_rule() {
    assert_eq!(broken_by(Lie::None), BTreeSet::new());
}

#[test]
fn a_seal_that_was_acknowledged_and_not_kept_is_caught() {
    caught(Lie::SealForgotten, Rule::SealedForGood);
}

#[test]
fn a_grant_that_is_given_twice_is_caught() {
    caught(Lie::GrantRepeated, Rule::TokensGrow);
}

#[test]
fn a_second_holder_within_the_lease_is_caught() {
    caught(Lie::LeaseIgnored, Rule::OneHolder);
}

#[test]
fn a_claim_that_was_acknowledged_and_not_kept_is_caught() {
    caught(Lie::ClaimForgotten, Rule::ClaimKept);
}

#[test]
fn a_receipt_that_changed_is_caught() {
    caught(Lie::ReceiptChanged, Rule::OneReceipt);
}

#[test]
fn a_seal_that_happened_although_nothing_was_said_to_be_done_is_caught() {
    caught(Lie::SealDenied, Rule::TrueRepeat);
}

#[test]
fn a_stale_token_that_seals_is_caught() {
    caught(Lie::FenceOpened, Rule::NotOvertaken);
}

#[test]
fn an_answer_that_nobody_may_give_is_caught() {
    caught(Lie::Internal, Rule::Strange);
}

#[test]
fn rows_that_vanish_from_under_the_nodes_are_caught() {
    let town = Town::start(2);
    let history = History::default();
    let load = Load { history: &history, addresses: &town.addresses, seed: 3, first_key: 0 };
    let next = load.run(|acks| {
        assert!(acks.hear(60, ENOUGH));
        town.postgres.sql(&town.database, "DELETE FROM fencepost_fences");
        assert!(acks.hear(20, ENOUGH));
    });
    town.audit(&history, 0..next);
    let broken = rules(&history, 2);
    assert!(broken.contains(&Rule::SealedForGood), "{broken:?}");
}
