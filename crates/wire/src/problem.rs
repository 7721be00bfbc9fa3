//! Every refusal a client can see: RFC 9457 problem documents with a stable code, one docs page each.
//! The only place that maps errors to HTTP. Never carries anything internal in a message.

use bytes::Bytes;
use fencepost::engine;
use fencepost_front::{Cause, Refusal};
use fencepost_kernel::json::write_string;
use http::{HeaderName, HeaderValue, Response, StatusCode, header};
use http_body_util::Full;

use crate::trace::TraceId;

/// The header that tells a webhook's provider the decision.
pub(crate) const DECISION: HeaderName = HeaderName::from_static("fencepost-decision");

/// The base address of the pages about codes; the code completes it.
pub const PAGES: &str = "https://fencepost.dev/errors/";

macro_rules! codes {
    ($($(#[$doc:meta])* $name:ident = $status:literal $code:literal $title:literal;)+) => {
        /// A stable kind of refusal.
        #[derive(Clone, Copy, PartialEq, Eq, Debug)]
        pub enum Code { $($(#[$doc])* $name,)+ }

        impl Code {
            /// Every code there is.
            pub const ALL: &[Code] = &[$(Code::$name,)+];

            /// Its status, its name on the wire, and its title.
            pub fn parts(self) -> (u16, &'static str, &'static str) {
                match self { $(Code::$name => ($status, $code, $title),)+ }
            }
        }
    };
}

codes! {
    /// The request cannot be parsed, or does not fit the path.
    Malformed = 400 "malformed-request" "The request cannot be understood";
    /// A write without the key that the policy asks for.
    MissingIdempotencyKey = 400 "missing-idempotency-key" "An Idempotency-Key is required";
    /// A write without a header that the policy asks for.
    MissingHeader = 400 "missing-header" "A required header is missing";
    /// The key object does not hold exactly the scope's fields.
    WrongKey = 400 "wrong-key-fields" "The key does not fit its scope";
    /// No credential, or one that is not valid.
    Unauthorized = 401 "unauthorized" "A valid credential is needed";
    /// A webhook that its provider did not sign.
    BadSignature = 401 "bad-signature" "The signature does not fit";
    /// The credential does not allow this.
    Forbidden = 403 "forbidden" "The credential does not allow this";
    /// No such path.
    NotFound = 404 "not-found" "There is nothing here";
    /// No such scope.
    UnknownScope = 404 "unknown-scope" "No scope of that name";
    /// No such alias.
    UnknownAlias = 404 "unknown-alias" "No alias of that name";
    /// No such lane.
    UnknownLane = 404 "unknown-lane" "No such lane";
    /// No such dead letter.
    UnknownLetter = 404 "unknown-dead-letter" "No such dead letter";
    /// No such collection.
    UnknownCollection = 404 "unknown-collection" "No such collection";
    /// Nothing of this item was ever accepted.
    UnknownItem = 404 "unknown-item" "No such item";
    /// No such quarantine.
    UnknownQuarantine = 404 "unknown-quarantine" "No such quarantine";
    /// No such job.
    UnknownJob = 404 "unknown-job" "No such job";
    /// A cursor that this list did not give out.
    UnknownCursor = 404 "unknown-cursor" "No such cursor";
    /// The warehouse that was asked for has no transport.
    UnknownWarehouse = 404 "unknown-warehouse" "The warehouse has no transport";
    /// The path exists, the method does not.
    MethodNotAllowed = 405 "method-not-allowed" "The path does not take this method";
    /// The client was too slow.
    Timeout = 408 "request-timeout" "The request took too long to arrive";
    /// The key was first used with other content.
    Conflict = 409 "conflict" "The key was first used with other content";
    /// The id of the request was first used for another one.
    CorrelationIdReused = 409 "correlation-id-reused" "The correlation id was first used for another request";
    /// The job is over, and cannot be cancelled.
    JobEnded = 409 "job-ended" "The job has ended";
    /// Another request holds the claim.
    InFlight = 409 "in-flight" "The first request is still under way";
    /// The outcome of an earlier attempt is unknown, and a person must resolve it.
    InDoubt = 409 "in-doubt" "The outcome of an earlier attempt is unknown";
    /// A newer version of the source is sealed already.
    Stale = 409 "stale" "A newer version is already sealed";
    /// The token no longer holds the claim.
    FencedOff = 409 "fenced-off" "The token no longer holds the claim";
    /// The repetition is not the next one of its sequence.
    SequenceGap = 409 "sequence-gap" "Not the next in the sequence";
    /// The effect is not sealed.
    NotSealed = 409 "not-sealed" "The effect is not sealed";
    /// No doubt to resolve.
    NotInDoubt = 409 "not-in-doubt" "There is no doubt to resolve";
    /// Events still wait on the transport that is to be replaced.
    LaneNotDrained = 409 "lane-not-drained" "The lane is not drained";
    /// The event is not the head of its lane.
    NotHead = 409 "not-head" "Not the head of the lane";
    /// The cursor is past the end of its lane.
    CursorAhead = 409 "cursor-ahead" "The cursor is past the end of its lane";
    /// The event of the dead letter was cancelled.
    LetterCancelled = 409 "letter-cancelled" "The event was cancelled";
    /// The receiver may have forgotten the event.
    PastRetention = 409 "past-retention" "The receiver may have forgotten the event";
    /// The dead letter was decided otherwise before.
    AlreadyDecided = 409 "already-decided" "The dead letter is decided about";
    /// The server has no policy file to read.
    NoPolicyFile = 409 "no-policy-file" "The server has no policy file";
    /// The request has too many bytes, or too many JSON values.
    TooLarge = 413 "too-large" "The request is too large";
    /// The request line is too long.
    LineTooLong = 414 "request-line-too-long" "The request line is too long";
    /// The body is not declared to be JSON.
    NotJson = 415 "not-json" "JSON is required";
    /// Compressed, and so neither comparable nor bounded.
    CodedBody = 415 "coded-body" "The body must not be encoded";
    /// Versions of different kinds do not compare.
    Incomparable = 422 "version-incomparable" "The version does not compare with the sealed one";
    /// The content parses, and is not valid.
    Invalid = 422 "invalid" "The content is not valid";
    /// The event that is to be cancelled was never published.
    UnknownOriginal = 422 "unknown-original" "What it cancels was never published";
    /// The warehouse of a published event has no transport.
    NoTransport = 422 "no-transport" "The warehouse has no transport";
    /// No executor of this id serves the planner.
    UnknownExecutor = 422 "unknown-executor" "No such executor serves this planner";
    /// Events may not be sent to this address.
    AddressRefused = 422 "address-refused" "Nothing is sent to this address";
    /// The policy file cannot come into force; the one before stays.
    PolicyRefused = 422 "policy-refused" "The policy was refused";
    /// Too many headers, or too many bytes in them.
    HeadersTooLarge = 431 "headers-too-large" "The headers are too large";
    /// A bug in Fencepost.
    Internal = 500 "internal" "Something went wrong on our side";
    /// A mechanism of HTTP that is deliberately absent.
    NotImplemented = 400 "not-implemented" "Not served here";
    /// The store at hand cannot carry this.
    StoreUnsupported = 501 "store-unsupported" "This store cannot carry it";
    /// A mode of ingest that this release does not have.
    ModeUnsupported = 501 "mode-unsupported" "This release does not serve the mode";
    /// The server is not set up for this transport.
    TransportUnsupported = 501 "transport-unsupported" "This server has no such transport";
    /// No connection to the upstream.
    UpstreamUnreachable = 502 "upstream-unreachable" "The upstream cannot be reached";
    /// The upstream ended without an answer.
    UpstreamFailed = 502 "upstream-failed" "The upstream gave no answer";
    /// The store does not answer.
    StoreUnavailable = 503 "store-unavailable" "The store does not answer";
    /// The executor's handler has not done it, or its outcome is unknown.
    NotNow = 503 "not-now" "The event is not done yet";
    /// As many requests to upstreams are in flight as may be.
    GatewayBusy = 503 "gateway-busy" "Too many requests are under way";
    /// As many connections are open as may be.
    TooManyConnections = 503 "too-many-connections" "Too many connections";
    /// The bodies and answers in memory leave no room.
    BuffersFull = 503 "buffers-full" "The server's buffers are full";
    /// The upstream took too long.
    UpstreamTimeout = 504 "upstream-timeout" "The upstream took too long";
    /// Neither HTTP/1.1 nor HTTP/2.
    HttpVersion = 400 "http-version-unsupported" "This version of HTTP is not spoken here";
}

/// One refusal, ready to be sent.
#[derive(Clone, Debug)]
pub struct Problem {
    code: Code,
    detail: String,
    members: Vec<u8>,
    retry_after_s: Option<u64>,
    /// Replaces the status of its code.
    status: Option<u16>,
    /// Also sent as the header `Fencepost-Decision`.
    decision: Option<&'static str>,
}

impl Problem {
    /// A refusal with a sentence for the person who reads it.
    pub fn new(code: Code, detail: impl Into<String>) -> Self {
        Self { code, detail: detail.into(), members: Vec::new(), retry_after_s: None, status: None, decision: None }
    }

    /// Adds a member whose value is JSON text.
    pub fn with(mut self, name: &str, json: &str) -> Self {
        self.members.push(b',');
        write_string(&mut self.members, name);
        self.members.push(b':');
        self.members.extend_from_slice(json.as_bytes());
        self
    }

    /// Sets `Retry-After`.
    pub fn retry_after(mut self, seconds: u64) -> Self {
        self.retry_after_s = Some(seconds);
        self
    }

    /// Replaces the status, where the policy says so.
    pub fn answered_with(mut self, status: u16) -> Self {
        self.status = Some(status);
        self
    }

    /// The same refusal under another code and in other words.
    pub fn recoded(mut self, code: Code, detail: impl Into<String>) -> Self {
        (self.code, self.detail) = (code, detail.into());
        self
    }

    /// Also sends the decision in the header `Fencepost-Decision`.
    pub(crate) fn decided(mut self, decision: &'static str) -> Self {
        self.decision = Some(decision);
        self
    }

    /// The kind of refusal.
    pub fn code(&self) -> Code {
        self.code
    }

    /// The sentence for the person who reads it.
    pub fn detail(&self) -> &str {
        &self.detail
    }

    /// Its further members as JSON text, each with a comma before it.
    pub(crate) fn members(&self) -> &[u8] {
        &self.members
    }

    /// The HTTP status: the policy's, else that of the code.
    pub fn status(&self) -> u16 {
        self.status.unwrap_or(self.code.parts().0)
    }

    /// The document as JSON. `instance` is the path of the request; empty where it could not be read.
    pub fn body(&self, instance: &str, trace_id: &str) -> Vec<u8> {
        let ((_, code, title), status) = (self.code.parts(), self.status());
        let mut out = Vec::with_capacity(256 + self.members.len());
        out.extend_from_slice(
            format!(r#"{{"type":"{PAGES}{code}","title":"{title}","status":{status},"detail":"#).as_bytes(),
        );
        write_string(&mut out, &self.detail);
        // An unreadable request has no path to name.
        if !instance.is_empty() {
            out.extend_from_slice(b",\"instance\":");
            write_string(&mut out, instance);
        }
        out.extend_from_slice(format!(r#","code":"{code}","trace_id":"{trace_id}""#).as_bytes());
        out.extend_from_slice(&self.members);
        out.push(b'}');
        out
    }

    /// The answer that carries the document.
    pub fn response(&self, instance: &str, trace_id: &str) -> Response<Full<Bytes>> {
        let mut response = Response::new(Full::new(self.body(instance, trace_id).into()));
        *response.status_mut() = StatusCode::from_u16(self.status()).unwrap_or(StatusCode::INTERNAL_SERVER_ERROR);
        let headers = response.headers_mut();
        headers.insert(header::CONTENT_TYPE, HeaderValue::from_static("application/problem+json"));
        if let Some(seconds) = self.retry_after_s {
            headers.insert(header::RETRY_AFTER, seconds.into());
        }
        if let Some(decision) = self.decision {
            headers.insert(DECISION, HeaderValue::from_static(decision));
        }
        if self.code == Code::Unauthorized {
            headers.insert(header::WWW_AUTHENTICATE, HeaderValue::from_static("Bearer"));
        }
        response
    }
}

impl From<Cause> for Code {
    fn from(cause: Cause) -> Self {
        match cause {
            Cause::Malformed => Self::Malformed,
            Cause::NotImplemented => Self::NotImplemented,
            Cause::Timeout => Self::Timeout,
            Cause::BodyTooLarge => Self::TooLarge,
            Cause::LineTooLong => Self::LineTooLong,
            Cause::HeadersTooLarge => Self::HeadersTooLarge,
            Cause::TooManyConnections => Self::TooManyConnections,
            Cause::BuffersFull => Self::BuffersFull,
            Cause::Version => Self::HttpVersion,
        }
    }
}

/// A refusal of the front, as a problem document like all others. It repeats only two things that a client sent: the
/// path of a readable request, and the trace id of a well-formed `traceparent`.
pub fn refuse(refusal: &Refusal, path: &str, traceparent: Option<&HeaderValue>) -> Response<Full<Bytes>> {
    let problem = Problem::new(refusal.cause.into(), refusal.detail);
    let problem = if problem.status() == 503 { problem.retry_after(1) } else { problem };
    problem.response(path, &TraceId::of(traceparent))
}

impl From<engine::Error> for Problem {
    fn from(error: engine::Error) -> Self {
        let detail = match error {
            engine::Error::Unavailable(_) => "the store does not answer; nothing was done",
            engine::Error::Unknown(_) => "the store did not confirm in time; repeat the request, it is safe",
            engine::Error::Stopped(_) => "the store has stopped; an operator must look at the server's log",
        };
        Self::new(Code::StoreUnavailable, detail).retry_after(1)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn front_and_problem_documents_agree_on_the_status_of_each_cause() {
        for cause in Cause::ALL {
            assert_eq!(Code::from(cause).parts().0, cause.status(), "{cause:?}");
        }
    }
}
