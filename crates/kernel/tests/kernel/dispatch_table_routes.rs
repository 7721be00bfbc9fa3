//! Routes and owners, row by row: changes while events are on their way, and the driver of a lane among several nodes.

use std::sync::Arc;

use fencepost_kernel::{
    Command, Reply, RowKey,
    dispatch::{self, PutTransport, Transport, WarehouseTransport},
    lane::{self, Act, AfterDead, Append, LanePurpose, Members, Owner},
    row::Record,
};

use super::lane_world::{FIRST, Floor, HOME, home, later, planner, redrive, route, said, webhook};

fn kafka() -> Transport {
    Transport::Kafka { topic: "orders".into() }
}

#[test]
fn the_same_route_again_is_a_replay() {
    let mut floor = Floor::new();
    floor.world.pass(1_000);
    assert_eq!(said(&floor.put(route(HOME, webhook("https://one.example")))), "routed again");
}

#[test]
fn a_route_sealed_anew_is_written_over_the_one_it_was_made_of_and_keeps_its_time() {
    let mut floor = Floor::holding(1);
    let one = floor.route();
    let reseal = |floor: &mut Floor, over: &Arc<WarehouseTransport>| {
        let route = route(HOME, webhook("https://one.example/#sealed"));
        let put = PutTransport { transport: route, seen_to: None, over: Some(over.clone()) };
        said(&floor.world.run(&Command::Dispatch(dispatch::Command::PutTransport(Box::new(put)))))
    };
    floor.world.pass(1_000);
    assert_eq!(reseal(&mut floor, &one), "routed");
    let anew = floor.route();
    assert_eq!((anew.at, &anew.transport), (one.at, &webhook("https://one.example/#sealed")));
    // Somebody put another one meanwhile: it stands.
    floor.put(route(HOME, webhook("https://two.example")));
    assert_eq!(reseal(&mut floor, &anew), "routed again");
    assert_eq!(floor.route().transport, webhook("https://two.example"));
}

#[test]
fn settings_beside_the_transport_may_change_while_events_are_on_their_way() {
    let one = || route(HOME, webhook("https://one.example"));
    let changes: [(&str, WarehouseTransport); 4] = [
        ("its address", route(HOME, webhook("https://two.example"))),
        ("what follows a dead letter", WarehouseTransport { after_dead: AfterDead::Block, ..one() }),
        ("the receiver's memory", WarehouseTransport { receiver_retain_ms: 1, ..one() }),
        ("who works there", WarehouseTransport { executor: "other".into(), ..one() }),
    ];
    for (what, changed) in changes {
        let mut floor = Floor::holding(1);
        assert_eq!(said(&floor.put(changed)), "routed", "{what}");
    }
}

#[test]
fn another_transport_needs_a_drained_lane() {
    for other in [kafka(), Transport::Poll] {
        let mut floor = Floor::holding(2);
        floor.ack();
        let refused = floor.put(route(HOME, other.clone()));
        assert!(
            matches!(refused, Reply::Dispatch(dispatch::Reply::NotDrained { lane, tail: 2, settled: 1 }) if lane == home()),
            "{refused:?}"
        );
        floor.ack();
        assert_eq!(said(&floor.put(route(HOME, other))), "routed");
    }
}

#[test]
fn a_dead_letter_does_not_keep_a_lane_from_being_drained_but_one_that_blocks_does() {
    let mut floor = Floor::holding(1);
    floor.die();
    assert_eq!(said(&floor.put(route(HOME, kafka()))), "routed");
    let mut floor = Floor { after_dead: AfterDead::Block, ..Floor::holding(1) };
    floor.die();
    assert_eq!(said(&floor.put(route(HOME, kafka()))), "not_drained");
}

#[test]
fn an_event_that_is_published_meanwhile_undoes_a_change_of_transport() {
    let mut floor = Floor::holding(1);
    floor.ack();
    let put = PutTransport { transport: route(HOME, kafka()), seen_to: None, over: None };
    let decision = floor.world.decide(&Command::Dispatch(dispatch::Command::PutTransport(Box::new(put))));
    floor.publish("late");
    assert_eq!(floor.world.commit_also(&decision.writes, &decision.also), None);
}

#[test]
fn a_polled_lane_is_shared_and_left_by_who_has_seen_that_none_of_his_are_in_it() {
    let mut floor = Floor::with(Transport::Poll);
    floor.put(route("w2", Transport::Poll));
    floor.publish_to("w2", "other");
    assert_eq!((floor.tail(), floor.lane().purpose), (1, LanePurpose::executor("wes")));
    let pushed = || route(HOME, webhook("https://one.example"));
    assert_eq!(said(&floor.put(pushed())), "not_drained");
    assert_eq!(said(&floor.put_seen(pushed(), Some(0))), "not_drained");
    assert_eq!(said(&floor.clone().put_seen(pushed(), Some(1))), "routed");
    floor.publish_to("w2", "later");
    assert_eq!(said(&floor.put_seen(pushed(), Some(1))), "not_drained", "not what came after the look");
}

#[test]
fn another_executor_who_polls_is_another_lane_and_needs_a_drained_one() {
    let mut floor = Floor::with(Transport::Poll);
    floor.fill(1);
    let other = WarehouseTransport { executor: "other".into(), ..route(HOME, Transport::Poll) };
    assert_eq!(said(&floor.put(other.clone())), "not_drained");
    floor.poll_ack(1);
    assert_eq!(said(&floor.put(other.clone())), "routed");
    floor.publish("e2");
    floor.at = other.lane();
    assert_eq!(floor.tail(), 1);
}

#[test]
fn events_of_one_lane_and_position_are_told_apart_by_planner_and_use() {
    let names =
        [route(HOME, webhook("")), route(HOME, kafka()), route(HOME, Transport::Poll)].map(|route| route.lane());
    assert_eq!(names[0], names[1], "one lane for whatever is pushed to a warehouse");
    assert_ne!(names[0], names[2]);
    let same_name = WarehouseTransport { executor: HOME.into(), ..route(HOME, Transport::Poll) };
    assert_ne!(names[0], same_name.lane());
    assert_ne!(
        names[0],
        WarehouseTransport { planner: fencepost_kernel::Tenant::new("other"), ..route(HOME, kafka()) }.lane()
    );
}

fn members(me: &str, alive: &[&str]) -> Arc<Members> {
    Members { me: me.into(), alive: alive.iter().map(|node| (*node).to_owned()).collect() }.into()
}

/// The nodes that hear of a publication by `me`, on a lane that `owner` drives: the driving epoch, the poked node, and
/// the owner after.
fn published_by(me: &str, alive: &[&str], owner: Option<&str>) -> String {
    let mut floor = Floor::new();
    if let Some(owner) = owner {
        floor.members = members(owner, &[owner]);
        floor.publish("before");
    }
    floor.members = members(me, alive);
    let decision = floor.world.decide(&floor.publication(HOME, "e", "{}", None));
    let Some(Append { driven, .. }) = decision.also.appends().next().cloned() else { panic!("nothing appended") };
    floor.world.commit_also(&decision.writes, &decision.also).unwrap();
    let Owner { node, epoch } = floor.lane().owner;
    let notified: Vec<_> = ["a", "b", "c"]
        .into_iter()
        .filter(|node| floor.world.record(RowKey::lane_notice(node, home())).is_some())
        .collect();
    let driven = driven.map_or("not by me".to_owned(), |driven| format!("by me under {}", driven.epoch - FIRST));
    format!("{driven}, owner {node:?} {}, notified {notified:?}", epoch - FIRST)
}

#[test]
fn a_publisher_drives_a_lane_without_an_owner_and_notifies_the_owner_otherwise() {
    let rows = [
        ("", &[][..], None, r#"by me under 0, owner "" 0, notified []"#),
        ("a", &["a", "b"], None, r#"by me under 1, owner "a" 1, notified []"#),
        ("a", &["a", "b"], Some("a"), r#"by me under 1, owner "a" 1, notified []"#),
        ("a", &["a", "b"], Some("b"), r#"not by me, owner "b" 1, notified ["b"]"#),
        // A node that seems gone may have come a moment ago: the node that takes over reads the notice.
        ("a", &["a"], Some("b"), r#"not by me, owner "b" 1, notified ["b"]"#),
        // One process alone drives what came from a store that was shared.
        ("", &[], Some("b"), r#"by me under 1, owner "b" 1, notified []"#),
        // In a user's own transaction, which drives nothing.
        ("c", &["a", "b"], None, r#"not by me, owner "" 0, notified ["a"]"#),
        ("c", &["a", "b"], Some("b"), r#"not by me, owner "b" 1, notified ["b"]"#),
        // No node is seen alive, not even the publisher, while a database has just come back: the first node reads the
        // notice.
        ("a", &[], None, r#"not by me, owner "" 0, notified ["a"]"#),
        ("c", &[], None, r#"not by me, owner "" 0, notified ["c"]"#),
    ];
    for (me, alive, owner, expected) in rows {
        assert_eq!(published_by(me, alive, owner), expected, "{me} among {alive:?}, owner {owner:?}");
    }
}

#[test]
fn a_new_address_is_told_to_the_node_that_drives_the_lane() {
    let mut floor = Floor { members: members("b", &["b"]), ..Floor::new() };
    floor.publish("e1");
    assert_eq!(said(&floor.put(route(HOME, webhook("https://new.example")))), "routed");
    assert!(floor.world.record(RowKey::lane_notice("b", home())).is_some(), "b goes on with the old one");
}

#[test]
fn a_new_transport_is_told_to_the_nodes_that_drive_the_lane_that_is_left_and_the_one_that_is_entered() {
    let mut floor = Floor { members: members("b", &["b"]), ..Floor::new() };
    floor.publish("e1");
    floor.ack();
    let notice = RowKey::lane_notice("b", home());
    let mut told = |transport| {
        assert_eq!(said(&floor.put(route(HOME, transport))), "routed");
        let told = floor.world.record(notice).is_some();
        floor.world.run(&Command::Lane(lane::Command::DropNotices(vec![notice])));
        told
    };
    assert!(told(Transport::Poll), "b's lane is left");
    assert!(told(webhook("https://new.example")), "b's lane is entered again");
}

#[test]
fn a_word_that_may_be_heard_at_this_moment_is_said_again() {
    let mut floor = Floor { members: members("b", &["b"]), ..Floor::new() };
    floor.publish("e1");
    floor.members = members("a", &["a", "b"]);
    floor.publish("e2");
    let decision = floor.world.decide(&floor.publication(HOME, "e3", "{}", None));
    let notice = RowKey::lane_notice("b", home());
    assert!(decision.writes.iter().all(|write| write.key != notice), "it is said already");
    floor.world.run(&Command::Lane(lane::Command::DropNotices(vec![notice])));
    assert_eq!(floor.world.commit_also(&decision.writes, &decision.also), None);
    floor.publish("e3");
    assert_eq!(floor.world.record(notice), Some(&Record::Lane(lane::Record::LaneNotice)));
}

#[test]
fn a_lane_that_is_polled_has_no_driver() {
    let mut floor = Floor { members: members("a", &["a", "b"]), ..Floor::with(Transport::Poll) };
    floor.publish("e1");
    assert_eq!(floor.lane().owner, Owner { node: String::new(), epoch: FIRST });
}

#[test]
fn a_redrive_tells_the_driver_too() {
    let mut floor = Floor { members: members("b", &["b"]), ..Floor::holding(1) };
    floor.die();
    floor.members = members("a", &["a", "b"]);
    floor.act(Act::Take { node: "b".into(), after: FIRST });
    floor.decide_letter(1, redrive());
    assert_eq!(floor.world.record(RowKey::lane_notice("b", home())), Some(&Record::Lane(lane::Record::LaneNotice)));
}

#[test]
fn a_lane_is_taken_once_per_epoch_and_the_old_owner_is_not_heard_any_more() {
    let mut floor = Floor::holding(2);
    let take = |node: &str, taken| Act::Take { node: node.into(), after: FIRST + taken };
    assert_eq!(said(&floor.act(take("a", 0))), "lane");
    assert_eq!(said(&floor.act(take("b", 0))), "lane_lost");
    assert_eq!(floor.lane().owner, Owner { node: "a".into(), epoch: FIRST + 1 });
    assert_eq!(said(&floor.act(take("b", 1))), "lane");
    assert_eq!(said(&floor.act(Act::Ack { upto: 1, epoch: Some(FIRST + 1) })), "lane_lost");
    assert_eq!(floor.progress(), "0/2");
    floor.fail(later());
    assert_eq!(said(&floor.act(take("a", 2))), "lane");
    assert_eq!(floor.progress(), "0/2 troubled", "what is known of the head goes with the lane");
}

#[test]
fn a_persons_act_on_a_lane_notifies_the_node_that_drives_it() {
    let acts = [Act::Resume, Act::Skip { seq: 1, by: "ada".into() }];
    let pause = Act::Pause { by: "ada".into(), why: "why".into() };
    let heard = |floor: &mut Floor| {
        let notice = RowKey::lane_notice("b", home());
        let said = floor.world.record(notice).is_some();
        floor.world.run(&Command::Lane(lane::Command::DropNotices(vec![notice])));
        said
    };
    for act in acts {
        let mut floor = Floor { members: members("b", &["b"]), ..Floor::new() };
        floor.fill(1);
        assert!(!heard(&mut floor));
        floor.act(pause.clone());
        assert!(heard(&mut floor), "a pause");
        floor.act(act.clone());
        assert!(heard(&mut floor), "{act:?}");
    }
    let blocked = || {
        let mut floor = Floor { members: members("b", &["b"]), after_dead: AfterDead::Block, ..Floor::new() };
        floor.fill(2);
        floor.die();
        floor
    };
    for verdict in [redrive(), super::lane_world::discard()] {
        let mut floor = blocked();
        floor.decide_letter(1, verdict.clone());
        assert!(heard(&mut floor), "{verdict:?} of what blocks");
    }
    let mut alone = Floor::holding(1);
    alone.pause();
    assert!(alone.world.record(RowKey::lane_notice("", home())).is_none(), "one node needs no word");
    assert_eq!(planner(), alone.lane().tenant);
}

// As after a restore from a backup that knew nothing of it.
#[test]
fn two_lives_of_a_lane_share_no_epoch() {
    let epoch = |at: u64| {
        let mut floor = Floor::with(Transport::Poll);
        floor.world.pass(at);
        floor.publish("e1");
        floor.lane().owner.epoch
    };
    assert!(epoch(1) > epoch(0));
}
