//! Too much: bodies past their size, connections past their number.

use fencepost_wire::server::Limits;
use tokio::io::AsyncWriteExt;

use super::bytes_on_the_wire::{Front, GET, assert_problem, soon, status};

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

#[tokio::test]
async fn those_turned_away_are_bounded_too() {
    let front = Front::start(Limits { connections_max: 1, turned_away_max: 1, ..Limits::default() }).await;
    let mut seated = front.connect().await;
    seated.send(GET).await;
    seated.answer().await;

    // Has its answer, and keeps its place by not closing.
    let mut told = front.connect().await;
    assert_eq!(status(&told.answer().await), 503);
    assert_eq!(front.exchange(GET).await, "");
}
