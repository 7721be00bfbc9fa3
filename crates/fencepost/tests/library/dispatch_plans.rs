//! A thousand random plans, each the whole 24-hour schedule in virtual time: receivers fail in every way, people pause,
//! cancel, send again and give up, processes die and come back. `dispatch_auditor` judges each of them.
//! `FENCEPOST_SEED=n` runs one plan alone and tells its story.

use super::{
    dispatch_outcome::{Bug, Outcome},
    dispatch_town::run,
};

/// Ten times as many with `FENCEPOST_LONG=1`.
const PLANS: u64 = 1_000;

fn told(outcome: &Outcome) -> String {
    format!("seed {}: {}\n{}", outcome.seed, outcome.plan, outcome.wrong.join("\n"))
}

#[test]
fn every_event_of_a_thousand_plans_is_acknowledged_or_dead_in_order_and_no_letter_is_early() {
    if let Some(seed) = std::env::var("FENCEPOST_SEED").ok().and_then(|seed| seed.parse().ok()) {
        let outcome = run(seed, Bug::None);
        println!("{}\n{}", told(&outcome), outcome.story.join("\n"));
        assert!(outcome.wrong.is_empty(), "{}", told(&outcome));
        return;
    }
    let mut seen = Outcome::default();
    let plans = if std::env::var("FENCEPOST_LONG").is_ok() { 10 * PLANS } else { PLANS };
    for seed in 0..plans {
        let outcome = run(seed, Bug::None);
        assert!(outcome.wrong.is_empty(), "{}", told(&outcome));
        seen.add(&outcome);
    }
    println!("{seen:?}");
    // Plans that meet nothing prove nothing.
    assert!(seen.attempts > 20_000 && seen.deaths > 500 && seen.redriven > 50, "{seen:?}");
    assert!(seen.crashes > 500 && seen.pauses > 500 && seen.cancels > 300 && seen.gone > 50, "{seen:?}");
    assert!(seen.virtual_hours > 24 * PLANS, "{seen:?}");
}

#[test]
fn two_runs_of_a_seed_are_the_same() {
    for seed in 0..10 {
        assert_eq!(run(seed, Bug::None).story, run(seed, Bug::None).story, "seed {seed}");
    }
}

/// How many of so many plans the auditor finds wrong, and that it says why.
fn caught(bug: Bug, why: &str) {
    let outcomes: Vec<_> = (0..40).map(|seed| run(seed, bug)).collect();
    let caught = outcomes.iter().filter(|outcome| outcome.wrong.iter().any(|wrong| wrong.contains(why))).count();
    let first = outcomes.iter().find(|outcome| !outcome.wrong.is_empty()).map(told);
    assert!(caught >= 10, "{bug:?} was caught in {caught} of 40 plans only; {first:?}");
}

#[test]
fn a_sink_that_acknowledges_what_it_never_delivered_is_caught() {
    caught(Bug::Lies, "neither received nor is it dead");
}

#[test]
fn two_drivers_of_one_lane_are_caught() {
    caught(Bug::TwoDrivers, "two attempts at a time");
}

#[test]
fn a_store_that_forgets_dead_letters_is_caught() {
    caught(Bug::ForgetsLetters, "neither received nor is it dead");
}

#[test]
fn a_store_that_settles_one_too_many_is_caught() {
    caught(Bug::SettlesAhead, "neither received nor is it dead");
}

#[test]
fn a_clock_that_runs_too_fast_makes_letters_early_and_is_caught() {
    caught(Bug::FastClock, "which is not 24 hours");
}

#[test]
fn a_store_that_forgets_pauses_is_caught() {
    caught(Bug::ForgetsPauses, "in the pause");
}

#[test]
fn a_store_that_forgets_when_to_try_again_is_caught() {
    caught(Bug::ForgetsWaits, "was sent again after");
}
