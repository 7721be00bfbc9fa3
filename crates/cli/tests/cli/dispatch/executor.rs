//! The executor's front between a planner and a handler: verified, handed over once, acknowledged when it is durable.

use std::{io::Write, net::TcpStream};

use serde_json::json;

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

    fn front(&self) -> Server {
        let mut command = command(BINARY);
        command.args(["executor", "--listen", "127.0.0.1:0", "--forward", &self.handler.url(), "--data"]);
        command.arg(self.dir.path().join("data")).arg("--secret-file").arg(self.dir.path().join("secret"));
        Serve::ready(command).start()
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
    let health = front.client("").send("GET", "/healthz", "", b"").unwrap();
    assert_eq!(health.status, 200, "by now the front has seen that the planner is gone");
    floor.handler.release();
    let again = format!("x-fgai-signature: sha256={signature}\r\n");
    let answer = front.client("").send("POST", "/webhooks/dispatch", &again, body.as_bytes()).unwrap();
    assert_eq!(answer.ok(200), json!({"accepted": true, "replay": true}));
    assert_eq!(floor.handler.count(), 1);
}

#[test]
fn what_nobody_signed_touches_nothing() {
    let floor = Floor::new();
    let front = floor.front();
    let body = event("cid-1", "WH-1").to_string();
    let wrong = format!("x-fgai-signature: sha256={}\r\n", super::signed::hex_hmac("guess", &[body.as_bytes()]));
    for headers in ["", wrong.as_str(), "x-fgai-signature: sha256=\r\n", "x-fgai-signature: nonsense\r\n"] {
        let answer = front.client("").send("POST", "/webhooks/dispatch", headers, body.as_bytes()).unwrap();
        assert_eq!((answer.status, &answer.json()["code"]), (401, &json!("bad-signature")), "{headers}");
    }
    let right = format!("x-fgai-signature: sha256={}\r\n", super::signed::hex_hmac(SECRET, &[body.as_bytes()]));
    let answer = front.client("").send("POST", "/webhooks/dispatch", &right, body.as_bytes()).unwrap();
    assert_eq!(answer.ok(200)["replay"], false);
    until("it is handed over", || (floor.handler.count() == 1).then_some(()));
}
