//! `GET /admin/audit`: what operators changed, the newest first.
//! Never writes an entry: the engine does, for every route that [`Route::is_act_of`] names.

use axum::response::Response;
use fencepost::policy::identity::Role;
use fencepost_kernel::{Millis, RowKey, audit::AuditEntry, key::Kind};
use http::Method;

use super::{
    call::Call,
    openapi::parameter,
    query::{self, Query},
    reply::Object,
    route::{Access, BodyLimit, Class, Content, RequestBody, Route, buffered},
};
use crate::{
    problem::{Code, Problem},
    trace::TraceId,
};

pub(super) const ROUTES: &[Route] = &[Route {
    method: Method::GET,
    path: "/admin/audit",
    handler: buffered!(list),
    access: Access::Roles(&[Role::Admin, Role::Viewer]),
    class: Class::Normal,
    body_limit: BodyLimit::Policy,
    operation_id: "listAudit",
    summary: "What operators changed, the newest first",
    parameters: &[
        &parameter::AUDIT_BY,
        &parameter::AUDIT_WHAT,
        &parameter::AUDIT_ON,
        &parameter::AUDIT_TENANT,
        &parameter::LIMIT,
        &parameter::AFTER,
        &parameter::SINCE,
    ],
    request: RequestBody::None,
    answers: &[(200, Content::Json("AuditLog"), "A page")],
    errors: &[Code::UnknownCursor, Code::StoreUnsupported],
}];

/// How many entries one request looks at, whatever it filters for: the rest is behind `next_cursor`.
const SCAN_MAX: usize = 10_000;
/// How many entries are read at once.
const READ_MAX: usize = 1_000;

async fn list(call: &Call) -> Result<Response, Problem> {
    let engine = call.engine();
    if !engine.promises().keeps(Kind::Audit) {
        let why = "this store keeps fences only, and no audit; acts of operators are in the server's log";
        return Err(Problem::new(Code::StoreUnsupported, why));
    }
    let query = Query::of(call)?;
    let [by, what, on, tenant] = ["by", "what", "on", "tenant"].map(|name| query.one(name));
    let (by, what, on, tenant) = (by?, what?, on?, tenant?);
    let (mut after, limit) = (query.cursor(place)?, query.limit()?);
    let now = engine.now();
    let wanted = |entry: &AuditEntry| {
        let same = |wanted: Option<&str>, is: &str| wanted.is_none_or(|wanted| wanted == is);
        let subject = &entry.subject;
        entry.expires > now
            && same(by, &entry.by)
            && same(what, &entry.op)
            && same(on, &subject.on)
            && tenant.is_none_or(|tenant| subject.tenant.as_ref().is_some_and(|own| own.as_str() == tenant))
    };
    let (mut found, mut seen) = (Vec::new(), 0);
    loop {
        let page = engine.audit(after, READ_MAX).await?;
        let is_last = page.len() < READ_MAX;
        for (key, entry) in page {
            // One more follows, so the page is not the last.
            if found.len() == limit || seen == SCAN_MAX {
                return Ok(query::page(found, after.map(cursor)).response());
            }
            seen += 1;
            after = Some(key);
            if wanted(&entry) {
                found.push(shown(&entry));
            }
        }
        if is_last {
            return Ok(query::page(found, None).response());
        }
    }
}

// The time and the number in an entry's address.
fn cursor(key: RowKey) -> String {
    let (at, id) = key.audit_place();
    format!("{:x}-{id:016x}", at.0)
}

fn place(cursor: &str) -> Option<RowKey> {
    let (at, id) = cursor.split_once('-').filter(|(_, id)| id.len() == 16)?;
    let [at, id] = [at, id].map(|digits| u64::from_str_radix(digits, 16).ok());
    Some(RowKey::audit(Millis(at?), id?))
}

fn shown(entry: &AuditEntry) -> Vec<u8> {
    let subject = &entry.subject;
    let mut body = Object::new()
        .time("at", entry.at)
        .text("by", &entry.by)
        .text("what", &entry.op)
        .text("outcome", &entry.outcome)
        .text("on", &subject.on);
    if let Some(tenant) = &subject.tenant {
        body = body.text("tenant", tenant.as_str());
    }
    if let Some(why) = &subject.why {
        body = body.text("why", why);
    }
    if let Some(trace) = entry.trace {
        body = body.text("trace_id", &TraceId::from_held(trace));
    }
    body.end()
}
