//! Dead letters: their lists, and a person's decision on one or many.

use serde_json::{Value, json};

use super::world::{ADMIN, EXECUTOR, OTHER, PLANNER, VIEWER, World, cancel, event};

const DAY_MS: u64 = 24 * 3_600_000;

fn ids(list: &Value) -> Vec<&str> {
    list["items"].as_array().unwrap().iter().map(|letter| letter["correlation_id"].as_str().unwrap()).collect()
}

#[tokio::test]
async fn a_letter_tells_what_happened_to_its_event() {
    let world = World::new().await;
    world.pushed("WH-1").await;
    let id = world.dead("cid-1", "WH-1").await;
    let list = world.get("/dispatch/dlq", PLANNER).await.is(200).json;
    let letter = &list["items"][0];
    for (name, value) in [
        ("id", json!(id)),
        ("lane", json!("fgai-wms:WH-1")),
        ("seq", json!(1)),
        ("planner_id", json!("fgai-wms")),
        ("warehouse_id", json!("WH-1")),
        ("correlation_id", json!("cid-1")),
        ("kind", json!("SHIPPER_RELEASED")),
        ("reason", json!("skipped")),
        ("attempts", json!(1)),
        ("first_attempt_at", json!("2026-05-28T20:26:40.000Z")),
        ("last_status", json!(503)),
        ("last_answer", json!("not now")),
        ("state", json!("waiting")),
    ] {
        assert_eq!(letter[name], value, "{name}");
    }
    assert_eq!(list["next_cursor"], "");
    let lane_id = id.strip_suffix("-1").unwrap();
    for other in ["01", "+1", "1-", ""] {
        let path = format!("/dispatch/dlq/{lane_id}-{other}");
        world.get(&path, PLANNER).await.refused(404, "unknown-dead-letter");
    }
    let one = world.get(&format!("/dispatch/dlq/{id}"), PLANNER).await.is(200).json;
    assert_eq!(one["event"], event("cid-1", "WH-1"));
    for token in [ADMIN, VIEWER] {
        world.get(&format!("/dispatch/dlq/{id}"), token).await.is(200);
    }
    assert!(ids(&world.get("/dispatch/dlq", OTHER).await.is(200).json).is_empty());
    world.get(&format!("/dispatch/dlq/{id}"), OTHER).await.refused(404, "unknown-dead-letter");
    world.get("/dispatch/dlq", EXECUTOR).await.refused(403, "forbidden");
    for unknown in ["1", "zz-1", &format!("{}9", id)] {
        world.get(&format!("/dispatch/dlq/{unknown}"), PLANNER).await.refused(404, "unknown-dead-letter");
    }
}

#[tokio::test]
async fn letters_are_found_by_what_they_are() {
    let world = World::new().await;
    for warehouse in ["WH-1", "WH-2"] {
        world.pushed(warehouse).await;
        world.dead(&format!("{warehouse}-a"), warehouse).await;
    }
    let id = world.dead("WH-2-b", "WH-2").await;
    world.post(&format!("/dispatch/dlq/{id}/discard"), PLANNER, &json!({"why": "obsolete"})).await.is(200);
    for (query, expected) in [
        ("warehouse_id=WH-1", vec!["WH-1-a"]),
        ("warehouse_id=WH-2", vec!["WH-2-a"]),
        ("warehouse_id=WH-2&state=all", vec!["WH-2-a", "WH-2-b"]),
        ("state=discarded", vec!["WH-2-b"]),
        ("state=redriven", vec![]),
        ("reason=horizon", vec![]),
        ("reason=skipped&warehouse_id=WH-1", vec!["WH-1-a"]),
        ("kind=CANCELLED", vec![]),
        ("correlation_id=WH-2-a", vec!["WH-2-a"]),
    ] {
        assert_eq!(ids(&world.get(&format!("/dispatch/dlq?{query}"), PLANNER).await.is(200).json), expected, "{query}");
    }
    let first = world.get("/dispatch/dlq?state=all&limit=2", PLANNER).await.is(200).json;
    let next = first["next_cursor"].as_str().unwrap();
    let second = world.get(&format!("/dispatch/dlq?state=all&limit=2&after={next}"), PLANNER).await.is(200).json;
    assert_eq!((ids(&first).len(), ids(&second).len(), &second["next_cursor"]), (2, 1, &json!("")));
    for query in ["reason=bad", "state=bad", "kind=bad", "limit=0"] {
        world.get(&format!("/dispatch/dlq?{query}"), PLANNER).await.refused(400, "malformed-request");
    }
}

#[tokio::test]
async fn a_letter_tells_where_it_died_and_where_it_went() {
    let world = World::new().await;
    world.pushed("WH-1").await;
    let id = world.dead("cid-1", "WH-1").await;
    world.polled("WH-1").await;
    let sent = world.post(&format!("/dispatch/dlq/{id}/redrive"), PLANNER, &json!({})).await.is(200).json;
    let found = world.get(&format!("/dispatch/dlq/{id}"), PLANNER).await.is(200).json;
    for letter in [sent, found] {
        assert_eq!((&letter["lane"], &letter["seq"]), (&json!("fgai-wms:WH-1"), &json!(1)), "{letter}");
        let decided = &letter["decided"];
        assert_eq!((&decided["lane"], &decided["seq"]), (&json!("fgai-wms:poll:dev-wes"), &json!(1)), "{letter}");
    }
}

#[tokio::test]
async fn a_word_on_a_letter_may_be_repeated_but_not_turned() {
    let world = World::new().await;
    world.pushed("WH-1").await;
    let redriven = world.dead("cid-1", "WH-1").await;
    for replay in [false, true] {
        let path = format!("/dispatch/dlq/{redriven}/redrive");
        let answer = world.ask(http::Method::POST, &path, PLANNER, "").await.is(200);
        assert_eq!((&answer.json["state"], &answer.json["replay"]), (&json!("redriven"), &json!(replay)));
        assert_eq!(answer.json["decided"]["seq"], 2);
        assert_eq!(answer.header("idempotency-replayed"), replay.then_some("true"));
    }
    let why = json!({"why": "obsolete"});
    let refused = world.post(&format!("/dispatch/dlq/{redriven}/discard"), PLANNER, &why).await;
    assert_eq!(refused.refused(409, "already-decided").json["state"], "redriven");
    assert_eq!(world.get("/dispatch/lanes/fgai-wms:WH-1", PLANNER).await.is(200).json["tail"], 2);

    world.pushed("WH-2").await;
    let discarded = world.dead("cid-2", "WH-2").await;
    world.post(&format!("/dispatch/dlq/{discarded}/discard"), PLANNER, &json!({})).await.is(400);
    for replay in [false, true] {
        let answer = world.post(&format!("/dispatch/dlq/{discarded}/discard"), ADMIN, &why).await.is(200);
        assert_eq!((&answer.json["state"], &answer.json["replay"]), (&json!("discarded"), &json!(replay)));
        assert_eq!(answer.json["decided"]["by"], "dev-admin");
    }
    world.post(&format!("/dispatch/dlq/{discarded}/redrive"), VIEWER, &json!({})).await.refused(403, "forbidden");
    world.post(&format!("/dispatch/dlq/{discarded}/redrive"), OTHER, &json!({})).await.is(404);
    world
        .post(&format!("/dispatch/dlq/{discarded}/redrive"), PLANNER, &json!({}))
        .await
        .refused(409, "already-decided");
}

#[tokio::test]
async fn a_cancelled_or_forgotten_event_is_not_sent_again() {
    let world = World::new().await;
    world.pushed("WH-1").await;
    let (cancelled, old) = (world.dead("cid-1", "WH-1").await, world.dead("cid-2", "WH-1").await);
    world.publish(&cancel("c-1", "cid-1", "WH-1")).await.is(202);
    let redrive = |id: &str| format!("/dispatch/dlq/{id}/redrive");
    let force = json!({"force": {"why": "the floor never saw it"}});
    for body in [json!({}), force.clone()] {
        let refused = world.post(&redrive(&cancelled), PLANNER, &body).await.refused(409, "letter-cancelled");
        assert_eq!(refused.json["cancelled_by"], "c-1");
    }
    world.clock.pass(7 * DAY_MS + 1);
    let refused = world.post(&redrive(&old), PLANNER, &json!({})).await.refused(409, "past-retention");
    assert_eq!(refused.json["receiver_retention_ms"], 7 * DAY_MS);
    world.post(&redrive(&old), PLANNER, &json!({"force": true})).await.refused(400, "malformed-request");
    world.post(&redrive(&old), PLANNER, &json!({"force": {}})).await.refused(400, "malformed-request");
    let preview = json!({"filter": {}, "preview": true});
    let told = world.post("/dispatch/dlq/redrive", PLANNER, &preview).await.is(200).json;
    let codes: Vec<_> = told["refused"].as_array().unwrap().iter().map(|refused| refused["code"].clone()).collect();
    assert_eq!((&told["would_redrive"], codes), (&json!(0), vec![json!("letter-cancelled"), json!("past-retention")]));
    let forced = world.post(&redrive(&old), PLANNER, &force).await.is(200);
    assert_eq!(forced.json["decided"]["why"], "the floor never saw it");
}

#[tokio::test]
async fn many_letters_go_again_in_steps_and_none_twice() {
    let world = World::new().await;
    world.pushed("WH-1").await;
    world.pushed("WH-2").await;
    let mut letters = Vec::new();
    for index in 0..5 {
        letters.push(world.dead(&format!("cid-{index}"), "WH-1").await);
    }
    let elsewhere = world.dead("elsewhere", "WH-2").await;
    world.publish(&cancel("c-3", "cid-3", "WH-1")).await.is(202);
    let ask = |more: Value| {
        let mut body = json!({"filter": {"warehouse_id": "WH-1"}, "limit": 2, "rate_per_second": 1_000});
        body.as_object_mut().unwrap().extend(more.as_object().unwrap().clone());
        body
    };
    let many = "/dispatch/dlq/redrive";
    let preview = world.post(many, PLANNER, &ask(json!({"preview": true, "limit": 100}))).await.is(200).json;
    assert_eq!((&preview["would_redrive"], &preview["next_cursor"]), (&json!(4), &json!("")));
    assert_eq!(preview["refused"][0]["id"], json!(letters[3]));
    assert_eq!(ids(&world.get("/dispatch/dlq", PLANNER).await.is(200).json).len(), 6);

    let (mut sent, mut refused, mut after, mut steps) = (0, 0, json!(""), 0);
    loop {
        let step = world.post(many, PLANNER, &ask(json!({"after": after}))).await.is(200).json;
        sent += step["redriven"].as_u64().unwrap();
        refused += step["refused"].as_array().unwrap().len();
        steps += 1;
        after = step["next_cursor"].clone();
        if after == "" {
            break;
        }
    }
    assert_eq!((sent, refused, steps), (4, 1, 3));
    let left = world.get("/dispatch/dlq", PLANNER).await.is(200).json;
    let mut left = ids(&left);
    left.sort();
    assert_eq!(left, ["cid-3", "elsewhere"]);

    let named = json!({"ids": [letters[0], elsewhere, "no-such"]});
    let told = world.post(many, PLANNER, &named).await.is(200).json;
    assert_eq!((&told["redriven"], &told["replayed"]), (&json!(1), &json!(1)));
    assert_eq!(told["refused"][0]["code"], "unknown-dead-letter");
    for body in [
        json!({}),
        json!({"filter": {}, "ids": []}),
        json!({"filter": {"warehouse": "WH-1"}}),
        json!({"filter": {"state": "discarded"}}),
        json!({"filter": {}, "limt": 5}),
        json!({"filter": {}, "limit": 0}),
        json!({"filter": {}, "rate_per_second": 0}),
        json!({"filter": {}, "preview": 1}),
        json!({"ids": "all"}),
        json!({"ids": [7]}),
    ] {
        let answer = world.post(many, PLANNER, &body).await;
        assert_eq!((answer.status, &answer.json["code"]), (400, &json!("malformed-request")), "{body}");
    }
    world.post(many, VIEWER, &json!({"filter": {}})).await.refused(403, "forbidden");
}
