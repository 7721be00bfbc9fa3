//! Every operation of the OpenAPI document answers as the document says: the client of these tests holds each answer against
//! it, and this one asks for each of them.

use std::{collections::BTreeSet, fs};

use fencepost_rig::contract;
use serde_json::{Value, json};

use super::{
    client::{Answer, Client},
    server::{Serve, until},
};

const POLICY: &str = "scopes: { HELD: { key: [id], on_lapse: hold }, TWICE: { key: [id], again: { seq: n } } }\n";
const PLANNED: &str = "/wes/v1/warehouses/WH-1/transport";

/// Asks, and notes which operations have been answered how.
struct Asker<'s> {
    server: &'s super::server::Server,
    seen: BTreeSet<(&'static str, u16)>,
}

impl Asker<'_> {
    #[track_caller]
    fn ask(&mut self, token: &str, method: &str, path: &str, body: &Value, status: u16) -> Answer {
        let headers = format!("authorization: Bearer {token}\r\ncontent-type: application/json\r\n");
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

fn fences(asker: &mut Asker<'_>) {
    let (acme, admin) = ("dev-partner", "dev-admin");
    let done = json!({"scope": "TWICE", "key": {"id": "1"}});
    let sealed = |token: u64, more: Value| {
        let body = json!({"token": token, "effect_id": "E-1", "receipt": {"a": 1}});
        let body = super::client::with(done.clone(), body).parse::<Value>().unwrap();
        super::client::with(body, more).parse::<Value>().unwrap()
    };
    let token = asker.claimed("claim", &done, json!({"body": {"a": 1}}));
    asker.post(
        acme,
        "/v1/fences/renew",
        super::client::with(done.clone(), json!({"token": token})).parse().unwrap(),
        200,
    );
    asker.post(acme, "/v1/fences/seal", sealed(token, json!({})), 200);
    asker.post(acme, "/v1/fences/claim", done.clone(), 200);
    let token = asker.claimed("again", &done, json!({"seq": 1}));
    asker.post(acme, "/v1/fences/seal", sealed(token, json!({"seq": 1})), 200);
    asker.post(acme, "/v1/fences/again", super::client::with(done.clone(), json!({"seq": 1})).parse().unwrap(), 200);
    asker.ask(acme, "PUT", "/v1/aliases/latest", &done, 200);
    asker.get(acme, "/v1/aliases/latest");
    asker.get(acme, "/v1/scopes");
    // The states of a key: pending, lapsed and claimed again, released, sealed, in doubt, resolved, unknown.
    let free = json!({"scope": "INDEX_BUILD", "key": {"index_hash": "f"}});
    asker.claimed("claim", &free, json!({"lease_ms": 1}));
    let token = until("the lease is over", || {
        let answer = asker.server.client(acme).post("/v1/fences/claim", free.to_string());
        (answer.status == 201).then(|| answer.json()).inspect(|new| assert!(new["earlier"]["token"].is_u64(), "{new}"))
    })["token"]
        .clone();
    asker.get(acme, "/admin/idempotency/lookup?scope=INDEX_BUILD&index_hash=f");
    asker.post(acme, "/v1/fences/release", super::client::with(free, json!({"token": token})).parse().unwrap(), 200);
    for path in ["INDEX_BUILD&index_hash=f", "INDEX_BUILD&index_hash=none", "TWICE&id=1", "TWICE&id=1&seq=1"] {
        asker.get(acme, &format!("/admin/idempotency/lookup?scope={path}"));
    }
    let held = json!({"scope": "HELD", "key": {"id": "h"}, "source": {"type": "t", "id": "i"}});
    let token = asker.claimed("claim", &held, json!({"lease_ms": 1}));
    let listed = until("it is in doubt", || {
        let listed = asker.get(admin, "/admin/idempotency/in-doubt?scope=HELD");
        (listed["items"] != json!([])).then_some(listed)
    });
    assert_eq!(listed["items"][0]["key"], json!({"id": "h"}));
    asker.get("dev-viewer", "/admin/idempotency/lookup?scope=HELD&id=h&tenant=acme");
    let word = json!({"scope": "HELD", "key": {"id": "h"}, "tenant": "acme", "outcome": "released", "why": "asked"});
    asker.post(admin, "/admin/idempotency/resolve", word, 200);
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
    asker.post(acme, "/v1/fences/batch", json!({ "commands": commands }), 200);
}

fn dispatch(asker: &mut Asker<'_>) {
    let (planner, executor) = ("dev-planner", "dev-executor");
    let webhook = json!({"url": "http://127.0.0.1:9/hook", "secret": "hush-hush-hush-hush"});
    let put = json!({"executor_id": "dev-wes", "webhook": webhook, "receiver_retention": "7d"});
    asker.ask(planner, "PUT", PLANNED, &put, 200);
    asker.get(planner, PLANNED);
    let letters: Vec<String> = (0..4).map(|number| asker.dead(&format!("dead-{number}"))).collect();
    asker.post(planner, "/wes/v1/dispatch/events", event("dead-0"), 200);
    let batch = json!({"events": [event("e-1"), event("e-2"), event("dead-0")]});
    asker.post(planner, "/wes/v1/dispatch/events", batch, 202);
    let lane = "/wes/v1/dispatch/lanes/fgai-wms:WH-1";
    until("it was tried", || asker.get(planner, lane)["head"]["last_answer"].is_string().then_some(()));
    asker.post(planner, &format!("{lane}/pause"), json!({"why": "w"}), 200);
    asker.get(planner, "/wes/v1/dispatch/lanes?warehouse_id=WH-1");
    asker.ask(planner, "POST", &format!("{lane}/resume"), &Value::Null, 200);
    asker.get(planner, "/wes/v1/dispatch/dlq");
    asker.post(planner, &format!("/wes/v1/dispatch/dlq/{}/redrive", letters[0]), json!({}), 200);
    asker.post(planner, &format!("/wes/v1/dispatch/dlq/{}/discard", letters[1]), json!({"why": "w"}), 200);
    asker.get(planner, &format!("/wes/v1/dispatch/dlq/{}", letters[1]));
    for preview in [true, false] {
        let ids = json!({"ids": letters, "preview": preview});
        asker.post(planner, "/wes/v1/dispatch/dlq/redrive", ids, 200);
    }
    let polled = json!({"executor_id": "dev-wes", "poll": {}});
    asker.ask(planner, "PUT", "/wes/v1/warehouses/WH-2/transport", &polled, 200);
    asker.get(planner, "/wes/v1/warehouses/WH-2/transport");
    let mut event = event("polled");
    event["warehouse_id"] = json!("WH-2");
    asker.post(planner, "/wes/v1/dispatch/events", event, 202);
    let cursor = asker.get(executor, "/wes/v1/dispatch/pending")["next_cursor"].clone();
    asker.post(executor, "/wes/v1/dispatch/ack", json!({ "cursor": cursor }), 200);
}

#[test]
fn every_operation_answers_what_the_document_says_and_nothing_more() {
    let dir = tempfile::tempdir().unwrap();
    let file = dir.path().join("policy.yml");
    fs::write(&file, POLICY).unwrap();
    let server = Serve::dev(&dir.path().join("data")).arg("--config").arg(&file).start();
    let mut asker = Asker { server: &server, seen: BTreeSet::new() };
    fences(&mut asker);
    dispatch(&mut asker);
    let admin = "dev-admin";
    for path in ["/admin/policy", "/admin/nodes", "/healthz", "/readyz", "/openapi.json"] {
        asker.get(admin, path);
    }
    for path in ["/metrics", "/admin/backup"] {
        asker.ask(admin, "GET", path, &Value::Null, 200);
    }
    fs::write(&file, POLICY.replace("HELD:", "NEW: { key: [id] }, HELD:")).unwrap();
    for path in ["/admin/policy?dry_run=true", "/admin/policy"] {
        asker.ask(admin, "POST", path, &Value::Null, 200);
    }
    let left: Vec<_> = contract::successes().into_iter().filter(|one| !asker.seen.contains(one)).collect();
    assert!(left.is_empty(), "not asked for: {left:?}");
}
