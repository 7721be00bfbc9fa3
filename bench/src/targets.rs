//! The ratios that the project promises, and whether a run kept them.
//! Never compares rows of different runs.
//! Called by `report` and `plot`.

use crate::contest::{Outcome, Row};
use crate::stats::spread;

/// A promise: the ratio of one row to another is at least `least`.
pub struct Target {
    /// Name of the row that is judged.
    pub of: &'static str,
    /// Name of the row it is divided by.
    pub over: &'static str,
    /// The least acceptable ratio.
    pub least: f64,
    /// The ratio that the project aims for, where it is above `least`.
    pub aim: Option<f64>,
}

/// All promised ratios.
pub const TARGETS: &[Target] = &[
    Target { of: "fencepost", over: "redis", least: 0.8, aim: Some(1.2) },
    Target { of: "fencepost", over: "postgres", least: 2.0, aim: None },
    Target { of: "fencepost-batch", over: "redis", least: 2.0, aim: None },
    Target { of: "fencepost-replay", over: "noop", least: 0.7, aim: None },
    Target { of: "fencepost-postgres", over: "postgres", least: 2.0, aim: None },
    Target { of: "fencepost-postgres-3", over: "fencepost-postgres", least: 0.7, aim: None },
    Target { of: "fencepost-postgres-batch", over: "postgres", least: 2.0, aim: None },
    Target { of: "fencepost-redis", over: "redis", least: 0.3, aim: None },
    Target { of: "fencepost-redis-batch", over: "redis", least: 0.7, aim: None },
    Target { of: "fencepost-gateway", over: "nginx", least: 0.3, aim: Some(0.5) },
    Target { of: "fencepost-gateway-replay", over: "nginx", least: 1.0, aim: None },
    Target { of: "library", over: "fjall", least: 0.5, aim: None },
];

/// A ratio of medians, with the spread of the rounds' own ratios.
#[derive(Clone, Copy, Debug)]
pub struct Ratio {
    /// Median over median.
    pub value: f64,
    /// The lowest ratio of a round.
    pub low: f64,
    /// The highest ratio of a round.
    pub high: f64,
}

/// The ratio of `of` to `over`; `None` unless both were measured.
pub fn ratio(outcome: &Outcome, of: &str, over: &str) -> Option<Ratio> {
    let row = |name: &str| -> Option<&Row> { outcome.rows.iter().find(|row| row.contestant.name == name) };
    let (of, over) = (row(of)?, row(over)?);
    let by_round: Vec<f64> = of.rates.iter().zip(&over.rates).map(|(of, over)| of / over).collect();
    let (low, high) = spread(&by_round);
    Some(Ratio { value: of.rate() / over.rate(), low, high })
}

/// Each promise with the ratio of this run; `None` where a row was not measured.
pub fn judge(outcome: &Outcome) -> Vec<(&'static Target, Option<Ratio>)> {
    TARGETS.iter().map(|target| (target, ratio(outcome, target.of, target.over))).collect()
}

/// Says whether the gateway adds at most 1.2 times two syncs to a proxy's median latency. Call it for runs with one
/// connection: with more, the median is mostly queueing.
pub fn added(outcome: &Outcome) -> Option<String> {
    let p50 = |name: &str| {
        let row = outcome.rows.iter().find(|row| row.contestant.name == name)?;
        Some(row.percentile_ms(0))
    };
    let (gateway, proxy) = (p50("fencepost-gateway")?, p50("nginx")?);
    let bound = 1.2 * 2.0 * outcome.sync.percentile_ms(50.0);
    let word = if gateway - proxy <= bound { "met" } else { "MISSED" };
    Some(format!("{word:<12}  p50 of the gateway less nginx's at most {bound:.2} ms: {:.2} ms", gateway - proxy))
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::contest::ALL;

    #[test]
    fn every_target_names_contestants_that_exist() {
        for target in TARGETS {
            for name in [target.of, target.over] {
                assert!(ALL.iter().any(|contestant| contestant.name == name), "{name}");
            }
        }
    }
}
