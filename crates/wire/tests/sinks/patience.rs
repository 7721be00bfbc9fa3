//! Slow, silent and endless receivers cost a bounded time, and willing ones one connection for many events.

use std::time::{Duration, Instant};

use fencepost_wire::sinks::webhook::WebhookSettings;
use futures::future::join_all;
use tokio::net::TcpListener;

use super::receiver::{OK, Receiver, Then, attempt, later, sink};

/// Far more than any of it may take, far less than the attempts and bodies that must not be waited for.
const BOUND: Duration = Duration::from_secs(5);

#[tokio::test]
async fn an_answer_that_never_comes_ends_the_attempt_in_time() {
    let settings = WebhookSettings { attempt_ms_max: 150, ..WebhookSettings::default() };
    for start in ["", "HTTP/1.1 200 OK\r\nContent-Len", "HTTP/1.1 100 Continue\r\n\r\n"] {
        let (receiver, began) = (Receiver::start(start, Then::Silence).await, Instant::now());
        let told = later(attempt(&sink(&settings), &receiver.url()).await);
        assert_eq!(told, (None, "no answer within 150 ms".to_owned(), None));
        assert!(began.elapsed() >= Duration::from_millis(150) && began.elapsed() < BOUND);
        receiver.ended(1).await;
    }
}

#[tokio::test]
async fn an_endless_answer_is_cut_off_and_means_what_its_head_says() {
    for framing in ["Transfer-Encoding: chunked\r\n\r\nffffff\r\n", "Content-Length: 99999999\r\n\r\n", "\r\n"] {
        for status in [200, 500] {
            let answer = format!("HTTP/1.1 {status} x\r\n{framing}");
            let (receiver, began) = (Receiver::start(answer, Then::More).await, Instant::now());
            let outcome = attempt(&sink(&WebhookSettings::default()), &receiver.url()).await;
            match status {
                200 => assert_eq!(outcome, Ok(())),
                _ => assert_eq!(later(outcome).1.as_bytes(), [b'x'; 512]),
            }
            assert!(began.elapsed() < BOUND);
            receiver.ended(1).await;
        }
    }
}

#[tokio::test]
async fn a_body_that_does_not_come_is_not_waited_for() {
    for status in [200, 503] {
        let answer = format!("HTTP/1.1 {status} x\r\nContent-Length: 100\r\n\r\nbusy");
        let (receiver, began) = (Receiver::start(answer, Then::Silence).await, Instant::now());
        let outcome = attempt(&sink(&WebhookSettings::default()), &receiver.url()).await;
        match status {
            200 => assert_eq!(outcome, Ok(())),
            _ => assert_eq!(later(outcome), (Some(503), "busy".to_owned(), None)),
        }
        assert!(began.elapsed() < BOUND);
        receiver.ended(1).await;
    }
}

#[tokio::test]
async fn a_handshake_that_never_comes_ends_within_the_time_for_connecting() {
    let silent = TcpListener::bind(("127.0.0.1", 0)).await.unwrap();
    let settings = WebhookSettings { connect_ms_max: 150, ..WebhookSettings::default() };
    let (url, began) = (format!("https://{}/", silent.local_addr().unwrap()), Instant::now());
    let (status, note, _) = later(attempt(&sink(&settings), &url).await);
    assert!(status.is_none() && note.contains("within 150 ms"), "{note}");
    assert!(began.elapsed() < BOUND);
}

#[tokio::test]
async fn one_connection_carries_many_events() {
    for answer in
        [OK, "HTTP/1.1 200 OK\r\nContent-Length: 6\r\n\r\nthanks", "HTTP/1.1 500 x\r\nContent-Length: 2\r\n\r\nno"]
    {
        let receiver = Receiver::start(answer, Then::Listen).await;
        let sink = sink(&WebhookSettings::default());
        for _ in 0..50 {
            attempt(&sink, &receiver.url()).await.ok();
        }
        assert_eq!((receiver.heard().len(), receiver.connections()), (50, 1), "{answer}");
    }
}

#[tokio::test]
async fn a_receiver_that_closes_after_each_answer_gets_every_event() {
    let receiver = Receiver::start(OK, Then::Close).await;
    let closing =
        Receiver::start("HTTP/1.1 200 OK\r\nConnection: close\r\nContent-Length: 0\r\n\r\n", Then::Close).await;
    let sink = sink(&WebhookSettings::default());
    for _ in 0..20 {
        assert_eq!(attempt(&sink, &closing.url()).await, Ok(()));
        receiver.ended(receiver.connections()).await;
        assert_eq!(attempt(&sink, &receiver.url()).await, Ok(()));
    }
}

#[tokio::test]
async fn no_more_connections_are_kept_than_the_bounds_say() {
    let receiver = Receiver::start(OK, Then::Listen).await;
    let crowded = sink(&WebhookSettings { kept_max: 0, ..WebhookSettings::default() });
    for sent in 1..=5 {
        attempt(&crowded, &receiver.url()).await.unwrap();
        assert_eq!(receiver.connections(), sent);
        receiver.ended(sent).await;
    }
    let receiver = Receiver::start(OK, Then::Listen).await;
    let few = sink(&WebhookSettings { idle_per_host_max: 2, idle_ms_max: 600_000, ..WebhookSettings::default() });
    let url = receiver.url();
    for outcome in join_all((0..20).map(|_| attempt(&few, &url))).await {
        assert_eq!(outcome, Ok(()));
    }
    assert!(receiver.connections() > 2, "they did not leave together");
    receiver.ended(receiver.connections() - 2).await;
    let receiver = Receiver::start(OK, Then::Listen).await;
    let brief = sink(&WebhookSettings { idle_ms_max: 50, ..WebhookSettings::default() });
    attempt(&brief, &receiver.url()).await.unwrap();
    receiver.ended(1).await;
}
