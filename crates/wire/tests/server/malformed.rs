//! Requests that must not be served, byte by byte as an attacker sends them.

use fencepost_front::Limits;

use super::bytes_on_the_wire::{Front, GET, assert_problem, status};

const BAD: u16 = 400;

/// (what is wrong, bytes, status)
fn heads() -> Vec<(&'static str, String, u16)> {
    let with = |headers: &str| format!("POST /x HTTP/1.1\r\nHost: a\r\n{headers}\r\n");
    let line = |line: &str| format!("{line}\r\nHost: a\r\n\r\n");
    vec![
        ("bare LF after the request line", "GET / HTTP/1.1\nHost: a\r\n\r\n".into(), BAD),
        ("bare LF after a header", "GET / HTTP/1.1\r\nHost: a\nX: b\r\n\r\n".into(), BAD),
        ("bare LF as the empty line", "GET / HTTP/1.1\r\nHost: a\r\n\n".into(), BAD),
        ("bare LF throughout", "GET / HTTP/1.1\nHost: a\n\n".into(), BAD),
        ("bare LF first", "\nGET / HTTP/1.1\r\nHost: a\r\n\r\n".into(), BAD),
        ("bare CR in a value", with("X: a\rb\r\n"), BAD),
        ("bare CR in the request line", line("GET /\r HTTP/1.1"), BAD),
        ("two empty lines first", format!("\r\n\r\n{GET}"), BAD),
        ("two lengths that differ", with("Content-Length: 3\r\nContent-Length: 4\r\n") + "abcd", BAD),
        ("two lengths that agree", with("Content-Length: 3\r\ncontent-length: 3\r\n") + "abc", BAD),
        ("a list of lengths", with("Content-Length: 3, 3\r\n") + "abc", BAD),
        ("a signed length", with("Content-Length: +3\r\n") + "abc", BAD),
        ("a negative length", with("Content-Length: -3\r\n"), BAD),
        ("a hexadecimal length", with("Content-Length: 0x3\r\n") + "abc", BAD),
        ("an empty length", with("Content-Length: \r\n"), BAD),
        ("a length with a space inside", with("Content-Length: 1 0\r\n") + "abc", BAD),
        ("a length past 64 bits", with("Content-Length: 18446744073709551617\r\n"), BAD),
        ("length and chunked", with("Content-Length: 3\r\nTransfer-Encoding: chunked\r\n") + "0\r\n\r\n", BAD),
        ("chunked and length", with("Transfer-Encoding: chunked\r\nContent-Length: 3\r\n") + "0\r\n\r\n", BAD),
        ("gzip, chunked", with("Transfer-Encoding: gzip, chunked\r\n") + "0\r\n\r\n", BAD),
        ("chunked, gzip", with("Transfer-Encoding: chunked, gzip\r\n"), BAD),
        ("chunked twice in one", with("Transfer-Encoding: chunked, chunked\r\n") + "0\r\n\r\n", BAD),
        ("chunked twice", with("Transfer-Encoding: chunked\r\nTransfer-Encoding: chunked\r\n") + "0\r\n\r\n", BAD),
        ("identity", with("Transfer-Encoding: identity\r\n"), BAD),
        ("quoted chunked", with("Transfer-Encoding: \"chunked\"\r\n"), BAD),
        ("xchunked", with("Transfer-Encoding: xchunked\r\n"), BAD),
        ("chunked behind a vertical tab", with("Transfer-Encoding: \x0bchunked\r\n"), BAD),
        ("chunked with a parameter", with("Transfer-Encoding: chunked;a=b\r\n"), BAD),
        (
            "chunked in HTTP/1.0",
            "POST / HTTP/1.0\r\nHost: a\r\nTransfer-Encoding: chunked\r\n\r\n0\r\n\r\n".into(),
            BAD,
        ),
        ("space before the colon", with("Transfer-Encoding : chunked\r\n"), BAD),
        ("tab before the colon", with("Content-Length\t: 3\r\n") + "abc", BAD),
        ("a folded header", with("X: a\r\n b\r\n"), BAD),
        ("a folded first header", "GET / HTTP/1.1\r\n Host: a\r\n\r\n".into(), BAD),
        ("a header without a name", with(": x\r\n"), BAD),
        ("a header without a colon", with("Nonsense\r\n"), BAD),
        ("NUL in a value", with("X: a\0b\r\n"), BAD),
        ("a control character in a value", with("X: a\x01b\r\n"), BAD),
        ("DEL in a value", with("X: a\x7fb\r\n"), BAD),
        ("NUL in a name", with("X\0: b\r\n"), BAD),
        ("a parenthesis in a name", with("X(: b\r\n"), BAD),
        ("no Host", "GET / HTTP/1.1\r\n\r\n".into(), BAD),
        ("two Hosts", with("host: b\r\n"), BAD),
        ("two equal Hosts", with("Host: a\r\n"), BAD),
        ("an empty Host", "GET / HTTP/1.1\r\nHost:\r\n\r\n".into(), BAD),
        ("a Host with a path", "GET / HTTP/1.1\r\nHost: a/b\r\n\r\n".into(), BAD),
        ("a Host with a user", "GET / HTTP/1.1\r\nHost: u@a\r\n\r\n".into(), BAD),
        ("a Host that is a list", "GET / HTTP/1.1\r\nHost: a, b\r\n\r\n".into(), BAD),
        ("no version", "GET /\r\nHost: a\r\n\r\n".into(), BAD),
        ("a version with a space", line("GET / HTTP/ 1.1"), BAD),
        ("two spaces after the method", line("GET  / HTTP/1.1"), BAD),
        ("a tab after the method", line("GET\t/ HTTP/1.1"), BAD),
        ("a leading space", line(" GET / HTTP/1.1"), BAD),
        ("a method that is no token", line("G(T / HTTP/1.1"), BAD),
        ("a target without a slash", line("GET x HTTP/1.1"), BAD),
        ("a star that is not OPTIONS", line("GET * HTTP/1.1"), BAD),
        ("a fragment", line("GET /#a HTTP/1.1"), BAD),
        ("raw UTF-8 in the target", line("GET /\u{e9} HTTP/1.1"), BAD),
        ("angle brackets in the target", line("GET /<a> HTTP/1.1"), BAD),
        ("another scheme", line("GET ftp://a/ HTTP/1.1"), BAD),
        ("an absolute target without a host", line("GET http:///x HTTP/1.1"), BAD),
        ("an absolute target with a user", line("GET http://u@a/x HTTP/1.1"), BAD),
        ("garbage", "\x16\x03\x01\x02\x00\x01\x00\x01\r\n\r\n\r\n".into(), BAD),
        ("half an HTTP/2 preface", "PRI * HTTP/2.0\r\n\r\nSN\r\n\r\n".into(), BAD),
        ("HTTP/2.0", line("GET / HTTP/2.0"), BAD),
        ("HTTP/1.2", line("GET / HTTP/1.2"), BAD),
        ("CONNECT", line("CONNECT a:443 HTTP/1.1"), BAD),
        ("a WebSocket", with("Connection: Upgrade\r\nUpgrade: websocket\r\n"), BAD),
        ("a request line past its bound", line(&format!("GET /{} HTTP/1.1", "a".repeat(8_200))), 414),
        ("a request line without end", format!("GET /{}", "a".repeat(8_300)), 414),
        ("a header past the bound", with(&format!("X: {}\r\n", "a".repeat(16_400))), 431),
        ("a header without end", format!("GET / HTTP/1.1\r\nHost: a\r\nX: {}", "a".repeat(17_000)), 431),
        ("half a megabyte of headers", with(&format!("X: {}\r\n", "a".repeat(500)).repeat(1_000)), 431),
        ("101 headers", with(&"X: y\r\n".repeat(100)), 431),
    ]
}

fn code(name: &str, status: u16) -> &'static str {
    match (name, status) {
        ("half an HTTP/2 preface" | "HTTP/2.0" | "HTTP/1.2", 400) => "http-version-unsupported",
        ("CONNECT" | "a WebSocket", 400) => "not-implemented",
        (_, 400) => "malformed-request",
        (_, 414) => "request-line-too-long",
        (_, 431) => "headers-too-large",
        (_, other) => panic!("no code for {other}"),
    }
}

#[tokio::test]
async fn a_malformed_head_is_a_problem_and_never_reaches_the_service() {
    let front = Front::start(Limits::default()).await;
    assert!(heads().len() >= 40);
    for (name, bytes, expected) in heads() {
        println!("{name}");
        assert_problem(&front.exchange(&bytes).await, expected, code(name, expected));
        // The same in two pieces: one answer, whether the head came whole or not.
        let mut client = front.connect().await;
        client.send(&bytes[..bytes.len().min(10)]).await;
        client.send(&bytes[bytes.len().min(10)..]).await;
        assert_problem(&client.rest().await, expected, code(name, expected));
    }
    assert_eq!(front.seen.calls(), 0);
}

#[tokio::test]
async fn a_malformed_head_behind_a_good_request_is_refused_after_the_good_answer() {
    let front = Front::start(Limits::default()).await;
    for (at, (name, bytes, expected)) in heads().into_iter().enumerate() {
        println!("{name}");
        let mut client = front.connect().await;
        client.send(format!("{GET}{bytes}")).await;
        assert_eq!(status(&client.answer().await), 200);
        assert_problem(&client.rest().await, expected, code(name, expected));
        assert_eq!(front.seen.calls(), at + 1);
    }
}

#[tokio::test]
async fn a_malformed_chunked_body_is_a_problem_and_never_a_whole_body() {
    let front = Front::start(Limits::default()).await;
    let bodies = [
        "\r\n",
        "x\r\n",
        "-1\r\n",
        "+5\r\nhello\r\n0\r\n\r\n",
        "0x5\r\nhello\r\n0\r\n\r\n",
        " 5\r\nhello\r\n0\r\n\r\n",
        "5 \r\nhello\r\n0\r\n\r\n",
        "5\nhello\r\n0\r\n\r\n",
        "5\r\nhello\n0\r\n\r\n",
        "5\r\nhello0\r\n\r\n",
        "5\r\nhello\r0\r\n\r\n",
        "5\r\nhello!\r\n0\r\n\r\n",
        "5;a\nb\r\nhello\r\n0\r\n\r\n",
        "5;\0\r\nhello\r\n0\r\n\r\n",
        "5\r\nhello\r\n0\n\r\n",
        "5\r\nhello\r\n0\r\n\n",
        "5\r\nhello\r\n0\r\nA: b\n\r\n",
        "5\r\nhello\r\n0\r\n A: b\r\n\r\n",
        "5\r\nhello\r\n0\r\nA\0: b\r\n\r\n",
        "5\r\nhello\r\n0\r\nA(: b\r\n\r\n",
        "5\r\nhello\r\n0\r\nA : b\r\n\r\n",
        "FFFFFFFFFFFFFFFF\r\nhello",
        "10000000000000000\r\nhello",
        "0000000000000000005\r\nhello\r\n0\r\n\r\n",
    ];
    let head = "POST /x HTTP/1.1\r\nHost: a\r\nTransfer-Encoding: chunked\r\n\r\n";
    for body in bodies {
        println!("{body:?}");
        assert_problem(&front.exchange(format!("{head}{body}")).await, 400, "malformed-request");
        let mut client = front.connect().await;
        client.send(head).await;
        client.send(body).await;
        assert_problem(&client.rest().await, 400, "malformed-request");
    }
    let endless_extension = format!("{head}5;{}", "a".repeat(20_000));
    assert_problem(&front.exchange(endless_extension).await, 400, "malformed-request");
    let endless_trailer = format!("{head}0\r\nA: {}", "a".repeat(20_000));
    assert_problem(&front.exchange(endless_trailer).await, 400, "malformed-request");
    assert_eq!(front.seen.whole(), 0);
}

#[tokio::test]
async fn a_smuggled_second_request_is_never_served() {
    let front = Front::start(Limits::default()).await;
    let inner = "GET /smuggled HTTP/1.1\r\nHost: a\r\n\r\n";
    for framing in [
        format!("Content-Length: {}\r\nTransfer-Encoding: chunked\r\n\r\n0\r\n\r\n{inner}", 5 + inner.len()),
        format!("Transfer-Encoding: chunked\r\nContent-Length: 4\r\n\r\n5c\r\n{inner}"),
        format!("Transfer-Encoding: xchunked\r\nContent-Length: 0\r\n\r\n{inner}"),
        format!("Content-Length: 0\r\nContent-Length: {}\r\n\r\n{inner}", inner.len()),
        format!("X: a\n\n{inner}"),
    ] {
        let answer = front.exchange(format!("POST / HTTP/1.1\r\nHost: a\r\n{framing}")).await;
        assert_problem(&answer, 400, "malformed-request");
    }
    assert_eq!(front.seen.calls(), 0);
}
