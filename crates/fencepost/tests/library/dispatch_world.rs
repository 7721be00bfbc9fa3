//! Dispatch under virtual time: the real engine over the memory store, the real driver, and a clock that follows
//! Tokio's paused one. Never waits for real. A node dies like a process: at once, and with whatever it was doing.

use std::{sync::Arc, time::Duration};

use bytes::Bytes;
use fencepost::{
    clock::Clock,
    dispatch::{Alarm, Dispatch, DriverSettings, Publication, SCOPE, Sink, Vault},
    engine::{Engine, EngineLimits},
    kernel::{
        LaneId, Millis, Reply, Scope, Tenant,
        dispatch::{Transport, WarehouseTransport, Webhook},
        fence::body::Body,
        json,
        lane::{Act, AfterDead},
    },
    store::Store,
};
use tokio::{task::AbortHandle, time::Instant};

pub const SECOND_MS: u64 = 1_000;
pub const HOUR_MS: u64 = 3_600 * SECOND_MS;
pub const DAY_MS: u64 = 24 * HOUR_MS;
const EPOCH_MS: u64 = 1_700_000_000_000;

/// Virtual time, as the engine reads it.
pub struct Virtual {
    begin: Instant,
}

impl Virtual {
    pub fn new() -> Arc<Self> {
        Arc::new(Self { begin: Instant::now() })
    }

    pub fn now(&self) -> Millis {
        Millis(EPOCH_MS + self.begin.elapsed().as_millis() as u64)
    }
}

impl Clock for Virtual {
    fn wall_ms(&self) -> u64 {
        EPOCH_MS + self.monotonic_ms()
    }

    fn monotonic_ms(&self) -> u64 {
        self.begin.elapsed().as_millis() as u64
    }
}

/// Runs a future where time passes only when nobody has anything to do.
pub fn in_virtual_time<T>(future: impl Future<Output = T>) -> T {
    let runtime = tokio::runtime::Builder::new_current_thread().enable_time().start_paused(true).build().unwrap();
    runtime.block_on(future)
}

pub async fn pass(span_ms: u64) {
    tokio::time::sleep(Duration::from_millis(span_ms)).await;
}

/// One process.
pub struct Node {
    pub dispatch: Dispatch,
    commit_loop: AbortHandle,
}

impl Node {
    pub async fn start(
        store: Arc<dyn Store>,
        clock: Arc<Virtual>,
        sink: Arc<dyn Sink>,
        alarm: Arc<dyn Alarm>,
        settings: DriverSettings,
        first_commit_id: u64,
    ) -> Self {
        Self::with_vault(Vault::fixed([7; 32]).into(), store, clock, sink, alarm, settings, first_commit_id).await
    }

    pub async fn with_vault(
        vault: Arc<Vault>,
        store: Arc<dyn Store>,
        clock: Arc<Virtual>,
        sink: Arc<dyn Sink>,
        alarm: Arc<dyn Alarm>,
        settings: DriverSettings,
        first_commit_id: u64,
    ) -> Self {
        let limits = EngineLimits { first_commit_id: Some(first_commit_id), ..EngineLimits::default() };
        let (engine, commit_loop) = Engine::new(store, clock, limits, Box::new(()), None).await.unwrap();
        let commit_loop = tokio::spawn(commit_loop).abort_handle();
        let scope = Scope { retain_ms: 30 * DAY_MS, ..Scope::new(SCOPE, ["correlation_id"]) };
        let dispatch = Dispatch::start(engine, scope.into(), vault, sink, alarm, settings).await.unwrap();
        Self { dispatch, commit_loop }
    }

    /// Nothing is recorded any more, whatever was under way.
    pub fn crash(self) {
        self.commit_loop.abort();
        self.dispatch.stop();
    }

    pub async fn route(&self, warehouse: &str, host: &str, after_dead: AfterDead) {
        let reply = self.dispatch.put_transport(route(warehouse, host, after_dead), None).await.unwrap();
        assert_eq!(reply.decision(), "routed");
    }

    pub async fn publish(&self, warehouse: &str, id: &str, cancels: Option<&str>) -> Reply {
        let body = format!(r#"{{"id":"{id}"}}"#);
        let publication = Publication {
            planner: planner(),
            correlation_id: id.to_owned(),
            kind: if cancels.is_some() { "CANCELLED" } else { "SHIPPER_RELEASED" }.to_owned(),
            warehouse: warehouse.to_owned(),
            compared: Body::json(&json::parse(body.as_bytes()).unwrap(), &[]),
            body: Bytes::from(body),
            cancels: cancels.map(str::to_owned),
        };
        self.dispatch.publish(vec![publication]).await.unwrap().pop().unwrap()
    }

    pub async fn pause(&self, lane: LaneId) {
        self.dispatch.act(lane, Act::Pause { by: "ada".into(), why: "tests".into() }).await.unwrap();
    }

    pub async fn resume(&self, lane: LaneId) {
        self.dispatch.act(lane, Act::Resume).await.unwrap();
    }
}

pub fn planner() -> Tenant {
    Tenant::new("acme")
}

pub fn lane_of(warehouse: &str) -> LaneId {
    LaneId::warehouse(&planner(), warehouse)
}

pub fn route(warehouse: &str, host: &str, after_dead: AfterDead) -> WarehouseTransport {
    WarehouseTransport {
        planner: planner(),
        warehouse: warehouse.to_owned(),
        executor: "wes".to_owned(),
        transport: Transport::Webhook(Webhook { url: host.to_owned(), secrets: Vec::new(), standard: false }),
        after_dead,
        receiver_retain_ms: 7 * DAY_MS,
        at: Millis(0),
    }
}

/// The host of a route that `route` made.
pub fn host_of(route: &WarehouseTransport) -> String {
    match &route.transport {
        Transport::Webhook(webhook) => webhook.url.clone(),
        other => panic!("not made here: {other:?}"),
    }
}
