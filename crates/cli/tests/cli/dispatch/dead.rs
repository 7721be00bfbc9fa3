//! Dead letters: skipped, listed, sent again, discarded; each word of a person counts once.

use serde_json::{Value, json};

use super::{
    super::server::{Dev, dev},
    planner::{Planner, webhook},
    receiver::{Receiver, Say},
};

// Three events whose receiver is down, and the first of them skipped.
fn skipped() -> (Dev, Receiver, Planner, Value) {
    let (server, receiver) = (dev(), Receiver::start());
    let mut planner = Planner::of(&server);
    planner.pushed("WH-1", &receiver);
    receiver.script(|delivery| Say::Status(if delivery.id() == "a" && delivery.attempt() == 1 { 503 } else { 200 }));
    for id in ["a", "b", "c"] {
        planner.release(id, "WH-1");
    }
    planner.lane_where("WH-1", "the head failed", |lane| lane["state"] == "retrying");
    receiver.say(Say::Status(200));
    let said = planner.act("WH-1", "skip", json!({"seq": 1})).ok(200);
    assert_eq!((&said["replay"], &said["settled"]), (&json!(false), &json!(1)), "{said}");
    planner.drained("WH-1");
    let letter = planner.letters("").remove(0);
    assert_eq!(letter["id"], said["dead_letter"]);
    (server, receiver, planner, letter)
}

#[test]
fn a_skipped_head_is_a_dead_letter_and_the_lane_goes_on_with_a_gap_that_can_be_seen() {
    let (_server, receiver, mut planner, letter) = skipped();
    let came: Vec<(String, u64)> = receiver.until(3).iter().map(|one| (one.id(), one.seq())).collect();
    assert_eq!(came, [("a", 1), ("b", 2), ("c", 3)].map(|(id, seq)| (id.to_owned(), seq)));
    assert_eq!((&letter["reason"], &letter["attempts"]), (&json!("skipped"), &json!(1)), "{letter}");
    assert_eq!((&letter["last_status"], &letter["last_answer"]), (&json!(503), &json!("said 503")));
    assert_eq!(
        (&letter["correlation_id"], &letter["seq"], &letter["state"]),
        (&json!("a"), &json!(1), &json!("waiting"))
    );
    // Asked again, it is done already; and what is not the head is not skipped.
    assert_eq!(planner.act("WH-1", "skip", json!({"seq": 1})).ok(200)["replay"], true);
    planner.act("WH-1", "skip", json!({"seq": 2})).problem(409, "not-head");
    planner.act("WH-1", "skip", json!({"seq": 9})).problem(409, "not-head");
    planner.act("WH-1", "skip", json!({})).problem(400, "malformed-request");
    planner.act("WH-none", "skip", json!({"seq": 1})).problem(404, "unknown-lane");
    assert_eq!(planner.letters("").len(), 1);
}

#[test]
fn a_letter_that_is_sent_again_comes_marked_and_at_the_end_and_once() {
    let (_server, receiver, mut planner, letter) = skipped();
    let said = planner.decide(&letter, "redrive", json!({})).ok(200);
    assert_eq!(
        (&said["replay"], &said["state"], &said["decided"]["seq"]),
        (&json!(false), &json!("redriven"), &json!(4))
    );
    let came = receiver.nth(4);
    assert_eq!((came.id().as_str(), came.seq(), came.header("fencepost-redrive")), ("a", 4, Some("true")));
    assert_eq!(came.body, receiver.heard()[0].body);
    let again = planner.decide(&letter, "redrive", json!({}));
    assert_eq!(again.ok(200)["replay"], true);
    assert_eq!(again.header("idempotency-replayed"), Some("true"));
    planner.decide(&letter, "discard", json!({"why": "late"})).problem(409, "already-decided");
    assert_eq!(planner.letters("").len(), 0);
    assert_eq!(planner.letters("state=redriven").len(), 1);
    planner.drained("WH-1");
    assert_eq!(planner.cancel("x", "a", "WH-1"), "delivered");
    // A planner that sends the event again hears where it first was.
    let again = planner.publish(super::planner::event("a", "WH-1").to_string()).ok(200);
    assert_eq!((&again["seq"], &again["replay"]), (&json!(1), &json!(true)));
    planner.drained("WH-1");
    assert_eq!(receiver.count(), 5);
}

#[test]
fn a_discarded_letter_stays_discarded() {
    let (_server, receiver, mut planner, letter) = skipped();
    planner.decide(&letter, "discard", json!({})).problem(400, "malformed-request");
    let said = planner.decide(&letter, "discard", json!({"why": "sold by hand"})).ok(200);
    assert_eq!(
        (&said["replay"], &said["decided"]["why"], &said["decided"]["by"]),
        (&json!(false), &json!("sold by hand"), &json!("fgai-wms"))
    );
    assert_eq!(planner.decide(&letter, "discard", json!({"why": "sold by hand"})).ok(200)["replay"], true);
    planner.decide(&letter, "redrive", json!({})).problem(409, "already-decided");
    assert_eq!(receiver.count(), 3);
    let nobody = json!({"id": format!("{}-99", letter["lane_id"].as_str().unwrap())});
    planner.decide(&nobody, "redrive", json!({})).problem(404, "unknown-dead-letter");
    planner.decide(&json!({"id": "rubbish"}), "redrive", json!({})).problem(404, "unknown-dead-letter");
}

#[test]
fn letters_are_filtered_and_many_are_sent_again_at_once_after_a_preview() {
    let (server, receiver) = (dev(), Receiver::start());
    let mut planner = Planner::of(&server);
    for warehouse in ["WH-1", "WH-2"] {
        planner.pushed(warehouse, &receiver);
        planner.release(&format!("{warehouse}-0"), warehouse);
        planner.drained(warehouse);
        // While the lane is paused, nothing is tried: a skipped event was never seen.
        planner.act(warehouse, "pause", json!({"why": "w"})).ok(200);
        for n in 1..=3 {
            let seq = planner.release(&format!("{warehouse}-{n}"), warehouse);
            planner.act(warehouse, "skip", json!({"seq": seq})).ok(200);
        }
        planner.act(warehouse, "resume", json!({})).ok(200);
    }
    assert_eq!(planner.letters("warehouse_id=WH-2").len(), 3);
    assert_eq!(planner.letters("correlation_id=WH-1-2").len(), 1);
    assert_eq!(planner.letters("reason=horizon").len(), 0);
    planner.0.get("/wes/v1/dispatch/dlq?reason=boredom").problem(400, "malformed-request");
    assert_eq!(planner.letters("limit=2").len(), 2);
    let attempts = receiver.count();
    assert_eq!(attempts, 2);
    let mut many = |body: Value| planner.0.post("/wes/v1/dispatch/dlq/redrive", body.to_string()).ok(200);
    let filter = json!({"warehouse_id": "WH-2"});
    assert_eq!(many(json!({"filter": filter, "preview": true}))["would_redrive"], 3);
    assert_eq!(receiver.count(), attempts, "a preview sends nothing");
    assert_eq!(many(json!({"filter": filter}))["redriven"], 3);
    assert_eq!(many(json!({"filter": filter}))["redriven"], 0);
    let came = receiver.until(attempts + 3);
    let sent: Vec<String> = came[attempts..].iter().map(|one| one.id()).collect();
    assert_eq!(sent, ["WH-2-1", "WH-2-2", "WH-2-3"]);
    assert!(came[attempts..].iter().all(|one| one.header("fencepost-redrive") == Some("true")));
}

#[test]
fn only_those_who_may_decide_about_letters_and_lanes() {
    let (server, _receiver, _planner, letter) = skipped();
    let id = letter["id"].as_str().unwrap();
    let mut executor = server.client("dev-executor");
    executor.get("/wes/v1/dispatch/dlq").problem(403, "forbidden");
    executor.get("/wes/v1/dispatch/lanes").problem(403, "forbidden");
    executor.post(&format!("/wes/v1/dispatch/dlq/{id}/redrive"), "{}").problem(403, "forbidden");
    server.client("nobody").get("/wes/v1/dispatch/dlq").problem(401, "unauthorized");
    let lane = letter["lane_id"].as_str().unwrap();
    assert_eq!(server.admin().get(&format!("/wes/v1/dispatch/lanes/{lane}")).ok(200)["settled"], 3);
    assert_eq!(
        server.admin().post(&format!("/wes/v1/dispatch/dlq/{id}/discard"), r#"{"why":"w"}"#).ok(200)["decided"]["by"],
        "dev-admin"
    );
}

#[test]
fn the_policy_after_a_dead_letter_is_kept_and_a_skip_never_blocks() {
    let (server, receiver) = (dev(), Receiver::start());
    let mut planner = Planner::of(&server);
    let mut transport = webhook(&receiver);
    transport["after_dead_letter"] = json!("panic");
    planner.put("WH-1", transport.clone()).problem(400, "malformed-request");
    transport["after_dead_letter"] = json!("block");
    planner.put("WH-1", transport).ok(200);
    assert_eq!(planner.0.get("/wes/v1/warehouses/WH-1/transport").ok(200)["after_dead_letter"], "block");
    receiver.script(|delivery| Say::Status(if delivery.id() == "a" { 503 } else { 200 }));
    planner.release("a", "WH-1");
    planner.release("b", "WH-1");
    planner.lane_where("WH-1", "the head failed", |lane| lane["state"] == "retrying");
    // A person has decided already: there is nothing to wait for.
    assert_eq!(planner.act("WH-1", "skip", json!({"seq": 1})).ok(200)["blocked"], false);
    planner.drained("WH-1");
    assert_eq!(receiver.until(2)[1].id(), "b");
}
