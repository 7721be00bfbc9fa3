//! The result of one measurement, and the one figure for several rounds.
//! Never averages latencies of rounds: percentiles come from histograms, and rounds are summed up by their median.
//! Called by everything that measures, and by `report`, `plot` and `targets`.

use std::time::Duration;

use anyhow::{Context, Result};
use hdrhistogram::Histogram;

/// The percentiles that every table shows, with their labels.
pub const PERCENTILES: [(&str, f64); 4] = [("p50", 50.0), ("p90", 90.0), ("p99", 99.0), ("p99.9", 99.9)];

/// Steps of one measurement: their number, their latencies, and the connections that failed.
#[derive(Clone, Debug)]
pub struct Sample {
    /// Length of the measured window.
    pub window: Duration,
    /// Steps that ended inside the measured window.
    pub steps: u64,
    /// All steps: also those of the warm-up, and the last one of each connection, past the window.
    pub steps_all: u64,
    /// Connections that got an unexpected reply.
    pub errors: u64,
    pub first_error: Option<String>,
    latency_ns: Option<Histogram<u64>>,
}

impl Sample {
    /// A sample without steps.
    pub fn new(window: Duration) -> Sample {
        // Three significant digits from 1 ns up; the histogram grows by itself.
        Sample { window, steps: 0, steps_all: 0, errors: 0, first_error: None, latency_ns: Histogram::new(3).ok() }
    }

    /// Adds one step and its latency.
    pub fn record(&mut self, took: Duration) -> Result<()> {
        self.steps += 1;
        let took_ns = u64::try_from(took.as_nanos()).unwrap_or(u64::MAX);
        if let Some(histogram) = &mut self.latency_ns {
            histogram.record(took_ns).context("recording a latency")?;
        }
        Ok(())
    }

    /// Counts a connection that got an unexpected reply.
    pub fn fail(&mut self, error: &anyhow::Error) {
        self.errors += 1;
        self.first_error.get_or_insert_with(|| format!("{error:#}"));
    }

    /// Adds another connection's sample of the same window.
    pub fn add(&mut self, other: &Sample) -> Result<()> {
        self.steps += other.steps;
        self.steps_all += other.steps_all;
        self.errors += other.errors;
        if self.first_error.is_none() {
            self.first_error.clone_from(&other.first_error);
        }
        if let (Some(mine), Some(theirs)) = (&mut self.latency_ns, &other.latency_ns) {
            mine.add(theirs).context("adding histograms")?;
        }
        Ok(())
    }

    /// Steps a second in the window.
    pub fn rate(&self) -> f64 {
        self.steps as f64 / self.window.as_secs_f64()
    }

    /// Latency at a percentile, in milliseconds.
    pub fn percentile_ms(&self, percentile: f64) -> f64 {
        self.latency_ns.as_ref().map_or(f64::NAN, |h| h.value_at_percentile(percentile) as f64 / 1e6)
    }

    /// Mean latency in milliseconds.
    pub fn mean_ms(&self) -> f64 {
        self.latency_ns.as_ref().map_or(f64::NAN, |h| h.mean() / 1e6)
    }
}

/// The middle value; the mean of the two middle values where the count is even.
pub fn median(values: &[f64]) -> f64 {
    let mut sorted = values.to_vec();
    sorted.sort_by(f64::total_cmp);
    let middle = sorted.len() / 2;
    match sorted.len() {
        0 => f64::NAN,
        n if n % 2 == 1 => sorted[middle],
        _ => (sorted[middle - 1] + sorted[middle]) / 2.0,
    }
}

/// Smallest and largest value.
pub fn spread(values: &[f64]) -> (f64, f64) {
    values.iter().fold((f64::INFINITY, f64::NEG_INFINITY), |(low, high), v| (low.min(*v), high.max(*v)))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn median_of_rounds_ignores_one_outlier() {
        assert_eq!(median(&[3.0, 900.0, 1.0]), 3.0);
        assert_eq!(median(&[2.0, 4.0]), 3.0);
        assert!(median(&[]).is_nan());
    }

    #[test]
    fn samples_of_two_connections_add_up() {
        let mut a = Sample::new(Duration::from_secs(2));
        let mut b = Sample::new(Duration::from_secs(2));
        a.record(Duration::from_millis(1)).unwrap();
        b.record(Duration::from_millis(3)).unwrap();
        b.fail(&anyhow::anyhow!("not this"));
        a.add(&b).unwrap();
        assert_eq!((a.steps, a.errors, a.rate()), (2, 1, 1.0));
        assert_eq!(a.first_error.as_deref(), Some("not this"));
        assert!((a.percentile_ms(99.9) - 3.0).abs() < 0.01);
    }
}
