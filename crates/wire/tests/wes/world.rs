//! Everything behind the routes, with a clock that moves only when told to, and a way out that does as it is told.

use std::{
    io,
    sync::{Arc, Mutex, atomic::Ordering},
};

use axum::body::Body;
use bytes::Bytes;
use fencepost::{
    Fencepost,
    dispatch::{Delivery, Dispatch, DriverSettings, SCOPE, Sink, Vault},
    engine::EngineLimits,
    policy::{
        Policy,
        config::Config,
        identity::{Credential, Directory, Holder, Identity, Role, Sha, Warehouses, dev_holders},
    },
    store::{Node, memory::Memory},
};
use fencepost_kernel::{
    Millis,
    dispatch::WarehouseTransport,
    lane::{AttemptFailure, ReceiverAnswer as Said},
};
use fencepost_rig::contract::{self, Answered};
use fencepost_testkit::{clock::ManualClock, until_async};
use fencepost_wire::{
    http::{App, Listener, Routes, policy::PolicyOrigin},
    log::{Level, Log},
    metrics::Metrics,
    sinks::webhook::Egress,
};
use futures::future::BoxFuture;
use http::{HeaderMap, Method, Request};
use http_body_util::BodyExt;
use serde_json::{Value, json};
use tower_service::Service;

pub const PLANNER: &str = "dev-planner";
pub const PLANNER_ID: &str = "fgai-wms";
pub const EXECUTOR: &str = "dev-executor";
pub const ADMIN: &str = "dev-admin";
pub const VIEWER: &str = "viewer";
/// A planner that may act in WH-1 only.
pub const NARROW: &str = "narrow";
/// Another planner.
pub const OTHER: &str = "other";

/// A way out. Says that it cannot just now, until it is told to take what comes.
#[derive(Default)]
pub struct Out {
    pub open: std::sync::atomic::AtomicBool,
    pub taken: Mutex<Vec<(String, u64, Bytes)>>,
}

impl Sink for Out {
    fn host(&self, _: &WarehouseTransport) -> String {
        String::new()
    }

    fn deliver(&self, delivery: Delivery) -> BoxFuture<'static, Result<(), AttemptFailure>> {
        let taken = self.open.load(Ordering::SeqCst);
        if taken {
            let body = delivery.entry.body.clone();
            self.taken.lock().unwrap().push((delivery.lane.to_string(), delivery.seq, body));
        }
        let refusal = AttemptFailure::Later { answer: Said::new(Some(503), "not now"), wish_ms: None };
        Box::pin(std::future::ready(if taken { Ok(()) } else { Err(refusal) }))
    }
}

pub struct Answer {
    pub status: u16,
    pub headers: HeaderMap,
    pub text: Bytes,
    pub json: Value,
}

impl Answer {
    pub fn header(&self, name: &str) -> Option<&str> {
        self.headers.get(name).map(|value| value.to_str().unwrap())
    }

    #[track_caller]
    pub fn is(self, status: u16) -> Self {
        assert_eq!(self.status, status, "{}", self.json);
        self
    }

    /// A refusal of this kind, with everything that one must have.
    #[track_caller]
    pub fn refused(self, status: u16, code: &str) -> Self {
        let answer = self.is(status);
        assert_eq!(answer.json["code"], code, "{}", answer.json);
        assert_eq!(answer.json["status"], status);
        assert_eq!(answer.header("content-type"), Some("application/problem+json"));
        assert_eq!(answer.json["trace_id"].as_str().unwrap().len(), 32);
        answer
    }
}

pub struct World {
    routes: Routes,
    pub dispatch: Dispatch,
    pub clock: Arc<ManualClock>,
    pub out: Arc<Out>,
}

fn holder(token: &str, id: &str, role: Role, warehouses: Warehouses) -> Holder {
    Holder {
        identity: Identity::new(id, [role], warehouses),
        tokens: vec![Credential { sha: Sha::of(token), created_ms: None, expires_ms: None }],
        certificates: Vec::new(),
    }
}

pub fn holders() -> Vec<Holder> {
    let mut all = dev_holders();
    all.push(holder(VIEWER, "watcher", Role::Viewer, Warehouses::All));
    all.push(holder(NARROW, "narrow-wms", Role::Planner, Warehouses::Named(["WH-1".to_owned()].into())));
    all.push(holder(OTHER, "other-wms", Role::Planner, Warehouses::All));
    all
}

impl World {
    pub async fn new() -> Self {
        Self::with(holders(), Policy::builtin()).await
    }

    pub async fn with(holders: Vec<Holder>, policy: Policy) -> Self {
        Self::over(Directory::of(holders), policy).await.0
    }

    /// With the application itself, whose directory may change.
    pub async fn over(directory: Directory, policy: Policy) -> (Self, Arc<App>) {
        let clock = ManualClock::at(1_780_000_000_000);
        let (store, limits) = (Arc::new(Memory::default()), EngineLimits::default());
        let fencepost = Fencepost::over(store, clock.clone(), policy, limits, Box::new(()), None);
        let fencepost = fencepost.await.unwrap();
        let scope = fencepost.policy().scope(SCOPE).unwrap().clone();
        let (vault, out) = (Arc::new(Vault::fixed([7; 32])), Arc::new(Out::default()));
        let engine = fencepost.engine().clone();
        let dispatch = Dispatch::start(engine, scope, vault, out.clone(), Arc::new(()), DriverSettings::default());
        let dispatch = dispatch.await.unwrap();
        let node = Node {
            id: String::new(),
            address: String::new(),
            release: String::new(),
            format: 0,
            started: Millis(0),
            seen: Millis(0),
            holds: None,
        };
        let gateway = fencepost_wire::http::gateway::Gateway::new(fencepost.policy()).unwrap();
        let app = App {
            gateway,
            fencepost,
            dispatch: Ok(dispatch.clone()),
            egress: Egress::new(&[], true).unwrap(),
            directory,
            origin: PolicyOrigin::new(Config::default(), Millis(0)),
            metrics: Metrics::default(),
            log: Log::new(Level::Error, io::sink()),
            node,
            store: String::new(),
            slow_runtime: None,
            budget: fencepost_front::Budget::new(256 << 20),
            dev: true,
        };
        let app = Arc::new(app);
        (Self { routes: Routes::new(app.clone(), Listener::Only), dispatch, clock, out }, app)
    }

    pub async fn ask(&self, method: Method, path: &str, token: &str, body: impl Into<Body>) -> Answer {
        self.ask_at(method, &format!("/wes/v1{path}"), token, body).await
    }

    pub async fn ask_at(&self, method: Method, path: &str, token: &str, body: impl Into<Body>) -> Answer {
        let request = Request::builder().method(method.clone()).uri(path);
        let request = request.header("authorization", format!("Bearer {token}")).body(body.into()).unwrap();
        let (head, body) = self.routes.clone().call(request).await.unwrap().into_parts();
        let text = body.collect().await.unwrap().to_bytes();
        let json = serde_json::from_slice(&text).unwrap_or_else(|bad| panic!("{bad}: {text:?}"));
        let (status, method) = (head.status.as_u16(), method.as_str());
        let content_type = head.headers.get("content-type").and_then(|kind| kind.to_str().ok());
        let breaches = contract::breaches(Answered { method, path, status, content_type, body: &text });
        assert!(breaches.is_empty(), "{breaches:#?}\n{json}");
        Answer { status, headers: head.headers, text, json }
    }

    pub async fn get(&self, path: &str, token: &str) -> Answer {
        self.ask(Method::GET, path, token, Body::empty()).await
    }

    pub async fn post(&self, path: &str, token: &str, body: &Value) -> Answer {
        self.ask(Method::POST, path, token, body.to_string()).await
    }

    pub async fn put(&self, path: &str, token: &str, body: &Value) -> Answer {
        self.ask(Method::PUT, path, token, body.to_string()).await
    }

    pub async fn publish(&self, event: &Value) -> Answer {
        self.post("/dispatch/events", PLANNER, event).await
    }

    /// Events of this warehouse are polled by the executor.
    pub async fn polled(&self, warehouse: &str) {
        let body = json!({"executor_id": "dev-wes", "poll": {}});
        self.put(&format!("/warehouses/{warehouse}/transport"), PLANNER, &body).await.is(200);
    }

    /// Events of this warehouse are pushed.
    pub async fn pushed(&self, warehouse: &str) {
        let body = json!({"executor_id": "dev-wes", "webhook": {"url": "http://127.0.0.1:9/hook", "secret": "hush-hush-hush-hush"}});
        self.put(&format!("/warehouses/{warehouse}/transport"), PLANNER, &body).await.is(200);
    }

    /// The lane, as soon as it is as it should be.
    pub async fn lane_where(&self, lane: &str, fits: impl Fn(&Value) -> bool) -> Value {
        let path = format!("/dispatch/lanes/{lane}");
        let look = async || Some(self.get(&path, PLANNER).await.is(200).json).filter(&fits);
        until_async("the lane is as it should be", look).await
    }

    /// An event that was tried once and then skipped: its dead letter.
    pub async fn dead(&self, correlation_id: &str, warehouse: &str) -> String {
        let seq = self.publish(&event(correlation_id, warehouse)).await.is(202).json["seq"].clone();
        let lane = format!("{PLANNER_ID}:{warehouse}");
        self.lane_where(&lane, |lane| lane["head"]["attempts"].as_u64() > Some(0)).await;
        let skipped = self.post(&format!("/dispatch/lanes/{lane}/skip"), PLANNER, &json!({"seq": seq})).await.is(200);
        skipped.json["dead_letter"].as_str().unwrap().to_owned()
    }
}

/// A good event.
pub fn event(correlation_id: &str, warehouse: &str) -> Value {
    json!({
        "kind": "SHIPPER_RELEASED",
        "correlation_id": correlation_id,
        "planner_id": PLANNER_ID,
        "warehouse_id": warehouse,
        "document_ref": {"type": "SHIPPER", "id": "SH-2026-000183"},
        "routing": {
            "ops": [
                {"op_id": "op-1", "kind": "PICK", "sku": "SKU-WIDGET-RED-LG", "qty": 12, "from_location": "A.12.3.1"},
                {"op_id": "op-2", "kind": "PACK", "carton": "CTN-S", "expected_seconds": 40, "expected_cost": 0.75,
                 "bom_deltas": [{"sku": "CTN-S", "qty": -1}], "skills": ["PACKER"], "resources": ["BENCH"]},
            ],
            "expected_duration_seconds": 420
        },
        "meta": {"released_at": "2026-05-24T03:14:01Z", "priority": "NORMAL"}
    })
}

/// The event that cancels another.
pub fn cancel(correlation_id: &str, original: &str, warehouse: &str) -> Value {
    json!({
        "kind": "CANCELLED",
        "correlation_id": correlation_id,
        "planner_id": PLANNER_ID,
        "warehouse_id": warehouse,
        "cancels_correlation_id": original
    })
}
