//! Kafka as a transport, with a real broker: order, keys and headers; a broker that dies; an event that is too large.

use std::{
    collections::BTreeMap,
    time::{Duration, Instant},
};

use fencepost_rig::Kafka;
use rdkafka::{
    ClientConfig, Message, Offset, TopicPartitionList,
    consumer::{BaseConsumer, Consumer},
    message::Headers,
};
use serde_json::{Value, json};

use super::{
    client::Client,
    dispatch::receiver::Receiver,
    server::{PATIENCE, Serve, Server, until},
};

const TOPIC: &str = "wms-wes.dispatch.fgai-wms.v1";

/// A message as a consumer sees it.
struct Seen {
    partition: i32,
    key: String,
    headers: BTreeMap<String, String>,
    body: Vec<u8>,
}

struct Scene {
    kafka: Kafka,
    server: Server,
    _dir: tempfile::TempDir,
}

fn scene(settings: &[(&str, &str)]) -> Scene {
    let kafka = Kafka::start();
    kafka.topic(TOPIC, 3);
    let dir = tempfile::tempdir().unwrap();
    let serve = Serve::dev(&dir.path().join("data")).env("FENCEPOST_DISPATCH__KAFKA_BROKERS", &kafka.brokers());
    let serve = settings.iter().fold(serve, |serve, (name, value)| serve.env(name, value));
    Scene { kafka, server: serve.start(), _dir: dir }
}

impl Scene {
    fn planner(&self) -> Client {
        self.server.client("dev-planner")
    }

    fn route(&self, warehouse: &str) {
        let body = json!({"executor_id": "dev-wes", "kafka": {}}).to_string();
        self.planner().put(&format!("/wes/v1/warehouses/{warehouse}/transport"), body).ok(200);
    }

    fn backlog(&self) -> u64 {
        let lanes = self.planner().get("/wes/v1/dispatch/lanes").ok(200);
        lanes["items"].as_array().unwrap().iter().map(|lane| lane["backlog"].as_u64().unwrap()).sum()
    }

    /// Everything in the topic, until so many different events were seen.
    fn consume(&self, events: usize) -> Vec<Seen> {
        let consumer: BaseConsumer = ClientConfig::new()
            .set("bootstrap.servers", self.kafka.brokers())
            .set("group.id", "test")
            .set("enable.auto.commit", "false")
            .create()
            .unwrap();
        let mut all = TopicPartitionList::new();
        for partition in 0..3 {
            all.add_partition_offset(TOPIC, partition, Offset::Beginning).unwrap();
        }
        consumer.assign(&all).unwrap();
        let (mut seen, mut ids) = (Vec::new(), std::collections::BTreeSet::new());
        let begun = Instant::now();
        while ids.len() < events {
            assert!(begun.elapsed() < PATIENCE, "{} of {events} events arrived", ids.len());
            let Some(Ok(message)) = consumer.poll(Duration::from_millis(100)) else { continue };
            let headers = message.headers().unwrap();
            let headers: BTreeMap<String, String> = headers
                .iter()
                .map(|header| (header.key.to_owned(), String::from_utf8_lossy(header.value.unwrap()).into_owned()))
                .collect();
            ids.insert(headers["correlation_id"].clone());
            seen.push(Seen {
                partition: message.partition(),
                key: String::from_utf8_lossy(message.key().unwrap()).into_owned(),
                headers,
                body: message.payload().unwrap().to_vec(),
            });
        }
        seen
    }
}

fn envelope(warehouse: &str, number: usize, note: &str) -> String {
    json!({
        "kind": "SHIPPER_RELEASED", "correlation_id": format!("{warehouse}-{number:05}"), "planner_id": "fgai-wms",
        "warehouse_id": warehouse, "document_ref": {"type": "SHIPPER", "id": format!("SH-{number}")},
        "routing": {"ops": [{"op_id": "op-1", "kind": "PICK"}]}, "meta": {"note": note},
    })
    .to_string()
}

/// Each warehouse's events in the order of their first sight.
fn orders(seen: &[Seen]) -> BTreeMap<String, Vec<String>> {
    let mut orders: BTreeMap<String, Vec<String>> = BTreeMap::new();
    for one in seen {
        let order = orders.entry(one.key.clone()).or_default();
        let id = &one.headers["correlation_id"];
        if !order.contains(id) {
            order.push(id.clone());
        }
    }
    orders
}

#[test]
fn events_arrive_in_order_keyed_by_warehouse_with_their_position() {
    let scene = scene(&[]);
    let mut planner = scene.planner();
    for warehouse in ["WH-A", "WH-B"] {
        scene.route(warehouse);
    }
    let mut sent = BTreeMap::new();
    for number in 1..=40 {
        for warehouse in ["WH-A", "WH-B"] {
            let body = envelope(warehouse, number, "  odd \u{2603} ");
            planner.post("/wes/v1/dispatch/events", &body).ok(202);
            sent.insert(format!("{warehouse}-{number:05}"), body);
        }
    }
    let seen = scene.consume(80);
    for one in &seen {
        let id = &one.headers["correlation_id"];
        assert_eq!(one.body, sent[id].as_bytes());
        let (warehouse, number) = id.rsplit_once('-').unwrap();
        assert_eq!(one.key, format!("frn:fgai-wms:wms:warehouse/{warehouse}"));
        assert_eq!(one.headers["Fencepost-Seq"].parse::<u64>().unwrap(), number.parse::<u64>().unwrap());
        assert_eq!(one.headers["Fencepost-Lane"], format!("fgai-wms:{warehouse}"));
    }
    for (key, order) in orders(&seen) {
        assert!(order.is_sorted() && order.len() == 40, "{key}: {order:?}");
        let partitions: std::collections::BTreeSet<i32> =
            seen.iter().filter(|one| one.key == key).map(|one| one.partition).collect();
        assert_eq!(partitions.len(), 1, "{key} is in several partitions");
    }
    until("every event is settled", || (scene.backlog() == 0).then_some(()));
}

#[test]
fn a_broker_that_dies_under_load_loses_nothing_and_keeps_the_order() {
    let mut scene = scene(&[("FENCEPOST_DISPATCH__TIMEOUT", "2s")]);
    scene.route("WH-A");
    let mut planner = scene.planner();
    for number in 1..=60 {
        if number == 20 {
            scene.kafka.kill();
        }
        planner.post("/wes/v1/dispatch/events", envelope("WH-A", number, "")).ok(202);
    }
    // The broker has not taken them: they wait in their lane, and the lane says why.
    until("the lane says that the broker is away", || {
        let lanes = planner.get("/wes/v1/dispatch/lanes").ok(200);
        (lanes["items"][0]["state"] == "retrying").then_some(())
    });
    scene.kafka.restart();
    let seen = scene.consume(60);
    let order = &orders(&seen)["frn:fgai-wms:wms:warehouse/WH-A"];
    assert!(order.is_sorted() && order.len() == 60, "{order:?}");
    until("every event is settled", || (scene.backlog() == 0).then_some(()));
    assert_eq!(planner.get("/wes/v1/dispatch/dlq").ok(200)["items"], json!([]));
}

#[test]
fn an_event_that_no_broker_takes_is_a_dead_letter_and_the_next_one_goes() {
    let alarms = Receiver::start();
    alarms.knows(&[]);
    let scene = scene(&[
        ("FENCEPOST_DISPATCH__KAFKA_MESSAGE_BYTES_MAX", "20KiB"),
        ("FENCEPOST_DISPATCH__ALERT_WEBHOOK", &alarms.url()),
    ]);
    scene.route("WH-A");
    let mut planner = scene.planner();
    planner.post("/wes/v1/dispatch/events", envelope("WH-A", 1, "")).ok(202);
    planner.post("/wes/v1/dispatch/events", envelope("WH-A", 2, &"x".repeat(40 * 1024))).ok(202);
    planner.post("/wes/v1/dispatch/events", envelope("WH-A", 3, "")).ok(202);
    let seen = scene.consume(2);
    assert_eq!(orders(&seen)["frn:fgai-wms:wms:warehouse/WH-A"], ["WH-A-00001", "WH-A-00003"]);
    let letters = planner.get("/wes/v1/dispatch/dlq").ok(200);
    let letter = &letters["items"][0];
    assert_eq!(
        (&letter["correlation_id"], &letter["reason"]),
        (&json!("WH-A-00002"), &json!("too_large")),
        "{letters}"
    );
    // Somebody is told, once.
    let alarm: Value = serde_json::from_slice(&alarms.nth(1).body).unwrap();
    assert_eq!((&alarm["alert"], &alarm["id"]), (&json!("dead_letter"), &letter["id"]), "{alarm}");
    let metrics = scene.server.client("").get("/metrics").text();
    assert!(metrics.contains("fencepost_dead_letters_total{reason=\"too_large\"} 1\n"), "{metrics}");
    assert_eq!(alarms.count(), 1);
}

#[test]
fn without_a_cluster_kafka_is_refused_as_a_transport() {
    let dev = super::server::dev();
    let body = json!({"executor_id": "dev-wes", "kafka": {}}).to_string();
    let answer = dev.server.client("dev-planner").put("/wes/v1/warehouses/WH-A/transport", body);
    answer.problem(501, "transport-unsupported");
}
