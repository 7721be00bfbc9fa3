//! The rules of an envelope. A table: one change to a good event, and the refusal for it.

use serde_json::{Value, json};

use super::world::{PLANNER, World, cancel, event};

fn without(mut event: Value, pointer: &str) -> Value {
    let (parent, name) = pointer.rsplit_once('/').unwrap();
    event.pointer_mut(parent).unwrap().as_object_mut().unwrap().remove(name).unwrap();
    event
}

fn with(mut event: Value, pointer: &str, value: Value) -> Value {
    let (parent, name) = pointer.rsplit_once('/').unwrap();
    match event.pointer_mut(parent).unwrap() {
        Value::Array(items) => items[name.parse::<usize>().unwrap()] = value,
        parent => parent[name] = value,
    }
    event
}

#[tokio::test]
async fn a_mistake_is_named_by_its_pointer() {
    let world = World::new().await;
    world.polled("WH-1").await;
    let good = || event("cid-1", "WH-1");
    let long = |length: usize| Value::String("x".repeat(length));
    for pointer in [
        "/kind",
        "/correlation_id",
        "/planner_id",
        "/warehouse_id",
        "/document_ref",
        "/document_ref/type",
        "/document_ref/id",
        "/routing",
        "/routing/ops",
        "/routing/ops/0/op_id",
        "/routing/ops/1/kind",
        "/routing/ops/1/bom_deltas/0/sku",
        "/routing/ops/1/bom_deltas/0/qty",
    ] {
        let answer = world.publish(&without(good(), pointer)).await.refused(400, "malformed-request");
        assert_eq!(answer.json["pointer"], pointer, "{}", answer.json);
        let answer = world.publish(&with(good(), pointer, Value::Null)).await.refused(400, "malformed-request");
        assert_eq!(answer.json["pointer"], pointer, "{}", answer.json);
    }
    for (pointer, value, status, code) in [
        ("/kind", json!("SHIPPER_SHIPPED"), 400, "malformed-request"),
        ("/kind", json!("shipper_released"), 400, "malformed-request"),
        ("/correlation_id", json!(""), 400, "malformed-request"),
        ("/correlation_id", json!("two words"), 400, "malformed-request"),
        ("/correlation_id", json!("caf\u{e9}"), 400, "malformed-request"),
        ("/correlation_id", json!(7), 400, "malformed-request"),
        ("/correlation_id", long(129), 400, "malformed-request"),
        ("/warehouse_id", json!("WH\n1"), 400, "malformed-request"),
        ("/warehouse_id", long(129), 400, "malformed-request"),
        ("/planner_id", json!("other-wms"), 403, "forbidden"),
        ("/planner_id", json!(7), 403, "forbidden"),
        ("/document_ref", json!("SH-1"), 400, "malformed-request"),
        ("/routing", json!([]), 400, "malformed-request"),
        ("/routing/ops", json!({}), 400, "malformed-request"),
        ("/routing/ops", json!([]), 422, "invalid"),
        ("/routing/ops/0", json!("PICK"), 400, "malformed-request"),
        ("/routing/ops/1/op_id", json!("op-1"), 422, "invalid"),
        ("/routing/ops/0/qty", json!("12"), 400, "malformed-request"),
        ("/routing/ops/0/qty", json!(-1), 422, "invalid"),
        ("/routing/ops/1/expected_seconds", json!("soon"), 400, "malformed-request"),
        ("/routing/ops/1/expected_cost", json!(-0.5), 422, "invalid"),
        ("/routing/ops/1/skills", json!("PACKER"), 400, "malformed-request"),
        ("/routing/ops/1/skills/0", json!(1), 400, "malformed-request"),
        ("/routing/ops/1/resources/0", json!({}), 400, "malformed-request"),
        ("/routing/ops/1/bom_deltas/0", json!("CTN-S"), 400, "malformed-request"),
        ("/routing/expected_duration_seconds", json!(true), 400, "malformed-request"),
        ("/meta", json!("urgent"), 400, "malformed-request"),
        ("/meta/released_at", json!("yesterday"), 400, "malformed-request"),
    ] {
        let answer = world.publish(&with(good(), pointer, value)).await.refused(status, code);
        assert_eq!(answer.json["pointer"], pointer, "{}", answer.json);
    }
    for body in [json!([]), json!("event"), json!(null)] {
        world.publish(&body).await.refused(400, "malformed-request");
    }
    // None of them was published.
    assert_eq!(world.publish(&good()).await.is(202).json["seq"], 1);
}

#[tokio::test]
async fn every_kind_is_taken_with_what_it_needs_and_whatever_else_it_carries() {
    let world = World::new().await;
    world.polled("WH-1").await;
    let released =
        ["SHIPPER", "WORKORDER", "TRANSFER_OUT", "VASORDER", "REFURBISH_ORDER"].map(|kind| format!("{kind}_RELEASED"));
    for kind in &released {
        let event = with(with(event(kind, "WH-1"), "/kind", json!(kind)), "/colour", json!({"of": ["the", "box"]}));
        world.publish(&event).await.is(202);
        let bare = without(with(event, "/correlation_id", json!("bare")), "/routing");
        world.publish(&bare).await.refused(400, "malformed-request");
    }
    for kind in ["RECEIVER_EXPECTED", "TRANSFER_IN_EXPECTED"] {
        let event = with(event(kind, "WH-1"), "/kind", json!(kind));
        world.publish(&without(without(event, "/routing"), "/meta")).await.is(202);
    }
    let cancelled = cancel("c-1", "SHIPPER_RELEASED", "WH-1");
    world.publish(&without(cancelled.clone(), "/cancels_correlation_id")).await.refused(400, "malformed-request");
    world.publish(&with(cancelled.clone(), "/cancels_correlation_id", json!("c-1"))).await.refused(422, "invalid");
    let unknown = with(cancelled.clone(), "/cancels_correlation_id", json!("never-published"));
    world.publish(&unknown).await.refused(422, "unknown-original");
    assert_eq!(world.publish(&cancelled).await.is(202).json["original"], "undelivered");
}

#[tokio::test]
async fn an_envelope_has_up_to_256_kib() {
    let world = World::new().await;
    world.polled("WH-1").await;
    let sized = |bytes: usize| {
        let mut event = event("cid-1", "WH-1");
        event["fill"] = json!("");
        let fill = bytes - event.to_string().len();
        event["fill"] = json!("x".repeat(fill));
        event
    };
    world.publish(&sized((256 << 10) + 1)).await.refused(413, "too-large");
    // Bytes around the object are delivered, too.
    let padded = format!("{}\n", sized(256 << 10));
    world.ask(http::Method::POST, "/dispatch/events", PLANNER, padded).await.refused(413, "too-large");
    world.publish(&sized(256 << 10)).await.is(202);
    // In a batch nothing surrounds it.
    let batch = format!(r#"{{"events":[ {} ]}}"#, sized(256 << 10));
    world.ask(http::Method::POST, "/dispatch/events", PLANNER, batch).await.is(200);
    world.publish(&json!({"events": [sized((256 << 10) + 1)]})).await.refused(413, "too-large");
}

#[tokio::test]
async fn json_that_two_readers_could_read_differently_is_refused() {
    let world = World::new().await;
    world.polled("WH-1").await;
    let good = event("cid-1", "WH-1").to_string();
    let twice = format!(r#"{{"kind":"CANCELLED",{}"#, &good[1..]);
    for body in [twice, good[1..].to_owned(), format!("{good}x")] {
        let answer = world.ask(http::Method::POST, "/dispatch/events", PLANNER, body).await;
        answer.refused(400, "malformed-request");
    }
}
