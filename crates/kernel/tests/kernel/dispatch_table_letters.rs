//! Failures and dead letters, row by row: the schedule as a lane keeps it, pauses, skips, blocked lanes, redrives.

use fencepost_kernel::{
    Reply,
    command::{Act, Failure, LetterVerdict},
    lane::{AfterDead, Answer, Fate, Reason, Transport},
};

use super::lane_world::{
    DAY_MS, Floor, HOME, HOUR_MS, RECEIVER_RETAIN_MS, SECOND_MS, discard, later, redrive, route, said,
};

fn gone() -> Failure {
    Failure::Gone(Answer::new(Some(410), "gone"))
}

#[test]
fn the_head_is_tried_on_schedule_and_dies_at_24_hours_with_what_is_known_of_it() {
    let mut floor = Floor::holding(2);
    let first = floor.world.now;
    let mut times = Vec::new();
    let letter = loop {
        times.push(floor.world.now.since(first) / SECOND_MS);
        match floor.fail(later()) {
            Reply::OnLane { died: Some(letter), .. } => break letter,
            Reply::OnLane { lane, .. } => {
                let trouble = lane.trouble.clone().unwrap();
                assert_eq!((trouble.attempts as usize, trouble.first_at), (times.len(), first));
                assert_eq!(trouble.last_at, floor.world.now);
                assert_eq!(trouble.answer, Answer::new(Some(500), "broken"));
                floor.world.now = trouble.next_at;
            }
            other => panic!("{other:?}"),
        }
    };
    let mut expected = vec![0, 5, 30, 120, 600];
    expected.extend((1..=24).map(|hour| hour * 3_600));
    assert_eq!(times, expected);
    assert_eq!(letter.reason, Reason::Horizon);
    assert_eq!((letter.attempts, letter.first_at, letter.at), (29, first, first.plus(DAY_MS)));
    assert_eq!((letter.entry.correlation_id.as_str(), &letter.fate), ("e1", &Fate::Waiting));
    assert_eq!(floor.letter(1).as_ref(), Some(&*letter));
    assert_eq!(floor.stand(), "1/2", "the lane goes on with the next");
    assert_eq!(floor.entry(1), None);
}

#[test]
fn jitter_only_lengthens_and_by_a_tenth_at_most() {
    for chance in [0, 1, 499, 500, 501, u32::MAX] {
        let mut floor = Floor { chance, ..Floor::holding(1) };
        floor.fail(later());
        let gap_ms = floor.lane().trouble.unwrap().next_at.since(floor.world.now);
        assert!((5_000..=5_500).contains(&gap_ms), "{gap_ms} ms after chance {chance}");
    }
}

#[test]
fn a_wish_of_the_receiver_lengthens_the_wait_of_its_lane() {
    let mut floor = Floor::holding(1);
    floor.fail(Failure::Later { answer: Answer::default(), wish_ms: Some(90_000) });
    assert_eq!(floor.lane().trouble.unwrap().next_at, floor.world.now.plus(90_000));
}

#[test]
fn a_failure_counts_for_the_head_under_the_right_epoch_only() {
    let mut floor = Floor::holding(3);
    let fail = |seq, epoch| Act::Fail {
        seq,
        epoch,
        began: super::world::START,
        failure: later(),
        after_dead: AfterDead::Continue,
        chance: fencepost_kernel::retry::Chance(0),
    };
    assert_eq!(said(&floor.act(fail(2, 0))), "not_head");
    floor.ack();
    assert_eq!(said(&floor.act(fail(1, 0))), "not_head");
    assert_eq!(said(&floor.act(fail(2, 1))), "lane_lost");
    assert_eq!(floor.stand(), "1/3");
    assert_eq!(said(&floor.act(fail(2, 0))), "lane");
    assert_eq!(floor.stand(), "1/3 troubled");
}

#[test]
fn a_failure_that_is_recorded_twice_counts_once() {
    let mut floor = Floor::holding(1);
    let began = floor.world.now;
    floor.world.pass(15_000);
    floor.fail_since(began, later());
    let once = floor.lane();
    // The answer to the first record was lost.
    floor.world.pass(200);
    assert_eq!(said(&floor.fail_since(began, later())), "lane again");
    assert_eq!(floor.lane(), once);
}

#[test]
fn a_receiver_that_is_gone_pauses_its_lane_and_nothing_is_lost() {
    let mut floor = Floor::holding(2);
    assert_eq!(said(&floor.fail(gone())), "lane");
    assert_eq!(floor.stand(), "0/2 troubled paused");
    let pause = floor.lane().paused.unwrap();
    assert_eq!((pause.by.as_str(), pause.why.as_str()), ("receiver", "the receiver answered 410"));
    floor.world.pass(100 * DAY_MS);
    assert_eq!(said(&floor.act(Act::Resume)), "lane");
    assert_eq!(floor.lane().trouble.unwrap().next_at, floor.world.now, "tried at once");
    floor.ack();
    assert_eq!(floor.stand(), "1/2");
}

#[test]
fn a_way_that_is_down_is_tried_for_as_long_as_it_takes_and_that_time_does_not_count() {
    let mut floor = Floor::holding(1);
    let away = || Failure::Away(Answer::new(None, "no broker"));
    let (started, mut gaps_ms) = (floor.world.now, Vec::new());
    while floor.world.now.since(started) < 30 * HOUR_MS {
        assert_eq!(said(&floor.fail(away())), "lane");
        let next_at = floor.lane().trouble.unwrap().next_at;
        gaps_ms.push(next_at.since(floor.world.now));
        floor.world.now = next_at;
    }
    assert_eq!(gaps_ms[..7], [1_000, 2_000, 4_000, 8_000, 16_000, 30_000, 30_000]);
    assert_eq!(said(&floor.fail(later())), "lane", "its first real attempt does not kill it");
    let first = floor.lane().trouble.unwrap().first_at;
    assert!(floor.world.now.since(first) <= 30_000);
    assert_eq!(floor.die().at, first.plus(DAY_MS));
}

#[test]
fn what_will_never_be_taken_dies_at_once() {
    let mut floor = Floor::holding(2);
    let never = Failure::Never(Answer::new(None, "2 MB is too much"), Reason::TooLarge);
    assert_eq!(said(&floor.fail(never)), "lane died");
    let letter = floor.letter(1).unwrap();
    assert_eq!((letter.reason, letter.attempts, letter.at), (Reason::TooLarge, 1, floor.world.now));
    assert_eq!(floor.stand(), "1/2");
}

#[test]
fn a_pause_stops_the_24_hour_clock() {
    let mut floor = Floor::holding(1);
    let first = floor.world.now;
    floor.fail(later());
    floor.world.pass(HOUR_MS);
    assert_eq!(said(&floor.pause()), "lane");
    assert_eq!(said(&floor.pause()), "lane again", "the first pause counts");
    floor.world.pass(50 * HOUR_MS);
    assert_eq!(said(&floor.act(Act::Resume)), "lane");
    assert_eq!(said(&floor.act(Act::Resume)), "lane again");
    let letter = floor.die();
    assert_eq!(letter.at, first.plus(DAY_MS + 50 * HOUR_MS));
}

#[test]
fn an_attempt_that_ends_in_a_pause_past_the_horizon_does_not_kill() {
    let mut floor = Floor::holding(1);
    let first = floor.world.now;
    floor.fail(later());
    floor.world.now = first.plus(DAY_MS - 10_000);
    let began = floor.world.now;
    floor.world.pass(5_000);
    floor.pause();
    floor.world.pass(10_000);
    assert_eq!(said(&floor.fail_since(began, later())), "lane", "its clock stands since 5 s before the horizon");
    floor.world.pass(HOUR_MS);
    floor.act(Act::Resume);
    let resumed = floor.world.now;
    assert_eq!(said(&floor.fail(later())), "lane");
    assert_eq!(floor.die().at, resumed.plus(5_000));
}

#[test]
fn only_the_head_is_skipped_and_a_repeat_is_known() {
    let mut floor = Floor::holding(3);
    assert_eq!(said(&floor.skip(2)), "not_head");
    assert_eq!(said(&floor.skip(1)), "lane died");
    assert_eq!(said(&floor.skip(1)), "lane again");
    assert_eq!(floor.stand(), "1/3");
    let letter = floor.letter(1).unwrap();
    assert_eq!((letter.reason, letter.attempts), (Reason::Skipped, 0));
    assert_eq!(letter.answer.note, "skipped by ada");
    floor.ack();
    assert_eq!(said(&floor.skip(2)), "not_head", "it was received");
    floor.ack();
    assert_eq!(said(&floor.skip(4)), "not_head", "nothing is there");
}

#[test]
fn a_skipped_head_keeps_what_is_known_of_its_attempts() {
    let mut floor = Floor::holding(1);
    let first = floor.world.now;
    floor.fail(later());
    floor.world.pass(SECOND_MS);
    floor.skip(1);
    let letter = floor.letter(1).unwrap();
    assert_eq!((letter.attempts, letter.first_at, letter.answer.status), (1, first, Some(500)));
}

fn blocked() -> Floor {
    let mut floor = Floor { after_dead: AfterDead::Block, ..Floor::holding(3) };
    floor.die();
    assert_eq!(floor.stand(), "0/3 troubled blocked");
    floor
}

#[test]
fn a_lane_that_is_blocked_stands_until_a_person_decides() {
    let mut floor = blocked();
    assert!(floor.lane().stands());
    assert_eq!(said(&floor.fail(later())), "not_head");
    assert!(floor.letter(1).unwrap().blocks);
}

#[test]
fn a_redrive_frees_a_blocked_lane_at_its_old_position() {
    let mut floor = blocked();
    assert_eq!(said(&floor.decide_letter(1, redrive())), "redriven");
    assert_eq!(floor.stand(), "0/3");
    assert_eq!(floor.head().as_deref(), Some("e1"));
    assert!(matches!(floor.letter(1).unwrap().fate, Fate::Redriven { seq: 1, .. }));
    assert_eq!(said(&floor.decide_letter(1, redrive())), "redriven again");
    floor.ack();
    assert_eq!((floor.stand().as_str(), floor.head().as_deref()), ("1/3", Some("e2")));
}

#[test]
fn a_discard_frees_a_blocked_lane_behind_the_dead_head() {
    let mut floor = blocked();
    assert_eq!(said(&floor.decide_letter(1, discard())), "discarded");
    assert_eq!((floor.stand().as_str(), floor.head().as_deref()), ("1/3", Some("e2")));
    assert_eq!(floor.entry(1), None);
    assert_eq!(said(&floor.decide_letter(1, discard())), "discarded again");
    assert_eq!(floor.stand(), "1/3", "a repeat frees nothing more");
    assert_eq!(said(&floor.decide_letter(1, redrive())), "letter_decided");
}

#[test]
fn a_skip_frees_a_blocked_lane_too_and_never_blocks_one() {
    let mut floor = blocked();
    assert_eq!(said(&floor.skip(1)), "lane died");
    assert_eq!(floor.stand(), "1/3");
    assert!(!floor.letter(1).unwrap().blocks);
    floor.skip(2);
    assert_eq!(floor.stand(), "2/3");
}

#[test]
fn a_redrive_goes_to_the_end_of_its_lane_marked_as_out_of_order() {
    let mut floor = Floor::holding(2);
    floor.die();
    assert_eq!(said(&floor.decide_letter(1, redrive())), "redriven");
    assert_eq!(floor.stand(), "1/3");
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
            assert!(matches!(&reply, Reply::LetterCancelled { by } if by == "cancel-e1"), "{reply:?}");
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
    assert!(matches!(refused, Reply::PastRetention { receiver_retain_ms: RECEIVER_RETAIN_MS }), "{refused:?}");
    let force = LetterVerdict::Redrive { force: Some("asked them".into()) };
    assert_eq!(said(&floor.decide_letter(1, force)), "redriven");
    assert!(matches!(floor.letter(1).unwrap().fate, Fate::Redriven { why: Some(why), .. } if why == "asked them"));
}

#[test]
fn what_was_never_tried_may_be_sent_at_any_time() {
    let mut floor = Floor::holding(1);
    floor.skip(1);
    floor.world.pass(10 * RECEIVER_RETAIN_MS);
    assert_eq!(said(&floor.decide_letter(1, redrive())), "redriven");
}

#[test]
fn what_dies_again_is_the_same_letter_and_the_receivers_memory_counts_from_the_first_life() {
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
fn a_redrive_follows_its_warehouse_to_another_lane_and_may_block_it_there() {
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
