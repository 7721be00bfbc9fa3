//! `POST /wes/v1/dispatch/events`: appends one event or many, each once, at the end of its lane.
//! Never publishes an event before every envelope of the request is checked. The library's `envelope` reads them.

use std::{collections::HashMap, sync::Arc};

use axum::response::Response;
use bytes::Bytes;
use fencepost::dispatch::{
    Publication, SCOPE,
    envelope::{self, Envelope, EnvelopeRefusal, Rule},
};
use fencepost_kernel::{
    Reply, Scope, Tenant, dispatch as kernel,
    fence::{self, State as FenceState, Target, body::Body},
    json::{JsonNode, Value},
};
use http::StatusCode;

use super::{allowed, array, dispatch, malformed, planner, wrong};
use crate::{
    http::{
        call::Call,
        fences::{self, Told},
        reply::{self, Answer, Object},
        request,
    },
    problem::{Code, Problem},
};

/// How many events one request may carry.
const EVENTS_MAX: usize = 1_000;

/// `POST /wes/v1/dispatch/events`
pub(super) async fn events(call: &Call) -> Result<Response, Problem> {
    let planner = planner(call);
    dispatch(call)?;
    let scope = request::scope(call, SCOPE)?;
    let node = call.json()?;
    match node.get("events").filter(|_| node.get("kind").is_none()) {
        None => one(call, &planner, scope, &node).await,
        Some(events) => many(call, &planner, scope, events).await,
    }
}

async fn one(call: &Call, planner: &Tenant, scope: &Arc<Scope>, node: &JsonNode<'_>) -> Result<Response, Problem> {
    let envelope = read(call, node, call.body.len())?;
    // The body is not trimmed: whitespace around the document is signed and delivered, too.
    let publication = publication(planner, scope, &envelope, node, &call.body);
    let reply = dispatch(call)?.publish(vec![publication]).await?.pop();
    let reply = reply.ok_or_else(|| Problem::new(Code::Internal, "no reply"))?;
    Ok(answered(call, planner, scope, &envelope, &reply)?.response())
}

async fn many(call: &Call, planner: &Tenant, scope: &Arc<Scope>, events: &JsonNode<'_>) -> Result<Response, Problem> {
    let Value::Array(events) = &events.value else { return Err(malformed("`events` must be an array")) };
    if !(1..=EVENTS_MAX).contains(&events.len()) {
        return Err(malformed(format!("`events` must have 1 to {EVENTS_MAX} of them, not {}", events.len())));
    }
    let envelopes = envelopes(call, events)?;
    let pairs = envelopes.iter().zip(events);
    let publications =
        pairs.map(|(envelope, node)| publication(planner, scope, envelope, node, node.raw.as_bytes())).collect();
    let replies = dispatch(call)?.publish(publications).await?;
    if replies.len() != envelopes.len() {
        return Err(Problem::new(Code::Internal, "no reply"));
    }
    let mut whole = Answer { replayed: true, ..Answer::ok(Vec::new()) };
    let mut refused = Vec::new();
    let results = envelopes.iter().zip(&replies).enumerate().map(|(index, (envelope, reply))| {
        let result = Object::new().text("correlation_id", envelope.correlation_id);
        match answered(call, planner, scope, envelope, reply) {
            Ok(answer) => {
                whole.status = whole.status.max(answer.status);
                whole.replayed &= answer.replayed;
                whole.expires = whole.expires.into_iter().chain(answer.expires).min();
                result.members_of(&answer.body).end()
            }
            Err(problem) => {
                let told = result.value("accepted", false).problem(&problem).end();
                whole.replayed = false;
                refused.push((index, problem));
                told
            }
        }
    });
    let results = array(results);
    if refused.len() == envelopes.len() {
        return Err(none_published(&refused, envelopes.len()));
    }
    Ok(Answer { body: Object::new().raw("results", &results).end(), ..whole }.response())
}

// The refusal of a request of which nothing was published: the code of the first refusal, and a list of all.
fn none_published(refused: &[(usize, Problem)], events: usize) -> Problem {
    let code = refused.first().map_or(Code::Internal, |(_, first)| first.code());
    let one = |(index, problem): &(usize, Problem)| Object::new().value("index", index).problem(problem).end();
    let detail = format!("{} of {events} events are refused, and none is published", refused.len());
    Problem::new(code, detail).with("errors", &String::from_utf8_lossy(&array(refused.iter().map(one))))
}

// All envelopes, or a refusal that lists each one that is wrong.
fn envelopes<'n>(call: &Call, events: &'n [JsonNode<'_>]) -> Result<Vec<Envelope<'n>>, Problem> {
    let (mut good, mut bad) = (Vec::with_capacity(events.len()), Vec::new());
    let mut first_with = HashMap::with_capacity(events.len());
    for (index, node) in events.iter().enumerate() {
        if let Some(id) = node.get("correlation_id").and_then(|id| id.as_str()) {
            first_with.entry(id).or_insert(index);
        }
    }
    for (index, node) in events.iter().enumerate() {
        match read(call, node, node.raw.len()).and_then(|envelope| apart(&first_with, index, envelope)) {
            Ok(envelope) => good.push(envelope),
            Err(problem) => bad.push((index, problem)),
        }
    }
    if bad.is_empty() { Ok(good) } else { Err(none_published(&bad, events.len())) }
}

fn read<'n>(call: &Call, node: &'n JsonNode<'_>, bytes: usize) -> Result<Envelope<'n>, Problem> {
    let envelope = envelope::read(&call.caller.id, node, bytes).map_err(|refusal| wrong(&refusal))?;
    allowed(&call.caller.warehouses, envelope.warehouse)?;
    Ok(envelope)
}

// Events of one request are decided together: none of them may depend on another.
fn apart<'n>(first_with: &HashMap<&str, usize>, index: usize, event: Envelope<'n>) -> Result<Envelope<'n>, Problem> {
    let first = |id: &str| first_with.get(id).copied();
    let (pointer, verb, other) = match (first(event.correlation_id), event.cancels.and_then(first)) {
        (Some(other), _) if other != index => ("/correlation_id", "repeats", other),
        (_, Some(other)) => ("/cancels_correlation_id", "cancels", other),
        _ => return Ok(event),
    };
    let detail = format!("{verb} event {other} of this request: publish it in a request of its own");
    Err(wrong(&EnvelopeRefusal { rule: Rule::Shape, pointer: pointer.to_owned(), detail }))
}

fn publication(
    planner: &Tenant,
    scope: &Scope,
    envelope: &Envelope<'_>,
    node: &JsonNode<'_>,
    exact: &[u8],
) -> Publication {
    Publication {
        planner: planner.clone(),
        correlation_id: envelope.correlation_id.to_owned(),
        kind: envelope.kind.to_owned(),
        warehouse: envelope.warehouse.to_owned(),
        // A copy: an event outlives its request, and a slice would keep the request's whole buffer in memory.
        body: Bytes::copy_from_slice(exact),
        compared: Body::json(node, &scope.mask),
        cancels: envelope.cancels.map(str::to_owned),
    }
}

// Logs and counts the outcome of an event, and writes the planner's answer.
fn answered(
    call: &Call,
    planner: &Tenant,
    scope: &Arc<Scope>,
    envelope: &Envelope<'_>,
    reply: &Reply,
) -> Result<Answer, Problem> {
    let fields = vec![("correlation_id".to_owned(), envelope.correlation_id.to_owned())];
    let target =
        Target::new(planner.clone(), scope.clone(), fields, None).map_err(|wrong| request::wrong_key(scope, &wrong))?;
    let told = Told { op: "publish", effect_id: Some(envelope.correlation_id), source: envelope.document };
    fences::record(call, &target, reply, &told);
    if let Reply::Fence(fence::Reply::Duplicate { fence, .. }) = reply {
        return match (kernel::PublishReceipt::of(fence), &fence.state) {
            (Some(publication), FenceState::Sealed { expires, .. }) => {
                let body = published(&publication, Repeated::Yes);
                Ok(Answer { replayed: true, expires: Some(*expires), ..Answer::ok(body) })
            }
            _ => Err(Problem::new(Code::Internal, "no receipt")),
        };
    }
    let Reply::Dispatch(decided) = reply else { return reply::answer(call, &target, reply) };
    match decided {
        kernel::Reply::Published { publication, expires } => {
            let body = published(publication, Repeated::No);
            Ok(Answer { status: StatusCode::ACCEPTED, expires: Some(*expires), ..Answer::ok(body) })
        }
        kernel::Reply::NoTransport => {
            let detail = format!("warehouse {:?} has no transport: PUT one first", envelope.warehouse);
            Err(Problem::new(Code::NoTransport, detail))
        }
        kernel::Reply::UnknownOriginal => Err(Problem::new(
            Code::UnknownOriginal,
            format!("no event {:?} was ever published", envelope.cancels.unwrap_or_default()),
        )),
        kernel::Reply::TransportPut { .. }
        | kernel::Reply::NotDrained { .. }
        | kernel::Reply::NoLetter
        | kernel::Reply::LetterCancelled { .. }
        | kernel::Reply::PastRetention { .. }
        | kernel::Reply::LetterDecided(_)
        | kernel::Reply::Letter { .. } => reply::answer(call, &target, reply),
    }
}

/// Whether the answer is about an event that was published before.
#[derive(Clone, Copy, PartialEq, Eq)]
enum Repeated {
    Yes,
    No,
}

fn published(publication: &kernel::PublishReceipt, repeated: Repeated) -> Vec<u8> {
    let kernel::PublishReceipt { lane_id, lane, seq, original } = publication;
    let body = Object::new().value("accepted", true).value("replay", repeated == Repeated::Yes).text("lane", lane);
    let body = body.text("lane_id", &lane_id.to_string());
    let body = original.iter().fold(body, |body, original| body.text("original", original.name()));
    body.value("seq", seq).end()
}
