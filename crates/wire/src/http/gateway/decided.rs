//! Answers a request that a rule does not pass on: with a refusal or, for an incoming webhook, with an acknowledgement,
//! since providers retry a refused webhook for days. Never acknowledges a conflict silently: it is logged and counted.
//! Called by the gateway where a claim is not granted.

use axum::{body::Body, response::Response};
use fencepost_kernel::{
    Reply,
    fence::{self, Mismatch, Target},
};
use http::{HeaderValue, StatusCode, header};

use super::Entry;
use crate::{
    http::{
        call::Call,
        reply::{self, Show},
    },
    log::Level,
    problem::{Code, DECISION, Problem},
};

/// A webhook provider takes 409 for a permanent failure, and 503 for a temporary one.
const IN_FLIGHT_STATUS: u16 = 503;

/// The answer to a request whose claim was not granted.
pub(super) fn refused(call: &Call, entry: &Entry, target: &Target, reply: &Reply) -> Result<Response, Problem> {
    let answers = &entry.route.answers;
    let problem = if let Reply::Fence(fence::Reply::Conflict(mismatch)) = reply {
        let told = answers.on_conflict(call.policy.on_conflict);
        if is_received(told.status) {
            acknowledge_conflict(call, entry, target, mismatch);
        }
        // Where the rule tells users of a tenant apart, the first request may be another user's: its diff is not shown.
        let shown = told.include_diff && entry.route.callers.principal.is_none();
        let show = if shown { Show::Diff } else { Show::Nothing };
        let conflict = reply::conflict(call, target, mismatch, show).answered_with(told.status);
        reply::explained(conflict, &target.key)
    } else {
        reply::refusal(call, target, reply)
    };
    let problem = match problem.code() {
        Code::InFlight => return Err(in_flight(entry, problem)),
        Code::Stale => problem.answered_with(answers.on_stale(entry.signer.is_some())),
        _ => problem,
    };
    if is_received(problem.status()) {
        return Ok(acknowledged(target, reply.decision()));
    }
    Err(marked(entry, problem, reply.decision()))
}

/// The refusal of a request because another one is in flight.
pub(super) fn in_flight(entry: &Entry, problem: Problem) -> Problem {
    let problem = if entry.signer.is_some() { problem.answered_with(IN_FLIGHT_STATUS) } else { problem };
    marked(entry, problem, "in_flight")
}

/// Adds the decision as a header for a webhook's provider: most providers show nothing else of an answer.
pub(super) fn marked(entry: &Entry, problem: Problem, decision: &'static str) -> Problem {
    if entry.signer.is_some() { problem.decided(decision) } else { problem }
}

fn is_received(status: u16) -> bool {
    (200..300).contains(&status)
}

fn acknowledged(target: &Target, decision: &'static str) -> Response {
    let mut response = Response::new(Body::from(reply::keyed(target, decision).end()));
    *response.status_mut() = StatusCode::OK;
    let headers = response.headers_mut();
    headers.insert(header::CONTENT_TYPE, HeaderValue::from_static("application/json"));
    headers.insert(DECISION, HeaderValue::from_static(decision));
    response
}

fn acknowledge_conflict(call: &Call, entry: &Entry, target: &Target, mismatch: &Mismatch) {
    let app = &call.app;
    app.metrics.conflict_acknowledged(&entry.endpoint, &target.tenant);
    let said = "a delivery with other content under a known key was acknowledged and not passed on";
    app.log
        .line(Level::Warn, app.fencepost.engine().now().0, said)
        .text("endpoint", &entry.endpoint)
        .text("tenant", target.tenant.as_str())
        .text("scope", &target.scope.name)
        .text("idempotency_key", &target.key.hex())
        .text("effect_id", mismatch.effect_id.as_deref().unwrap_or_default())
        .text("trace_id", &call.trace);
}
