//! HTTP/2 over cleartext: served as HTTP/1 is, refused as HTTP/1 is, and no stream costs another.

use std::convert::Infallible;
use std::time::Duration;

use axum::body::{Body, Bytes};
use fencepost_front::{Drained, Limits};
use http::{Method, Request, Response, StatusCode};
use http_body_util::{BodyExt, Channel};
use hyper::body::Incoming;
use hyper::client::conn::http2::{SendRequest, handshake};
use hyper_util::rt::{TokioExecutor, TokioIo};
use tokio::io::{AsyncRead, AsyncWrite};
use tokio::task::JoinHandle;

use super::bytes_on_the_wire::{Front, soon};

const TINY_MS: u64 = 40;

/// Only the bound under test is small.
fn patient() -> Limits {
    let ms = 60_000;
    Limits { head_ms_max: ms, idle_ms_max: ms, body_wait_ms_max: ms, write_wait_ms_max: ms, ..Limits::default() }
}

pub struct Speaker {
    pub requests: SendRequest<Body>,
    pub connection: JoinHandle<hyper::Result<()>>,
}

impl Speaker {
    pub async fn over(io: impl AsyncRead + AsyncWrite + Unpin + Send + 'static) -> Speaker {
        let (requests, connection) = handshake(TokioExecutor::new(), TokioIo::new(io)).await.unwrap();
        Speaker { requests, connection: tokio::spawn(connection) }
    }

    pub async fn to(front: &Front) -> Speaker {
        Speaker::over(front.connect().await.stream).await
    }

    pub async fn send(&mut self, request: Request<Body>) -> Response<Incoming> {
        soon("an answer", self.requests.send_request(request)).await.unwrap()
    }

    pub async fn ask(&mut self, request: Request<Body>) -> (StatusCode, String) {
        let response = self.send(request).await;
        (response.status(), text(response).await)
    }

    pub async fn get(&mut self, path: &str) -> (StatusCode, String) {
        self.ask(get(path)).await
    }
}

pub fn get(path: &str) -> Request<Body> {
    Request::get(format!("http://a{path}")).body(Body::empty()).unwrap()
}

async fn text(response: Response<Incoming>) -> String {
    let bytes = soon("a whole answer", response.into_body().collect()).await.unwrap().to_bytes();
    String::from_utf8(bytes.to_vec()).unwrap()
}

/// A body that the test goes on with, or does not.
fn slow_body() -> (http_body_util::channel::Sender<Bytes, Infallible>, Body) {
    let (sender, body) = Channel::new(4);
    (sender, Body::new(body))
}

fn assert_problem((status, body): (StatusCode, String), expected: u16, code: &str) {
    assert_eq!(status, expected, "{body}");
    let problem: serde_json::Value = serde_json::from_str(&body).unwrap_or_else(|_| panic!("{body}"));
    assert_eq!((&problem["status"], &problem["code"]), (&expected.into(), &code.into()), "{body}");
    assert_eq!(problem["trace_id"].as_str().unwrap().len(), 32, "{body}");
}

#[tokio::test]
async fn the_service_sees_the_same_request_as_over_http_1() {
    let front = Front::start(Limits::default()).await;
    let mut client = Speaker::to(&front).await;
    assert_eq!(client.get("/ok?x=1").await, (StatusCode::OK, "GET /ok?x=1  nobody".to_owned()));
    let post = Request::post("http://a/b").body(Body::from("hi")).unwrap();
    assert_eq!(client.ask(post).await.1, "POST /b hi nobody");
    let star = Request::options("http://a").body(Body::empty()).unwrap();
    assert_eq!(client.ask(star).await.0, StatusCode::OK);
    let named = Request::get("http://a:80/h").header("host", "A").body(Body::empty()).unwrap();
    assert_eq!(client.ask(named).await.1, "GET /h  nobody");
}

#[tokio::test]
async fn a_hundred_requests_at_once_are_all_answered() {
    let front = Front::start(Limits::default()).await;
    let client = Speaker::to(&front).await;
    let asking = (0..100).map(|n| {
        let mut requests = client.requests.clone();
        async move {
            let response = requests.send_request(get(&format!("/{n}"))).await.unwrap();
            assert_eq!(text(response).await, format!("GET /{n}  nobody"));
        }
    });
    soon("all answers", futures::future::join_all(asking)).await;
    assert_eq!(front.seen.calls(), 100);
}

#[tokio::test]
async fn a_stream_that_http_1_would_refuse_gets_the_same_problem_and_the_others_go_on() {
    let front = Front::start(Limits::default()).await;
    let mut client = Speaker::to(&front).await;
    let build = || Request::builder().method(Method::GET);
    let cases = [
        (build().uri("http://a/%zz"), 400, "malformed-request"),
        (build().uri("http://a/b/%2e%2e/c"), 400, "malformed-request"),
        (build().uri("http://a//b"), 400, "malformed-request"),
        (build().uri("http://a/b/../c"), 400, "malformed-request"),
        (build().uri("http://u@a/"), 400, "malformed-request"),
        (build().uri("http://a/").method("get"), 400, "malformed-request"),
        (build().uri("http://a/").header("host", "b"), 400, "malformed-request"),
        (build().uri("http://a/").header("host", "a").header("host", "a"), 400, "malformed-request"),
        (build().uri("http://a/").header("x", " b"), 400, "malformed-request"),
        (build().uri("http://a/").header("x", "b\t"), 400, "malformed-request"),
        (build().uri("http://a/").header("authorization", "a").header("authorization", "b"), 400, "malformed-request"),
        (
            build().uri("http://a/").header("idempotency-key", "a").header("idempotency-key", "b"),
            400,
            "malformed-request",
        ),
        (build().uri("ftp://a/"), 400, "malformed-request"),
        (build().uri(format!("http://a/{}", "a".repeat(8_200))), 414, "request-line-too-long"),
        (build().uri("http://a/").header("x", "a".repeat(16_400)), 431, "headers-too-large"),
        ((0..101).fold(build().uri("http://a/"), |request, _| request.header("x", "y")), 431, "headers-too-large"),
    ];
    for (request, status, code) in cases {
        let request = request.body(Body::empty()).unwrap();
        println!("{request:?}");
        assert_problem(client.ask(request).await, status, code);
    }
    assert_eq!(front.seen.calls(), 0);
    assert_eq!(client.get("/ok").await.0, StatusCode::OK);
}

#[tokio::test]
async fn a_tunnel_is_refused() {
    let front = Front::start(Limits::default()).await;
    let mut client = Speaker::to(&front).await;
    let tunnel = Request::connect("a:443").body(Body::empty()).unwrap();
    assert_problem(client.ask(tunnel).await, 400, "not-implemented");
    assert_eq!(front.seen.calls(), 0);
}

#[tokio::test]
async fn an_answer_to_head_has_its_length_and_no_body() {
    let front = Front::start(Limits::default()).await;
    let mut client = Speaker::to(&front).await;
    let head = |path: &str| Request::head(format!("http://a{path}")).body(Body::empty()).unwrap();
    for (path, status) in [("/ok", 200), ("/a//b", 400)] {
        let response = client.send(head(path)).await;
        assert_eq!(response.status(), status);
        assert_ne!(response.headers()["content-length"], "0");
        assert_eq!(text(response).await, "");
    }
}

#[tokio::test]
async fn a_body_past_its_bound_is_413_whether_it_says_so_or_not() {
    let front = Front::start(Limits { body_bytes_max: 10, ..Limits::default() }).await;
    let mut client = Speaker::to(&front).await;
    let post = |body| Request::post("http://a/x").body(body).unwrap();
    assert_problem(client.ask(post(Body::from("12345678901"))).await, 413, "too-large");
    assert_eq!(front.seen.calls(), 0);
    let (mut sender, body) = slow_body();
    for _ in 0..3 {
        sender.send_data(Bytes::from_static(b"12345")).await.unwrap();
    }
    assert_problem(client.ask(post(body)).await, 413, "too-large");
    assert_eq!(front.seen.whole(), 0);
    assert_eq!(client.ask(post(Body::from("1234567890"))).await.0, StatusCode::OK);
}

#[tokio::test]
async fn a_body_that_stops_half_way_is_408_and_the_connection_goes_on() {
    let front = Front::start(Limits { body_wait_ms_max: TINY_MS, ..patient() }).await;
    let mut client = Speaker::to(&front).await;
    let (mut sender, body) = slow_body();
    sender.send_data(Bytes::from_static(b"abc")).await.unwrap();
    assert_problem(client.ask(Request::post("http://a/x").body(body).unwrap()).await, 408, "request-timeout");
    assert_eq!((front.seen.calls(), front.seen.whole()), (1, 0));
    assert_eq!(client.get("/ok").await.0, StatusCode::OK);
    drop(sender);
}

#[tokio::test]
async fn a_connection_that_idles_is_told_goodbye_but_not_while_it_is_served() {
    let front = Front::start(Limits { idle_ms_max: TINY_MS, ..patient() }).await;
    let mut client = Speaker::to(&front).await;
    let held = client.requests.send_request(get("/held"));
    soon("held", front.seen.held.notified()).await;
    let mut other = Speaker::to(&front).await;
    other.get("/ok").await;
    soon("the idle one ends", other.connection).await.unwrap().unwrap();
    front.seen.release.notify_one();
    assert_eq!(text(soon("an answer", held).await.unwrap()).await, "held and released");
    soon("the connection ends", client.connection).await.unwrap().unwrap();
}

#[tokio::test]
async fn an_answer_that_nobody_reads_is_given_up_and_the_other_streams_go_on() {
    let front = Front::start(Limits { write_wait_ms_max: TINY_MS, ..patient() }).await;
    let mut client = Speaker::to(&front).await;
    let endless = client.send(get("/endless")).await;
    soon("the answer is given up", front.seen.dropped.notified()).await;
    assert_eq!(client.get("/ok").await.0, StatusCode::OK);
    assert!(soon("the reset is seen", endless.into_body().collect()).await.is_err());
}

#[tokio::test]
async fn an_answer_that_waits_for_its_service_is_not_given_up() {
    let front = Front::start(Limits { write_wait_ms_max: TINY_MS, ..patient() }).await;
    let mut client = Speaker::to(&front).await;
    let paused = client.send(get("/paused")).await;
    // A sleep, since what must not happen is that time alone ends the answer.
    tokio::time::sleep(Duration::from_millis(4 * TINY_MS)).await;
    front.seen.release.notify_one();
    assert_eq!(text(paused).await, "before after");
}

#[tokio::test]
async fn shutdown_finishes_what_is_in_flight_and_refuses_what_is_new() {
    let mut front = Front::start(Limits::default()).await;
    let idle = Speaker::to(&front).await;
    let mut busy = Speaker::to(&front).await;
    let held = busy.requests.send_request(get("/held"));
    soon("held", front.seen.held.notified()).await;
    front.begin_shutdown();
    soon("the idle one ends", idle.connection).await.unwrap().unwrap();
    front.seen.release.notify_one();
    assert_eq!(text(soon("an answer", held).await.unwrap()).await, "held and released");
    soon("the busy one ends", busy.connection).await.unwrap().unwrap();
    assert_eq!(front.drained().await, Drained::Whole);
}

#[tokio::test]
async fn a_request_that_outlasts_the_grace_period_is_cut() {
    let mut front = Front::start(Limits { grace_ms_max: 20, ..Limits::default() }).await;
    let mut busy = Speaker::to(&front).await;
    let held = busy.requests.send_request(get("/held"));
    soon("held", front.seen.held.notified()).await;
    front.begin_shutdown();
    assert!(soon("the end", held).await.is_err());
    assert_eq!(front.drained().await, Drained::Cut(1));
}
