//! Failures of receivers: when the next attempt comes, and which lanes stop meanwhile.

use std::time::{Duration, Instant};

use rustix::process::Signal;
use serde_json::{Value, json};

use super::{
    super::server::{Dev, Serve, dev, dev_with, fencepost, text, until},
    planner::{Planner, webhook},
    receiver::{Receiver, Say},
};

/// The gap before the second attempt, and how much jitter adds to it at most.
const GAP: Duration = Duration::from_secs(5);
/// Of a loaded machine.
const SLACK: Duration = Duration::from_secs(10);

#[test]
fn the_second_attempt_comes_after_five_seconds_or_later_where_the_receiver_asks_and_no_lane_waits_for_another() {
    let (server, receiver) = (dev(), Receiver::start());
    let mut planner = Planner::of(&server);
    for warehouse in ["WH-busy", "WH-patient", "WH-cut", "WH-well"] {
        planner.pushed(warehouse, &receiver);
    }
    receiver.script(|delivery| match (delivery.lane().rsplit(':').next().unwrap(), delivery.attempt()) {
        ("WH-busy", 1) => Say::Status(503),
        ("WH-patient", 1) => Say::With(429, "retry-after: 7\r\n".to_owned()),
        ("WH-cut", 1) => Say::Close,
        _ => Say::Status(200),
    });
    for warehouse in ["WH-busy", "WH-patient", "WH-cut"] {
        planner.release(&format!("first-{warehouse}"), warehouse);
        planner.release(&format!("second-{warehouse}"), warehouse);
        let lane = planner.lane_where(warehouse, "the attempt failed", |lane| lane["state"] == "retrying");
        assert_eq!((&lane["head"]["seq"], &lane["head"]["attempts"]), (&json!(1), &json!(1)), "{lane}");
    }
    let busy = planner.lane("WH-busy");
    assert_eq!((&busy["head"]["last_status"], &busy["head"]["last_answer"]), (&json!(503), &json!("said 503")));
    // One lane that fails costs another nothing: these come while three wait.
    let begun = Instant::now();
    for n in 0..20 {
        planner.release(&format!("well-{n}"), "WH-well");
    }
    planner.drained("WH-well");
    assert!(begun.elapsed() < GAP, "healthy lanes waited {:?}", begun.elapsed());
    assert_eq!(planner.lane("WH-busy")["state"], "retrying");

    let came = receiver.until(3 + 20 + 3 + 3);
    for (warehouse, gap) in [("WH-busy", GAP), ("WH-patient", Duration::from_secs(7)), ("WH-cut", GAP)] {
        let own: Vec<_> = came.iter().filter(|one| one.lane().ends_with(warehouse)).collect();
        let told: Vec<(String, u64)> = own.iter().map(|one| (one.id(), one.attempt())).collect();
        let (first, second) = (format!("first-{warehouse}"), format!("second-{warehouse}"));
        assert_eq!(told, [(first.clone(), 1), (first, 2), (second, 1)], "what follows waits for the head");
        let waited = own[1].at - own[0].at;
        eprintln!("retries: {warehouse} was tried again after {waited:?}");
        assert!(waited >= gap - Duration::from_millis(100) && waited < gap + SLACK, "{warehouse}: {waited:?}");
        assert_eq!(own[0].body, own[1].body);
    }
}

#[test]
fn a_receiver_that_does_not_answer_is_given_up_in_time_and_holds_nobody_else() {
    let server = dev_with("dispatch: { timeout: 500ms }");
    let receiver = Receiver::start();
    let mut planner = Planner::of(&server);
    planner.pushed("WH-1", &receiver);
    planner.pushed("WH-2", &receiver);
    receiver.script(|delivery| if delivery.lane().ends_with("WH-1") { Say::Hold } else { Say::Status(200) });
    planner.release("hangs", "WH-1");
    planner.release("well", "WH-2");
    planner.drained("WH-2");
    let lane = planner.lane_where("WH-1", "the attempt is given up", |lane| lane["state"] == "retrying");
    assert!(lane["head"]["last_answer"].as_str().unwrap().contains("500 ms"), "{lane}");
    receiver.release();
    // Its late 200 does not count: the attempt is over.
    assert_eq!(planner.lane("WH-1")["settled"], 0);
}

#[test]
fn a_receiver_that_is_gone_stops_its_lane_until_a_person_lets_it_go_on() {
    let (server, receiver) = (dev(), Receiver::start());
    let mut planner = Planner::of(&server);
    planner.pushed("WH-1", &receiver);
    receiver.say(Say::Status(410));
    planner.release("a", "WH-1");
    planner.release("b", "WH-1");
    let lane = planner.lane_where("WH-1", "the lane is stopped", |lane| lane["state"] == "paused");
    assert_eq!((&lane["paused"]["by"], &lane["backlog"]), (&json!("receiver"), &json!(2)), "{lane}");
    planner.release("c", "WH-1");
    // Known to be undelivered: it came after the stop.
    assert_eq!(planner.cancel("x", "c", "WH-1"), "undelivered");
    assert_eq!(receiver.count(), 1);
    receiver.say(Say::Status(200));
    assert_eq!(planner.act("WH-1", "resume", json!({})).ok(200)["replay"], false);
    let came: Vec<(String, u64)> = receiver.until(5).iter().map(|one| (one.id(), one.attempt())).collect();
    assert_eq!(came, [("a", 1), ("a", 2), ("b", 1), ("c", 1), ("x", 1)].map(|(id, attempt)| (id.to_owned(), attempt)));
    planner.drained("WH-1");
    assert_eq!(planner.act("WH-1", "resume", json!({})).ok(200)["replay"], true);
}

#[test]
fn a_lane_that_a_person_has_stopped_keeps_what_comes_and_goes_on_in_order() {
    let (server, receiver) = (dev(), Receiver::start());
    let mut planner = Planner::of(&server);
    planner.pushed("WH-1", &receiver);
    planner.release("a", "WH-1");
    planner.drained("WH-1");
    planner.act("WH-1", "pause", json!({})).problem(400, "malformed-request");
    assert_eq!(planner.act("WH-1", "pause", json!({"why": "stocktaking"})).ok(200)["replay"], false);
    assert_eq!(planner.act("WH-1", "pause", json!({"why": "stocktaking"})).ok(200)["replay"], true);
    for id in ["b", "c", "d"] {
        planner.release(id, "WH-1");
    }
    let lane = planner.lane("WH-1");
    assert_eq!((&lane["state"], &lane["backlog"]), (&json!("paused"), &json!(3)));
    assert_eq!((&lane["paused"]["why"], &lane["paused"]["by"]), (&json!("stocktaking"), &json!("fgai-wms")));
    // A stop outlives the address: only a person lets it go on.
    planner.put("WH-1", webhook(&receiver)).ok(200);
    assert_eq!(receiver.count(), 1);
    planner.act("WH-1", "resume", json!({})).ok(200);
    let came: Vec<String> = receiver.until(4).iter().map(|one| one.id()).collect();
    assert_eq!(came, ["a", "b", "c", "d"]);
}

#[test]
fn receiver_that_answers_410_pauses_the_lane_and_alerts() {
    let (alarms, receiver, dir) = (Receiver::start(), Receiver::start(), tempfile::tempdir().unwrap());
    alarms.knows(&[]);
    let (config, log) = (dir.path().join("fencepost.yml"), dir.path().join("log"));
    std::fs::write(&config, format!("dispatch: {{ alert_webhook: \"{}\" }}", alarms.url())).unwrap();
    let server = Serve::dev(&dir.path().join("data")).arg("--config").arg(&config).log(log.clone()).start();
    let mut planner = Planner::of(&server);
    planner.pushed("WH-1", &receiver);
    receiver.say(Say::Status(410));
    planner.release("a", "WH-1");
    let alarm: Value = serde_json::from_slice(&alarms.nth(1).body).unwrap();
    assert_eq!((&alarm["alert"], &alarm["lane"]), (&json!("lane_paused"), &json!("fgai-wms:WH-1")), "{alarm}");
    assert_eq!((&alarm["seq"], &alarm["last_status"], &alarm["by"]), (&json!(1), &json!(410), &json!("receiver")));
    let lane = planner.lane("WH-1");
    assert_eq!((&lane["state"], &lane["paused"]["at"]), (&json!("paused"), &alarm["since"]), "{lane}");
    let metrics = server.client("").get("/metrics").text();
    assert!(metrics.contains("fencepost_lanes_blocked_total 1\n"), "{metrics}");
    let lanes = fencepost(["lanes", "--url", &server.url()]);
    let lanes = text(&lanes.stdout);
    assert!(lanes.contains("paused by receiver ") && lanes.contains(" ago: the receiver answered 410"), "{lanes}");
    // A new process finds it so, and says so again.
    server.kill();
    let server = Serve::dev(&dir.path().join("data")).arg("--config").arg(&config).log(log.clone()).start();
    alarms.nth(2);
    let line = until("the log has it", || {
        let text = std::fs::read_to_string(&log).unwrap();
        text.lines().find(|line| line.contains("a receiver has paused its lane")).map(str::to_owned)
    });
    let line: Value = serde_json::from_str(&line).unwrap();
    assert_eq!(
        (&line["level"], &line["lane"], &line["status"]),
        (&json!("error"), &json!("fgai-wms:WH-1"), &json!(410))
    );
    assert_eq!((receiver.count(), &line["since"]), (1, &alarm["since"]));
    drop(server);
}

#[test]
fn first_failure_of_a_head_is_a_warning_and_each_further_one_a_debug_line() {
    let (receiver, dir) = (Receiver::start(), tempfile::tempdir().unwrap());
    let (config, log) = (dir.path().join("fencepost.yml"), dir.path().join("log"));
    std::fs::write(&config, "server: { log: { level: debug } }").unwrap();
    let server = Serve::dev(&dir.path().join("data")).arg("--config").arg(&config).log(log.clone()).start();
    let mut planner = Planner::of(&server);
    planner.pushed("WH-1", &receiver);
    receiver.script(|delivery| if delivery.attempt() == 1 { Say::Status(503) } else { Say::Close });
    planner.release("a", "WH-1");
    receiver.until(2);
    let lines = until("two lines", || {
        let text = std::fs::read_to_string(&log).unwrap();
        let whole = text.lines().filter(|line| line.contains("a delivery failed") && line.ends_with('}'));
        let lines: Vec<Value> = whole.map(|line| serde_json::from_str(line).unwrap()).collect();
        (lines.len() == 2).then_some(lines)
    });
    for (line, level, attempt) in [(&lines[0], "warn", 1), (&lines[1], "debug", 2)] {
        assert_eq!((&line["level"], &line["attempt"]), (&json!(level), &json!(attempt)), "{line}");
        assert_eq!((&line["lane"], &line["seq"]), (&json!("fgai-wms:WH-1"), &json!(1)), "{line}");
        assert!(line["next_attempt_at"].as_str() > line["ts"].as_str(), "{line}");
    }
    assert_eq!((&lines[0]["status"], &lines[0]["answer"]), (&json!(503), &json!("said 503")));
    assert!(lines[1].get("status").is_none() && !lines[1]["answer"].as_str().unwrap().is_empty(), "{}", lines[1]);
}

#[test]
fn a_head_that_fails_for_long_raises_one_alarm_and_the_alarm_does_not_hold_the_end_up() {
    let (alarms, receiver) = (Receiver::start(), Receiver::start());
    alarms.knows(&[]);
    let policy = format!("dispatch: {{ blocked_after: 1ms, alert_webhook: \"{}\" }}", alarms.url());
    let Dev { server, dir: _dir } = dev_with(&policy);
    let mut planner = Planner::of(&server);
    planner.pushed("WH-1", &receiver);
    receiver.say(Say::Status(500));
    planner.release("a", "WH-1");
    let alarm: Value = serde_json::from_slice(&alarms.nth(1).body).unwrap();
    assert_eq!((&alarm["alert"], &alarm["lane"]), (&json!("lane_blocked"), &json!("fgai-wms:WH-1")), "{alarm}");
    assert_eq!((&alarm["seq"], &alarm["last_status"]), (&json!(1), &json!(500)));
    let metrics = server.client("").get("/metrics").text();
    for line in ["fencepost_lanes_blocked_total 1", "fencepost_lanes{state=\"retrying\"} 1"] {
        assert!(metrics.contains(line), "no {line}: {metrics}");
    }
    server.signal(Signal::TERM);
    let (status, said) = server.wait();
    assert_eq!(status.code(), Some(0), "{said}");
    assert_eq!(alarms.count(), 1);
}
