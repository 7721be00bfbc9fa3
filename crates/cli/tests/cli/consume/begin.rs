//! Where a group begins that wants only what comes from now on.

use std::process::Command;

use super::scene::Scene;

fn latest(scene: &Scene) -> Command {
    let mut command = scene.consumer();
    command.args(["--from", "latest"]);
    command
}

#[test]
fn the_first_start_skips_older_messages_and_a_later_start_skips_none() {
    let scene = Scene::new(2);
    scene.fill(0, 3);
    let consumer = scene.start(latest(&scene));
    for partition in 0..2 {
        scene.until_committed(partition, 3);
    }
    // It has handled nothing yet.
    consumer.kill();
    scene.fill(3, 2);
    let _consumer = scene.start(latest(&scene));
    for partition in 0..2 {
        scene.until_committed(partition, 5);
    }
    let mut effects = scene.effects();
    effects.sort();
    assert_eq!(effects, ["p0-0003", "p0-0004", "p1-0003", "p1-0004"]);
}

#[test]
fn a_partition_without_an_offset_in_a_group_that_has_others_begins_at_its_start() {
    let scene = Scene::new(2);
    scene.fill(0, 3);
    scene.commit(0, 2);
    let _consumer = scene.start(latest(&scene));
    for partition in 0..2 {
        scene.until_committed(partition, 3);
    }
    let mut effects = scene.effects();
    effects.sort();
    assert_eq!(effects, ["p0-0002", "p1-0000", "p1-0001", "p1-0002"]);
}
