//! The short way: the same clients again, where every request may take it; and what is special about it.

// Everything that holds of a front holds here, but for answers of unknown length.
#[path = "bounds.rs"]
mod bounds;
#[path = "bytes_on_the_wire.rs"]
pub mod bytes_on_the_wire;
#[path = "hostile.rs"]
mod hostile;
#[path = "keep_alive.rs"]
mod keep_alive;
#[path = "malformed.rs"]
mod malformed;
#[path = "shutdown.rs"]
mod shutdown;
#[path = "slow.rs"]
mod slow;
#[path = "tls.rs"]
mod tls;

use bytes_on_the_wire::{Client, Front, GET, soon};
use fencepost_front::Limits;

use super::{bytes_on_the_wire as through_hyper, corpus, http2};

const IS_PLAIN: fn(&http::Method, &str) -> bool = |_, _| true;

const ADDRESS: &str = "POST /address HTTP/1.1\r\nHost: a\r\nContent-Length: 3\r\n\r\nabc";

const CLOSING: &str = "GET / HTTP/1.1\r\nHost: a\r\nConnection: close\r\n\r\n";

fn undated(answer: &str) -> String {
    answer.lines().filter(|line| !line.starts_with("date: ")).collect::<Vec<_>>().join("\n")
}

async fn is_short(client: &mut Client) -> bool {
    client.send(ADDRESS).await;
    client.answer().await.ends_with("\r\n\r\nuntold")
}

#[tokio::test]
async fn a_plain_request_is_answered_as_hyper_answers_it() {
    let (short, long) = (Front::start(Limits::default()).await, through_hyper::Front::start(Limits::default()).await);
    for request in [
        "POST /a?b=%2F HTTP/1.1\r\nHost: a\r\nContent-Length: 3\r\n\r\nabc",
        "POST /a HTTP/1.1\r\nhost: a\r\nconnection: Keep-Alive\r\nX: 1\r\nx: 2\r\ncontent-length: 0\r\n\r\n",
        "PUT /missing HTTP/1.1\r\nHost: a\r\nContent-Length: 1\r\n\r\nx",
        GET,
    ] {
        let (mut one, mut other) = (short.connect().await, long.connect().await);
        for _ in 0..2 {
            one.send(request).await;
            other.send(request).await;
            let (one, other) = (one.answer().await, other.answer().await);
            assert_eq!(undated(&one), undated(&other), "{request}");
            assert!(one.contains("\r\ndate: ") && other.contains("\r\ndate: "), "{one}{other}");
        }
    }
}

#[tokio::test]
async fn an_answer_that_may_have_no_body_has_none() {
    let front = Front::start(Limits::default()).await;
    for (path, status) in [("/nothing", "204 No Content"), ("/unchanged", "304 Not Modified")] {
        let answers = front.exchange(format!("GET {path} HTTP/1.1\r\nHost: a\r\n\r\n{CLOSING}")).await;
        assert!(answers.starts_with(&format!("HTTP/1.1 {status}\r\n")), "{answers}");
        assert!(answers.contains("\r\n\r\nHTTP/1.1 200 OK\r\n") && answers.ends_with("GET /  nobody"), "{answers}");
    }
}

#[tokio::test]
async fn one_request_that_is_not_plain_takes_its_connection_along() {
    let front = Front::start(Limits::default()).await;
    for other in [
        "POST / HTTP/1.1\r\nHost: a\r\nTransfer-Encoding: chunked\r\n\r\n1\r\nx\r\n0\r\n\r\n",
        "HEAD / HTTP/1.1\r\nHost: a\r\n\r\n",
        "GET http://a/ HTTP/1.1\r\nHost: a\r\n\r\n",
        "GET / HTTP/1.1\r\nHost: a\r\nConnection: keep-alive, TE\r\n\r\n",
        "GET / HTTP/1.1\r\nHost: a\r\nUpgrade: h2c\r\n\r\n",
    ] {
        let mut client = front.connect().await;
        assert!(is_short(&mut client).await && is_short(&mut client).await);
        client.send(other).await;
        // The body that a HEAD announces does not follow.
        let mut head = Vec::new();
        while !head.ends_with(b"\r\n\r\n") {
            head.push(soon("a head", tokio::io::AsyncReadExt::read_u8(&mut client.stream)).await.unwrap());
        }
        if !other.starts_with("HEAD") {
            let mut body = [0; 64];
            soon("a body", tokio::io::AsyncReadExt::read(&mut client.stream, &mut body)).await.unwrap();
        }
        assert!(head.starts_with(b"HTTP/1.1 200 OK\r\n"), "{other}");
        assert!(!is_short(&mut client).await, "{other}");
    }
}

#[tokio::test]
async fn a_request_that_comes_in_two_pieces_is_served_all_the_same() {
    let front = Front::start(Limits::default()).await;
    for cut in [1, 20, ADDRESS.len() - 3, ADDRESS.len() - 1] {
        let mut client = front.connect().await;
        assert!(is_short(&mut client).await);
        let (one, other) = ADDRESS.split_at(cut);
        client.send(one).await;
        // The first piece is read by itself: another connection is served meanwhile.
        assert!(is_short(&mut front.connect().await).await);
        client.send(other).await;
        assert!(client.answer().await.ends_with("\r\n\r\ntold"), "cut at {cut}");
    }
}

#[tokio::test]
async fn a_request_that_is_longer_than_one_read_is_plain_if_it_is_there() {
    let front = Front::start(Limits::default()).await;
    let body = "x".repeat(40_000);
    let request = format!("POST /address HTTP/1.1\r\nHost: a\r\nContent-Length: {}\r\n\r\n{body}", body.len());
    // The system may bring a write in pieces, and then it is not all there; it seldom does.
    let mut short = 0;
    for _ in 0..20 {
        let mut client = front.connect().await;
        client.send(request.clone()).await;
        short += usize::from(client.answer().await.ends_with("\r\n\r\nuntold"));
    }
    assert!(short > 0, "none of 20 went the short way");
    let mut client = front.connect().await;
    // Longer than any plain one.
    let body = "x".repeat(400_000);
    let request = format!("POST / HTTP/1.1\r\nHost: a\r\nContent-Length: {}\r\n\r\n{body}", body.len());
    client.send(request).await;
    assert!(client.answer().await.contains(&body));
    assert!(!is_short(&mut client).await);
}

#[tokio::test]
async fn an_answer_of_unknown_length_ends_its_connection() {
    let front = Front::start(Limits::default()).await;
    let answer = front.exchange("GET /trailers HTTP/1.1\r\nHost: a\r\n\r\n").await;
    assert!(answer.contains("\r\nconnection: close\r\n") && !answer.contains("content-length"), "{answer}");
    assert!(answer.ends_with("\r\n\r\nbody"), "{answer}");
}
