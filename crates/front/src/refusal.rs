//! The reasons for which the front refuses a request. The service's crate writes the answer: all refusals look alike.
//! Called by `head`, `target`, `scan`, `guard`, `link`, `connection` and `http2`; `answer` has the answer written.

/// Why the front does not serve a request.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Cause {
    /// Readers could disagree about the bytes of the request.
    Malformed,
    /// The request needs an HTTP mechanism that this server deliberately lacks.
    NotImplemented,
    /// The request did not arrive in time.
    Timeout,
    /// The body is larger than its path accepts.
    BodyTooLarge,
    /// The request line is too long.
    LineTooLong,
    /// The headers are too many or too large.
    HeadersTooLarge,
    /// The number of connections is at its bound.
    TooManyConnections,
    /// Bodies and answers in memory leave no room.
    BuffersFull,
    /// An HTTP version that this server does not speak.
    Version,
}

impl Cause {
    pub const ALL: [Self; 9] = [
        Self::Malformed,
        Self::NotImplemented,
        Self::Timeout,
        Self::BodyTooLarge,
        Self::LineTooLong,
        Self::HeadersTooLarge,
        Self::TooManyConnections,
        Self::BuffersFull,
        Self::Version,
    ];

    /// The HTTP status of the answer.
    pub fn status(self) -> u16 {
        match self {
            Self::Malformed | Self::NotImplemented | Self::Version => 400,
            Self::Timeout => 408,
            Self::BodyTooLarge => 413,
            Self::LineTooLong => 414,
            Self::HeadersTooLarge => 431,
            Self::TooManyConnections | Self::BuffersFull => 503,
        }
    }
}

/// One reason for refusing a request.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Refusal {
    /// The kind, which decides status and error code.
    pub cause: Cause,
    /// A sentence for the person who reads the answer.
    pub detail: &'static str,
}

/// A refusal of bytes that other readers could take for another request.
pub(super) const fn malformed(detail: &'static str) -> Refusal {
    Refusal { cause: Cause::Malformed, detail }
}

/// A refusal of an HTTP mechanism that this server deliberately lacks.
pub(super) const fn not_implemented(detail: &'static str) -> Refusal {
    Refusal { cause: Cause::NotImplemented, detail }
}

pub(super) const HEAD_TOO_SLOW: Refusal =
    Refusal { cause: Cause::Timeout, detail: "the request line and headers did not arrive in time" };

pub(super) const BODY_TOO_SLOW: Refusal =
    Refusal { detail: "the request body did not arrive in time", ..HEAD_TOO_SLOW };

pub(super) const BODY_TOO_LARGE: Refusal =
    Refusal { cause: Cause::BodyTooLarge, detail: "the request body is larger than this path accepts" };

pub(super) const LINE_TOO_LONG: Refusal =
    Refusal { cause: Cause::LineTooLong, detail: "the request line is longer than this server accepts" };

pub(super) const HEAD_TOO_LARGE: Refusal = Refusal {
    cause: Cause::HeadersTooLarge,
    detail: "the request has more or larger headers than this server accepts",
};

pub(super) const FULL: Refusal = Refusal {
    cause: Cause::TooManyConnections,
    detail: "this server, or your address, has as many connections as it may have; reuse them, or try again shortly",
};

/// The detail for a client that is refused because memory is full.
pub const NO_ROOM_DETAIL: &str =
    "the bodies and answers in memory leave no room for this request; nothing was done, try again shortly";

pub(super) const NO_ROOM: Refusal = Refusal { cause: Cause::BuffersFull, detail: NO_ROOM_DETAIL };

pub(super) const VERSION: Refusal =
    Refusal { cause: Cause::Version, detail: "this server speaks HTTP/1.1, and HTTP/2 from a connection's first byte" };
