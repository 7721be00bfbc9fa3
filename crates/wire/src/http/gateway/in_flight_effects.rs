//! The effects in flight on this node, by key. While the store is away, a lease may run out under one of them. A caller
//! that is granted the key then must not repeat the effect: its token goes to the first, which seals with it.
//! Called by the gateway between a claim and its settling.

use std::{
    collections::{HashMap, hash_map::Entry},
    sync::{
        Arc, Mutex, MutexGuard, PoisonError,
        atomic::{AtomicBool, AtomicU64, Ordering},
    },
};

use fencepost_kernel::{FenceKey, fence::Token};

/// The effects in flight on this node. Clones share them.
#[derive(Clone, Default)]
pub(super) struct InFlightEffects(Arc<Mutex<HashMap<FenceKey, Arc<State>>>>);

struct State {
    /// The highest token that was granted for the key.
    token: AtomicU64,
    /// The effect has happened, and the store has not taken its seal yet.
    done: AtomicBool,
}

/// The state of an effect in flight.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(super) enum Known {
    UnderWay,
    Done,
}

impl State {
    fn known(&self) -> Known {
        if self.done.load(Ordering::Acquire) { Known::Done } else { Known::UnderWay }
    }
}

impl InFlightEffects {
    fn states(&self) -> MutexGuard<'_, HashMap<FenceKey, Arc<State>>> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// The state of a key's effect, if one is in flight.
    pub(super) fn known(&self, key: &FenceKey) -> Option<Known> {
        self.states().get(key).map(|state| state.known())
    }

    /// Begins an effect with the token that was just granted. If one is in flight for the key, that one gets the token.
    pub(super) fn begin(&self, key: FenceKey, token: Token) -> Result<EffectGuard, Known> {
        match self.states().entry(key) {
            Entry::Occupied(state) => {
                state.get().token.fetch_max(token.0, Ordering::AcqRel);
                Err(state.get().known())
            }
            Entry::Vacant(place) => {
                let state = State { token: AtomicU64::new(token.0), done: AtomicBool::new(false) };
                let state = place.insert(Arc::new(state)).clone();
                Ok(EffectGuard { effects: self.clone(), key, state })
            }
        }
    }
}

/// An effect in flight, until this is dropped.
pub(super) struct EffectGuard {
    effects: InFlightEffects,
    key: FenceKey,
    state: Arc<State>,
}

impl EffectGuard {
    /// The token to seal or release with.
    pub(super) fn token(&self) -> Token {
        Token(self.state.token.load(Ordering::Acquire))
    }

    /// Notes that the effect has happened and the store has not taken its seal.
    pub(super) fn done(&self) {
        self.state.done.store(true, Ordering::Release);
    }
}

impl Drop for EffectGuard {
    fn drop(&mut self) {
        self.effects.states().remove(&self.key);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn one_effect_a_key_and_the_first_gets_the_right_of_the_second() {
        let (effects, key) = (InFlightEffects::default(), FenceKey([7; 32]));
        let Ok(first) = effects.begin(key, Token(1)) else { panic!("nothing is under way") };
        assert_eq!(effects.begin(key, Token(5)).err(), Some(Known::UnderWay));
        assert_eq!(effects.begin(key, Token(3)).err(), Some(Known::UnderWay));
        assert_eq!(first.token(), Token(5));
        first.done();
        assert_eq!(effects.known(&key), Some(Known::Done));
        drop(first);
        assert_eq!(effects.known(&key), None);
        assert!(effects.begin(key, Token(9)).is_ok_and(|effect_guard| effect_guard.token() == Token(9)));
    }
}
