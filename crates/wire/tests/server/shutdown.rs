//! The end: requests in flight are finished, new ones are refused, and it takes no longer than allowed.

use fencepost_front::{Drained, Limits};
use tokio::net::TcpStream;

use super::bytes_on_the_wire::{Front, GET, LARGE, soon};

const HELD: &str = "GET /held HTTP/1.1\r\nHost: a\r\n\r\n";

#[tokio::test]
async fn shutdown_finishes_what_is_in_flight_and_refuses_what_is_new() {
    let mut front = Front::start(Limits::default()).await;
    let mut idle = front.connect().await;
    idle.send(GET).await;
    idle.answer().await;
    let mut silent = front.connect().await;
    let mut half = front.connect().await;
    half.send("GET / HT").await;
    let mut busy = front.connect().await;
    busy.send(HELD).await;
    soon("held", front.seen.held.notified()).await;

    front.begin_shutdown();
    assert_eq!(idle.rest().await, "");
    assert_eq!(silent.rest().await, "");
    assert_eq!(half.rest().await, "");
    assert!(TcpStream::connect(front.addr).await.is_err());

    // Sent while closing: the one in flight is answered, this one is not begun.
    busy.send(GET).await;
    front.seen.release.notify_one();
    let answer = busy.rest().await;
    assert!(answer.ends_with("held and released") && answer.contains("connection: close"), "{answer}");
    assert_eq!(front.seen.calls(), 2);
    assert_eq!(front.drained().await, Drained::Whole);
}

#[tokio::test]
async fn an_answer_that_is_being_read_when_the_end_comes_is_the_last() {
    let mut front = Front::start(Limits::default()).await;
    let mut busy = front.connect().await;
    busy.send("GET /large HTTP/1.1\r\nHost: a\r\n\r\n").await;
    soon("a first byte", tokio::io::AsyncReadExt::read_u8(&mut busy.stream)).await.unwrap();
    front.begin_shutdown();
    assert!(busy.rest().await.len() > LARGE);
    assert_eq!(front.drained().await, Drained::Whole);
}

#[tokio::test]
async fn shutdown_waits_for_the_body_of_a_request_that_has_begun() {
    let mut front = Front::start(Limits::default()).await;
    let mut idle = front.connect().await;
    let mut busy = front.connect().await;
    busy.send("POST /b HTTP/1.1\r\nHost: a\r\nContent-Length: 4\r\nExpect: 100-continue\r\n\r\n").await;
    let mut go = [0; 25];
    soon("100", tokio::io::AsyncReadExt::read_exact(&mut busy.stream, &mut go)).await.unwrap();

    front.begin_shutdown();
    assert_eq!(idle.rest().await, "");
    busy.send("body").await;
    assert!(busy.rest().await.ends_with("POST /b body nobody"));
    assert_eq!(front.drained().await, Drained::Whole);
}

#[tokio::test]
async fn a_request_that_outlasts_the_grace_period_is_cut() {
    let mut front = Front::start(Limits { grace_ms_max: 20, ..Limits::default() }).await;
    let mut busy = front.connect().await;
    busy.send(HELD).await;
    soon("held", front.seen.held.notified()).await;
    front.begin_shutdown();
    assert_eq!(busy.rest().await, "");
    assert_eq!(front.drained().await, Drained::Cut(1));
}

#[tokio::test]
async fn shutdown_without_connections_is_immediate() {
    let mut front = Front::start(Limits::default()).await;
    front.begin_shutdown();
    assert_eq!(front.drained().await, Drained::Whole);
}
