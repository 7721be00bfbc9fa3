//! Failures of the head, row by row: the schedule as a lane keeps it, pauses, skips, deaths.
//! Acts of people on dead letters are in `dispatch_table_redrive`.

use fencepost_kernel::{
    Reply, RowKey,
    lane::{self, Act, AfterDead, AttemptFailure, DeadLetterReason, Fate, ReceiverAnswer},
};

use super::lane_world::{DAY_MS, FIRST, Floor, HOUR_MS, SECOND_MS, later, said};

fn gone() -> AttemptFailure {
    AttemptFailure::Gone(ReceiverAnswer::new(Some(410), "gone"))
}

#[test]
fn the_head_is_tried_on_schedule_and_dies_at_24_hours_with_what_is_known_of_it() {
    let mut floor = Floor::holding(2);
    let first = floor.world.now;
    let mut times = Vec::new();
    let letter = loop {
        times.push(floor.world.now.since(first) / SECOND_MS);
        match floor.fail(later()) {
            Reply::Lane(lane::Reply::OnLane { died: Some(letter), .. }) => break letter,
            Reply::Lane(lane::Reply::OnLane { lane, .. }) => {
                let trouble = lane.trouble.clone().unwrap();
                assert_eq!((trouble.attempts as usize, trouble.first_at), (times.len(), first));
                assert_eq!(trouble.last_at, floor.world.now);
                assert_eq!(trouble.answer, ReceiverAnswer::new(Some(500), "broken"));
                floor.world.now = trouble.next_at;
            }
            other => panic!("{other:?}"),
        }
    };
    let mut expected = vec![0, 5, 30, 120, 600];
    expected.extend((1..=24).map(|hour| hour * 3_600));
    assert_eq!(times, expected);
    assert_eq!(letter.reason, DeadLetterReason::Horizon);
    assert_eq!((letter.attempts, letter.first_at, letter.at), (29, first, first.plus(DAY_MS)));
    assert_eq!((letter.entry.correlation_id.as_str(), &letter.fate), ("e1", &Fate::Waiting));
    assert_eq!(floor.letter(1).as_ref(), Some(&*letter));
    assert_eq!(floor.progress(), "1/2", "the lane goes on with the next");
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
    floor.fail(AttemptFailure::Later { answer: ReceiverAnswer::default(), wish_ms: Some(90_000) });
    assert_eq!(floor.lane().trouble.unwrap().next_at, floor.world.now.plus(90_000));
}

#[test]
fn a_failure_counts_for_the_head_under_the_right_epoch_only() {
    let mut floor = Floor::holding(3);
    let fail = |seq, taken| Act::Fail {
        seq,
        epoch: FIRST + taken,
        began: super::world::START,
        failure: later(),
        after_dead: AfterDead::Continue,
        chance: fencepost_kernel::lane::retry::Chance(0),
    };
    assert_eq!(said(&floor.act(fail(2, 0))), "not_head");
    floor.ack();
    assert_eq!(said(&floor.act(fail(1, 0))), "not_head");
    assert_eq!(said(&floor.act(fail(2, 1))), "lane_lost");
    assert_eq!(floor.progress(), "1/3");
    assert_eq!(said(&floor.act(fail(2, 0))), "lane");
    assert_eq!(floor.progress(), "1/3 troubled");
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
    assert_eq!(floor.progress(), "0/2 troubled paused");
    let pause = floor.lane().paused.unwrap();
    assert_eq!((pause.by.as_str(), pause.why.as_str()), ("receiver", "the receiver answered 410"));
    floor.world.pass(100 * DAY_MS);
    assert_eq!(said(&floor.act(Act::Resume)), "lane");
    assert_eq!(floor.lane().trouble.unwrap().next_at, floor.world.now, "tried at once");
    floor.ack();
    assert_eq!(floor.progress(), "1/2");
}

#[test]
fn a_way_that_is_down_is_tried_for_as_long_as_it_takes_and_that_time_does_not_count() {
    let mut floor = Floor::holding(1);
    let away = || AttemptFailure::Away(ReceiverAnswer::new(None, "no broker"));
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
fn an_event_refused_for_good_dies_at_once() {
    let mut floor = Floor::holding(2);
    let never = AttemptFailure::Never(ReceiverAnswer::new(None, "2 MB is too much"), DeadLetterReason::TooLarge);
    assert_eq!(said(&floor.fail(never)), "lane died");
    let letter = floor.letter(1).unwrap();
    assert_eq!((letter.reason, letter.attempts, letter.at), (DeadLetterReason::TooLarge, 1, floor.world.now));
    assert_eq!(floor.progress(), "1/2");
}

// Seed 20000034675: a node read an old primary, where the event was not yet. It took the failure for recorded, and sent the event
// again at once: more than a hundred times a second.
#[test]
fn failure_of_an_event_that_is_not_in_the_rows_is_not_taken_for_recorded() {
    let mut floor = Floor::holding(1);
    floor.publish("new");
    floor.ack();
    let lane = floor.lane();
    floor.world.lose(RowKey::entry(floor.at, 2));
    let never = AttemptFailure::Never(ReceiverAnswer::new(None, "2 MB is too much"), DeadLetterReason::TooLarge);
    assert_eq!(said(&floor.fail(never)), "not_head");
    assert_eq!((floor.lane(), floor.letter(2)), (lane, None));
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
    assert_eq!(said(&floor.fail_since(began, later())), "lane", "its clock is halted since 5 s before the horizon");
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
    assert_eq!(floor.progress(), "1/3");
    let letter = floor.letter(1).unwrap();
    // A first attempt may be under way, and nobody has written that down yet.
    assert_eq!((letter.reason, letter.attempts), (DeadLetterReason::Skipped, 1));
    assert_eq!(letter.answer.note, "skipped by ada; an attempt may have been under way");
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
