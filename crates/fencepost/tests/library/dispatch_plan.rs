//! Makes random plans: how receivers fare, and what people and processes do. Never runs one: `dispatch_town` does.

use std::collections::HashMap;

use fencepost::kernel::Millis;

use super::{
    dispatch_receiver::{Forecast, Weather},
    dispatch_world::{HOUR_MS, SECOND_MS},
};

/// A step at a time of a plan.
#[derive(Clone, Debug)]
pub enum Step {
    Publish {
        warehouse: usize,
        cancels: bool,
    },
    Pause {
        warehouse: usize,
    },
    Resume {
        warehouse: usize,
    },
    /// The process dies, and another comes after a while.
    Crash {
        down_ms: u64,
    },
    /// The same, but it is asked to stop first and given time.
    Stop {
        down_ms: u64,
    },
    /// A person looks at what waits for one.
    Visit,
}

/// As many as a plan may have, each with a lane.
pub const WAREHOUSES: [&str; 4] = ["w0", "w1", "w2", "w3"];

/// The weather of each warehouse, and what happens when, in milliseconds after the start.
pub fn plan(rng: &mut fastrand::Rng, start: Millis) -> (HashMap<String, Forecast>, Vec<(u64, Step)>) {
    let (mut weather, mut steps) = (HashMap::new(), Vec::new());
    for (warehouse, name) in WAREHOUSES[..rng.usize(1..=4)].iter().enumerate() {
        let (spans, ends_well) = forecast(rng, start);
        weather.insert((*name).to_owned(), spans);
        for _ in 0..rng.usize(1..if ends_well { 8 } else { 3 }) {
            let at_ms = if rng.bool() { rng.u64(0..20 * HOUR_MS) } else { rng.u64(0..60 * SECOND_MS) };
            steps.push((at_ms, Step::Publish { warehouse, cancels: rng.u8(0..6) == 0 }));
        }
        for _ in 0..rng.usize(0..3) {
            let at_ms = rng.u64(0..30 * HOUR_MS);
            let short = rng.bool();
            let span_ms = rng.u64(0..if short { 20 * SECOND_MS } else { 30 * HOUR_MS });
            steps.push((at_ms, Step::Pause { warehouse }));
            steps.push((at_ms + span_ms, Step::Resume { warehouse }));
        }
    }
    for _ in 0..rng.usize(0..4) {
        let down_ms = if rng.bool() { rng.u64(0..5 * SECOND_MS) } else { rng.u64(0..3 * HOUR_MS) };
        let at_ms = if rng.bool() { rng.u64(0..30 * HOUR_MS) } else { rng.u64(0..60 * SECOND_MS) };
        steps.push((at_ms, if rng.bool() { Step::Crash { down_ms } } else { Step::Stop { down_ms } }));
    }
    steps.extend((1..12).map(|visit| (visit * 3 * HOUR_MS, Step::Visit)));
    steps.sort_by_key(|(at_ms, _)| *at_ms);
    (weather, steps)
}

fn forecast(rng: &mut fastrand::Rng, start: Millis) -> (Forecast, bool) {
    let ends_well = rng.u8(0..3) > 0;
    let mut spans = Vec::new();
    let mut at = start;
    for _ in 0..rng.usize(0..6) {
        let weather = match rng.u8(0..12) {
            0 => Weather::Slow(rng.u64(0..14_999)),
            1 | 2 => Weather::Broken,
            3 => Weather::Busy(rng.u64(0..3 * HOUR_MS)),
            4 | 5 => Weather::Silent,
            6 => Weather::Deaf,
            7 => Weather::Flaky,
            8 => Weather::Gone,
            9 => Weather::TooLarge,
            _ => Weather::Up,
        };
        spans.push((at, weather));
        let long = rng.bool() && weather != Weather::TooLarge;
        at = at.plus(rng.u64(1..if long { 20 * HOUR_MS } else { 120 * SECOND_MS }));
    }
    spans.push((at, if ends_well { Weather::Up } else { rng.choice([Weather::Broken, Weather::Silent]).unwrap() }));
    (spans, ends_well)
}
