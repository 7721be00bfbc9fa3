//! Answers a duplicate with the first answer, byte for byte, and the headers that the rule adds to replays.
//! Never asks an upstream. Called by the gateway where a claim is a duplicate.

use axum::{body::Body, response::Response};
use base64::{Engine as _, prelude::BASE64_STANDARD};
use bytes::Bytes;
use fencepost::answer::StoredAnswer;
use fencepost_kernel::fence::{Fence, State, Target};
use http::{HeaderMap, HeaderName, HeaderValue, StatusCode, header};

use super::{Entry, large};
use crate::{
    http::{
        App,
        reply::{REPLAYED, expires},
    },
    problem::{Code, DECISION, Problem},
};

const BODY: HeaderName = HeaderName::from_static("fencepost-body");
const DIGEST: HeaderName = HeaderName::from_static("repr-digest");

/// The stored answer to the first request.
pub(super) async fn answer(app: &App, entry: &Entry, target: &Target, fence: &Fence) -> Result<Response, Problem> {
    let State::Sealed { receipt, expires: ends, .. } = &fence.state else {
        return Err(Problem::new(Code::Internal, "no receipt"));
    };
    let kept = StoredAnswer::decode(&receipt.body).unwrap_or_else(|| sealed_by_hand(&receipt.body));
    let mut headers = kept.headers;
    headers.insert(REPLAYED, HeaderValue::from_static("true"));
    expires(&mut headers, *ends);
    if let Some((name, value)) = &entry.replay_header {
        headers.insert(name.clone(), value.clone());
    }
    if entry.signer.is_some() {
        headers.insert(DECISION, HeaderValue::from_static("duplicate"));
    }
    if kept.body.is_none() {
        let digest = large::digest(app.fencepost.engine(), target, fence.token).await;
        mark_omitted(&mut headers, digest);
    }
    let mut response = Response::new(Body::from(kept.body.unwrap_or_default()));
    // A stored refusal keeps its status.
    let instead = entry.replay_status.filter(|_| kept.status.is_success());
    *response.status_mut() = instead.unwrap_or(kept.status);
    *response.headers_mut() = headers;
    Ok(response)
}

/// Says in an answer's headers that its body is not kept, with its digest where it is known.
pub(super) fn mark_omitted(headers: &mut HeaderMap, digest: Option<[u8; 32]>) {
    headers.insert(BODY, HeaderValue::from_static("omitted"));
    let shown = digest.map(|digest| format!("sha-256=:{}:", BASE64_STANDARD.encode(digest)));
    if let Some(shown) = shown.and_then(|shown| HeaderValue::from_str(&shown).ok()) {
        headers.insert(DIGEST, shown);
    }
}

// A worker or a person sealed it over the API: its receipt is JSON.
fn sealed_by_hand(receipt: &Bytes) -> StoredAnswer {
    let mut headers = HeaderMap::new();
    headers.insert(header::CONTENT_TYPE, HeaderValue::from_static("application/json"));
    StoredAnswer { status: StatusCode::OK, headers, body: Some(receipt.clone()) }
}
