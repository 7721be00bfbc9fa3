//! Explains a key: what happened, when, by which attempt, and why it did not happen again.
//! Only reads. Called by lookup, `why` and the list of doubts.

use std::sync::Arc;

use fencepost_kernel::{
    FenceKey, Millis, Row, RowKey,
    fence::{Fence, Phase, Record, Sighting, State, Token, What},
};

use super::{Engine, Error};

/// Everything known of a key.
#[derive(Clone, Debug)]
pub struct Explanation {
    /// The fence itself.
    pub fence: Arc<Fence>,
    /// Where it stands now.
    pub phase: Phase,
    /// Duplicates answered, approximately.
    pub replays: u64,
    /// Conflicts refused, approximately.
    pub conflicts: u64,
    /// What happened, oldest first.
    pub history: Vec<Moment>,
}

/// One line of a history.
#[derive(Clone, Debug)]
pub struct Moment {
    /// When.
    pub at: Millis,
    /// The word for it.
    pub decision: &'static str,
    /// By which token, where one was involved.
    pub token: Option<Token>,
    /// Who did it and why, where a person did.
    pub person: Option<(String, String)>,
}

impl Engine {
    /// What happened under a key; none where it is unknown or its time is over.
    pub async fn explain(&self, key: FenceKey) -> Result<Option<Explanation>, Error> {
        let now = self.now();
        let mut rows = self.load(&[RowKey::fence(key), RowKey::trace(key)]).await?.into_iter();
        let fence = match rows.next().flatten().map(|row| row.record.clone()) {
            Some(Record::Fence(fence)) if fence.phase(now) != Phase::Expired => fence,
            _ => return Ok(None),
        };
        let trace = match rows.next().flatten().map(|row| row.record.clone()) {
            Some(Record::Trace(trace)) if trace.first_seen == fence.first_seen => trace,
            _ => Default::default(),
        };
        let unflushed = self.shared.sightings.of(key);
        let (replays, conflicts) = unflushed.as_ref().map_or((0, 0), |seen| (seen.replays, seen.conflicts));
        let sightings = trace.recent.iter().chain(unflushed.iter().flat_map(|seen| &seen.recent));
        Ok(Some(Explanation {
            phase: fence.phase(now),
            replays: trace.replays + replays,
            conflicts: trace.conflicts + conflicts,
            history: history(&fence, sightings),
            fence,
        }))
    }

    /// Fences that wait for a person, longest first. Pass the last one to read on.
    pub async fn in_doubt(
        &self,
        after: Option<(Millis, RowKey)>,
        limit: usize,
    ) -> Result<Vec<(RowKey, Arc<Row>)>, Error> {
        Ok(self.shared.store.due(self.now(), after, limit).await?)
    }
}

fn history<'a>(fence: &Fence, sightings: impl Iterator<Item = &'a (Millis, Sighting)>) -> Vec<Moment> {
    let moment = |at, decision, token| Moment { at, decision, token, person: None };
    let mut moments = vec![moment(fence.first_seen, "new", (fence.attempt == 1).then_some(fence.token))];
    for event in &fence.events {
        let (decision, person) = match &event.what {
            What::Released => ("released", None),
            What::Retried => ("new", None),
            What::Recovered => ("recovered", None),
            What::SealedLate => ("sealed_late", None),
            What::SealRefused => ("fenced_off", None),
            What::Resolved { by, why, .. } => ("resolved", Some((by.clone(), why.clone()))),
        };
        moments.push(Moment { at: event.at, decision, token: Some(event.token), person });
    }
    if let State::Sealed { at, .. } = fence.state {
        moments.push(moment(at, "sealed", Some(fence.token)));
    }
    moments.extend(sightings.map(|(at, sighting)| {
        let decision = match sighting {
            Sighting::Duplicate => "duplicate",
            Sighting::Conflict => "conflict",
            Sighting::InFlight => "in_flight",
            Sighting::Stale => "stale",
            Sighting::InDoubt => "in_doubt",
        };
        moment(*at, decision, None)
    }));
    // Stable: what happened in the same millisecond keeps its causal order.
    moments.sort_by_key(|moment| moment.at);
    moments
}
