//! A receiver that answers in one way, and what has arrived there.

use std::{
    sync::{Arc, Mutex, atomic::AtomicBool, atomic::Ordering},
    time::Duration,
};

use fencepost::{
    dispatch::{Delivery, Sink},
    kernel::{
        Millis,
        dispatch::WarehouseTransport,
        lane::{AttemptFailure, ReceiverAnswer},
    },
};
use futures::future::BoxFuture;

use super::dispatch_world::{Virtual, host_of};

/// The state of a receiver at an attempt.
#[derive(Clone, Copy)]
pub enum Weather {
    Up,
    /// Takes it after so many milliseconds.
    Slow(u64),
    /// Answers 500 at once.
    Broken,
    Gone,
}

/// One attempt as its receiver saw it.
#[derive(Clone)]
pub struct Sighting {
    pub id: String,
    pub began: Millis,
    /// Whether it was acknowledged; not yet, while it is under way.
    pub taken: bool,
}

/// Everything that has arrived.
#[derive(Default)]
pub struct Ledger(Mutex<Vec<Sighting>>);

impl Ledger {
    pub fn sightings(&self) -> Vec<Sighting> {
        self.0.lock().unwrap().clone()
    }
}

/// The way out of one process.
pub struct Receiver {
    pub clock: Arc<Virtual>,
    pub weather: Weather,
    pub ledger: Arc<Ledger>,
    /// Set when the process dies: nothing of it is acknowledged any more.
    pub dead: Arc<AtomicBool>,
}

impl Sink for Receiver {
    fn host(&self, transport: &WarehouseTransport) -> String {
        host_of(transport)
    }

    fn deliver(&self, delivery: Delivery) -> BoxFuture<'static, Result<(), AttemptFailure>> {
        let (id, began) = (delivery.entry.correlation_id.clone(), self.clock.now());
        let at = {
            let mut all = self.ledger.0.lock().unwrap();
            all.push(Sighting { id, began, taken: false });
            all.len() - 1
        };
        let (weather, ledger, dead) = (self.weather, self.ledger.clone(), self.dead.clone());
        Box::pin(async move {
            let (takes_ms, outcome) = match weather {
                Weather::Up => (1, Ok(())),
                Weather::Slow(ms) => (ms, Ok(())),
                Weather::Broken => {
                    (5, Err(AttemptFailure::Later { answer: ReceiverAnswer::new(Some(500), ""), wish_ms: None }))
                }
                Weather::Gone => (2, Err(AttemptFailure::Gone(ReceiverAnswer::new(Some(410), "")))),
            };
            tokio::time::sleep(Duration::from_millis(takes_ms)).await;
            if outcome.is_ok() && !dead.load(Ordering::Acquire) {
                ledger.0.lock().unwrap()[at].taken = true;
            }
            outcome
        })
    }
}
