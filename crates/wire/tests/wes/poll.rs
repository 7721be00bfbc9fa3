//! Polling: pages in order, a position that only an acknowledgement moves, and cursors that nobody can make up.

use fencepost_kernel::{LaneId, Tenant};
use fencepost_testkit::until_async;
use serde_json::{Value, json};

use super::world::{ADMIN, EXECUTOR, OTHER, PLANNER, PLANNER_ID, World, event};

const EMPTY: &str = r#"{"events":[],"next_cursor":""}"#;

fn ids(page: &Value) -> Vec<&str> {
    page["events"].as_array().unwrap().iter().map(|event| event["correlation_id"].as_str().unwrap()).collect()
}

async fn page(world: &World, query: &str) -> Value {
    world.get(&format!("/dispatch/pending?{query}"), EXECUTOR).await.is(200).json
}

async fn ack(world: &World, cursor: &Value) -> super::world::Answer {
    world.post("/dispatch/ack", EXECUTOR, &json!({"cursor": cursor})).await
}

async fn stocked(events: usize) -> World {
    let world = World::new().await;
    world.polled("WH-1").await;
    for index in 1..=events {
        world.publish(&event(&format!("cid-{index}"), "WH-1")).await.is(202);
    }
    world
}

#[tokio::test]
async fn a_lane_is_read_page_by_page_and_only_an_ack_moves_its_position() {
    let world = stocked(5).await;
    let first = page(&world, "limit=2").await;
    assert_eq!(ids(&first), ["cid-1", "cid-2"]);
    assert_eq!(page(&world, "limit=2").await, first);
    // Reading on without an ack.
    let second = page(&world, &format!("limit=2&since={}", first["next_cursor"].as_str().unwrap())).await;
    assert_eq!(ids(&second), ["cid-3", "cid-4"]);
    assert_eq!(page(&world, "limit=2&since=").await, first);

    let acked = ack(&world, &second["next_cursor"]).await.is(200);
    assert_eq!(acked.json, json!({"acked": second["next_cursor"]}));
    // A position before the acked one means the acked one.
    for since in [String::new(), first["next_cursor"].as_str().unwrap().to_owned()] {
        assert_eq!(ids(&page(&world, &format!("since={since}")).await), ["cid-5"]);
    }
    for earlier in [&first["next_cursor"], &second["next_cursor"]] {
        let again = ack(&world, earlier).await.is(200);
        assert_eq!(
            (again.json["acked"].clone(), again.header("idempotency-replayed")),
            (second["next_cursor"].clone(), Some("true"))
        );
    }
    ack(&world, &json!("")).await.is(200);
    let last = page(&world, "").await;
    ack(&world, &last["next_cursor"]).await.is(200);
    let empty = world.get("/dispatch/pending", EXECUTOR).await.is(200);
    assert_eq!(empty.text, EMPTY);
    let since = last["next_cursor"].as_str().unwrap();
    assert_eq!(world.get(&format!("/dispatch/pending?since={since}"), EXECUTOR).await.is(200).text, EMPTY);
}

#[tokio::test]
async fn a_cursor_that_was_not_served_to_the_caller_is_unknown() {
    let world = stocked(2).await;
    let cursor = page(&world, "").await["next_cursor"].as_str().unwrap().to_owned();
    let mut damaged = cursor.clone();
    damaged.replace_range(60..61, if &cursor[60..61] == "0" { "1" } else { "0" });
    let elsewhere = world.dispatch.cursor(LaneId::executor(&Tenant::new(PLANNER_ID), "another"), 0, 1);
    for bad in [damaged, elsewhere, cursor.to_uppercase(), "1".to_owned(), format!("{cursor}0")] {
        ack(&world, &json!(bad)).await.refused(404, "unknown-cursor");
        world.get(&format!("/dispatch/pending?since={bad}"), EXECUTOR).await.refused(404, "unknown-cursor");
    }
    let other = format!("/dispatch/pending?planner_id=other-wms&since={cursor}");
    world.get(&other, EXECUTOR).await.refused(404, "unknown-cursor");
    let own = LaneId::executor(&Tenant::new(PLANNER_ID), "dev-wes");
    let epoch = world.dispatch.lane(own).await.unwrap().unwrap().lane.owner.epoch;
    let ahead = world.dispatch.cursor(own, epoch, 3);
    ack(&world, &json!(ahead)).await.refused(409, "cursor-ahead");
    world.get(&format!("/dispatch/pending?since={ahead}"), EXECUTOR).await.refused(409, "cursor-ahead");
    for body in [json!({}), json!({"cursor": 1}), json!([])] {
        world.post("/dispatch/ack", EXECUTOR, &body).await.refused(400, "malformed-request");
    }
    assert_eq!(ids(&page(&world, "").await), ["cid-1", "cid-2"]);
}

#[tokio::test]
async fn only_executors_poll_and_within_bounds() {
    let world = stocked(1).await;
    for token in [PLANNER, ADMIN, "dev-partner"] {
        world.get("/dispatch/pending", token).await.refused(403, "forbidden");
        world.post("/dispatch/ack", token, &json!({"cursor": ""})).await.refused(403, "forbidden");
    }
    for query in ["limit=0", "limit=1001", "limit=-1", "limit=many", "wait=31", "wait=-1", "wait=1s"] {
        let answer = world.get(&format!("/dispatch/pending?{query}"), EXECUTOR).await;
        answer.refused(400, "malformed-request");
    }
    assert_eq!(ids(&page(&world, "limit=1000&wait=30&colour=red").await), ["cid-1"]);
}

#[tokio::test]
async fn an_executor_of_several_planners_names_one() {
    let world = stocked(1).await;
    assert_eq!(ids(&page(&world, "").await), ["cid-1"]);
    let body = json!({"executor_id": "dev-wes", "poll": {}});
    world.put("/warehouses/WH-1/transport", OTHER, &body).await.is(200);
    let mut foreign = event("theirs", "WH-1");
    foreign["planner_id"] = json!("other-wms");
    world.post("/dispatch/events", OTHER, &foreign).await.is(202);
    world.get("/dispatch/pending", EXECUTOR).await.refused(400, "malformed-request");
    assert_eq!(ids(&page(&world, "planner_id=fgai-wms").await), ["cid-1"]);
    let theirs = page(&world, "planner_id=other-wms").await;
    assert_eq!(ids(&theirs), ["theirs"]);
    ack(&world, &theirs["next_cursor"]).await.is(200);
    assert_eq!(ids(&page(&world, "planner_id=fgai-wms").await), ["cid-1"]);
    assert_eq!(world.get("/dispatch/pending?planner_id=nobody", EXECUTOR).await.is(200).text, EMPTY);
}

#[tokio::test]
async fn a_waiting_poller_is_woken_by_a_publication() {
    let world = World::new().await;
    // Before there is a lane.
    let (first, _) = tokio::join!(page(&world, "wait=30&planner_id=fgai-wms"), async {
        world.polled("WH-1").await;
        world.publish(&event("cid-1", "WH-1")).await.is(202)
    });
    assert_eq!(ids(&first), ["cid-1"]);
    ack(&world, &first["next_cursor"]).await.is(200);
    // And after.
    let (second, _) = tokio::join!(page(&world, "wait=30"), async {
        tokio::task::yield_now().await;
        world.publish(&event("cid-2", "WH-1")).await.is(202)
    });
    assert_eq!(ids(&second), ["cid-2"]);
}

#[tokio::test]
async fn a_paused_lane_hands_nothing_out() {
    let world = stocked(1).await;
    let act = |act: &str| format!("/dispatch/lanes/fgai-wms:poll:dev-wes/{act}");
    world.post(&act("pause"), PLANNER, &json!({"why": "stocktaking"})).await.is(200);
    assert_eq!(world.get("/dispatch/pending", EXECUTOR).await.is(200).text, EMPTY);
    world.post(&act("resume"), PLANNER, &json!({})).await.is(200);
    assert_eq!(ids(&page(&world, "").await), ["cid-1"]);
}

#[tokio::test]
async fn a_waiting_poller_gets_nothing_of_a_lane_that_is_paused_meanwhile() {
    let world = stocked(1).await;
    let first = page(&world, "").await;
    ack(&world, &first["next_cursor"]).await.is(200);
    let act = |act: &str| format!("/dispatch/lanes/fgai-wms:poll:dev-wes/{act}");
    let (page, ()) = tokio::join!(page(&world, "wait=30"), async {
        until_async("it waits", async || world.dispatch.counts().polling > 0).await;
        world.post(&act("pause"), PLANNER, &json!({"why": "stocktaking"})).await.is(200);
        world.publish(&event("cid-2", "WH-1")).await.is(202);
        // An event that was never handed out may be skipped unseen.
        world.post(&act("skip"), PLANNER, &json!({"seq": 2})).await.is(200);
        world.publish(&event("cid-3", "WH-1")).await.is(202);
        world.post(&act("resume"), PLANNER, &json!({})).await.is(200);
    });
    assert_eq!(ids(&page), ["cid-3"]);
}

#[tokio::test]
async fn a_page_of_large_events_ends_before_it_is_too_large() {
    let world = World::new().await;
    world.polled("WH-1").await;
    for index in 0..40 {
        let mut large = event(&format!("cid-{index:02}"), "WH-1");
        large["fill"] = json!("x".repeat(250_000));
        world.publish(&large).await.is(202);
    }
    let (mut seen, mut since) = (Vec::new(), String::new());
    loop {
        let answer = world.get(&format!("/dispatch/pending?limit=1000&since={since}"), EXECUTOR).await.is(200);
        assert!(answer.text.len() < 9 << 20);
        seen.extend(ids(&answer.json).into_iter().map(str::to_owned));
        since = answer.json["next_cursor"].as_str().unwrap().to_owned();
        if since.is_empty() {
            break;
        }
    }
    assert_eq!(seen, (0..40).map(|index| format!("cid-{index:02}")).collect::<Vec<_>>());
}
