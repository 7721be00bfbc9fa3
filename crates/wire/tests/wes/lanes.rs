//! Lanes: their states, their visibility, and people's acts on them.

use std::sync::atomic::Ordering;

use serde_json::{Value, json};

use super::world::{ADMIN, EXECUTOR, NARROW, OTHER, PLANNER, VIEWER, World, event};

fn names(list: &Value) -> Vec<&str> {
    list["items"].as_array().unwrap().iter().map(|lane| lane["lane"].as_str().unwrap()).collect()
}

#[tokio::test]
async fn a_lane_says_how_it_stands_and_why() {
    let world = World::new().await;
    world.polled("WH-1").await;
    world.pushed("WH-2").await;
    world.publish(&event("cid-1", "WH-1")).await.is(202);
    world.publish(&event("cid-2", "WH-2")).await.is(202);
    let lane = world.get("/dispatch/lanes/fgai-wms:poll:dev-wes", PLANNER).await.is(200).json;
    assert_eq!((&lane["state"], &lane["transport"]), (&json!("waiting"), &json!("poll")));
    assert_eq!((&lane["tail"], &lane["settled"], &lane["backlog"]), (&json!(1), &json!(0), &json!(1)));
    assert_eq!((&lane["executor_id"], &lane["planner_id"]), (&json!("dev-wes"), &json!("fgai-wms")));

    let lane = world.lane_where("fgai-wms:WH-2", |lane| lane["state"] == "retrying").await;
    assert_eq!((&lane["transport"], &lane["warehouse_id"]), (&json!("webhook"), &json!("WH-2")));
    let head = &lane["head"];
    assert_eq!((&head["seq"], &head["attempts"], &head["last_status"]), (&json!(1), &json!(1), &json!(503)));
    assert_eq!(
        (&head["last_answer"], &head["first_attempt_at"]),
        (&json!("not now"), &json!("2026-05-28T20:26:40.000Z"))
    );
    assert!(head["next_attempt_at"].as_str() > head["first_attempt_at"].as_str());

    world.out.open.store(true, Ordering::SeqCst);
    world.clock.pass(60_000);
    // Moving the hand wakes nobody: a person's word does.
    world.post("/dispatch/lanes/fgai-wms:WH-2/pause", PLANNER, &json!({"why": "look"})).await.is(200);
    world.post("/dispatch/lanes/fgai-wms:WH-2/resume", PLANNER, &json!({})).await.is(200);
    let lane = world.lane_where("fgai-wms:WH-2", |lane| lane["state"] == "idle").await;
    assert_eq!((&lane["settled"], lane.get("head")), (&json!(1), None));
}

#[tokio::test]
async fn lanes_are_found_by_warehouse_and_by_executor() {
    let world = World::new().await;
    world.polled("WH-1").await;
    for warehouse in ["WH-2", "WH-3"] {
        world.pushed(warehouse).await;
    }
    for warehouse in ["WH-1", "WH-2", "WH-3"] {
        world.publish(&event(&format!("cid-{warehouse}"), warehouse)).await.is(202);
    }
    for (query, found) in [
        ("warehouse_id=WH-2", &["fgai-wms:WH-2"][..]),
        ("executor_id=dev-wes", &["fgai-wms:poll:dev-wes"]),
        ("warehouse_id=WH-2&executor_id=dev-wes", &[]),
        ("executor_id=dev-wes&state=waiting", &["fgai-wms:poll:dev-wes"]),
        ("warehouse_id=WH-2&state=paused", &[]),
        ("warehouse_id=WH-9", &[]),
    ] {
        let page = world.get(&format!("/dispatch/lanes?{query}"), PLANNER).await.is(200).json;
        assert_eq!(names(&page), found, "{query}");
    }
}

#[tokio::test]
async fn lanes_are_listed_in_pages_and_by_state() {
    let world = World::new().await;
    for warehouse in 0..7 {
        world.pushed(&format!("WH-{warehouse}")).await;
        world.publish(&event(&format!("cid-{warehouse}"), &format!("WH-{warehouse}"))).await.is(202);
    }
    let pause = json!({"why": "stocktaking"});
    world.post("/dispatch/lanes/fgai-wms:WH-3/pause", PLANNER, &pause).await.is(200);
    let (mut all, mut after) = (Vec::new(), String::new());
    loop {
        let page = world.get(&format!("/dispatch/lanes?limit=3&after={after}"), PLANNER).await.is(200).json;
        let found = names(&page);
        assert!(found.len() <= 3);
        all.extend(found.into_iter().map(str::to_owned));
        after = page["next_cursor"].as_str().unwrap().to_owned();
        if after.is_empty() {
            break;
        }
    }
    all.sort();
    assert_eq!(all, (0..7).map(|warehouse| format!("fgai-wms:WH-{warehouse}")).collect::<Vec<_>>());

    let paused = world.get("/dispatch/lanes?state=paused&limit=1", PLANNER).await.is(200).json;
    assert_eq!(names(&paused), ["fgai-wms:WH-3"]);
    let pause = &paused["items"][0]["paused"];
    assert_eq!((&pause["by"], &pause["why"]), (&json!("fgai-wms"), &json!("stocktaking")));
    for query in ["state=asleep", "limit=0", "limit=1001", "limit=x", "limit=1&limit=2"] {
        world.get(&format!("/dispatch/lanes?{query}"), PLANNER).await.refused(400, "malformed-request");
    }
    for cursor in ["after=zz", "since=zz"] {
        world.get(&format!("/dispatch/lanes?{cursor}"), PLANNER).await.refused(404, "unknown-cursor");
    }
    world.get("/dispatch/lanes?after=zz&since=yy", PLANNER).await.refused(400, "malformed-request");
    world.get("/dispatch/lanes?colour=red", PLANNER).await.is(200);
}

#[tokio::test]
async fn a_lane_is_seen_by_its_planner_and_by_those_who_see_all() {
    let world = World::new().await;
    world.pushed("WH-1").await;
    world.publish(&event("cid-1", "WH-1")).await.is(202);
    let lane_id = world.get("/dispatch/lanes/fgai-wms:WH-1", PLANNER).await.is(200).json["lane_id"].clone();
    let lane_id = lane_id.as_str().unwrap();
    for token in [ADMIN, VIEWER, PLANNER] {
        assert_eq!(names(&world.get("/dispatch/lanes", token).await.is(200).json), ["fgai-wms:WH-1"]);
        world.get(&format!("/dispatch/lanes/{lane_id}"), token).await.is(200);
        world.get("/dispatch/lanes/fgai-wms:WH-1?planner_id=fgai-wms", token).await.is(200);
    }
    assert!(names(&world.get("/dispatch/lanes?planner_id=other-wms", ADMIN).await.is(200).json).is_empty());
    // As everywhere else, an admin may say `tenant`.
    assert!(names(&world.get("/dispatch/lanes?tenant=other-wms", ADMIN).await.is(200).json).is_empty());
    world.get("/dispatch/lanes?tenant=a&planner_id=b", ADMIN).await.refused(400, "malformed-request");
    let by_tenant = |tenant: &str| json!({"why": "a look", "tenant": tenant});
    let act = "/dispatch/lanes/fgai-wms:WH-1/pause";
    world.post(act, ADMIN, &by_tenant("fgai-wms")).await.is(200);
    world.post(act, ADMIN, &by_tenant("other-wms")).await.refused(404, "unknown-lane");
    for token in [OTHER, NARROW] {
        assert!(names(&world.get("/dispatch/lanes", token).await.is(200).json).is_empty());
        for lane in [lane_id, "fgai-wms:WH-1"] {
            world.get(&format!("/dispatch/lanes/{lane}"), token).await.refused(404, "unknown-lane");
            let pause = json!({"why": "mischief"});
            let act = format!("/dispatch/lanes/{lane}/pause");
            world.post(&act, token, &pause).await.refused(404, "unknown-lane");
        }
        world.get("/dispatch/lanes?planner_id=fgai-wms", token).await.refused(403, "forbidden");
    }
    world.get("/dispatch/lanes", EXECUTOR).await.refused(403, "forbidden");
    let pause = format!("/dispatch/lanes/{lane_id}/pause");
    world.post(&pause, VIEWER, &json!({"why": "curiosity"})).await.refused(403, "forbidden");
    world.post(&pause, ADMIN, &json!({"why": "night"})).await.is(200);
}

#[tokio::test]
async fn a_lane_of_every_warehouse_is_acted_on_by_those_who_may_act_in_every_one() {
    let world = World::new().await;
    let poll = json!({"executor_id": "dev-wes", "poll": {}});
    world.put("/warehouses/WH-1/transport", NARROW, &poll).await.is(200);
    let mut event = event("cid-1", "WH-1");
    event["planner_id"] = json!("narrow-wms");
    world.post("/dispatch/events", NARROW, &event).await.is(202);
    let lane = world.get("/dispatch/lanes/narrow-wms:poll:dev-wes", NARROW).await.is(200).json["lane_id"].clone();
    let act = |act: &str| format!("/dispatch/lanes/{}/{act}", lane.as_str().unwrap());
    for (name, body) in [("pause", json!({"why": "w"})), ("resume", json!({})), ("skip", json!({"seq": 1}))] {
        world.post(&act(name), NARROW, &body).await.refused(403, "forbidden");
    }
    let letter = world.post(&act("skip"), ADMIN, &json!({"seq": 1})).await.is(200).json["dead_letter"].clone();
    // A letter is of one warehouse.
    let redrive = format!("/dispatch/dlq/{}/redrive", letter.as_str().unwrap());
    world.post(&redrive, NARROW, &json!({})).await.is(200);
}

#[tokio::test]
async fn a_persons_act_on_a_lane_may_be_repeated() {
    let world = World::new().await;
    world.pushed("WH-1").await;
    for id in ["cid-1", "cid-2"] {
        world.publish(&event(id, "WH-1")).await.is(202);
    }
    let act = |act: &str| format!("/dispatch/lanes/fgai-wms:WH-1/{act}");
    world.post(&act("pause"), PLANNER, &json!({})).await.refused(400, "malformed-request");
    for replay in [false, true] {
        let paused = world.post(&act("pause"), PLANNER, &json!({"why": "stocktaking"})).await.is(200);
        assert_eq!((&paused.json["paused"], &paused.json["replay"]), (&json!(true), &json!(replay)));
        assert_eq!(paused.header("idempotency-replayed"), replay.then_some("true"));
    }
    for body in [json!({}), json!({"seq": 0}), json!({"seq": "1"})] {
        world.post(&act("skip"), PLANNER, &body).await.refused(400, "malformed-request");
    }
    let refused = world.post(&act("skip"), PLANNER, &json!({"seq": 2})).await.refused(409, "not-head");
    assert_eq!(refused.json["settled"], 0);
    for replay in [false, true] {
        let skipped = world.post(&act("skip"), PLANNER, &json!({"seq": 1})).await.is(200);
        assert_eq!((&skipped.json["settled"], &skipped.json["replay"]), (&json!(1), &json!(replay)));
    }
    for replay in [false, true] {
        let resumed = world.ask(http::Method::POST, &act("resume"), PLANNER, "").await.is(200);
        assert_eq!((&resumed.json["paused"], &resumed.json["replay"]), (&json!(false), &json!(replay)));
    }
    let lane = world.get("/dispatch/lanes/fgai-wms:WH-1", PLANNER).await.is(200).json;
    assert_eq!(lane["head"]["seq"], 2);
}
