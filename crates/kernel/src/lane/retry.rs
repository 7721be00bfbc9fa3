//! When a delivery that failed is tried again, and when it is given up.
//! Never reads a clock and draws no chance: both are arguments. Called only from `dispatch`.

use crate::{lane::Trouble, time::Millis};

/// When the attempts after the first are due, counted from it; later ones follow by the hour.
const OFFSETS_MS: [u64; 5] = [5_000, 30_000, 120_000, 600_000, HOUR_MS];
const HOUR_MS: u64 = 3_600_000;
/// The shortest time between two attempts: one that took long is not followed at once.
const GAP_MS_MIN: u64 = 5_000;
/// How soon a way that is down is tried again at first, and at last.
const AWAY_MS_MIN: u64 = 1_000;
const AWAY_MS_MAX: u64 = 30_000;
/// How long after its first attempt an event is given up.
pub const HORIZON_MS: u64 = 24 * HOUR_MS;
/// By how much a gap is lengthened at most, as a part of it: a receiver that comes back does not meet everybody at once.
const JITTER_PART: u64 = 10;

/// Chance for one jitter: any number, made by the caller.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Chance(pub u32);

/// When the attempt after `attempts` failed ones is due, or none where the horizon is over.
/// The last one is at the horizon itself. A receiver's own wish only lengthens the gap.
pub fn next(attempts: u32, first_at: Millis, now: Millis, wish_ms: Option<u64>, chance: Chance) -> Option<Millis> {
    let horizon = first_at.plus(HORIZON_MS);
    if now >= horizon {
        return None;
    }
    let step = OFFSETS_MS.get(attempts.max(1) as usize - 1);
    let due = step.map_or(now.plus(HOUR_MS), |offset| first_at.plus(*offset));
    let gap = due.since(now).max(GAP_MS_MIN);
    let gap = gap + u64::from(chance.0) % (gap / JITTER_PART + 1);
    Some(now.plus(gap.max(wish_ms.unwrap_or(0))).min(horizon))
}

/// When the attempt after `attempts` failed ones is due, where not the receiver but the way to it is down: soon, for ever.
pub fn away(attempts: u32, now: Millis, chance: Chance) -> Millis {
    let gap = (AWAY_MS_MIN << attempts.saturating_sub(1).min(8)).min(AWAY_MS_MAX);
    now.plus(gap + u64::from(chance.0) % (gap / JITTER_PART + 1))
}

/// The same trouble after a pause: the horizon stands still while nothing may be sent.
pub fn resumed(trouble: &Trouble, paused: Millis, now: Millis) -> Trouble {
    let lost = now.since(paused.max(trouble.first_at));
    Trouble { first_at: trouble.first_at.plus(lost), next_at: now, ..trouble.clone() }
}
