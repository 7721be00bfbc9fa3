//! `/admin/idempotency`: why something did not happen again, and a person's word on what is in doubt.

use std::{collections::BTreeSet, sync::Arc};

use axum::{extract::Request, response::Response};
use fencepost::{
    Explanation,
    policy::{identity::Role, routes::webhooks},
};
use fencepost_kernel::{
    FenceKey, Millis, RowKey, Tenant,
    fence::{Fence, Record, State as FenceState},
    key::{Kind, Target},
};

use super::{
    App,
    call::Call,
    fences,
    reply::{Answer, Object},
    request,
};
use crate::problem::{Code, Problem};

/// `GET /admin/idempotency/lookup`
pub(super) async fn lookup(app: Arc<App>, request: Request) -> Response {
    Call::run(app, request, async |call| {
        let query = call.query()?;
        let one = |name: &str| -> Result<Option<&str>, Problem> {
            let mut values = query.iter().filter(|(known, _)| known == name).map(|(_, value)| value.as_str());
            match (values.next(), values.next()) {
                (value, None) => Ok(value),
                _ => Err(Problem::new(Code::Malformed, format!("`{name}` is repeated"))),
            }
        };
        let name = one("scope")?.ok_or_else(|| Problem::new(Code::Malformed, "`scope` is missing"))?;
        let scope = request::scope(call, name)?;
        let mut fields = Vec::new();
        for field in &scope.key {
            fields.extend(one(field)?.map(|value| (field.clone(), value.to_owned())));
        }
        // A repetition goes by its sequence's own name, or by `seq` as in the bodies.
        let number = match &scope.again {
            Some(again) => one(again)?.or(one("seq")?),
            None => None,
        };
        let seq = number.map(|number| number.parse().ok().filter(|seq: &u64| *seq > 0).ok_or(number)).transpose();
        let seq = seq
            .map_err(|wrong| Problem::new(Code::Malformed, format!("{wrong:?} is no repetition: they count from 1")))?;
        let engine = call.app.fencepost.engine();
        let explain = async |tenant: Tenant| {
            let target = Target::new(tenant, scope.clone(), fields.clone(), seq);
            let key = target.map_err(|wrong| request::wrong_key(scope, &wrong))?.key;
            Ok::<_, Problem>(engine.explain(key).await?.map(|explanation| (key, explanation)))
        };
        let searched = match reader(call, one("tenant")?)? {
            Some(tenant) => BTreeSet::from([tenant.as_str().to_owned()]),
            None => known_tenants(call, name),
        };
        let mut found = None;
        for tenant in &searched {
            if let Some(one) = explain(Tenant::new(tenant.as_str())).await?
                && found.replace(one).is_some()
            {
                return Err(Problem::new(Code::Malformed, "several tenants have this key: name one with `tenant=`"));
            }
        }
        Ok(Answer::ok(match found {
            Some((key, explanation)) => explained(key, &explanation),
            None => Object::new().value("exists", false).end(),
        })
        .response())
    })
    .await
}

// Those under whom a key can be without anybody's saying so. A queue's group, and who has no credential any more, are
// known to nobody here: they must be named.
fn known_tenants(call: &Call, scope: &str) -> BTreeSet<String> {
    let signers = call.policy.routes.iter().filter_map(|route| route.signer());
    // Also where the route is gone, and its keys are not.
    call.app.directory.tenants().into_iter().chain(signers).chain([webhooks(scope)]).collect()
}

// Whose fences may be read: a tenant's own, or those an admin or viewer names. None where they name none.
fn reader(call: &Call, named: Option<&str>) -> Result<Option<Tenant>, Problem> {
    if call.caller.has(Role::Admin) || call.caller.has(Role::Viewer) {
        return Ok(named.map(Tenant::new));
    }
    call.tenant(named).map(Some)
}

fn explained(key: FenceKey, explanation: &Explanation) -> Vec<u8> {
    let fence = &explanation.fence;
    let mut body = Object::new()
        .value("exists", true)
        .text("scope", &fence.scope)
        .text("tenant", fence.tenant.as_str())
        .text("idempotencyKey", &key.hex())
        .text("state", explanation.phase.name())
        .time("firstSeenAt", fence.first_seen);
    match &fence.state {
        FenceState::Sealed { receipt, at, .. } => {
            body = body.time("sealedAt", *at).text("resultUrn", &receipt.effect_id)
        }
        FenceState::Pending { lease_expires, .. } => body = body.time("leaseExpiresAt", *lease_expires),
        FenceState::Released { at, .. } => body = body.time("releasedAt", *at),
    }
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
        .raw("history", &history)
        .end()
}

/// How many doubts are listed at once.
const PAGE: usize = 100;

/// `GET /admin/idempotency/in-doubt`
pub(super) async fn in_doubt(app: Arc<App>, request: Request) -> Response {
    Call::run(app, request, async |call| {
        call.require(&[Role::Admin, Role::Viewer])?;
        let query = call.query()?;
        let cursor = query
            .iter()
            .find(|(name, _)| name == "since")
            .map(|(_, value)| value.as_str())
            .filter(|value| !value.is_empty());
        let after = cursor.map(position).transpose()?;
        let tenant = call.query_tenant()?;
        let page = call.app.fencepost.engine().in_doubt(after, PAGE).await?;
        let mut items = b"[".to_vec();
        for (key, row) in &page {
            let Record::Fence(fence) = &row.record else { continue };
            if tenant.as_deref().is_some_and(|tenant| tenant != fence.tenant.as_str()) {
                continue;
            }
            if items.len() > 1 {
                items.push(b',');
            }
            items.extend_from_slice(&doubt(key, fence));
        }
        items.push(b']');
        let next = page
            .last()
            .filter(|_| page.len() == PAGE)
            .and_then(|(key, row)| row.record.due_at().map(|due| format!("{:x}-{}", due.0, FenceKey(key.id))));
        Ok(Answer::ok(Object::new().raw("items", &items).text("next_cursor", &next.unwrap_or_default()).end())
            .response())
    })
    .await
}

fn position(cursor: &str) -> Result<(Millis, RowKey), Problem> {
    let parse = || {
        let (due, key) = cursor.split_once('-')?;
        let mut id = [0; 32];
        (key.len() == 64 && key.is_ascii()).then_some(())?;
        for (index, byte) in id.iter_mut().enumerate() {
            *byte = u8::from_str_radix(&key[index * 2..index * 2 + 2], 16).ok()?;
        }
        Some((Millis(u64::from_str_radix(due, 16).ok()?), RowKey { kind: Kind::Fence, id }))
    };
    parse().ok_or_else(|| Problem::new(Code::NotFound, "`since` must be a `next_cursor` of this list"))
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
pub(super) async fn resolve(app: Arc<App>, request: Request) -> Response {
    Call::run(app, request, async |call| {
        call.require(&[Role::Admin])?;
        fences::ask(call, request::resolve(call, &call.json()?)?).await
    })
    .await
}
