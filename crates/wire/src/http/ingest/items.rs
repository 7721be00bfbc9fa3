//! Requests that bring, delete or cancel items, and the answers to them.
//! Never changes anything before the whole request was read. Called through the table of routes.

use std::sync::Arc;

use axum::response::Response;
use bytes::Bytes;
use fencepost::{
    ingest::{Ingest, IngestRequest, items::read_items},
    policy::collections::{Collection, Group},
};
use fencepost_kernel::{
    Reply,
    fence::{self, State, body::Body},
    item::{self, Change, ItemId, Retirement, Verdict},
    json::{JsonNode, Value},
};

use super::{
    collection, ingest, malformed,
    reply::{items, trial_items},
    request::{self, Mode, Trial},
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
    let collection = collection(call, &ingest, group)?;
    let query = Query::of(call)?;
    let (mode, trial) = (Mode::of(&query, group)?, Trial::of(&query)?);
    let node = call.json()?;
    let list = list(call, &ingest, object(&node)?)?;
    let compared = match trial {
        Trial::Yes => Body::opaque(&[]),
        Trial::No => Body::json(&node, &ingest.rules().scope.mask),
    };
    let write = if trial == Trial::Yes { trial_items } else { items };
    let request = request::of_items(call, mode, trial, compared, write)?;
    let changes = read_items(collection, &request.tenant, list, &call.body);
    answered(call, &ingest, (&request, trial), collection, changes).await
}

fn list<'n, 'a>(call: &Call, ingest: &Ingest, node: &'n JsonNode<'a>) -> Result<&'n [JsonNode<'a>], Problem> {
    let own = tenant(call)?;
    if node.get("partner_id").is_some_and(|id| id.as_str() != Some(own.as_str())) {
        let detail = format!("`partner_id` must be {own}, this credential's partner");
        return Err(Problem::new(Code::Forbidden, detail));
    }
    let Some(Value::Array(items)) = node.get("items").map(|items| &items.value) else {
        return Err(malformed("`items` must be a list of objects"));
    };
    if let Some(wrong) = items.iter().position(|item| !matches!(item.value, Value::Object(_))) {
        return Err(malformed(format!("`items` must be a list of objects; the one at {wrong} is none")));
    }
    let most = ingest.rules().settings.bulk_async_threshold;
    if items.len() > most {
        let detail =
            format!("a request may have up to {most} items, not {}; send them in several requests", items.len());
        return Err(Problem::new(Code::TooLarge, detail));
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
    let collection = collection(call, &ingest, group)?;
    let source_id = call.path_value("source_id")?;
    let trial = Trial::of(&Query::of(call)?)?;
    let request = request::of_one(call, trial)?;
    let item = ItemId::new(&request.tenant, &collection.name, &source_id);
    answered(call, &ingest, (&request, trial), collection, vec![Change::Retire { item, source_id, cause }]).await
}

/// Asks for changes, or what would become of them, and writes the answer.
pub(super) async fn answered(
    call: &Call,
    ingest: &Ingest,
    (request, trial): (&IngestRequest, Trial),
    collection: &Arc<Collection>,
    changes: Vec<Change>,
) -> Result<Response, Problem> {
    let named = changes.first().and_then(Change::source_id).unwrap_or_default().to_owned();
    let reply = match trial {
        Trial::Yes => ingest.preview(request, &collection.name, changes).await?,
        Trial::No => ingest.submit(request, &collection.name, changes).await?,
    };
    if let Reply::Item(item::Reply::NoSuchItem) = reply {
        let detail = format!("no item {named:?} of {} was ever accepted or is in quarantine", collection.name);
        return Err(Problem::new(Code::UnknownItem, detail));
    }
    if trial == Trial::Yes
        && let Reply::Item(item::Reply::Submitted { answer, .. }) = &reply
    {
        return Ok(shown(answer.clone()));
    }
    told(call, ingest, request, collection, &reply)
}

// Logs and counts a reply, and writes its answer.
fn told(
    call: &Call,
    ingest: &Ingest,
    request: &IngestRequest,
    collection: &Collection,
    reply: &Reply,
) -> Result<Response, Problem> {
    let target = ingest.target(&request.tenant, &request.correlation_id)?;
    let told = Told { op: "ingest", effect_id: None, source: Some(("ingest", &collection.name)) };
    fences::record(call, &target, reply, &told);
    if let Reply::Item(item::Reply::Submitted { verdicts, answer, expires }) = reply {
        counted(call, request, collection, verdicts);
        return Ok(Answer { expires: *expires, ..Answer::ok(answer.to_vec()) }.response());
    }
    if let Reply::Fence(fence::Reply::Duplicate { fence, .. }) = reply {
        return match &fence.state {
            State::Sealed { receipt, expires, .. } => {
                call.room_for(receipt.body.len())?;
                Ok(Answer { replayed: true, expires: Some(*expires), ..Answer::ok(receipt.body.to_vec()) }.response())
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
fn counted(call: &Call, request: &IngestRequest, collection: &Collection, verdicts: &[Verdict]) {
    let mut differing = 0;
    for verdict in verdicts {
        call.app.metrics.items.count(&collection.name, verdict.status());
        differing += usize::from(matches!(verdict, Verdict::Replay { differs: true, .. }));
    }
    if differing > 0 {
        call.app.metrics.items.differing(&collection.name, differing);
        let line =
            call.app.log.line(Level::Warn, call.app.fencepost.engine().now().0, "items differ under one version");
        let line = line.text("tenant", request.tenant.as_str()).text("collection", &collection.name);
        let line = line.number("items", differing as u64).text("correlation_id", &request.correlation_id);
        drop(line.text("trace_id", &call.trace));
    }
}

/// An answer in full, for what was only read.
pub(super) fn shown(body: impl Into<Bytes>) -> Response {
    Answer::ok(body.into().to_vec()).response()
}
