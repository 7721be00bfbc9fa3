//! `/openapi.json`: the contract in OpenAPI 3.1, made from the same tables that the code uses: the error codes come
//! from `problem`, and a test holds the paths against the routes. A snapshot is committed.

mod schemas;
mod wes;

use std::sync::{Arc, LazyLock};

use axum::{body::Body, extract::Request, response::Response};
use bytes::Bytes;
use http::{HeaderValue, header};
use serde_json::{Map, Value, json};

use super::App;
use crate::{problem::Code, server::Unbuffered};

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
    method: &'static str,
    path: &'static str,
    summary: &'static str,
    request: Option<&'static str>,
    answers: &'static [(u16, &'static str, &'static str)],
    refusals: &'static [Code],
    parameters: &'static [(&'static str, &'static str, &'static str)],
}

const GUARDED: &[Code] =
    &[Code::Malformed, Code::Unauthorized, Code::Forbidden, Code::StoreUnavailable, Code::BuffersFull];
const WRITE: &[Code] = &[Code::StoreUnsupported, Code::TooLarge, Code::NotJson, Code::CodedBody, Code::Timeout];
/// What a request that names a fence may hear beside that.
const KEYED: &[Code] = &[Code::WrongKey, Code::UnknownScope];

/// Requests whose body may be left out.
const OPTIONAL: &[&str] = &["Redrive"];

/// In place of a schema: the answer is bytes.
const FILE: &str = "";

const OPERATIONS: &[Operation] = &[
    Operation {
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
        method: "post",
        path: "/v1/fences/seal",
        summary: "Record the outcome",
        request: Some("Seal"),
        answers: &[(200, "Sealed", "Durable; every later claim gets this receipt")],
        refusals: &[Code::FencedOff, Code::Conflict],
        parameters: &[],
    },
    Operation {
        method: "post",
        path: "/v1/fences/renew",
        summary: "Ask for more time",
        request: Some("Renew"),
        answers: &[(200, "Renewed", "The lease runs from now")],
        refusals: &[Code::FencedOff, Code::InDoubt],
        parameters: &[],
    },
    Operation {
        method: "post",
        path: "/v1/fences/release",
        summary: "Give the key back: nothing happened",
        request: Some("Release"),
        answers: &[(200, "Released", "The next claimant may act")],
        refusals: &[Code::FencedOff],
        parameters: &[],
    },
    Operation {
        method: "post",
        path: "/v1/fences/batch",
        summary: "Up to 1,000 commands, decided in order, durable in one commit",
        request: Some("Batch"),
        answers: &[(200, "BatchResults", "One result per command, in order")],
        refusals: &[],
        parameters: &[],
    },
    Operation {
        method: "put",
        path: "/v1/aliases/{name}",
        summary: "Let a name stand for a sealed effect",
        request: Some("Target"),
        answers: &[(200, "Alias", "The name stands for the effect")],
        refusals: &[Code::NotSealed],
        parameters: &[("name", "path", "1 to 255 bytes")],
    },
    Operation {
        method: "get",
        path: "/v1/aliases/{name}",
        summary: "Read the sealed receipt that a name stands for",
        request: None,
        answers: &[(200, "Alias", "The name and its receipt")],
        refusals: &[Code::UnknownAlias],
        parameters: &[("name", "path", "1 to 255 bytes"), ("tenant", "query", "whose name it is; for admins")],
    },
    Operation {
        method: "get",
        path: "/admin/idempotency/lookup",
        summary: "Explain a key: give the scope and every key field as query parameters",
        request: None,
        answers: &[(200, "Lookup", "What happened under the key, or exists: false")],
        refusals: &[Code::UnknownScope, Code::WrongKey],
        parameters: &[
            ("scope", "query", "the scope's name"),
            (
                "tenant",
                "query",
                "whose key it is; for admins and viewers. Without it, those with an identity and those of webhooks are searched",
            ),
        ],
    },
    Operation {
        method: "get",
        path: "/admin/idempotency/in-doubt",
        summary: "Fences that wait for a person, longest first",
        request: None,
        answers: &[(200, "Doubts", "A page; `since` takes its next_cursor")],
        refusals: &[],
        parameters: &[
            ("since", "query", "the next_cursor of the page before"),
            ("tenant", "query", "only this tenant's; a page may then be short"),
        ],
    },
    Operation {
        method: "post",
        path: "/admin/idempotency/resolve",
        summary: "A person's word on a fence in doubt",
        request: Some("Resolve"),
        answers: &[(200, "Resolved", "Recorded with who, when and why")],
        refusals: &[Code::NotInDoubt],
        parameters: &[],
    },
    Operation {
        method: "get",
        path: "/admin/policy",
        summary: "Which policy is in force, and what its check found",
        request: None,
        answers: &[(200, "Policy", "The file, its hash, its scopes, its routes and its findings")],
        refusals: &[],
        parameters: &[],
    },
    Operation {
        method: "post",
        path: "/admin/policy",
        summary: "Read the policy file again and put it into force, all or nothing",
        request: None,
        answers: &[(200, "PolicyChanges", "What is different now; `changed` is false where nothing is")],
        refusals: &[Code::NoPolicyFile, Code::PolicyRefused],
        parameters: &[("dry_run", "query", "true: only say what would change")],
    },
    Operation {
        method: "get",
        path: "/admin/nodes",
        summary: "Who shares the store, who is alive, and how many claims each holds",
        request: None,
        answers: &[(200, "Nodes", "The store and its nodes")],
        refusals: &[],
        parameters: &[],
    },
    Operation {
        method: "get",
        path: "/admin/backup",
        summary: "The whole store as a backup file, read out while it is being served",
        request: None,
        answers: &[(200, FILE, "The file; it is whole only where its trailer and its sum are right")],
        refusals: &[],
        parameters: &[],
    },
];

/// Paths without a schema, and what they may refuse. One that refuses unknown clients does so where operators have no listener of
/// their own.
const OPEN: &[(&str, &str, &[Code])] = &[
    ("/healthz", "The process serves requests", &[]),
    ("/readyz", "The store acknowledges", &[Code::StoreUnavailable]),
    ("/metrics", "OpenMetrics text for Prometheus", &[Code::Unauthorized, Code::Forbidden]),
    ("/openapi.json", "This document", &[]),
];

fn operations() -> impl Iterator<Item = &'static Operation> {
    OPERATIONS.iter().chain(wes::OPERATIONS)
}

/// The paths that the document names, with their methods.
pub fn paths() -> Vec<(&'static str, &'static str)> {
    let guarded = operations().map(|operation| (operation.method, operation.path));
    guarded.chain(OPEN.iter().map(|(path, ..)| ("get", *path))).collect()
}

fn document() -> Value {
    let mut paths: Map<String, Value> = Map::new();
    for operation in operations() {
        let entry = paths.entry(operation.path).or_insert_with(|| json!({}));
        entry[operation.method] = said(operation);
    }
    for (path, summary, refusals) in OPEN {
        let mut responses = Map::from_iter([("200".to_owned(), json!({"description": summary}))]);
        refused(&mut responses, refusals.iter());
        let security = if refusals.contains(&Code::Unauthorized) { json!([{"bearer": []}, {}]) } else { json!([]) };
        paths.insert(
            (*path).to_owned(),
            json!({"get": {"summary": summary, "security": security, "responses": responses}}),
        );
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
            FILE => json!({"application/octet-stream": {}}),
            schema => json!({"application/json": {"schema": {"$ref": format!("#/components/schemas/{schema}")}}}),
        };
        responses.insert(status.to_string(), json!({"description": description, "content": content}));
    }
    let none: &[Code] = &[];
    let (keyed, write) = match operation.request {
        None => (none, none),
        Some(_) if wes::OPERATIONS.iter().any(|other| other.path == operation.path) => (none, WRITE),
        Some(_) => (KEYED, WRITE),
    };
    refused(&mut responses, GUARDED.iter().chain(keyed).chain(write).chain(operation.refusals));
    let parameters: Vec<Value> = operation
        .parameters
        .iter()
        .map(|(name, place, description)| {
            let required = *place == "path" || *name == "scope";
            json!({"name": name, "in": place, "required": required, "description": description, "schema": {"type": "string"}})
        })
        .collect();
    let mut said = json!({"summary": operation.summary, "responses": responses});
    if !parameters.is_empty() {
        said["parameters"] = json!(parameters);
    }
    if let Some(request) = operation.request {
        said["requestBody"] = json!({"required": !OPTIONAL.contains(&request), "content": {"application/json": {"schema": {"$ref": format!("#/components/schemas/{request}")}}}});
    }
    said
}

fn refused<'c>(responses: &mut Map<String, Value>, codes: impl Iterator<Item = &'c Code>) {
    for code in codes {
        let (status, name, title) = code.parts();
        let entry = responses.entry(status.to_string()).or_insert_with(|| {
            json!({"description": "", "content": {"application/problem+json": {"schema": {"$ref": "#/components/schemas/Problem"}}}})
        });
        let known = entry["description"].as_str().unwrap_or_default();
        let separator = if known.is_empty() { "" } else { "; " };
        entry["description"] = json!(format!("{known}{separator}{name}: {title}"));
    }
}
