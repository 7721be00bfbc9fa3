//! A partner that sends items. Every answer is held against the OpenAPI document, as those of every client here.

use std::{
    io,
    sync::atomic::{AtomicU64, Ordering},
    thread,
};

use fencepost_rig::PostgresServer;
use serde_json::{Value, json};

use super::super::{
    client::{Answer, Client},
    server::{Serve, Server},
};

pub const ROOT: &str = "/wms-ingest/v1/";

static IDS: AtomicU64 = AtomicU64::new(1);

/// A correlation id that this process has not used before.
pub fn fresh_id() -> String {
    format!("fresh-{}", IDS.fetch_add(1, Ordering::Relaxed))
}

pub struct Sender {
    pub client: Client,
    token: String,
}

impl Sender {
    pub fn new(server: &Server, token: &str) -> Self {
        Self { client: server.client(token), token: token.to_owned() }
    }

    pub fn acme(server: &Server) -> Self {
        Self::new(server, "dev-partner")
    }

    pub fn globex(server: &Server) -> Self {
        Self::new(server, "dev-partner-2")
    }

    /// Any request below [`ROOT`], as JSON unless `headers` says otherwise. They come with their line ends.
    pub fn try_ask(&mut self, method: &str, path: &str, headers: &str, body: &[u8]) -> io::Result<Answer> {
        let json = if headers.contains("content-type:") { "" } else { "content-type: application/json\r\n" };
        let own = format!("authorization: Bearer {}\r\n{json}{headers}", self.token);
        self.client.send(method, &format!("{ROOT}{path}"), &own, body)
    }

    pub fn ask(&mut self, method: &str, path: &str, headers: &str, body: &[u8]) -> Answer {
        self.try_ask(method, path, headers, body).unwrap()
    }

    pub fn try_post(&mut self, path: &str, id: &str, body: &[u8]) -> io::Result<Answer> {
        self.try_ask("POST", path, &correlation(id), body)
    }

    pub fn post(&mut self, path: &str, id: &str, body: impl AsRef<[u8]>) -> Answer {
        self.try_post(path, id, body.as_ref()).unwrap()
    }

    /// A list of items under this id.
    pub fn send(&mut self, path: &str, id: &str, items: &[Value]) -> Answer {
        self.post(path, id, body(items))
    }

    /// A list of items under an id of its own: the results.
    #[track_caller]
    pub fn fresh(&mut self, path: &str, items: &[Value]) -> Vec<Value> {
        self.send(path, &fresh_id(), items).ok(200)["results"].as_array().unwrap().clone()
    }

    /// One item under an id of its own: its result.
    #[track_caller]
    pub fn one(&mut self, path: &str, item: Value) -> Value {
        self.fresh(path, &[item]).remove(0)
    }

    /// Items that must be accepted.
    #[track_caller]
    pub fn accepted(&mut self, path: &str, items: &[Value]) {
        let results = self.fresh(path, items);
        assert!(results.iter().all(|result| result["status"] == "ACCEPTED"), "{results:#?}");
    }

    /// An item that must wait: the id of its stay in quarantine.
    #[track_caller]
    pub fn quarantined(&mut self, path: &str, item: Value) -> String {
        let result = self.one(path, item);
        assert_eq!(result["status"], "QUARANTINED", "{result}");
        result["quarantine_id"].as_str().unwrap().to_owned()
    }

    pub fn get(&mut self, path: &str) -> Answer {
        self.client.get(&format!("{ROOT}{path}"))
    }

    pub fn delete(&mut self, path: &str, id: &str) -> Answer {
        self.ask("DELETE", path, &correlation(id), b"")
    }

    pub fn cancel(&mut self, document: &str, id: &str) -> Answer {
        self.post(&format!("documents/{document}/cancel"), id, "")
    }

    pub fn release(&mut self, quarantine: &str, id: &str) -> Answer {
        self.post(&format!("quarantine/{quarantine}/release"), id, "")
    }

    /// Every row of a list, page by page.
    pub fn all(&mut self, path: &str, limit: usize) -> Vec<Value> {
        let (mut found, mut cursor) = (Vec::new(), String::new());
        loop {
            let joint = if path.contains('?') { '&' } else { '?' };
            let page = self.get(&format!("{path}{joint}limit={limit}{cursor}")).ok(200);
            let items = page["items"].as_array().unwrap();
            assert!(items.len() <= limit, "{page}");
            found.extend(items.iter().cloned());
            match page["next_cursor"].as_str().unwrap() {
                "" => return found,
                next => cursor = format!("&after={next}"),
            }
        }
    }

    /// The source ids of what waits in quarantine now, sorted.
    pub fn waiting(&mut self) -> Vec<String> {
        let mut ids: Vec<String> = self.all("quarantine?status=OPEN", 1_000).iter().map(source_id).collect();
        ids.sort();
        ids
    }
}

pub fn correlation(id: &str) -> String {
    format!("x-correlation-id: {id}\r\n")
}

pub fn body(items: &[Value]) -> String {
    json!({ "items": items }).to_string()
}

pub fn source_id(row: &Value) -> String {
    row["source_id"].as_str().unwrap().to_owned()
}

pub fn statuses(results: &[Value]) -> Vec<&str> {
    results.iter().map(|result| result["status"].as_str().unwrap()).collect()
}

pub fn uom(id: &str) -> Value {
    json!({"source_id": id, "name": format!("unit {id}")})
}

pub fn sku(id: &str, uom: &str) -> Value {
    json!({"source_id": id, "name": format!("item {id}"), "base_uom": uom})
}

pub fn bom(id: &str, parent: &str, parts: &[&str]) -> Value {
    let parts: Vec<Value> = parts.iter().map(|part| json!({"sku": part, "qty": 1})).collect();
    json!({"source_id": id, "parent_sku": parent, "components": parts})
}

/// The same item with a version.
pub fn at(mut item: Value, version: impl Into<Value>) -> Value {
    item["source_version"] = version.into();
    item
}

/// Nodes that share a database of their own.
pub fn nodes(postgres: &PostgresServer, count: usize) -> Vec<Server> {
    let database = postgres.fresh_database();
    thread::scope(|scope| {
        let starting: Vec<_> = (0..count).map(|_| scope.spawn(|| Serve::sharing(&database).start())).collect();
        starting.into_iter().map(|node| node.join().unwrap()).collect()
    })
}
