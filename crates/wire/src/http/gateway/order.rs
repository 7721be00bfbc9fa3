//! Lets one event per source through at a time. Events that wait leave in the order that the rule names.
//! Never waits for an event that has not arrived, and never orders across nodes. Called by the gateway.

use std::{
    collections::{BTreeMap, HashMap},
    sync::{Arc, Mutex, MutexGuard, PoisonError},
    time::Duration,
};

use fencepost_kernel::Tenant;
use tokio::sync::oneshot;

/// How many events of one source may wait.
const WAITING_MAX: usize = 1_000;

/// The events that are ordered together: those of one rule, tenant and source. Three parts, never one joined text: ids
/// may contain any separator.
pub(super) type Lane = (Arc<str>, Tenant, String);

/// The order of events: whole numbers by their size, before any text; text by its bytes.
#[derive(Clone, PartialEq, Eq, PartialOrd, Ord, Debug)]
pub(super) enum Rank {
    Number(i128),
    Text(String),
}

impl Rank {
    pub(super) fn of(value: String) -> Self {
        value.parse().map_or(Self::Text(value), Self::Number)
    }
}

/// The sources that have an event in flight, each with the events that wait.
#[derive(Clone, Default)]
pub(super) struct Queues(Arc<Mutex<Lanes>>);

#[derive(Default)]
struct Lanes {
    arrived: u64,
    busy: HashMap<Lane, BTreeMap<(Rank, u64), oneshot::Sender<SourceTurn>>>,
}

/// The right to be the one event of its source in flight. Dropping it gives the turn to the next event.
pub(super) struct SourceTurn {
    queues: Queues,
    lane: Option<Lane>,
}

/// Why an event got no turn.
#[derive(Debug, PartialEq, Eq)]
pub(super) enum NoTurn {
    /// Too many wait already.
    Full,
    /// The events before it took too long.
    Late,
}

impl Queues {
    /// Waits until no event of the source is under way and none that waits comes before this one.
    pub(super) async fn turn(&self, lane: Lane, rank: Rank, patience: Duration) -> Result<SourceTurn, NoTurn> {
        let (place, mut turn) = {
            let mut lanes = self.lock();
            lanes.arrived += 1;
            let place = (rank, lanes.arrived);
            let Some(waiting) = lanes.busy.get_mut(&lane) else {
                lanes.busy.insert(lane.clone(), BTreeMap::new());
                return Ok(SourceTurn { queues: self.clone(), lane: Some(lane) });
            };
            if waiting.len() >= WAITING_MAX {
                return Err(NoTurn::Full);
            }
            let (give, turn) = oneshot::channel();
            waiting.insert(place.clone(), give);
            (place, turn)
        };
        // Leaves the queue also when this future is dropped: no turn may go to an event that is gone.
        let _leave = LeaveQueueOnDrop { queues: self, lane: &lane, place: &place };
        match tokio::time::timeout(patience, &mut turn).await {
            Ok(Ok(turn)) => Ok(turn),
            // A turn may be sent just as the time runs out: it is taken, and not lost with the channel.
            Err(_) => turn.try_recv().map_err(|_| NoTurn::Late),
            Ok(Err(_)) => Err(NoTurn::Late),
        }
    }

    fn lock(&self) -> MutexGuard<'_, Lanes> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

struct LeaveQueueOnDrop<'q> {
    queues: &'q Queues,
    lane: &'q Lane,
    place: &'q (Rank, u64),
}

impl Drop for LeaveQueueOnDrop<'_> {
    fn drop(&mut self) {
        if let Some(waiting) = self.queues.lock().busy.get_mut(self.lane) {
            waiting.remove(self.place);
        }
    }
}

impl Drop for SourceTurn {
    fn drop(&mut self) {
        let Some(lane) = self.lane.take() else { return };
        loop {
            let next = {
                let mut lanes = self.queues.lock();
                match lanes.busy.get_mut(&lane).and_then(BTreeMap::pop_first) {
                    Some((_, next)) => next,
                    None => {
                        lanes.busy.remove(&lane);
                        return;
                    }
                }
            };
            // A closed channel gives the turn back: without its lane, the drop does nothing and does not recurse.
            match next.send(SourceTurn { queues: self.queues.clone(), lane: Some(lane.clone()) }) {
                Ok(()) => return,
                Err(mut back) => back.lane = None,
            }
        }
    }
}

#[cfg(test)]
#[allow(clippy::unwrap_used)]
mod tests {
    use super::*;

    const LONG: Duration = Duration::from_secs(60);

    fn lane(source: &str) -> Lane {
        ("POST /hooks".into(), Tenant::new("acme"), source.to_owned())
    }

    #[tokio::test(start_paused = true)]
    async fn those_who_wait_leave_in_their_order_and_not_in_that_of_arrival() {
        let queues = Queues::default();
        let first = queues.turn(lane("a"), Rank::of("5".into()), LONG).await.unwrap();
        let (told, mut heard) = tokio::sync::mpsc::unbounded_channel();
        for rank in ["10", "7", "2026-01-01", "6"] {
            let (queues, told) = (queues.clone(), told.clone());
            tokio::spawn(async move {
                let turn = queues.turn(lane("a"), Rank::of(rank.into()), LONG).await.unwrap();
                told.send(rank).unwrap();
                drop(turn);
            });
        }
        tokio::time::sleep(Duration::from_millis(1)).await;
        assert!(heard.try_recv().is_err(), "one is under way");
        drop(first);
        for rank in ["6", "7", "10", "2026-01-01"] {
            assert_eq!(heard.recv().await.unwrap(), rank);
        }
        assert!(queues.lock().busy.is_empty(), "nothing is left behind");
    }

    #[tokio::test(start_paused = true)]
    async fn another_source_does_not_wait_and_who_gives_up_takes_no_turn() {
        let queues = Queues::default();
        let first = queues.turn(lane("a"), Rank::Number(1), LONG).await.unwrap();
        drop(queues.turn(lane("b"), Rank::Number(9), LONG).await.unwrap());
        let late = queues.turn(lane("a"), Rank::Number(2), Duration::from_millis(5)).await;
        assert_eq!(late.err(), Some(NoTurn::Late));
        {
            let (queues, gone) = (queues.clone(), Duration::from_millis(5));
            let left = tokio::spawn(async move { queues.turn(lane("a"), Rank::Number(3), LONG).await.map(drop) });
            tokio::time::sleep(gone).await;
            left.abort();
            let _ = left.await;
        }
        drop(first);
        drop(queues.turn(lane("a"), Rank::Number(4), LONG).await.unwrap());
        assert!(queues.lock().busy.is_empty());
    }

    #[tokio::test(start_paused = true)]
    async fn tenants_whose_ids_and_sources_join_to_one_text_do_not_wait_for_each_other() {
        let queues = Queues::default();
        let lane = |tenant: &str, source: &str| ("POST /hooks".into(), Tenant::new(tenant), source.to_owned());
        let _first = queues.turn(lane("a", "b/c"), Rank::Number(1), LONG).await.unwrap();
        assert!(queues.turn(lane("a/b", "c"), Rank::Number(1), Duration::ZERO).await.is_ok());
        assert!(queues.turn(lane("a", "b/c"), Rank::Number(1), Duration::ZERO).await.is_err());
    }
}
