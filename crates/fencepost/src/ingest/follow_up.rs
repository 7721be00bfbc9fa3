//! Looks again at items in quarantine when what they waited for has arrived, where the policy says so.
//! Never misses an arrival: its row is written in the commit that brings the item, and stays until everything that waits was
//! looked at. Several nodes may follow one arrival up: an item leaves quarantine once, and the others find it gone.
//! Called by the background work beside it.

use std::sync::Arc;

use bytes::Bytes;
use fencepost_kernel::{
    Command, Reply, RowKey, Tenant,
    item::{self, Arrival, Change, ChangeVerdict, ItemId, Quarantined, Settle, Submit},
    key::Kind,
    row::CommitId,
};

use super::{Ingest, IngestRules};
use crate::engine::{Engine, Error};

/// How many items in quarantine are read at once.
const READ_AT_ONCE: usize = 50;
/// How many bytes of items, and how many references of theirs, are looked at in one commit; or one item with more.
const BATCH_BYTES: usize = 4 << 20;
const BATCH_REFERENCES: usize = 900;
/// How many arrivals are read at once.
const ARRIVALS: usize = 16;
/// How many arrivals one call follows up: the rules in force may change meanwhile.
const ARRIVALS_MAX: usize = 16 * ARRIVALS;

impl Ingest {
    /// Follows up the arrivals that are due now, the oldest first, up to some hundreds. One that fails stays due and holds up no
    /// other. Returns how many were followed up.
    pub async fn follow_up(&self) -> Result<usize, Error> {
        let (mut followed, mut seen, mut after, mut failed) = (0, 0, None, None);
        while seen < ARRIVALS_MAX {
            let due = self.engine.due(Kind::Arrival, after, ARRIVALS).await?;
            let Some((last, row)) = due.last() else { break };
            after = row.record.due_at().map(|due| (due, *last));
            seen += due.len();
            for (key, row) in &due {
                let Some(arrival) = row.record.as_arrival() else { continue };
                match follow_up(&self.engine, &self.rules, key.item_id(), (arrival, row.revision)).await {
                    Ok(Followed::ToTheEnd) => followed += 1,
                    Ok(Followed::InPart) => {}
                    Err(error) => failed = failed.or(Some(error)),
                }
            }
        }
        if seen >= ARRIVALS_MAX {
            self.signals.arrived.notify_one();
        }
        failed.map_or(Ok(followed), Err)
    }
}

/// How far an arrival was followed up.
enum Followed {
    ToTheEnd,
    /// It stays due.
    InPart,
}

async fn follow_up(
    engine: &Engine,
    rules: &IngestRules,
    arrived: ItemId,
    (arrival, revision): (&Arrival, CommitId),
) -> Result<Followed, Error> {
    let mut is_whole = true;
    let mut after = None;
    loop {
        let page = engine.range(Kind::Waiting, RowKey::waiting_prefix(&arrived), after, READ_AT_ONCE).await?;
        let Some((last, _)) = page.last() else { break };
        after = Some(*last);
        let is_last = page.len() < READ_AT_ONCE;
        let waiting = page.iter().filter_map(|(_, row)| row.record.as_waiting());
        let waiting = waiting.filter(|waiting| waiting.missing == arrived && waiting.tenant == arrival.tenant);
        let rows: Vec<RowKey> = waiting.map(|waiting| RowKey::quarantine(waiting.item)).collect();
        let rows = engine.load(&rows).await?;
        let open = rows.iter().flatten().filter_map(|row| row.record.as_quarantined());
        let open: Vec<_> = open.filter(|quarantined| quarantined.resolved.is_none()).collect();
        // Whatever waits is in quarantine. Rows that do not say so were not read at one moment, or from a server that is not the
        // primary any more: the rest is looked at the next time.
        is_whole &= open.len() == rows.len();
        for changes in batches(open.into_iter().map(|quarantined| release_change(rules, quarantined))) {
            let submit = submit_without_request(rules, &arrival.tenant, changes);
            let reply = engine.ask(Command::from(item::Command::Submit(submit.into()))).await?;
            if let Reply::Item(item::Reply::Submitted { verdicts, .. }) = &reply {
                is_whole &= !verdicts.iter().any(|verdict| matches!(verdict, ChangeVerdict::Resent { .. }));
            }
        }
        if is_last {
            break;
        }
    }
    if !is_whole {
        return Ok(Followed::InPart);
    }
    let settle = Settle { item: arrived, arrived: revision };
    engine.ask(Command::from(item::Command::Settle(settle.into()))).await.map(|_| Followed::ToTheEnd)
}

// Whole changes, in their order, so that no batch is larger than the bounds unless one change is.
fn batches(changes: impl Iterator<Item = Change>) -> Vec<Vec<Change>> {
    let mut batches: Vec<Vec<Change>> = Vec::new();
    let (mut bytes, mut references) = (0, 0);
    for change in changes {
        let (own_bytes, own_references) = match &change {
            Change::Put(put) | Change::Release { put, .. } => (put.content.len(), put.references.len()),
            Change::Refuse { .. } | Change::Retire { .. } => (0, 0),
        };
        (bytes, references) = (bytes + own_bytes, references + own_references);
        match batches.last_mut().filter(|_| bytes <= BATCH_BYTES && references <= BATCH_REFERENCES) {
            Some(batch) => batch.push(change),
            None => {
                (bytes, references) = (own_bytes, own_references);
                batches.push(vec![change]);
            }
        }
    }
    batches
}

/// The change that looks at an item in quarantine again.
pub(super) fn release_change(rules: &IngestRules, quarantined: &Arc<Quarantined>) -> Change {
    match rules.read_kept(quarantined) {
        Ok(put) => Change::Release { quarantine: quarantined.id(), put },
        Err(faults) => Change::Refuse { source_id: Some(quarantined.source_id.clone()), faults },
    }
}

fn submit_without_request(rules: &IngestRules, tenant: &Tenant, changes: Vec<Change>) -> Submit {
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
