//! Users who claim, act and seal in one transaction of their own, whose snapshot may be older than their claim.
//! Never answer without a commit, and never let go of a row that the claim was decided over, whether it was there or not.
//! Spawned by `world`; only where nodes share a store that takes several rows.

use std::{collections::BTreeMap, sync::Arc, time::Duration};

use fencepost_kernel::{
    Command, Reply, Row, RowKey, Rows, Write, decide, fence,
    key::Kind,
    law::{Also, Decision, follow, footprint},
    row::CommitId,
};
use fencepost_store::{Error, Store, Verdict, WriteSet};
use tokio::time::{sleep, timeout};

use crate::{
    client::{Client, granted},
    history::{Ask, RequestOutcome, key_name},
    lanes::publish_in,
    recorder::Asked,
    town::{answer, version_of},
    twin::Twin,
};

/// No node: a connection of the user's.
pub(crate) const USER: usize = 100;

/// One snapshot, and what the transaction has written over it.
#[derive(Default)]
pub(crate) struct Snapshot {
    rows: BTreeMap<RowKey, Option<Arc<Row>>>,
}

impl Rows for Snapshot {
    fn row(&self, key: &RowKey) -> Option<&Row> {
        self.rows.get(key)?.as_deref()
    }
}

impl Snapshot {
    pub(crate) async fn take(&mut self, twin: &Twin, command: &Command) -> Result<(), Error> {
        let mut keys = Vec::new();
        footprint(command, &mut |key| keys.push(key));
        // Of one moment: rows may name more rows, and those are looked up where the others were.
        let view = twin.snapshot().await?;
        while !keys.is_empty() {
            let found = view.load(&keys).await?;
            self.rows.extend(keys.drain(..).zip(found));
            let mut named = Vec::new();
            follow(command, self, &mut |key| named.push(key));
            keys.extend(named.into_iter().filter(|key| !self.rows.contains_key(key)));
        }
        Ok(())
    }

    /// As a transaction holds the rows that its command was decided over, of these kinds.
    pub(crate) fn held(&self, set: &WriteSet, holds: impl Fn(Kind) -> bool) -> Vec<(RowKey, Option<CommitId>)> {
        let known = |key: &RowKey| {
            set.writes.iter().any(|write| write.key == *key) || set.also.held.iter().any(|(held, _)| held == key)
        };
        let rows = self.rows.iter().filter(|(key, _)| holds(key.kind) && !known(key));
        rows.map(|(key, row)| (*key, row.as_ref().map(|row| row.revision))).collect()
    }

    pub(crate) fn write(&mut self, decision: Decision, set: &mut WriteSet) {
        for write in decision.writes {
            let row = write.put.clone().map(|record| Arc::new(Row { record, revision: set.id }));
            self.rows.insert(write.key, row);
            match set.writes.iter_mut().find(|earlier| earlier.key == write.key) {
                Some(earlier) => earlier.put = write.put,
                None => set.writes.push(write),
            }
        }
        set.also.held.extend(decision.also.held);
    }
}

/// Someone who books now and then.
pub(crate) async fn user(mut client: Client) {
    let mut bookings = 0;
    loop {
        client.pause(1_500).await;
        let Some((run, twin)) = client.network.shared_store() else { continue };
        bookings += 1;
        book(&mut client, (run, &twin), bookings).await;
        if client.network.lanes.is_some() {
            publish_in(&mut client, (run, &twin)).await;
        }
    }
}

// Another caller claims a row that the user's claim is judged by: the effect itself under its first repetition, or a
// later version.
async fn rival(client: &Client, asked: &Asked) {
    let mut rival = client.clone();
    (rival.name, rival.rng) = (format!("{}*", client.name), rival.rng.fork());
    let base = match asked.base.rsplit_once('/') {
        Some((source, _)) if version_of(&asked.base).is_some() => format!("{source}/4"),
        _ => asked.base.clone(),
    };
    let ask = Ask::Claim { body: None, version: version_of(&base), lease_ms: 800, wait_ms: 0 };
    let outcome = rival.send(&base, None, ask).await;
    if let Some((token, _)) = granted(&outcome).filter(|_| asked.seq.is_none()) {
        let (effect, receipt) = ("rival".to_owned(), format!("[{base} by {}]", rival.name));
        rival.send(&base, None, Ask::Seal { token, effect, receipt }).await;
    }
}

async fn book(client: &mut Client, (run, twin): (usize, &Twin), number: u32) {
    let town = client.network.town.clone();
    let base = town.some_key(&mut client.rng);
    let seq = (base.contains("/NOTE/") && client.rng.bool()).then_some(1);
    let body = ["b0", "b1"][client.rng.usize(0..2)].to_owned();
    let ask = Ask::Claim { body: Some(body), version: version_of(&base), lease_ms: 800, wait_ms: 0 };
    let asked = Asked { base, seq, ask };
    let Some(claim) = town.command(&asked) else { return };
    let mut snapshot = Snapshot::default();
    if snapshot.take(twin, &claim).await.is_err() {
        return;
    }
    // The user's SQL before the claim, while others go on.
    match client.rng.u8(0..3) {
        0 => rival(client, &asked).await,
        _ => client.pause(1_200).await,
    }
    if client.network.shared_store().is_none_or(|(now, _)| now != run) {
        return;
    }
    let recorder = client.network.recorder.clone();
    let Some(now) = twin.moment() else { return };
    let claimed = recorder.invoke(&client.name, (run, USER), std::slice::from_ref(&asked));
    let id = CommitId(client.rng.u64(..));
    let mut set = WriteSet { id, writes: Vec::<Write>::new(), also: Also::default() };
    let decision = decide(&claim, &snapshot, now);
    let Reply::Fence(fence::Reply::New(granted)) = &decision.reply else {
        return recorder.close(claimed, RequestOutcome::NotApplied);
    };
    let (token, claim_reply) = (granted.token, answer(&asked, &decision.reply));
    snapshot.write(decision, &mut set);
    let key = key_name(&asked.base, asked.seq);
    let (effect, receipt) = (format!("{}-{number}", client.name), format!("[{key} {number} by {}]", client.name));
    let sealing = Asked { base: asked.base, seq, ask: Ask::Seal { token: token.0, effect, receipt } };
    let mut told = vec![(claimed, claim_reply)];
    // Or the claim alone counts from the commit, and its seal comes later, through a node.
    let seals = client.rng.bool();
    if let Some(seal) = town.command(&sealing).filter(|_| seals) {
        let sealed = recorder.invoke(&client.name, (run, USER), std::slice::from_ref(&sealing));
        // The rows of the claim are all that its seal needs.
        let decision = decide(&seal, &snapshot, now);
        told.push((sealed, answer(&sealing, &decision.reply)));
        snapshot.write(decision, &mut set);
    }
    // Fences, and the version head that it only judges by.
    let held = snapshot.held(&set, |kind| matches!(kind, Kind::Fence | Kind::VersionHead));
    set.also.held.extend(held);
    sleep(Duration::from_millis(client.rng.u64(0..30))).await;
    // A machine that dies answers no client.
    let done = timeout(Duration::from_secs(5), twin.commit_detached(vec![set.clone()], now)).await;
    let done = done.unwrap_or_else(|_| Err(Error::Unknown("no answer".to_owned())));
    let applied = matches!(done.as_deref(), Ok([Verdict::Applied]));
    match done.as_deref() {
        Ok([Verdict::Applied]) => recorder.tally("user_committed"),
        Ok([Verdict::Moved]) => recorder.tally("user_must_begin_again"),
        _ => {}
    }
    if applied {
        recorder.effect(&client.name, &key, token.0);
    }
    for (id, reply) in told {
        recorder.close(
            id,
            match done {
                Ok(_) if applied => RequestOutcome::Answered(reply),
                Ok(_) | Err(Error::NotApplied(_)) => RequestOutcome::NotApplied,
                Err(_) => RequestOutcome::Maybe,
            },
        );
    }
    if applied && !seals {
        client.pause(900).await;
        client.send(&sealing.base, sealing.seq, sealing.ask).await;
    }
}
