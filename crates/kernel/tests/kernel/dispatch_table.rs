//! Publications and acknowledgements, row by row: the reply, and the lane after it.
//! Letters are in `dispatch_table_letters`, routes and owners in `dispatch_table_routes`.

use fencepost_kernel::{
    Reply, RowKey,
    dispatch::{self, Transport},
    fence,
    lane::{self, Act, AfterDead, AttemptFailure, ReceiverAnswer},
    row::Record,
};

use super::lane_world::{DAY_MS, FENCED_MS, FIRST, Floor, HOME, discard, later, redrive, route, said, webhook};

#[test]
fn events_get_positions_without_a_gap_and_a_repetition_gets_the_first_one() {
    let mut floor = Floor::new();
    for n in 1..=3 {
        assert_eq!(said(&floor.publish(&format!("e{n}"))), format!("published {n}"));
    }
    let again = floor.publish("e2");
    let Reply::Fence(fence::Reply::Duplicate { fence, .. }) = &again else { panic!("{again:?}") };
    assert_eq!(dispatch::PublishReceipt::of(fence).map(|at| (at.lane_id, at.seq)), Some((floor.at, 2)));
    assert_eq!(floor.progress(), "0/3", "a repetition appends nothing");
    assert_eq!(floor.entry(2).unwrap().body, r#"{"n":1}"#);
    assert_eq!(floor.entry(2).unwrap().published, floor.world.now);
}

#[test]
fn the_receipt_of_a_publication_is_what_its_repetition_hears() {
    let mut floor = Floor::new();
    floor.publish("e1");
    let Reply::Fence(fence::Reply::Duplicate { fence, .. }) = floor.publish("e1") else { panic!("a repetition") };
    let fencepost_kernel::fence::State::Sealed { receipt, .. } = &fence.state else { panic!("sealed") };
    let expected =
        format!(r#"{{"accepted":true,"replay":true,"lane":"acme:{HOME}","lane_id":"{}","seq":1}}"#, floor.at);
    assert_eq!(receipt.body, expected);
    assert_eq!(receipt.effect_id, "e1");
}

#[test]
fn another_body_under_a_known_id_is_a_conflict_and_appends_nothing() {
    let mut floor = Floor::holding(1);
    let other = floor.publication(HOME, "e1", r#"{"n":2}"#, None);
    assert_eq!(floor.world.say(&other), "conflict");
    assert_eq!(floor.progress(), "0/1");
}

#[test]
fn a_warehouse_without_a_route_takes_nothing_and_the_id_stays_free() {
    let mut floor = Floor::new();
    assert_eq!(floor.publish_to("w2", "e1").decision(), "no_transport");
    assert_eq!(said(&floor.publish("e1")), "published 1");
}

#[test]
fn an_id_whose_time_is_over_is_a_new_event() {
    let mut floor = Floor::holding(1);
    floor.ack();
    floor.world.pass(FENCED_MS - 1);
    assert_eq!(floor.publish("e1").decision(), "duplicate");
    floor.world.pass(1);
    assert_eq!(said(&floor.publish("e1")), "published 2");
}

#[test]
fn a_publication_falls_with_the_route_it_was_decided_over() {
    let mut floor = Floor::new();
    let decision = floor.world.decide(&floor.publication(HOME, "e1", "{}", None));
    assert_eq!(said(&floor.put(route(HOME, webhook("https://two.example")))), "routed");
    assert_eq!(floor.world.commit_also(&decision.writes, &decision.also), None);
}

/// The event's history, a way to make it, and the reply to its cancellation.
type Case<'c> = (&'c str, &'c dyn Fn(&mut Floor), &'c str);

/// The state of event `e2` of four, before it is cancelled.
fn pushed(until: impl Fn(&mut Floor)) -> &'static str {
    let mut floor = Floor::holding(4);
    floor.ack();
    until(&mut floor);
    floor.cancel("e2")
}

#[test]
fn a_cancellation_tells_what_became_of_the_original() {
    let fail = |floor: &mut Floor| drop(floor.fail(later()));
    let die = |floor: &mut Floor| drop(floor.die());
    let rows: [Case<'_>; 17] = [
        ("its turn is now", &|_| {}, "in_flight"),
        ("it failed", &fail, "in_flight"),
        ("it failed and its lane is paused", &|floor| (fail(floor), drop(floor.pause())).1, "in_flight"),
        ("its lane is paused, perhaps while it is sent", &|floor| drop(floor.pause()), "in_flight"),
        (
            "its receiver is gone",
            &|floor| drop(floor.fail(AttemptFailure::Gone(ReceiverAnswer::new(Some(410), "")))),
            "in_flight",
        ),
        ("it was received", &|floor| drop(floor.ack()), "delivered"),
        ("it is dead", &die, "dead"),
        ("it was skipped", &|floor| drop(floor.skip(2)), "dead"),
        ("it is dead and blocks its lane", &|floor| (floor.after_dead = AfterDead::Block, die(floor)).1, "dead"),
        ("it was given up", &|floor| (die(floor), drop(floor.decide_letter(2, discard()))).1, "dead"),
        ("it was sent again", &|floor| (die(floor), drop(floor.decide_letter(2, redrive()))).1, "in_flight"),
        ("it was sent again and received", &|floor| sent_again(floor, 3), "delivered"),
        ("it was sent again and others were received", &|floor| sent_again(floor, 2), "in_flight"),
        ("it was sent again and died again", &|floor| (sent_again(floor, 2), die(floor)).1, "dead"),
        ("it blocked its lane and is sent again", &|floor| again_in_order(floor), "in_flight"),
        ("it blocked its lane and was received", &|floor| (again_in_order(floor), drop(floor.ack())).1, "delivered"),
        ("its time is over", &|floor| (drop(floor.ack()), floor.world.pass(FENCED_MS)).1, "unknown"),
    ];
    let wrong = rows.iter().filter_map(|(what, until, expected)| {
        let got = pushed(until);
        (got != *expected).then(|| format!("{what}: got {got}, expected {expected}"))
    });
    let wrong: Vec<_> = wrong.collect();
    assert!(wrong.is_empty(), "\n{}", wrong.join("\n"));
}

fn sent_again(floor: &mut Floor, received: usize) {
    floor.die();
    assert_eq!(said(&floor.decide_letter(2, redrive())), "redriven");
    (0..received).for_each(|_| drop(floor.ack()));
}

fn again_in_order(floor: &mut Floor) {
    floor.after_dead = AfterDead::Block;
    floor.die();
    assert_eq!(said(&floor.decide_letter(2, redrive())), "redriven");
}

#[test]
fn an_event_behind_the_head_or_from_after_the_pause_is_undelivered() {
    let mut floor = Floor::holding(2);
    assert_eq!(floor.cancel("e2"), "undelivered");
    let mut floor = Floor::holding(1);
    floor.ack();
    floor.pause();
    floor.world.pass(1);
    floor.publish("late");
    assert_eq!(floor.cancel("late"), "undelivered");
}

#[test]
fn that_an_event_is_undelivered_is_told_only_where_its_lane_has_not_moved_meanwhile() {
    let mut floor = Floor::holding(2);
    let decision = floor.world.decide(&floor.publication(HOME, "cancel-e2", "{}", Some("e2")));
    floor.ack();
    floor.ack();
    assert_eq!(floor.world.commit_also(&decision.writes, &decision.also), None);
    assert_eq!(floor.cancel("e2"), "delivered");
}

#[test]
fn a_cancellation_of_what_was_never_published_is_refused_and_its_id_stays_free() {
    let mut floor = Floor::holding(1);
    assert_eq!(floor.cancel_as("c", "nobody"), "unknown_original");
    assert_eq!(floor.cancel_as("c", "e1"), "in_flight");
    assert_eq!(floor.cancel_as("self", "self"), "unknown_original");
}

#[test]
fn an_original_that_is_over_and_swept_is_not_known_any_more() {
    let mut floor = Floor::holding(1);
    floor.ack();
    floor.world.pass(FENCED_MS);
    floor.world.sweep();
    assert_eq!(floor.cancel("e1"), "unknown_original");
}

#[test]
fn a_second_cancellation_hears_the_truth_of_its_own_time_and_the_first_mark_stays() {
    let mut floor = Floor::holding(1);
    assert_eq!(floor.cancel_as("first", "e1"), "in_flight");
    floor.ack();
    assert_eq!(floor.cancel_as("second", "e1"), "delivered");
    assert_eq!(floor.cancel_as("first", "e1"), "duplicate");
    match floor.world.record(RowKey::cancelled(floor.at, 1)) {
        Some(Record::Lane(lane::Record::Cancelled(mark))) => assert_eq!(mark.by, "first"),
        other => panic!("{other:?}"),
    }
}

#[test]
fn a_cancellation_on_a_polled_lane_goes_by_what_was_served() {
    let polled = |served: Option<u64>, acked: u64| {
        let mut floor = Floor::with(Transport::Poll);
        floor.fill(3);
        floor.poll_ack(acked);
        floor.served = served;
        floor.cancel("e2")
    };
    assert_eq!(polled(Some(1), 0), "undelivered");
    assert_eq!(polled(Some(2), 0), "in_flight");
    assert_eq!(polled(Some(3), 1), "in_flight");
    assert_eq!(polled(None, 0), "in_flight", "nobody knows");
    assert_eq!(polled(Some(3), 2), "delivered");
}

#[test]
fn the_driver_acknowledges_the_head_under_its_epoch_only() {
    let mut floor = Floor::holding(3);
    let ack = |upto, taken| Act::Ack { upto, epoch: Some(FIRST + taken) };
    assert_eq!(said(&floor.act(ack(1, 0))), "lane");
    assert_eq!(floor.progress(), "1/3");
    assert_eq!(floor.entry(1), None, "what is settled leaves the store");
    assert_eq!(said(&floor.act(ack(1, 0))), "lane again");
    floor.act(Act::Take { node: "b".into(), after: FIRST });
    assert_eq!(said(&floor.act(ack(2, 0))), "lane_lost");
    assert_eq!(said(&floor.act(ack(1, 0))), "lane_lost");
    assert_eq!(floor.progress(), "1/3");
    assert_eq!(said(&floor.act(ack(2, 1))), "lane");
    assert_eq!(floor.progress(), "2/3");
}

#[test]
fn an_acknowledgement_ends_the_trouble_of_the_head() {
    let mut floor = Floor::holding(2);
    floor.fail(later());
    assert_eq!(floor.progress(), "0/2 troubled");
    floor.ack();
    assert_eq!(floor.progress(), "1/2");
}

#[test]
fn a_late_acknowledgement_of_what_a_person_skipped_settles_nothing_else() {
    let mut floor = Floor::holding(2);
    floor.skip(1);
    assert_eq!(said(&floor.act(Act::Ack { upto: 1, epoch: Some(FIRST) })), "lane again");
    assert_eq!(floor.progress(), "1/2");
    assert!(floor.letter(1).is_some());
}

#[test]
fn a_poller_moves_only_forward_and_never_past_the_end() {
    let mut floor = Floor::with(Transport::Poll);
    floor.fill(5);
    assert_eq!(said(&floor.poll_ack(3)), "lane");
    assert_eq!(said(&floor.poll_ack(3)), "lane again");
    assert_eq!(said(&floor.poll_ack(1)), "lane again");
    assert_eq!(said(&floor.poll_ack(0)), "lane again");
    assert_eq!(floor.progress(), "3/5");
    assert!(matches!(floor.poll_ack(6), Reply::Lane(lane::Reply::Ahead { tail: 5 })));
    assert_eq!(floor.progress(), "3/5");
    assert_eq!(said(&floor.poll_ack(5)), "lane");
    assert_eq!(floor.progress(), "5/5");
}

#[test]
fn events_that_a_poller_settles_leave_the_store_a_thousand_at_a_time() {
    let mut floor = Floor::with(Transport::Poll);
    floor.fill(2_500);
    for (trimmed, said_then) in [(1_000, "lane"), (2_000, "lane"), (2_400, "lane"), (2_400, "lane again")] {
        assert_eq!(said(&floor.poll_ack(2_400)), said_then);
        assert_eq!((floor.lane().settled, floor.lane().trimmed), (2_400, trimmed));
        let left = (1..=2_500).filter(|seq| floor.entry(*seq).is_some()).collect::<Vec<_>>();
        assert_eq!(left, (trimmed + 1..=2_500).collect::<Vec<_>>());
    }
}

#[test]
fn nothing_happens_to_a_lane_that_is_not_there() {
    let mut floor = Floor::new();
    for act in [Act::Ack { upto: 1, epoch: Some(0) }, Act::Resume, Act::Take { node: "b".into(), after: 0 }] {
        assert_eq!(floor.act(act).decision(), "no_lane");
    }
    assert_eq!(floor.skip(1).decision(), "no_lane");
    assert_eq!(floor.pause().decision(), "no_lane");
    floor.world.pass(DAY_MS);
    assert_eq!(floor.decide_letter(1, redrive()).decision(), "no_letter");
}
