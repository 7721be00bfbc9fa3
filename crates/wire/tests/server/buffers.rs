//! Answers that clients do not read: their bytes are counted, they are let go, and meanwhile others are refused, not starved.

use std::sync::Arc;

use axum::body::Body;
use fencepost_front::{Budget, Limits};
use fencepost_testkit::until_async;
use http::Response;
use hyper::body::Incoming;
use hyper::client::conn::http2;
use hyper_util::rt::{TokioExecutor, TokioIo};
use tokio::io::AsyncReadExt;

use super::bytes_on_the_wire::{Front, GET, LARGE, assert_problem, soon, status};

const TINY_MS: u64 = 40;
const GET_LARGE: &str = "GET /large HTTP/1.1\r\nHost: a\r\n\r\n";
const PROBE: &str = "GET /probe HTTP/1.1\r\nHost: a\r\n\r\n";

/// Room for one large answer beside which no request begins.
fn tight(write_wait_ms_max: u64) -> (Limits, Arc<Budget>) {
    let budget = Budget::new(LARGE + 1024);
    let limits =
        Limits { write_wait_ms_max, budget: budget.clone(), is_probe: |_, path| path == "/probe", ..Limits::default() };
    (limits, budget)
}

async fn until_held(budget: &Budget, is_as_wanted: impl Fn(usize) -> bool) {
    until_async("the bytes in memory change", async || is_as_wanted(budget.held())).await;
}

#[tokio::test]
async fn while_an_unread_answer_fills_the_buffers_requests_are_503_and_probes_are_answered() {
    let (limits, budget) = tight(60_000);
    let front = Front::start(limits).await;
    let mut reader = front.connect().await;
    reader.send(GET_LARGE).await;
    until_held(&budget, |held| held >= LARGE).await;
    let refused = front.exchange(GET).await;
    assert_problem(&refused, 503, "buffers-full");
    assert!(refused.contains("retry-after: 1\r\n"), "{refused}");
    let mut prober = front.connect().await;
    prober.send(PROBE).await;
    assert_eq!(status(&prober.answer().await), 200);
    assert_eq!((front.seen.calls(), budget.refused()), (1, 1));

    // It reads after all.
    let mut taken = vec![0; LARGE];
    soon("most of the answer", reader.stream.read_exact(&mut taken)).await.unwrap();
    until_held(&budget, |held| held == 0).await;
    prober.send(GET).await;
    assert_eq!(status(&prober.answer().await), 200);
}

#[tokio::test]
async fn answer_that_nobody_reads_over_http_1_is_given_up_with_its_bytes() {
    let (limits, budget) = tight(TINY_MS);
    let front = Front::start(limits).await;
    let mut client = front.connect().await;
    client.send(GET_LARGE).await;
    until_held(&budget, |held| held >= LARGE).await;
    until_held(&budget, |held| held == 0).await;
}

/// Asks for the large answer with room for so many of its bytes, and never reads.
async fn ask_and_leave_unread(front: &Front, window: usize) -> Response<Incoming> {
    let window = u32::try_from(window).unwrap();
    let mut builder = http2::Builder::new(TokioExecutor::new());
    builder.initial_stream_window_size(window).initial_connection_window_size(2 * LARGE as u32);
    let io = TokioIo::new(front.connect().await.stream);
    let (mut requests, connection) = builder.handshake::<_, Body>(io).await.unwrap();
    tokio::spawn(connection);
    soon("a head", requests.send_request(super::http2::get("/large"))).await.unwrap()
}

#[tokio::test]
async fn answer_that_nobody_reads_over_http_2_is_given_up_with_its_bytes_wherever_it_stops() {
    // Nothing is taken; half; all but the last bytes, which hyper has whole and cannot send.
    for window in [1, LARGE / 2, LARGE - 1000] {
        let (limits, budget) = tight(TINY_MS);
        let front = Front::start(limits).await;
        let _unread = ask_and_leave_unread(&front, window).await;
        until_held(&budget, |held| held >= LARGE).await;
        until_held(&budget, |held| held == 0).await;
    }
}

#[tokio::test]
async fn answer_whose_last_bytes_wait_for_the_client_stays_charged() {
    let (limits, budget) = tight(60_000);
    let front = Front::start(limits).await;
    let unread = ask_and_leave_unread(&front, LARGE - 1000).await;
    until_held(&budget, |held| held >= LARGE).await;
    assert_problem(&front.exchange(GET).await, 503, "buffers-full");
    let read = http_body_util::BodyExt::collect(unread.into_body());
    assert_eq!(soon("the whole answer", read).await.unwrap().to_bytes().len(), LARGE);
    until_held(&budget, |held| held == 0).await;
}

#[tokio::test]
async fn heads_of_many_streams_count_among_the_bytes_of_unknown_clients() {
    let budget = Budget::new(8 * 20_000);
    let front = Front::start(Limits { budget: budget.clone(), ..Limits::default() }).await;
    let client = super::http2::Speaker::to(&front).await;
    let ask = || {
        let request = http::Request::get("http://a/held").header("x-long", "x".repeat(12_000));
        let (mut requests, request) = (client.requests.clone(), request.body(Body::empty()).unwrap());
        async move { requests.send_request(request).await.unwrap() }
    };
    let first = tokio::spawn(ask());
    soon("the first is served", front.seen.held.notified()).await;
    assert_eq!(soon("a refusal", ask()).await.status(), 503);
    front.seen.release.notify_one();
    assert_eq!(soon("the first's answer", first).await.unwrap().status(), 200);
    until_held(&budget, |held| held == 0).await;
    front.seen.release.notify_one();
    assert_eq!(soon("another answer", ask()).await.status(), 200);
}
