//! `/v1/fences` and `/v1/aliases`: for workers in any language. Translates, asks the engine, logs the decision.

mod routes;

use std::{sync::Arc, time::Duration};

use axum::response::Response;
use fencepost::engine::One;
use fencepost_kernel::{
    Command, Reply,
    fence::{self, PutAlias, State as FenceState, Target, Token},
    json::{JsonNode, Value},
};

use super::{
    call::Call,
    reply::{self, Answer, Object, quoted},
    request::{self, Repetition},
};
use crate::{
    log::Level,
    problem::{Code, Problem},
    time::rfc3339,
};
use fencepost_front::{Charge, NoRoom, Standing};

pub(super) use routes::ROUTES;

/// `POST /v1/fences/claim`
async fn claim(call: &Call) -> Result<Response, Problem> {
    claimed(call, Repetition::Optional).await
}

/// `POST /v1/fences/again`
async fn again(call: &Call) -> Result<Response, Problem> {
    claimed(call, Repetition::Required).await
}

async fn claimed(call: &Call, repetition: Repetition) -> Result<Response, Problem> {
    let (command, wait_ms) = request::claim(call, &call.json()?, repetition)?;
    // A client that would wait longer asks again after this long: the reply is the same.
    let wait = Duration::from_millis(wait_ms).min(call.policy.server.limits.wait_max);
    let command = One::from(command);
    let reply = call.engine().claim(command.clone(), wait).await?;
    Ok(answered(call, &command, &reply)?.response())
}

/// `POST /v1/fences/seal`
async fn seal(call: &Call) -> Result<Response, Problem> {
    ask(call, request::seal(call, &call.json()?)?).await
}

/// `POST /v1/fences/renew`
async fn renew(call: &Call) -> Result<Response, Problem> {
    ask(call, request::renew(call, &call.json()?)?).await
}

/// `POST /v1/fences/release`
async fn release(call: &Call) -> Result<Response, Problem> {
    ask(call, request::release(call, &call.json()?)?).await
}

/// Asks one command and answers it.
pub(super) async fn ask(call: &Call, command: Command) -> Result<Response, Problem> {
    let command = One::from(command);
    let reply = call.engine().ask(command.clone()).await?;
    match answered(call, &command, &reply) {
        Ok(answer) => Ok(answer.response()),
        Err(problem) => Err(resolved(call, &command, &reply).await?.unwrap_or(problem)),
    }
}

async fn resolved(call: &Call, command: &Command, reply: &Reply) -> Result<Option<Problem>, Problem> {
    let Command::Fence(command) = command else { return Ok(None) };
    let (target, token, late) = match command {
        fence::Command::Seal(seal) => (&seal.target, seal.token, "this seal"),
        fence::Command::Renew(renew) => (&renew.target, renew.token, "this renewal"),
        fence::Command::Release(release) => (&release.target, release.token, "this release"),
        fence::Command::Claim(_)
        | fence::Command::Resolve(_)
        | fence::Command::Forget(_)
        | fence::Command::PutAlias(_)
        | fence::Command::Observe(_) => return Ok(None),
    };
    ended_by_person(call, target, token, reply, late).await
}

/// The refusal for a holder that comes back once a person has ended its doubt: by whom, when and how. None where it is
/// refused for another reason.
pub(super) async fn ended_by_person(
    call: &Call,
    target: &Target,
    token: Token,
    reply: &Reply,
    late: &str,
) -> Result<Option<Problem>, Problem> {
    let code = if let Reply::Fence(fence::Reply::SealConflict { .. }) = reply {
        Code::Conflict
    } else if let Reply::Fence(fence::Reply::FencedOff { .. }) = reply {
        Code::FencedOff
    } else {
        return Ok(None);
    };
    let known = call.app.fencepost.engine().explain(target.key).await?;
    Ok(known.as_ref().and_then(|known| known.resolution(token)).map(|resolution| {
        let (by, at) = (resolution.by, rfc3339(resolution.at.0));
        let outcome = if resolution.sealed { "done" } else { "not done" };
        let detail = format!(
            "{by} resolved this key as {outcome} at {}: {}; {late} came later and was not recorded",
            &*at, resolution.why
        );
        let problem = Problem::new(code, detail).with("resolved_by", &quoted(by)).with("resolved_at", &quoted(&at));
        reply::explained(problem, &target.key)
    }))
}

/// Bytes of the answer to a batch, about: the receipt or the diff that a short claim asks for may be as long as a
/// request, and a batch may ask for a thousand.
const BATCH_BYTES_MAX: usize = 16 << 20;
const BATCH_HEAD: &[u8] = b"{\"results\":[";

/// `POST /v1/fences/batch`: decided in order, durable in one commit.
async fn batch(call: &Call) -> Result<Response, Problem> {
    let node = call.json()?;
    let parsed = commands(call, &node)?;
    let mut good = Vec::with_capacity(parsed.len());
    let parsed: Vec<Result<(), Problem>> =
        parsed.into_iter().map(|parsed| parsed.map(|command| good.push(command))).collect();
    let good: Arc<[Command]> = good.into();
    // A parsed document takes many times the memory of its bytes.
    drop(node);
    let replies = call.engine().ask_all(good.clone()).await?;
    let mut replies = good.iter().zip(&replies);
    let mut body = BATCH_HEAD.to_vec();
    let mut charge = call.app.budget.charge(Standing::Authenticated);
    for (index, parsed) in parsed.into_iter().enumerate() {
        if index > 0 {
            body.push(b',');
        }
        let asked = if parsed.is_ok() { replies.next() } else { None };
        let answer = parsed.and_then(|()| match asked {
            Some((command, reply)) => {
                let target = told(call, command, reply)?;
                afford(reply, body.len(), &mut charge).map_err(|problem| reply::explained(problem, &target.key))?;
                reply::answer(call, target, reply)
            }
            None => Err(Problem::new(Code::Internal, "no reply")),
        });
        let answer = match (answer, asked) {
            (Err(problem), Some((command, reply))) => Err(resolved(call, command, reply).await?.unwrap_or(problem)),
            (answer, _) => answer,
        };
        let (status, content) = match answer {
            Ok(answer) => (answer.status.as_u16(), answer.body),
            Err(problem) => (problem.status(), problem.body(call.parts.uri.path(), &call.trace)),
        };
        body.extend_from_slice(&Object::new().value("status", status).raw("body", &content).end());
    }
    body.extend_from_slice(b"]}");
    Ok(Answer::ok(body).response())
}

// Only replies that the client can ask for again may be kept back: a duplicate's receipt, and a diff. The first one
// never is, so that asking for fewer ends.
fn afford(reply: &Reply, spent: usize, charge: &mut Charge) -> Result<(), Problem> {
    let left = BATCH_BYTES_MAX.saturating_sub(spent);
    if left == 0 && matches!(reply, Reply::Fence(fence::Reply::Conflict(_))) {
        let detail = "this key was first used with another body; claim fewer at once to be told the difference";
        return Err(Problem::new(Code::Conflict, detail));
    }
    let Reply::Fence(fence::Reply::Duplicate { fence, .. }) = reply else { return Ok(()) };
    match &fence.state {
        FenceState::Sealed { receipt, .. } if spent == BATCH_HEAD.len() => {
            charge.add(receipt.body.len());
            Ok(())
        }
        FenceState::Sealed { receipt, .. } if receipt.body.len() > left => {
            let detail = "a duplicate, whose receipt is more than is left of this answer; claim fewer at once, the same again is safe";
            Err(Problem::new(Code::TooLarge, detail))
        }
        FenceState::Sealed { receipt, .. } => charge.try_add_answer(receipt.body.len()).map_err(|NoRoom| {
            let detail = "a duplicate, and there is no room in memory for its receipt now; the same again is safe";
            Problem::new(Code::BuffersFull, detail)
        }),
        FenceState::Pending { .. } | FenceState::Released { .. } => Ok(()),
    }
}

fn commands(call: &Call, node: &JsonNode<'_>) -> Result<Vec<Result<Command, Problem>>, Problem> {
    let list = request::object(node)?.get("commands").map(|list| &list.value);
    let Some(Value::Array(list)) = list else {
        return Err(Problem::new(Code::Malformed, "`commands` must be an array"));
    };
    let max = call.policy.server.limits.batch_commands_max;
    if list.len() > max {
        return Err(Problem::new(
            Code::Malformed,
            format!("a batch may have up to {max} commands, not {}", list.len()),
        ));
    }
    Ok(list.iter().map(|node| request::command(call, node)).collect())
}

/// `PUT /v1/aliases/{name}`
async fn put_alias(call: &Call) -> Result<Response, Problem> {
    let name = alias_name(call)?;
    let target = request::target(call, request::object(&call.json()?)?, Repetition::Optional)?;
    ask(call, Command::Fence(fence::Command::PutAlias(PutAlias { name, target }))).await
}

/// `GET /v1/aliases/{name}`
async fn get_alias(call: &Call) -> Result<Response, Problem> {
    let name = alias_name(call)?;
    let tenant = call.tenant(call.query_tenant()?.as_deref())?;
    match call.app.fencepost.engine().alias(&tenant, &name).await? {
        Some(alias) => Ok(Answer::ok(reply::alias(&alias, None)).response()),
        None => Err(Problem::new(Code::UnknownAlias, format!("there is no alias {name:?}"))),
    }
}

fn alias_name(call: &Call) -> Result<String, Problem> {
    let name = call.path_value("name")?;
    if name.is_empty() || name.len() > 255 {
        return Err(Problem::new(Code::Malformed, "an alias has 1 to 255 bytes"));
    }
    Ok(name)
}

/// Logs and counts a decision, and writes it down for the client.
pub(super) fn answered(call: &Call, command: &Command, reply: &Reply) -> Result<Answer, Problem> {
    reply::answer(call, told(call, command, reply)?, reply)
}

// Logs and counts a decision, and returns its target.
fn told<'c>(call: &Call, command: &'c Command, reply: &Reply) -> Result<&'c Target, Problem> {
    let Command::Fence(command) = command else { return Err(Problem::new(Code::Internal, "not about a fence")) };
    let Some(target) = command.target() else { return Err(Problem::new(Code::Internal, "no target")) };
    let (op, effect_id, source) = match (command, reply) {
        (fence::Command::Claim(claim), Reply::Fence(fence::Reply::Duplicate { fence, .. })) => {
            ("claim", None, claim.source.as_ref().or(fence.source.as_ref()))
        }
        (fence::Command::Seal(seal), Reply::Fence(fence::Reply::Sealed { source, .. })) => {
            ("seal", Some(seal.effect_id.as_str()), source.as_ref())
        }
        (fence::Command::Claim(claim), _) => ("claim", None, claim.source.as_ref()),
        (fence::Command::Seal(seal), _) => ("seal", Some(seal.effect_id.as_str()), None),
        (fence::Command::Renew(_), _) => ("renew", None, None),
        (fence::Command::Release(_), _) => ("release", None, None),
        (fence::Command::Resolve(_), _) => ("resolve", None, None),
        (fence::Command::Forget(_), _) => ("forget", None, None),
        (fence::Command::PutAlias(_), _) => ("alias", None, None),
        (fence::Command::Observe(_), _) => ("housekeeping", None, None),
    };
    let source = source.map(|source| (source.kind.as_str(), source.id.as_str()));
    record(call, target, reply, &Told { op, effect_id, source });
    if matches!(reply, Reply::Fence(fence::Reply::Duplicate { .. }))
        && let Some(entry) = call.entry
    {
        call.app.metrics.dropped(&entry.label, &target.tenant);
    }
    Ok(target)
}

/// Facts about a decision for the log, beside its key.
pub(super) struct Told<'t> {
    pub(super) op: &'static str,
    /// The effect of this caller, where it is known. Where another came first, that one's is logged instead.
    pub(super) effect_id: Option<&'t str>,
    /// Type and id of the effect's source.
    pub(super) source: Option<(&'t str, &'t str)>,
}

// The effect that was sealed before this request: one id leads from every line to the one operation.
fn first_effect(reply: &Reply) -> Option<&str> {
    if let Reply::Fence(fence::Reply::Duplicate { fence, .. }) = reply {
        fence.effect_id()
    } else if let Reply::Fence(fence::Reply::Conflict(mismatch)) = reply {
        mismatch.effect_id.as_deref()
    } else if let Reply::Fence(fence::Reply::SealConflict { effect_id }) = reply {
        Some(effect_id)
    } else {
        None
    }
}

/// Logs and counts a decision.
pub(super) fn record(call: &Call, target: &Target, reply: &Reply, told: &Told<'_>) {
    let (app, &Told { op, effect_id, source }) = (&call.app, told);
    let effect_id = first_effect(reply).or(effect_id);
    let (scope, tenant, decision) = (target.scope.name.as_ref(), target.tenant.as_str(), reply.decision());
    app.metrics.decision(op, target, decision);
    if let Reply::Fence(fence::Reply::Sealed { replay: false, at, first_seen, .. }) = reply {
        app.metrics.sealed(&target.scope, at.since(*first_seen));
    }
    let loud = matches!(reply, Reply::Fence(fence::Reply::Duplicate { body_differs: true, .. }));
    if loud {
        app.metrics.body_mismatch(&target.scope);
    }
    if loud || call.policy.server.log.decisions {
        let level = if loud { Level::Warn } else { Level::Info };
        let msg = if loud { "duplicate with another body" } else { "decision" };
        let listed = &call.policy.logging.include_fields;
        let wanted = |field: &str| listed.iter().any(|listed| listed == field);
        let line = app.log.line(level, app.fencepost.engine().now().0, msg);
        let mut line = line.text("op", op).text("decision", decision).text("scope", scope).text("tenant", tenant);
        line = line.text("idempotency_key", &target.key.hex()).text("trace_id", &call.trace);
        for (field, value) in [
            ("effect_id", effect_id),
            ("source_type", source.map(|(kind, _)| kind).or(target.scope.source.as_deref())),
            ("source_id", source.map(|(_, id)| id)),
        ] {
            if let Some(value) = value.filter(|_| wanted(field)) {
                line = line.text(field, value);
            }
        }
        if let Reply::Fence(fence::Reply::New(granted)) = reply {
            if wanted("attempt") {
                line = line.number("attempt", granted.attempt.into());
            }
            if wanted("token") {
                line = line.number("token", granted.token.0);
            }
        }
        if call.acting.is_some() {
            line = line.text("by", &call.caller.id);
        }
        drop(line);
    }
}
