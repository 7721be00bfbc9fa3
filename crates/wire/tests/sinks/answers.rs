//! The meaning of each answer, and the part of it that is kept.

use fencepost_kernel::lane::AttemptFailure;
use fencepost_kernel::lane::NOTE_BYTES_MAX;
use fencepost_wire::sinks::webhook::WebhookSettings;

use super::receiver::{Receiver, Then, attempt, later, sink};

const DAY_MS: u64 = 24 * 3_600_000;

async fn answered(answer: impl Into<Vec<u8>>) -> Result<(), AttemptFailure> {
    let receiver = Receiver::start(answer, Then::Close).await;
    let outcome = attempt(&sink(&WebhookSettings::default()), &receiver.url()).await;
    assert_eq!(receiver.heard().len(), 1);
    outcome
}

fn with_body(status: u16, headers: &str, body: &[u8]) -> Vec<u8> {
    let mut answer = format!("HTTP/1.1 {status} x\r\n{headers}Content-Length: {}\r\n\r\n", body.len()).into_bytes();
    answer.extend_from_slice(body);
    answer
}

#[tokio::test]
async fn any_2xx_is_an_acknowledgement() {
    for status in [200, 201, 202, 206, 299] {
        assert_eq!(answered(with_body(status, "", b"thanks")).await, Ok(()), "{status}");
    }
    assert_eq!(answered("HTTP/1.1 204 No Content\r\n\r\n").await, Ok(()));
    assert_eq!(answered("HTTP/1.0 200 OK\r\n\r\nuntil I close").await, Ok(()));
}

#[tokio::test]
async fn a_2xx_whose_body_breaks_off_is_still_an_acknowledgement() {
    assert_eq!(answered("HTTP/1.1 200 OK\r\nContent-Length: 100\r\n\r\nhalf").await, Ok(()));
    assert_eq!(answered("HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\nzzz").await, Ok(()));
}

#[tokio::test]
async fn a_receiver_that_is_gone_says_so_with_410_only() {
    let Err(AttemptFailure::Gone(answer)) = answered(with_body(410, "", b"closed for good")).await else { panic!() };
    assert_eq!((answer.status, answer.note.as_str()), (Some(410), "closed for good"));
}

#[tokio::test]
async fn every_other_status_is_tried_again_later() {
    for status in [300, 400, 401, 403, 404, 405, 408, 409, 413, 415, 422, 425, 429, 451, 500, 501, 502, 503, 599] {
        let told = later(answered(with_body(status, "", b"no")).await);
        assert_eq!(told, (Some(status), "no".to_owned(), None), "{status}");
    }
}

#[tokio::test]
async fn a_redirect_is_not_followed() {
    for status in [301, 302, 303, 307, 308] {
        let other = Receiver::start(super::receiver::OK, Then::Listen).await;
        let elsewhere = other.url().replace("/hooks?tenant=a%20b", "/moved");
        let answer = with_body(status, &format!("Location: {elsewhere}\r\n"), b"moved");
        let (told, note, _) = later(answered(answer).await);
        assert_eq!(told, Some(status));
        assert!(note.contains("not followed") && note.contains(&elsewhere), "{note}");
        assert_eq!(other.connections(), 0);
    }
}

#[tokio::test]
async fn a_switch_of_protocols_is_no_acknowledgement() {
    let answer = "HTTP/1.1 101 Switching Protocols\r\nConnection: upgrade\r\nUpgrade: x\r\n\r\n";
    assert_eq!(later(answered(answer).await).0, Some(101));
}

#[tokio::test]
async fn retry_after_is_seconds_or_a_date_and_never_more_than_a_day() {
    // The clock of these tests stands at Tue, 14 Nov 2023 22:13:20 GMT.
    let table = [
        ("120", Some(120_000)),
        (" 7 ", Some(7_000)),
        ("0", Some(0)),
        ("86401", Some(DAY_MS)),
        ("99999999999999999999999", Some(DAY_MS)),
        ("Tue, 14 Nov 2023 22:14:20 GMT", Some(59_001)),
        ("Tuesday, 14-Nov-23 22:14:20 GMT", Some(59_001)),
        ("Tue, 14 Nov 2023 22:00:00 GMT", Some(0)),
        ("Tue, 14 Nov 2034 22:00:00 GMT", Some(DAY_MS)),
        ("soon", None),
        ("-5", None),
        ("1.5", None),
        ("", None),
    ];
    for (text, wish_ms) in table {
        for status in [429, 503] {
            let answer = with_body(status, &format!("Retry-After: {text}\r\n"), b"");
            assert_eq!(later(answered(answer).await).2, wish_ms, "{text}");
        }
    }
}

#[tokio::test]
async fn the_note_is_one_readable_line_of_bounded_length() {
    let told = later(answered(with_body(500, "", b"\r\n one\ntwo\x1b[31m\x00three \xff\xc3\xbc\n")).await).1;
    assert_eq!(told, "one two\u{fffd}[31m\u{fffd}three \u{fffd}ü");
    let told = later(answered(with_body(500, "", "ü".repeat(3_000).as_bytes())).await).1;
    assert_eq!(told, "ü".repeat(NOTE_BYTES_MAX / 2));
}

#[tokio::test]
async fn bytes_that_are_no_answer_are_noted_in_words() {
    let table: [(&str, &str); 4] = [
        ("", "closed"),
        ("SSH-2.0-OpenSSH_9.2\r\n", "invalid HTTP version"),
        ("HTTP/1.1 twohundred OK\r\n\r\n", "invalid HTTP status"),
        ("HTTP/1.1 200 OK\r\nContent-Length: 1\r\nContent-Length: 2\r\n\r\nx", "content-length"),
    ];
    for (answer, words) in table {
        let (status, note, _) = later(answered(answer).await);
        assert!(status.is_none() && note.contains(words), "{answer:?}: {note}");
    }
    for much in [format!("X-Much: {}\r\n", "y".repeat(20_000)), "X-Many: y\r\n".repeat(500)] {
        let (status, note, _) = later(answered(with_body(200, &much, b"")).await);
        assert!(status.is_none() && note.contains("too large"), "{note}");
    }
}

#[tokio::test]
async fn a_receiver_that_is_not_there_is_told_in_words() {
    let gone = tokio::net::TcpListener::bind(("127.0.0.1", 0)).await.unwrap().local_addr().unwrap();
    let sink = sink(&WebhookSettings::default());
    let (status, note, _) = later(attempt(&sink, &format!("http://{gone}/")).await);
    assert!(status.is_none() && note.contains("refused"), "{note}");
    let (status, note, _) = later(attempt(&sink, "http://nobody.invalid/").await);
    assert!(status.is_none() && note.contains("nobody.invalid cannot be looked up"), "{note}");
}
