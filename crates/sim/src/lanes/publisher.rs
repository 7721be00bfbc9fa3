//! A planner: says where events go, publishes them, repeats itself where it heard nothing, and cancels some.
//! Never takes a lost answer for a refusal. Spawned by `world`, and called by it while days pass.

use fencepost::dispatch::Publication;
use fencepost_kernel::{
    Reply,
    dispatch::{self, Original},
    fence,
};

use super::{Event, Lanes, lock};
use crate::{
    client::{Client, Heard},
    faults::strikes,
    history::lanes::{LaneAnswer, LaneAsk, LaneOutcome},
};

/// Publishes for as long as the world lasts.
pub(crate) async fn publisher(mut client: Client) {
    let Some(lanes) = client.network.lanes.clone() else { return };
    for transport in lanes.transports() {
        loop {
            client.pause(20).await;
            let Some((_, node)) = client.network.some_node(&mut client.rng) else { continue };
            let Some(dispatch) = &node.lanes else { continue };
            if let Heard::Reply(_) = client.call(&node, None, dispatch.put_transport(transport.clone(), None)).await {
                break;
            }
        }
    }
    loop {
        client.pause(1_400).await;
        publish(&mut client).await;
    }
}

/// Publishes one or some events, until there is an answer.
pub(crate) async fn publish(client: &mut Client) {
    let Some(lanes) = client.network.lanes.clone() else { return };
    let events: Vec<(Event, u8)> =
        (0..[1, 1, 1, 2, 5][client.rng.usize(0..5)]).map(|_| some_event(client, &lanes)).collect();
    let faults = client.network.faults.clone();
    if strikes(&mut client.rng, 4 * faults.repeated) {
        let mut ghost = client.clone();
        (ghost.name, ghost.rng) = (format!("{}'", client.name), client.rng.fork());
        let (lanes, events) = (lanes.clone(), events.clone());
        tokio::spawn(async move {
            ghost.pause(600).await;
            ask(&mut ghost, &lanes, &events).await;
        });
    }
    for _ in 0..6 {
        if ask(client, &lanes, &events).await {
            break;
        }
        client.pause(500).await;
    }
}

// A new one mostly; or one that is known already, with its body or with another.
pub(super) fn some_event(client: &mut Client, lanes: &Lanes) -> (Event, u8) {
    let mut events = lock(&lanes.events);
    let (rng, number) = (&mut client.rng, events.len());
    let known = rng.choice(events.iter()).cloned();
    match (known, rng.u8(0..16)) {
        (Some(event), 0) => (event, 0),
        (Some(event), 1) => (event, 1),
        (Some(original), 2..5) => {
            let id = format!("c{number}-{}", original.id);
            let event = Event { id, warehouse: original.warehouse, cancels: Some(original.id) };
            events.push(event.clone());
            (event, 0)
        }
        _ => {
            let warehouse = rng.usize(0..lanes.warehouses.len());
            let event = Event { id: format!("e{number}"), warehouse, cancels: None };
            events.push(event.clone());
            (event, 0)
        }
    }
}

/// A publication, as it is recorded.
pub(super) fn asking(lanes: &Lanes, event: &Event, body: u8) -> LaneAsk {
    let warehouse = lanes.warehouses[event.warehouse].name.clone();
    LaneAsk::Publish { id: event.id.clone(), warehouse, body, cancels: event.cancels.clone() }
}

// Whether there was an answer.
async fn ask(client: &mut Client, lanes: &Lanes, events: &[(Event, u8)]) -> bool {
    let Some((run, node)) = client.network.some_node(&mut client.rng) else { return false };
    let Some(dispatch) = &node.lanes else { return false };
    let recorder = client.network.recorder.clone();
    let asked: Vec<usize> = events
        .iter()
        .map(|(event, body)| recorder.lane_asked(&client.name, (run, node.number), "", asking(lanes, event, *body)))
        .collect();
    let publications: Vec<Publication> = events.iter().map(|(event, body)| lanes.publication(event, *body)).collect();
    let gives_up_ms = client.gives_up_ms();
    let heard = client.call(&node, gives_up_ms, dispatch.publish(publications)).await;
    for (place, asked) in asked.into_iter().enumerate() {
        let outcome = match &heard {
            Heard::Reply(replies) => {
                replies.get(place).map_or(LaneOutcome::Maybe, |reply| LaneOutcome::Answered(answer(reply)))
            }
            Heard::NotApplied => LaneOutcome::NotApplied,
            Heard::Maybe => LaneOutcome::Maybe,
        };
        recorder.lane_answered(asked, outcome);
    }
    matches!(heard, Heard::Reply(_))
}

fn answer(reply: &Reply) -> LaneAnswer {
    let published = |at: &dispatch::PublishReceipt, replay| LaneAnswer::Published {
        lane: at.lane.clone(),
        seq: at.seq,
        original: at.original.map(Original::name),
        replay,
    };
    match reply {
        Reply::Dispatch(dispatch::Reply::Published { publication, .. }) => published(publication, false),
        Reply::Fence(fence::Reply::Duplicate { fence, .. }) => {
            dispatch::PublishReceipt::of(fence).map_or(LaneAnswer::Refused("unreadable"), |at| published(&at, true))
        }
        refused => LaneAnswer::Refused(refused.decision()),
    }
}
