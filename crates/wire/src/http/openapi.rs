//! `/openapi.json`: the contract in OpenAPI 3.1, made from the same tables that the code uses: the error codes come
//! from `problem`, and a test holds the paths against the routes. A snapshot is committed.

mod parameter;
mod problem;
mod schemas;
mod wes;

use std::sync::{Arc, LazyLock};

use axum::{body::Body, extract::Request, response::Response};
use bytes::Bytes;
use http::{HeaderValue, header};
use serde_json::{Map, Value, json};

use super::App;
use crate::{exposition, problem::Code, server::Unbuffered};

use parameter::Parameter;

/// `GET /openapi.json`
pub(super) async fn serve(_: Arc<App>, _: Request) -> Response {
    // Made once and shared by every request.
    static TEXT: LazyLock<Bytes> = LazyLock::new(|| text().into());
    let mut response = Response::new(Body::from(TEXT.clone()));
    response.extensions_mut().insert(Unbuffered);
    response.headers_mut().insert(header::CONTENT_TYPE, HeaderValue::from_static("application/json"));
    response
}

/// The document as it is served and as the snapshot holds it.
pub fn text() -> String {
    format!("{:#}\n", document())
}

/// One operation, as said in the document.
struct Operation {
    /// Its name in generated clients.
    id: &'static str,
    method: &'static str,
    path: &'static str,
    summary: &'static str,
    request: Option<&'static str>,
    answers: &'static [(u16, &'static str, &'static str)],
    refusals: &'static [Code],
    parameters: &'static [&'static Parameter],
}

/// What any request may hear, before a route sees it: it is malformed, too large or too slow, it came to the listener that does
/// not serve its path, or there is no room.
const ANY: &[Code] = &[
    Code::Malformed,
    Code::NotFound,
    Code::Timeout,
    Code::TooLarge,
    Code::LineTooLong,
    Code::HeadersTooLarge,
    Code::TooManyConnections,
    Code::BuffersFull,
];
const GUARDED: &[Code] = &[Code::Unauthorized, Code::Forbidden, Code::CodedBody, Code::StoreUnavailable];
const WRITE: &[Code] = &[Code::StoreUnsupported, Code::NotJson];
/// What a request that names a fence may hear beside that.
const KEYED: &[Code] = &[Code::WrongKey, Code::UnknownScope];

/// Requests whose body may be left out.
const OPTIONAL: &[&str] = &["Redrive"];

/// In place of a schema: the answer is bytes.
const FILE: &str = "";

const OPERATIONS: &[Operation] = &[
    Operation {
        id: "claim",
        method: "post",
        path: "/v1/fences/claim",
        summary: "Ask for the right to act under a key",
        request: Some("Claim"),
        answers: &[
            (201, "New", "The caller may act, and must seal, renew or release with the token"),
            (200, "Duplicate", "The effect was had before; here is its receipt"),
        ],
        refusals: &[Code::Conflict, Code::InFlight, Code::InDoubt, Code::Stale, Code::Incomparable],
        parameters: &[],
    },
    Operation {
        id: "claimAgain",
        method: "post",
        path: "/v1/fences/again",
        summary: "Ask for the right to a deliberate repetition: resend, rebook",
        request: Some("Again"),
        answers: &[
            (201, "New", "The caller may repeat the effect"),
            (200, "Duplicate", "This repetition was had before"),
        ],
        refusals: &[Code::Conflict, Code::InFlight, Code::InDoubt, Code::Stale, Code::SequenceGap],
        parameters: &[],
    },
    Operation {
        id: "seal",
        method: "post",
        path: "/v1/fences/seal",
        summary: "Record the outcome",
        request: Some("Seal"),
        answers: &[(200, "Sealed", "Durable; every later claim gets this receipt")],
        refusals: &[Code::FencedOff, Code::Conflict],
        parameters: &[],
    },
    Operation {
        id: "renew",
        method: "post",
        path: "/v1/fences/renew",
        summary: "Ask for more time",
        request: Some("Renew"),
        answers: &[(200, "Renewed", "The lease runs from now")],
        refusals: &[Code::FencedOff, Code::InDoubt],
        parameters: &[],
    },
    Operation {
        id: "release",
        method: "post",
        path: "/v1/fences/release",
        summary: "Give the key back: nothing happened",
        request: Some("Release"),
        answers: &[(200, "Released", "The next claimant may act")],
        refusals: &[Code::FencedOff],
        parameters: &[],
    },
    Operation {
        id: "batch",
        method: "post",
        path: "/v1/fences/batch",
        summary: "Up to 1,000 commands, decided in order, durable in one commit",
        request: Some("Batch"),
        answers: &[(200, "BatchResults", "One result per command, in order")],
        refusals: &[],
        parameters: &[],
    },
    Operation {
        id: "listScopes",
        method: "get",
        path: "/v1/scopes",
        summary: "The scopes that the caller can use, by their names, and how long each remembers a key",
        request: None,
        answers: &[(200, "Scopes", "A page")],
        refusals: &[],
        parameters: &[&parameter::LIMIT, &parameter::AFTER, &parameter::SINCE],
    },
    Operation {
        id: "putAlias",
        method: "put",
        path: "/v1/aliases/{name}",
        summary: "Let a name stand for a sealed effect",
        request: Some("Target"),
        answers: &[(200, "Alias", "The name stands for the effect")],
        refusals: &[Code::NotSealed],
        parameters: &[&parameter::ALIAS],
    },
    Operation {
        id: "getAlias",
        method: "get",
        path: "/v1/aliases/{name}",
        summary: "Read the sealed receipt that a name stands for",
        request: None,
        answers: &[(200, "Alias", "The name and its receipt")],
        refusals: &[Code::UnknownAlias],
        parameters: &[&parameter::ALIAS, &parameter::ALIAS_TENANT],
    },
    Operation {
        id: "lookup",
        method: "get",
        path: "/admin/idempotency/lookup",
        summary: "Explain a key: give the scope and every key field as query parameters",
        request: None,
        answers: &[(200, "Lookup", "What happened under the key, or exists: false")],
        refusals: &[Code::UnknownScope, Code::WrongKey, Code::StoreUnsupported],
        parameters: &[&parameter::SCOPE, &parameter::KEY, &parameter::SEQ, &parameter::LOOKUP_TENANT],
    },
    Operation {
        id: "listInDoubt",
        method: "get",
        path: "/admin/idempotency/in-doubt",
        summary: "Fences that wait for a person, longest first",
        request: None,
        answers: &[(200, "Doubts", "A page")],
        refusals: &[Code::UnknownCursor],
        parameters: &[
            &parameter::DOUBT_TENANT,
            &parameter::DOUBT_SCOPE,
            &parameter::LIMIT,
            &parameter::AFTER,
            &parameter::SINCE,
        ],
    },
    Operation {
        id: "resolve",
        method: "post",
        path: "/admin/idempotency/resolve",
        summary: "A person's word on a fence in doubt",
        request: Some("Resolve"),
        answers: &[(200, "Resolved", "Recorded with who, when and why")],
        refusals: &[Code::NotInDoubt],
        parameters: &[],
    },
    Operation {
        id: "getPolicy",
        method: "get",
        path: "/admin/policy",
        summary: "Which policy is in force, and what its check found",
        request: None,
        answers: &[(200, "Policy", "The file, its hash, its scopes, its routes and its findings")],
        refusals: &[],
        parameters: &[],
    },
    Operation {
        id: "reloadPolicy",
        method: "post",
        path: "/admin/policy",
        summary: "Read the policy file again and put it into force, all or nothing",
        request: None,
        answers: &[(200, "PolicyChanges", "What is different now; `changed` is false where nothing is")],
        refusals: &[Code::NoPolicyFile, Code::PolicyRefused],
        parameters: &[&parameter::DRY_RUN],
    },
    Operation {
        id: "listNodes",
        method: "get",
        path: "/admin/nodes",
        summary: "Who shares the store, who is alive, and how many claims each holds",
        request: None,
        answers: &[(200, "Nodes", "The store and its nodes, by their ids")],
        refusals: &[],
        parameters: &[&parameter::LIMIT, &parameter::AFTER, &parameter::SINCE],
    },
    Operation {
        id: "backup",
        method: "get",
        path: "/admin/backup",
        summary: "The whole store as a backup file, read out while it is being served",
        request: None,
        answers: &[(200, FILE, "The file; it is whole only where its trailer and its sum are right")],
        refusals: &[],
        parameters: &[],
    },
];

/// A path that any client may ask for.
struct Open {
    id: &'static str,
    path: &'static str,
    summary: &'static str,
    /// What an answer is, by its media type.
    content: &'static [(&'static str, &'static str)],
    refusals: &'static [Code],
}

const TEXT: &str = "";

/// Paths that need no credential. One that refuses unknown clients does so where operators have no listener of their own.
const OPEN: &[Open] = &[
    Open {
        id: "healthz",
        path: "/healthz",
        summary: "The process serves requests",
        content: &[("application/json", "Health")],
        refusals: &[],
    },
    Open {
        id: "readyz",
        path: "/readyz",
        summary: "The store acknowledges",
        content: &[("application/json", "Health")],
        refusals: &[Code::StoreUnavailable],
    },
    Open {
        id: "metrics",
        path: "/metrics",
        summary: "Figures for Prometheus: OpenMetrics, or its older text format for those who accept no other",
        content: &[(exposition::OPENMETRICS, TEXT), (exposition::PLAIN, TEXT)],
        refusals: &[Code::Unauthorized, Code::Forbidden, Code::CodedBody],
    },
    Open {
        id: "openapi",
        path: "/openapi.json",
        summary: "This document",
        content: &[("application/json", "Document")],
        refusals: &[],
    },
];

fn operations() -> impl Iterator<Item = &'static Operation> {
    OPERATIONS.iter().chain(wes::OPERATIONS)
}

/// The paths that the document names, with their methods.
pub fn paths() -> Vec<(&'static str, &'static str)> {
    let guarded = operations().map(|operation| (operation.method, operation.path));
    guarded.chain(OPEN.iter().map(|open| ("get", open.path))).collect()
}

fn document() -> Value {
    let mut paths: Map<String, Value> = Map::new();
    for operation in operations() {
        let entry = paths.entry(operation.path).or_insert_with(|| json!({}));
        entry[operation.method] = said(operation);
    }
    for open in OPEN {
        let content = open.content.iter().map(|(kind, schema)| match *schema {
            TEXT => (media_type(kind).to_owned(), json!({"schema": {"type": "string"}})),
            schema => ((*kind).to_owned(), json!({"schema": reference(schema)})),
        });
        let content: Map<String, Value> = content.collect();
        let mut responses =
            Map::from_iter([("200".to_owned(), json!({"description": open.summary, "content": content}))]);
        refused(&mut responses, ANY.iter().chain(open.refusals));
        let is_guarded = open.refusals.contains(&Code::Unauthorized);
        let security = if is_guarded { json!([{"bearer": []}, {}]) } else { json!([]) };
        let said = json!({"operationId": open.id, "tags": ["server"], "summary": open.summary, "security": security, "responses": responses});
        paths.insert(open.path.to_owned(), json!({"get": said}));
    }
    let codes: Vec<&str> = Code::ALL.iter().map(|code| code.parts().1).collect();
    json!({
        "openapi": "3.1.0",
        "info": {"title": "Fencepost", "version": env!("CARGO_PKG_VERSION"), "description": "Makes every retry safe.", "license": {"name": "MIT OR Apache-2.0"}},
        "security": [{"bearer": []}],
        "paths": paths,
        "components": {
            "securitySchemes": {"bearer": {"type": "http", "scheme": "bearer"}},
            "schemas": schemas::schemas(&codes),
        },
    })
}

fn said(operation: &Operation) -> Value {
    let mut responses = Map::new();
    for (status, schema, description) in operation.answers {
        let content = match *schema {
            FILE => json!({"application/octet-stream": {"schema": {"type": "string", "format": "binary"}}}),
            schema => json!({"application/json": {"schema": reference(schema)}}),
        };
        responses.insert(status.to_string(), json!({"description": description, "content": content}));
    }
    let none: &[Code] = &[];
    let (keyed, write) = match operation.request {
        None => (none, none),
        Some(_) if wes::OPERATIONS.iter().any(|other| other.path == operation.path) => (none, WRITE),
        Some(_) => (KEYED, WRITE),
    };
    refused(&mut responses, ANY.iter().chain(GUARDED).chain(keyed).chain(write).chain(operation.refusals));
    let parameters: Vec<Value> = operation.parameters.iter().map(|parameter| parameter.said()).collect();
    let tag = match operation.path.split('/').nth(1) {
        Some("v1") => "fences",
        Some("wes") => "dispatch",
        _ => "admin",
    };
    let mut said =
        json!({"operationId": operation.id, "tags": [tag], "summary": operation.summary, "responses": responses});
    if !parameters.is_empty() {
        said["parameters"] = json!(parameters);
    }
    if let Some(request) = operation.request {
        said["requestBody"] = json!({"required": !OPTIONAL.contains(&request), "content": {"application/json": {"schema": reference(request)}}});
    }
    said
}

fn reference(schema: &str) -> Value {
    json!({"$ref": format!("#/components/schemas/{schema}")})
}

// Without its parameters, as documents name it.
fn media_type(kind: &'static str) -> &'static str {
    kind.split(';').next().unwrap_or(kind)
}

fn refused<'c>(responses: &mut Map<String, Value>, codes: impl Iterator<Item = &'c Code>) {
    for code in codes {
        let (status, name, title) = code.parts();
        let entry = responses.entry(status.to_string()).or_insert_with(
            || json!({"description": "", "content": {"application/problem+json": {"schema": reference("Problem")}}}),
        );
        let known = entry["description"].as_str().unwrap_or_default();
        let separator = if known.is_empty() { "" } else { "; " };
        entry["description"] = json!(format!("{known}{separator}{name}: {title}"));
    }
}
