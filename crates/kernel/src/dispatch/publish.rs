//! Decides a publication, and the cancellation of an earlier event.
//! Never computes a position: the store gives one when it appends. Called only from `dispatch`.

use super::{Original, Publish, PublishReceipt, Reply, append_to_lane_of, follow_append_to_lane_of, transport_of};
use crate::{
    fence::{self, Fence, FenceKey, Phase, Receipt, State, fence_of, seal_claimed},
    key::RowKey,
    lane::{self, Cancelled, DeadLetter, Entry, Fate, LanePurpose, came_after_pause, lane_of, letter_of},
    law::{self, Decision},
    row::{Record, Rows, write},
    time::Millis,
};

pub(crate) fn footprint(publish: &Publish, add: &mut impl FnMut(RowKey)) {
    let target = &publish.claim.target;
    add(RowKey::fence(target.key));
    add(RowKey::transport(&target.tenant, &publish.entry.subject));
    if let Some(original) = &publish.cancels {
        add(RowKey::fence(original.key));
    }
}

pub(crate) fn follow(publish: &Publish, rows: &impl Rows, add: &mut impl FnMut(RowKey)) {
    let target = &publish.claim.target;
    if let Some(transport) = transport_of(rows, RowKey::transport(&target.tenant, &publish.entry.subject)) {
        follow_append_to_lane_of(transport, &publish.members, rows, add);
    }
    let original = publish.cancels.as_ref().and_then(|original| fence_of(rows, RowKey::fence(original.key)));
    if let Some(PublishReceipt { lane_id: lane, seq, .. }) = original.and_then(PublishReceipt::of) {
        add(RowKey::lane(lane));
        add(RowKey::dead_letter(lane, seq));
        add(RowKey::cancelled(lane, seq));
        if let Some(letter) = letter_of(rows, lane, seq) {
            add(RowKey::lane(letter.purpose.lane(&letter.tenant)));
        }
    }
}

pub(crate) fn publish(publish: &Publish, rows: &impl Rows, now: Millis) -> Decision {
    let target = &publish.claim.target;
    let mut decision = fence::claim(&publish.claim, rows, now);
    let law::Reply::Fence(fence::Reply::New(_)) = decision.reply else { return decision };
    let key = RowKey::transport(&target.tenant, &publish.entry.subject);
    let Some(transport) = transport_of(rows, key) else { return Decision::reply(Reply::NoTransport) };
    let original = match &publish.cancels {
        None => None,
        Some(original) => match cancel(publish, original.key, rows, now, &mut decision) {
            None => return Decision::reply(Reply::UnknownOriginal),
            told => told,
        },
    };
    let (lane_id, lane) = (transport.lane(), transport.purpose().name(&target.tenant));
    let entry = Entry { published: now, ..Entry::clone(&publish.entry) };
    append_to_lane_of(transport, entry.into(), RowKey::fence(target.key), &publish.members, rows, &mut decision);
    let effect_id = publish.entry.correlation_id.clone();
    let body = PublishReceipt::text_before_position(lane_id, &lane, original);
    let expires = seal_claimed(&mut decision, Receipt { effect_id, body }, target.scope.retain_ms, now);
    let publication = PublishReceipt { lane_id, lane, seq: 0, original };
    decision.reply = Reply::Published { publication, expires }.into();
    decision
}

// State of the event that this publication cancels; none if it was never published. Marks the event so that it is never
// sent again.
fn cancel(
    publish: &Publish,
    original: FenceKey,
    rows: &impl Rows,
    now: Millis,
    decision: &mut Decision,
) -> Option<Original> {
    let fence = fence_of(rows, RowKey::fence(original))?;
    if fence.phase(now) == Phase::Expired {
        return Some(Original::Unknown);
    }
    let PublishReceipt { lane_id: lane, seq, .. } = PublishReceipt::of(fence)?;
    // Another warehouse's executor would never hear of it.
    if fence.source.as_ref().is_some_and(|source| source.id != publish.entry.subject) {
        return None;
    }
    let by = &publish.entry.correlation_id;
    let mark = RowKey::cancelled(lane, seq);
    if rows.row(&mark).is_none() {
        let expires = now.plus(publish.claim.target.scope.retain_ms);
        decision.writes.push(write(
            rows,
            mark,
            Some(Record::Lane(lane::Record::Cancelled(Cancelled { by: by.clone(), expires }))),
        ));
    }
    let letter = letter_of(rows, lane, seq);
    if let Some(letter) = letter.filter(|letter| letter.cancelled_by.is_none()) {
        let letter = DeadLetter { cancelled_by: Some(by.clone()), ..DeadLetter::clone(letter) };
        let put = Record::Lane(lane::Record::DeadLetter(letter.into()));
        decision.writes.push(write(rows, RowKey::dead_letter(lane, seq), Some(put)));
    }
    let Some(own) = lane_of(rows, lane) else { return Some(Original::Undelivered) };
    let settled = |purpose: &LanePurpose| lane_of(rows, purpose.lane(&own.tenant)).map_or(0, |lane| lane.settled);
    let told = match letter.map(|letter| (&letter.fate, &letter.purpose)) {
        Some((Fate::Waiting | Fate::Discarded { .. }, _)) => Original::Dead,
        // Its warehouse may have moved to another lane meanwhile.
        Some((Fate::Redriven { seq, .. }, purpose)) if *seq > settled(purpose) => Original::InFlight,
        Some((Fate::Redriven { .. }, _)) => Original::Delivered,
        None if seq <= own.settled => Original::Delivered,
        None => {
            let unseen = if own.purpose.is_polled() {
                publish.served.is_some_and(|served| served < seq)
            } else {
                // Whether an attempt at the head is under way at this moment is nowhere written down: it may be.
                seq > own.settled + 1 || sealed_at(fence).is_some_and(|at| came_after_pause(own, at))
            };
            if unseen { Original::Undelivered } else { Original::InFlight }
        }
    };
    // The event stays unseen only while its lane stays as it was read.
    if told == Original::Undelivered {
        let key = RowKey::lane(lane);
        decision.also.held.push((key, rows.row(&key).map(|row| row.revision)));
    }
    Some(told)
}

fn sealed_at(fence: &Fence) -> Option<Millis> {
    if let State::Sealed { at, .. } = fence.state { Some(at) } else { None }
}
