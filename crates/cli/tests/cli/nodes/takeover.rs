//! A holder that sleeps past its lease is replaced, and finds the door closed when it wakes.

use rustix::process::Signal;
use serde_json::json;

use super::{super::server::until, history::SCOPE, town::Town};

#[test]
fn a_claim_held_through_a_paused_node_is_taken_over_and_its_late_seal_is_refused() {
    let town = Town::start(3);
    let key = json!({"index_hash": "held"});
    let mut holder = town.node(0).acme();
    let held = holder.claim_with(SCOPE, &key, json!({"lease_ms": 400}));
    let token = held.token();
    town.node(0).pause();
    // The seal is on its way: it lies in the paused node's socket until that wakes.
    let late = json!({"scope": SCOPE, "key": key, "token": token, "effect_id": "late", "receipt": 1}).to_string();
    holder.begin_post("/v1/fences/seal", late);

    let mut other = town.node(1).acme();
    let taken = until("the lease has run out", || {
        let answer = other.claim(SCOPE, &key);
        (answer.status == 201).then_some(answer)
    });
    let body = taken.ok(201);
    assert_eq!((&body["recovering"], &body["attempt"]), (&json!(true), &json!(2)), "{body}");
    assert_eq!(body["earlier"]["token"], token);
    assert!(taken.token() > token);

    town.node(0).signal(Signal::CONT);
    holder.finish().unwrap().problem(409, "fenced-off");
    town.node(2).acme().seal(SCOPE, &key, taken.token(), "new", json!(2)).ok(200);
    for node in town.nodes() {
        let answer = node.acme().claim(SCOPE, &key).ok(200);
        assert_eq!((&answer["effect_id"], &answer["receipt"]), (&json!("new"), &json!(2)));
    }
    let history = town.node(2).admin().lookup(SCOPE, &key, "&tenant=acme").ok(200)["history"].to_string();
    assert!(history.contains("recovered") && history.contains("fenced_off"), "{history}");
}

#[test]
fn a_node_that_slept_through_a_takeover_does_not_answer_from_before_its_sleep() {
    let town = Town::start(2);
    let key = json!({"index_hash": "slept"});
    let mut sleeper = town.node(0).acme();
    sleeper.claim_with(SCOPE, &key, json!({"lease_ms": 200})).token();
    sleeper.claim(SCOPE, &key).problem(409, "in-flight");
    town.node(0).pause();
    let mut other = town.node(1).acme();
    let token = until("the lease has run out", || {
        let answer = other.claim(SCOPE, &key);
        (answer.status == 201).then(|| answer.token())
    });
    other.seal(SCOPE, &key, token, "E", json!("while asleep")).ok(200);
    town.node(0).signal(Signal::CONT);
    assert_eq!(sleeper.claim(SCOPE, &key).ok(200)["receipt"], "while asleep");
}
