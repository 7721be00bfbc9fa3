//! Acts of operators: outcomes that are given up, and the audit of everything that an operator's credential changed.

mod audit;
mod forget;
mod stores;

use serde_json::{Value, json};

use super::{
    client::{Answer, Client, with},
    server::Server,
};

const SCOPE: &str = "INDEX_BUILD";

fn key(name: &str) -> Value {
    json!({"index_hash": name})
}

/// An admin asks that a key of acme is forgotten.
fn forget(client: &mut Client, name: &str, more: Value) -> Answer {
    let body = json!({"scope": SCOPE, "key": key(name), "tenant": "acme", "why": "the index was lost"});
    client.post("/admin/idempotency/forget", with(body, more))
}

/// The entries of one page of the audit, the newest first.
fn audit(server: &Server, query: &str) -> Vec<Value> {
    let page = server.client("dev-viewer").get(&format!("/admin/audit?limit=1000{query}")).ok(200);
    assert_eq!(page["next_cursor"], "", "{page}");
    page["items"].as_array().unwrap().clone()
}

/// Each act as `operation subject`.
fn acts(entries: &[Value]) -> Vec<String> {
    entries
        .iter()
        .map(|entry| format!("{} {}", entry["what"].as_str().unwrap(), entry["on"].as_str().unwrap()))
        .collect()
}
