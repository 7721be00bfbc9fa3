//! Writes the head of a response as bytes, as hyper writes it for the answers of our routes.
//! Never writes a length that the body does not have: an unknown length is marked by the end of the connection.
//! Called by `plain`.

use std::cell::RefCell;
use std::time::{Duration, SystemTime};

use http::{StatusCode, header, response::Parts};

/// Whether the connection stays open after the answer.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(super) enum Then {
    Stay,
    Close,
}

/// Whether a body that the service gives must not be sent.
pub(super) fn is_bodiless(status: StatusCode) -> bool {
    status.is_informational() || matches!(status, StatusCode::NO_CONTENT | StatusCode::NOT_MODIFIED)
}

/// Writes the head for a body of `length` bytes. The connection ends afterwards where this answer is the last, where
/// the length is unknown, or where the service asks for it.
pub(super) fn head(out: &mut Vec<u8>, parts: &Parts, length: Option<u64>, is_last: bool) -> Then {
    out.extend_from_slice(b"HTTP/1.1 ");
    out.extend_from_slice(parts.status.as_str().as_bytes());
    out.push(b' ');
    out.extend_from_slice(parts.status.canonical_reason().unwrap_or_default().as_bytes());
    out.extend_from_slice(b"\r\n");
    let bodiless = is_bodiless(parts.status);
    let (mut has_length, mut has_date, mut ends) = (bodiless, false, is_last);
    for (name, value) in &parts.headers {
        match *name {
            // A 304 may state the length that the body would have.
            header::CONTENT_LENGTH if bodiless && parts.status != StatusCode::NOT_MODIFIED => continue,
            header::CONTENT_LENGTH => has_length = true,
            header::CONNECTION => {
                ends |= !value.as_bytes().eq_ignore_ascii_case(b"keep-alive");
                continue;
            }
            header::DATE => has_date = true,
            _ => {}
        }
        line(out, name.as_str(), value.as_bytes());
    }
    match length {
        Some(length) if !has_length => line(out, "content-length", itoa::Buffer::new().format(length).as_bytes()),
        None if !has_length => ends = true,
        _ => {}
    }
    if ends {
        line(out, "connection", b"close");
    }
    if !has_date {
        DATE.with_borrow_mut(|date| line(out, "date", date.now()));
    }
    out.extend_from_slice(b"\r\n");
    if ends { Then::Close } else { Then::Stay }
}

fn line(out: &mut Vec<u8>, name: &str, value: &[u8]) {
    out.extend_from_slice(name.as_bytes());
    out.extend_from_slice(b": ");
    out.extend_from_slice(value);
    out.extend_from_slice(b"\r\n");
}

thread_local! {
    static DATE: RefCell<Date> = RefCell::default();
}

/// The time as the `Date` header has it, formatted once a second.
#[derive(Default)]
struct Date {
    second: u64,
    text: String,
}

impl Date {
    fn now(&mut self) -> &[u8] {
        // A clock set before 1970 is taken for 1970: an earlier date cannot be written.
        let second = SystemTime::now().duration_since(SystemTime::UNIX_EPOCH).map_or(0, |since| since.as_secs());
        if second != self.second || self.text.is_empty() {
            let now = SystemTime::UNIX_EPOCH + Duration::from_secs(second);
            *self = Self { second, text: httpdate::fmt_http_date(now) };
        }
        self.text.as_bytes()
    }
}
