//! Publishing: once, in order, byte for byte, by planners only.

use http::Method;
use serde_json::json;

use super::world::{ADMIN, EXECUTOR, NARROW, OTHER, PLANNER, VIEWER, World, cancel, event};

const EVENTS: &str = "/dispatch/events";

#[tokio::test]
async fn a_repeated_event_keeps_its_position() {
    let world = World::new().await;
    world.polled("WH-1").await;
    let first = world.publish(&event("cid-1", "WH-1")).await.is(202);
    let lane_id = world.get("/dispatch/lanes/fgai-wms:poll:dev-wes", PLANNER).await.is(200).json["lane_id"].clone();
    let mut told =
        json!({"accepted": true, "replay": false, "lane": "fgai-wms:poll:dev-wes", "lane_id": lane_id, "seq": 1});
    assert_eq!(first.json, told);
    assert_eq!(first.header("idempotency-replayed"), None);
    assert_eq!(first.header("idempotency-expires"), Some("2026-06-27T20:26:40.000Z"));
    assert_eq!(world.publish(&event("cid-2", "WH-1")).await.is(202).json["seq"], 2);

    let again = world.publish(&event("cid-1", "WH-1")).await.is(200);
    told["replay"] = json!(true);
    assert_eq!(again.json, told);
    assert_eq!(again.header("idempotency-replayed"), Some("true"));
    assert_eq!(again.header("idempotency-expires"), first.header("idempotency-expires"));
    assert_eq!(world.publish(&event("cid-3", "WH-1")).await.is(202).json["seq"], 3);
}

#[tokio::test]
async fn other_content_under_a_known_id_is_a_conflict_with_a_diff() {
    let world = World::new().await;
    world.polled("WH-1").await;
    world.publish(&event("cid-1", "WH-1")).await.is(202);
    let mut other = event("cid-1", "WH-1");
    other["meta"]["priority"] = json!("HIGH");
    let refused = world.publish(&other).await.refused(409, "conflict");
    assert_eq!(refused.json["diff"], json!([{"op": "replace", "path": "/meta/priority", "value": "HIGH"}]));
    assert!(refused.json["explain"].as_str().unwrap().starts_with("/console/keys/"), "{}", refused.json);
    assert_eq!(world.publish(&event("cid-2", "WH-1")).await.is(202).json["seq"], 2);
}

#[tokio::test]
async fn without_a_transport_nothing_is_published_and_the_id_stays_free() {
    let world = World::new().await;
    world.publish(&event("cid-1", "WH-1")).await.refused(422, "no-transport");
    world.polled("WH-1").await;
    world.publish(&event("cid-1", "WH-1")).await.is(202);
}

#[tokio::test]
async fn only_planners_publish_and_only_for_their_warehouses() {
    let world = World::new().await;
    world.polled("WH-1").await;
    for token in [EXECUTOR, ADMIN, VIEWER, "dev-partner"] {
        world.post(EVENTS, token, &event("cid-1", "WH-1")).await.refused(403, "forbidden");
    }
    world.post(EVENTS, "nobody", &event("cid-1", "WH-1")).await.refused(401, "unauthorized");
    let mut foreign = event("cid-1", "WH-2");
    foreign["planner_id"] = json!("narrow-wms");
    world.post(EVENTS, NARROW, &foreign).await.refused(403, "forbidden");
    foreign["warehouse_id"] = json!("WH-1");
    // Its own WH-1, which is not that of the other planner.
    world.post(EVENTS, NARROW, &foreign).await.refused(422, "no-transport");
    let mut own = event("cid-1", "WH-1");
    world.post(EVENTS, OTHER, &own).await.refused(403, "forbidden");
    world.publish(&own).await.is(202);
    own["planner_id"] = json!("other-wms");
    world.post(EVENTS, OTHER, &own).await.refused(422, "no-transport");
}

#[tokio::test]
async fn the_bytes_that_were_published_are_the_bytes_that_are_handed_out() {
    let world = World::new().await;
    world.polled("WH-1").await;
    let odd = |id: &str| {
        format!(
            "{{\"kind\" : \"TRANSFER_IN_EXPECTED\",\t\"correlation_id\":\"{id}\", \"warehouse_id\":\"WH-1\",\r\n \
             \"planner_id\":\"fgai-wms\", \"document_ref\":{{\"id\":\"T\\u002d1\",\"type\":\"TRANSFER\"}}, \"qty\":1.50e+1, \"z\":null}}"
        )
    };
    let (alone, first, second) = (format!(" \n{}\n", odd("cid-1")), odd("cid-2"), odd("cid-3"));
    world.ask(Method::POST, EVENTS, PLANNER, alone.clone()).await.is(202);
    let batch = format!("{{ \"events\" : [ {first} ,\n{second}\t] }}");
    world.ask(Method::POST, EVENTS, PLANNER, batch).await.is(202);
    let page = world.get("/dispatch/pending", EXECUTOR).await.is(200);
    let text = std::str::from_utf8(&page.text).unwrap();
    let events = text.strip_prefix("{\"events\":[").unwrap().split_once("],\"next_cursor\"").unwrap().0;
    assert_eq!(events, [alone, first, second].join(","));
}

#[tokio::test]
async fn a_batch_is_answered_event_by_event_in_its_order() {
    let world = World::new().await;
    world.polled("WH-1").await;
    world.publish(&event("known", "WH-1")).await.is(202);
    world.publish(&event("changed", "WH-1")).await.is(202);
    let other_of = |id| {
        let mut other = event(id, "WH-1");
        other["meta"]["priority"] = json!("HIGH");
        other
    };
    let batch = json!({"events": [
        event("new-1", "WH-1"),
        event("known", "WH-1"),
        other_of("changed"),
        event("nowhere", "WH-2"),
        cancel("c-1", "never", "WH-1"),
        event("new-2", "WH-1"),
    ]});
    let answer = world.publish(&batch).await.is(202);
    assert_eq!(answer.header("idempotency-replayed"), None);
    let results = answer.json["results"].as_array().unwrap();
    let lane = "fgai-wms:poll:dev-wes";
    let accepted = |index: usize, id: &str, replay: bool, seq: u64| {
        let result = &results[index];
        assert_eq!(result["correlation_id"], id, "{result}");
        assert_eq!(result["accepted"], true, "{result}");
        assert_eq!((&result["replay"], &result["lane"], &result["seq"]), (&json!(replay), &json!(lane), &json!(seq)));
    };
    let refused = |index: usize, id: &str, code: &str| {
        let result = &results[index];
        assert_eq!(result["correlation_id"], id, "{result}");
        assert_eq!((&result["accepted"], &result["code"]), (&json!(false), &json!(code)), "{result}");
        assert!(result["detail"].is_string());
    };
    assert_eq!(results.len(), 6);
    accepted(0, "new-1", false, 3);
    accepted(1, "known", true, 1);
    refused(2, "changed", "conflict");
    assert_eq!(results[2]["diff"][0]["path"], "/meta/priority");
    refused(3, "nowhere", "no-transport");
    refused(4, "c-1", "unknown-original");
    accepted(5, "new-2", false, 4);

    let replays = json!({"events": [event("new-2", "WH-1"), event("new-1", "WH-1")]});
    let answer = world.publish(&replays).await.is(200);
    assert_eq!(answer.json["results"][0]["seq"], 4);
    assert_eq!(answer.header("idempotency-replayed"), Some("true"));
    assert!(answer.header("idempotency-expires").is_some());

    // Where nothing is published, that is what the status says.
    let none = json!({"events": [other_of("changed"), event("nowhere", "WH-2")]});
    let answer = world.publish(&none).await.refused(409, "conflict");
    let errors = answer.json["errors"].as_array().unwrap();
    assert_eq!((&errors[0]["index"], &errors[0]["code"]), (&json!(0), &json!("conflict")), "{errors:?}");
    assert_eq!((&errors[1]["index"], &errors[1]["code"]), (&json!(1), &json!("no-transport")), "{errors:?}");
}

#[tokio::test]
async fn events_that_depend_on_each_other_are_not_taken_in_one_request() {
    let world = World::new().await;
    world.polled("WH-1").await;
    world.publish(&event("known", "WH-1")).await.is(202);
    let batch = json!({"events": [
        cancel("c-1", "new-1", "WH-1"),
        event("new-1", "WH-1"),
        event("new-1", "WH-1"),
        event("new-2", "WH-1"),
        cancel("c-2", "known", "WH-1"),
        cancel("c-2", "new-2", "WH-1"),
    ]});
    let refused = world.publish(&batch).await.refused(400, "malformed-request");
    let errors = refused.json["errors"].as_array().unwrap();
    let told: Vec<_> = errors.iter().map(|error| (error["index"].as_u64(), error["pointer"].as_str())).collect();
    let (repeats, cancels) = (Some("/correlation_id"), Some("/cancels_correlation_id"));
    assert_eq!(told, [(Some(0), cancels), (Some(2), repeats), (Some(5), repeats)]);
    for error in errors {
        assert!(error["detail"].as_str().unwrap().ends_with("publish it in a request of its own"), "{error}");
    }
    assert_eq!(world.publish(&event("new-1", "WH-1")).await.is(202).json["seq"], 2, "none was published");
    let apart = json!({"events": [event("new-2", "WH-1"), cancel("c-1", "known", "WH-1")]});
    world.publish(&apart).await.is(202);
}

#[tokio::test]
async fn the_fences_of_publications_are_read_by_anybody_and_written_by_publishing_only() {
    let world = World::new().await;
    world.polled("WH-1").await;
    let fence = |more: serde_json::Value| {
        let mut body = json!({"scope": "WES_DISPATCH", "key": {"correlation_id": "cid-1"}});
        body.as_object_mut().unwrap().extend(more.as_object().unwrap().clone());
        body
    };
    let receipt = json!({"token": 1, "effect_id": "e", "receipt": {"lane_id": "0".repeat(48), "seq": 7}});
    for (path, more) in [
        ("/v1/fences/claim", json!({})),
        ("/v1/fences/again", json!({"seq": 1})),
        ("/v1/fences/seal", receipt.clone()),
        ("/v1/fences/renew", json!({"token": 1, "lease_ms": 1})),
        ("/v1/fences/release", json!({"token": 1})),
    ] {
        let refused = world.ask_at(Method::POST, path, PLANNER, fence(more).to_string()).await;
        let refused = refused.refused(403, "forbidden");
        assert!(refused.json["detail"].as_str().unwrap().starts_with("WES_DISPATCH is sealed by Fencepost"), "{path}");
    }
    let resolve = fence(json!({"tenant": "fgai-wms", "outcome": "released", "why": "mischief"})).to_string();
    let refused = world.ask_at(Method::POST, "/admin/idempotency/resolve", ADMIN, resolve).await;
    refused.refused(403, "forbidden");
    let alias = fence(json!({})).to_string();
    world.ask_at(Method::PUT, "/v1/aliases/mine", PLANNER, alias).await.refused(403, "forbidden");
    let commands = json!({"commands": [fence(json!({"op": "claim"}))]}).to_string();
    let batch = world.ask_at(Method::POST, "/v1/fences/batch", PLANNER, commands).await.is(200);
    assert_eq!(batch.json["results"][0]["status"], 403);

    world.publish(&event("cid-1", "WH-1")).await.is(202);
    let lookup = "/admin/idempotency/lookup?scope=WES_DISPATCH&correlation_id=cid-1&tenant=fgai-wms";
    let found = world.ask_at(Method::GET, lookup, ADMIN, "").await.is(200);
    assert_eq!((&found.json["exists"], &found.json["state"]), (&json!(true), &json!("sealed")));
}

#[tokio::test]
async fn a_batch_with_a_wrong_event_is_refused_whole_and_names_each() {
    let world = World::new().await;
    world.polled("WH-1").await;
    let mut bad = event("cid-2", "WH-1");
    bad["kind"] = json!("NONE");
    let mut empty = event("cid-3", "WH-1");
    empty["routing"]["ops"] = json!([]);
    let batch = json!({"events": [event("cid-1", "WH-1"), empty, bad]});
    let answer = world.publish(&batch).await.refused(422, "invalid");
    let errors = answer.json["errors"].as_array().unwrap();
    let told: Vec<_> = errors.iter().map(|error| (&error["index"], &error["code"], &error["pointer"])).collect();
    let expected = [
        (&json!(1), &json!("invalid"), &json!("/routing/ops")),
        (&json!(2), &json!("malformed-request"), &json!("/kind")),
    ];
    assert_eq!(told, expected);
    assert_eq!(world.publish(&event("cid-1", "WH-1")).await.is(202).json["seq"], 1);

    let many: Vec<_> = (0..1_001).map(|_| json!({})).collect();
    for events in [json!({}), json!([]), json!(many)] {
        world.publish(&json!({"events": events})).await.refused(400, "malformed-request");
    }
}

#[tokio::test]
async fn a_cancellation_says_what_became_of_the_original() {
    let world = World::new().await;
    world.polled("WH-1").await;
    for id in ["read", "acked", "unread"] {
        world.publish(&event(id, "WH-1")).await.is(202);
    }
    let page = world.get("/dispatch/pending?limit=2", EXECUTOR).await.is(200);
    let first = world.get("/dispatch/pending?limit=1", EXECUTOR).await.is(200).json["next_cursor"].clone();
    world.post("/dispatch/ack", EXECUTOR, &json!({"cursor": first})).await.is(200);
    assert_eq!(page.json["events"].as_array().unwrap().len(), 2);
    for (original, fate) in [("read", "delivered"), ("acked", "in_flight"), ("unread", "undelivered")] {
        let told = world.publish(&cancel(&format!("c-{original}"), original, "WH-1")).await.is(202);
        assert_eq!(told.json["original"], fate, "{original}");
        let again = world.publish(&cancel(&format!("c-{original}"), original, "WH-1")).await.is(200);
        assert_eq!(again.json["original"], fate, "{original}");
    }
    world.pushed("WH-2").await;
    world.dead("given-up", "WH-2").await;
    let told = world.publish(&cancel("c-dead", "given-up", "WH-2")).await.is(202);
    assert_eq!(told.json["original"], "dead");
}
