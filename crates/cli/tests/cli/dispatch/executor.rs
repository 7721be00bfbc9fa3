//! The executor's front between a planner and a handler: verified, handed over once, acknowledged when it is durable.

use std::{io::Write, net::TcpStream, path::PathBuf};

use serde_json::{Value, json};

use super::{
    super::server::{Serve, Server, command, dev, until},
    planner::{Planner, event},
    receiver::{Receiver, SECRET, Say},
};

const BINARY: &str = env!("CARGO_BIN_EXE_fencepost");

struct Floor {
    dir: tempfile::TempDir,
    handler: Receiver,
}

impl Floor {
    fn new() -> Self {
        let (dir, handler) = (tempfile::tempdir().unwrap(), Receiver::start());
        handler.knows(&[]);
        std::fs::write(dir.path().join("secret"), SECRET).unwrap();
        Self { dir, handler }
    }

    fn log(&self) -> PathBuf {
        self.dir.path().join("log")
    }

    fn front(&self) -> Server {
        let mut command = command(BINARY);
        command.args(["executor", "--listen", "127.0.0.1:0", "--forward", &self.handler.url(), "--data"]);
        command.arg(self.dir.path().join("data")).arg("--secret-file").arg(self.dir.path().join("secret"));
        Serve::ready(command).log(self.log()).start()
    }
}

fn hooked(front: &Server) -> serde_json::Value {
    let url = format!("http://{}/webhooks/dispatch", front.address);
    json!({"executor_id": "dev-wes", "webhook": {"url": url, "secret": SECRET}})
}

#[test]
fn an_event_goes_from_the_planner_through_the_front_to_the_handler_once() {
    let (dev, floor) = (dev(), Floor::new());
    let front = floor.front();
    let mut planner = Planner::of(&dev.server);
    planner.put("WH-1", hooked(&front)).ok(200);
    // The handler refuses the first: the planner hears of it and comes again.
    let mut first = true;
    floor.handler.script(move |_| Say::Status(if std::mem::take(&mut first) { 503 } else { 200 }));
    planner.release("cid-1", "WH-1");
    planner.release("cid-2", "WH-1");
    planner.drained("WH-1");
    let heard = floor.handler.until(3);
    let ids: Vec<String> = heard.iter().map(|delivery| delivery.id()).collect();
    assert_eq!(ids, ["cid-1", "cid-1", "cid-2"]);
    assert_eq!(heard[0].header("idempotency-key"), heard[1].header("idempotency-key"));
    assert_eq!((heard[0].attempt(), heard[1].attempt()), (1, 2));
    assert_eq!(heard[2].body, event("cid-2", "WH-1").to_string().as_bytes());
}

#[test]
fn a_copy_is_answered_as_a_replay_and_not_handed_over_also_after_a_crash() {
    let floor = Floor::new();
    let front = floor.front();
    let body = event("cid-1", "WH-1").to_string();
    let signature = format!("x-fgai-signature: sha256={}\r\n", super::signed::hex_hmac(SECRET, &[body.as_bytes()]));
    let post = |front: &Server, headers: &str, body: &str| {
        front.client("").send("POST", "/webhooks/dispatch", headers, body.as_bytes()).unwrap()
    };
    assert_eq!(post(&front, &signature, &body).ok(200), json!({"accepted": true, "replay": false}));
    assert_eq!(post(&front, &signature, &body).ok(200), json!({"accepted": true, "replay": true}));
    front.kill();
    let front = floor.front();
    assert_eq!(post(&front, &signature, &body).ok(200), json!({"accepted": true, "replay": true}));
    // Known with another body: acknowledged, since a refusal would only make it a dead letter; not handed over.
    let other = event("cid-1", "WH-2").to_string();
    let own = format!("x-fgai-signature: sha256={}\r\n", super::signed::hex_hmac(SECRET, &[other.as_bytes()]));
    assert_eq!(post(&front, &own, &other).ok(200), json!({"accepted": true, "replay": true}));
    assert_eq!(floor.handler.count(), 1);
}

#[test]
fn a_planner_that_goes_away_does_not_end_what_is_under_way() {
    let floor = Floor::new();
    let front = floor.front();
    floor.handler.script(|_| Say::Hold);
    let body = event("cid-1", "WH-1").to_string();
    let signature = super::signed::hex_hmac(SECRET, &[body.as_bytes()]);
    let head = format!("POST /webhooks/dispatch HTTP/1.1\r\nhost: front\r\ncontent-length: {}\r\n", body.len());
    let mut gone = TcpStream::connect(front.address).unwrap();
    write!(gone, "{head}x-fgai-signature: sha256={signature}\r\n\r\n{body}").unwrap();
    floor.handler.until(1);
    drop(gone);
    let health = front.client("").unjudging().send("GET", "/healthz", "", b"").unwrap();
    assert_eq!(health.status, 200, "by now the front has seen that the planner is gone");
    floor.handler.release();
    let again = format!("x-fgai-signature: sha256={signature}\r\n");
    let answer = front.client("").send("POST", "/webhooks/dispatch", &again, body.as_bytes()).unwrap();
    assert_eq!(answer.ok(200), json!({"accepted": true, "replay": true}));
    assert_eq!(floor.handler.count(), 1);
}

#[test]
fn an_unsigned_delivery_touches_nothing() {
    let floor = Floor::new();
    let front = floor.front();
    let body = event("cid-1", "WH-1").to_string();
    let wrong = format!("x-fgai-signature: sha256={}\r\n", super::signed::hex_hmac("guess", &[body.as_bytes()]));
    for headers in ["", wrong.as_str(), "x-fgai-signature: sha256=\r\n", "x-fgai-signature: nonsense\r\n"] {
        let answer = front.client("").send("POST", "/webhooks/dispatch", headers, body.as_bytes()).unwrap();
        answer.problem(401, "bad-signature");
    }
    let right = format!("x-fgai-signature: sha256={}\r\n", super::signed::hex_hmac(SECRET, &[body.as_bytes()]));
    let answer = front.client("").send("POST", "/webhooks/dispatch", &right, body.as_bytes()).unwrap();
    assert_eq!(answer.ok(200)["replay"], false);
    until("it is handed over", || (floor.handler.count() == 1).then_some(()));
}

fn signature(body: &str) -> String {
    format!("x-fgai-signature: sha256={}\r\n", super::signed::hex_hmac(SECRET, &[body.as_bytes()]))
}

#[test]
fn every_refusal_of_the_executor_is_a_problem_document() {
    let mut floor = Floor::new();
    let front = floor.front();
    let send = |method: &str, path: &str, headers: &str, body: &str| {
        front.client("").send(method, path, headers, body.as_bytes()).unwrap()
    };
    let post = |body: &str| send("POST", "/webhooks/dispatch", &signature(body), body);
    let event = event("cid-1", "WH-1").to_string();
    send("POST", "/webhooks/dispatch", "", &event).problem(401, "bad-signature");
    send("POST", "/other", "", "").problem(404, "not-found");
    send("GET", "/webhooks/dispatch", "", "").problem(405, "method-not-allowed");
    post("{}").problem(400, "malformed-request");
    post("nonsense").problem(400, "malformed-request");
    post(&"x".repeat(256 * 1024 + 1)).problem(413, "too-large");
    floor.handler.say(Say::Status(500));
    let answer = post(&event);
    answer.problem(503, "not-now");
    assert_eq!(answer.header("retry-after"), Some("5"));
    // Of a 500 the outcome is unknown: until the lease is over, the claim is held.
    post(&event).problem(503, "in-flight");
    floor.handler.kill();
    let traced = "traceparent: 00-4bf92f3577b34da6a3ce929d0e0e4736-00f067aa0ba902b7-01\r\n";
    let other = super::planner::event("cid-2", "WH-1").to_string();
    let answer = send("POST", "/webhooks/dispatch", &(signature(&other) + traced), &other);
    answer.problem(503, "not-now");
    let said = answer.json();
    assert_eq!(said["trace_id"], "4bf92f3577b34da6a3ce929d0e0e4736");
    assert_eq!(
        (&said["instance"], &said["detail"]),
        (&json!("/webhooks/dispatch"), &json!("the handler is not there"))
    );
}

#[test]
fn log_lines_of_the_executor_carry_the_event_its_key_and_the_decision() {
    let floor = Floor::new();
    let front = floor.front();
    let post = |headers: &str, body: &str| {
        front.client("").send("POST", "/webhooks/dispatch", headers, body.as_bytes()).unwrap()
    };
    let (body, other) = (event("cid-1", "WH-1").to_string(), event("cid-1", "WH-2").to_string());
    post(&signature(&body), &body).ok(200);
    post(&signature(&body), &body).ok(200);
    post(&signature(&other), &other).ok(200);
    floor.handler.say(Say::Status(503));
    let failing = event("cid-2", "WH-1").to_string();
    post(&signature(&failing), &failing).problem(503, "not-now");
    post("", &body).problem(401, "bad-signature");
    let lines = until("five lines", || {
        let text = std::fs::read_to_string(floor.log()).unwrap();
        let whole = text.lines().filter(|line| line.contains("\"received\"") && line.ends_with('}'));
        let lines: Vec<Value> = whole.map(|line| serde_json::from_str(line).unwrap()).collect();
        (lines.len() == 5).then_some(lines)
    });
    let expected = [
        ("info", "new", "cid-1"),
        ("info", "duplicate", "cid-1"),
        ("warn", "conflict", "cid-1"),
        ("warn", "new", "cid-2"),
        ("warn", "refused", ""),
    ];
    let handed_over = floor.handler.until(2);
    for (line, (level, decision, id)) in lines.iter().zip(expected) {
        assert_eq!((&line["level"], &line["decision"]), (&json!(level), &json!(decision)), "{line}");
        // An unverified body is not read.
        assert_eq!(line.get("correlation_id").map_or("", |id| id.as_str().unwrap()), id, "{line}");
        let given = handed_over.iter().find(|delivery| delivery.id() == id);
        let key = given.and_then(|delivery| delivery.header("idempotency-key"));
        assert_eq!(line.get("idempotency_key").and_then(Value::as_str), key, "{line}");
        assert_eq!(line["trace_id"].as_str().unwrap().len(), 32, "{line}");
    }
    assert_eq!((&lines[3]["code"], &lines[4]["code"]), (&json!("not-now"), &json!("bad-signature")));
}
