//! Dead letters, row by row: lanes that they block, redrives and their refusals, discards.

use fencepost_kernel::{
    Reply,
    dispatch::{self, LetterVerdict, Transport},
    lane::{Act, AfterDead, Fate, Members},
};

use super::lane_world::{DAY_MS, Floor, HOME, RECEIVER_RETAIN_MS, discard, later, redrive, route, said, webhook};

fn blocked() -> Floor {
    let mut floor = Floor { after_dead: AfterDead::Block, ..Floor::holding(3) };
    floor.die();
    assert_eq!(floor.progress(), "0/3 troubled blocked");
    floor
}

#[test]
fn a_lane_that_is_blocked_stands_until_a_person_decides() {
    let mut floor = blocked();
    assert!(floor.lane().is_halted());
    assert_eq!(said(&floor.fail(later())), "not_head");
    assert!(floor.letter(1).unwrap().blocks);
}

#[test]
fn a_redrive_frees_a_blocked_lane_at_its_old_position() {
    let mut floor = blocked();
    assert_eq!(said(&floor.decide_letter(1, redrive())), "redriven");
    assert_eq!(floor.progress(), "0/3");
    assert_eq!(floor.head().as_deref(), Some("e1"));
    assert!(matches!(floor.letter(1).unwrap().fate, Fate::Redriven { seq: 1, .. }));
    assert_eq!(said(&floor.decide_letter(1, redrive())), "redriven again");
    floor.ack();
    assert_eq!((floor.progress().as_str(), floor.head().as_deref()), ("1/3", Some("e2")));
}

#[test]
fn a_discard_frees_a_blocked_lane_behind_the_dead_head() {
    let mut floor = blocked();
    assert_eq!(said(&floor.decide_letter(1, discard())), "discarded");
    assert_eq!((floor.progress().as_str(), floor.head().as_deref()), ("1/3", Some("e2")));
    assert_eq!(floor.entry(1), None);
    assert_eq!(said(&floor.decide_letter(1, discard())), "discarded again");
    assert_eq!(floor.progress(), "1/3", "a repeat frees nothing more");
    assert_eq!(said(&floor.decide_letter(1, redrive())), "letter_decided");
}

#[test]
fn a_skip_frees_a_blocked_lane_too_and_never_blocks_one() {
    let mut floor = blocked();
    assert_eq!(said(&floor.skip(1)), "lane died");
    assert_eq!(floor.progress(), "1/3");
    assert!(!floor.letter(1).unwrap().blocks);
    floor.skip(2);
    assert_eq!(floor.progress(), "2/3");
}

#[test]
fn a_redrive_goes_to_the_end_of_its_lane_marked_as_out_of_order() {
    let mut floor = Floor::holding(2);
    floor.die();
    assert_eq!(said(&floor.decide_letter(1, redrive())), "redriven");
    assert_eq!(floor.progress(), "1/3");
    let entry = floor.entry(3).unwrap();
    assert_eq!((entry.correlation_id.as_str(), entry.redrive_of), ("e1", Some((floor.at, 1))));
    assert!(matches!(floor.letter(1).unwrap().fate, Fate::Redriven { seq: 3, .. }));
    assert_eq!(said(&floor.decide_letter(1, redrive())), "redriven again");
    assert_eq!(floor.tail(), 3, "a repeat sends nothing");
    assert_eq!(said(&floor.decide_letter(1, discard())), "letter_decided");
}

#[test]
fn a_redrive_is_refused_once_cancelled_before_or_after_death() {
    for before in [true, false] {
        let mut floor = Floor::holding(1);
        if before {
            floor.cancel("e1");
        }
        floor.die();
        if !before {
            floor.cancel("e1");
        }
        assert_eq!(floor.letter(1).unwrap().cancelled_by.as_deref(), Some("cancel-e1"));
        let forced = LetterVerdict::Redrive { force: Some("I insist".into()) };
        for verdict in [redrive(), forced] {
            let reply = floor.decide_letter(1, verdict);
            assert!(
                matches!(&reply, Reply::Dispatch(dispatch::Reply::LetterCancelled { by }) if by == "cancel-e1"),
                "{reply:?}"
            );
        }
        assert_eq!(said(&floor.decide_letter(1, discard())), "discarded");
    }
}

#[test]
fn a_redrive_past_the_receivers_memory_must_be_forced() {
    let mut floor = Floor::holding(1);
    let first = floor.world.now;
    floor.die();
    floor.world.now = first.plus(RECEIVER_RETAIN_MS);
    assert_eq!(said(&floor.clone().decide_letter(1, redrive())), "redriven");
    floor.world.pass(1);
    let refused = floor.decide_letter(1, redrive());
    assert!(
        matches!(refused, Reply::Dispatch(dispatch::Reply::PastRetention { receiver_retain_ms: RECEIVER_RETAIN_MS })),
        "{refused:?}"
    );
    let force = LetterVerdict::Redrive { force: Some("asked them".into()) };
    assert_eq!(said(&floor.decide_letter(1, force)), "redriven");
    assert!(matches!(floor.letter(1).unwrap().fate, Fate::Redriven { why: Some(why), .. } if why == "asked them"));
}

#[test]
fn an_event_that_was_never_tried_may_be_redriven_at_any_time() {
    let mut floor = Floor::holding(1);
    floor.ack();
    floor.pause();
    floor.world.pass(1);
    floor.publish("late");
    floor.skip(2);
    assert_eq!(floor.letter(2).unwrap().answer.note, "skipped by ada");
    floor.world.pass(10 * RECEIVER_RETAIN_MS);
    assert_eq!(said(&floor.decide_letter(2, redrive())), "redriven");
}

#[test]
fn a_skipped_event_that_may_have_been_sent_is_not_redriven_past_the_receivers_memory() {
    let paused = "skipped by ada; an attempt may have been under way";
    let polled = "skipped by ada; who polls may have had it";
    for (mut floor, note) in [(Floor::holding(1), paused), (Floor::with(Transport::Poll), polled)] {
        if note == polled {
            floor.fill(1);
        }
        let first = floor.world.now;
        // A first attempt may be under way now, or a page be read.
        floor.pause();
        floor.world.pass(DAY_MS);
        floor.skip(1);
        let letter = floor.letter(1).unwrap();
        assert_eq!((letter.answer.note.as_str(), letter.attempts, letter.first_at), (note, 1, first));
        floor.world.now = first.plus(RECEIVER_RETAIN_MS);
        assert_eq!(said(&floor.clone().decide_letter(1, redrive())), "redriven");
        floor.world.pass(1);
        assert_eq!(floor.decide_letter(1, redrive()).decision(), "past_retention", "{note}");
    }
}

#[test]
fn event_of_a_shared_store_that_is_dated_after_a_pause_may_have_been_sent() {
    let pause = Act::Pause { by: "ada".into(), why: "they asked".into() };
    for pause_is_late in [true, false] {
        let mut floor = Floor { members: Members { me: "b".into(), alive: vec!["b".into()] }.into(), ..Floor::new() };
        floor.fill(1);
        floor.ack();
        // One node has decided the pause, and it hangs in the store; another publishes, and sends at once.
        let decided = floor.world.decide(&floor.on_lane(pause.clone()));
        if !pause_is_late {
            assert_eq!(floor.world.commit_also(&decided.writes, &decided.also), Some(0));
        }
        floor.world.pass(DAY_MS);
        floor.publish("late");
        if pause_is_late {
            assert_eq!(floor.world.commit_also(&decided.writes, &decided.also), Some(0));
        }
        assert!(floor.lane().paused.is_some());
        assert_eq!(floor.cancel("late"), "in_flight", "the pause is late: {pause_is_late}");
        floor.skip(2);
        assert_eq!(floor.letter(2).unwrap().attempts, 1, "the pause is late: {pause_is_late}");
    }
}

#[test]
fn an_event_that_dies_again_is_the_same_letter_and_the_receivers_memory_counts_from_the_first_life() {
    let mut floor = Floor::holding(1);
    let first = floor.world.now;
    let lived = floor.die();
    floor.world.now = first.plus(6 * DAY_MS);
    floor.decide_letter(1, redrive());
    let letter = floor.die();
    assert_eq!(floor.letter(1).as_ref(), Some(&*letter));
    assert_eq!(floor.letter(2), None, "no second letter");
    assert_eq!(letter.fate, Fate::Waiting);
    assert_eq!((letter.first_at, letter.attempts), (first, 2 * lived.attempts));
    floor.world.pass(1);
    assert_eq!(floor.decide_letter(1, redrive()).decision(), "past_retention");
}

#[test]
fn a_redrive_that_is_skipped_was_still_tried_in_its_first_life() {
    let mut floor = Floor::holding(1);
    floor.die();
    floor.decide_letter(1, redrive());
    floor.skip(2);
    floor.world.pass(RECEIVER_RETAIN_MS);
    assert_eq!(floor.decide_letter(1, redrive()).decision(), "past_retention");
}

#[test]
fn a_redrive_follows_its_warehouse_to_another_lane() {
    let mut floor = Floor::with(Transport::Kafka { topic: "orders".into() });
    floor.fill(1);
    floor.die();
    let (first_lane, polled) = (floor.at, route(HOME, Transport::Poll));
    assert_eq!(said(&floor.put(polled.clone())), "routed");
    assert_eq!(said(&floor.decide_letter(1, redrive())), "redriven");
    assert_eq!(floor.cancel_as("c", "e1"), "in_flight", "nobody came for it yet");
    floor.at = polled.lane();
    assert_eq!(floor.entry(1).unwrap().redrive_of, Some((first_lane, 1)));
    floor.poll_ack(1);
    assert_eq!(floor.cancel_as("d", "e1"), "delivered");
}

#[test]
fn a_redrive_may_block_the_other_lane_and_goes_first_in_it_then() {
    let mut floor = Floor::with(Transport::Poll);
    floor.fill(1);
    floor.skip(1);
    let pushed = route(HOME, webhook("https://one.example"));
    assert_eq!(said(&floor.put(pushed.clone())), "routed");
    let first_lane = floor.at;
    floor.decide_letter(1, redrive());
    (floor.at, floor.after_dead) = (pushed.lane(), AfterDead::Block);
    floor.publish("behind");
    floor.die();
    assert_eq!(floor.progress(), "0/2 troubled blocked");
    let blocked = floor.at;
    floor.at = first_lane;
    assert_eq!(said(&floor.decide_letter(1, redrive())), "redriven");
    floor.at = blocked;
    assert_eq!((floor.progress().as_str(), floor.head().as_deref()), ("0/2", Some("e1")));
}

#[test]
fn a_letter_goes_by_itself_only_after_a_person_has_decided() {
    let mut floor = Floor::holding(2);
    floor.die();
    floor.die();
    floor.decide_letter(1, discard());
    floor.world.pass(29 * DAY_MS);
    floor.world.sweep();
    assert!(floor.letter(1).is_some() && floor.letter(2).is_some());
    floor.world.pass(DAY_MS);
    floor.world.sweep();
    assert!(floor.letter(1).is_none());
    assert!(floor.letter(2).is_some());
}
