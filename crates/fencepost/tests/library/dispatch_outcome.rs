//! Deliberate bugs in a run of a plan, the alarms during the run, and its outcome.

use std::{
    sync::{Arc, Mutex},
    time::Duration,
};

use fencepost::{
    dispatch::Alarm,
    kernel::{
        LaneId, Millis,
        lane::{AttemptFailure, DeadLetter, DeadLetterReason, Pause, Trouble},
    },
};

use super::dispatch_world::Virtual;

/// A deliberate bug.
#[derive(Clone, Copy, PartialEq, Debug)]
pub enum Bug {
    None,
    Lies,
    TwoDrivers,
    ForgetsLetters,
    SettlesAhead,
    FastClock,
    ForgetsPauses,
    ForgetsWaits,
}

/// The outcome of a plan, or of many.
#[derive(Default, Debug)]
pub struct Outcome {
    pub seed: u64,
    pub plan: String,
    pub wrong: Vec<String>,
    pub story: Vec<String>,
    pub attempts: usize,
    pub deaths: usize,
    pub redriven: usize,
    pub crashes: usize,
    pub pauses: usize,
    pub cancels: usize,
    pub gone: usize,
    pub virtual_hours: u64,
}

impl Outcome {
    pub fn add(&mut self, other: &Self) {
        self.attempts += other.attempts;
        self.deaths += other.deaths;
        self.redriven += other.redriven;
        self.crashes += other.crashes;
        self.pauses += other.pauses;
        self.cancels += other.cancels;
        self.gone += other.gone;
        self.virtual_hours += other.virtual_hours;
    }
}

/// Hears of deaths from the driver.
pub struct Bell {
    pub clock: Arc<Virtual>,
    pub deaths: Mutex<Vec<(String, String, Millis, DeadLetterReason)>>,
}

impl Alarm for Bell {
    fn died(&self, _: &str, _: (LaneId, u64), letter: &DeadLetter) {
        let entry = &letter.entry;
        let death = (entry.warehouse.clone(), entry.correlation_id.clone(), self.clock.now(), letter.reason);
        self.deaths.lock().unwrap().push(death);
    }
    fn blocked(&self, _: &str, _: u64, _: &Trouble) {}
    fn halted(&self, _: &str, _: u64, _: &Pause, _: Option<&Trouble>) {}
    fn key_missing(&self, _: &str, _: &str) {}
    fn attempted(&self, _: &str, _: Result<(), &AttemptFailure>, _: Duration) {}
    fn failed(&self, _: &str, _: u64, _: &Trouble, _: Option<&Pause>) {}
}
