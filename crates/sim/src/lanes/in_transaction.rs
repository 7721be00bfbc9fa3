//! A user who publishes in a transaction of their own, whose snapshot may be older than the publication.
//! Never drives a lane: the node that does hears of the event from a row. Called by `users`.

use std::time::Duration;

use fencepost_kernel::{
    Reply, decide,
    dispatch::{self, Original},
    key::Kind,
    merge::Merged,
    row::CommitId,
};
use fencepost_store::{Error, Verdict, WriteSet};
use tokio::time::timeout;

use super::publisher::{asking, some_event};
use crate::{
    client::Client,
    history::lanes::{LaneAnswer, LaneOutcome},
    twin::Twin,
    users::{Snapshot, USER},
};

/// Publishes some event, where there is none of that id yet.
pub(crate) async fn publish_in(client: &mut Client, (run, twin): (usize, &Twin)) {
    let Some(lanes) = client.network.lanes.clone() else { return };
    let (event, body) = some_event(client, &lanes);
    let Some(command) = lanes.command(&event, body, twin.members("a transaction")) else { return };
    let mut snapshot = Snapshot::default();
    if snapshot.take(twin, &command).await.is_err() {
        return;
    }
    client.pause(300).await;
    if client.network.shared_store().is_none_or(|(now, _)| now != run) {
        return;
    }
    let recorder = client.network.recorder.clone();
    let Some(now) = twin.moment() else { return };
    let asked = recorder.lane_asked(&client.name, (run, USER), "", asking(&lanes, &event, body));
    let mut decision = decide(&command, &snapshot, now);
    let Reply::Dispatch(dispatch::Reply::Published { publication, .. }) = decision.reply.clone() else {
        return recorder.lane_answered(asked, LaneOutcome::NotApplied);
    };
    let mut set = WriteSet::new(CommitId(client.rng.u64(..)), Vec::new());
    set.also.merges = std::mem::take(&mut decision.also.merges);
    snapshot.write(decision, &mut set);
    // A user who only publishes does not wait for the node that moves the lane.
    let held = snapshot.held(&set, |kind| kind != Kind::Lane || event.cancels.is_some());
    set.also.held.extend(held);
    let done = timeout(Duration::from_secs(5), twin.commit_detached(vec![set.clone()], now)).await;
    let done = done.unwrap_or_else(|_| Err(Error::Unknown("no answer".to_owned())));
    let outcome = match done.as_deref() {
        Ok([Verdict::Merged(merged)]) => {
            recorder.tally("user_published");
            let seq =
                merged.iter().find_map(|merged| if let Merged::Position(seq) = merged { Some(*seq) } else { None });
            LaneOutcome::Answered(LaneAnswer::Published {
                lane: publication.lane,
                seq: seq.unwrap_or_default(),
                original: publication.original.map(Original::name),
                replay: false,
            })
        }
        Ok(_) | Err(Error::NotApplied(_)) => LaneOutcome::NotApplied,
        Err(_) => LaneOutcome::Maybe,
    };
    recorder.lane_answered(asked, outcome);
}
