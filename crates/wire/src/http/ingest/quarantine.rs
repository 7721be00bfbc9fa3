//! Lists items in quarantine, and looks at one again.
//! Never changes one but by a release. Called through the table of routes.

use std::sync::Arc;

use axum::response::Response;
use fencepost::{ingest::Ingest, policy::collections::Collection};
use fencepost_kernel::{
    Tenant,
    item::{Change, ItemId, QuarantineId, Quarantined},
};

use super::{
    ingest,
    items::answer,
    malformed, reply,
    request::{self, DryRun},
    tenant,
};
use crate::{
    http::{
        call::Call,
        query::{self, Query},
    },
    problem::{Code, Problem},
};

/// How many rows one request looks at, whatever it filters for: the rest is behind `next_cursor`.
const SCAN_MAX: usize = 10_000;
/// How many rows are read at once.
const READ_MAX: usize = 50;

/// `GET /wms-ingest/v1/quarantine`
pub(super) async fn list(call: &Call) -> Result<Response, Problem> {
    let ingest = ingest(call)?;
    let (tenant, query) = (tenant(call)?, Query::of(call)?);
    let status = match query.one("status")? {
        None => None,
        Some("OPEN") => Some(true),
        Some("RESOLVED") => Some(false),
        Some(other) => return Err(malformed(format!("`status` must be OPEN or RESOLVED, not {other:?}"))),
    };
    let (collection, reason) = (query.one("collection")?, query.one("reason_code")?);
    let waiting_for = match query.one("waiting_for")? {
        None => None,
        Some(named) => {
            let wrong = || malformed("`waiting_for` must be a collection and a source id, such as uoms/EA");
            Some(named.split_once('/').ok_or_else(wrong)?)
        }
    };
    let now = call.engine().now();
    let wanted = |row: &Quarantined| {
        let waits_for = |(kind, id): (&str, &str)| {
            row.unresolved.iter().any(|missing| &*missing.collection == kind && missing.source_id == id)
        };
        row.tenant == tenant
            && row.resolved.as_ref().is_none_or(|resolved| resolved.expires > now)
            && status.is_none_or(|open| open == row.resolved.is_none())
            && collection.is_none_or(|collection| *collection == *row.collection)
            && reason.is_none_or(|reason| row.unresolved.iter().any(|missing| &*missing.reason == reason))
            && waiting_for.is_none_or(waits_for)
    };
    let limit = query.limit()?;
    let mut after = query.cursor(ItemId::from_hex)?;
    let (mut found, mut bytes, mut seen) = (Vec::new(), 0, 0);
    loop {
        let page: Vec<(ItemId, Option<Arc<Quarantined>>)> = match waiting_for {
            // Only what waits for it is looked at.
            Some((kind, id)) if status == Some(true) => {
                let missing = ItemId::new(&tenant, kind, id);
                ingest.waiting_for(missing, after, READ_MAX).await?
            }
            _ => {
                let rows = ingest.quarantines(&tenant, collection, after, READ_MAX).await?;
                rows.into_iter().map(|row| (row.id().item, Some(row))).collect()
            }
        };
        let is_last = page.len() < READ_MAX;
        for (id, row) in page {
            // One more follows, so the page is not the last.
            if found.len() == limit || seen == SCAN_MAX || bytes > ANSWER_BYTES {
                call.room_for(bytes)?;
                return Ok(query::page(found, after.map(|after| after.hex())).response());
            }
            (seen, after) = (seen + 1, Some(id));
            if let Some(row) = row.filter(|row| wanted(row)) {
                let entry = reply::quarantine(&row);
                bytes += entry.len();
                found.push(entry);
            }
        }
        if is_last {
            call.room_for(bytes)?;
            return Ok(query::page(found, None).response());
        }
    }
}

/// A page with more bytes than this is given out as it is.
const ANSWER_BYTES: usize = 4 << 20;

/// `POST /wms-ingest/v1/quarantine/{quarantine_id}/release`
pub(super) async fn release(call: &Call) -> Result<Response, Problem> {
    let ingest = ingest(call)?;
    let dry_run = DryRun::of(&Query::of(call)?)?;
    let request = request::of_one_item(call, dry_run)?;
    let named = call.path_value("quarantine_id")?;
    let changes = release_of(&ingest, &request.tenant, &named).await;
    answer(call, &ingest, (&request, dry_run), changes).await
}

async fn release_of(
    ingest: &Ingest,
    tenant: &Tenant,
    named: &str,
) -> Result<(Arc<Collection>, Vec<Change>), Problem> {
    let unknown = || {
        Problem::new(
            Code::UnknownQuarantine,
            "no quarantine of this id is known; list those that are with GET /wms-ingest/v1/quarantine",
        )
    };
    let id = QuarantineId::parse(named).ok_or_else(unknown)?;
    let change = ingest.release_of(tenant, id).await?.ok_or_else(unknown)?;
    let kept = ingest.item(id.item).await?.ok_or_else(unknown)?;
    let collection = ingest.rules().collections.get(&kept.collection).ok_or_else(|| {
        let detail = format!("the policy has no collection {:?} any more", &*kept.collection);
        Problem::new(Code::UnknownCollection, detail)
    })?;
    Ok((collection.clone(), vec![change]))
}
