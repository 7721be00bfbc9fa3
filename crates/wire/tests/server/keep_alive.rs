//! Ordinary clients: requests that a strict front must still serve.

use fencepost_front::Limits;
use tokio::io::AsyncWriteExt;

use super::bytes_on_the_wire::{Front, GET, status};

#[tokio::test]
async fn unusual_but_valid_requests_are_served() {
    let front = Front::start(Limits::default()).await;
    for request in [
        GET.to_owned(),
        format!("\r\n{GET}"),
        "GET http://a:80/ok?x=1 HTTP/1.1\r\nHost: a\r\n\r\n".into(),
        "OPTIONS * HTTP/1.1\r\nHost: a\r\n\r\n".into(),
        "GET /a?b=[1]&c={2}|3 HTTP/1.1\r\nhOsT: [::1]:7411\r\n\r\n".into(),
        "BREW /pot HTTP/1.1\r\nHost: a\r\nX-Empty:\r\nX-Latin: \u{e9}\r\nX-Tab: a\tb\r\n\r\n".into(),
        "POST / HTTP/1.1\r\nHost:a\r\nContent-Length:   3  \r\n\r\nabc".into(),
        "POST / HTTP/1.1\r\nHost: a\r\nTransfer-Encoding: Chunked\r\n\r\n3\r\nabc\r\n0\r\n\r\n".into(),
        "GET / HTTP/1.1\r\nHost: a\r\nConnection: Upgrade, HTTP2-Settings\r\nUpgrade: h2c\r\nHTTP2-Settings: AAMAAABk\r\n\r\n".into(),
        format!("GET / HTTP/1.1\r\nHost: a\r\n{}\r\n", "X: y\r\n".repeat(99)),
        format!("GET /{} HTTP/1.1\r\nHost: a\r\nX: {}\r\n\r\n", "a".repeat(8_000), "b".repeat(8_000)),
    ] {
        let mut client = front.connect().await;
        // Twice on one connection: the first must leave it in order.
        for _ in 0..2 {
            client.send(&request).await;
            let answer = client.answer().await;
            assert_eq!(status(&answer), 200, "{request}{answer}");
        }
    }
}

#[tokio::test]
async fn pipelined_requests_are_answered_in_order() {
    let front = Front::start(Limits::default()).await;
    let mut requests = String::new();
    for n in 0..300 {
        requests += &match n % 3 {
            0 => format!("GET /{n} HTTP/1.1\r\nHost: a\r\n\r\n"),
            1 => format!(
                "POST /{n} HTTP/1.1\r\nHost: a\r\nContent-Length: 29\r\n\r\nGET /x HTTP/1.1\r\nHost: a\r\n\r\n!"
            ),
            _ => format!(
                "POST /{n} HTTP/1.1\r\nHost: a\r\nTransfer-Encoding: chunked\r\n\r\n5;x\r\n0\r\n\r\n\r\n1\r\n!\r\n0\r\nT: v\r\n\r\n"
            ),
        };
    }
    requests += "GET /last HTTP/1.1\r\nHost: a\r\nConnection: close\r\n\r\n";
    // Every size of piece cuts heads, sizes and trailers at other places.
    for size in [requests.len(), 1_000, 97] {
        let mut client = front.connect().await;
        let (mut reader, mut writer) = client.stream.split();
        let send = async {
            for piece in requests.as_bytes().chunks(size) {
                writer.write_all(piece).await.unwrap();
            }
        };
        let mut text = String::new();
        let read = tokio::io::AsyncReadExt::read_to_string(&mut reader, &mut text);
        let ((), read) = super::bytes_on_the_wire::soon("all answers", async { tokio::join!(send, read) }).await;
        read.unwrap();
        let mut from = 0;
        for n in 0..300 {
            let at =
                text[from..].find(&format!(" /{n} ")).unwrap_or_else(|| panic!("no answer to {n} in pieces of {size}"));
            from += at;
        }
        assert!(text[from..].contains("GET /last"));
        assert_eq!(text.matches("HTTP/1.1 200").count(), 301);
    }
    assert_eq!(front.seen.whole(), 3 * 301);
}

#[tokio::test]
async fn a_head_that_comes_byte_by_byte_is_served() {
    let front = Front::start(Limits::default()).await;
    let mut client = front.connect().await;
    for _ in 0..2 {
        for byte in "POST /b HTTP/1.1\r\nHost: a\r\nTransfer-Encoding: chunked\r\n\r\n2\r\nhi\r\n0\r\n\r\n".bytes() {
            client.send([byte]).await;
        }
        assert!(client.answer().await.ends_with("POST /b hi nobody"));
    }
}

#[tokio::test]
async fn http_1_0_is_served_and_closed_even_if_it_asks_to_stay() {
    let front = Front::start(Limits::default()).await;
    for extra in ["", "Connection: keep-alive\r\n", "Host: a\r\n"] {
        let answer = front.exchange(format!("GET /old HTTP/1.0\r\n{extra}\r\n")).await;
        assert!(answer.contains(" 200 ") && answer.ends_with("GET /old  nobody"), "{answer}");
        assert!(answer.contains("connection: close"), "{answer}");
    }
}

#[tokio::test]
async fn a_client_that_expects_100_continue_gets_it_before_it_sends() {
    let front = Front::start(Limits::default()).await;
    let mut client = front.connect().await;
    client
        .send("POST /c HTTP/1.1\r\nHost: a\r\nContent-Length: 2\r\nExpect: 100-continue\r\nConnection: close\r\n\r\n")
        .await;
    let mut line = [0; 25];
    super::bytes_on_the_wire::soon("100", tokio::io::AsyncReadExt::read_exact(&mut client.stream, &mut line))
        .await
        .unwrap();
    assert_eq!(&line, b"HTTP/1.1 100 Continue\r\n\r\n");
    client.send("hi").await;
    assert!(client.rest().await.ends_with("POST /c hi nobody"));
}
