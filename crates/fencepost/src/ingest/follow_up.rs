//! Looks again at items in quarantine when what they waited for has arrived, where the policy says so.
//! Never misses an arrival: its row is written in the commit that brings the item, and stays until everything that waits was
//! looked at. Several nodes may follow one arrival up: an item leaves quarantine once, and the others find it gone.
//! Called by the background work beside it.

use std::sync::Arc;

use bytes::Bytes;
use fencepost_kernel::{
    Command, RowKey, Tenant,
    item::{self, Arrival, Change, ItemId, Quarantined, Settle, Submit},
    key::Kind,
    row::CommitId,
};

use super::{Ingest, IngestRules};
use crate::engine::{Engine, Error};

/// How many items leave quarantine in one commit.
const BATCH: usize = 100;
/// How many arrivals are read at once.
const ARRIVALS: usize = 16;

impl Ingest {
    /// Follows up the arrivals that are due now, the oldest first. Returns how many.
    pub async fn follow_up(&self) -> Result<usize, Error> {
        let mut followed = 0;
        loop {
            let due = self.engine.due(Kind::Arrival, None, ARRIVALS).await?;
            if due.is_empty() {
                return Ok(followed);
            }
            for (key, row) in due {
                let Some(arrival) = row.record.as_arrival() else { continue };
                follow_up(&self.engine, &self.rules, key.item_id(), (arrival, row.revision)).await?;
                followed += 1;
            }
        }
    }
}

async fn follow_up(
    engine: &Engine,
    rules: &IngestRules,
    arrived: ItemId,
    (arrival, revision): (&Arrival, CommitId),
) -> Result<(), Error> {
    let mut after = None;
    loop {
        let page = engine.range(Kind::Waiting, RowKey::waiting_prefix(&arrived), after, BATCH).await?;
        let Some((last, _)) = page.last() else { break };
        after = Some(*last);
        let is_last = page.len() < BATCH;
        let waiting = page.iter().filter_map(|(_, row)| row.record.as_waiting());
        let waiting = waiting.filter(|waiting| waiting.missing == arrived && waiting.tenant == arrival.tenant);
        let rows: Vec<RowKey> = waiting.map(|waiting| RowKey::quarantine(waiting.item)).collect();
        let rows = engine.load(&rows).await?;
        let open = rows.iter().flatten().filter_map(|row| row.record.as_quarantined());
        let open = open.filter(|quarantined| quarantined.resolved.is_none());
        let changes: Vec<Change> = open.map(|quarantined| released(rules, quarantined)).collect();
        if !changes.is_empty() {
            engine.ask(Command::from(item::Command::Submit(unasked(rules, &arrival.tenant, changes).into()))).await?;
        }
        if is_last {
            break;
        }
    }
    let settle = Settle { item: arrived, arrived: revision };
    engine.ask(Command::from(item::Command::Settle(settle.into()))).await.map(drop)
}

/// The change that looks at an item in quarantine again.
pub(super) fn released(rules: &IngestRules, quarantined: &Arc<Quarantined>) -> Change {
    match rules.read_kept(quarantined) {
        Ok(put) => Change::Release { quarantine: quarantined.id(), put },
        Err(faults) => Change::Refuse { source_id: Some(quarantined.source_id.clone()), faults },
    }
}

fn unasked(rules: &IngestRules, tenant: &Tenant, changes: Vec<Change>) -> Submit {
    Submit {
        tenant: tenant.clone(),
        claim: None,
        by: "fencepost".into(),
        correlation_id: "".into(),
        collection: "".into(),
        changes,
        auto_release: rules.settings.auto_release,
        quarantine_retain_ms: rules.settings.quarantine_retain_ms,
        answer: |_, _| Bytes::new(),
    }
}
