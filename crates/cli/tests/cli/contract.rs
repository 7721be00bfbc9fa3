//! Every operation of the OpenAPI document answers as the document says: the client of these tests holds each answer against
//! it, and this one asks for each of them.

use std::{collections::BTreeSet, fs};

use fencepost_rig::contract;
use serde_json::{Value, json};

use super::{
    client::{Answer, Client},
    server::{Serve, until},
};

const POLICY: &str = "scopes: { HELD: { key: [id], on_lapse: hold }, TWICE: { key: [id], again: { seq: n } } }
collections: { counts: { group: inventory, schema: { type: object } } }\n";
const PLANNED: &str = "/wes/v1/warehouses/WH-1/transport";

/// Asks, and notes which operations have been answered how.
struct Caller<'s> {
    server: &'s super::server::Server,
    seen: BTreeSet<(&'static str, u16)>,
}

impl Caller<'_> {
    #[track_caller]
    fn ask(&mut self, token: &str, method: &str, path: &str, body: &Value, status: u16) -> Answer {
        self.ask_with(token, method, path, "", body, status)
    }

    #[track_caller]
    fn ask_with(&mut self, token: &str, method: &str, path: &str, more: &str, body: &Value, status: u16) -> Answer {
        let headers = format!("authorization: Bearer {token}\r\ncontent-type: application/json\r\n{more}");
        let body = if body.is_null() { String::new() } else { body.to_string() };
        let mut client: Client = self.server.client(token);
        let answer = client.send(method, path, &headers, body.as_bytes()).unwrap();
        assert_eq!(answer.status, status, "{method} {path}: {}", answer.text());
        let operation = contract::operation(method, path);
        self.seen.insert((operation.unwrap_or_else(|| panic!("{method} {path} is not in the document")), status));
        answer
    }

    #[track_caller]
    fn get(&mut self, token: &str, path: &str) -> Value {
        self.ask(token, "GET", path, &Value::Null, 200).json()
    }

    #[track_caller]
    fn post(&mut self, token: &str, path: &str, body: Value, status: u16) -> Value {
        self.ask(token, "POST", path, &body, status).json()
    }

    #[track_caller]
    fn claimed(&mut self, op: &str, fence: &Value, more: Value) -> u64 {
        let body = super::client::with(fence.clone(), more).parse().unwrap();
        self.post("dev-partner", &format!("/v1/fences/{op}"), body, 201)["token"].as_u64().unwrap()
    }

    /// An event that was skipped: its dead letter.
    fn dead(&mut self, correlation_id: &str) -> String {
        let seq = self.post("dev-planner", "/wes/v1/dispatch/events", event(correlation_id), 202)["seq"].clone();
        let skip = "/wes/v1/dispatch/lanes/fgai-wms:WH-1/skip";
        let skipped = self.post("dev-planner", skip, json!({ "seq": seq }), 200);
        skipped["dead_letter"].as_str().unwrap().to_owned()
    }
}

fn event(correlation_id: &str) -> Value {
    json!({
        "kind": "SHIPPER_RELEASED", "correlation_id": correlation_id, "planner_id": "fgai-wms", "warehouse_id": "WH-1",
        "document_ref": {"type": "SHIPPER", "id": "SH-1"}, "routing": {"ops": [{"op_id": "op-1", "kind": "PICK"}]}
    })
}

fn fences(caller: &mut Caller<'_>) {
    let (acme, admin) = ("dev-partner", "dev-admin");
    let done = json!({"scope": "TWICE", "key": {"id": "1"}});
    let sealed = |token: u64, more: Value| {
        let body = json!({"token": token, "effect_id": "E-1", "receipt": {"a": 1}});
        let body = super::client::with(done.clone(), body).parse::<Value>().unwrap();
        super::client::with(body, more).parse::<Value>().unwrap()
    };
    let token = caller.claimed("claim", &done, json!({"body": {"a": 1}}));
    caller.post(
        acme,
        "/v1/fences/renew",
        super::client::with(done.clone(), json!({"token": token})).parse().unwrap(),
        200,
    );
    caller.post(acme, "/v1/fences/seal", sealed(token, json!({})), 200);
    caller.post(acme, "/v1/fences/claim", done.clone(), 200);
    let token = caller.claimed("again", &done, json!({"seq": 1}));
    caller.post(acme, "/v1/fences/seal", sealed(token, json!({"seq": 1})), 200);
    caller.post(acme, "/v1/fences/again", super::client::with(done.clone(), json!({"seq": 1})).parse().unwrap(), 200);
    caller.ask(acme, "PUT", "/v1/aliases/latest", &done, 200);
    caller.get(acme, "/v1/aliases/latest");
    caller.get(acme, "/v1/scopes");
    // The states of a key: pending, lapsed and claimed again, released, sealed, in doubt, resolved, unknown.
    let free = json!({"scope": "INDEX_BUILD", "key": {"index_hash": "f"}});
    caller.claimed("claim", &free, json!({"lease_ms": 1}));
    let token = until("the lease is over", || {
        let answer = caller.server.client(acme).post("/v1/fences/claim", free.to_string());
        (answer.status == 201).then(|| answer.json()).inspect(|new| assert!(new["earlier"]["token"].is_u64(), "{new}"))
    })["token"]
        .clone();
    caller.get(acme, "/admin/idempotency/lookup?scope=INDEX_BUILD&index_hash=f");
    caller.post(acme, "/v1/fences/release", super::client::with(free, json!({"token": token})).parse().unwrap(), 200);
    for path in ["INDEX_BUILD&index_hash=f", "INDEX_BUILD&index_hash=none", "TWICE&id=1", "TWICE&id=1&seq=1"] {
        caller.get(acme, &format!("/admin/idempotency/lookup?scope={path}"));
    }
    let held = json!({"scope": "HELD", "key": {"id": "h"}, "source": {"type": "t", "id": "i"}});
    let token = caller.claimed("claim", &held, json!({"lease_ms": 1}));
    let listed = until("it is in doubt", || {
        let listed = caller.get(admin, "/admin/idempotency/in-doubt?scope=HELD");
        (listed["items"] != json!([])).then_some(listed)
    });
    assert_eq!(listed["items"][0]["key"], json!({"id": "h"}));
    caller.get("dev-viewer", "/admin/idempotency/lookup?scope=HELD&id=h&tenant=acme");
    let word = json!({"scope": "HELD", "key": {"id": "h"}, "tenant": "acme", "outcome": "released", "why": "asked"});
    caller.post(admin, "/admin/idempotency/resolve", word, 200);
    let word = json!({"scope": "INDEX_BUILD", "key": {"index_hash": "f"}, "tenant": "acme", "why": "lost"});
    caller.post(admin, "/admin/idempotency/forget", word, 200);
    caller.get("dev-viewer", "/admin/audit");
    let command = |op: &str, id: &str, more: Value| {
        let command = json!({"op": op, "scope": "HELD", "key": {"id": id}});
        super::client::with(command, more).parse::<Value>().unwrap()
    };
    let commands = json!([
        command("claim", "b", json!({})),
        command("claim", "b", json!({})),
        command("seal", "h", json!({"token": token, "effect_id": "E", "receipt": null})),
        command("release", "b", json!({"token": 0})),
        command("renew", "none", json!({"token": 1})),
        command("claim", "h", json!({"wait_ms": 1})),
    ]);
    caller.post(acme, "/v1/fences/batch", json!({ "commands": commands }), 200);
}

fn dispatch(caller: &mut Caller<'_>) {
    let (planner, executor) = ("dev-planner", "dev-executor");
    let webhook = json!({"url": "http://127.0.0.1:9/hook", "secret": "hush-hush-hush-hush"});
    let put = json!({"executor_id": "dev-wes", "webhook": webhook, "receiver_retention": "7d"});
    caller.ask(planner, "PUT", PLANNED, &put, 200);
    caller.get(planner, PLANNED);
    let letters: Vec<String> = (0..4).map(|number| caller.dead(&format!("dead-{number}"))).collect();
    caller.post(planner, "/wes/v1/dispatch/events", event("dead-0"), 200);
    let batch = json!({"events": [event("e-1"), event("e-2"), event("dead-0")]});
    caller.post(planner, "/wes/v1/dispatch/events", batch, 202);
    let lane = "/wes/v1/dispatch/lanes/fgai-wms:WH-1";
    until("it was tried", || caller.get(planner, lane)["head"]["last_answer"].is_string().then_some(()));
    caller.post(planner, &format!("{lane}/pause"), json!({"why": "w"}), 200);
    caller.get(planner, "/wes/v1/dispatch/lanes?warehouse_id=WH-1");
    caller.ask(planner, "POST", &format!("{lane}/resume"), &Value::Null, 200);
    caller.get(planner, "/wes/v1/dispatch/dlq");
    caller.post(planner, &format!("/wes/v1/dispatch/dlq/{}/redrive", letters[0]), json!({}), 200);
    caller.post(planner, &format!("/wes/v1/dispatch/dlq/{}/discard", letters[1]), json!({"why": "w"}), 200);
    caller.get(planner, &format!("/wes/v1/dispatch/dlq/{}", letters[1]));
    for preview in [true, false] {
        let ids = json!({"ids": letters, "preview": preview});
        caller.post(planner, "/wes/v1/dispatch/dlq/redrive", ids, 200);
    }
    let polled = json!({"executor_id": "dev-wes", "poll": {}});
    caller.ask(planner, "PUT", "/wes/v1/warehouses/WH-2/transport", &polled, 200);
    caller.get(planner, "/wes/v1/warehouses/WH-2/transport");
    let mut event = event("polled");
    event["warehouse_id"] = json!("WH-2");
    caller.post(planner, "/wes/v1/dispatch/events", event, 202);
    let cursor = caller.get(executor, "/wes/v1/dispatch/pending")["next_cursor"].clone();
    caller.post(executor, "/wes/v1/dispatch/ack", json!({ "cursor": cursor }), 200);
}

fn ingest(caller: &mut Caller<'_>) {
    let (acme, root) = ("dev-partner", "/wms-ingest/v1/");
    let mut number = 0;
    let mut ask = |method: &str, path: &str, body: &Value| {
        number += 1;
        let id = format!("x-correlation-id: cid-{number}\r\n");
        caller.ask_with(acme, method, &format!("{root}{path}"), &id, body, 200).json()
    };
    let items = |items: Value| json!({ "items": items });
    let unit = |id: &str, version: u64| json!({"source_id": id, "name": "n", "source_version": version});
    ask("POST", "master/uoms", &items(json!([unit("EA", 1), unit("EA", 2), unit("EA", 1), {"name": 7}])));
    let sku = json!({"source_id": "S", "name": "n", "base_uom": "KG"});
    let waits = ask("POST", "master/skus", &items(json!([sku])))["results"][0]["quarantine_id"].clone();
    ask("POST", "master/skus?dry_run=true", &items(json!([sku])));
    ask("POST", &format!("quarantine/{}/release", waits.as_str().unwrap()), &Value::Null);
    ask("POST", "master/locations", &items(json!([{"source_id": "WH", "kind": "WAREHOUSE"}])));
    ask("POST", "documents/receivers", &items(json!([{"source_id": "R", "warehouse": "WH", "lines": []}])));
    let count = json!({"source_id": "I", "sku": "EA", "location": "WH", "qty": 1});
    ask("POST", "inventory/counts", &items(json!([count])));
    ask("DELETE", "master/uoms/EA", &Value::Null);
    ask("POST", "documents/receivers/R/cancel", &Value::Null);
    for path in ["master/uoms/EA", "documents/receivers/R", "inventory/counts/I"] {
        caller.get(acme, &format!("{root}{path}"));
        caller.get("dev-viewer", &format!("{root}{path}/history?tenant=acme"));
    }
    let named =
        json!({"tenant": "acme", "collection": "uoms", "source_id": "EA", "source_version": 2, "why": "too high"});
    caller.post("dev-admin", "/admin/items/forget-version", named, 200);
    let mut jobs = Vec::new();
    for collection in ["master/uoms", "documents/receivers", "inventory/counts"] {
        let path = format!("{root}{collection}?mode=bulk&dry_run=true");
        let queued = caller.ask(acme, "POST", &path, &items(json!([unit("KG", 1)])), 202).json();
        jobs.push(queued["job_id"].as_str().unwrap().to_owned());
    }
    // A job of so many items has not ended yet.
    let many: Vec<Value> = (0..20_000).map(|number| unit(&format!("U{number}"), 1)).collect();
    let long = caller.ask(acme, "POST", &format!("{root}master/uoms?mode=bulk&dry_run=true"), &items(json!(many)), 202);
    let long = long.json()["job_id"].as_str().unwrap().to_owned();
    caller.ask(acme, "POST", &format!("{root}jobs/{long}/cancel"), &Value::Null, 200);
    until("the job has ended", || {
        let job = caller.get(acme, &format!("{root}jobs/{}", jobs[0]));
        (job["status"] == "COMPLETED").then_some(())
    });
    caller.ask(acme, "GET", &format!("{root}jobs/{}/results", jobs[0]), &Value::Null, 200);
    for path in ["quarantine", "capabilities", "jobs"] {
        caller.get(acme, &format!("{root}{path}"));
    }
}

#[test]
fn every_operation_answers_what_the_document_says_and_nothing_more() {
    let dir = tempfile::tempdir().unwrap();
    let file = dir.path().join("policy.yml");
    fs::write(&file, POLICY).unwrap();
    let server = Serve::dev(&dir.path().join("data")).arg("--config").arg(&file).start();
    let mut caller = Caller { server: &server, seen: BTreeSet::new() };
    fences(&mut caller);
    dispatch(&mut caller);
    ingest(&mut caller);
    let admin = "dev-admin";
    for path in ["/admin/policy", "/admin/nodes", "/healthz", "/readyz", "/openapi.json"] {
        caller.get(admin, path);
    }
    for path in ["/metrics", "/admin/backup"] {
        caller.ask(admin, "GET", path, &Value::Null, 200);
    }
    fs::write(&file, POLICY.replace("HELD:", "NEW: { key: [id] }, HELD:")).unwrap();
    for path in ["/admin/policy?dry_run=true", "/admin/policy"] {
        caller.ask(admin, "POST", path, &Value::Null, 200);
    }
    let left: Vec<_> = contract::successes().into_iter().filter(|one| !caller.seen.contains(one)).collect();
    assert!(left.is_empty(), "not asked for: {left:?}");
}
