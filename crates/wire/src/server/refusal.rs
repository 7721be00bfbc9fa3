//! What the front answers by itself, as `application/problem+json`.
//! Never carries anything a client sent, except the trace id of a well-formed `traceparent`.
//! Made by the guard, the body and the accept loop; written by the connection.

use std::collections::hash_map::RandomState;
use std::hash::BuildHasher;

use bytes::Bytes;
use http::{HeaderValue, Response, StatusCode, header};
use http_body_util::Full;

use crate::problem::PAGES;

/// Every status and `code` that the front answers with.
pub const CODES: [(u16, &str); 8] = [
    (400, "malformed-request"),
    (408, "request-timeout"),
    (413, "too-large"),
    (414, "request-line-too-long"),
    (431, "headers-too-large"),
    (501, "not-implemented"),
    (503, "too-many-connections"),
    (505, "http-version-unsupported"),
];

/// One reason not to serve.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) struct Refusal {
    status: StatusCode,
    code: &'static str,
    title: &'static str,
    detail: &'static str,
}

/// The bytes on the wire are not a request that we would read the same way as everybody else.
pub(super) const fn malformed(detail: &'static str) -> Refusal {
    Refusal {
        status: StatusCode::BAD_REQUEST,
        code: "malformed-request",
        title: "The request cannot be understood",
        detail,
    }
}

/// A mechanism of HTTP that is deliberately absent here.
pub(super) const fn not_implemented(detail: &'static str) -> Refusal {
    Refusal { status: StatusCode::NOT_IMPLEMENTED, code: "not-implemented", title: "Not implemented", detail }
}

pub(super) const HEAD_TOO_SLOW: Refusal = Refusal {
    status: StatusCode::REQUEST_TIMEOUT,
    code: "request-timeout",
    title: "The request took too long to arrive",
    detail: "the request line and headers did not arrive in time",
};

pub(super) const BODY_TOO_SLOW: Refusal =
    Refusal { detail: "the request body did not arrive in time", ..HEAD_TOO_SLOW };

pub(super) const BODY_TOO_LARGE: Refusal = Refusal {
    status: StatusCode::PAYLOAD_TOO_LARGE,
    code: "too-large",
    title: "The request is too large",
    detail: "the request body is larger than this path accepts",
};

pub(super) const LINE_TOO_LONG: Refusal = Refusal {
    status: StatusCode::URI_TOO_LONG,
    code: "request-line-too-long",
    title: "Request line too long",
    detail: "the request line is longer than this server accepts",
};

pub(super) const HEAD_TOO_LARGE: Refusal = Refusal {
    status: StatusCode::REQUEST_HEADER_FIELDS_TOO_LARGE,
    code: "headers-too-large",
    title: "Request headers too large",
    detail: "the request has more or larger headers than this server accepts",
};

pub(super) const FULL: Refusal = Refusal {
    status: StatusCode::SERVICE_UNAVAILABLE,
    code: "too-many-connections",
    title: "Too many connections",
    detail: "this server has as many connections as it may serve; try again shortly",
};

pub(super) const VERSION: Refusal = Refusal {
    status: StatusCode::HTTP_VERSION_NOT_SUPPORTED,
    code: "http-version-unsupported",
    title: "HTTP version not supported",
    detail: "this server speaks HTTP/1.1 only",
};

impl Refusal {
    /// As a response that ends the connection.
    pub(super) fn response(&self, traceparent: Option<&HeaderValue>) -> Response<Full<Bytes>> {
        let mut response = Response::new(Full::new(Bytes::from(self.json(traceparent))));
        *response.status_mut() = self.status;
        let headers = response.headers_mut();
        headers.insert(header::CONTENT_TYPE, HeaderValue::from_static(PROBLEM_JSON));
        headers.insert(header::CONNECTION, HeaderValue::from_static("close"));
        if self.status == StatusCode::SERVICE_UNAVAILABLE {
            headers.insert(header::RETRY_AFTER, HeaderValue::from_static("1"));
        }
        response
    }

    /// As bytes for a socket that no HTTP machinery was spent on.
    pub(super) fn bytes(&self) -> Vec<u8> {
        let json = self.json(None);
        let retry = match self.status {
            StatusCode::SERVICE_UNAVAILABLE => "retry-after: 1\r\n",
            _ => "",
        };
        format!(
            "HTTP/1.1 {}\r\ncontent-type: {PROBLEM_JSON}\r\nconnection: close\r\n{retry}content-length: {}\r\n\r\n{json}",
            self.status,
            json.len()
        )
        .into_bytes()
    }

    fn json(&self, traceparent: Option<&HeaderValue>) -> String {
        // Every member is a constant or hex, so nothing needs escaping.
        format!(
            r#"{{"type":"{PAGES}{code}","title":"{title}","status":{status},"detail":"{detail}","code":"{code}","trace_id":"{trace}"}}"#,
            code = self.code,
            title = self.title,
            status = self.status.as_u16(),
            detail = self.detail,
            trace = traceparent.and_then(trace_id).unwrap_or_else(new_trace_id),
        )
    }
}

const PROBLEM_JSON: &str = "application/problem+json";

/// The trace id of a W3C `traceparent`: version, 32 hex, 16 hex, flags.
fn trace_id(traceparent: &HeaderValue) -> Option<String> {
    let text = traceparent.to_str().ok()?;
    let mut parts = text.split('-');
    let (version, id, span) = (parts.next()?, parts.next()?, parts.next()?);
    let hex =
        |part: &str, len: usize| part.len() == len && part.bytes().all(|b| matches!(b, b'0'..=b'9' | b'a'..=b'f'));
    let known = hex(version, 2) && version != "ff" && hex(id, 32) && hex(span, 16);
    (known && id.bytes().any(|b| b != b'0')).then(|| id.to_owned())
}

/// Unique, not secret: the hasher's keys come from the operating system's randomness.
fn new_trace_id() -> String {
    let (high, low) = (RandomState::new().hash_one(0), RandomState::new().hash_one(1));
    format!("{high:016x}{:016x}", low.max(1))
}

#[cfg(test)]
#[allow(clippy::unwrap_used)]
mod tests {
    use super::*;

    #[test]
    fn a_trace_id_is_taken_only_from_a_well_formed_traceparent() {
        let id = "4bf92f3577b34da6a3ce929d0e0e4736";
        let check = |value: String, expected: Option<&str>| {
            let value = HeaderValue::from_str(&value).unwrap();
            assert_eq!(trace_id(&value).as_deref(), expected, "{value:?}");
        };
        check(format!("00-{id}-00f067aa0ba902b7-01"), Some(id));
        check(format!("ff-{id}-00f067aa0ba902b7-01"), None);
        check(format!("00-{}-00f067aa0ba902b7-01", id.to_uppercase()), None);
        check(format!("00-{}-00f067aa0ba902b7-01", "0".repeat(32)), None);
        check(format!("00-{id}"), None);
        check("\"}".to_owned(), None);
    }

    #[test]
    fn every_problem_is_valid_json_with_a_listed_code() {
        for refusal in [
            malformed("x"),
            not_implemented("x"),
            HEAD_TOO_SLOW,
            BODY_TOO_SLOW,
            BODY_TOO_LARGE,
            LINE_TOO_LONG,
            HEAD_TOO_LARGE,
            FULL,
            VERSION,
        ] {
            let json: serde_json::Value = serde_json::from_str(&refusal.json(None)).unwrap();
            assert_eq!(json["status"], refusal.status.as_u16());
            assert!(CODES.contains(&(refusal.status.as_u16(), json["code"].as_str().unwrap())));
            assert_eq!(json["trace_id"].as_str().unwrap().len(), 32);
        }
    }
}
