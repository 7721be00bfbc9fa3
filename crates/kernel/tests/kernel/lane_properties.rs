//! Any interleaving of publishers, drivers, pollers and people: positions without a gap, everything settled in order,
//! each event ended once. The invariants are written here a second time, over the rows alone.

use std::collections::BTreeMap;

use fencepost_kernel::{
    Reply,
    dispatch::{self, Transport},
    lane::{self, Act, AfterDead, AttemptFailure, DeadLetterReason, Fate, ReceiverAnswer},
};
use proptest::prelude::*;

use super::{
    lane_world::{DAY_MS, FIRST, Floor, HOUR_MS, discard, later, redrive},
    world::cases,
};

#[derive(Clone, Debug)]
enum Step {
    Pass(u64),
    Publish(u8),
    Ack,
    /// One that was sent under an earlier epoch, or long ago.
    LateAck(u64, u64),
    PollAck(u64),
    Fail,
    LateFail(u64, u64),
    Gone,
    Never,
    Skip(u64),
    Pause,
    Resume,
    Redrive(u64),
    Discard(u64),
    Cancel(u8),
    Take(u64),
    After(bool),
}

/// Those that only a driver takes, and those that anybody may.
fn steps(own: BoxedStrategy<Step>) -> impl Strategy<Value = Vec<Step>> {
    proptest::collection::vec(prop_oneof![1 => own, 1 => anybodys()], 1..120)
}

fn drivers() -> BoxedStrategy<Step> {
    let steps = prop_oneof![
        6 => Just(Step::Ack),
        2 => (0..6u64, 0..3u64).prop_map(|(upto, epoch)| Step::LateAck(upto, epoch)),
        6 => Just(Step::Fail),
        2 => (0..6u64, 0..3u64).prop_map(|(seq, epoch)| Step::LateFail(seq, epoch)),
        1 => Just(Step::Gone),
        2 => Just(Step::Never),
        1 => (0..3u64).prop_map(Step::Take),
    ];
    steps.boxed()
}

fn anybodys() -> impl Strategy<Value = Step> {
    prop_oneof![
        4 => prop_oneof![0..10u64, 0..HOUR_MS, Just(DAY_MS)].prop_map(Step::Pass),
        8 => (0..40u8).prop_map(Step::Publish),
        2 => (0..6u64).prop_map(Step::Skip),
        1 => Just(Step::Pause),
        2 => Just(Step::Resume),
        3 => (1..12u64).prop_map(Step::Redrive),
        1 => (1..12u64).prop_map(Step::Discard),
        1 => (0..40u8).prop_map(Step::Cancel),
        1 => any::<bool>().prop_map(Step::After),
    ]
}

#[derive(Default)]
struct Seen {
    settled: u64,
    epoch: u64,
    /// How each position ended: acknowledged, or dead.
    ends: BTreeMap<u64, &'static str>,
}

fn run(floor: &mut Floor, step: &Step) -> Option<Reply> {
    let lane = (floor.tail() > 0).then(|| floor.lane());
    Some(match step {
        Step::Pass(span_ms) => {
            floor.world.pass(*span_ms);
            return None;
        }
        Step::Publish(id) => floor.publish(&format!("e{id}")),
        Step::Cancel(id) => {
            floor.cancel(&format!("e{id}"));
            return None;
        }
        Step::After(block) => {
            floor.after_dead = if *block { AfterDead::Block } else { AfterDead::Continue };
            return None;
        }
        Step::Redrive(seq) => floor.decide_letter(*seq, redrive()),
        Step::Discard(seq) => floor.decide_letter(*seq, discard()),
        // A driver sends only what is there, and nothing while the lane stands.
        Step::Ack | Step::Fail | Step::Gone | Step::Never => {
            let lane = lane.filter(|lane| lane.settled < floor.tail() && !lane.is_halted())?;
            assert!(floor.entry(lane.settled + 1).is_some(), "the head is not there");
            match step {
                Step::Ack => floor.ack(),
                Step::Fail => floor.fail(later()),
                Step::Gone => floor.fail(AttemptFailure::Gone(ReceiverAnswer::default())),
                _ => floor.fail(AttemptFailure::Never(ReceiverAnswer::default(), DeadLetterReason::TooLarge)),
            }
        }
        Step::LateAck(back, epoch) => {
            let upto = lane?.settled.saturating_sub(*back);
            floor.act(Act::Ack { upto, epoch: Some(FIRST + epoch) })
        }
        Step::LateFail(back, epoch) => {
            let (seq, began, failure) = (lane?.settled.saturating_sub(*back), floor.world.now, later());
            let (after_dead, chance) = (floor.after_dead, fencepost_kernel::lane::retry::Chance(0));
            floor.act(Act::Fail { seq, epoch: FIRST + epoch, began, failure, after_dead, chance })
        }
        Step::PollAck(upto) => floor.poll_ack(*upto),
        Step::Skip(ahead) => floor.skip(lane?.settled + ahead),
        Step::Pause => floor.pause(),
        Step::Resume => floor.act(Act::Resume),
        Step::Take(after) => floor.act(Act::Take { node: format!("n{after}"), after: *after }),
    })
}

fn judge(floor: &Floor, seen: &mut Seen, reply: Option<&Reply>) -> Result<(), TestCaseError> {
    let (lane, tail) = if floor.tail() > 0 { (floor.lane(), floor.tail()) } else { return Ok(()) };
    prop_assert!(lane.settled >= seen.settled, "settled went back");
    prop_assert!(lane.settled <= tail, "settled what was never published");
    prop_assert!(lane.owner.epoch >= seen.epoch);
    // INVARIANT lane-order, INVARIANT one-end
    let died = match reply {
        Some(Reply::Lane(lane::Reply::OnLane { died: Some(_), lane, .. })) if !lane.blocked => true,
        Some(Reply::Dispatch(dispatch::Reply::Letter { replay: false, letter })) => {
            matches!(letter.fate, Fate::Discarded { .. }) && letter.blocks
        }
        _ => false,
    };
    for seq in seen.settled + 1..=lane.settled {
        let first = seen.ends.insert(seq, if died { "dead" } else { "acknowledged" });
        prop_assert_eq!(first, None, "{} ended twice", seq);
    }
    if died {
        prop_assert!(lane.settled <= seen.settled + 1, "one death settles one");
    }
    for seq in 1..=tail {
        prop_assert_eq!(floor.entry(seq).is_some(), seq > lane.trimmed, "entry {} of {}", seq, tail);
    }
    // A letter stands for each that died, under where it died first; an acknowledged one has none that waits.
    for (seq, end) in &seen.ends {
        let letter = floor.letter(*seq);
        match *end {
            "acknowledged" => {
                let fate = letter.map(|letter| letter.fate);
                prop_assert!(!matches!(fate, Some(Fate::Waiting | Fate::Discarded { .. })), "{} is both", seq);
            }
            _ => prop_assert!(letter.is_some() || redriven(floor, *seq), "{} died without a letter", seq),
        }
    }
    (seen.settled, seen.epoch) = (lane.settled, lane.owner.epoch);
    Ok(())
}

// Whether a letter was sent again at this position: one that dies there is the same letter.
fn redriven(floor: &Floor, seq: u64) -> bool {
    (1..seq).any(|first| floor.letter(first).is_some()) && floor.letter(seq).is_none()
}

fn play(mut floor: Floor, steps: &[Step]) -> Result<(), TestCaseError> {
    let mut seen = Seen::default();
    for step in steps {
        let reply = run(&mut floor, step);
        judge(&floor, &mut seen, reply.as_ref())?;
    }
    // After any history, the remaining events can be delivered, in order, to the end.
    if floor.tail() == 0 {
        return Ok(());
    }
    floor.act(Act::Resume);
    while floor.lane().settled < floor.tail() {
        let settled = floor.lane().settled;
        let reply = if floor.lane().blocked { floor.skip(settled + 1) } else { floor.ack() };
        judge(&floor, &mut seen, Some(&reply))?;
        prop_assert_eq!(floor.lane().settled, settled + 1, "a lane that never ends");
    }
    prop_assert!(seen.ends.keys().copied().eq(1..=floor.tail()), "each position ended, none left out");
    Ok(())
}

proptest! {
    #![proptest_config(cases(1_000))]

    #[test]
    fn any_interleaving_settles_a_pushed_lane_in_order_and_each_event_once(steps in steps(drivers())) {
        play(Floor::new(), &steps)?;
    }

    #[test]
    fn any_interleaving_settles_a_polled_lane_in_order_and_each_event_once(steps in steps((0..12u64).prop_map(Step::PollAck).boxed())) {
        play(Floor::with(Transport::Poll), &steps)?;
    }
}
