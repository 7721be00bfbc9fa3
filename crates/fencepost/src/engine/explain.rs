//! Explains a key: what happened, when, by which attempt, and why it did not happen again.
//! Only reads. Called by lookup, `why` and the list of doubts.

use std::sync::Arc;

use fencepost_kernel::{
    FenceKey, Millis, Row, RowKey,
    fence::{self, Fence, Phase, Sighting, State, Target, Token, What},
    key::Kind,
    row::Record,
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
    /// How many of the duplicates had another body than the first, approximately.
    pub body_mismatches: u64,
    /// Oldest first.
    pub history: Vec<HistoryEntry>,
}

impl Explanation {
    /// How a person ended the doubt about the attempt of this token, where one did.
    pub fn resolution(&self, token: Token) -> Option<Resolution<'_>> {
        self.fence.events.iter().rev().filter(|event| event.token == token).find_map(|event| match &event.what {
            What::Resolved { by, why, sealed } => Some(Resolution { at: event.at, by, why, sealed: *sealed }),
            What::Released
            | What::Retried
            | What::Recovered
            | What::SealedLate
            | What::SealRefused
            | What::Forgotten { .. } => None,
        })
    }
}

/// A person's decision on a doubt.
#[derive(Clone, Copy, Debug)]
pub struct Resolution<'e> {
    /// Time of the decision, by the store's clock.
    pub at: Millis,
    /// The person.
    pub by: &'e str,
    /// The person's reason, free text.
    pub why: &'e str,
    /// Whether the effect was declared done.
    pub sealed: bool,
}

/// A deliberate repetition of an effect.
#[derive(Clone, Debug)]
pub struct Repeated {
    /// Its number, from 1.
    pub seq: u64,
    /// Where it stands now; [`Phase::Expired`] where its receipt is no longer kept.
    pub phase: Phase,
    /// Its fence, where it is kept.
    pub fence: Option<Arc<Fence>>,
}

/// The deliberate repetitions of an effect.
#[derive(Clone, Debug, Default)]
pub struct Repetitions {
    /// How many were claimed: the number of the last one.
    pub total: u64,
    /// The latest of them, at most 32, oldest first.
    pub latest: Vec<Repeated>,
}

/// How many repetitions are told of: the latest.
pub const REPEATED_MAX: u64 = 32;

/// One line of a history.
#[derive(Clone, Debug)]
pub struct HistoryEntry {
    /// By the store's clock.
    pub at: Millis,
    /// The word for it.
    pub decision: &'static str,
    /// By which token, where one was involved.
    pub token: Option<Token>,
    /// The person and the reason, where a person did it.
    pub person: Option<(String, String)>,
}

impl Engine {
    /// The history of a key; none where it is unknown or its time is over.
    pub async fn explain(&self, key: FenceKey) -> Result<Option<Explanation>, Error> {
        let now = self.now();
        let mut rows = self.load(&[RowKey::fence(key), RowKey::trace(key)]).await?.into_iter();
        let fence = rows.next().flatten().and_then(|row| row.record.as_fence().cloned());
        let Some(fence) = fence.filter(|fence| fence.phase(now) != Phase::Expired) else { return Ok(None) };
        let trace = rows.next().flatten().and_then(|row| row.record.as_trace().cloned());
        let trace = trace.filter(|trace| trace.first_seen == fence.first_seen).unwrap_or_default();
        let unflushed = self.shared.sightings.of(key);
        let (replays, conflicts, body_mismatches) =
            unflushed.as_ref().map_or((0, 0, 0), |seen| (seen.replays, seen.conflicts, seen.body_mismatches));
        let sightings = trace.recent.iter().chain(unflushed.iter().flat_map(|seen| &seen.recent));
        Ok(Some(Explanation {
            phase: fence.phase(now),
            replays: trace.replays + replays,
            conflicts: trace.conflicts + conflicts,
            body_mismatches: trace.body_mismatches + body_mismatches,
            history: history(&fence, sightings),
            fence,
        }))
    }

    /// The latest repetitions of an effect, oldest first.
    pub async fn repeated(&self, effect: &Target) -> Result<Repetitions, Error> {
        let now = self.now();
        let row = self.load(&[effect.again_head()]).await?.into_iter().next().flatten();
        let Some(Record::Fence(fence::Record::AgainHead(head))) = row.as_ref().map(|row| &row.record) else {
            return Ok(Repetitions::default());
        };
        if head.expires.is_some_and(|expires| expires <= now) {
            return Ok(Repetitions::default());
        }
        let numbers: Vec<u64> = (head.last.saturating_sub(REPEATED_MAX) + 1..=head.last).collect();
        let keys: Vec<RowKey> = numbers.iter().map(|seq| RowKey::fence(effect.repetition(*seq))).collect();
        let rows = self.load(&keys).await?;
        let latest = numbers.into_iter().zip(rows).map(|(seq, row)| {
            let fence = row.and_then(|row| {
                if let Record::Fence(fence::Record::Fence(fence)) = &row.record { Some(fence.clone()) } else { None }
            });
            let fence = fence.filter(|fence| fence.phase(now) != Phase::Expired);
            Repeated { seq, phase: fence.as_ref().map_or(Phase::Expired, |fence| fence.phase(now)), fence }
        });
        Ok(Repetitions { total: head.last, latest: latest.collect() })
    }

    /// Fences that wait for a person, longest first. Pass the last one to read on.
    pub async fn in_doubt(
        &self,
        after: Option<(Millis, RowKey)>,
        limit: usize,
    ) -> Result<Vec<(RowKey, Arc<Row>)>, Error> {
        Ok(self.shared.store.due(Kind::Fence, self.now(), after, limit).await?)
    }
}

/// Where a fence stands after something has happened to it.
#[derive(Clone, Copy, PartialEq, Eq)]
enum FenceState {
    Pending,
    Sealed,
    Released,
}

// Moments of the fence itself, oldest first, and its state after each.
fn lived(fence: &Fence) -> Vec<(HistoryEntry, FenceState)> {
    let moment = |at, decision, token| HistoryEntry { at, decision, token, person: None };
    let began = moment(fence.first_seen, "new", (fence.attempt == 1).then_some(fence.token));
    let mut moments = vec![(began, FenceState::Pending)];
    let mut state = FenceState::Pending;
    for event in &fence.events {
        if let What::Forgotten { sealed: Some(at), .. } = event.what {
            moments.push((moment(at, "sealed", Some(event.token)), FenceState::Sealed));
        }
        let (decision, person) = match &event.what {
            What::Released => ("released", None),
            What::Retried => ("new", None),
            What::Recovered => ("recovered", None),
            What::SealedLate => ("sealed_late", None),
            What::SealRefused => ("fenced_off", None),
            What::Resolved { by, why, .. } => ("resolved", Some((by.clone(), why.clone()))),
            What::Forgotten { by, why, .. } => ("forgotten", Some((by.clone(), why.clone()))),
        };
        state = match &event.what {
            What::Released | What::Resolved { sealed: false, .. } | What::Forgotten { .. } => FenceState::Released,
            What::Retried | What::Recovered => FenceState::Pending,
            What::SealedLate | What::SealRefused | What::Resolved { sealed: true, .. } => state,
        };
        moments.push((HistoryEntry { at: event.at, decision, token: Some(event.token), person }, state));
    }
    if let State::Sealed { at, .. } = fence.state {
        // The kernel dates what came after the seal later than the seal.
        let place = moments.iter().rposition(|(moment, _)| moment.at <= at).map_or(0, |last| last + 1);
        moments.insert(place, (moment(at, "sealed", Some(fence.token)), FenceState::Sealed));
        moments[place + 1..].iter_mut().for_each(|(_, state)| *state = FenceState::Sealed);
    }
    moments.sort_by_key(|(moment, _)| moment.at);
    moments
}

// Decisions that only read are kept apart from the fence, by the millisecond. Within one, each stands where it can have been
// made: nobody is told "in flight" of what is sealed, nor "duplicate" of what is not.
fn history<'a>(fence: &Fence, sightings: impl Iterator<Item = &'a (Millis, Sighting)>) -> Vec<HistoryEntry> {
    let mut sightings: Vec<(Millis, Sighting)> = sightings.copied().collect();
    sightings.sort_by_key(|(at, _)| *at);
    // The state of the fence that a sighting needs; one that fits any state takes the need of the next of its
    // millisecond.
    let mut needs: Vec<Option<FenceState>> = Vec::with_capacity(sightings.len());
    for (index, (at, sighting)) in sightings.iter().enumerate().rev() {
        needs.push(match sighting {
            Sighting::InFlight | Sighting::InDoubt => Some(FenceState::Pending),
            Sighting::Duplicate | Sighting::OtherBody => Some(FenceState::Sealed),
            Sighting::Conflict | Sighting::Stale => {
                let next = sightings.get(index + 1).filter(|(next, _)| next == at);
                next.and_then(|_| needs.last().copied().flatten())
            }
        });
    }
    needs.reverse();
    let mut lived = lived(fence).into_iter().peekable();
    let (mut moments, mut state_before) = (Vec::new(), None);
    for ((at, sighting), needs) in sightings.into_iter().zip(needs) {
        let fits = |state_before: Option<FenceState>| needs.is_some() && state_before == needs;
        while let Some((moment, state)) =
            lived.next_if(|(moment, _)| moment.at < at || (moment.at == at && !fits(state_before)))
        {
            moments.push(moment);
            state_before = Some(state);
        }
        let decision = match sighting {
            Sighting::Duplicate => "duplicate",
            Sighting::Conflict => "conflict",
            Sighting::InFlight => "in_flight",
            Sighting::Stale => "stale",
            Sighting::InDoubt => "in_doubt",
            Sighting::OtherBody => "duplicate_other_body",
        };
        moments.push(HistoryEntry { at, decision, token: None, person: None });
    }
    moments.extend(lived.map(|(moment, _)| moment));
    moments
}

#[cfg(test)]
mod tests {
    use std::sync::Arc;

    use fencepost_kernel::{
        Tenant,
        fence::{FenceEvent, Receipt},
    };

    use super::*;

    // A fence that a first holder lost, a person released, a second one sealed, and the first tried to seal: all at once.
    fn fence(at: Millis) -> Fence {
        let event = |token, what| FenceEvent { at, token: Token(token), what };
        let resolved = What::Resolved { by: "ops".into(), why: "asked".into(), sealed: false };
        Fence {
            tenant: Tenant::new("acme"),
            scope: "A".into(),
            fields: Arc::new([]),
            seq: None,
            first_seen: at,
            token: Token(2),
            attempt: 2,
            body: None,
            source: None,
            version: None,
            state: State::Sealed {
                receipt: Receipt { effect_id: "E".into(), body: Default::default() },
                at,
                expires: at.plus(1_000),
            },
            events: vec![
                event(1, resolved),
                event(2, What::Retried),
                FenceEvent { at: at.plus(1), ..event(1, What::SealRefused) },
            ],
        }
    }

    #[test]
    fn moments_of_one_millisecond_keep_the_order_in_which_they_can_have_happened() {
        use Sighting::{Conflict, Duplicate, InDoubt, InFlight};
        let at = Millis(7);
        let told = |sightings: &[Sighting]| {
            let sightings: Vec<_> = sightings.iter().map(|sighting| (at, *sighting)).collect();
            history(&fence(at), sightings.iter()).iter().map(|moment| moment.decision).collect::<Vec<_>>().join(" ")
        };
        for (sightings, order) in [
            (&[][..], "new resolved new sealed fenced_off"),
            (&[InDoubt, Duplicate], "new in_doubt resolved new sealed duplicate fenced_off"),
            (&[InFlight, InFlight, Duplicate], "new in_flight in_flight resolved new sealed duplicate fenced_off"),
            (&[Conflict], "new resolved new sealed conflict fenced_off"),
            (&[Conflict, InFlight, Conflict], "new conflict in_flight resolved new sealed conflict fenced_off"),
        ] {
            assert_eq!(told(sightings), order, "{sightings:?}");
        }
    }
}
