//! Published once is delivered once, byte for byte, in the order of the lane.

use std::{sync::Mutex, thread};

use serde_json::json;

use super::{
    super::server::dev,
    planner::{Planner, event, webhook},
    receiver::Receiver,
};

#[test]
fn an_event_is_delivered_byte_for_byte_however_odd_it_looks() {
    let (server, receiver) = (dev(), Receiver::start());
    let mut planner = Planner::of(&server);
    planner.pushed("WH-1", &receiver);
    // Odd spaces, escapes, order of members, numbers past what floats hold, names that nobody knows.
    let odd = " \t{ \"warehouse_id\" :\"WH-1\", \"zebra\":{\"b\":1.00,\"a\":1e2,\"big\":123456789012345678901234567890},\r\n\
               \"kind\":\"SHIPPER_RELEASED\" ,\"correlation_id\":\"cid-odd\",\"planner_id\":\"fgai-wms\",\"document_ref\":{\"id\":\"\\u00fc\u{fc}\u{1f980}\\/\",\"type\":\"SHIPPER\",\"x\":null},\
               \"routing\":{\"ops\":[{\"kind\":\"PICK\",\"op_id\":\"1\",\"q\":-0.0}],\"later\":[]} }\n\n ";
    let said = planner.publish(odd).ok(202);
    let lane_id = planner.lane("WH-1")["lane_id"].clone();
    let told = json!({"accepted": true, "replay": false, "lane": "fgai-wms:WH-1", "lane_id": lane_id, "seq": 1});
    assert_eq!(said, told);
    let came = receiver.nth(1);
    assert_eq!(String::from_utf8_lossy(&came.body), odd);
    assert_eq!(came.path, "/hooks/dispatch?of=us");
    assert_eq!(came.header("content-type"), Some("application/json"));
    let marks = ["lane", "seq", "prev-seq", "attempt", "redrive"].map(|name| came.header(&format!("fencepost-{name}")));
    assert_eq!(marks, [Some("fgai-wms:WH-1"), Some("1"), Some("0"), Some("1"), None]);
    planner.drained("WH-1");
    assert_eq!(receiver.count(), 1);
}

#[test]
fn an_event_of_a_batch_is_delivered_as_the_bytes_that_it_had_there() {
    let (server, receiver) = (dev(), Receiver::start());
    let mut planner = Planner::of(&server);
    planner.pushed("WH-1", &receiver);
    let odd = "{\"correlation_id\":\"b-2\",  \"planner_id\":\"fgai-wms\", \"warehouse_id\":\"WH-1\",\"kind\":\"RECEIVER_EXPECTED\",\"document_ref\":{\"type\":\"R\",\"id\":\"\\u0041\"},\"n\":1.0}";
    let batch = format!("{{\"events\" : [ {} ,\n {odd} ]}}", event("b-1", "WH-1"));
    planner.publish(batch).ok(202);
    assert_eq!(String::from_utf8_lossy(&receiver.nth(2).body), odd);
}

#[test]
fn a_repeated_publication_is_the_same_event_and_another_body_is_a_conflict() {
    let (server, receiver) = (dev(), Receiver::start());
    let mut planner = Planner::of(&server);
    planner.pushed("WH-1", &receiver);
    planner.release("a", "WH-1");
    let first = planner.release("b", "WH-1");
    // Another order of members is the same content.
    let again = planner.publish(event("b", "WH-1").to_string().replacen('{', "{ ", 1));
    let said = again.ok(200);
    assert_eq!((&said["replay"], &said["seq"], &said["accepted"]), (&json!(true), &json!(first), &json!(true)));
    assert_eq!(again.header("idempotency-replayed"), Some("true"));
    assert!(again.header("idempotency-expires").is_some());

    let mut other = event("b", "WH-1");
    other["routing"]["ops"][0]["qty"] = json!(13);
    let refused = planner.publish(other.to_string()).problem(409, "conflict");
    let change = json!([{"op": "replace", "path": "/routing/ops/0/qty", "value": 13}]);
    assert_eq!(refused["diff"], change);
    planner.release("c", "WH-1");
    let ids: Vec<String> = receiver.until(3).iter().map(|delivery| delivery.id()).collect();
    assert_eq!(ids, ["a", "b", "c"]);
    planner.drained("WH-1");
    assert_eq!(receiver.count(), 3);
}

#[test]
fn a_lane_has_no_gap_and_keeps_its_order_under_concurrent_publishers() {
    const PUBLISHERS: u64 = 8;
    const EACH: u64 = 30;
    let (server, receiver) = (dev(), Receiver::start());
    Planner::of(&server).pushed("WH-1", &receiver);
    let said: Mutex<Vec<(u64, String)>> = Mutex::default();
    thread::scope(|scope| {
        for publisher in 0..PUBLISHERS {
            let (server, said) = (&server, &said);
            scope.spawn(move || {
                let mut planner = Planner::of(server);
                for n in 0..EACH {
                    let id = format!("p{publisher}-{n:03}");
                    let seq = planner.release(&id, "WH-1");
                    said.lock().unwrap().push((seq, id));
                }
            });
        }
    });
    let mut said = said.into_inner().unwrap();
    said.sort();
    let all = PUBLISHERS * EACH;
    assert!(said.iter().map(|(seq, _)| *seq).eq(1..=all), "{said:?}");
    let came = receiver.until(all as usize);
    let came: Vec<(u64, String)> = came.iter().map(|delivery| (delivery.seq(), delivery.id())).collect();
    assert_eq!(came, said);
    for delivery in receiver.heard() {
        assert_eq!(delivery.number("fencepost-prev-seq"), delivery.seq() - 1);
        assert_eq!((delivery.attempt(), delivery.lane()), (1, "fgai-wms:WH-1"));
    }
    // Each publisher's own events are in the order in which it sent them.
    for publisher in 0..PUBLISHERS {
        let own = came.iter().map(|(_, id)| id).filter(|id| id.starts_with(&format!("p{publisher}-")));
        assert!(own.is_sorted());
    }
}

#[test]
fn a_batch_keeps_its_order_and_refuses_its_own_repetitions_and_cancellations() {
    let (server, receiver) = (dev(), Receiver::start());
    let mut planner = Planner::of(&server);
    planner.pushed("WH-1", &receiver);
    planner.pushed("WH-2", &receiver);
    let cancel = super::planner::cancellation("x-1", "b-1", "WH-1");
    let batch = [event("b-1", "WH-1"), event("b-2", "WH-1"), event("c-1", "WH-2"), event("b-3", "WH-1")];
    for (wrong, pointer) in [(event("b-1", "WH-1"), "/correlation_id"), (cancel, "/cancels_correlation_id")] {
        let refused = planner.batch(&[&batch[..], &[wrong]].concat()).problem(400, "malformed-request");
        assert_eq!((&refused["errors"][0]["index"], &refused["errors"][0]["pointer"]), (&json!(4), &json!(pointer)));
    }
    let said = planner.batch(&batch).ok(202);
    let results = said["results"].as_array().unwrap();
    let told = |at: usize| [&results[at]["correlation_id"], &results[at]["replay"], &results[at]["seq"]];
    assert_eq!(told(0), [&json!("b-1"), &json!(false), &json!(1)]);
    assert_eq!(told(1), [&json!("b-2"), &json!(false), &json!(2)]);
    assert_eq!(told(2), [&json!("c-1"), &json!(false), &json!(1)]);
    assert_eq!(told(3), [&json!("b-3"), &json!(false), &json!(3)]);
    let came = receiver.until(4);
    let of = |lane: &str| came.iter().filter(|one| one.lane() == lane).map(|one| one.id()).collect::<Vec<_>>();
    assert_eq!(of("fgai-wms:WH-1"), ["b-1", "b-2", "b-3"]);
    assert_eq!(of("fgai-wms:WH-2"), ["c-1"]);
    assert_eq!(planner.batch(&[event("b-1", "WH-1"), event("b-3", "WH-1")]).ok(200)["results"][1]["seq"], 3);
}

#[test]
fn a_batch_with_one_bad_envelope_publishes_nothing() {
    let (server, receiver) = (dev(), Receiver::start());
    let mut planner = Planner::of(&server);
    planner.pushed("WH-1", &receiver);
    let mut bad = event("bad", "WH-1");
    bad["kind"] = json!("SHIPPED");
    let refused = planner.batch(&[event("good", "WH-1"), bad]).problem(400, "malformed-request");
    assert_eq!((&refused["errors"][0]["index"], &refused["errors"][0]["pointer"]), (&json!(1), &json!("/kind")));
    assert_eq!(planner.release("good", "WH-1"), 1, "it is new, and the first");
    assert_eq!(receiver.nth(1).id(), "good");
}

#[test]
fn nothing_is_published_without_a_way_out_and_a_warehouse_in_dev_comes_into_being() {
    let (server, receiver) = (dev(), Receiver::start());
    let mut planner = Planner::of(&server);
    planner.publish(event("early", "WH-9").to_string()).problem(422, "no-transport");
    let put = planner.put("WH-9", webhook(&receiver)).ok(200);
    assert_eq!((&put["lane"], &put["replay"]), (&json!("fgai-wms:WH-9"), &json!(false)), "{put}");
    assert_eq!(planner.put("WH-9", webhook(&receiver)).ok(200)["replay"], true);
    assert_eq!(planner.release("early", "WH-9"), 1, "a refusal sealed nothing");
    assert_eq!(receiver.nth(1).id(), "early");
}
