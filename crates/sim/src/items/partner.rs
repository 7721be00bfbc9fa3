//! A partner: sends items, sends them again under the same and under other ids, deletes and releases some, and looks at others.
//! Never takes a lost answer for a refusal. Spawned by `world`.

use std::sync::Arc;

use super::{COLLECTIONS, Items, PARTNERS, Request, some_name};
use crate::{
    client::{Client, Heard},
    faults::strikes,
    history::items::{ItemAnswer, ItemAsk, ItemOutcome, ItemVerdict, read_lines},
};

/// Works for as long as the world lasts. Several may work for one partner.
pub(crate) async fn partner(mut client: Client, partner: usize) {
    let Some(items) = client.network.items.clone() else { return };
    loop {
        client.pause(2_400).await;
        let rng = &mut client.rng;
        let request = match rng.u8(0..24) {
            0..10 => {
                let sent = items.some_items(rng);
                let needed = sent.iter().flat_map(|item| &item.refs).next().filter(|_| rng.bool()).cloned();
                let request = items.fresh_id(partner, ItemAsk::Send(sent));
                if let Some(name) = needed {
                    meanwhile(&mut client, &items, partner, &name);
                }
                Some(request)
            }
            10..13 => earlier(rng, &items, partner),
            13 => {
                let sent = items.some_items(rng);
                earlier(rng, &items, partner).map(|request| Request { ask: ItemAsk::Send(sent), ..request })
            }
            14..16 => earlier(rng, &items, partner).map(|request| items.fresh_id(partner, request.ask)),
            16 | 17 => {
                let collection = [0, 0, 1, 3][rng.usize(0..4)];
                Some(items.fresh_id(partner, ItemAsk::Delete { name: some_name(rng, collection) }))
            }
            18..20 => release(rng, &items, partner),
            20 => {
                let sent = items.some_items(rng);
                Some(Request { partner, id: format!("t{}", items.sent().contents), ask: ItemAsk::Try(sent) })
            }
            21 => {
                // First without, then with effect, under one id.
                let sent = items.some_items(rng);
                let request = items.fresh_id(partner, ItemAsk::Send(sent.clone()));
                let trial = Request { ask: ItemAsk::Try(sent), ..request.clone() };
                perform(&mut client, &items, &trial).await;
                Some(request)
            }
            _ => {
                let collection = rng.usize(0..COLLECTIONS.len());
                let name = some_name(rng, collection);
                Some(Request { partner, id: String::new(), ask: ItemAsk::Read { name } })
            }
        };
        if let Some(request) = request {
            perform(&mut client, &items, &request).await;
        }
    }
}

// Somebody else sends what is referred to, in the same moment.
fn meanwhile(client: &mut Client, items: &Arc<Items>, partner: usize, name: &str) {
    let item = items.item_of(&mut client.rng, name);
    let request = items.fresh_id(partner, ItemAsk::Send(vec![item]));
    let mut other = client.clone();
    (other.name, other.rng) = (format!("{}+", client.name), client.rng.fork());
    let items = items.clone();
    tokio::spawn(async move {
        other.pause(20).await;
        ask(&mut other, &items, &request).await;
    });
}

fn earlier(rng: &mut fastrand::Rng, items: &Items, partner: usize) -> Option<Request> {
    let sent = items.sent();
    let own: Vec<&Request> = sent.requests.iter().filter(|request| request.partner == partner).collect();
    // Mostly one of the latest.
    let from = if rng.u8(0..4) == 0 { 0 } else { own.len().saturating_sub(6) };
    rng.choice(&own[from..]).map(|request| Request::clone(request))
}

// Some stay that a partner was told of; now and then one of the other partner.
fn release(rng: &mut fastrand::Rng, items: &Items, partner: usize) -> Option<Request> {
    let foreign = rng.u8(0..12) == 0;
    let owner = if foreign { 1 - partner } else { partner };
    let (name, number) = {
        let sent = items.sent();
        let own: Vec<_> = sent.stays.iter().filter(|(known, ..)| *known == owner).collect();
        let from = if rng.u8(0..4) == 0 { 0 } else { own.len().saturating_sub(6) };
        rng.choice(&own[from..]).map(|(_, name, number)| (name.clone(), *number))?
    };
    Some(items.fresh_id(partner, ItemAsk::Release { name, number, foreign }))
}

async fn perform(client: &mut Client, items: &Arc<Items>, request: &Request) {
    let faults = client.network.faults.clone();
    if strikes(&mut client.rng, 3 * faults.repeated) {
        let mut ghost = client.clone();
        (ghost.name, ghost.rng) = (format!("{}'", client.name), client.rng.fork());
        let (items, request) = (items.clone(), request.clone());
        tokio::spawn(async move {
            ghost.pause(400).await;
            ask(&mut ghost, &items, &request).await;
        });
    }
    // Some never ask again, and never know.
    let attempts = client.rng.u8(1..6);
    for _ in 0..attempts {
        if strikes(&mut client.rng, faults.request_lost) || ask(client, items, request).await {
            break;
        }
        client.pause(400).await;
    }
}

// Whether there was an answer.
async fn ask(client: &mut Client, items: &Items, request: &Request) -> bool {
    let Some((run, node)) = client.network.some_node(&mut client.rng) else { return false };
    let Some(desk) = &node.items else { return false };
    let recorder = client.network.recorder.clone();
    let named = (PARTNERS[request.partner], request.id.as_str());
    let asked = recorder.item_asked(&client.name, (run, node.number), named, &request.ask);
    let gives_up_ms = client.gives_up_ms();
    let outcome = match client.call(&node, gives_up_ms, desk.ask(request)).await {
        Heard::Reply(answer) => ItemOutcome::Answered(answer),
        Heard::NotApplied => ItemOutcome::NotApplied,
        Heard::Maybe => ItemOutcome::Maybe,
    };
    if let ItemOutcome::Answered(ItemAnswer::Told { text, .. }) = &outcome {
        for line in read_lines(text) {
            if let ItemVerdict::Quarantined { number, .. } = line.verdict {
                items.sent().stays.push((request.partner, line.name, number));
            }
        }
    }
    let answered = matches!(outcome, ItemOutcome::Answered(_));
    recorder.item_answered(asked, outcome);
    answered
}
