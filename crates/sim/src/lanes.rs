//! The lanes of one world: its warehouses, how their receivers fare, and the way out of each node. In half of all worlds.
//! Never looks inside the driver: it starts one over an engine and is called by it.
//! Drawn by `world`; `nodes` starts a driver for each node.

mod in_transaction;
mod person;
mod poller;
mod publisher;
mod receivers;
mod weather;

use std::{
    collections::BTreeMap,
    sync::{Arc, Mutex, PoisonError},
};

use bytes::Bytes;
use fencepost::{
    dispatch::{Dispatch, DriverSettings, Publication, SCOPE, Vault},
    engine::{Engine, Error},
};
use fencepost_kernel::{
    Command, LaneId, Millis, Scope, Tenant,
    dispatch::{self, Publish, Transport, WarehouseTransport, Webhook},
    fence::{ClaimFence, Source, Target, body::Body},
    json,
    key::Kind,
    lane::{AfterDead, Entry, Fate, LanePurpose, Members},
};
use fencepost_store::{Memory, Store};
use futures::FutureExt;

use self::weather::Forecast;
pub(crate) use self::{
    in_transaction::publish_in,
    person::{pause_some, person, visit},
    poller::poller,
    publisher::{publish, publisher},
    receivers::Receivers,
};
use crate::{
    clock::Clocks,
    history::lanes::{LaneLeft, LetterLeft},
};

const PLANNER: &str = "acme";
const EXECUTOR: &str = "wes";
const DAY_MS: u64 = 24 * 3_600_000;

/// The lanes of one world, and what was published into them.
pub(crate) struct Lanes {
    clocks: Arc<Clocks>,
    warehouses: Vec<Warehouse>,
    names: Vec<(LaneId, String)>,
    forecast: Mutex<Forecast>,
    events: Mutex<Vec<Event>>,
    scope: Arc<Scope>,
    vault: Arc<Vault>,
    /// After so long a receiver that does not answer is given up.
    timeout_ms: u64,
}

/// Where events go.
struct Warehouse {
    name: String,
    polled: bool,
    block: bool,
}

impl Warehouse {
    fn lane(&self) -> LanePurpose {
        if self.polled { LanePurpose::executor(EXECUTOR) } else { LanePurpose::warehouse(&self.name) }
    }
}

/// Something that was to be published, whether it was or not.
#[derive(Clone)]
struct Event {
    id: String,
    warehouse: usize,
    cancels: Option<String>,
}

impl Lanes {
    pub(crate) fn draw(rng: &mut fastrand::Rng, clocks: Arc<Clocks>) -> Self {
        let count = rng.usize(1..=4);
        let warehouse =
            |number| Warehouse { name: format!("w{number}"), polled: rng.u8(0..4) == 0, block: rng.u8(0..3) == 0 };
        let warehouses: Vec<Warehouse> = (0..count).map(warehouse).collect();
        let names = warehouses.iter().map(Warehouse::lane);
        let names = names.map(|place| (place.lane(&planner()), place.name(&planner()))).collect();
        let scope = Scope { retain_ms: 30 * DAY_MS, ..Scope::new(SCOPE, ["correlation_id"]) };
        Self {
            clocks,
            forecast: Mutex::new(Forecast::draw(count, rng.fork())),
            warehouses,
            names,
            events: Mutex::default(),
            scope: scope.into(),
            vault: Vault::fixed([7; 32]).into(),
            timeout_ms: [1_500, 15_000][rng.usize(0..2)],
        }
    }

    /// A driver for a node; its name is empty where it has the store to itself.
    pub(crate) async fn drive(&self, engine: Engine, node: String, way_out: Receivers) -> Result<Dispatch, Error> {
        let mut rng = fastrand::Rng::with_seed(way_out.seed());
        let (in_flight_max, per_host_max) = (rng.usize(1..8), rng.usize(1..5));
        let settings = DriverSettings { node, in_flight_max, per_host_max, ..DriverSettings::default() };
        let way_out = Arc::new(way_out);
        let (scope, vault) = (self.scope.clone(), self.vault.clone());
        Dispatch::start(engine, scope, vault, way_out.clone(), way_out, settings).await
    }

    /// Whether some warehouse polls.
    pub(crate) fn any_polled(&self) -> bool {
        self.warehouses.iter().any(|warehouse| warehouse.polled)
    }

    /// Receivers fare by the hour from now on.
    pub(crate) fn days_begin(&self) {
        lock(&self.forecast).by_the_hour();
    }

    /// Receivers are well from now on.
    pub(crate) fn heal(&self) {
        lock(&self.forecast).heal();
    }

    fn transports(&self) -> impl Iterator<Item = WarehouseTransport> {
        self.warehouses.iter().enumerate().map(|(number, warehouse)| {
            let host = format!("host{}", number % 2);
            let webhook = || Transport::Webhook(Webhook { url: host, secrets: Vec::new(), standard: false });
            WarehouseTransport {
                planner: planner(),
                warehouse: warehouse.name.clone(),
                executor: EXECUTOR.to_owned(),
                transport: if warehouse.polled { Transport::Poll } else { webhook() },
                after_dead: if warehouse.block { AfterDead::Block } else { AfterDead::Continue },
                receiver_retain_ms: 7 * DAY_MS,
                at: Millis(0),
            }
        })
    }

    fn place(&self, warehouse: usize) -> LanePurpose {
        self.warehouses[warehouse].lane()
    }

    fn some_lane(&self, rng: &mut fastrand::Rng) -> LanePurpose {
        self.place(rng.usize(0..self.warehouses.len()))
    }

    /// The name of a lane of this world.
    fn lane_name(&self, lane: LaneId) -> String {
        let known = self.names.iter().find(|(id, _)| *id == lane);
        known.map_or_else(|| "foreign".to_owned(), |(_, name)| name.clone())
    }

    fn publication(&self, event: &Event, body: u8) -> Publication {
        let bytes = body_of(&event.id, body);
        let compared = json::parse(&bytes).map_or_else(|_| Body::opaque(&bytes), |node| Body::json(&node, &[]));
        Publication {
            planner: planner(),
            correlation_id: event.id.clone(),
            kind: if event.cancels.is_some() { "CANCELLED" } else { "SHIPPER_RELEASED" }.to_owned(),
            warehouse: self.warehouses[event.warehouse].name.clone(),
            compared,
            body: bytes,
            cancels: event.cancels.clone(),
        }
    }

    // The same as a command, for a transaction of the user's.
    fn command(&self, event: &Event, body: u8, members: Members) -> Option<Command> {
        let target = |id: &str| {
            let fields = vec![("correlation_id".to_owned(), id.to_owned())];
            Target::new(planner(), self.scope.clone(), fields, None).ok()
        };
        let Publication { correlation_id, kind, warehouse, compared, body, .. } = self.publication(event, body);
        let cancels = match &event.cancels {
            Some(original) => Some(target(original)?),
            None => None,
        };
        let source = Some(Source { kind: kind.clone(), id: warehouse.clone() });
        let target = target(&correlation_id)?;
        let claim = ClaimFence { target, body: Some(compared), version: None, source, lease_ms: 1, trace: None };
        let published = Millis(0);
        let entry = Entry { correlation_id, kind, subject: warehouse, body, published, redrive_of: None }.into();
        let publish = Publish { claim, entry, cancels, members: members.into(), served: None };
        Some(dispatch::Command::Publish(publish.into()).into())
    }

    /// Every lane, as its rows tell it.
    pub(crate) fn left(&self, rows: &Memory) -> BTreeMap<String, LaneLeft> {
        let scan = |kind| rows.scan(kind, None, usize::MAX).now_or_never().and_then(Result::ok).unwrap_or_default();
        let mut left: BTreeMap<String, LaneLeft> = BTreeMap::new();
        for (_, row) in scan(Kind::Lane) {
            let Some(lane) = row.record.as_lane() else { continue };
            let known = left.entry(lane.name()).or_default();
            (known.polled, known.settled, known.stands) = (lane.purpose.is_polled(), lane.settled, lane.is_halted());
            known.retrying = lane.trouble.is_some();
        }
        for (key, row) in scan(Kind::Tail) {
            let lane = left.entry(self.lane_name(key.place().0)).or_default();
            lane.tail = row.record.as_tail().map_or(0, |tail| tail.last);
        }
        for (key, row) in scan(Kind::Entry) {
            let ((lane, seq), Some(entry)) = (key.place(), row.record.as_entry()) else { continue };
            left.entry(self.lane_name(lane)).or_default().entries.insert(seq, entry.correlation_id.clone());
        }
        for (key, row) in scan(Kind::DeadLetter) {
            let ((lane, seq), Some(letter)) = (key.place(), row.record.as_dead_letter()) else { continue };
            let redriven_to = if let Fate::Redriven { seq, .. } = letter.fate { Some(seq) } else { None };
            let told = LetterLeft {
                id: letter.entry.correlation_id.clone(),
                reason: letter.reason.name(),
                fate: letter.fate.name(),
                redriven_to,
                home: letter.purpose.name(&letter.tenant),
            };
            left.entry(self.lane_name(lane)).or_default().letters.insert(seq, told);
        }
        left
    }
}

fn planner() -> Tenant {
    Tenant::new(PLANNER)
}

/// The bytes of an event; each has several, of which its publisher should use one.
fn body_of(id: &str, body: u8) -> Bytes {
    format!(r#"{{"id":"{id}","body":{body}}}"#).into()
}

fn lock<T>(mutex: &Mutex<T>) -> std::sync::MutexGuard<'_, T> {
    mutex.lock().unwrap_or_else(PoisonError::into_inner)
}
