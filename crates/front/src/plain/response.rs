//! The head of a response as bytes, as hyper writes it for the answers of our routes.
//! Never writes a length that the body does not have: one that is not known is told by the end of the connection.
//! Called by `plain`.

use std::cell::RefCell;
use std::time::{Duration, SystemTime};

use http::{StatusCode, header, response::Parts};

/// Whether more may follow on the connection.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(super) enum Then {
    Stay,
    Close,
}

/// Whether what the service has for a body must not be sent.
pub(super) fn is_bodiless(status: StatusCode) -> bool {
    status.is_informational() || matches!(status, StatusCode::NO_CONTENT | StatusCode::NOT_MODIFIED)
}

/// Writes a head for a body of `length`. The connection ends with it where it is the last, where the length is unknown, or where
/// the service wishes so.
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
            // What is not changed may still say how long it is.
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

/// The time as a header has it, written once a second.
#[derive(Default)]
struct Date {
    second: u64,
    text: String,
}

impl Date {
    fn now(&mut self) -> &[u8] {
        // A clock that goes back before 1970 stands there: a date before it cannot be written.
        let second = SystemTime::now().duration_since(SystemTime::UNIX_EPOCH).map_or(0, |since| since.as_secs());
        if second != self.second || self.text.is_empty() {
            let now = SystemTime::UNIX_EPOCH + Duration::from_secs(second);
            *self = Self { second, text: httpdate::fmt_http_date(now) };
        }
        self.text.as_bytes()
    }
}
