//! An operator's way back from a version that was sent too high by mistake.
//! Never decides. Called through the table of routes.

use axum::response::Response;
use fencepost_kernel::{
    Reply,
    item::{self, ForgetVersion},
    json::Value,
};

use super::{ingest, known_collection, malformed, reply};
use crate::{
    http::{
        call::Call,
        reply::Answer,
        request::{member, object, optional_text, text},
    },
    problem::{Code, Problem},
};

/// `POST /admin/items/forget-version`
pub(super) async fn forget(call: &Call) -> Result<Response, Problem> {
    let ingest = ingest(call)?;
    let node = call.json()?;
    let node = object(&node)?;
    let asked = call.query_tenant()?;
    let tenant = call.tenant(optional_text(node, "tenant")?.or(asked.as_deref()))?;
    let collection = known_collection(&ingest, text(node, "collection")?)?.name.clone();
    let version = member(node, "source_version")?;
    let version = match &version.value {
        Value::Number => version.as_integer().map(|number| number.to_string()),
        Value::String(text) => Some(text.to_string()),
        _ => None,
    };
    let version = version.ok_or_else(|| malformed("`source_version` must be the version to forget, as it is shown"))?;
    let (source_id, why) = (text(node, "source_id")?.to_owned(), text(node, "why")?.to_owned());
    let by = call.caller.id.as_str().into();
    let forget = ForgetVersion { tenant, collection, source_id: source_id.clone(), version, by, why };
    let reply = ingest.forget_version(forget).await?;
    if let Reply::Item(item::Reply::VersionForgotten { replay, highest }) = &reply {
        return Ok(Answer::ok(reply::version_forgotten(&source_id, highest.as_ref(), *replay)).response());
    }
    Err(Problem::new(Code::UnknownItem, format!("no version of {source_id:?} was ever accepted")))
}
