//! The schedule of retries: 0 s, 5 s, 30 s, 2 min, 10 min, 1 h after the first attempt, then by the hour until 24 h.
//! The times expected here are written from DESIGN 7, not from the kernel.

use fencepost_kernel::{
    Millis,
    lane::{
        ReceiverAnswer, Trouble,
        retry::{Chance, HORIZON_MS, next, resumed},
    },
};
use proptest::prelude::*;

use super::{
    lane_world::{DAY_MS, HOUR_MS, SECOND_MS},
    world::{START, cases},
};

const STEPS_MS: [u64; 5] = [5 * SECOND_MS, 30 * SECOND_MS, 120 * SECOND_MS, 600 * SECOND_MS, HOUR_MS];
const MINUTE_MS: u64 = 60 * SECOND_MS;

/// Attempts that fail at once, without jitter: when each begins, counted from the first; the last is the one that kills.
fn schedule(wish_ms: Option<u64>) -> Vec<u64> {
    let mut times = vec![0];
    loop {
        let now = START.plus(*times.last().unwrap());
        match next(times.len() as u32, START, now, wish_ms, Chance(0)) {
            Some(due) => times.push(due.since(START)),
            None => return times,
        }
    }
}

#[test]
fn the_schedule_is_that_of_the_design() {
    let mut expected = vec![0];
    expected.extend(STEPS_MS);
    expected.extend((2..=24).map(|hour| hour * HOUR_MS));
    assert_eq!(schedule(None), expected);
}

#[test]
fn the_last_attempt_is_at_the_horizon_and_death_not_before() {
    assert_eq!(HORIZON_MS, DAY_MS);
    let horizon = START.plus(DAY_MS);
    for before_ms in [1, 100, MINUTE_MS, HOUR_MS] {
        let now = Millis(horizon.0 - before_ms);
        assert_eq!(next(28, START, now, None, Chance(u32::MAX)), Some(horizon), "{before_ms} ms before it");
    }
    assert_eq!(next(28, START, horizon, None, Chance(0)), None);
    assert_eq!(next(1, START, horizon.plus(1), Some(HOUR_MS), Chance(9)), None);
}

#[test]
fn a_receivers_wish_only_lengthens_the_gap() {
    let after = |wish_ms| next(1, START, START, wish_ms, Chance(0)).unwrap().since(START);
    assert_eq!(after(Some(0)), 5 * SECOND_MS);
    assert_eq!(after(Some(1)), 5 * SECOND_MS);
    assert_eq!(after(Some(7_777)), 7_777);
    assert_eq!(after(Some(2 * HOUR_MS)), 2 * HOUR_MS);
    assert_eq!(after(Some(u64::MAX)), DAY_MS, "but never past the horizon, where it is tried once more");
    assert_eq!(schedule(Some(10 * HOUR_MS)), [0, 10 * HOUR_MS, 20 * HOUR_MS, DAY_MS]);
}

#[test]
fn an_attempt_that_took_long_is_not_followed_at_once() {
    // The second attempt was due 5 s after the first began, which took 15 s to time out.
    let now = START.plus(15 * SECOND_MS);
    assert_eq!(next(1, START, now, None, Chance(0)), Some(now.plus(5 * SECOND_MS)));
}

#[test]
fn a_pause_moves_the_horizon_by_its_length_and_the_next_attempt_is_due_at_its_end() {
    let trouble = Trouble {
        attempts: 3,
        first_at: START,
        last_at: START.plus(30_000),
        next_at: START.plus(120_000),
        answer: ReceiverAnswer::default(),
    };
    let (paused, now) = (START.plus(40_000), START.plus(40_000 + 3 * DAY_MS));
    let after = resumed(&trouble, paused, now);
    assert_eq!(after, Trouble { first_at: START.plus(3 * DAY_MS), next_at: now, ..trouble.clone() });
    let began_in_it = Trouble { first_at: paused.plus(1_000), ..trouble };
    assert_eq!(resumed(&began_in_it, paused, now).first_at, now, "time before the first attempt was never counted");
}

proptest! {
    #![proptest_config(cases(1_000))]

    #[test]
    fn attempts_never_come_early_and_death_is_at_the_horizon(
        chances in proptest::collection::vec(any::<u32>(), 32),
        took_ms in proptest::collection::vec(prop_oneof![Just(0u64), 0..15_000u64], 32),
        wishes_ms in proptest::collection::vec(proptest::option::weighted(0.2, 0..2 * HOUR_MS), 32),
    ) {
        let (mut began, mut attempts) = (START, 0usize);
        let died = loop {
            let failed = began.plus(took_ms[attempts % 32]);
            let wish_ms = wishes_ms[attempts % 32];
            let chance = Chance(chances[attempts % 32]);
            attempts += 1;
            prop_assert!(attempts < 40, "tried for ever");
            let Some(due) = next(attempts as u32, START, failed, wish_ms, chance) else { break failed };
            let horizon = START.plus(DAY_MS);
            prop_assert!(due <= horizon && due > failed);
            if due < horizon {
                let step = STEPS_MS.get(attempts - 1).map_or(failed.plus(HOUR_MS), |step| START.plus(*step));
                prop_assert!(due >= step, "attempt {} at {:?}, not before {:?}", attempts + 1, due, step);
                prop_assert!(due >= failed.plus(wish_ms.unwrap_or(0)));
                prop_assert!(due >= failed.plus(5 * SECOND_MS));
                // Late by a tenth at most, unless the receiver asked for more.
                let gap = step.since(failed).max(5 * SECOND_MS);
                prop_assert!(due <= failed.plus((gap + gap / 10).max(wish_ms.unwrap_or(0))));
            }
            began = due;
        };
        let age_ms = died.since(START);
        prop_assert!((DAY_MS..=DAY_MS + 15_000).contains(&age_ms), "dead after {} ms", age_ms);
    }
}
