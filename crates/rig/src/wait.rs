//! Waits for another thread or process. Asks less and less often: a waiter that spins takes the processor
//! from the one that it waits for. Called by this crate's servers and by tests.

use std::{
    iter, thread,
    time::{Duration, Instant},
};

/// Far longer than anything that tests wait for takes, also on a loaded machine.
pub const PATIENCE: Duration = Duration::from_secs(60);

const PAUSE_MAX: Duration = Duration::from_millis(20);

/// The answer to a question that is asked until it says yes: a `bool`, or an `Option` of the value that was waited for.
pub trait Awaited {
    /// The value that was waited for.
    type Value;
    /// The value, if the answer is yes.
    fn found(self) -> Option<Self::Value>;
}

impl Awaited for bool {
    type Value = ();

    fn found(self) -> Option<()> {
        self.then_some(())
    }
}

impl<T> Awaited for Option<T> {
    type Value = T;

    fn found(self) -> Self {
        self
    }
}

/// The pauses between questions: each twice the one before, up to 20 ms.
pub fn pauses() -> impl Iterator<Item = Duration> {
    iter::successors(Some(Duration::from_micros(200)), |pause| Some((*pause * 2).min(PAUSE_MAX)))
}

/// Asks again until there is an answer. Panics after [`PATIENCE`].
#[track_caller]
pub fn until<A: Awaited>(what: &str, ask: impl FnMut() -> A) -> A::Value {
    until_within(PATIENCE, what, ask)
}

/// Asks again until there is an answer. Panics when it does not come in time.
#[track_caller]
pub fn until_within<A: Awaited>(patience: Duration, what: &str, mut ask: impl FnMut() -> A) -> A::Value {
    let (begun, mut pauses) = (Instant::now(), pauses());
    loop {
        if let Some(value) = ask().found() {
            return value;
        }
        assert!(begun.elapsed() < patience, "not within {patience:?}: {what}");
        thread::sleep(pauses.next().unwrap());
    }
}
