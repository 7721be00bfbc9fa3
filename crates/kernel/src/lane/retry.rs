//! Decides when a failed delivery is tried again, and when it is given up.
//! Never reads a clock or a source of randomness: both are arguments. Called only by `lane::acts`.

use crate::{lane::Trouble, time::Millis};

/// When the attempts after the first are due, counted from the first; later ones follow every hour.
const OFFSETS_MS: [u64; 5] = [5_000, 30_000, 120_000, 600_000, HOUR_MS];
const HOUR_MS: u64 = 3_600_000;
/// The shortest time between two attempts, also where an attempt took longer than its gap.
const GAP_MS_MIN: u64 = 5_000;
/// The first and the longest gap between attempts while the transport itself fails.
const AWAY_MS_MIN: u64 = 1_000;
const AWAY_MS_MAX: u64 = 30_000;
/// An event is given up this long after its first attempt.
pub const HORIZON_MS: u64 = 24 * HOUR_MS;
/// The jitter lengthens a gap by up to a tenth, so that a recovered receiver does not get all events at once.
const JITTER_PART: u64 = 10;

/// A random number for one jitter, made by the caller.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Chance(pub u32);

/// When the attempt after `attempts` failed ones is due; `None` where the horizon is over. The last attempt is at the
/// horizon itself. The receiver's wish only lengthens the gap.
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

/// When to try again after `attempts` failed ones because the transport itself failed: soon, without a time limit.
pub fn away(attempts: u32, now: Millis, chance: Chance) -> Millis {
    let gap = (AWAY_MS_MIN << attempts.saturating_sub(1).min(8)).min(AWAY_MS_MAX);
    now.plus(gap + u64::from(chance.0) % (gap / JITTER_PART + 1))
}

/// The same trouble after a pause: the paused time does not count towards the horizon.
pub fn resumed(trouble: &Trouble, paused: Millis, now: Millis) -> Trouble {
    let lost = now.since(paused.max(trouble.first_at));
    Trouble { first_at: trouble.first_at.plus(lost), next_at: now, ..trouble.clone() }
}
