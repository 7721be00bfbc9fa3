//! Lanes in the store of `world`: one planner, its warehouses, and commands about them in a few words.
//! Never decides anything. Used by the tables and properties of dispatch.

use std::sync::Arc;

use bytes::Bytes;
use fencepost_kernel::{
    Command, LaneId, Millis, Reply, RowKey, Scope, Tenant,
    dispatch::{
        self, LetterVerdict, OnLetter, Original, Publish, PutTransport, Transport, WarehouseTransport, Webhook,
    },
    fence::{ClaimFence, Target},
    lane::{
        self, Act, AfterDead, AttemptFailure, DeadLetter, Entry, Lane, Members, OnLane, ReceiverAnswer, retry::Chance,
    },
    row::Record,
};

use super::world::{START, World, body};

pub const SECOND_MS: u64 = 1_000;
pub const HOUR_MS: u64 = 3_600 * SECOND_MS;
pub const DAY_MS: u64 = 24 * HOUR_MS;
/// The first epoch of a lane whose first event comes at once.
pub const FIRST: u64 = START.0;
/// How long publications are fenced.
pub const FENCED_MS: u64 = 30 * DAY_MS;
/// How long receivers remember.
pub const RECEIVER_RETAIN_MS: u64 = 7 * DAY_MS;
/// The warehouse most tests are about.
pub const HOME: &str = "w1";

/// A world with one route, to `HOME`.
#[derive(Clone)]
pub struct Floor {
    pub world: World,
    pub members: Arc<Members>,
    pub after_dead: AfterDead,
    /// The lane that `ack`, `fail` and the like are about.
    pub at: LaneId,
    /// How far pollers were served, where somebody knows.
    pub served: Option<u64>,
    pub chance: u32,
}

pub fn planner() -> Tenant {
    Tenant::new("acme")
}

pub fn home() -> LaneId {
    LaneId::warehouse(&planner(), HOME)
}

pub fn webhook(url: &str) -> Transport {
    Transport::Webhook(Webhook { url: url.into(), secrets: vec![Bytes::from_static(b"sealed")], standard: false })
}

pub fn route(warehouse: &str, transport: Transport) -> WarehouseTransport {
    WarehouseTransport {
        planner: planner(),
        warehouse: warehouse.into(),
        executor: "wes".into(),
        transport,
        after_dead: AfterDead::Continue,
        receiver_retain_ms: RECEIVER_RETAIN_MS,
        at: Millis(0),
    }
}

fn target(id: &str) -> Target {
    let scope = Scope { retain_ms: FENCED_MS, ..Scope::new("WES_DISPATCH", ["correlation_id"]) };
    Target::new(planner(), scope.into(), vec![("correlation_id".into(), id.into())], None).unwrap()
}

pub fn later() -> AttemptFailure {
    AttemptFailure::Later { answer: ReceiverAnswer::new(Some(500), "broken"), wish_ms: None }
}

pub fn redrive() -> LetterVerdict {
    LetterVerdict::Redrive { force: None }
}

pub fn discard() -> LetterVerdict {
    LetterVerdict::Discard { why: "obsolete".into() }
}

impl Floor {
    pub fn new() -> Self {
        Self::with(webhook("https://one.example"))
    }

    pub fn with(transport: Transport) -> Self {
        let mut floor = Self {
            world: World::new(),
            members: Arc::default(),
            after_dead: AfterDead::Continue,
            at: route(HOME, transport.clone()).lane(),
            served: None,
            chance: 0,
        };
        assert_eq!(floor.put(route(HOME, transport)).decision(), "routed");
        floor
    }

    /// The same with events `e1` to `en` published to `HOME`.
    pub fn holding(count: u64) -> Self {
        let mut floor = Self::new();
        floor.fill(count);
        floor
    }

    pub fn fill(&mut self, count: u64) {
        for n in 1..=count {
            assert_eq!(self.publish(&format!("e{n}")).decision(), "published");
        }
    }

    pub fn put(&mut self, route: WarehouseTransport) -> Reply {
        self.put_seen(route, None)
    }

    pub fn put_seen(&mut self, route: WarehouseTransport, seen_to: Option<u64>) -> Reply {
        self.world.run(&Command::Dispatch(dispatch::Command::PutTransport(Box::new(PutTransport {
            transport: route,
            seen_to,
            over: None,
        }))))
    }

    pub fn publication(&self, warehouse: &str, id: &str, text: &str, cancels: Option<&str>) -> Command {
        let target_of = target(id);
        let claim =
            ClaimFence { target: target_of, body: body(text), version: None, source: None, lease_ms: 1, trace: None };
        let entry = Entry {
            correlation_id: id.into(),
            kind: "SHIPPER_RELEASED".into(),
            subject: warehouse.into(),
            body: Bytes::copy_from_slice(text.as_bytes()),
            published: Millis(0),
            redrive_of: None,
        };
        let (cancels, members) = (cancels.map(target), self.members.clone());
        Command::Dispatch(dispatch::Command::Publish(Box::new(Publish {
            claim,
            entry: entry.into(),
            cancels,
            members,
            served: self.served,
        })))
    }

    pub fn publish_to(&mut self, warehouse: &str, id: &str) -> Reply {
        self.world.run(&self.publication(warehouse, id, r#"{"n":1}"#, None))
    }

    pub fn publish(&mut self, id: &str) -> Reply {
        self.publish_to(HOME, id)
    }

    /// Publishes a cancellation under an id of its own, and says what it hears.
    pub fn cancel_as(&mut self, id: &str, original: &str) -> &'static str {
        match self.world.run(&self.publication(HOME, id, r#"{"n":1}"#, Some(original))) {
            Reply::Dispatch(dispatch::Reply::Published {
                publication: dispatch::PublishReceipt { original: told, .. },
                ..
            }) => told.map_or("nothing", Original::name),
            other => other.decision(),
        }
    }

    pub fn cancel(&mut self, original: &str) -> &'static str {
        self.cancel_as(&format!("cancel-{original}"), original)
    }

    pub fn on_lane(&self, act: Act) -> Command {
        Command::Lane(lane::Command::Act(Box::new(OnLane { lane: self.at, act })))
    }

    pub fn act(&mut self, act: Act) -> Reply {
        let command = self.on_lane(act);
        self.world.run(&command)
    }

    /// The driver says that the head was received.
    pub fn ack(&mut self) -> Reply {
        let lane = self.lane();
        self.act(Act::Ack { upto: lane.settled + 1, epoch: Some(lane.owner.epoch) })
    }

    /// A poller says how far it has come.
    pub fn poll_ack(&mut self, upto: u64) -> Reply {
        self.act(Act::Ack { upto, epoch: None })
    }

    /// The driver says that an attempt at the head, which began and ended just now, failed.
    pub fn fail(&mut self, failure: AttemptFailure) -> Reply {
        self.fail_since(self.world.now, failure)
    }

    pub fn fail_since(&mut self, began: Millis, failure: AttemptFailure) -> Reply {
        let lane = self.lane();
        self.act(Act::Fail {
            seq: lane.settled + 1,
            epoch: lane.owner.epoch,
            began,
            failure,
            after_dead: self.after_dead,
            chance: Chance(self.chance),
        })
    }

    /// The head is tried on schedule, fails each time, and dies.
    pub fn die(&mut self) -> Arc<DeadLetter> {
        loop {
            match self.fail(later()) {
                Reply::Lane(lane::Reply::OnLane { died: Some(letter), .. }) => return letter,
                Reply::Lane(lane::Reply::OnLane { lane, .. }) => self.world.now = lane.trouble.clone().unwrap().next_at,
                other => panic!("a failure of the head was answered with {other:?}"),
            }
        }
    }

    pub fn pause(&mut self) -> Reply {
        self.act(Act::Pause { by: "ada".into(), why: "they asked".into() })
    }

    pub fn skip(&mut self, seq: u64) -> Reply {
        self.act(Act::Skip { seq, by: "ada".into() })
    }

    pub fn decide_letter(&mut self, seq: u64, verdict: LetterVerdict) -> Reply {
        let on = OnLetter { lane: self.at, seq, verdict, by: "ada".into(), members: self.members.clone() };
        self.world.run(&Command::Dispatch(dispatch::Command::Letter(Box::new(on))))
    }

    pub fn lane(&self) -> Lane {
        match self.world.record(RowKey::lane(self.at)) {
            Some(Record::Lane(lane::Record::Lane(lane))) => Lane::clone(lane),
            other => panic!("a lane's row holds {other:?}"),
        }
    }

    /// The route of `HOME`.
    pub fn route(&self) -> Arc<WarehouseTransport> {
        match self.world.record(RowKey::transport(&planner(), HOME)) {
            Some(Record::Dispatch(dispatch::Record::Transport(route))) => route.clone(),
            other => panic!("a route's row holds {other:?}"),
        }
    }

    pub fn tail(&self) -> u64 {
        match self.world.record(RowKey::tail(self.at)) {
            Some(Record::Lane(lane::Record::Tail(tail))) => tail.last,
            _ => 0,
        }
    }

    pub fn entry(&self, seq: u64) -> Option<Entry> {
        match self.world.record(RowKey::entry(self.at, seq))? {
            Record::Lane(lane::Record::Entry(entry)) => Some(Entry::clone(entry)),
            other => panic!("an entry's row holds {other:?}"),
        }
    }

    pub fn letter(&self, seq: u64) -> Option<DeadLetter> {
        match self.world.record(RowKey::dead_letter(self.at, seq))? {
            Record::Lane(lane::Record::DeadLetter(letter)) => Some(DeadLetter::clone(letter)),
            other => panic!("a letter's row holds {other:?}"),
        }
    }

    /// Which event is at the head.
    pub fn head(&self) -> Option<String> {
        self.entry(self.lane().settled + 1).map(|entry| entry.correlation_id)
    }

    /// The state of the lane: settled positions, of how many, and its trouble.
    pub fn progress(&self) -> String {
        let lane = self.lane();
        let word = |on: bool, word: &'static str| if on { word } else { "" };
        format!(
            "{}/{}{}{}{}",
            lane.settled,
            self.tail(),
            word(lane.trouble.is_some(), " troubled"),
            word(lane.paused.is_some(), " paused"),
            word(lane.blocked, " blocked"),
        )
    }
}

/// A reply in a few words.
pub fn said(reply: &Reply) -> String {
    match reply {
        Reply::Lane(lane::Reply::OnLane { replay, died, .. }) => {
            format!("lane{}{}", if *replay { " again" } else { "" }, if died.is_some() { " died" } else { "" })
        }
        Reply::Dispatch(dispatch::Reply::Letter { letter, replay }) => {
            format!("{}{}", letter.fate.name(), if *replay { " again" } else { "" })
        }
        Reply::Dispatch(dispatch::Reply::TransportPut { replay }) => {
            format!("routed{}", if *replay { " again" } else { "" })
        }
        Reply::Dispatch(dispatch::Reply::Published { publication: dispatch::PublishReceipt { seq, .. }, .. }) => {
            format!("published {seq}")
        }
        other => other.decision().to_owned(),
    }
}
