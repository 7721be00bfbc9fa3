//! Lists items in quarantine, and looks at one again.
//! Never changes one but by a release. Called through the table of routes.

use std::sync::Arc;

use axum::response::Response;
use fencepost::{
    ingest::Ingest,
    policy::collections::{Collection, Reason},
};
use fencepost_kernel::{
    Tenant,
    item::{Change, ItemId, QuarantineId, Quarantined, StayOutcome},
};

use super::{
    ingest,
    items::answer,
    known_collection, malformed, reply,
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
    let filter = Filter::of(&ingest, &query)?;
    let now = call.engine().now();
    let wanted = |row: &Quarantined| {
        row.tenant == tenant && row.resolved.as_ref().is_none_or(|resolved| resolved.expires > now) && filter.takes(row)
    };
    let limit = query.limit()?;
    let mut after = query.cursor(ItemId::from_hex)?;
    let (mut found, mut bytes, mut seen) = (Vec::new(), 0, 0);
    loop {
        let page: Vec<(ItemId, Option<Arc<Quarantined>>)> = match (filter.collection, filter.source_id) {
            // An item has one row for its quarantine.
            (Some(collection), Some(source_id)) => {
                let item = ItemId::new(&tenant, collection, source_id);
                let row = ingest.quarantine(item).await?.filter(|_| after.is_none_or(|after| after < item));
                row.map(|row| (item, Some(row))).into_iter().collect()
            }
            _ if let Some((kind, id)) = filter.waiting_for_open() => {
                let missing = ItemId::new(&tenant, kind, id);
                ingest.waiting_for(missing, after, READ_MAX).await?
            }
            _ => {
                let rows = ingest.quarantines(&tenant, filter.collection, after, READ_MAX).await?;
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

/// The rows that a caller wants to see; a filter that is absent takes every row.
struct Filter<'q> {
    is_open: Option<bool>,
    resolution: Option<StayOutcome>,
    collection: Option<&'q str>,
    source_id: Option<&'q str>,
    correlation_id: Option<&'q str>,
    reason: Option<Reason>,
    /// A collection and a source id.
    waiting_for: Option<(&'q str, &'q str)>,
}

impl<'q> Filter<'q> {
    fn of(ingest: &Ingest, query: &'q Query) -> Result<Self, Problem> {
        let waiting_for = |named: &'q str| {
            let wrong = || malformed("`waiting_for` must be a collection and a source id, such as uoms/EA");
            let (collection, source_id) = named.split_once('/').ok_or_else(wrong)?;
            known_collection(ingest, collection)?;
            Ok::<_, Problem>((collection, source_id))
        };
        Ok(Self {
            is_open: word(query, "status", &[("OPEN", true), ("RESOLVED", false)])?,
            resolution: word(query, "resolution", &StayOutcome::ALL.map(|outcome| (outcome.name(), outcome)))?,
            collection: query
                .one("collection")?
                .map(|name| known_collection(ingest, name).and(Ok(name)))
                .transpose()?,
            source_id: query.one("source_id")?,
            correlation_id: query.one("correlation_id")?,
            reason: word(query, "reason_code", &Reason::WORDS)?,
            waiting_for: query.one("waiting_for")?.map(waiting_for).transpose()?,
        })
    }

    /// The item that all wanted rows wait for. Only open ones are found by it.
    fn waiting_for_open(&self) -> Option<(&'q str, &'q str)> {
        self.waiting_for.filter(|_| self.is_open == Some(true))
    }

    fn takes(&self, row: &Quarantined) -> bool {
        let waits_for = |(kind, id): (&str, &str)| {
            row.unresolved.iter().any(|missing| &*missing.collection == kind && missing.source_id == id)
        };
        let resolution = row.resolved.as_ref().map(|resolved| resolved.how);
        self.is_open.is_none_or(|open| open == row.resolved.is_none())
            && self.resolution.is_none_or(|wanted| resolution == Some(wanted))
            && self.collection.is_none_or(|collection| *collection == *row.collection)
            && self.source_id.is_none_or(|source_id| source_id == row.source_id)
            && self.correlation_id.is_none_or(|id| *id == *row.from.correlation_id)
            && self.reason.is_none_or(|reason| row.unresolved.iter().any(|missing| *missing.reason == *reason.name()))
            && self.waiting_for.is_none_or(waits_for)
    }
}

fn word<T: Copy>(query: &Query, name: &str, words: &[(&str, T)]) -> Result<Option<T>, Problem> {
    let Some(given) = query.one(name)? else { return Ok(None) };
    match words.iter().find(|(word, _)| *word == given) {
        Some((_, value)) => Ok(Some(*value)),
        None => {
            let known: Vec<&str> = words.iter().map(|(word, _)| *word).collect();
            Err(malformed(format!("`{name}` must be {}, not {given:?}", known.join(" or "))))
        }
    }
}

/// `POST /wms-ingest/v1/quarantine/{quarantine_id}/release`
pub(super) async fn release(call: &Call) -> Result<Response, Problem> {
    let ingest = ingest(call)?;
    let dry_run = DryRun::of(&Query::of(call)?)?;
    let request = request::of_one_item(call, dry_run)?;
    let named = call.path_value("quarantine_id")?;
    let changes = release_of(&ingest, &request.tenant, &named).await;
    answer(call, &ingest, (&request, dry_run), changes).await
}

async fn release_of(ingest: &Ingest, tenant: &Tenant, named: &str) -> Result<(Arc<Collection>, Vec<Change>), Problem> {
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
