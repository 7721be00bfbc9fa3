//! Guesses instead of reads: what this engine wrote last is mostly what is there, and a key that it never saw is mostly
//! new. A write that was decided over a wrong guess is refused by the store, and decided again over what is there.
//! Never answers from a guess. Used by askers of an engine on a shared store, who then need no reading; elsewhere only to leave out
//! a look at what is probably not there.

use std::sync::{Mutex, PoisonError};

use fencepost_kernel::{
    Command, decide,
    law::{follow, footprint},
};

use super::{
    Shared,
    rows::{LoadedRows, View},
};

/// A wrong guess costs a round trip that a right one saves many times over; past one in eight it no longer pays.
const MISSES_MAX: u32 = 8;
/// How much is remembered: the past counts less and less.
const MEMORY: u32 = 4_096;

/// How well guesses went lately.
#[derive(Default)]
pub(super) struct Luck(Mutex<(u32, u32)>);

impl Luck {
    /// Whether to guess once more. Where it does not pay, every look makes it a little more likely again.
    pub(super) fn holds(&self) -> bool {
        let mut counts = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        let (guessed, missed) = &mut *counts;
        let holds = *missed * MISSES_MAX <= *guessed + MISSES_MAX;
        *guessed += u32::from(!holds);
        holds
    }

    /// So many were guessed, and so many of them wrongly.
    pub(super) fn note(&self, guessed: usize, missed: usize) {
        let mut counts = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        counts.0 = counts.0.saturating_add(guessed as u32);
        counts.1 = counts.1.saturating_add(missed as u32);
        if counts.0 > MEMORY {
            *counts = (counts.0 / 2, counts.1 / 2);
        }
    }
}

/// Guessed rows that every one of the commands would write over; none where one of them must read.
pub(super) fn guess(shared: &Shared, commands: &[Command]) -> Option<View> {
    if !shared.luck.holds() {
        return None;
    }
    let at = shared.time.now();
    let mut rows = LoadedRows::default();
    for command in commands {
        let mut keys = Vec::new();
        footprint(command, &mut |key| keys.push(key));
        let [key] = keys[..] else { return None };
        rows.rows.insert(key, shared.store.guess(&key)?);
        let mut follows = false;
        follow(command, &rows, &mut |_| follows = true);
        if follows || decide(command, &rows, at).writes.is_empty() {
            return None;
        }
    }
    Some(View { rows, at, guessed: true })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn guessing_stops_when_it_does_not_pay_and_is_tried_again_later() {
        let luck = Luck::default();
        luck.note(100, 2);
        assert!(luck.holds());
        luck.note(100, 90);
        assert!(!luck.holds());
        assert!((0..2_000).any(|_| luck.holds()), "given enough time, it is tried again");
    }
}
