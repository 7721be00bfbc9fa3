//! A person who works on lanes: pauses and resumes them, skips heads, and decides about dead letters.
//! Never waits for long: what they saw may be old when they act. Spawned by `world`, and called by it while days pass.

use fencepost::dispatch::LocatedDeadLetter;
use fencepost_kernel::{
    Reply,
    dispatch::{self, LetterVerdict},
    lane::{self, Act, Fate, LanePurpose, Pause},
};

use super::{Lanes, planner};
use crate::{
    client::{Client, Heard, Node},
    history::lanes::{LaneAnswer, LaneAsk, LaneOutcome},
};

/// Works for as long as the world lasts.
pub(crate) async fn person(mut client: Client) {
    let Some(lanes) = client.network.lanes.clone() else { return };
    loop {
        client.pause(2_500).await;
        let lane = lanes.some_lane(&mut client.rng);
        match client.rng.u8(0..10) {
            0 | 1 => pause(&mut client, &lane).await,
            2..5 => resume(&mut client, &lane).await,
            5 => skip(&mut client, &lane).await,
            _ => letters(&mut client, &lanes).await,
        }
    }
}

/// Stops some lane.
pub(crate) async fn pause_some(client: &mut Client) {
    let Some(lanes) = client.network.lanes.clone() else { return };
    let lane = lanes.some_lane(&mut client.rng);
    pause(client, &lane).await;
}

/// Resumes what is paused, and decides about dead letters.
pub(crate) async fn visit(client: &mut Client) {
    let Some(lanes) = client.network.lanes.clone() else { return };
    let mut places: Vec<LanePurpose> = (0..lanes.warehouses.len()).map(|warehouse| lanes.place(warehouse)).collect();
    places.dedup();
    for place in &places {
        resume(client, place).await;
    }
    letters(client, &lanes).await;
}

async fn pause(client: &mut Client, lane: &LanePurpose) {
    let act = Act::Pause { by: "ada".to_owned(), why: "tests".to_owned() };
    on_lane(client, lane, LaneAsk::Pause, act).await;
}

async fn resume(client: &mut Client, lane: &LanePurpose) {
    on_lane(client, lane, LaneAsk::Resume, Act::Resume).await;
}

// The head, where it fails.
async fn skip(client: &mut Client, lane: &LanePurpose) {
    let Some((_, node)) = client.network.some_node(&mut client.rng) else { return };
    let Some(dispatch) = &node.lanes else { return };
    let heard = client.call(&node, None, dispatch.lane(lane.lane(&planner()))).await;
    let Heard::Reply(Some(view)) = heard else { return };
    let fails = view.lane.trouble.is_some() || view.lane.paused.as_ref().is_some_and(Pause::is_by_receiver);
    if fails || client.rng.u8(0..4) == 0 {
        let seq = view.lane.settled + 1;
        client.pause(100).await;
        on_lane(client, lane, LaneAsk::Skip { seq }, Act::Skip { seq, by: "ada".to_owned() }).await;
    }
}

async fn on_lane(client: &mut Client, lane: &LanePurpose, ask: LaneAsk, act: Act) {
    let Some((run, node)) = client.network.some_node(&mut client.rng) else { return };
    let Some(dispatch) = &node.lanes else { return };
    let recorder = client.network.recorder.clone();
    let asked = recorder.lane_asked(&client.name, (run, node.number), &lane.name(&planner()), ask);
    let gives_up_ms = client.gives_up_ms();
    let heard = client.call(&node, gives_up_ms, dispatch.act(lane.lane(&planner()), act)).await;
    recorder.lane_answered(asked, outcome(heard));
}

async fn letters(client: &mut Client, lanes: &Lanes) {
    let Some((run, node)) = client.network.some_node(&mut client.rng) else { return };
    let Some(dispatch) = &node.lanes else { return };
    let Heard::Reply(letters) = client.call(&node, None, dispatch.letters(None, None, 1_000)).await else { return };
    for letter in letters.iter().filter(|letter| letter.letter.fate == Fate::Waiting) {
        let redrives = client.rng.u8(0..if letter.letter.blocks { 2 } else { 3 }) == 0;
        if redrives || letter.letter.blocks || client.rng.u8(0..6) == 0 {
            client.pause(200).await;
            decide(client, lanes, (run, &node), letter, redrives).await;
        }
    }
}

async fn decide(
    client: &mut Client,
    lanes: &Lanes,
    (run, node): (usize, &Node),
    letter: &LocatedDeadLetter,
    redrives: bool,
) {
    let Some(dispatch) = &node.lanes else { return };
    let (seq, id) = (letter.seq, letter.letter.entry.correlation_id.clone());
    let (ask, verdict) = match redrives {
        true => (LaneAsk::Redrive { seq, id }, LetterVerdict::Redrive { force: None }),
        false => (LaneAsk::Discard { seq }, LetterVerdict::Discard { why: "tests".to_owned() }),
    };
    let recorder = client.network.recorder.clone();
    let lane = lanes.lane_name(letter.lane);
    let asked = recorder.lane_asked(&client.name, (run, node.number), &lane, ask);
    let gives_up_ms = client.gives_up_ms();
    let heard = client.call(node, gives_up_ms, dispatch.decide_letter(letter.lane, seq, verdict, "ada")).await;
    recorder.lane_answered(asked, outcome(heard));
}

pub(super) fn outcome(heard: Heard<Reply>) -> LaneOutcome {
    let reply = match heard {
        Heard::Reply(reply) => reply,
        Heard::NotApplied => return LaneOutcome::NotApplied,
        Heard::Maybe => return LaneOutcome::Maybe,
    };
    LaneOutcome::Answered(match reply {
        Reply::Lane(lane::Reply::OnLane { replay, .. }) | Reply::Dispatch(dispatch::Reply::Letter { replay, .. }) => {
            LaneAnswer::Done { replay }
        }
        refused => LaneAnswer::Refused(refused.decision()),
    })
}
