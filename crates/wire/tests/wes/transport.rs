//! Transports of a warehouse: accepted settings, masked output, and when a change is allowed.

use std::time::Duration;

use fencepost::{
    dispatch::{Resealed, SealAnew},
    policy::{Policy, identity::dev_holders},
};
use fencepost_kernel::{
    Tenant,
    dispatch::{Transport, WarehouseTransport},
};
use serde_json::{Value, json};

use super::world::{ADMIN, EXECUTOR, NARROW, PLANNER, PLANNER_ID, VIEWER, World, event};

const WH: &str = "/warehouses/WH-1/transport";

fn hook(url: &str) -> Value {
    json!({"executor_id": "dev-wes", "webhook": {"url": url, "secret": "hush-hush-hush-hush"}})
}

#[tokio::test]
async fn a_transport_is_shown_without_its_secrets_and_said_twice_it_is_a_replay() {
    let world = World::new().await;
    world.get(WH, PLANNER).await.refused(404, "unknown-warehouse");
    let url = "http://127.0.0.1:9/hook";
    let answer = world.put(WH, PLANNER, &hook(url)).await.is(200);
    assert_eq!(answer.json["lane"], "fgai-wms:WH-1");
    assert_eq!((&answer.json["transport"], &answer.json["replay"]), (&json!("webhook"), &json!(false)));
    let again = world.put(WH, PLANNER, &hook(url)).await.is(200);
    assert_eq!((&again.json["replay"], again.header("idempotency-replayed")), (&json!(true), Some("true")));

    let mut rotated = hook(url);
    rotated["webhook"] =
        json!({"url": url, "secrets": ["newer-newer-newer", "hush-hush-hush-hush"], "standard_webhooks": true});
    assert_eq!(world.put(WH, PLANNER, &rotated).await.is(200).json["replay"], false);
    assert_eq!(world.put(WH, PLANNER, &rotated).await.is(200).json["replay"], true);
    for (path, token) in [(WH.to_owned(), PLANNER), (format!("{WH}?planner_id={PLANNER_ID}"), VIEWER)] {
        let shown = world.get(&path, token).await.is(200);
        assert_eq!(
            shown.json["webhook"],
            json!({"url": "http://127.0.0.1:9/***", "secrets": 2, "standard_webhooks": true})
        );
        assert_eq!(
            (&shown.json["after_dead_letter"], &shown.json["receiver_retention"]),
            (&json!("continue"), &json!("7d"))
        );
        assert!(!String::from_utf8_lossy(&shown.text).contains("hush-hush-hush-hush"));
    }
    let route = world.dispatch.transport(&fencepost_kernel::Tenant::new(PLANNER_ID), "WH-1").await.unwrap().unwrap();
    assert!(!format!("{route:?}").contains("hush-hush-hush-hush"), "a secret is stored as it is");
}

#[tokio::test]
async fn of_a_url_only_scheme_host_and_port_are_stored_or_shown() {
    let world = World::new().await;
    let url = "http://127.0.0.1:9/services/T000/token-in-the-path?key=token-in-the-query";
    assert_eq!(world.put(WH, PLANNER, &hook(url)).await.is(200).json["replay"], false);
    assert_eq!(world.put(WH, PLANNER, &hook(url)).await.is(200).json["replay"], true);
    let other = world.put(WH, PLANNER, &hook(&url.replace("T000", "T001"))).await.is(200);
    assert_eq!(other.json["replay"], false);
    let shown = world.get(WH, PLANNER).await.is(200);
    assert_eq!(shown.json["webhook"]["url"], "http://127.0.0.1:9/***");
    let route = world.dispatch.transport(&Tenant::new(PLANNER_ID), "WH-1").await.unwrap().unwrap();
    world.publish(&event("cid-1", "WH-1")).await.is(202);
    let lane = world.get("/dispatch/lanes/fgai-wms:WH-1", PLANNER).await.is(200);
    for text in [format!("{route:?}"), shown.json.to_string(), other.json.to_string(), lane.json.to_string()] {
        assert!(!text.contains("token") && !text.contains("services"), "{text}");
    }
    // The masked text is no url: put back, it would be another.
    world.put(WH, PLANNER, &hook("http://127.0.0.1:9/***")).await.refused(400, "malformed-request");
    // A name and a password before the host are refused, so none can be stored.
    world.put(WH, PLANNER, &hook("http://me:token@127.0.0.1:9/")).await.refused(422, "address-refused");
}

#[tokio::test]
async fn a_row_of_the_release_before_is_masked_compares_equal_and_is_sealed_anew_without_a_change() {
    let world = World::new().await;
    let (url, planner) = ("http://127.0.0.1:9/hooks/token", Tenant::new(PLANNER_ID));
    world.put(WH, PLANNER, &hook(url)).await.is(200);
    let mut route = WarehouseTransport::clone(&*world.dispatch.transport(&planner, "WH-1").await.unwrap().unwrap());
    let Transport::Webhook(webhook) = &mut route.transport else { panic!("{route:?}") };
    webhook.url = url.to_owned();
    world.dispatch.put_transport(route.clone(), None).await.unwrap();
    let before = world.get(WH, PLANNER).await.is(200).json;
    assert_eq!(before["webhook"]["url"], "http://127.0.0.1:9/***");
    assert_eq!(world.put(WH, PLANNER, &hook(url)).await.is(200).json["replay"], true);
    assert!(format!("{:?}", world.dispatch.transport(&planner, "WH-1").await.unwrap()).contains("/hooks/token"));

    world.clock.pass(60_000);
    assert_eq!(world.dispatch.reseal(SealAnew::Yes).await.unwrap().resealed, 1);
    assert_eq!(world.dispatch.reseal(SealAnew::Yes).await.unwrap(), Resealed::default());
    let sealed = world.dispatch.transport(&planner, "WH-1").await.unwrap().unwrap();
    assert!(!format!("{sealed:?}").contains("/hooks/token"));
    assert_eq!(world.get(WH, PLANNER).await.is(200).json, before, "changed_at stays, too");
    assert_eq!(world.put(WH, PLANNER, &hook(url)).await.is(200).json["replay"], true);
}

#[tokio::test]
async fn a_secret_has_16_bytes_but_for_one_that_is_live_already() {
    let world = World::new().await;
    let url = "http://127.0.0.1:9/hook";
    let with = |secrets: &[&str]| json!({"executor_id": "dev-wes", "webhook": {"url": url, "secrets": secrets}});
    // Base64 stands for its bytes: these are 15 and 16 of them.
    let (short, long) = ("whsec_AAAAAAAAAAAAAAAAAAAA", "whsec_AAAAAAAAAAAAAAAAAAAAAA==");
    for refused in ["fifteen bytes..", short] {
        let answer = world.put(WH, PLANNER, &with(&[refused])).await.refused(400, "malformed-request");
        let detail = answer.json["detail"].as_str().unwrap();
        assert!(detail.contains("at least 16 bytes, this one 15") && !detail.contains(refused), "{detail}");
        world.put(WH, PLANNER, &with(&["sixteen bytes...", refused])).await.refused(400, "malformed-request");
    }
    for taken in ["sixteen bytes...", long] {
        world.put(WH, PLANNER, &with(&[taken])).await.is(200);
    }
    // One that was stored before the bound goes on working, may be repeated, and is rotated out.
    let planner = Tenant::new(PLANNER_ID);
    let webhook = world.dispatch.vault().seal_webhook(&planner, "WH-1", url, &["hush"], None).unwrap();
    let mut route = WarehouseTransport::clone(&*world.dispatch.transport(&planner, "WH-1").await.unwrap().unwrap());
    route.transport = Transport::Webhook(webhook);
    world.dispatch.put_transport(route, None).await.unwrap();
    assert_eq!(world.put(WH, PLANNER, &with(&["hush"])).await.is(200).json["replay"], true);
    world.put(WH, PLANNER, &with(&["sixteen bytes...", "hush"])).await.is(200);
    world.put(WH, PLANNER, &with(&["sixteen bytes..."])).await.is(200);
    world.put(WH, PLANNER, &with(&["hush"])).await.refused(400, "malformed-request");
}

#[tokio::test]
async fn a_value_that_is_no_transport_is_refused() {
    let world = World::new().await;
    let webhook = |webhook: Value| json!({"executor_id": "dev-wes", "webhook": webhook});
    let with = |name: &str, value: Value| {
        let mut body = json!({"executor_id": "dev-wes", "poll": {}});
        body[name] = value;
        body
    };
    let url = "http://127.0.0.1:9/hook";
    for body in [
        json!({"executor_id": "dev-wes"}),
        json!({"executor_id": "dev-wes", "poll": {}, "webhook": {"url": url, "secret": "hush-hush-hush-hush"}}),
        json!({"executor_id": "", "poll": {}}),
        with("retention", json!("7d")),
        with("poll", json!({"every": "5s"})),
        with("poll", json!(true)),
        with("after_dead_letter", json!("stop")),
        with("receiver_retention", json!("7 days")),
        with("receiver_retention", json!(-1)),
        with("drain", json!("yes")),
        with("drain", json!(301)),
        webhook(json!({"url": url})),
        webhook(json!({"secret": "hush-hush-hush-hush"})),
        webhook(json!({"url": url, "secret": ""})),
        webhook(json!({"url": url, "secret": "whsec_?"})),
        webhook(json!({"url": url, "secret": "x".repeat(1_025)})),
        webhook(json!({"url": url, "secret": "hush-hush-hush-hush", "secrets": ["hush-hush-hush-hush"]})),
        webhook(json!({"url": url, "secrets": []})),
        webhook(json!({"url": url, "secrets": ["a", "b", "c"]})),
        webhook(json!({"url": url, "secrets": ["a", ""]})),
        webhook(json!({"url": url, "secret": "hush-hush-hush-hush", "standard_webhooks": "yes"})),
        webhook(json!({"url": url, "secret": "hush-hush-hush-hush", "retries": 3})),
    ] {
        let answer = world.put(WH, PLANNER, &body).await;
        assert_eq!((answer.status, &answer.json["code"]), (400, &json!("malformed-request")), "{body}");
    }
    world.put(WH, PLANNER, &with("planner_id", json!("other-wms"))).await.refused(403, "forbidden");
    for url in ["http://10.0.0.1/hook", "ftp://example.org/", "http://[::ffff:192.168.0.1]/"] {
        world.put(WH, PLANNER, &hook(url)).await.refused(422, "address-refused");
    }
    world.put(WH, PLANNER, &json!({"executor_id": "dev-wes", "kafka": {}})).await.refused(501, "transport-unsupported");
    world.put(&format!("/warehouses/{}/transport", "x".repeat(129)), PLANNER, &hook(url)).await.is(400);
    world.get(WH, PLANNER).await.refused(404, "unknown-warehouse");
}

#[tokio::test]
async fn only_the_planner_of_a_warehouse_says_where_its_events_go() {
    let world = World::new().await;
    let poll = json!({"executor_id": "dev-wes", "poll": {}});
    for token in [EXECUTOR, ADMIN, VIEWER] {
        world.put(WH, token, &poll).await.refused(403, "forbidden");
    }
    world.put("/warehouses/WH-2/transport", NARROW, &poll).await.refused(403, "forbidden");
    world.put(WH, NARROW, &poll).await.is(200);
    world.get("/warehouses/WH-2/transport", NARROW).await.refused(403, "forbidden");
    world.get(WH, PLANNER).await.refused(404, "unknown-warehouse");
    world.get(WH, ADMIN).await.refused(400, "malformed-request");
    // Names are decoded.
    world.put("/warehouses/WH%2F%E6%9D%B1%E4%BA%AC/transport", PLANNER, &poll).await.is(200);
    let mut named = event("cid-1", "WH/\u{6771}\u{4eac}");
    named["warehouse_id"] = json!("WH/\u{6771}\u{4eac}");
    world.publish(&named).await.is(202);
}

#[tokio::test]
async fn a_topic_has_a_default_and_must_be_one_that_a_broker_takes() {
    let mut policy = Policy::builtin();
    policy.dispatch.kafka_brokers = Some("127.0.0.1:9".to_owned());
    policy.dispatch.kafka_topics = vec!["work.v1".to_owned()];
    let world = World::with(dev_holders(), policy).await;
    let kafka = |kafka: Value| json!({"executor_id": "dev-wes", "kafka": kafka});
    for bad in [json!({"topic": "no spaces"}), json!({"topic": ""}), json!({"name": "t"})] {
        world.put(WH, PLANNER, &kafka(bad)).await.refused(400, "malformed-request");
    }
    assert_eq!(world.put(WH, PLANNER, &kafka(json!({}))).await.is(200).json["transport"], "kafka");
    let shown = world.get(WH, PLANNER).await.is(200).json;
    assert_eq!(shown["kafka"], json!({"topic": "wms-wes.dispatch.fgai-wms.v1"}));
    let others = [
        "wms-wes.dispatch.fgai-wms.",
        "wms-wes.dispatch.fgai-wms2.v1",
        // The default of a planner whose id begins with this one's.
        "wms-wes.dispatch.fgai-wms.eu.v1",
        "wms-wes.dispatch.other.v1",
        "work.v2",
    ];
    for other in others {
        world.put(WH, PLANNER, &kafka(json!({"topic": other}))).await.refused(422, "address-refused");
    }
    for own in ["wms-wes.dispatch.fgai-wms.v2", "work.v1"] {
        world.put(WH, PLANNER, &kafka(json!({"topic": own}))).await.is(200);
    }
}

#[tokio::test]
async fn an_executor_need_not_be_named_where_there_is_only_one() {
    let world = World::with(dev_holders(), Policy::builtin()).await;
    let answer = world.put(WH, PLANNER, &json!({"poll": {}})).await.is(200);
    assert_eq!(answer.json["executor_id"], "dev-wes");
}

#[tokio::test]
async fn a_transport_changes_only_when_its_lane_is_drained() {
    let world = World::new().await;
    world.polled("WH-1").await;
    world.publish(&event("cid-1", "WH-1")).await.is(202);
    world.publish(&event("cid-2", "WH-1")).await.is(202);
    let url = "http://127.0.0.1:9/hook";
    let refused = world.put(WH, PLANNER, &hook(url)).await.refused(409, "lane-not-drained");
    assert_eq!(refused.json["lane"], "fgai-wms:poll:dev-wes");
    assert_eq!((&refused.json["first_seq"], &refused.json["last_seq"]), (&json!(1), &json!(2)));

    let mut draining = hook(url);
    draining["drain"] = json!(true);
    let cursor = world.get("/dispatch/pending", EXECUTOR).await.is(200).json["next_cursor"].clone();
    let (changed, _) = tokio::join!(world.put(WH, PLANNER, &draining), async {
        world.post("/dispatch/ack", EXECUTOR, &json!({"cursor": cursor})).await.is(200)
    });
    assert_eq!(changed.is(200).json["transport"], "webhook");
    assert_eq!(world.publish(&event("cid-3", "WH-1")).await.is(202).json["lane"], "fgai-wms:WH-1");
}

#[tokio::test]
async fn waiting_for_a_lane_to_drain_has_an_end() {
    let world = World::new().await;
    world.polled("WH-1").await;
    world.publish(&event("cid-1", "WH-1")).await.is(202);
    let mut draining = hook("http://127.0.0.1:9/hook");
    draining["drain"] = json!(0);
    let put = tokio::time::timeout(Duration::from_secs(20), world.put(WH, PLANNER, &draining));
    put.await.unwrap().refused(409, "lane-not-drained");
}
