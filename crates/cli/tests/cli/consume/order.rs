//! The usual days: everything once and in order, a handler that is away, a broker that dies.

use std::time::Duration;

use super::{
    super::{dispatch::receiver::Say, server::until},
    scene::{Scene, TOPIC, body},
};

#[test]
fn each_message_is_handed_over_once_in_order_and_committed_after_its_seal() {
    let scene = Scene::new(3);
    scene.produce(0, "o-7 \u{e9}", Some("d-1"), r#"{"order": 7}"#);
    // The producer sent it again: another record, the same message.
    scene.produce(0, "o-7 \u{e9}", Some("d-1"), r#"{"order":7}"#);
    scene.produce(0, "o-7 \u{e9}", Some("d-2"), "p0 is no JSON");
    scene.flush();
    scene.handler.script(|_| Say::With(200, "fencepost-effect-id: INV-7\r\n".to_owned()));
    let consumer = scene.start(scene.consumer());
    scene.until_committed(0, 3);
    let heard = scene.handler.heard();
    assert_eq!(heard.iter().map(body).collect::<Vec<_>>(), [r#"{"order": 7}"#, "p0 is no JSON"]);
    let headers = ["topic", "partition", "offset", "key", "attempt", "recovering"];
    let told = headers.map(|name| heard[1].header(&format!("fencepost-{name}")).unwrap());
    assert_eq!(told, [TOPIC, "0", "2", "o-7%20%C3%A9", "1", "false"]);
    let kinds: Vec<_> = heard.iter().map(|one| one.header("content-type").unwrap()).collect();
    assert_eq!(kinds, ["application/json", "application/octet-stream"]);
    assert_eq!(heard[0].header("idempotency-key").unwrap().len(), 64);

    // Without an id of its own, an effect is known by its key, and never by a status.
    scene.handler.script(|_| Say::With(200, String::new()));
    let before = heard.len();
    for number in 0..40 {
        for partition in 0..3 {
            scene.produce(partition, "k", None, &format!("p{partition}-{number:04}"));
        }
    }
    scene.flush();
    scene.handler.until(before + 120);
    // Messages at the handler when the consumer stops are finished and committed.
    let (ended, said) = consumer.stop();
    assert!(ended.success(), "{said}");
    assert_eq!([0, 1, 2].map(|partition| scene.committed(partition)), [43, 40, 40]);
    let bodies: Vec<String> = scene.effects().split_off(before);
    for partition in 0..3 {
        let own: Vec<&String> = bodies.iter().filter(|body| body.starts_with(&format!("p{partition}-"))).collect();
        assert!(own.len() == 40 && own.is_sorted(), "{own:?}");
    }
    let line = said.lines().find(|line| line.contains("orders/0/1")).unwrap();
    for field in [r#""decision":"duplicate""#, r#""effect_id":"INV-7""#, r#""tenant":"queue:billing""#, "trace_id"] {
        assert!(line.contains(field), "{field}: {line}");
    }
    let named = said.lines().find(|line| line.contains("orders/1/1")).unwrap();
    let named: serde_json::Value = serde_json::from_str(named).unwrap();
    assert_eq!((&named["effect_id"], &named["decision"]), (&named["idempotency_key"], &"new".into()), "{named}");
    assert!(said.contains(r#""msg":"progress","sealed":122,"replayed":1,"#), "{said}");
}

#[test]
fn a_handler_that_is_away_loses_nothing_kills_nothing_and_keeps_the_order() {
    let mut scene = Scene::new(2);
    let mut command = scene.consumer();
    command.args(["--attempts-max", "3"]);
    let consumer = scene.start(command);
    scene.fill(0, 5);
    scene.until_effects(10);
    scene.handler.kill();
    scene.fill(5, 5);
    consumer.until_said("the handler is not there");
    let committed = [0, 1].map(|partition| scene.committed(partition));
    assert!(committed.iter().all(|offset| *offset <= 5), "{committed:?}");
    scene.handler.restart();
    scene.until_effects(20);
    scene.until_committed(0, 10);
    scene.until_committed(1, 10);
    scene.assert_whole(10);
}

#[test]
fn a_slow_message_holds_up_its_own_partition_and_no_other() {
    let scene = Scene::new(2);
    scene.handler.script(|one| if body(one) == "p0-0000" { Say::Hold } else { Say::Status(200) });
    let mut command = scene.consumer();
    // Far more waits than a partition holds here.
    command.args(["--set", "max.poll.interval.ms=2500"]);
    scene.fill(0, 150);
    let consumer = scene.start(command);
    scene.until_committed(1, 150);
    let held = scene.handler.heard().into_iter().find(|one| body(one) == "p0-0000").unwrap();
    until("longer than the group waits for a poll", || (held.at.elapsed() > Duration::from_secs(4)).then_some(()));
    assert_eq!(scene.committed(0), 0);
    assert_eq!(scene.effects().len(), 151);
    scene.handler.release();
    scene.until_committed(0, 150);
    scene.assert_whole(150);
    assert!(!consumer.said().contains("partitions taken away"), "the group took it for dead:\n{}", consumer.said());
}

#[test]
fn a_broker_that_dies_loses_nothing_and_doubles_nothing() {
    let mut scene = Scene::new(2);
    let _consumer = scene.start(scene.consumer());
    scene.fill(0, 20);
    scene.until_effects(10);
    scene.kafka.kill();
    scene.kafka.restart();
    scene.fill(20, 20);
    scene.until_effects(80);
    scene.until_committed(0, 40);
    scene.until_committed(1, 40);
    scene.assert_whole(40);
    assert_eq!(scene.handler.count(), 80, "what was sealed and not committed is answered by its fence");
}
