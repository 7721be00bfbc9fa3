//! Clients that take their time: each is let go, and nobody else is.

use std::time::Duration;

use fencepost_front::Limits;
use tokio::io::AsyncReadExt;
use tokio::time::{Instant, timeout};

use super::bytes_on_the_wire::{Client, Front, GET, LARGE, assert_problem, soon, status};

const TINY_MS: u64 = 40;

/// Only the bound under test is small.
fn patient() -> Limits {
    let ms = 60_000;
    Limits { head_ms_max: ms, idle_ms_max: ms, body_wait_ms_max: ms, write_wait_ms_max: ms, ..Limits::default() }
}

/// Sends a byte whenever the server has been quiet for a moment, and returns what it says in the end.
async fn trickle(client: &mut Client, bytes: &str) -> String {
    let mut answer = Vec::new();
    for byte in bytes.bytes() {
        client.send([byte]).await;
        if let Ok(Ok(_)) = timeout(Duration::from_millis(2), client.stream.read_buf(&mut answer)).await {
            return String::from_utf8(answer).unwrap() + &client.rest().await;
        }
    }
    panic!("the trickle ran dry before the server lost patience")
}

/// Nothing comes, not even a close.
async fn assert_quiet(client: &Client, ms: u64) {
    assert!(timeout(Duration::from_millis(ms), client.stream.peek(&mut [0])).await.is_err());
}

/// Lets the idle bound pass on another connection, twice.
async fn outlast_the_idle_bound(front: &Front) {
    for _ in 0..2 {
        let mut other = front.connect().await;
        other.send(GET).await;
        other.answer().await;
        assert_eq!(other.rest().await, "");
    }
}

#[tokio::test]
async fn a_head_that_stops_half_way_is_408() {
    let front = Front::start(Limits { head_ms_max: TINY_MS, ..patient() }).await;
    for start in ["G", "GET / HTTP/1.1\r\n", "GET / HTTP/1.1\r\nHost: a\r\n\r", "\r\n"] {
        assert_problem(&front.exchange(start).await, 408, "request-timeout");
    }
    assert_problem(
        &{
            let mut second = front.connect().await;
            second.send(format!("{GET}GET /")).await;
            second.answer().await;
            second.rest().await
        },
        408,
        "request-timeout",
    );
    assert_eq!(front.seen.calls(), 1);
}

#[tokio::test]
async fn a_head_that_trickles_is_408_although_it_never_stops() {
    let front = Front::start(Limits { head_ms_max: TINY_MS, ..patient() }).await;
    let mut client = front.connect().await;
    let head = format!("GET / HTTP/1.1\r\nHost: a\r\nX: {}", "a".repeat(10_000));
    assert_problem(&trickle(&mut client, &head).await, 408, "request-timeout");
}

#[tokio::test]
async fn a_connection_that_says_nothing_is_closed_without_a_word() {
    let front = Front::start(Limits { head_ms_max: TINY_MS, ..patient() }).await;
    assert_eq!(front.exchange("").await, "");
}

#[tokio::test]
async fn a_connection_that_idles_after_an_answer_is_closed_but_not_before_its_time() {
    let front = Front::start(Limits { idle_ms_max: TINY_MS, ..patient() }).await;
    let mut client = front.connect().await;
    for _ in 0..3 {
        client.send(GET).await;
        assert_eq!(status(&client.answer().await), 200);
    }
    let begun = Instant::now();
    assert_eq!(client.rest().await, "");
    assert!(begun.elapsed() >= Duration::from_millis(TINY_MS / 2));
}

#[tokio::test]
async fn a_request_that_is_served_for_long_is_not_idle() {
    let front = Front::start(Limits { idle_ms_max: TINY_MS, head_ms_max: TINY_MS, ..patient() }).await;
    let mut client = front.connect().await;
    client.send("GET /held HTTP/1.1\r\nHost: a\r\n\r\n").await;
    soon("held", front.seen.held.notified()).await;
    outlast_the_idle_bound(&front).await;
    front.seen.release.notify_one();
    assert!(client.answer().await.ends_with("held and released"));
    assert_eq!(client.rest().await, "");
}

#[tokio::test]
async fn an_answer_that_pauses_is_not_idle() {
    let front = Front::start(Limits { idle_ms_max: TINY_MS, head_ms_max: TINY_MS, ..patient() }).await;
    let mut client = front.connect().await;
    client.send("GET /paused HTTP/1.1\r\nHost: a\r\n\r\n").await;
    outlast_the_idle_bound(&front).await;
    front.seen.release.notify_one();
    let answer = client.rest().await;
    assert!(answer.contains("before ") && answer.contains("after"), "{answer}");
}

#[tokio::test]
async fn a_body_that_stops_half_way_is_408() {
    let front = Front::start(Limits { body_wait_ms_max: TINY_MS, ..patient() }).await;
    for body in
        ["Content-Length: 100\r\n\r\n", "Content-Length: 100\r\n\r\nabc", "Transfer-Encoding: chunked\r\n\r\n5\r\nab"]
    {
        let answer = front.exchange(format!("POST / HTTP/1.1\r\nHost: a\r\n{body}")).await;
        assert_problem(&answer, 408, "request-timeout");
    }
    assert_eq!((front.seen.calls(), front.seen.whole()), (3, 0));
}

#[tokio::test]
async fn a_body_that_trickles_is_408_although_it_never_stops() {
    let front = Front::start(Limits { body_wait_ms_max: TINY_MS, body_bytes_per_s_min: 100_000, ..patient() }).await;
    let mut client = front.connect().await;
    client.send("POST / HTTP/1.1\r\nHost: a\r\nContent-Length: 10000\r\n\r\n").await;
    assert_problem(&trickle(&mut client, &"a".repeat(10_000)).await, 408, "request-timeout");
    // Framing is not progress: these chunks are mostly extension.
    let mut client = front.connect().await;
    client.send("POST / HTTP/1.1\r\nHost: a\r\nTransfer-Encoding: chunked\r\n\r\n").await;
    assert_problem(&trickle(&mut client, &format!("1;{}", "a".repeat(10_000))).await, 408, "request-timeout");
    assert_eq!(front.seen.whole(), 0);
}

#[tokio::test]
async fn a_body_slower_than_the_first_wait_is_served_while_its_pace_holds() {
    let front = Front::start(Limits { body_wait_ms_max: 300, body_bytes_per_s_min: 1, ..patient() }).await;
    let mut client = front.connect().await;
    client.send("POST / HTTP/1.1\r\nHost: a\r\nContent-Length: 31\r\n\r\n0123456789").await;
    for _ in 0..21 {
        assert_quiet(&client, 20).await;
        client.send("x").await;
    }
    assert_eq!(status(&client.answer().await), 200);
}

#[tokio::test]
async fn each_request_has_its_patience_to_itself() {
    let ms = 600;
    let front = Front::start(Limits {
        head_ms_max: ms,
        idle_ms_max: ms,
        body_wait_ms_max: ms,
        body_bytes_per_s_min: u64::MAX,
        ..patient()
    })
    .await;
    let mut client = front.connect().await;
    // In sum far past each bound, one by one far below.
    for _ in 0..5 {
        for piece in ["POST / HTTP/1.1\r\n", "Host: a\r\nContent-Length: 4\r\n\r\nbo", "dy"] {
            assert_quiet(&client, ms / 4).await;
            client.send(piece).await;
        }
        assert_eq!(status(&client.answer().await), 200);
    }
}

#[tokio::test]
async fn a_client_that_never_reads_is_let_go() {
    let front = Front::start(Limits { write_wait_ms_max: TINY_MS, ..patient() }).await;
    let mut client = front.connect().await;
    client.send("GET /endless HTTP/1.1\r\nHost: a\r\n\r\n").await;
    soon("the answer is given up", front.seen.dropped.notified()).await;
}

#[tokio::test]
async fn a_client_that_reads_late_gets_everything_and_is_idle_only_then() {
    let front = Front::start(Limits { idle_ms_max: TINY_MS, ..patient() }).await;
    let mut client = front.connect().await;
    client.send("GET /large HTTP/1.1\r\nHost: a\r\n\r\n").await;
    outlast_the_idle_bound(&front).await;
    read_large(&mut client, LARGE).await;
    client.send(GET).await;
    assert_eq!(status(&client.answer().await), 200);
    assert_eq!(client.rest().await, "");
}

#[tokio::test]
async fn a_client_that_reads_slowly_is_served_while_its_pace_holds() {
    let limits = Limits { idle_ms_max: TINY_MS, write_wait_ms_max: 1_500, write_bytes_per_s_min: 1_000, ..patient() };
    let front = Front::start(limits).await;
    let mut client = front.connect().await;
    client.send("GET /large HTTP/1.1\r\nHost: a\r\n\r\n").await;
    for _ in 0..16 {
        outlast_the_idle_bound(&front).await;
        read_large(&mut client, LARGE / 16).await;
    }
}

/// So many bytes of the large answer, after its head.
async fn read_large(client: &mut Client, bytes: usize) {
    let mut head = Vec::new();
    while head.first() != Some(&b'x') && !head.ends_with(b"\r\n\r\n") {
        head.push(soon("a head", client.stream.read_u8()).await.unwrap());
    }
    let first = usize::from(head.first() == Some(&b'x'));
    let mut body = vec![0; bytes - first];
    soon("the large answer", client.stream.read_exact(&mut body)).await.unwrap();
    assert!(body.iter().all(|byte| *byte == b'x'));
}
