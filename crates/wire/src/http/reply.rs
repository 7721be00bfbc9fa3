//! Replies about fences to bytes. The other half of the pair is `request`.
//! Never asks the engine anything, and never lets a value under a masked pointer out.

use std::borrow::Cow;

use axum::{body::Body, response::Response};
use base64::{Engine as _, prelude::BASE64_STANDARD};
use bytes::Bytes;
use fencepost_kernel::{
    FenceKey, Millis, Reply, Version,
    fence::{self, Alias, Fence, Granted, Mismatch, State, Target, diff},
    json::{write_name, write_string},
};
use http::{HeaderMap, HeaderName, HeaderValue, StatusCode, header};

use super::call::Call;
use crate::{
    problem::{Code, Problem},
    time::rfc3339,
    trace::TraceId,
};

/// Marks an answer that was given before.
pub(super) const REPLAYED: HeaderName = HeaderName::from_static("idempotency-replayed");
const EXPIRES: HeaderName = HeaderName::from_static("idempotency-expires");

/// The longest `Retry-After` for a client in flight: holders usually finish well within their lease.
const RETRY_AFTER_S_MAX: u64 = 5;

/// An answer that is not a refusal.
pub(super) struct Answer {
    pub(super) status: StatusCode,
    pub(super) body: Vec<u8>,
    pub(super) replayed: bool,
    pub(super) expires: Option<Millis>,
}

impl Answer {
    pub(super) fn ok(body: Vec<u8>) -> Self {
        Self { status: StatusCode::OK, body, replayed: false, expires: None }
    }

    pub(super) fn response(self) -> Response {
        let mut response = Response::new(Body::from(self.body));
        *response.status_mut() = self.status;
        let headers = response.headers_mut();
        headers.insert(header::CONTENT_TYPE, HeaderValue::from_static("application/json"));
        if self.replayed {
            headers.insert(REPLAYED, HeaderValue::from_static("true"));
        }
        if let Some(at) = self.expires {
            expires(headers, at);
        }
        response
    }
}

/// Says until when the answer stands.
pub(super) fn expires(headers: &mut HeaderMap, at: Millis) {
    if let Ok(value) = HeaderValue::from_bytes(rfc3339(at.0).as_bytes()) {
        headers.insert(EXPIRES, value);
    }
}

/// A JSON value without quotes: a number or a boolean.
pub(super) trait Scalar {
    fn write(&self, out: &mut Vec<u8>);
}

macro_rules! numbers {
    ($($kind:ty)*) => {
        $(impl Scalar for $kind {
            fn write(&self, out: &mut Vec<u8>) {
                out.extend_from_slice(itoa::Buffer::new().format(*self).as_bytes());
            }
        })*
    };
}

numbers!(u8 u16 u32 u64 usize);

impl Scalar for bool {
    fn write(&self, out: &mut Vec<u8>) {
        out.extend_from_slice(if *self { b"true" } else { b"false" });
    }
}

impl<T: Scalar> Scalar for &T {
    fn write(&self, out: &mut Vec<u8>) {
        T::write(self, out);
    }
}

/// A JSON object being written.
pub(super) struct Object(Vec<u8>);

impl Object {
    pub(super) fn new() -> Self {
        Self(Vec::with_capacity(320))
    }

    fn name(&mut self, name: &'static str) {
        self.next();
        write_name(&mut self.0, name);
    }

    fn next(&mut self) {
        self.0.push(if self.0.is_empty() { b'{' } else { b',' });
    }

    pub(super) fn text(mut self, name: &'static str, value: &str) -> Self {
        self.name(name);
        write_string(&mut self.0, value);
        self
    }

    /// A text member whose name is not ours.
    pub(super) fn entry(mut self, name: &str, value: &str) -> Self {
        self.next();
        write_string(&mut self.0, name);
        self.0.push(b':');
        write_string(&mut self.0, value);
        self
    }

    pub(super) fn value(mut self, name: &'static str, value: impl Scalar) -> Self {
        self.name(name);
        value.write(&mut self.0);
        self
    }

    pub(super) fn raw(mut self, name: &'static str, json: &[u8]) -> Self {
        self.name(name);
        self.0.extend_from_slice(json);
        self
    }

    /// The members of another object.
    pub(super) fn members_of(mut self, object: &[u8]) -> Self {
        self.next();
        self.0
            .extend_from_slice(object.strip_prefix(b"{").and_then(|rest| rest.strip_suffix(b"}")).unwrap_or_default());
        self
    }

    /// The members of a refusal that is one among many answers.
    pub(super) fn problem(self, problem: &Problem) -> Self {
        let mut object = self.text("code", problem.code().parts().1).text("detail", problem.detail());
        object.0.extend_from_slice(problem.members());
        object
    }

    pub(super) fn time(mut self, name: &'static str, at: Millis) -> Self {
        self.name(name);
        self.0.push(b'"');
        self.0.extend_from_slice(rfc3339(at.0).as_bytes());
        self.0.push(b'"');
        self
    }

    pub(super) fn end(mut self) -> Vec<u8> {
        if self.0.is_empty() {
            self.0.push(b'{');
        }
        self.0.push(b'}');
        self.0
    }
}

/// A version as JSON.
pub(super) fn version(version: &Version) -> String {
    match version {
        Version::Integer(number) => number.to_string(),
        Version::Text(text) => quoted(text),
    }
}

pub(super) fn quoted(text: &str) -> String {
    let mut out = Vec::new();
    write_string(&mut out, text);
    String::from_utf8(out).unwrap_or_default()
}

/// The problem for a reply that refuses.
pub(super) fn refusal(call: &Call, target: &Target, reply: &Reply) -> Problem {
    answer(call, target, reply).err().unwrap_or_else(|| Problem::new(Code::Internal, "no refusal"))
}

/// The answer for a reply about `target`. A refusal that rests on the key's state names the page that explains it.
pub(super) fn answer(call: &Call, target: &Target, reply: &Reply) -> Result<Answer, Problem> {
    decided(call, target, reply).map_err(|problem| explained(problem, &target.key))
}

/// A refusal with the page that explains the key, where it is that key's state that refuses.
pub(super) fn explained(problem: Problem, key: &FenceKey) -> Problem {
    match problem.code().parts().0 {
        409 => problem.with("explain", &format!("\"/console/keys/{key}\"")),
        _ => problem,
    }
}

fn decided(call: &Call, target: &Target, reply: &Reply) -> Result<Answer, Problem> {
    match reply {
        Reply::Fence(fence::Reply::New(granted)) => Ok(new(target, granted)),
        Reply::Fence(fence::Reply::Duplicate { fence, .. }) => {
            if let State::Sealed { receipt, .. } = &fence.state {
                call.room_for(receipt.body.len())?;
            }
            Ok(duplicate(target, fence))
        }
        Reply::Fence(fence::Reply::InFlight { lease_expires, first_seen, held_by }) => {
            let now = call.app.fencepost.engine().now();
            let seconds = lease_expires.since(now).div_ceil(1_000).clamp(1, RETRY_AFTER_S_MAX);
            let problem = Problem::new(
                Code::InFlight,
                "somebody else holds the claim; ask again, or wait for it (`wait_ms`, at the gateway `Prefer: wait=5`)",
            )
            .retry_after(seconds)
            .with("retry_after", &seconds.to_string())
            .with("first_seen_at", &quoted(&rfc3339(first_seen.0)))
            .with("lease_expires_at", &quoted(&rfc3339(lease_expires.0)));
            // Unknown where a program holds it that has the library in it, or where an older node made the claim.
            Err(match held_by {
                Some(trace) => problem.with("held_by_trace", &quoted(&TraceId::from_held(*trace))),
                None => problem,
            })
        }
        Reply::Fence(fence::Reply::Conflict(mismatch)) => Err(conflict(call, target, mismatch, Show::Diff)),
        Reply::Fence(fence::Reply::SealConflict { .. }) => {
            Err(Problem::new(Code::Conflict, "this token already sealed another outcome; the first one stands"))
        }
        Reply::Fence(fence::Reply::Stale { sealed_version }) => {
            Err(Problem::new(Code::Stale, "a newer version of the same source is already sealed")
                .with("sealed_version", &version(sealed_version)))
        }
        Reply::Fence(fence::Reply::Incomparable { sealed_version }) => {
            Err(Problem::new(Code::Incomparable, "an integer and a string version do not compare")
                .with("sealed_version", &version(sealed_version)))
        }
        Reply::Fence(fence::Reply::InDoubt { since }) => {
            Err(Problem::new(Code::InDoubt, "the last holder's lease ran out; a person must resolve this key first")
                .with("since", &quoted(&rfc3339(since.0))))
        }
        Reply::Fence(fence::Reply::SequenceGap { last, sealed }) => {
            let why = if *sealed { "the next one is last + 1" } else { "the last one is not sealed yet" };
            Err(Problem::new(Code::SequenceGap, why)
                .with("last", &last.to_string())
                .with("last_sealed", &sealed.to_string()))
        }
        Reply::Fence(fence::Reply::Sealed { replay, at, expires, .. }) => {
            let body =
                keyed(target, "sealed").value("replay", replay).time("sealed_at", *at).time("expires_at", *expires);
            Ok(Answer { expires: Some(*expires), replayed: *replay, ..Answer::ok(body.end()) })
        }
        Reply::Fence(fence::Reply::Renewed { lease_expires }) => {
            let body = keyed(target, "renewed").time("lease_expires_at", *lease_expires);
            Ok(Answer { expires: Some(*lease_expires), ..Answer::ok(body.end()) })
        }
        Reply::Fence(fence::Reply::Released { replay }) => {
            Ok(Answer { replayed: *replay, ..Answer::ok(keyed(target, "released").value("replay", replay).end()) })
        }
        Reply::Fence(fence::Reply::Resolved { replay }) => {
            Ok(Answer { replayed: *replay, ..Answer::ok(keyed(target, "resolved").value("replay", replay).end()) })
        }
        Reply::Fence(fence::Reply::Forgotten { replay, exists }) => {
            let body = keyed(target, "forgotten").value("replay", replay).value("exists", exists);
            Ok(Answer { replayed: *replay, ..Answer::ok(body.end()) })
        }
        Reply::Fence(fence::Reply::FencedOff { .. }) => Err(Problem::new(
            Code::FencedOff,
            "this token does not hold the claim: it was released, sealed, reclaimed or never given",
        )),
        Reply::Fence(fence::Reply::NotInDoubt) => {
            Err(Problem::new(Code::NotInDoubt, "only a fence that is in doubt can be resolved"))
        }
        Reply::Fence(fence::Reply::NotSealed) => {
            Err(Problem::new(Code::NotSealed, "an alias can stand for a sealed effect only"))
        }
        Reply::Fence(fence::Reply::Aliased { replay, alias }) => {
            Ok(Answer { replayed: *replay, ..Answer::ok(self::alias(alias, Some(*replay))) })
        }
        // Replies about lanes have answers of their own.
        Reply::Lane(_) | Reply::Dispatch(_) | Reply::Item(_) | Reply::Job(_) | Reply::Done => {
            Err(Problem::new(Code::Internal, "no reply"))
        }
    }
}

/// The beginning of every answer about a key.
pub(super) fn keyed(target: &Target, decision: &str) -> Object {
    Object::new().text("decision", decision).text("idempotency_key", &target.key.hex())
}

fn new(target: &Target, granted: &Granted) -> Answer {
    let mut body = keyed(target, "new")
        .value("token", granted.token.0)
        .value("attempt", granted.attempt)
        .value("recovering", granted.recovering.is_some())
        .time("lease_expires_at", granted.lease_expires);
    if let Some(earlier) = &granted.recovering {
        let known = Object::new()
            .value("token", earlier.token.0)
            .value("attempt", earlier.attempt)
            .time("lease_expired_at", earlier.lease_expired);
        body = body.raw("earlier", &known.end());
    }
    Answer { status: StatusCode::CREATED, expires: Some(granted.lease_expires), ..Answer::ok(body.end()) }
}

fn duplicate(target: &Target, fence: &Fence) -> Answer {
    let mut body = keyed(target, "duplicate").value("replay", true);
    let mut ends = None;
    if let State::Sealed { receipt, at, expires } = &fence.state {
        body = body
            .text("effect_id", &receipt.effect_id)
            .raw("receipt", &as_json(&receipt.body))
            .time("first_seen_at", fence.first_seen)
            .time("sealed_at", *at)
            .time("expires_at", *expires);
        ends = Some(*expires);
    }
    Answer { replayed: true, expires: ends, ..Answer::ok(body.end()) }
}

// The gateway seals an HTTP answer; a worker reads it as JSON.
fn as_json(receipt: &Bytes) -> Cow<'_, [u8]> {
    let Some(answer) = fencepost::answer::StoredAnswer::decode(receipt) else { return Cow::Borrowed(receipt) };
    let headers = answer.headers.iter().fold(Object::new(), |object, (name, value)| {
        object.entry(name.as_str(), &String::from_utf8_lossy(value.as_bytes()))
    });
    let told = Object::new().value("status", answer.status.as_u16()).raw("headers", &headers.end());
    let told = match answer.body.as_deref().map(std::str::from_utf8) {
        None => told.value("omitted", true),
        Some(Ok(text)) => told.text("body", text),
        Some(Err(_)) => told.text("body_base64", &BASE64_STANDARD.encode(answer.body.unwrap_or_default())),
    };
    Cow::Owned(told.end())
}

/// An alias and the receipt it stands for.
pub(super) fn alias(alias: &Alias, replay: Option<bool>) -> Vec<u8> {
    let mut body = Object::new().text("name", &alias.name).text("scope", &alias.scope);
    if let Some(replay) = replay {
        body = body.value("replay", replay);
    }
    body.text("idempotency_key", &alias.target.hex())
        .text("effect_id", &alias.receipt.effect_id)
        .raw("receipt", &as_json(&alias.receipt.body))
        .time("moved_at", alias.at)
        .end()
}

/// How much of a conflict is shown.
#[derive(Clone, Copy, PartialEq, Eq)]
pub(super) enum Show {
    Diff,
    Nothing,
}

/// Same key, other body.
pub(super) fn conflict(call: &Call, target: &Target, mismatch: &Mismatch, show: Show) -> Problem {
    let diff = diff::between(mismatch, &target.scope.mask);
    call.app.metrics.diff(&target.scope, diff.operations);
    if show == Show::Nothing {
        return Problem::new(Code::Conflict, "this key was first used with another request");
    }
    let detail = match diff.patch.as_deref() {
        Some("[]") => "this key was first used with another method, path or query",
        Some(_) => "this key was first used with another body; `diff` leads from the first to this one",
        None => "this key was first used with another body; `first` and `second` are the digests and sizes of the two",
    };
    let problem = Problem::new(Code::Conflict, detail);
    match diff.patch {
        Some(patch) if diff.truncated => problem.with("diff", &patch).with("diff_truncated", "true"),
        Some(patch) => problem.with("diff", &patch),
        None => {
            let side = |body: &fencepost_kernel::fence::body::Body| {
                let digest = fencepost_kernel::FenceKey(body.digest);
                String::from_utf8(Object::new().text("sha256", &digest.hex()).value("size", body.size).end())
                    .unwrap_or_default()
            };
            problem.with("first", &side(&mismatch.first)).with("second", &side(&mismatch.second))
        }
    }
}
