//! The tower layer around an axum service that counts what it really does.

use std::{
    sync::{
        Arc,
        atomic::{AtomicUsize, Ordering},
    },
    time::Duration,
};

use axum::{
    Router,
    body::Body,
    extract::Request,
    http::StatusCode,
    response::{IntoResponse, Response},
    routing::any,
};
use fencepost::{
    Fencepost, clock::SystemClock, engine::EngineLimits, kernel::fence::State, layer::FenceLayer, store::memory::Memory,
};
use fencepost_testkit::{Faults, clock::ManualClock, until_async};
use futures::{StreamExt, stream};
use http_body_util::BodyExt;
use tokio::sync::Notify;
use tower_service::Service;

use crate::world::{over, policy, world};

type Effects = Arc<AtomicUsize>;

fn app(once: Fencepost, effects: Effects) -> Router {
    let act = move |request: Request| async move {
        let count = effects.fetch_add(1, Ordering::SeqCst);
        let status = request.uri().query().and_then(|query| query.parse().ok()).unwrap_or(200);
        let body = if request.uri().path() == "/huge" { "x".repeat(2 << 20) } else { format!("effect {count}") };
        let headers = [("set-cookie", "session=secret"), ("location", "/cases/1"), ("x-inner", "yes")];
        (StatusCode::from_u16(status).unwrap(), headers, body).into_response()
    };
    fenced(once, Router::new().route("/cases", any(act.clone())).route("/huge", any(act)))
}

fn fenced(once: Fencepost, routes: Router) -> Router {
    routes.layer(FenceLayer::new(once, |request| request.headers().get("x-account")?.to_str().ok().map(str::to_owned)))
}

async fn send(app: &Router, path: &str, key: Option<&str>, body: &str) -> (u16, Response) {
    let mut request = Request::post(path).header("x-account", "acme");
    if let Some(key) = key {
        request = request.header("idempotency-key", key);
    }
    let response = app.clone().call(request.body(Body::from(body.to_owned())).unwrap()).await.unwrap();
    (response.status().as_u16(), response)
}

async fn text(response: Response) -> String {
    String::from_utf8(response.into_body().collect().await.unwrap().to_bytes().to_vec()).unwrap()
}

#[tokio::test]
async fn a_retry_gets_the_first_answer_and_never_its_cookies() {
    let effects = Effects::default();
    let app = app(world().await.0, effects.clone());
    let (status, first) = send(&app, "/cases", Some("k"), r#"{"a":1}"#).await;
    assert_eq!(status, 200);
    assert!(first.headers().contains_key("set-cookie"), "the first caller gets everything");
    assert_eq!(text(first).await, "effect 0");
    // The bare value and the structured string are one key; 1.0 is 1.
    let (status, second) = send(&app, "/cases", Some("\"k\""), r#"{ "a": 1.0 }"#).await;
    assert_eq!(status, 200);
    assert_eq!(second.headers()["idempotency-replayed"], "true");
    assert_eq!(second.headers()["location"], "/cases/1");
    assert!(!second.headers().contains_key("set-cookie") && !second.headers().contains_key("x-inner"));
    assert_eq!(text(second).await, "effect 0");
    assert_eq!(effects.load(Ordering::SeqCst), 1);
}

#[tokio::test]
async fn effect_of_a_service_is_known_by_its_key_and_not_by_its_status() {
    let once = world().await.0;
    send(&app(once.clone(), Effects::default()), "/cases", Some("k"), "").await;
    let key = [("method", "POST"), ("path", "/cases"), ("idempotency_key", "k")];
    let known = once.tenant("acme").lookup("API_WRITE", key).await.unwrap().unwrap();
    assert_eq!(known.fence.effect_id().map(str::len), Some(64), "{:?}", known.fence.effect_id());
}

#[tokio::test]
async fn another_body_or_query_under_the_same_key_is_a_conflict() {
    let effects = Effects::default();
    let app = app(world().await.0, effects.clone());
    send(&app, "/cases", Some("k"), r#"{"a":1}"#).await;
    assert_eq!(send(&app, "/cases", Some("k"), r#"{"a":2}"#).await.0, 409);
    assert_eq!(send(&app, "/cases?201", Some("k"), r#"{"a":1}"#).await.0, 409);
    assert_eq!(effects.load(Ordering::SeqCst), 1);
}

#[tokio::test]
async fn a_refusal_for_now_frees_the_key_and_an_unknown_outcome_keeps_it() {
    let effects = Effects::default();
    let app = app(world().await.0, effects.clone());
    for _ in 0..2 {
        assert_eq!(send(&app, "/cases?429", Some("busy"), "").await.0, 429);
    }
    assert_eq!(effects.load(Ordering::SeqCst), 2);
    assert_eq!(send(&app, "/cases?503", Some("lost"), "").await.0, 503);
    assert_eq!(send(&app, "/cases?503", Some("lost"), "").await.0, 409);
    assert_eq!(effects.load(Ordering::SeqCst), 3);
}

#[tokio::test]
async fn a_deterministic_refusal_is_an_outcome() {
    let effects = Effects::default();
    let app = app(world().await.0, effects.clone());
    for _ in 0..2 {
        assert_eq!(send(&app, "/cases?422", Some("bad"), "").await.0, 422);
    }
    assert_eq!(effects.load(Ordering::SeqCst), 1);
}

#[tokio::test]
async fn an_oversized_answer_is_sealed_all_the_same() {
    let effects = Effects::default();
    let app = app(world().await.0, effects.clone());
    let (_, first) = send(&app, "/huge?201", Some("big"), "").await;
    assert_eq!(text(first).await.len(), 2 << 20, "the first caller gets all of it");
    let (status, again) = send(&app, "/huge?201", Some("big"), "").await;
    assert_eq!((status, again.headers()["fencepost-body"].to_str().unwrap()), (201, "omitted"));
    assert_eq!(effects.load(Ordering::SeqCst), 1);
}

#[tokio::test]
async fn requests_without_a_key_pass_and_wrong_keys_do_not() {
    let effects = Effects::default();
    let app = app(world().await.0, effects.clone());
    for _ in 0..2 {
        assert_eq!(send(&app, "/cases", None, "").await.0, 200);
    }
    for key in ["", "\"open", "\"\"", &"k".repeat(256)] {
        assert_eq!(send(&app, "/cases", Some(key), "").await.0, 400, "{key:?}");
    }
    let nobody = Request::post("/cases").header("idempotency-key", "k").body(Body::empty()).unwrap();
    assert_eq!(app.clone().call(nobody).await.unwrap().status(), 401);
    assert_eq!(effects.load(Ordering::SeqCst), 2);
}

#[tokio::test]
async fn a_done_effect_is_answered_once_the_store_takes_it() {
    let store = Faults::default().over_memory();
    let once = over(store.clone(), ManualClock::new(), EngineLimits::default()).await;
    let act = any(move || {
        store.refusals.store(3, Ordering::SeqCst);
        async { "done" }
    });
    let app = fenced(once, Router::new().route("/cases", act));
    assert_eq!(text(send(&app, "/cases", Some("k"), "").await.1).await, "done");
    assert_eq!(send(&app, "/cases", Some("k"), "").await.1.headers()["idempotency-replayed"], "true");
}

#[tokio::test]
async fn a_slow_answer_keeps_its_lease_to_its_end() {
    let mut policy = policy();
    Arc::make_mut(policy.scopes.get_mut("API_WRITE").unwrap()).lease_ms = 60;
    let (store, clock) = (Arc::new(Memory::default()), Arc::new(SystemClock::default()));
    let once = Fencepost::over(store, clock, policy, EngineLimits::default(), Box::new(()), None).await.unwrap();
    let end = Arc::new(Notify::new());
    let (act, ended) = (end.clone(), "end");
    let act = any(move || {
        let last = async move {
            act.notified().await;
            Ok::<_, std::io::Error>(ended)
        };
        async { Body::from_stream(stream::once(last)) }
    });
    let app = fenced(once.clone(), Router::new().route("/cases", act));
    let answer = tokio::spawn(async move { send(&app, "/cases", Some("k"), "").await.1 });
    let key = [("method", "POST"), ("path", "/cases"), ("idempotency_key", "k")];
    let mut leases = Vec::new();
    while leases.len() < 4 {
        let known = once.tenant("acme").lookup("API_WRITE", key).await.unwrap();
        if let Some(State::Pending { lease_expires, .. }) = known.map(|told| told.fence.state.clone())
            && leases.last() != Some(&lease_expires)
        {
            leases.push(lease_expires);
        }
        tokio::time::sleep(Duration::from_millis(1)).await;
    }
    end.notify_one();
    assert_eq!(text(answer.await.unwrap()).await, ended);
}

#[tokio::test]
async fn a_stream_of_events_is_an_outcome_and_passes_as_it_comes() {
    let act = any(|| async {
        let events = stream::iter([Ok::<_, std::io::Error>("data: 1\n\n")]).chain(stream::pending());
        ([("content-type", "text/event-stream")], Body::from_stream(events)).into_response()
    });
    let app = fenced(world().await.0, Router::new().route("/cases", act));
    let (status, first) = send(&app, "/cases", Some("k"), "").await;
    let event = first.into_body().frame().await.unwrap().unwrap().into_data().unwrap();
    assert_eq!((status, &event[..]), (200, &b"data: 1\n\n"[..]));
    assert_eq!(send(&app, "/cases", Some("k"), "").await.1.headers()["fencepost-body"], "omitted");
}

#[test]
fn a_client_that_goes_away_during_the_claim_leaves_no_claim_without_its_effect() {
    let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build().unwrap();
    let store = Faults::default().over_memory();
    let once = runtime.block_on(over(store.clone(), ManualClock::new(), EngineLimits::default()));
    let effects = Effects::default();
    let app = app(once, effects.clone());
    let held = store.disk.lock().unwrap();
    runtime.block_on(async {
        let gone = tokio::time::timeout(Duration::from_millis(20), send(&app, "/cases", Some("k"), "")).await;
        assert!(gone.is_err(), "the claim is under way");
    });
    drop(held);
    runtime.block_on(async {
        until_async("the effect happens", async || effects.load(Ordering::SeqCst) > 0).await;
    });
}
