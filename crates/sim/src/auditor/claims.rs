//! Judges the right to act: tokens grow, one is live at a time, a stale one does nothing, a true holder is never
//! refused.
//! Never assumes how a token is made. Called by `auditor`.

use super::{Entry, File, Grant, Violation, before, closed_at, named, perhaps_done, shown, skew_ms};
use crate::history::{Ask, ObservedAnswer, RequestOutcome};

pub(super) fn judge(file: &File<'_>) -> Vec<Violation> {
    let mut found = Vec::new();
    for grant in &file.grants {
        time(file, grant, &mut found);
        for other in file.grants.iter().filter(|other| other.by.id != grant.by.id) {
            growing(file, grant, other, &mut found);
            if other.token > grant.token {
                one_live_token(file, grant, other, &mut found);
            }
        }
        if let Some(earlier) = file.grants.iter().filter(|earlier| earlier.token < grant.token).max_by_key(|g| g.token)
        {
            succession(file, earlier, grant, &mut found);
        }
    }
    for entry in &file.entries {
        stale(file, *entry, &mut found);
        refused(file, *entry, &mut found);
    }
    effects(file, &mut found);
    found
}

fn time(file: &File<'_>, grant: &Grant<'_>, found: &mut Vec<Violation>) {
    let op = grant.by.op;
    if grant.at < op.invoked.at || grant.at > closed_at(op) || grant.first_seen > grant.at + op.skew_ms {
        found.push(file.report("store-time", grant.by, "its lease does not count from the store's time"));
    }
    if (grant.attempt == 1) != (grant.first_seen == grant.at) && grant.attempt == 1 {
        found.push(file.report("store-time", grant.by, "a first attempt was first seen at another time"));
    }
}

// Tokens grow per key, for ever: across release, expiry, crash and restart.
fn growing(file: &File<'_>, first: &Grant<'_>, second: &Grant<'_>, found: &mut Vec<Violation>) {
    let later = before(file.history, first.by, second.by) || first.at + skew_ms(first.by, second.by) < second.at;
    if first.token == second.token || (later && second.token < first.token) {
        found.push(file.report("growing-token", second.by, format_args!("#{} had {}", first.by.id, first.token)));
    }
}

/// The earliest time at which a claim's lease may have ended, as far as anyone can know before `until`.
pub(super) fn lease_end_min(file: &File<'_>, grant: &Grant<'_>, until: Entry<'_>) -> u64 {
    let (mut known, mut by) = ((grant.at, grant.lease_expires), grant.by);
    let mut perhaps = u64::MAX;
    for entry in file.perhaps_before(until) {
        let Ask::Renew { token, lease_ms } = entry.op.ask else { continue };
        if token != grant.token {
            continue;
        }
        match entry.op.outcome {
            RequestOutcome::Answered(ObservedAnswer::Renewed { lease_expires }) => {
                let at = lease_expires.saturating_sub(lease_ms);
                // Of two decided at the same time the order is not known, and clocks may be apart: the shorter counts.
                let skew_ms = skew_ms(by, entry);
                if at > known.0 {
                    by = entry;
                }
                known = if at.abs_diff(known.0) <= skew_ms {
                    (at.max(known.0), known.1.min(lease_expires))
                } else {
                    known.max((at, lease_expires))
                };
            }
            RequestOutcome::Maybe => perhaps = perhaps.min(entry.op.invoked.at + lease_ms),
            _ => {}
        }
    }
    known.1.min(perhaps)
}

/// The earliest time at which a claim's lease may have ended as `seen` saw it: a renewal under way meanwhile may count
/// or not.
pub(super) fn lease_end_seen(file: &File<'_>, grant: &Grant<'_>, seen: Entry<'_>) -> u64 {
    let known = |entry: &Entry<'_>| before(file.history, *entry, seen) && entry.op.outcome != RequestOutcome::Maybe;
    let renewals =
        file.perhaps_before(seen).filter(|entry| perhaps_done(entry.op)).filter_map(|entry| match entry.op.ask {
            Ask::Renew { token, lease_ms } if token == grant.token => Some((entry, lease_ms)),
            _ => None,
        });
    let (mut latest, mut by, mut perhaps) = ((grant.at, grant.lease_expires), grant.by, u64::MAX);
    for (entry, lease_ms) in renewals {
        let end = match entry.op.answer() {
            Some(ObservedAnswer::Renewed { lease_expires }) => *lease_expires,
            _ => entry.op.invoked.at + lease_ms,
        };
        let at = end.saturating_sub(lease_ms);
        if known(&entry) && at > latest.0 + skew_ms(by, entry) {
            (latest, by) = ((at, end), entry);
        } else {
            perhaps = perhaps.min(end);
        }
    }
    latest.1.min(perhaps)
}

/// The earliest time from which on the key may be free of a claim by its holder's or an operator's own doing.
pub(super) fn given_up_min(file: &File<'_>, grant: &Grant<'_>, until: Entry<'_>) -> Option<u64> {
    file.perhaps_before(until)
        .filter(|entry| perhaps_done(entry.op))
        .filter_map(|entry| match &entry.op.ask {
            Ask::Release { token } if *token == grant.token => Some(entry.op.invoked.at),
            Ask::Resolve { sealed: None, .. } if !before(file.history, entry, grant.by) => Some(entry.op.invoked.at),
            _ => None,
        })
        .min()
}

/// The earliest time at which a receipt of a claim may have expired, where it may have been sealed at all.
pub(super) fn receipt_end_min(file: &File<'_>, grant: &Grant<'_>, until: Entry<'_>) -> Option<u64> {
    file.perhaps_before(until)
        .filter(|entry| perhaps_done(entry.op))
        .filter_map(|entry| match (&entry.op.ask, entry.op.answer()) {
            (Ask::Seal { token, .. }, Some(ObservedAnswer::Sealed { expires, .. })) if *token == grant.token => {
                Some(*expires)
            }
            (Ask::Seal { token, .. }, None) if *token == grant.token => {
                Some(entry.op.invoked.at + file.rules.retain_ms)
            }
            (Ask::Resolve { sealed: Some(_), .. }, _) if !before(file.history, entry, grant.by) => {
                Some(entry.op.invoked.at + file.rules.retain_ms)
            }
            _ => None,
        })
        .min()
}

// At most one live token at any store time; under `hold` a lapse does not end one.
fn one_live_token(file: &File<'_>, first: &Grant<'_>, second: &Grant<'_>, found: &mut Vec<Violation>) {
    // Where another held it in between, by a clock that was ahead, the dates of the two are of two clocks.
    let next = first.first_seen == second.first_seen && first.attempt + 1 == second.attempt;
    let skew_ms = if next || second.attempt == 1 { 0 } else { skew_ms(first.by, second.by) };
    let ended = given_up_min(file, first, second.by).is_some_and(|at| at <= second.at + skew_ms)
        || receipt_end_min(file, first, second.by).is_some_and(|at| at <= second.at + skew_ms);
    if ended {
        return;
    }
    let lease_end = lease_end_min(file, first, second.by);
    if second.at + skew_ms < lease_end {
        let what = format_args!("#{} holds {} until {lease_end}", first.by.id, first.token);
        found.push(file.report("one-live-token", second.by, what));
    } else if file.rules.hold {
        found.push(file.report("hold", second.by, format_args!("#{} left a doubt", first.by.id)));
    }
}

// A fence and its attempts are remembered for one retention after its last change, and the next holder is told.
fn succession(file: &File<'_>, earlier: &Grant<'_>, grant: &Grant<'_>, found: &mut Vec<Violation>) {
    let hidden = file.perhaps_before(grant.by).any(|entry| {
        matches!(entry.op.ask, Ask::Claim { .. })
            && entry.op.outcome == RequestOutcome::Maybe
            && !before(file.history, entry, earlier.by)
    });
    let given_up = given_up_min(file, earlier, grant.by);
    let receipt_end = receipt_end_min(file, earlier, grant.by);
    if grant.first_seen != earlier.first_seen {
        let lease_end = lease_end_min(file, earlier, grant.by);
        let lapse_end = if file.rules.hold { u64::MAX } else { lease_end.saturating_add(file.rules.retain_ms) };
        let release_end = given_up.map_or(u64::MAX, |at| at + file.rules.retain_ms);
        // A refusal by a clock that is ahead makes a claim over for everybody, and the next one may be dated by one that is behind.
        let at = grant.at + skew_ms(earlier.by, grant.by);
        if at < lapse_end.min(release_end).min(receipt_end.unwrap_or(u64::MAX)) {
            let what = format_args!("the fence of #{} vanished early", earlier.by.id);
            found.push(file.report("retention", grant.by, what));
        }
        return;
    }
    if hidden {
        return;
    }
    if grant.attempt != earlier.attempt + 1 {
        let what = format_args!("attempt {} follows {} of #{}", grant.attempt, earlier.attempt, earlier.by.id);
        found.push(file.report("attempts", grant.by, what));
    }
    told_of_lapse(file, grant, found);
}

// The next holder is told of the latest attempt in this life whose outcome was not reported.
fn told_of_lapse(file: &File<'_>, grant: &Grant<'_>, found: &mut Vec<Violation>) {
    let mut earlier: Vec<&Grant<'_>> =
        file.grants.iter().filter(|g| g.first_seen == grant.first_seen && g.token < grant.token).collect();
    earlier.sort_by_key(|g| std::cmp::Reverse(g.token));
    let told = grant.recovering.map(|(token, _)| token);
    let unheard =
        |entry: Entry<'_>| matches!(entry.op.ask, Ask::Claim { .. }) && entry.op.outcome == RequestOutcome::Maybe;
    if !file.grants.iter().any(|g| Some(g.token) == told) && file.perhaps_before(grant.by).any(unheard) {
        return;
    }
    for attempt in earlier {
        if given_up_min(file, attempt, grant.by).is_none() {
            if told != Some(attempt.token) {
                found.push(file.report("told-of-lapse", grant.by, format_args!("#{} lapsed unsaid", attempt.by.id)));
            }
            return;
        }
        // A release speaks for its own attempt only; where it is not certain, or a person spoke, anything may be true.
        let released = file.entries.iter().any(|entry| {
            entry.op.ask == (Ask::Release { token: attempt.token })
                && matches!(entry.op.answer(), Some(ObservedAnswer::Released { .. }))
        });
        if !released || file.entries.iter().any(|entry| matches!(entry.op.ask, Ask::Resolve { .. })) {
            return;
        }
    }
    if told.is_some() {
        found.push(file.report("told-of-lapse", grant.by, "every earlier attempt was given up"));
    }
}

// A stale token never seals or renews; nor does one that was given up, or one that was never given.
fn stale(file: &File<'_>, entry: Entry<'_>, found: &mut Vec<Violation>) {
    let at = match (&entry.op.ask, entry.op.answer()) {
        (Ask::Seal { .. }, Some(ObservedAnswer::Sealed { replay: false, at, .. })) => *at,
        (Ask::Renew { lease_ms, .. }, Some(ObservedAnswer::Renewed { lease_expires })) => {
            lease_expires.saturating_sub(*lease_ms)
        }
        // When a doubt was resolved is not told: the end of the question is too late, its beginning is not.
        (Ask::Resolve { .. }, Some(ObservedAnswer::Resolved { replay: false })) => entry.op.invoked.at,
        _ => return,
    };
    let Some(token) = named(&entry.op.ask) else { return };
    for newer in file.grants.iter().filter(|grant| grant.token > token) {
        if before(file.history, newer.by, entry) || newer.at + skew_ms(newer.by, entry) < at {
            let what = format_args!("#{} was given {}", newer.by.id, newer.token);
            found.push(file.report("stale-token", entry, what));
        }
    }
    for other in file.entries.iter().filter(|other| before(file.history, **other, entry)) {
        if other.op.ask == (Ask::Release { token })
            && matches!(other.op.answer(), Some(ObservedAnswer::Released { .. }))
        {
            found.push(file.report("stale-token", entry, format_args!("#{} gave it up", other.id)));
        }
    }
    let hidden = file
        .perhaps_before(entry)
        .any(|other| matches!(other.op.ask, Ask::Claim { .. }) && other.op.outcome == RequestOutcome::Maybe);
    if !hidden && !file.grants.iter().any(|grant| grant.token == token) {
        found.push(file.report("stale-token", entry, "nobody was given this token"));
    }
}

// A granted claim is durable: its holder is refused only for a reason.
fn refused(file: &File<'_>, entry: Entry<'_>, found: &mut Vec<Violation>) {
    let Some(ObservedAnswer::FencedOff { .. }) = entry.op.answer() else { return };
    let Some(token) = shown(&entry.op.ask) else { return };
    let Some(grant) = file.grants.iter().find(|grant| grant.token == token) else { return };
    if !before(file.history, grant.by, entry) {
        return;
    }
    let retained = lease_end_min(file, grant, entry).saturating_add(file.rules.retain_ms);
    let forgotten = (!file.rules.hold && retained <= closed_at(entry.op))
        || receipt_end_min(file, grant, entry).is_some_and(|end| end <= closed_at(entry.op));
    let displaced = file.perhaps_before(entry).any(|other| {
        !before(file.history, other, grant.by)
            && other.id != grant.by.id
            && perhaps_done(other.op)
            && match &other.op.ask {
                Ask::Claim { .. } | Ask::Resolve { .. } | Ask::Forget { .. } => true,
                Ask::Release { token } => *token == grant.token,
                // A sealed fence can be neither renewed nor released.
                Ask::Seal { token, .. } => *token == grant.token && !matches!(entry.op.ask, Ask::Seal { .. }),
                Ask::Renew { .. } | Ask::Alias { .. } | Ask::Look => false,
            }
    });
    if !forgotten && !displaced {
        found.push(file.report("lost-claim", entry, format_args!("#{} was given this token", grant.by.id)));
    }
}

// An effect that happened within its lease is known, or at least reported, when the next one is let in.
fn effects(file: &File<'_>, found: &mut Vec<Violation>) {
    let done = file.history.effects.iter().filter(|effect| effect.key == file.key);
    for effect in done {
        let Some(holder) = file.grants.iter().find(|grant| grant.token == effect.token) else { continue };
        let next = file.grants.iter().filter(|grant| grant.token > effect.token).min_by_key(|grant| grant.token);
        if let Some(next) = next
            && next.first_seen == holder.first_seen
            && next.recovering.is_none()
            && effect.done.at < holder.lease_expires
            && effect.done.line < next.by.op.invoked.line
            && given_up_min(file, holder, next.by).is_none()
            && !file
                .perhaps_before(next.by)
                .any(|entry| matches!(entry.op.ask, Ask::Claim { .. }) && entry.op.outcome == RequestOutcome::Maybe)
        {
            found.push(file.report(
                "told-of-lapse",
                next.by,
                format_args!("an effect was done under {}", effect.token),
            ));
        }
    }
}
