//! The receivers of one plan: each warehouse has its weather, and everything that arrives is written down.
//! Knows nothing of lanes' rules: `dispatch_auditor` judges what is written here.

use std::{
    collections::HashMap,
    sync::{Arc, Mutex, atomic::AtomicBool, atomic::Ordering},
    time::Duration,
};

use fencepost::{
    dispatch::{Delivery, Sink},
    kernel::{
        Millis,
        dispatch::WarehouseTransport,
        lane::{AttemptFailure, DeadLetterReason, ReceiverAnswer},
    },
};
use futures::future::BoxFuture;

use super::dispatch_world::{Virtual, host_of};

/// The state of a receiver at an attempt.
#[derive(Clone, Copy, Debug, PartialEq)]
pub enum Weather {
    Up,
    /// Takes it after so long.
    Slow(u64),
    /// Answers 500 at once.
    Broken,
    /// Answers 429 and asks for so many milliseconds.
    Busy(u64),
    /// Never answers: 15 s, then the sender gives up.
    Silent,
    /// Takes it after all, but the answer is lost.
    Deaf,
    /// Fails every other time.
    Flaky,
    Gone,
    TooLarge,
}

/// How long a sender waits for an answer.
pub const TIMEOUT_MS: u64 = 15_000;

/// Weather from a time on, until the next.
pub type Forecast = Vec<(Millis, Weather)>;

/// One attempt as its receiver saw it.
#[derive(Clone, Debug)]
pub struct Sighting {
    pub warehouse: String,
    pub seq: u64,
    pub id: String,
    pub redrive: bool,
    /// Which process sent it.
    pub life: usize,
    pub began: Millis,
    /// When it ended; none where its process died first, or now.
    pub ended: Option<Millis>,
    pub said: Said,
    pub intact: bool,
}

#[derive(Clone, Copy, Debug, PartialEq)]
pub enum Said {
    Nothing,
    Yes,
    Later { wish_ms: u64 },
    Gone,
    Never,
}

/// Everything that happened in one plan.
#[derive(Default)]
pub struct Ledger(Mutex<Vec<Sighting>>);

impl Ledger {
    fn begin(&self, sighting: Sighting) -> usize {
        let mut all = self.0.lock().unwrap();
        all.push(sighting);
        all.len() - 1
    }

    fn end(&self, at: usize, ended: Millis, said: Said) {
        let sighting = &mut self.0.lock().unwrap()[at];
        (sighting.ended, sighting.said) = (Some(ended), said);
    }

    pub fn sightings(&self) -> Vec<Sighting> {
        self.0.lock().unwrap().clone()
    }
}

/// The way out of one process.
pub struct Receivers {
    pub clock: Arc<Virtual>,
    pub weather: Arc<HashMap<String, Forecast>>,
    pub ledger: Arc<Ledger>,
    pub life: usize,
    /// Set when the process dies: nothing of it arrives any more.
    pub dead: Arc<AtomicBool>,
    /// The planted bug: says yes to so many of a hundred that it never delivers.
    pub lies_percent: u8,
}

impl Receivers {
    fn weather(&self, warehouse: &str) -> Weather {
        let now = self.clock.now();
        let forecast = &self.weather[warehouse];
        forecast.iter().rev().find(|(from, _)| *from <= now).map_or(Weather::Up, |(_, weather)| *weather)
    }
}

fn later(status: Option<u16>, wish_ms: Option<u64>) -> Result<(), AttemptFailure> {
    Err(AttemptFailure::Later { answer: ReceiverAnswer::new(status, ""), wish_ms })
}

impl Sink for Receivers {
    fn host(&self, route: &WarehouseTransport) -> String {
        host_of(route)
    }

    fn deliver(&self, delivery: Delivery) -> BoxFuture<'static, Result<(), AttemptFailure>> {
        let entry = &delivery.entry;
        if delivery.seq * 37 % 100 < u64::from(self.lies_percent) {
            return Box::pin(async { Ok(()) });
        }
        let weather = self.weather(&entry.warehouse);
        let at = self.ledger.begin(Sighting {
            warehouse: entry.warehouse.clone(),
            seq: delivery.seq,
            id: entry.correlation_id.clone(),
            redrive: delivery.redrive(),
            life: self.life,
            began: self.clock.now(),
            ended: None,
            said: Said::Nothing,
            intact: *entry.body == *format!(r#"{{"id":"{}"}}"#, entry.correlation_id).as_bytes(),
        });
        let flaky_fails = delivery.attempt % 2 == 1;
        let (clock, ledger, dead) = (self.clock.clone(), self.ledger.clone(), self.dead.clone());
        Box::pin(async move {
            let (takes_ms, said, outcome) = match weather {
                Weather::Up => (1, Said::Yes, Ok(())),
                Weather::Slow(ms) => (ms, Said::Yes, Ok(())),
                Weather::Flaky if !flaky_fails => (20, Said::Yes, Ok(())),
                Weather::Flaky | Weather::Broken => (5, Said::Later { wish_ms: 0 }, later(Some(500), None)),
                Weather::Busy(wish_ms) => (3, Said::Later { wish_ms }, later(Some(429), Some(wish_ms))),
                Weather::Silent | Weather::Deaf => (TIMEOUT_MS, Said::Later { wish_ms: 0 }, later(None, None)),
                Weather::Gone => (2, Said::Gone, Err(AttemptFailure::Gone(ReceiverAnswer::new(Some(410), "")))),
                Weather::TooLarge => (
                    1,
                    Said::Never,
                    Err(AttemptFailure::Never(ReceiverAnswer::new(None, "too large"), DeadLetterReason::TooLarge)),
                ),
            };
            tokio::time::sleep(Duration::from_millis(takes_ms)).await;
            if !dead.load(Ordering::Acquire) {
                ledger.end(at, clock.now(), said);
            }
            outcome
        })
    }
}
