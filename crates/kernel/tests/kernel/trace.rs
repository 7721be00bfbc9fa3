//! Counts of what was only read: approximate, bounded, and never mixed between two lives of a key.

use fencepost_kernel::{
    Command, RowKey,
    fence::{self, Observe, SIGHTINGS_MAX, Sighting, Target, Trace},
    row::Record,
};

use super::world::{RETAIN_MS, World, claim, target};

fn seen(world: &mut World, target: &Target, count: u64) {
    let at = world.now;
    let recent = (0..count).map(|n| (at.plus(n), Sighting::Duplicate)).collect();
    world.run(&Command::Fence(fence::Command::Observe(Observe {
        key: target.key,
        replays: count,
        conflicts: 0,
        body_mismatches: 0,
        recent,
    })));
}

fn trace<'w>(world: &'w World, target: &Target) -> &'w Trace {
    match world.record(RowKey::trace(target.key)) {
        Some(Record::Fence(fence::Record::Trace(trace))) => trace,
        other => panic!("no trace but {other:?}"),
    }
}

#[test]
fn only_the_latest_sightings_are_kept_but_all_are_counted() {
    let (mut world, target) = (World::new(), target());
    world.done(&claim(&target), "1");
    seen(&mut world, &target, 10);
    world.pass(100);
    seen(&mut world, &target, 10);
    let trace = trace(&world, &target);
    assert_eq!((trace.replays, trace.recent.len()), (20, SIGHTINGS_MAX));
    assert_eq!(trace.recent.last().unwrap().0, world.now.plus(9));
}

#[test]
fn new_life_of_a_key_starts_with_no_sightings() {
    let (mut world, target) = (World::new(), target());
    world.done(&claim(&target), "1");
    seen(&mut world, &target, 3);
    world.pass(RETAIN_MS);
    world.done(&claim(&target), "2");
    seen(&mut world, &target, 1);
    assert_eq!((trace(&world, &target).replays, trace(&world, &target).recent.len()), (1, 1));
}

#[test]
fn sightings_go_with_their_fence() {
    let (mut world, target) = (World::new(), target());
    world.done(&claim(&target), "1");
    seen(&mut world, &target, 3);
    world.pass(RETAIN_MS - 1);
    world.sweep();
    assert_eq!(trace(&world, &target).replays, 3);
    world.pass(1);
    world.sweep();
    assert!(world.record(RowKey::trace(target.key)).is_none());
}
