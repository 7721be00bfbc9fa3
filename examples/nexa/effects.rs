//! Services whose effects are counted. Deliberately naive: a repeated call has a new effect, except a gateway's retry.
//! A service can be queried by reference for earlier effects, and set to be slow, to refuse, or to fail before or
//! after the effect. The hotel, mailer, card service, model and the desk's records are services. Called by `main`.

use std::{
    collections::{BTreeMap, VecDeque},
    fs::{File, OpenOptions},
    io::Write as _,
    path::Path,
    sync::{Arc, Mutex, MutexGuard, PoisonError},
    time::Duration,
};

use axum::{
    Router,
    body::Bytes,
    extract::{Path as Segment, Query, State},
    http::{HeaderMap, StatusCode},
    response::{IntoResponse as _, Response},
    routing::{get, post, put},
};
use serde_json::{Value, json};

/// How long a slow call takes.
const SLOW: Duration = Duration::from_millis(300);

/// Several services in one process.
pub struct Effects {
    services: Mutex<BTreeMap<String, Service>>,
    /// Stores effects of services that must survive a crash.
    journal: Option<Journal>,
}

#[derive(Default)]
struct Service {
    calls: u64,
    asked: u64,
    had: Vec<Value>,
    faults: VecDeque<String>,
}

/// A file of JSON lines. A line is written whole before its effect counts.
pub struct Journal(Mutex<File>);

impl Journal {
    /// Opens a journal and returns its lines. A line that a crash cut short never counted.
    pub fn open(path: &Path) -> anyhow::Result<(Self, Vec<Value>)> {
        let text = std::fs::read_to_string(path).unwrap_or_default();
        let lines = text.lines().filter_map(|line| serde_json::from_str(line).ok()).collect();
        let mut file = OpenOptions::new().create(true).append(true).open(path)?;
        if !text.is_empty() && !text.ends_with('\n') {
            file.write_all(b"\n")?;
        }
        Ok((Self(Mutex::new(file)), lines))
    }

    /// Appends a line.
    pub fn add(&self, line: &Value) -> std::io::Result<()> {
        let mut file = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        file.write_all(format!("{line}\n").as_bytes())
    }
}

impl Effects {
    /// Services with these names, and their effects from the journal.
    pub fn new(names: &[&str], journal: Option<(Journal, Vec<Value>)>) -> Self {
        let mut services: BTreeMap<_, _> = names.iter().map(|name| (name.to_string(), Service::default())).collect();
        let (journal, earlier) = journal.unzip();
        for line in earlier.unwrap_or_default() {
            if let Some(service) = line["service"].as_str().and_then(|name| services.get_mut(name)) {
                service.had.push(line["effect"].clone());
            }
        }
        Self { services: Mutex::new(services), journal }
    }

    /// The HTTP routes: `POST /{name}` has an effect, `GET /{name}?reference=` finds an earlier one.
    pub fn router(self: Arc<Self>) -> Router {
        Router::new()
            .route("/counts", get(counts))
            .route("/{name}", post(have).get(find))
            .route("/{name}/faults", put(faults))
            .with_state(self)
    }

    fn lock(&self) -> MutexGuard<'_, BTreeMap<String, Service>> {
        self.services.lock().unwrap_or_else(PoisonError::into_inner)
    }

    fn by_reference(&self, name: &str, reference: &str) -> Option<Value> {
        let services = self.lock();
        services.get(name)?.had.iter().find(|effect| effect["reference"] == reference).cloned()
    }

    fn record(&self, name: &str, reference: &str, asked: Value) -> std::io::Result<Value> {
        let mut services = self.lock();
        let service = services.entry(name.to_owned()).or_default();
        let urn = format!("urn:nexa:{}:{}", name.trim_end_matches('s'), service.had.len() + 1);
        let effect = json!({"urn": urn, "reference": reference, "asked": asked});
        if let Some(journal) = &self.journal {
            journal.add(&json!({"service": name, "effect": effect}))?;
        }
        service.had.push(effect.clone());
        Ok(effect)
    }
}

fn said(status: StatusCode, body: &Value) -> Response {
    (status, [("content-type", "application/json")], body.to_string()).into_response()
}

async fn have(
    State(effects): State<Arc<Effects>>,
    Segment(name): Segment<String>,
    headers: HeaderMap,
    body: Bytes,
) -> Response {
    let asked: Value = serde_json::from_slice(&body).unwrap_or_default();
    let header = |name: &str| headers.get(name).and_then(|value| value.to_str().ok());
    // The gateway sends the key in a header, a worker sends it in the body.
    let reference = header("idempotency-key").or(asked["reference"].as_str()).unwrap_or_default().to_owned();
    let again = header("fencepost-attempt").is_some_and(|attempt| attempt != "1");
    let fault = match effects.lock().get_mut(&name) {
        Some(service) => {
            service.calls += 1;
            service.faults.pop_front().unwrap_or_default()
        }
        None => return said(StatusCode::NOT_FOUND, &json!({"error": "no such service"})),
    };
    match fault.as_str() {
        "refuse" => return said(StatusCode::TOO_MANY_REQUESTS, &json!({"error": "come back later"})),
        "fail" => return said(StatusCode::INTERNAL_SERVER_ERROR, &json!({"error": "failed, and did nothing"})),
        "slow" => tokio::time::sleep(SLOW).await,
        _ => {}
    }
    // An earlier attempt may have had the effect and lost its answer: then return that effect.
    let known = again.then(|| effects.by_reference(&name, &reference)).flatten();
    let effect = match known.map_or_else(|| effects.record(&name, &reference, asked), Ok) {
        Ok(effect) => effect,
        Err(error) => return said(StatusCode::INTERNAL_SERVER_ERROR, &json!({"error": error.to_string()})),
    };
    match fault.as_str() {
        "lose" => said(StatusCode::INTERNAL_SERVER_ERROR, &json!({"error": "failed, and did it"})),
        "stall" => std::future::pending().await,
        _ if name == "cases" => {
            let event = &effect["asked"]["externalEventId"];
            said(StatusCode::CREATED, &json!({"caseUrn": effect["urn"], "externalEventId": event, "status": "OPEN"}))
        }
        _ => said(StatusCode::CREATED, &json!({"urn": effect["urn"]})),
    }
}

async fn find(
    State(effects): State<Arc<Effects>>,
    Segment(name): Segment<String>,
    Query(query): Query<BTreeMap<String, String>>,
) -> Response {
    if let Some(service) = effects.lock().get_mut(&name) {
        service.asked += 1;
    }
    let found = query.get("reference").and_then(|reference| effects.by_reference(&name, reference));
    said(StatusCode::OK, &json!({"found": found.map(|effect| effect["urn"].clone())}))
}

async fn counts(State(effects): State<Arc<Effects>>) -> Response {
    let shown = |service: &Service| json!({"calls": service.calls, "asked": service.asked, "had": service.had.len()});
    let counts: BTreeMap<String, Value> =
        effects.lock().iter().map(|(name, service)| (name.clone(), shown(service))).collect();
    said(StatusCode::OK, &json!(counts))
}

/// Sets the faults of the next calls: `refuse`, `fail`, `slow`, `lose`, `stall`; any other word is no fault.
async fn faults(State(effects): State<Arc<Effects>>, Segment(name): Segment<String>, body: Bytes) -> Response {
    let list: Vec<String> = serde_json::from_slice(&body).unwrap_or_default();
    if let Some(service) = effects.lock().get_mut(&name) {
        service.faults = list.into();
    }
    said(StatusCode::OK, &json!({}))
}
