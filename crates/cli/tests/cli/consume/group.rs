//! Several consumers of one group, which share a store.

use fencepost_rig::RedisServer;

use super::{
    super::dispatch::receiver::Say,
    scene::{Scene, body},
};

#[test]
fn partitions_that_change_hands_lose_nothing_and_double_nothing() {
    let (scene, redis) = (Scene::new(4), RedisServer::synced());
    let consumer = || scene.start(scene.sharing(&redis.url()));
    scene.fill(0, 30);
    let first = consumer();
    scene.until_effects(20);
    // Its partitions are shared while it works.
    let second = consumer();
    second.until_said("partitions assigned");
    scene.fill(30, 30);
    scene.until_effects(150);
    first.kill();
    scene.fill(60, 30);
    for partition in 0..4 {
        scene.until_committed(partition, 90);
    }
    scene.assert_whole(90);
    // Only what was at the handler when the first was killed may have come twice, and was said to.
    assert!(scene.handler.count() <= 360 + 4, "{}", scene.handler.count());
    assert!(second.stop().0.success());
}

#[test]
fn a_message_at_the_handler_when_its_partition_goes_is_finished_and_not_begun_again() {
    let (scene, redis) = (Scene::new(2), RedisServer::synced());
    let consumer = || scene.start(scene.sharing(&redis.url()));
    scene.fill(0, 2);
    scene.handler.say(Say::Hold);
    let first = consumer();
    scene.handler.until(2);
    let second = consumer();
    second.until_said("partitions assigned");
    // The consumer that has a partition now finds its head pending, and waits.
    second.until_said("a first copy is still pending");
    assert_eq!((scene.handler.count(), scene.committed(0), scene.committed(1)), (2, 0, 0));
    scene.handler.release();
    for partition in 0..2 {
        scene.until_committed(partition, 2);
    }
    scene.assert_whole(2);
    assert_eq!(scene.handler.count(), 4);
    assert!(first.stop().0.success() && second.stop().0.success());
}

#[test]
fn a_store_that_is_away_for_a_while_loses_nothing_and_doubles_nothing() {
    let (scene, mut redis) = (Scene::new(3), RedisServer::synced());
    let consumer = scene.start(scene.sharing(&redis.url()));
    scene.handler.script(|one| if body(one) == "p2-0000" { Say::Status(200) } else { Say::Hold });
    scene.fill(0, 1);
    scene.until_committed(2, 1);
    // Two are at the handler when their store goes, and the third partition goes on without it.
    scene.handler.until(3);
    redis.kill();
    scene.handler.release();
    scene.fill(1, 5);
    consumer.until_said(r#""decision":"unavailable""#);
    assert_eq!([0, 1, 2].map(|partition| scene.committed(partition)), [0, 0, 1]);
    redis.restart();
    for partition in 0..3 {
        scene.until_committed(partition, 6);
    }
    scene.assert_whole(6);
    assert_eq!(scene.handler.count(), 18, "their effects had happened: the seals were tried until the store was there");
}
