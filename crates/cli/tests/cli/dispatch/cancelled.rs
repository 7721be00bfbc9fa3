//! Publishing CANCELLED tells what became of the original.

use serde_json::json;

use super::{
    super::server::dev,
    planner::{Planner, cancellation, event},
    receiver::{Receiver, Say},
};

#[test]
fn a_cancellation_tells_in_flight_undelivered_and_delivered() {
    let (server, receiver) = (dev(), Receiver::start());
    let mut planner = Planner::of(&server);
    planner.pushed("WH-1", &receiver);
    receiver.say(Say::Hold);
    planner.release("head", "WH-1");
    planner.release("behind", "WH-1");
    receiver.until(1);
    assert_eq!(planner.cancel("x-head", "head", "WH-1"), "in_flight");
    assert_eq!(planner.cancel("x-behind", "behind", "WH-1"), "undelivered");
    receiver.release();
    planner.drained("WH-1");
    assert_eq!(planner.cancel("x-late", "behind", "WH-1"), "delivered");
    // Nothing is taken out of a lane: the executor drops what it never began, and so must hear of both.
    let came: Vec<String> = receiver.until(5).iter().map(|delivery| delivery.id()).collect();
    assert_eq!(came, ["head", "behind", "x-head", "x-behind", "x-late"]);
    // The answer of the first time, although it would be another one now.
    let again = planner.publish(cancellation("x-head", "head", "WH-1").to_string()).ok(200);
    assert_eq!((&again["original"], &again["replay"]), (&json!("in_flight"), &json!(true)));
}

#[test]
fn a_dead_original_is_told_and_may_not_be_sent_again() {
    let (server, receiver) = (dev(), Receiver::start());
    let mut planner = Planner::of(&server);
    planner.pushed("WH-1", &receiver);
    receiver.say(Say::Status(503));
    planner.release("doomed", "WH-1");
    planner.lane_where("WH-1", "the attempt failed", |lane| lane["state"] == "retrying");
    planner.act("WH-1", "skip", json!({"seq": 1})).ok(200);
    assert_eq!(planner.cancel("x", "doomed", "WH-1"), "dead");
    let letter = planner.letters("").remove(0);
    assert_eq!(letter["cancelled_by"], "x", "{letter}");
    let refused = planner.decide(&letter, "redrive", json!({})).problem(409, "letter-cancelled");
    assert_eq!(refused["cancelled_by"], "x");
    planner.decide(&letter, "discard", json!({"why": "cancelled anyway"})).ok(200);
    assert_eq!(planner.cancel("x-2", "doomed", "WH-1"), "dead");
}

#[test]
fn an_event_that_is_cancelled_before_it_dies_is_not_sent_again_either() {
    let (server, receiver) = (dev(), Receiver::start());
    let mut planner = Planner::of(&server);
    planner.pushed("WH-1", &receiver);
    receiver.say(Say::Status(503));
    planner.release("doomed", "WH-1");
    planner.lane_where("WH-1", "the attempt failed", |lane| lane["state"] == "retrying");
    // It failed once, and another attempt may be under way: it may have been seen.
    assert_eq!(planner.cancel("x", "doomed", "WH-1"), "in_flight");
    planner.act("WH-1", "skip", json!({"seq": 1})).ok(200);
    let letter = planner.letters("").remove(0);
    planner.decide(&letter, "redrive", json!({})).problem(409, "letter-cancelled");
}

#[test]
fn a_poller_is_not_told_to_have_what_it_never_saw() {
    let server = dev();
    let mut planner = Planner::of(&server);
    let mut executor = server.client("dev-executor");
    planner.polled("WH-1");
    planner.release("a", "WH-1");
    planner.release("b", "WH-1");
    assert_eq!(planner.cancel("x-1", "a", "WH-1"), "undelivered");
    let page = executor.get("/wes/v1/dispatch/pending?limit=1").ok(200);
    assert_eq!(planner.cancel("x-2", "a", "WH-1"), "in_flight");
    assert_eq!(planner.cancel("x-3", "b", "WH-1"), "undelivered");
    executor.post("/wes/v1/dispatch/ack", json!({"cursor": page["next_cursor"]}).to_string()).ok(200);
    assert_eq!(planner.cancel("x-4", "a", "WH-1"), "delivered");
}

#[test]
fn a_cancellation_of_nothing_is_refused_and_leaves_its_id_free() {
    let (server, receiver) = (dev(), Receiver::start());
    let mut planner = Planner::of(&server);
    planner.pushed("WH-1", &receiver);
    planner.publish(cancellation("x", "never", "WH-1").to_string()).problem(422, "unknown-original");
    let mut nameless = cancellation("x", "never", "WH-1");
    nameless.as_object_mut().unwrap().remove("cancels_correlation_id");
    planner.publish(nameless.to_string()).problem(400, "malformed-request");
    planner.publish(cancellation("x", "x", "WH-1").to_string()).problem(422, "invalid");
    planner.release("never", "WH-1");
    planner.publish(cancellation("x", "never", "WH-1").to_string()).ok(202);
    // Another planner's ids mean nothing here, and the executor publishes nothing.
    server
        .client("dev-executor")
        .post("/wes/v1/dispatch/events", event("e", "WH-1").to_string())
        .problem(403, "forbidden");
}

#[test]
fn a_cancellation_for_another_warehouse_is_refused_and_leaves_the_original_alone() {
    let (dev, receiver) = (dev(), Receiver::start());
    let mut planner = Planner::of(&dev.server);
    receiver.say(Say::Status(503));
    planner.pushed("WH-1", &receiver);
    planner.pushed("WH-2", &receiver);
    planner.release("e-1", "WH-1");
    let elsewhere = cancellation("c-1", "e-1", "WH-2").to_string();
    planner.publish(elsewhere).problem(422, "unknown-original");
    planner.act("WH-1", "skip", json!({"seq": 1})).ok(200);
    let letter = planner.letters("").remove(0);
    assert_eq!(letter.get("cancelled_by"), None, "{letter}");
}
