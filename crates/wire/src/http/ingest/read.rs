//! Reads items, their histories, and what this server takes.
//! Never changes anything. Called through the table of routes.

use axum::response::Response;
use fencepost::policy::{collections::Group, duration};
use fencepost_kernel::item::ItemId;
use serde_json::json;

use super::{collection, ingest, items::ok_response, reply, tenant};
use crate::{
    http::{
        call::Call,
        query::{self, Query},
    },
    problem::{Code, Problem},
};

/// `GET /wms-ingest/v1/master/{collection}/{source_id}`
pub(super) async fn master(call: &Call) -> Result<Response, Problem> {
    item(call, Group::Master).await
}

/// `GET /wms-ingest/v1/documents/{collection}/{source_id}`
pub(super) async fn document(call: &Call) -> Result<Response, Problem> {
    item(call, Group::Documents).await
}

/// `GET /wms-ingest/v1/inventory/{collection}/{source_id}`
pub(super) async fn inventory(call: &Call) -> Result<Response, Problem> {
    item(call, Group::Inventory).await
}

async fn item(call: &Call, group: Group) -> Result<Response, Problem> {
    let ingest = ingest(call)?;
    let (id, source_id) = item_id(call, group)?;
    let item = ingest.item(id).await?;
    let body = item.and_then(|item| reply::item(&item)).ok_or_else(|| unknown_item(&source_id))?;
    call.room_for(body.len())?;
    Ok(ok_response(body))
}

/// `GET /wms-ingest/v1/master/{collection}/{source_id}/history`
pub(super) async fn master_history(call: &Call) -> Result<Response, Problem> {
    history(call, Group::Master).await
}

/// `GET /wms-ingest/v1/documents/{collection}/{source_id}/history`
pub(super) async fn document_history(call: &Call) -> Result<Response, Problem> {
    history(call, Group::Documents).await
}

/// `GET /wms-ingest/v1/inventory/{collection}/{source_id}/history`
pub(super) async fn inventory_history(call: &Call) -> Result<Response, Problem> {
    history(call, Group::Inventory).await
}

// The newest first; the present version begins the first page.
async fn history(call: &Call, group: Group) -> Result<Response, Problem> {
    let ingest = ingest(call)?;
    let (id, source_id) = item_id(call, group)?;
    let query = Query::of(call)?;
    let limit = query.limit()?;
    let below = query.cursor(|cursor| u64::from_str_radix(cursor, 16).ok().filter(|number| *number > 0))?;
    let is_first = below.is_none();
    let page = ingest.history(id, below, limit - usize::from(is_first)).await?;
    let page = page.ok_or_else(|| unknown_item(&source_id))?;
    let current = page.item.current.as_ref().filter(|_| is_first);
    let mut last = current.map(|_| page.item.seq).or(below);
    let mut versions: Vec<Vec<u8>> =
        current.into_iter().map(|current| reply::version(page.item.seq, current, None)).collect();
    for (number, replaced) in &page.replaced {
        versions.push(reply::version(*number, &replaced.accepted, Some(replaced)));
        last = Some(*number);
    }
    call.room_for(versions.iter().map(Vec::len).sum())?;
    Ok(query::page(versions, last.filter(|_| page.more).map(|last| format!("{last:x}"))).response())
}

fn item_id(call: &Call, group: Group) -> Result<(ItemId, String), Problem> {
    let (ingest, source_id) = (ingest(call)?, call.path_value("source_id")?);
    let collection = collection(call, &ingest, group)?;
    Ok((ItemId::new(&tenant(call)?, &collection.name, &source_id), source_id))
}

fn unknown_item(source_id: &str) -> Problem {
    let detail = format!("no version of {source_id:?} was ever accepted; it may be in quarantine");
    Problem::new(Code::UnknownItem, detail)
}

/// `GET /wms-ingest/v1/capabilities`
pub(super) async fn capabilities(call: &Call) -> Result<Response, Problem> {
    let ingest = ingest(call)?;
    let rules = ingest.rules();
    let collections = rules.collections.iter().map(|collection| {
        let references = collection.references.iter().map(
            |reference| json!({ "at": reference.at, "to": &*reference.to, "reason_code": reference.reason.name() }),
        );
        json!({
            "name": &*collection.name, "group": collection.group.name(), "modes": ["upsert", "bulk"],
            "version": collection.order.name(), "references": references.collect::<Vec<_>>(),
            "schema": collection.schema,
        })
    });
    let body = json!({
        "collections": collections.collect::<Vec<_>>(),
        "limits": {
            "request_bytes_max": call.policy.server.limits.request_bytes_max,
            "request_items_max": rules.settings.bulk_async_threshold,
            "upload_bytes_max": rules.settings.upload_bytes_max,
        },
        "auto_release": rules.settings.auto_release,
        "correlation_id_retain": duration::display(rules.scope.retain_ms),
        "quarantine_retain": duration::display(rules.settings.quarantine_retain_ms),
        "job_retain": duration::display(rules.settings.job_retain_ms),
    });
    Ok(ok_response(body.to_string()))
}
