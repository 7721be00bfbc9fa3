//! The way out of one node: receivers that take events, refuse them or do not answer, and the listener for dead letters.
//! Never judges what arrives: it is written down. Called by the driver.

use std::{sync::Arc, time::Duration};

use fencepost::dispatch::{Alarm, Delivery, Sink};
use fencepost_kernel::{
    LaneId,
    dispatch::{Transport, WarehouseTransport},
    lane::{AttemptFailure, DeadLetter, DeadLetterReason, Pause, ReceiverAnswer, Trouble},
};
use futures::future::{BoxFuture, pending, ready};
use tokio::time::sleep;

use super::{Lanes, body_of, lock, weather::Weather};
use crate::{
    client::CrashSignal,
    history::{
        HistoryStamp,
        lanes::{Said, Sending},
    },
    hold::Gate,
    plant::Plant,
    recorder::Recorder,
};

/// The way out of one node.
pub(crate) struct Receivers {
    pub(crate) lanes: Arc<Lanes>,
    pub(crate) recorder: Arc<Recorder>,
    /// The node, and its run.
    pub(crate) node: (usize, usize),
    /// Whether it has the store to itself.
    pub(crate) alone: bool,
    pub(crate) gate: Arc<Gate>,
    pub(crate) death: Arc<CrashSignal>,
    pub(crate) plant: Option<Plant>,
}

impl Receivers {
    /// A number for what is drawn for this node.
    pub(super) fn seed(&self) -> u64 {
        (self.node.0 * 31 + self.node.1) as u64
    }

    fn weather(&self, warehouse: &str) -> Weather {
        let number = self.lanes.warehouses.iter().position(|known| known.name == warehouse).unwrap_or_default();
        lock(&self.lanes.forecast).at(number, self.lanes.clocks.elapsed_ms())
    }
}

fn later(status: Option<u16>, wish_ms: Option<u64>) -> Result<(), AttemptFailure> {
    Err(AttemptFailure::Later { answer: ReceiverAnswer::new(status, ""), wish_ms })
}

impl Sink for Receivers {
    fn host(&self, transport: &WarehouseTransport) -> String {
        match &transport.transport {
            Transport::Webhook(webhook) => webhook.url.clone(),
            other => other.name().to_owned(),
        }
    }

    fn deliver(&self, delivery: Delivery) -> BoxFuture<'static, Result<(), AttemptFailure>> {
        if self.death.has_happened() {
            return Box::pin(pending());
        }
        let (entry, attempt) = (&delivery.entry, delivery.attempt);
        if self.plant == Some(Plant::NeverSent) && delivery.seq.is_multiple_of(3) {
            return Box::pin(ready(Ok(())));
        }
        let weather = self.weather(&entry.subject);
        let id = entry.correlation_id.clone();
        let place = self.recorder.sending(Sending {
            node: self.node,
            alone: self.alone,
            lane: delivery.lane.to_string(),
            seq: delivery.seq,
            redrive: delivery.redrive(),
            intact: (0..2).any(|body| entry.body == body_of(&id, body)),
            id,
            began: HistoryStamp { line: 0, at: 0 },
            ended: None,
            said: None,
        });
        let (recorder, gate, death) = (self.recorder.clone(), self.gate.clone(), self.death.clone());
        let timeout_ms = self.lanes.timeout_ms;
        Box::pin(async move {
            let (takes_ms, said, heard_ms, outcome) = match weather {
                Weather::Up => (1, Said::Yes, 1, Ok(())),
                Weather::Slow(ms) => (ms, Said::Yes, 1, Ok(())),
                Weather::Flaky if attempt % 2 == 0 => (20, Said::Yes, 1, Ok(())),
                Weather::Flaky | Weather::Broken => (5, Said::Later { wish_ms: 0 }, 1, later(Some(500), None)),
                Weather::Busy(wish_ms) => (3, Said::Later { wish_ms }, 1, later(Some(429), Some(wish_ms))),
                Weather::Silent => (timeout_ms, Said::Later { wish_ms: 0 }, 0, later(None, None)),
                Weather::Deaf => (5, Said::YesUnheard, timeout_ms, later(None, None)),
                Weather::Away => (2, Said::Away, 0, Err(AttemptFailure::Away(ReceiverAnswer::new(None, "no broker")))),
                Weather::Gone => (2, Said::Gone, 1, Err(AttemptFailure::Gone(ReceiverAnswer::new(Some(410), "")))),
                Weather::TooLarge => {
                    let never = AttemptFailure::Never(ReceiverAnswer::new(Some(413), ""), DeadLetterReason::TooLarge);
                    (1, Said::Never, 1, Err(never))
                }
            };
            sleep(Duration::from_millis(takes_ms)).await;
            recorder.received(place, said);
            sleep(Duration::from_millis(heard_ms)).await;
            gate.opened().await;
            if death.has_happened() {
                pending::<()>().await;
            }
            outcome
        })
    }
}

impl Alarm for Receivers {
    fn died(&self, _: &str, (lane, seq): (LaneId, u64), letter: &DeadLetter) {
        if !self.death.has_happened() {
            let (id, reason) = (&letter.entry.correlation_id, letter.reason.name());
            self.recorder.died(&self.lanes.lane_name(lane), seq, id, reason);
        }
    }

    fn blocked(&self, _: &str, _: u64, _: &Trouble) {
        self.recorder.tally("told_of_long_failure");
    }

    fn halted(&self, _: &str, _: u64, _: &Pause, _: Option<&Trouble>) {
        self.recorder.tally("told_of_receivers_pause");
    }

    fn key_missing(&self, _: &str, _: &str) {}

    fn attempted(&self, _: &str, _: Result<(), &AttemptFailure>, _: Duration) {}

    fn failed(&self, _: &str, _: u64, _: &Trouble, _: Option<&Pause>) {}
}
