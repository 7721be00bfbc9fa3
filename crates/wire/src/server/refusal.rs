//! What the front answers by itself, as `application/problem+json`.
//! Of what a client sent it repeats only the path of a readable request and the trace id of a well-formed `traceparent`.
//! Made by the guard, the body and the accept loop; written by the connection.

use bytes::Bytes;
use http::{HeaderValue, Response, header};
use http_body_util::Full;

use crate::{
    problem::{Code, Problem},
    trace::TraceId,
};

/// One reason not to serve.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) struct Refusal {
    code: Code,
    detail: &'static str,
}

/// The bytes on the wire are not a request that we would read the same way as everybody else.
pub(super) const fn malformed(detail: &'static str) -> Refusal {
    Refusal { code: Code::Malformed, detail }
}

/// A mechanism of HTTP that is deliberately absent here.
pub(super) const fn not_implemented(detail: &'static str) -> Refusal {
    Refusal { code: Code::NotImplemented, detail }
}

pub(super) const HEAD_TOO_SLOW: Refusal =
    Refusal { code: Code::Timeout, detail: "the request line and headers did not arrive in time" };

pub(super) const BODY_TOO_SLOW: Refusal =
    Refusal { detail: "the request body did not arrive in time", ..HEAD_TOO_SLOW };

pub(super) const BODY_TOO_LARGE: Refusal =
    Refusal { code: Code::TooLarge, detail: "the request body is larger than this path accepts" };

pub(super) const LINE_TOO_LONG: Refusal =
    Refusal { code: Code::LineTooLong, detail: "the request line is longer than this server accepts" };

pub(super) const HEAD_TOO_LARGE: Refusal =
    Refusal { code: Code::HeadersTooLarge, detail: "the request has more or larger headers than this server accepts" };

pub(super) const FULL: Refusal = Refusal {
    code: Code::TooManyConnections,
    detail: "this server, or your address, has as many connections as it may have; reuse them, or try again shortly",
};

/// What a client is told where the buffers are full.
pub const NO_ROOM_DETAIL: &str =
    "the bodies and answers in memory leave no room for this request; nothing was done, try again shortly";

pub(super) const NO_ROOM: Refusal = Refusal { code: Code::BuffersFull, detail: NO_ROOM_DETAIL };

pub(super) const VERSION: Refusal = Refusal {
    code: Code::HttpVersion,
    detail: "this server speaks HTTP/1.1, and HTTP/2 from a connection's first byte",
};

impl Refusal {
    /// As a response that ends the connection.
    pub(super) fn response(&self, path: &str, traceparent: Option<&HeaderValue>) -> Response<Full<Bytes>> {
        let mut response = self.problem().response(path, &TraceId::of(traceparent));
        response.headers_mut().insert(header::CONNECTION, HeaderValue::from_static("close"));
        response
    }

    fn problem(&self) -> Problem {
        let problem = Problem::new(self.code, self.detail);
        if problem.status() == 503 { problem.retry_after(1) } else { problem }
    }
}
