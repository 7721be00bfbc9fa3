//! `fencepost lanes` and `fencepost dlq` against a real server: output, acts, and repetitions that they refuse.

use std::{
    io::{BufRead, BufReader},
    process::Stdio,
};

use rustix::process::{Pid, Signal};
use serde_json::{Value, json};

use super::{
    client::with,
    server::{BINARY, Server, command, dev, fencepost, text, until},
};

/// Nothing listens there.
const NOBODY: &str = "http://127.0.0.1:1/hook";

fn ran(server: &Server, args: &[&str]) -> (Option<i32>, String) {
    let output = fencepost([args, &["--url", &server.url()]].concat());
    (output.status.code(), text(&output.stdout) + &text(&output.stderr))
}

/// The output of a command that must succeed.
#[track_caller]
fn done(server: &Server, args: &[&str]) -> String {
    let (code, said) = ran(server, args);
    assert_eq!(code, Some(0), "{args:?}: {said}");
    said
}

#[track_caller]
fn refused(server: &Server, args: &[&str], words: &[&str]) {
    let (code, said) = ran(server, args);
    assert_eq!(code, Some(1), "{args:?}: {said}");
    for word in words {
        assert!(said.contains(word), "{args:?} does not say {word:?}:\n{said}");
    }
}

fn pushed(server: &Server, warehouse: &str, more: Value) {
    let transport = json!({"executor_id": "dev-wes", "webhook": {"url": NOBODY, "secret": "sixteen bytes at least"}});
    let path = format!("/wes/v1/warehouses/{warehouse}/transport");
    server.client("dev-planner").put(&path, with(transport, more)).ok(200);
}

fn polled(server: &Server, warehouse: &str) {
    let path = format!("/wes/v1/warehouses/{warehouse}/transport");
    server.client("dev-planner").put(&path, r#"{"executor_id":"dev-wes","poll":{}}"#).ok(200);
}

fn event(warehouse: &str, id: &str) -> Value {
    json!({
        "kind": "SHIPPER_RELEASED", "correlation_id": id, "planner_id": "fgai-wms", "warehouse_id": warehouse,
        "document_ref": {"type": "shipper", "id": "SH-1"}, "routing": {"ops": [{"op_id": "10", "kind": "PICK"}]},
    })
}

fn publish(server: &Server, event: &Value) {
    server.client("dev-planner").post("/wes/v1/dispatch/events", event.to_string()).ok(202);
}

fn publish_many(server: &Server, warehouse: &str, count: usize) {
    let events: Vec<Value> = (1..=count).map(|n| event(warehouse, &format!("cid-{n}"))).collect();
    server.client("dev-planner").post("/wes/v1/dispatch/events", json!({"events": events}).to_string()).ok(202);
}

fn lane(server: &Server, name: &str) -> Value {
    server.client("dev-planner").get(&format!("/wes/v1/dispatch/lanes/{name}")).ok(200)
}

fn skip(server: &Server, name: &str, seq: u64) {
    let path = format!("/wes/v1/dispatch/lanes/{name}/skip");
    server.client("dev-planner").post(&path, format!(r#"{{"seq":{seq}}}"#)).ok(200);
}

fn until_tried(server: &Server, name: &str) {
    until("a failed attempt", || (lane(server, name)["head"]["attempts"].as_u64() > Some(0)).then_some(()));
}

#[test]
fn lanes_shows_where_each_one_stands_and_those_that_fail_first() {
    let server = dev();
    assert_eq!(done(&server, &["lanes"]), "no lanes\n");
    polled(&server, "A-1");
    publish(&server, &event("A-1", "cid-1"));
    pushed(&server, "WH-1", json!({}));
    publish(&server, &event("WH-1", "cid-2"));
    publish(&server, &event("WH-1", "cid-3"));
    until_tried(&server, "fgai-wms:WH-1");
    let said = done(&server, &["lanes"]);
    let lines: Vec<&str> = said.lines().collect();
    assert_eq!(lines[0], "2 lanes: 1 retrying, 1 waiting; backlog 3", "{said}");
    let columns = ["LANE", "TRANSPORT", "STATE", "BACKLOG", "HEAD", "ATTEMPTS", "NEXT IN", "LAST ANSWER"];
    assert!(columns.iter().all(|column| lines[1].contains(column)), "{said}");
    let words = |line: &str| line.split_whitespace().map(str::to_owned).collect::<Vec<_>>();
    assert_eq!(words(lines[2])[..5], ["fgai-wms:WH-1", "webhook", "retrying", "2", "1"], "{said}");
    assert!(lines[2].contains("Connection refused"), "{said}");
    assert_eq!(words(lines[3]), ["fgai-wms:poll:dev-wes", "poll", "waiting", "1", "1", "0", "-", "-"], "{said}");
    assert_eq!(done(&server, &["lanes", "--state", "paused"]), "no lanes\n");
    assert_eq!(done(&server, &["lanes", "--planner", "somebody"]), "no lanes\n");
    let told: Value = serde_json::from_str(&done(&server, &["lanes", "--state", "retrying", "--json"])).unwrap();
    assert_eq!((&told["items"][0]["lane"], &told["next_cursor"]), (&json!("fgai-wms:WH-1"), &json!("")));
    let said = done(&server, &["lanes", "--limit", "1"]);
    assert!(said.starts_with("1 lane: ") && said.contains("There are more"), "{said}");
    let said = done(&server, &["lanes", "show", "fgai-wms:WH-1"]);
    for word in ["retrying", "Connection refused", "position 1", "fencepost lanes skip fgai-wms:WH-1 1"] {
        assert!(said.contains(word), "{word}:\n{said}");
    }
}

#[test]
fn a_lane_is_paused_resumed_and_skipped_once_however_often_it_is_typed() {
    let server = dev();
    pushed(&server, "WH-1", json!({}));
    publish_many(&server, "WH-1", 3);
    until_tried(&server, "fgai-wms:WH-1");
    let name = "fgai-wms:WH-1";
    let pause = ["lanes", "pause", name, "--why", "the \"dock\" is rebuilt"];
    assert_eq!(done(&server, &pause), "fgai-wms:WH-1 is paused\n");
    assert_eq!(done(&server, &pause), "fgai-wms:WH-1 was paused already\n");
    let paused = lane(&server, name);
    assert_eq!((&paused["state"], &paused["paused"]["why"]), (&json!("paused"), &json!("the \"dock\" is rebuilt")));
    let said = done(&server, &["lanes"]);
    assert!(said.contains("paused by dev-admin ") && said.contains(" ago: the \"dock\" is rebuilt"), "{said}");
    assert!(done(&server, &["lanes", "show", name]).contains("fencepost lanes resume fgai-wms:WH-1"));
    refused(&server, &["lanes", "skip", name, "2"], &["not-head", "fencepost lanes show"]);
    let said = done(&server, &["lanes", "skip", name, "1"]);
    assert!(said.starts_with("position 1 of fgai-wms:WH-1 is a dead letter now: ") && said.ends_with("-1\n"), "{said}");
    assert_eq!(done(&server, &["lanes", "skip", name, "1"]), "position 1 of fgai-wms:WH-1 was skipped already\n");
    assert_eq!(lane(&server, name)["settled"], 1, "one was skipped");
    // By its address, and with the planner's own token.
    let id = lane(&server, name)["lane_id"].as_str().unwrap().to_owned();
    assert_eq!(done(&server, &["lanes", "resume", &id, "--token", "dev-planner"]), "fgai-wms:WH-1 goes on\n");
    assert_eq!(done(&server, &["lanes", "resume", &id]), "fgai-wms:WH-1 was not paused\n");
    refused(&server, &["lanes", "show", "fgai-wms:elsewhere"], &["unknown-lane", "fencepost lanes"]);
    refused(&server, &["lanes", "--token", "dev-executor"], &["forbidden", "token of the planner"]);
}

#[test]
fn a_watched_list_is_drawn_again_until_somebody_ends_it() {
    let server = dev();
    polled(&server, "A-1");
    publish(&server, &event("A-1", "cid-1"));
    let mut child =
        command(BINARY).args(["lanes", "--watch", "1", "--url", &server.url()]).stdout(Stdio::piped()).spawn().unwrap();
    let mut lines = BufReader::new(child.stdout.take().unwrap()).lines().map(Result::unwrap);
    let mut block = || -> Vec<String> { lines.by_ref().take_while(|line| !line.is_empty()).collect() };
    let first = block();
    assert!(first[0].ends_with("  1 lane: 1 waiting; backlog 1") && first.len() == 3, "{first:?}");
    publish(&server, &event("A-1", "cid-2"));
    let later = until("the second event", || Some(block()).filter(|block| block[0].ends_with("backlog 2")));
    assert!(later.iter().all(|line| !line.contains('\x1b')), "no terminal, nothing to clear: {later:?}");
    assert!(child.try_wait().unwrap().is_none(), "it goes on");
    rustix::process::kill_process(Pid::from_child(&child), Signal::INT).unwrap();
    assert!(!child.wait().unwrap().success());
}

#[test]
fn a_dead_letter_is_shown_and_sent_again_once() {
    let server = dev();
    polled(&server, "A-1");
    publish_many(&server, "A-1", 2);
    assert_eq!(done(&server, &["dlq", "list"]), "no dead letters\n");
    skip(&server, "fgai-wms:poll:dev-wes", 1);
    let said = done(&server, &["dlq", "list", "--warehouse", "A-1", "--reason", "skipped"]);
    assert!(said.contains("cid-1") && said.contains("SHIPPER_RELEASED") && said.contains("waiting"), "{said}");
    assert_eq!(done(&server, &["dlq", "list", "--warehouse", "B-1"]), "no dead letters\n");
    let told: Value = serde_json::from_str(&done(&server, &["dlq", "list", "--json"])).unwrap();
    let id = told["items"][0]["id"].as_str().unwrap();
    let said = done(&server, &["dlq", "show", id]);
    for word in ["cid-1", "a person skipped it", "cancelled    no", "\"op_id\":\"10\"", "fencepost dlq redrive"] {
        assert!(said.contains(word), "{word}:\n{said}");
    }
    assert_eq!(said, done(&server, &["dlq", "show", "cid-1"]), "by the id of its event, too");
    let said = done(&server, &["dlq", "redrive", "cid-1"]);
    assert!(said.ends_with("cid-1 sent again, at position 3\n"), "{said}");
    let said = done(&server, &["dlq", "redrive", id]);
    assert!(said.ends_with("cid-1 was sent again before, at position 3\n"), "{said}");
    let page = server.client("dev-executor").get("/wes/v1/dispatch/pending").ok(200);
    let ids: Vec<&Value> = page["events"].as_array().unwrap().iter().map(|event| &event["correlation_id"]).collect();
    assert_eq!(ids, ["cid-2", "cid-1"], "behind what is there, once");
    assert!(done(&server, &["dlq", "show", id]).contains("redriven by dev-admin"));
}

#[test]
fn a_refusal_has_its_code_and_a_hint_and_stops_none_of_the_others() {
    let server = dev();
    pushed(&server, "WH-1", json!({"receiver_retention": "1ms"}));
    publish_many(&server, "WH-1", 3);
    for seq in 1..=3 {
        until_tried(&server, "fgai-wms:WH-1");
        skip(&server, "fgai-wms:WH-1", seq);
    }
    publish(
        &server,
        &json!({"kind": "CANCELLED", "correlation_id": "cid-4", "planner_id": "fgai-wms", "warehouse_id": "WH-1", "cancels_correlation_id": "cid-1"}),
    );
    refused(&server, &["dlq", "redrive", "cid-2"], &["past-retention", "--force WHY"]);
    let all = ["dlq", "redrive", "cid-1", "cid-99", "cid-2", "--force", "it never had this one"];
    let words = ["refused   cid-1  letter-cancelled: ", "refused   cid-99  unknown-dead-letter: ", "cid-2 sent again"];
    refused(&server, &all, &[&words[..], &["letter-cancelled: the planner", "dlq discard"]].concat());
    assert!(done(&server, &["dlq", "show", "cid-1"]).contains("cancelled    yes, by cid-4"));
    assert!(done(&server, &["dlq", "show", "cid-2"]).contains("it never had this one"));
    let said = done(&server, &["dlq", "discard", "cid-1", "cid-3", "--why", "shipped by hand"]);
    assert_eq!(said.lines().filter(|line| line.ends_with(" given up")).count(), 2, "{said}");
    let said = done(&server, &["dlq", "discard", "cid-1", "--why", "again"]);
    assert!(said.ends_with("cid-1 was given up before\n"), "{said}");
    refused(&server, &["dlq", "redrive", "cid-3"], &["already-decided", "fencepost dlq show"]);
    assert!(done(&server, &["dlq", "show", "cid-3"]).contains("shipped by hand"));
    assert_eq!(done(&server, &["dlq", "list"]), "no dead letters\n");
    assert_eq!(done(&server, &["dlq", "list", "--state", "discarded"]).lines().count(), 3);
}

#[test]
fn all_that_match_are_sent_again_page_by_page_and_a_preview_changes_nothing() {
    let server = dev();
    polled(&server, "A-1");
    publish_many(&server, "A-1", 60);
    (1..=60).for_each(|seq| skip(&server, "fgai-wms:poll:dev-wes", seq));
    let cancels = json!({"kind": "CANCELLED", "correlation_id": "c", "planner_id": "fgai-wms", "warehouse_id": "A-1", "cancels_correlation_id": "cid-7"});
    publish(&server, &cancels);
    let all = ["dlq", "redrive", "--all", "--warehouse", "A-1", "--rate", "40"];
    let preview = [&all[..], &["--preview"]].concat();
    refused(&server, &preview, &["59 would be redriven, 1 would be refused; nothing was changed"]);
    assert_eq!(done(&server, &["dlq", "redrive", "--all", "--warehouse", "B-1"]), "0 redriven, 0 refused\n");
    let told: Value = serde_json::from_str(&done(&server, &["dlq", "list", "--json"])).unwrap();
    assert_eq!(told["items"].as_array().unwrap().len(), 60, "nothing was sent");
    let after = told["items"][49]["id"].as_str().unwrap();
    let said = done(&server, &[&preview[..], &["--after", after]].concat());
    assert!(said.starts_with("10 would be redriven"), "from where it stopped: {said}");
    let said = done(&server, &["dlq", "list", "--limit", "50"]);
    assert!(said.ends_with(&format!("There are more: --after {after}\n")), "{said}");
    refused(&server, &all, &["59 redriven, 1 refused", "letter-cancelled: "]);
    assert_eq!(lane(&server, "fgai-wms:poll:dev-wes")["tail"], 60 + 1 + 59);
    refused(&server, &all, &["0 redriven, 1 refused"]);
}

#[test]
fn a_wrong_command_line_is_2_and_a_server_that_is_away_is_1() {
    for args in [
        &["dlq"][..],
        &["dlq", "redrive"],
        &["dlq", "redrive", "x", "--all"],
        &["dlq", "redrive", "x", "--warehouse", "WH-1"],
        &["dlq", "redrive", "--all", "--rate", "0"],
        &["dlq", "discard", "x"],
        &["dlq", "list", "--reason", "no-such-reason"],
        &["lanes", "--state", "sad"],
        &["lanes", "--watch", "0"],
        &["lanes", "pause", "x"],
        &["lanes", "skip", "x", "0"],
    ] {
        assert_eq!(fencepost(args).status.code(), Some(2), "{args:?}");
    }
    for args in [&["lanes"][..], &["dlq", "list"], &["dlq", "redrive", "--all"], &["lanes", "resume", "x"]] {
        let output = fencepost([args, &["--url", "http://127.0.0.1:1"]].concat());
        assert_eq!(output.status.code(), Some(1), "{args:?}");
        assert!(text(&output.stderr).contains("is the server running?"), "{args:?}: {}", text(&output.stderr));
    }
    for command in ["lanes", "dlq"] {
        let said = text(&fencepost([command, "--help"]).stdout);
        assert!(said.contains("Examples:") && said.contains(&format!("fencepost {command} ")), "{said}");
    }
}
