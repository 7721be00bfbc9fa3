//! One suite that every store must pass: a file for each law and each ordered read of the contract, and one for doubts.
//! Never looks at how a store works: only at its answers, also after a crash.
//! Called by the tests of every backend: implement [`Harness`], then run every law of [`laws`].

use std::{fmt, sync::Arc};

use fencepost_kernel::Millis;
use futures::{executor::block_on, future::BoxFuture};

use crate::{Error, Store, WriteSet};

mod atomic;
mod concurrent;
mod doubts;
mod due;
mod durable;
mod fresh;
mod merged;
mod moved;
mod ordered;
mod patient;
mod range;
mod repeatable;
mod rows;

/// Everything the suite needs from a backend besides the store itself.
pub trait Harness: Send {
    /// A store with nothing in it.
    fn open(&mut self) -> Arc<dyn Store>;

    /// Ends the store as a crash does, and opens what survived; none where the store promises no durability.
    fn crash(&mut self, store: Arc<dyn Store>) -> Option<Arc<dyn Store>>;

    /// The stores that may be found after a crash within this commit: one for each place where the crash may hit.
    /// Empty where the store promises no durability.
    fn interrupt(&mut self, store: Arc<dyn Store>, sets: &[WriteSet], now: Millis) -> Vec<Arc<dyn Store>>;

    /// Makes the store drop every row that it may drop by itself at `now`.
    fn sweep(&mut self, store: &Arc<dyn Store>, now: Millis);

    /// The same store as another process opens it; the same object where only one process may.
    fn beside(&mut self, store: &Arc<dyn Store>) -> Arc<dyn Store> {
        store.clone()
    }

    /// Runs jobs at the same time and waits for them. A store with a runtime of its own runs them there.
    fn together(&mut self, jobs: Vec<BoxFuture<'static, Result<(), LawViolation>>>) -> Result<(), LawViolation> {
        let threads: Vec<_> = jobs.into_iter().map(|job| std::thread::spawn(move || block_on(job))).collect();
        threads.into_iter().try_for_each(|thread| {
            thread.join().unwrap_or_else(|_| Err(LawViolation("a job of the suite panicked".to_owned())))
        })
    }
}

/// How a store broke a law.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct LawViolation(pub String);

impl fmt::Display for LawViolation {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.0)
    }
}

impl From<Error> for LawViolation {
    fn from(error: Error) -> Self {
        Self(format!("an operation failed: {error}"))
    }
}

type Check = for<'a> fn(&'a mut dyn Harness) -> BoxFuture<'a, Result<(), LawViolation>>;

/// One law, with its check.
#[derive(Clone, Copy)]
pub struct Law {
    /// Its name in lower case: the word of the contract, or `doubts`, which the contract does not list.
    pub name: &'static str,
    check: Check,
}

impl Law {
    /// Checks the law on fresh stores of the harness.
    pub async fn check(&self, harness: &mut dyn Harness) -> Result<(), LawViolation> {
        (self.check)(harness).await
    }
}

/// Every law: those of the contract in its order, then `doubts`.
pub fn laws() -> [Law; 11] {
    [
        Law { name: "atomic", check: |harness| Box::pin(atomic::check(harness)) },
        Law { name: "moved", check: |harness| Box::pin(moved::check(harness)) },
        Law { name: "fresh", check: |harness| Box::pin(fresh::check(harness)) },
        Law { name: "durable", check: |harness| Box::pin(durable::check(harness)) },
        Law { name: "repeatable", check: |harness| Box::pin(repeatable::check(harness)) },
        Law { name: "patient", check: |harness| Box::pin(patient::check(harness)) },
        Law { name: "ordered", check: |harness| Box::pin(ordered::check(harness)) },
        Law { name: "merged", check: |harness| Box::pin(merged::check(harness)) },
        Law { name: "due", check: |harness| Box::pin(due::check(harness)) },
        Law { name: "range", check: |harness| Box::pin(range::check(harness)) },
        Law { name: "doubts", check: |harness| Box::pin(doubts::check(harness)) },
    ]
}

/// Fails unless both are equal; `what` names the comparison.
fn same<T: PartialEq + fmt::Debug>(what: &str, found: T, wanted: T) -> Result<(), LawViolation> {
    if found == wanted { Ok(()) } else { Err(LawViolation(format!("{what}: found {found:?}, wanted {wanted:?}"))) }
}

/// Fails unless the claim holds.
fn holds(claim: &str, truth: bool) -> Result<(), LawViolation> {
    if truth { Ok(()) } else { Err(LawViolation(format!("this does not hold: {claim}"))) }
}
