//! An executor that polls: asks for what follows its cursor, and acknowledges what it got, all of it or a part.
//! Never acknowledges what it was not served, but for an end that is not there yet. Spawned by `world`.

use std::time::Duration;

use fencepost_kernel::lane::LanePurpose;

use super::{EXECUTOR, person::outcome, planner};
use crate::{
    client::{Client, Heard},
    history::lanes::{LaneAnswer, LaneAsk, LaneOutcome},
};

/// Polls for as long as the world lasts.
pub(crate) async fn poller(mut client: Client) {
    // Of the last page; it may lose it.
    let mut cursor: Option<String> = None;
    loop {
        client.pause(900).await;
        if client.rng.u8(0..8) == 0 {
            cursor = None;
        }
        cursor = poll(&mut client, cursor).await;
    }
}

// One page, and what becomes of it; the cursor to go on from.
async fn poll(client: &mut Client, cursor: Option<String>) -> Option<String> {
    let lane = LanePurpose::executor(EXECUTOR);
    let (name, lane) = (lane.name(&planner()), lane.lane(&planner()));
    let (run, node) = client.network.some_node(&mut client.rng)?;
    let dispatch = node.lanes.as_ref()?;
    let recorder = client.network.recorder.clone();
    // From its cursor, or from what is settled.
    let (view, after) = match &cursor {
        Some(cursor) => match client.call(&node, None, dispatch.read_cursor(cursor)).await {
            Heard::Reply(Some(read)) => read,
            Heard::Reply(None) => {
                recorder.tally("cursor_refused");
                return None;
            }
            Heard::NotApplied | Heard::Maybe => return None,
        },
        None => match client.call(&node, None, dispatch.lane(lane)).await {
            Heard::Reply(Some(view)) => {
                let settled = view.lane.settled;
                (view, settled)
            }
            _ => return None,
        },
    };
    let limit = client.rng.usize(1..6);
    let wait_ms = if client.rng.bool() { client.rng.u64(0..2_000) } else { 0 };
    let asked = recorder.lane_asked(&client.name, (run, node.number), &name, LaneAsk::Poll { after, limit });
    let gives_up_ms = client.gives_up_ms();
    let page = dispatch.pending(lane, after, limit, Duration::from_millis(wait_ms));
    let heard = match client.call(&node, gives_up_ms, page).await {
        Heard::Reply(page) => page.into_iter().map(|(seq, entry)| (seq, entry.correlation_id.clone())).collect(),
        Heard::NotApplied => {
            recorder.lane_answered(asked, LaneOutcome::NotApplied);
            return cursor;
        }
        Heard::Maybe => {
            recorder.lane_answered(asked, LaneOutcome::Maybe);
            return cursor;
        }
    };
    let page: Vec<(u64, String)> = heard;
    recorder.lane_answered(asked, LaneOutcome::Answered(LaneAnswer::Page(page.clone())));
    let last = page.last()?.0;
    let upto = match client.rng.u8(0..8) {
        0 => view.tail + 1_000,
        1 | 2 => page[0].0,
        _ => last,
    };
    if client.rng.u8(0..4) > 0 {
        client.pause(300).await;
        acknowledge(client, upto).await;
    }
    Some(dispatch.cursor(lane, view.lane.owner.epoch, last))
}

async fn acknowledge(client: &mut Client, upto: u64) {
    let lane = LanePurpose::executor(EXECUTOR);
    let Some((run, node)) = client.network.some_node(&mut client.rng) else { return };
    let Some(dispatch) = &node.lanes else { return };
    let recorder = client.network.recorder.clone();
    let asked = recorder.lane_asked(&client.name, (run, node.number), &lane.name(&planner()), LaneAsk::Ack { upto });
    let gives_up_ms = client.gives_up_ms();
    let heard = client.call(&node, gives_up_ms, dispatch.ack(lane.lane(&planner()), upto)).await;
    recorder.lane_answered(asked, outcome(heard));
}
