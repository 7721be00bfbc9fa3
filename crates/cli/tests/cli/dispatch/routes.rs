//! Where events may go, and what changes of that: addresses, secrets, transports.

use std::{
    path::Path,
    thread,
    time::{Duration, Instant},
};

use rustix::process::Signal;
use serde_json::json;

use super::{
    super::server::{Serve, dev, fencepost, text, until},
    planner::{Planner, event, webhook},
    receiver::{Receiver, SECRET, Say},
    signed,
};

#[test]
fn a_transport_is_left_only_when_its_lane_is_drained() {
    let (server, receiver) = (dev(), Receiver::start());
    let mut planner = Planner::of(&server);
    planner.pushed("WH-1", &receiver);
    receiver.say(Say::Hold);
    planner.release("a", "WH-1");
    planner.release("b", "WH-1");
    receiver.until(1);
    let poll = json!({"executor_id": "dev-wes", "poll": {}});
    let refused = planner.put("WH-1", poll.clone()).problem(409, "lane-not-drained");
    assert_eq!(
        [&refused["lane"], &refused["first_seq"], &refused["last_seq"]],
        [&json!("fgai-wms:WH-1"), &json!(1), &json!(2)]
    );
    // Another address of the same kind is no change of lane.
    planner
        .put("WH-1", json!({"executor_id": "dev-wes", "webhook": {"url": receiver.url() + "&v=2", "secret": SECRET}}))
        .ok(200);

    let mut waiting = poll.clone();
    waiting["drain"] = json!(true);
    thread::scope(|scope| {
        let change = scope.spawn(|| Planner::of(&server).put("WH-1", waiting));
        // It waits: meanwhile everything else is served.
        assert_eq!(planner.lane("WH-1")["backlog"], 2);
        assert!(!change.is_finished());
        receiver.release();
        assert_eq!(change.join().unwrap().ok(200)["transport"], "poll");
    });
    let came = receiver.until(2);
    assert_eq!((came[0].path.as_str(), came[1].path.as_str()), ("/hooks/dispatch?of=us", "/hooks/dispatch?of=us&v=2"));
    // The new lane is the executor's, and begins at 1.
    assert_eq!(planner.publish(event("c", "WH-1").to_string()).ok(202)["lane"], "fgai-wms:poll:dev-wes");
    assert_eq!(planner.put("WH-1", webhook(&receiver)).problem(409, "lane-not-drained")["first_seq"], 1);
    let mut executor = server.client("dev-executor");
    let page = executor.get("/wes/v1/dispatch/pending").ok(200);
    assert_eq!(page["events"][0]["correlation_id"], "c");
    executor.post("/wes/v1/dispatch/ack", json!({"cursor": page["next_cursor"]}).to_string()).ok(200);
    planner.pushed("WH-1", &receiver);
    assert_eq!(planner.release("d", "WH-1"), 3, "back on its old lane, behind what was there");
    assert_eq!(receiver.nth(3).id(), "d");
}

#[test]
fn a_warehouse_leaves_the_lane_that_its_executor_polls_although_others_stay() {
    let (server, receiver) = (dev(), Receiver::start());
    let mut planner = Planner::of(&server);
    planner.polled("WH-1");
    planner.polled("WH-2");
    planner.release("one", "WH-1");
    planner.put("WH-1", webhook(&receiver)).problem(409, "lane-not-drained");
    // Nothing of this one is there.
    planner.pushed("WH-2", &receiver);
    planner.release("two", "WH-2");
    assert_eq!(receiver.nth(1).id(), "two");
}

#[test]
fn a_drain_that_takes_too_long_is_refused_and_changes_nothing() {
    let (server, receiver) = (dev(), Receiver::start());
    let mut planner = Planner::of(&server);
    planner.pushed("WH-1", &receiver);
    receiver.say(Say::Hold);
    planner.release("a", "WH-1");
    let begun = Instant::now();
    planner.put("WH-1", json!({"executor_id": "dev-wes", "poll": {}, "drain": 1})).problem(409, "lane-not-drained");
    assert!(begun.elapsed() >= Duration::from_secs(1));
    receiver.release();
    assert_eq!(planner.release("b", "WH-1"), 2);
    assert_eq!(receiver.nth(2).id(), "b");
}

#[test]
fn while_secrets_rotate_the_old_and_the_new_one_count() {
    let (server, receiver) = (dev(), Receiver::start());
    let mut planner = Planner::of(&server);
    let secrets =
        |list: &[&str]| json!({"executor_id": "dev-wes", "webhook": {"url": receiver.url(), "secrets": list}});
    planner.put("WH-1", secrets(&["the old one of two"])).ok(200);
    receiver.knows(&["the old one of two"]);
    planner.release("a", "WH-1");
    assert!(signed::newest_is(&receiver.nth(1), "the old one of two"));

    assert_eq!(planner.put("WH-1", secrets(&["the new one of two", "the old one of two"])).ok(200)["replay"], false);
    assert_eq!(planner.put("WH-1", secrets(&["the new one of two", "the old one of two"])).ok(200)["replay"], true);
    // A receiver that knows only the old secret still accepts deliveries; and so does one that knows only the new one.
    planner.release("b", "WH-1");
    let both = receiver.nth(2);
    assert!(signed::newest_is(&both, "the new one of two") && both.header("x-fgai-signature-previous").is_some());
    receiver.knows(&["the new one of two"]);
    planner.release("c", "WH-1");
    receiver.nth(3);

    planner.put("WH-1", secrets(&["the new one of two"])).ok(200);
    planner.release("d", "WH-1");
    assert_eq!(receiver.nth(4).header("x-fgai-signature-previous"), None);
    planner.put("WH-1", secrets(&["1", "2", "3"])).problem(400, "malformed-request");
    planner.put("WH-1", json!({"webhook": {"url": receiver.url()}})).problem(400, "malformed-request");
}

#[test]
fn standard_webhooks_headers_come_where_they_are_asked_for() {
    let (server, receiver) = (dev(), Receiver::start());
    let mut planner = Planner::of(&server);
    let mut transport = webhook(&receiver);
    transport["webhook"]["standard_webhooks"] = json!(true);
    planner.put("WH-1", transport).ok(200);
    planner.release("a", "WH-1");
    let came = receiver.nth(1);
    assert_eq!(came.header("webhook-id"), Some("a"));
    assert!(came.number("webhook-timestamp") > 1_700_000_000);
    assert!(came.header("webhook-signature").unwrap().starts_with("v1,"));
}

pub fn credential(data: &Path, id: &str, role: &str) -> String {
    created(data, &[id, "--role", role])
}

/// An executor that serves these planners.
pub fn executor(data: &Path, id: &str, planners: &[&str]) -> String {
    let planners: Vec<&str> = planners.iter().flat_map(|planner| ["--planner", planner]).collect();
    created(data, &[&[id, "--role", "executor"], &*planners].concat())
}

fn created(data: &Path, args: &[&str]) -> String {
    let output = fencepost([&["credential", "create"], args, &["--data", data.to_str().unwrap()]].concat());
    assert!(output.status.success(), "{}", text(&output.stderr));
    text(&output.stdout).trim().to_owned()
}

#[test]
fn private_addresses_are_refused_unless_the_configuration_lets_them_through() {
    let (dir, receiver) = (tempfile::tempdir().unwrap(), Receiver::start());
    let data = dir.path().join("data");
    let token = credential(&data, "wms", "planner");
    executor(&data, "wes", &["wms"]);
    let server = Serve::plain(&data).start();
    let mut planner = Planner(server.client(&token));
    let to = |url: &str| json!({"executor_id": "wes", "webhook": {"url": url, "secret": SECRET}});
    for url in [
        &receiver.url(),
        "http://localhost/h",
        "http://10.0.0.1/h",
        "http://[::1]/h",
        "http://[::ffff:127.0.0.1]/h",
        "http://169.254.169.254/latest",
        "http://100.64.0.1/h",
        "http://224.0.0.1/h",
        "http://2130706433/h",
        "http://0x7f.1/h",
        "http://0.0.0.0/h",
    ] {
        let refused = planner.put("WH-1", to(url));
        assert_eq!(
            (refused.status, refused.json()["code"].as_str()),
            (422, Some("address-refused")),
            "{url}: {}",
            refused.text()
        );
    }
    planner.publish(event_of("wms", "a")).problem(422, "no-transport");
    server.kill();

    let config = dir.path().join("fencepost.yml");
    std::fs::write(&config, "dispatch: { egress_allow: [127.0.0.1] }").unwrap();
    let server = Serve::plain(&data).arg("--config").arg(&config).start();
    let mut planner = Planner(server.client(&token));
    planner.put("WH-1", to(&receiver.url())).ok(200);
    planner.put("WH-2", to("http://127.0.0.2/h")).problem(422, "address-refused");
    planner.publish(event_of("wms", "a")).ok(202);
    assert_eq!(receiver.nth(1).lane(), "wms:WH-1");
    server.kill();

    // An address that was let through once is judged anew at every attempt.
    let server = Serve::plain(&data).start();
    let mut planner = Planner(server.client(&token));
    planner.publish(event_of("wms", "b")).ok(202);
    until("the attempt is refused", || {
        let lane = planner.0.get("/wes/v1/dispatch/lanes/wms:WH-1").ok(200);
        (lane["state"] == "retrying").then_some(())
    });
    assert_eq!(receiver.count(), 1);
}

fn event_of(planner: &str, id: &str) -> String {
    let mut event = event(id, "WH-1");
    event["planner_id"] = json!(planner);
    event.to_string()
}

fn files(dir: &Path, found: &mut Vec<(String, Vec<u8>)>) {
    for entry in std::fs::read_dir(dir).unwrap() {
        let path = entry.unwrap().path();
        if path.is_dir() {
            files(&path, found);
        } else {
            found.push((path.display().to_string(), std::fs::read(&path).unwrap()));
        }
    }
}

#[test]
fn neither_secret_nor_url_is_readable_in_the_data_directory_nor_in_any_answer_or_log() {
    let (dir, receiver) = (tempfile::tempdir().unwrap(), Receiver::start());
    let data = dir.path().join("data");
    let token = credential(&data, "wms", "planner");
    executor(&data, "dev-wes", &["wms"]);
    let config = dir.path().join("fencepost.yml");
    std::fs::write(&config, "dispatch: { egress_allow: [127.0.0.1] }\nserver: { log: { level: debug } }").unwrap();
    let log = dir.path().join("log");
    let server = Serve::plain(&data).arg("--config").arg(&config).log(log.clone()).start();
    let mut planner = Planner(server.client(&token));
    let put = planner.put("WH-1", webhook(&receiver));
    planner.publish(event_of("wms", "look-for-me")).ok(202);
    receiver.until(1);
    let got = planner.0.get("/wes/v1/warehouses/WH-1/transport");
    assert_eq!(got.ok(200)["webhook"]["secrets"], 1);
    server.signal(Signal::TERM);
    let (_, said) = server.wait();

    let mut found = vec![("put".to_owned(), put.body), ("get".to_owned(), got.body), ("words".to_owned(), said.into())];
    found.push(("log".to_owned(), std::fs::read(&log).unwrap()));
    files(&data, &mut found);
    let holders = |what: &str| -> Vec<String> {
        let what = what.as_bytes();
        let has = |bytes: &[u8]| bytes.windows(what.len()).any(|part| part == what);
        found.iter().filter(|(_, bytes)| has(bytes)).map(|(name, _)| name.clone()).collect()
    };
    // A text that is not sealed can be found: so the search can find.
    let origin = receiver.url().replace("/hooks/dispatch?of=us", "");
    assert!(holders(&origin).iter().any(|name| name.contains("/data/")), "{:?}", holders(&origin));
    assert_eq!(holders(SECRET), Vec::<String>::new());
    assert_eq!(holders("/hooks/dispatch"), Vec::<String>::new());
    assert_eq!(holders("of=us"), Vec::<String>::new());
}
