//! HTTP/2 frame by frame: clients that no library would be.

use std::time::Duration;

use fencepost_front::Limits;
use tokio::io::AsyncReadExt;

use super::bytes_on_the_wire::{Client, Front, soon};
use super::http2_bytes::*;

const TINY_MS: u64 = 40;
/// Only the bound under test is small.
fn patient() -> Limits {
    let ms = 60_000;
    Limits {
        head_ms_max: ms,
        idle_ms_max: ms,
        body_wait_ms_max: ms,
        write_wait_ms_max: ms,
        ping_every_ms: ms,
        ..Limits::default()
    }
}

async fn hello(front: &Front, settings: &[u8]) -> Client {
    let mut client = front.connect().await;
    client.send([PREFACE, &frame(SETTINGS, 0, 0, settings)].concat()).await;
    client
}

/// The next frame of one of these kinds: its stream and what it says.
async fn next(client: &mut Client, kinds: &[u8]) -> Option<(u32, Vec<u8>)> {
    loop {
        let mut head = [0; 9];
        soon("a frame", client.stream.read_exact(&mut head)).await.ok()?;
        let len = u32::from_be_bytes([0, head[0], head[1], head[2]]);
        let mut payload = vec![0; len as usize];
        soon("its payload", client.stream.read_exact(&mut payload)).await.ok()?;
        if kinds.contains(&head[3]) {
            return Some((u32::from_be_bytes([head[5], head[6], head[7], head[8]]), payload));
        }
    }
}

/// Reads whatever comes until the server closes.
async fn assert_closed(client: &mut Client) {
    client.rest().await;
}

#[tokio::test]
async fn a_connection_that_says_nothing_after_its_preface_is_closed() {
    let front = Front::start(Limits { head_ms_max: TINY_MS, linger_ms_max: TINY_MS, ..patient() }).await;
    for said in [PREFACE.to_vec(), [PREFACE, &frame(SETTINGS, 0, 0, &[])].concat(), [PREFACE, &[0; 5]].concat()] {
        let mut client = front.connect().await;
        client.send(said).await;
        assert_closed(&mut client).await;
    }
    // Pings and half a head are no request.
    let mut client = hello(&front, &[]).await;
    client.send(frame(PING, 0, 0, &[0; 8])).await;
    client.send(&ask(1, "/ok")[..12]).await;
    assert_closed(&mut client).await;
    assert_eq!(front.seen.calls(), 0);
}

#[tokio::test]
async fn a_client_that_does_not_answer_a_ping_is_cut_although_it_is_being_served() {
    let front = Front::start(Limits { ping_every_ms: TINY_MS, ping_wait_ms_max: TINY_MS, ..patient() }).await;
    let mut client = hello(&front, &[]).await;
    client.send(ask(1, "/held")).await;
    soon("held", front.seen.held.notified()).await;
    assert_closed(&mut client).await;
}

#[tokio::test]
async fn a_client_that_grants_every_window_and_never_reads_is_cut() {
    let front = Front::start(Limits { write_wait_ms_max: TINY_MS, ..patient() }).await;
    let window = [&[0, 4][..], &0x7fff_ffff_u32.to_be_bytes()].concat();
    let mut client = hello(&front, &window).await;
    client.send(frame(WINDOW_UPDATE, 0, 0, &0x7fff_0000_u32.to_be_bytes())).await;
    client.send(ask(1, "/endless")).await;
    soon("the answer is given up", front.seen.dropped.notified()).await;
}

#[tokio::test]
async fn a_client_that_grants_no_window_loses_its_stream() {
    let front = Front::start(Limits { write_wait_ms_max: TINY_MS, ..patient() }).await;
    let mut client = hello(&front, &[&[0, 4][..], &0_u32.to_be_bytes()].concat()).await;
    client.send(ask(1, "/large")).await;
    assert_eq!(next(&mut client, &[RESET]).await.unwrap().0, 1);
}

#[tokio::test]
async fn a_burst_of_requests_that_are_reset_at_once_ends_the_connection() {
    let front = Front::start(patient()).await;
    let mut client = hello(&front, &[]).await;
    let burst =
        (0..1_000).flat_map(|n| [ask(2 * n + 1, "/held"), frame(RESET, 0, 2 * n + 1, &8_u32.to_be_bytes())].concat());
    client.send(burst.collect::<Vec<_>>()).await;
    assert_eq!(next(&mut client, &[GOAWAY]).await.unwrap().1[4..8], 11_u32.to_be_bytes(), "enhance your calm");
    assert!(front.seen.calls() < 200, "{} calls", front.seen.calls());
}

#[tokio::test]
async fn a_client_that_waits_for_each_call_before_it_resets_it_is_cut_too() {
    let front = Front::start(patient()).await;
    let mut client = hello(&front, &[]).await;
    let attack = async {
        for n in 0..1_000 {
            let stream = 2 * n + 1;
            client.send(ask(stream, "/held")).await;
            if tokio::time::timeout(Duration::from_secs(2), front.seen.held.notified()).await.is_err() {
                return n;
            }
            client.send(frame(RESET, 0, stream, &8_u32.to_be_bytes())).await;
        }
        1_000
    };
    let calls = soon("the attack ends", attack).await;
    assert!((100..200).contains(&calls), "{calls} calls");
}

#[tokio::test]
async fn a_body_that_is_not_as_long_as_it_said_is_reset_and_never_whole() {
    let front = Front::start(patient()).await;
    let head = |length| frame(HEADERS, END_HEADERS, 1, &fields(POST, "/x", &[("content-length", length)]));
    let data = |bytes: &[u8]| frame(DATA, END_STREAM, 1, bytes);
    for request in [
        [head("5"), data(b"abc")].concat(),
        [head("2"), data(b"abc")].concat(),
        [head("+3"), data(b"abc")].concat(),
        [head("3, 3"), data(b"abc")].concat(),
        frame(HEADERS, END_HEADERS | END_STREAM, 1, &fields(POST, "/x", &[("content-length", "3")])),
    ] {
        let mut client = hello(&front, &[]).await;
        client.send(request).await;
        assert_eq!(next(&mut client, &[RESET]).await.unwrap().0, 1);
    }
    assert_eq!(front.seen.whole(), 0);
}

#[tokio::test]
async fn a_client_that_sends_it_all_first_can_read_why_it_was_refused() {
    let front = Front::start(Limits { body_bytes_max: 10, ..patient() }).await;
    for path in ["/too-large", "/refused//too"] {
        let mut client = hello(&front, &[]).await;
        client.send(frame(HEADERS, END_HEADERS, 1, &fields(POST, path, &[("content-length", "40000")]))).await;
        assert_eq!(next(&mut client, &[HEADERS, RESET]).await.unwrap().0, 1);
        assert_eq!(next(&mut client, &[DATA, RESET]).await.unwrap().1[0], b'{');
        client.send([frame(DATA, 0, 1, &[0; 16_000]), frame(DATA, 0, 1, &[0; 16_000])].concat()).await;
        client.send([frame(DATA, END_STREAM, 1, &[0; 8_000]), frame(PING, 0, 0, &[7; 8])].concat()).await;
        assert_eq!(next(&mut client, &[PING, RESET]).await.unwrap(), (0, vec![7; 8]), "no reset");
    }
    assert_eq!(front.seen.calls(), 0);
}

#[tokio::test]
async fn heads_that_http_2_forbids_end_their_stream_or_the_connection_and_are_never_served() {
    let front = Front::start(patient()).await;
    let with = |name, value| fields(GET, "/x", &[(name, value)]);
    for block in [
        with("transfer-encoding", "chunked"),
        with("connection", "close"),
        with("connection", "upgrade"),
        with("upgrade", "websocket"),
        with("keep-alive", "1"),
        with("proxy-connection", "x"),
        with("te", "gzip"),
        with("X", "y"),
        with("x y", "z"),
        with("x:", "z"),
        with("", "z"),
        with("x", "a\r\nb: c"),
        with("x", "a\0"),
        with(":path", "/y"),
        with(":status", "200"),
        with(":protocol", "websocket"),
        with(":x", "y"),
        fields(GET, "", &[]),
        fields(GET, "/a b", &[]),
        fields(GET, "/\0", &[]),
        vec![0x82, 0x86, 0x01, 1, b'a'],
        vec![0x82, 0x84, 0x01, 1, b'a'],
        vec![0x86, 0x84, 0x01, 1, b'a'],
    ] {
        let mut client = hello(&front, &[]).await;
        client.send(frame(HEADERS, END_HEADERS | END_STREAM, 1, &block)).await;
        assert!(next(&mut client, &[RESET, GOAWAY]).await.is_some(), "{:?}", String::from_utf8_lossy(&block));
    }
    assert_eq!(front.seen.calls(), 0);
}

#[tokio::test]
async fn a_path_that_is_no_path_is_never_served() {
    let front = Front::start(patient()).await;
    for path in ["http://b/c", "x", "*", "?a", "//b/c", "/\u{e9}"] {
        let mut client = hello(&front, &[]).await;
        client.send(ask(1, path)).await;
        // A problem, or a reset where h2 sees it first.
        assert_eq!(next(&mut client, &[HEADERS, RESET]).await.unwrap().0, 1, "{path}");
    }
    assert_eq!(front.seen.calls(), 0);
}

#[tokio::test]
async fn a_flood_of_pings_and_settings_that_nobody_reads_the_answers_to_ends() {
    let front = Front::start(Limits { write_wait_ms_max: TINY_MS, ..patient() }).await;
    let mut client = hello(&front, &[]).await;
    let flood = [frame(PING, 0, 0, &[1; 8]), frame(SETTINGS, 0, 0, &[])].concat().repeat(4_000);
    let sent = soon("the flood ends", async {
        for n in 0..10_000 {
            if tokio::io::AsyncWriteExt::write_all(&mut client.stream, &flood).await.is_err() {
                return n;
            }
        }
        10_000
    });
    assert!(sent.await < 10_000);
}
