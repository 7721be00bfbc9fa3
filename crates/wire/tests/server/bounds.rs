//! Too much: bodies past their size, connections past their number.

use fencepost_front::Limits;
use http::Method;
use tokio::io::AsyncWriteExt;
use tokio::net::TcpSocket;

use super::bytes_on_the_wire::{Client, Front, GET, assert_problem, soon, status};
use crate::server::http2;

fn small() -> Limits {
    Limits {
        body_bytes_max: 10,
        body_bytes_max_for: |_, uri, max| if uri.path() == "/bulk" { u64::MAX } else { max },
        ..Limits::default()
    }
}

#[tokio::test]
async fn a_body_that_announces_too_much_is_413_and_never_reaches_the_service() {
    let front = Front::start(small()).await;
    let head = "POST /x HTTP/1.1\r\nHost: a\r\ntraceparent: 00-4bf92f3577b34da6a3ce929d0e0e4736-00f067aa0ba902b7-01\r\nContent-Length: 11\r\n\r\n";
    let answer = front.exchange(head).await;
    assert_problem(&answer, 413, "too-large");
    assert!(answer.contains("4bf92f3577b34da6a3ce929d0e0e4736"), "{answer}");
    assert_eq!(front.seen.calls(), 0);
}

#[tokio::test]
async fn the_answer_to_a_large_upload_is_read_by_a_client_that_sends_first() {
    let front = Front::start(small()).await;
    let mut upload = "POST /x HTTP/1.1\r\nHost: a\r\nContent-Length: 14000000\r\n\r\n".to_owned();
    upload.push_str(&"x".repeat(14_000_000));
    let mut client = front.connect().await;
    // Not `send`: a reset while sending is what most clients report instead of the answer.
    soon("sending it all", client.stream.write_all(upload.as_bytes())).await.unwrap();
    assert_problem(&client.rest().await, 413, "too-large");
}

#[tokio::test]
async fn a_body_that_the_service_let_pass_does_not_spoil_the_next_answer() {
    let front = Front::start(small()).await;
    let mut client = front.connect().await;
    let chunked = "HTTP/1.1\r\nHost: a\r\nTransfer-Encoding: chunked\r\n\r\n";
    client.send(format!("POST /careless {chunked}b\r\n12345678901\r\n0\r\n\r\n")).await;
    assert_eq!(status(&client.answer().await), 200);
    client.send(format!("POST /missing {chunked}1\r\n1\r\n0\r\n\r\n")).await;
    assert!(client.answer().await.ends_with("not here"));
}

#[tokio::test]
async fn a_chunked_body_that_grows_too_large_is_413() {
    let front = Front::start(small()).await;
    let head = "POST /x HTTP/1.1\r\nHost: a\r\nTransfer-Encoding: chunked\r\n\r\n";
    let answer = front.exchange(format!("{head}6\r\n123456\r\n5\r\n12345\r\n0\r\n\r\n")).await;
    assert_problem(&answer, 413, "too-large");
    assert_eq!(front.seen.whole(), 0);
    let mut client = front.connect().await;
    client.send(format!("{head}a\r\n1234567890\r\n0\r\n\r\n")).await;
    assert_eq!(status(&client.answer().await), 200);
}

#[tokio::test]
async fn a_path_may_have_a_bound_of_its_own() {
    let front = Front::start(small()).await;
    let mut client = front.connect().await;
    client.send("POST /bulk HTTP/1.1\r\nHost: a\r\nContent-Length: 11\r\n\r\n12345678901").await;
    assert_eq!(status(&client.answer().await), 200);
}

#[tokio::test]
async fn one_connection_too_many_is_told_503_and_when_to_come_back() {
    let front = Front::start(Limits { connections_max: 1, ..Limits::default() }).await;
    let mut seated = front.connect().await;
    seated.send(GET).await;
    seated.answer().await;

    let answer = front.exchange(GET).await;
    assert_problem(&answer, 503, "too-many-connections");
    assert!(answer.contains("retry-after: 1\r\n"), "{answer}");
    assert_eq!(front.seen.calls(), 1);

    drop(seated);
    soon("the seat is free again", async {
        loop {
            let mut next = front.connect().await;
            next.send(GET).await;
            if status(&next.answer().await) == 200 {
                break;
            }
        }
    })
    .await;
}

/// One seat, which is taken; `GET /ok` is the probe.
async fn full(limits: Limits) -> (Front, Client) {
    let is_probe = |_: &Method, path: &str| path == "/ok";
    let front = Front::start(Limits { connections_max: 1, is_probe, ..limits }).await;
    let mut seated = front.connect().await;
    seated.send(GET).await;
    seated.answer().await;
    (front, seated)
}

const PROBE: &str = "GET /ok HTTP/1.1\r\nHost: a\r\n\r\n";

#[tokio::test]
async fn probe_on_a_connection_too_many_is_answered_and_ends_it() {
    let (front, mut seated) = full(Limits::default()).await;
    // More than the reserve holds, and all silent.
    let mut silent = Vec::new();
    for _ in 0..100 {
        silent.push(front.connect().await);
    }
    let answer = front.exchange(PROBE).await;
    assert_eq!(status(&answer), 200, "{answer}");
    assert!(answer.contains("connection: close\r\n"), "{answer}");
    seated.send(GET).await;
    assert_eq!(status(&seated.answer().await), 200, "whoever has a seat keeps it");
}

#[tokio::test]
async fn probe_over_http_2_on_a_connection_too_many_is_answered() {
    let (front, _seated) = full(Limits::default()).await;
    let mut client = http2::Speaker::over(front.connect().await.stream).await;
    assert_eq!(client.get("/other").await.0, 503);
    let mut client = http2::Speaker::over(front.connect().await.stream).await;
    assert_eq!(client.get("/ok").await.0, 200);
}

#[tokio::test]
async fn newest_of_the_connections_too_many_ends_the_oldest() {
    let (front, _seated) = full(Limits { reserve_max: 1, reserve_ms_max: 60_000, ..Limits::default() }).await;
    let mut oldest = front.connect().await;
    // Both are accepted in the order in which they came.
    let _newest = front.connect().await;
    assert_eq!(oldest.rest().await, "");
}

#[tokio::test]
async fn connection_too_many_that_says_nothing_is_let_go_soon() {
    let (front, _seated) = full(Limits { reserve_ms_max: 40, ..Limits::default() }).await;
    assert_eq!(front.exchange("").await, "");
}

#[tokio::test]
async fn client_with_all_its_connections_is_refused_and_another_client_is_served() {
    let front = Front::start(Limits { connections_per_client_max: 1, ..Limits::default() }).await;
    let mut seated = front.connect().await;
    seated.send(GET).await;
    seated.answer().await;
    assert_problem(&front.exchange(GET).await, 503, "too-many-connections");
    let socket = TcpSocket::new_v4().unwrap();
    socket.bind("127.0.0.2:0".parse().unwrap()).unwrap();
    let mut other = Client { stream: socket.connect(front.addr).await.unwrap() };
    other.send(GET).await;
    assert_eq!(status(&other.answer().await), 200);
}
