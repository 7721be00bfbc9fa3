//! Reads what a partner's request says beside its items: its id, its mode, and what is compared when the id comes again.
//! Never looks into an item. Called by the routes beside it.

use std::sync::Arc;

use bytes::Bytes;
use fencepost::{ingest::IngestRequest, policy::collections::Group};
use fencepost_kernel::{
    fence::body::Body,
    item::{ChangeVerdict, Submit},
};

use super::{malformed, reply, tenant};
use crate::{
    http::{call::Call, query::Query},
    problem::{Code, Problem},
};

/// The header with the partner's id of a request.
const CORRELATION_ID: &str = "x-correlation-id";
/// The longest id, in characters.
const CORRELATION_ID_MAX: usize = 128;

/// How a list of items is meant.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(super) enum Mode {
    Upsert,
    /// As a job.
    Bulk,
}

/// Whether anything shall change.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(super) enum DryRun {
    Yes,
    No,
}

impl Mode {
    pub(super) fn of(query: &Query, group: Group) -> Result<Self, Problem> {
        match query.one("mode")?.unwrap_or(UPSERT) {
            UPSERT => Ok(Self::Upsert),
            "bulk" => Ok(Self::Bulk),
            mode @ "full-refresh" if group == Group::Master => {
                let detail =
                    format!("this release does not serve mode={mode}; send the items in requests of mode=upsert");
                Err(Problem::new(Code::ModeUnsupported, detail))
            }
            mode => Err(malformed(format!("there is no mode {mode:?} under {}; use upsert or bulk", group.name()))),
        }
    }
}

const UPSERT: &str = "upsert";

impl DryRun {
    pub(super) fn of(query: &Query) -> Result<Self, Problem> {
        // An empty value is not taken for none: what was meant as a dry run must not change anything.
        match query.given("dry_run")? {
            None | Some("false") => Ok(Self::No),
            Some("true") => Ok(Self::Yes),
            Some(other) => Err(malformed(format!("`dry_run` must be true or false, not {other:?}"))),
        }
    }
}

/// A request that brings items. The same items on another path or in another mode are another request.
pub(super) fn of_items(call: &Call, query: &Query, dry_run: DryRun, body: Body) -> Result<IngestRequest, Problem> {
    let place = format!("{}?mode={}", call.parts.uri.path(), query.one("mode")?.unwrap_or(UPSERT));
    let answer = if dry_run == DryRun::Yes { reply::dry_run_item_results } else { reply::item_results };
    ingest_request(call, dry_run, body.asked_of("POST", &place), answer)
}

/// A request about one thing that its path names; what its body says does not count.
pub(super) fn of_one_item(call: &Call, dry_run: DryRun) -> Result<IngestRequest, Problem> {
    let compared = Body::opaque(&[]).asked_of(call.parts.method.as_str(), call.parts.uri.path());
    let answer = if dry_run == DryRun::Yes { reply::dry_run_single_result } else { reply::single_result };
    ingest_request(call, dry_run, compared, answer)
}

// A dry run has no id: it may be repeated as it is, and leaves none behind.
fn ingest_request(
    call: &Call,
    dry_run: DryRun,
    compared: Body,
    answer: fn(&Submit, &[ChangeVerdict]) -> Bytes,
) -> Result<IngestRequest, Problem> {
    let correlation_id = if dry_run == DryRun::Yes { "".into() } else { correlation_id(call)? };
    let (tenant, by) = (tenant(call)?, call.caller.id.as_str().into());
    Ok(IngestRequest { tenant, by, correlation_id, compared, trace: Some(call.trace.held()), answer })
}

fn correlation_id(call: &Call) -> Result<Arc<str>, Problem> {
    let mut values = call.parts.headers.get_all(CORRELATION_ID).iter();
    let (Some(value), None) = (values.next(), values.next()) else {
        let detail = "send the header `X-Correlation-Id` once: your id of this request, the same for each retry";
        return Err(Problem::new(Code::MissingHeader, detail));
    };
    let id = value
        .to_str()
        .ok()
        .filter(|id| (1..=CORRELATION_ID_MAX).contains(&id.len()) && id.bytes().all(|byte| byte.is_ascii_graphic()));
    let wrong =
        || malformed(format!("`X-Correlation-Id` must have 1 to {CORRELATION_ID_MAX} visible ASCII characters"));
    id.map(Into::into).ok_or_else(wrong)
}
