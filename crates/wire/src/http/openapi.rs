//! `/openapi.json`: the contract in OpenAPI 3.1, made from the same tables that the code uses: the paths come from the
//! route tables, the error codes from `problem`. A snapshot is committed.

mod ingest;
pub(super) mod parameter;
mod problem;
mod schemas;
mod wes;

use std::sync::LazyLock;

use axum::{body::Body, response::Response};
use bytes::Bytes;
use http::{HeaderValue, Method, header, request::Parts};
use serde_json::{Map, Value, json};

use super::{
    App,
    route::{Access, BodyLimit, Class, Content, RequestBody, Route, Table, head_only},
    routes::TABLES,
};
use crate::problem::{Code, Problem};
use fencepost_front::Unbuffered;

pub(super) const ROUTES: &[Route] = &[Route {
    method: Method::GET,
    path: "/openapi.json",
    handler: head_only!(serve),
    access: Access::Public,
    class: Class::Normal,
    body_limit: BodyLimit::Policy,
    operation_id: "openapi",
    summary: "This document",
    parameters: &[],
    request: RequestBody::None,
    answers: &[(200, Content::Json("Document"), "This document")],
    errors: &[],
}];

/// `GET /openapi.json`
async fn serve(_: &App, _: &Parts) -> Result<Response, Problem> {
    // Made once and shared by every request.
    static TEXT: LazyLock<Bytes> = LazyLock::new(|| text().into());
    let mut response = Response::new(Body::from(TEXT.clone()));
    response.extensions_mut().insert(Unbuffered);
    response.headers_mut().insert(header::CONTENT_TYPE, HeaderValue::from_static("application/json"));
    Ok(response)
}

/// The document as it is served and as the snapshot holds it.
pub fn text() -> String {
    format!("{:#}\n", document(TABLES))
}

/// The refusals of any request before a route sees it: it is malformed, too large or too slow, it came to the wrong
/// listener, or there is no room for it.
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
/// Further refusals of a request that needs a credential.
const GUARDED: &[Code] = &[Code::Unauthorized, Code::Forbidden, Code::CodedBody];
/// Further refusals of a request that carries JSON.
const WRITE: &[Code] = &[Code::StoreUnsupported, Code::NotJson];

/// The refusals of an operation: those that follow from its columns, then its own.
fn refusals(route: &Route) -> impl Iterator<Item = Code> {
    let by_access: &[&[Code]] = match route.access {
        Access::Public => &[],
        // Served from memory, without the store.
        Access::RolesUnlessTrusted(_) => &[GUARDED],
        Access::AnyCredential | Access::Roles(_) => &[GUARDED, &[Code::StoreUnavailable]],
    };
    let by_body = if route.request == RequestBody::None { &[] } else { WRITE };
    ANY.iter().chain(by_access.iter().copied().flatten()).chain(by_body).chain(route.errors).copied()
}

fn document(tables: &[Table]) -> Value {
    let mut paths: Map<String, Value> = Map::new();
    for table in tables {
        for route in table.routes {
            let entry = paths.entry(route.path).or_insert_with(|| json!({}));
            entry[route.method.as_str().to_ascii_lowercase()] = operation(table.tag, route);
        }
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

fn operation(tag: &str, route: &Route) -> Value {
    let mut responses = Map::new();
    for (status, content, description) in route.answers {
        let content = match *content {
            Content::Json(schema) => json_body(schema),
            Content::File => json!({"application/octet-stream": {"schema": {"type": "string", "format": "binary"}}}),
            // The schema is of the whole, which is no JSON; a line's own stands beside it.
            Content::Lines(schema) => {
                let lines = json!({"type": "string", "description": "Lines, each a JSON object as `x-line` says"});
                json!({"application/x-ndjson": {"schema": lines, "x-line": reference(schema)}})
            }
            Content::Text(kinds) => {
                let kinds =
                    kinds.iter().map(|kind| (media_type(kind).to_owned(), json!({"schema": {"type": "string"}})));
                Value::Object(kinds.collect())
            }
        };
        responses.insert(status.to_string(), json!({"description": description, "content": content}));
    }
    refused(&mut responses, refusals(route));
    let mut operation =
        json!({"operationId": route.operation_id, "tags": [tag], "summary": route.summary, "responses": responses});
    // Without a line of its own, an operation has the document's `security`: a credential.
    match route.access {
        Access::Public => operation["security"] = json!([]),
        Access::RolesUnlessTrusted(_) => operation["security"] = json!([{"bearer": []}, {}]),
        Access::AnyCredential | Access::Roles(_) => {}
    }
    if !route.parameters.is_empty() {
        operation["parameters"] = route.parameters.iter().map(|parameter| parameter.said()).collect();
    }
    match route.request {
        RequestBody::None => {}
        RequestBody::Json(schema) => {
            operation["requestBody"] = json!({"required": true, "content": json_body(schema)});
        }
        RequestBody::OptionalJson(schema) => {
            operation["requestBody"] = json!({"required": false, "content": json_body(schema)});
        }
    }
    operation
}

fn json_body(schema: &str) -> Value {
    json!({"application/json": {"schema": reference(schema)}})
}

fn reference(schema: &str) -> Value {
    json!({"$ref": format!("#/components/schemas/{schema}")})
}

// The media type without its parameters, as the document names it.
fn media_type(kind: &'static str) -> &'static str {
    kind.split(';').next().unwrap_or(kind)
}

fn refused(responses: &mut Map<String, Value>, codes: impl Iterator<Item = Code>) {
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
