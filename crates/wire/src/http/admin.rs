//! `/admin/idempotency`: explains why a request had no new effect, records how a person resolves a fence in doubt, and
//! forgets what was sealed.

use std::collections::BTreeSet;

use axum::response::Response;
use fencepost::{
    Explanation,
    engine::Repetitions,
    policy::{identity::Role, routes::webhooks},
};
use fencepost_kernel::{
    FenceKey, Millis, RowKey, Tenant,
    fence::{Fence, State as FenceState, Target},
    key::Kind,
};
use http::Method;

use super::{
    call::Call,
    fences,
    openapi::parameter,
    query::{self, Query},
    reply::{Answer, Object, quoted},
    request,
    route::{Access, BodyLimit, Class, Content, RequestBody, Route, buffered},
};
use crate::problem::{Code, Problem};

pub(super) const ROUTES: &[Route] = &[
    Route {
        method: Method::GET,
        path: "/admin/idempotency/lookup",
        handler: buffered!(lookup),
        access: Access::AnyCredential,
        class: Class::Normal,
        body_limit: BodyLimit::Policy,
        operation_id: "lookup",
        summary: "Explain a key: give the scope and every key field as query parameters",
        parameters: &[&parameter::SCOPE, &parameter::KEY, &parameter::SEQ, &parameter::LOOKUP_TENANT],
        request: RequestBody::None,
        answers: &[(200, Content::Json("Lookup"), "What happened under the key, or exists: false")],
        errors: &[Code::UnknownScope, Code::WrongKey, Code::StoreUnsupported],
    },
    Route {
        method: Method::GET,
        path: "/admin/idempotency/in-doubt",
        handler: buffered!(in_doubt),
        access: Access::Roles(&[Role::Admin, Role::Viewer]),
        class: Class::Normal,
        body_limit: BodyLimit::Policy,
        operation_id: "listInDoubt",
        summary: "Fences that wait for a person, longest first",
        parameters: &[
            &parameter::DOUBT_TENANT,
            &parameter::DOUBT_SCOPE,
            &parameter::LIMIT,
            &parameter::AFTER,
            &parameter::SINCE,
        ],
        request: RequestBody::None,
        answers: &[(200, Content::Json("Doubts"), "A page")],
        errors: &[Code::UnknownCursor],
    },
    Route {
        method: Method::POST,
        path: "/admin/idempotency/resolve",
        handler: buffered!(resolve),
        access: Access::Roles(&[Role::Admin]),
        class: Class::Normal,
        body_limit: BodyLimit::Policy,
        operation_id: "resolve",
        summary: "A person's word on a fence in doubt",
        parameters: &[],
        request: RequestBody::Json("Resolve"),
        answers: &[(200, Content::Json("Resolved"), "Recorded with who, when and why")],
        errors: &[Code::WrongKey, Code::UnknownScope, Code::NotInDoubt],
    },
    Route {
        method: Method::POST,
        path: "/admin/idempotency/forget",
        handler: buffered!(forget),
        access: Access::Roles(&[Role::Admin]),
        class: Class::Normal,
        body_limit: BodyLimit::Policy,
        operation_id: "forget",
        summary: "Give up what was sealed or released, so that the next claim is new",
        parameters: &[],
        request: RequestBody::Json("Forget"),
        answers: &[(
            200,
            Content::Json("Forgotten"),
            "Recorded with who, when and why; exists: false for an unknown key",
        )],
        errors: &[
            Code::WrongKey,
            Code::UnknownScope,
            Code::InFlight,
            Code::InDoubt,
            Code::FencedOff,
            Code::SequenceGap,
        ],
    },
];

/// `GET /admin/idempotency/lookup`
async fn lookup(call: &Call) -> Result<Response, Problem> {
    let query = Query::of(call)?;
    let one = |name: &str| query.given(name);
    let name = one("scope")?.ok_or_else(|| Problem::new(Code::Malformed, "`scope` is missing"))?;
    let scope = request::scope(call, name)?;
    let mut fields = Vec::new();
    for field in &scope.key {
        fields.extend(one(field)?.map(|value| (field.clone(), value.to_owned())));
    }
    // A repetition is named by its sequence's own field, or by `seq` as in request bodies.
    let number = match &scope.again {
        Some(again) => one(again)?.or(one("seq")?),
        None => None,
    };
    let seq = number.map(|number| number.parse().ok().filter(|seq: &u64| *seq > 0).ok_or(number)).transpose();
    let seq =
        seq.map_err(|wrong| Problem::new(Code::Malformed, format!("{wrong:?} is no repetition: they count from 1")))?;
    let engine = call.app.fencepost.engine();
    let explain = async |tenant: &str| {
        let target = Target::new(Tenant::new(tenant), scope.clone(), fields.clone(), seq);
        let target = target.map_err(|wrong| request::wrong_key(scope, &wrong))?;
        let repeats = scope.again.is_some() && seq.is_none();
        let repeated = if repeats { Some(engine.repeated(&target).await?) } else { None };
        let explanation = engine.explain(target.key).await?;
        Ok::<_, Problem>(Known { target, explanation, repeated })
    };
    let searched = match reader(call, query.one("tenant")?)? {
        Some(tenant) => BTreeSet::from([tenant.as_str().to_owned()]),
        None => known_tenants(call, name),
    };
    let mut found = Vec::new();
    for tenant in &searched {
        let known = explain(tenant).await?;
        if known.explanation.is_some() || known.repeated.as_ref().is_some_and(|repeated| repeated.total > 0) {
            found.push(known);
        }
    }
    let [known] = found.as_slice() else {
        return several(&found)
            .map_or_else(|| Ok(Answer::ok(Object::new().value("exists", false).end()).response()), Err);
    };
    Ok(Answer::ok(told(known)).response())
}

// The tenants to search where the caller names none. Tenants of queue consumers, and tenants without a credential now,
// are not known here: the caller must name them.
fn known_tenants(call: &Call, scope: &str) -> BTreeSet<String> {
    let signers = call.policy.routes.iter().filter_map(|route| route.signer());
    // The default tenant of the scope's webhooks: its keys outlive the rule that made them.
    call.app.directory.tenants().into_iter().chain(signers).chain([webhooks(scope)]).collect()
}

// The tenant whose fences may be read: the caller's own, or the one that an admin or viewer names, if any.
fn reader(call: &Call, named: Option<&str>) -> Result<Option<Tenant>, Problem> {
    if call.caller.has(Role::Admin) || call.caller.has(Role::Viewer) {
        return Ok(named.map(Tenant::new));
    }
    call.tenant(named).map(Some)
}

/// The store's record of a key of one tenant.
struct Known {
    target: Target,
    /// None where the effect itself is unknown; its repetitions may still be known.
    explanation: Option<Explanation>,
    /// None where the scope has no repetitions, or the caller asked for one of them.
    repeated: Option<Repetitions>,
}

/// How many tenants a refusal lists at most.
const NAMED_MAX: usize = 10;

fn several(found: &[Known]) -> Option<Problem> {
    let tenants: Vec<&str> = found.iter().map(|known| known.target.tenant.as_str()).take(NAMED_MAX).collect();
    let listed: Vec<String> = tenants.iter().map(|tenant| quoted(tenant)).collect();
    let detail = format!("several tenants have this key, name one with `tenant=`: {}", tenants.join(", "));
    (!tenants.is_empty())
        .then(|| Problem::new(Code::Malformed, detail).with("tenants", &format!("[{}]", listed.join(","))))
}

fn told(Known { target, explanation, repeated }: &Known) -> Vec<u8> {
    let mut body = Object::new()
        .value("exists", explanation.is_some())
        .text("scope", &target.scope.name)
        .text("tenant", target.tenant.as_str())
        .text("idempotencyKey", &target.key.hex());
    if let Some(repeated) = repeated {
        body = body.value("repetitionsTotal", repeated.total).raw("repetitions", &repetitions(repeated));
    }
    match explanation {
        Some(explanation) => explained(body, explanation),
        None => body.end(),
    }
}

fn repetitions(repeated: &Repetitions) -> Vec<u8> {
    let mut list = b"[".to_vec();
    for (index, one) in repeated.latest.iter().enumerate() {
        if index > 0 {
            list.push(b',');
        }
        let line = Object::new().value("seq", one.seq).text("state", one.phase.name());
        let line = match &one.fence {
            Some(fence) => with_state_time(line.time("firstSeenAt", fence.first_seen), fence),
            None => line,
        };
        list.extend_from_slice(&line.end());
    }
    list.push(b']');
    list
}

// Adds the time that belongs to the fence's state: of the seal, the end of the lease, or the release.
fn with_state_time(body: Object, fence: &Fence) -> Object {
    match &fence.state {
        FenceState::Sealed { receipt, at, .. } => body.time("sealedAt", *at).text("resultUrn", &receipt.effect_id),
        FenceState::Pending { lease_expires, .. } => body.time("leaseExpiresAt", *lease_expires),
        FenceState::Released { at, .. } => body.time("releasedAt", *at),
    }
}

fn explained(body: Object, explanation: &Explanation) -> Vec<u8> {
    let fence = &explanation.fence;
    let mut body =
        with_state_time(body.text("state", explanation.phase.name()).time("firstSeenAt", fence.first_seen), fence);
    if let Some(expires) = fence.expires_at() {
        body = body.time("expiresAt", expires);
    }
    let mut history = b"[".to_vec();
    for (index, moment) in explanation.history.iter().enumerate() {
        if index > 0 {
            history.push(b',');
        }
        let mut line = Object::new().time("at", moment.at).text("decision", moment.decision);
        if let Some(token) = moment.token {
            line = line.value("token", token.0);
        }
        if let Some((by, why)) = &moment.person {
            line = line.text("by", by).text("why", why);
        }
        history.extend_from_slice(&line.end());
    }
    history.push(b']');
    body.value("token", fence.token.0)
        .value("attempts", fence.attempt)
        .value("replays", explanation.replays)
        .value("conflicts", explanation.conflicts)
        .value("bodyMismatches", explanation.body_mismatches)
        .raw("history", &history)
        .end()
}

/// `GET /admin/idempotency/in-doubt`
async fn in_doubt(call: &Call) -> Result<Response, Problem> {
    let query = Query::of(call)?;
    let (after, limit) = (query.cursor(position)?, query.limit()?);
    let (tenant, scope) = (query.one("tenant")?, query.one("scope")?);
    // One row more than the limit shows whether there is a next page.
    let mut rows = call.app.fencepost.engine().in_doubt(after, limit + 1).await?;
    let more = rows.len() > limit;
    rows.truncate(limit);
    let next = rows.last().filter(|_| more);
    let next = next.and_then(|(key, row)| Some(format!("{:x}-{}", row.record.due_at()?.0, FenceKey(key.id))));
    let items = rows.iter().filter_map(|(key, row)| {
        let fence = row.record.as_fence()?;
        let wanted = tenant.is_none_or(|tenant| tenant == fence.tenant.as_str())
            && scope.is_none_or(|scope| scope == &*fence.scope);
        wanted.then(|| doubt(key, fence))
    });
    Ok(query::page(items, next).response())
}

fn position(cursor: &str) -> Option<(Millis, RowKey)> {
    let (due, key) = cursor.split_once('-')?;
    let mut id = [0; 32];
    (key.len() == 64 && key.is_ascii()).then_some(())?;
    for (index, byte) in id.iter_mut().enumerate() {
        *byte = u8::from_str_radix(&key[index * 2..index * 2 + 2], 16).ok()?;
    }
    Some((Millis(u64::from_str_radix(due, 16).ok()?), RowKey { kind: Kind::Fence, id }))
}

fn doubt(key: &RowKey, fence: &Fence) -> Vec<u8> {
    let mut fields = Object::new();
    for (name, value) in fence.fields.iter() {
        fields = fields.entry(name, value);
    }
    let mut body = Object::new()
        .text("tenant", fence.tenant.as_str())
        .text("scope", &fence.scope)
        .raw("key", &fields.end())
        .text("idempotency_key", &FenceKey(key.id).hex())
        .text("state", "in_doubt")
        .value("token", fence.token.0)
        .value("attempt", fence.attempt)
        .time("first_seen_at", fence.first_seen);
    if let Some(seq) = fence.seq {
        body = body.value("seq", seq);
    }
    if let Some(due) = fence.due_at() {
        body = body.time("since", due);
    }
    if let Some(source) = &fence.source {
        body = body.raw("source", &Object::new().text("type", &source.kind).text("id", &source.id).end());
    }
    body.end()
}

/// `POST /admin/idempotency/resolve`
async fn resolve(call: &Call) -> Result<Response, Problem> {
    fences::ask(call, request::resolve(call, &call.json()?)?).await
}

/// `POST /admin/idempotency/forget`
async fn forget(call: &Call) -> Result<Response, Problem> {
    fences::ask(call, request::forget(call, &call.json()?)?).await
}
