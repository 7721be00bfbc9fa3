//! Consumers that are killed between the effect, the seal and the commit.

use super::{
    super::dispatch::receiver::Say,
    scene::{Scene, body},
};

#[test]
fn killed_consumers_lose_nothing_and_say_so_where_an_effect_may_be_a_second_one() {
    let scene = Scene::new(3);
    scene.fill(0, 60);
    let mut consumer = scene.start(scene.consumer());
    for round in 1..=4 {
        scene.until_effects(round * 36);
        consumer.kill();
        consumer = scene.start(scene.consumer());
    }
    scene.until_effects(180);
    for partition in 0..3 {
        scene.until_committed(partition, 60);
    }
    scene.assert_whole(60);
    // At most what was at the handler when its consumer was killed came twice.
    let copies = scene.handler.count() - 180;
    assert!(copies <= 4 * 3, "{copies} came again");
}

#[test]
fn killed_while_the_handler_works_the_next_one_waits_for_the_lease_and_is_told() {
    let scene = Scene::new(1);
    scene.fill(0, 3);
    scene.handler.script(|one| if body(one) == "p0-0001" { Say::Hold } else { Say::Status(200) });
    let consumer = scene.start(scene.consumer());
    let first = scene.handler.nth(2);
    consumer.kill();
    scene.handler.release();
    let _consumer = scene.start(scene.consumer());
    let second = scene.handler.nth(3);
    assert_eq!((body(&first), body(&second)), ("p0-0001".to_owned(), "p0-0001".to_owned()));
    assert_eq!((first.attempt(), second.attempt()), (1, 2));
    assert_eq!(second.header("fencepost-recovering"), Some("true"));
    assert!(second.number("fencepost-token") > first.number("fencepost-token"));
    scene.until_committed(0, 3);
    scene.assert_whole(3);
    assert_eq!(scene.handler.count(), 4, "the first was sealed and the third never begun");
}
