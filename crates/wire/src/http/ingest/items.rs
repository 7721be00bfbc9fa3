//! Requests that bring, delete or cancel items, and the answers to them.
//! Never changes anything before the whole request was read. Called through the table of routes.

use std::sync::Arc;

use axum::response::Response;
use bytes::Bytes;
use fencepost::{
    ingest::{Ingest, IngestRequest, NAMED_BYTES_MAX, items::read_items},
    policy::collections::{Collection, Group},
};
use fencepost_kernel::{
    Reply, Tenant,
    fence::{self, State, body::Body},
    item::{self, Change, ChangeVerdict, ItemId, Retirement},
    json::{JsonNode, Value},
};
use http::StatusCode;

use super::{
    collection, ingest, jobs, malformed,
    request::{self, DryRun, Mode},
    tenant,
};
use crate::{
    http::{
        call::Call,
        fences::{self, Told},
        query::Query,
        reply::{self, Answer, Show},
        request::object,
    },
    log::Level,
    problem::{Code, Problem},
};

/// `POST /wms-ingest/v1/master/{collection}`
pub(super) async fn master(call: &Call) -> Result<Response, Problem> {
    submit(call, Group::Master).await
}

/// `POST /wms-ingest/v1/documents/{collection}`
pub(super) async fn documents(call: &Call) -> Result<Response, Problem> {
    submit(call, Group::Documents).await
}

/// `POST /wms-ingest/v1/inventory/{collection}`
pub(super) async fn inventory(call: &Call) -> Result<Response, Problem> {
    submit(call, Group::Inventory).await
}

async fn submit(call: &Call, group: Group) -> Result<Response, Problem> {
    let ingest = ingest(call)?;
    let query = Query::of(call)?;
    let dry_run = DryRun::of(&query)?;
    let node = call.json()?;
    let compared = match dry_run {
        DryRun::Yes => Body::opaque(&[]),
        DryRun::No => Body::json(&node, &ingest.rules().scope.mask),
    };
    let request = request::of_items(call, &query, dry_run, compared)?;
    let listed = || {
        let collection = collection(call, &ingest, group)?;
        let Mode::Upsert = Mode::of(&query, group)? else {
            return Err(malformed("write `mode=bulk` as it is, without percent signs"));
        };
        Ok((collection, item_list(&request.tenant, object(&node)?)?))
    };
    let listed = listed();
    if let Ok((collection, items)) = &listed
        && items.len() > ingest.rules().settings.bulk_async_threshold
    {
        return jobs::of_items(call, &ingest, collection, (&request, dry_run), items).await;
    }
    let changes = listed.and_then(|(collection, items)| Ok((collection.clone(), changes_of(call, collection, items)?)));
    answer(call, &ingest, (&request, dry_run), changes).await
}

fn changes_of(call: &Call, collection: &Collection, items: &[JsonNode<'_>]) -> Result<Vec<Change>, Problem> {
    let changes = read_items(collection, &tenant(call)?, items, &call.body);
    let references: usize = changes.iter().map(Change::references).sum();
    if references > REFERENCES_MAX {
        let detail =
            format!("the items refer to others {references} times; a request may have {REFERENCES_MAX} references");
        return Err(Problem::new(Code::TooLarge, detail));
    }
    Ok(changes)
}

/// The most references of all items of one request: each may become a row.
const REFERENCES_MAX: usize = 20_000;

fn item_list<'n, 'a>(tenant: &Tenant, node: &'n JsonNode<'a>) -> Result<&'n [JsonNode<'a>], Problem> {
    if node.get("partner_id").is_some_and(|id| id.as_str() != Some(tenant.as_str())) {
        let detail = format!("`partner_id` must be {tenant}, this credential's partner");
        return Err(Problem::new(Code::Forbidden, detail));
    }
    let Some(Value::Array(items)) = node.get("items").map(|items| &items.value) else {
        return Err(malformed("`items` must be a list of objects"));
    };
    if let Some(wrong) = items.iter().position(|item| !matches!(item.value, Value::Object(_))) {
        return Err(malformed(format!("`items` must be a list of objects; the one at {wrong} is none")));
    }
    Ok(items)
}

/// `DELETE /wms-ingest/v1/master/{collection}/{source_id}`
pub(super) async fn delete(call: &Call) -> Result<Response, Problem> {
    retire(call, Group::Master, Retirement::Deleted).await
}

/// `POST /wms-ingest/v1/documents/{collection}/{source_id}/cancel`
pub(super) async fn cancel(call: &Call) -> Result<Response, Problem> {
    retire(call, Group::Documents, Retirement::Cancelled).await
}

async fn retire(call: &Call, group: Group, cause: Retirement) -> Result<Response, Problem> {
    let ingest = ingest(call)?;
    let dry_run = DryRun::of(&Query::of(call)?)?;
    let request = request::of_one_item(call, dry_run)?;
    let source_id = call.path_value("source_id")?;
    let changes = collection(call, &ingest, group).map(|collection| {
        let item = ItemId::new(&request.tenant, &collection.name, &source_id);
        (collection.clone(), vec![Change::Retire { item, source_id, cause }])
    });
    answer(call, &ingest, (&request, dry_run), changes).await
}

/// Answers a request that asks for changes of items of one collection, or that asks for what is refused.
pub(super) async fn answer(
    call: &Call,
    ingest: &Ingest,
    (request, dry_run): (&IngestRequest, DryRun),
    changes: Result<(Arc<Collection>, Vec<Change>), Problem>,
) -> Result<Response, Problem> {
    let changes = match changes {
        Ok((_, changes)) if !ingest.may_load(&changes).await? => {
            let most = NAMED_BYTES_MAX >> 20;
            let detail =
                format!("the stored items that this request names have more than {most} MiB; send fewer items");
            Err(Problem::new(Code::TooLarge, detail))
        }
        changes => changes,
    };
    let (collection, changes) = match changes {
        Ok(changes) => changes,
        // A repeat gets its stored answer, whatever has become since of the policy or of what it names.
        Err(refusal) if dry_run == DryRun::No => {
            let Some(reply) = ingest.reply_to_known(request).await? else { return Err(refusal) };
            return respond(call, ingest, request, None, &reply);
        }
        Err(refusal) => return Err(refusal),
    };
    let source_id = changes.first().and_then(Change::source_id).unwrap_or_default().to_owned();
    let reply = match dry_run {
        DryRun::Yes => ingest.preview(request, &collection.name, changes).await?,
        DryRun::No => ingest.submit(request, &collection.name, changes).await?,
    };
    if let Reply::Item(item::Reply::NoSuchItem) = reply {
        let detail = format!("no item {source_id:?} of {} was ever accepted or is in quarantine", collection.name);
        return Err(Problem::new(Code::UnknownItem, detail));
    }
    if dry_run == DryRun::Yes
        && let Reply::Item(item::Reply::Submitted { answer, .. }) = &reply
    {
        return Ok(ok_response(answer.clone()));
    }
    respond(call, ingest, request, Some(&collection.name), &reply)
}

/// Logs and counts a reply, and writes its answer. A repeat may name a collection that is gone.
pub(super) fn respond(
    call: &Call,
    ingest: &Ingest,
    request: &IngestRequest,
    collection: Option<&Arc<str>>,
    reply: &Reply,
) -> Result<Response, Problem> {
    let target = ingest.target(&request.tenant, &request.correlation_id)?;
    let source = collection.map(|collection| ("ingest", &**collection));
    fences::record(call, &target, reply, &Told { op: "ingest", effect_id: None, source });
    if let Reply::Item(item::Reply::Submitted { verdicts, answer, expires }) = reply {
        if let Some(collection) = collection {
            count_verdicts(call, request, collection, verdicts);
        }
        return Ok(Answer { expires: *expires, ..Answer::ok(answer.to_vec()) }.response());
    }
    if let Reply::Fence(fence::Reply::Duplicate { fence, .. }) = reply {
        return match &fence.state {
            State::Sealed { receipt, expires, .. } => {
                call.room_for(receipt.body.len())?;
                let answer = Answer { replayed: true, expires: Some(*expires), ..Answer::ok(receipt.body.to_vec()) };
                let is_job = jobs::is_job(&receipt.effect_id);
                let status = if is_job { StatusCode::ACCEPTED } else { StatusCode::OK };
                Ok(Answer { status, ..answer }.response())
            }
            State::Pending { .. } | State::Released { .. } => Err(Problem::new(Code::Internal, "no receipt")),
        };
    }
    if let Reply::Fence(fence::Reply::Conflict(mismatch)) = reply {
        let reused = reply::conflict(call, &target, mismatch, Show::Diff).recoded(Code::CorrelationIdReused, REUSED);
        return Err(reply::explained(reused, &target.key));
    }
    Err(reply::refusal(call, &target, reply))
}

const REUSED: &str = "this X-Correlation-Id was first used for another request: other items, another path or another mode; \
                      send this one under an id of its own";

// How many items came to what; and a warning where a sender changes items without a new version.
fn count_verdicts(call: &Call, request: &IngestRequest, collection: &Arc<str>, verdicts: &[ChangeVerdict]) {
    let mut differing = 0;
    for verdict in verdicts {
        call.app.metrics.items.count(collection, verdict.status());
        differing += usize::from(matches!(verdict, ChangeVerdict::Replay { differs: true, .. }));
    }
    if differing > 0 {
        call.app.metrics.items.differing(collection, differing);
        let line =
            call.app.log.line(Level::Warn, call.app.fencepost.engine().now().0, "items differ under one version");
        let line = line.text("tenant", request.tenant.as_str()).text("collection", collection);
        let line = line.number("items", differing as u64).text("correlation_id", &request.correlation_id);
        drop(line.text("trace_id", &call.trace));
    }
}

/// The answer 200 with this JSON.
pub(super) fn ok_response(body: impl Into<Bytes>) -> Response {
    Answer::ok(body.into().to_vec()).response()
}
