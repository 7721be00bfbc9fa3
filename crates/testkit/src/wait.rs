//! Waiting in a task: for an answer, or until nothing can go on. Never blocks its thread: what is waited for may run there. Called by tests.

use std::time::Instant;

use fencepost_rig::wait::{Awaited, PATIENCE, pauses};

/// Asks again, less and less often, until there is an answer. Panics after [`PATIENCE`].
pub async fn until_async<A: Awaited>(what: &str, mut ask: impl AsyncFnMut() -> A) -> A::Value {
    let (begun, mut pauses) = (Instant::now(), pauses());
    loop {
        if let Some(value) = ask().await.found() {
            return value;
        }
        assert!(begun.elapsed() < PATIENCE, "not within {PATIENCE:?}: {what}");
        tokio::time::sleep(pauses.next().unwrap()).await;
    }
}

/// Lets every other task of this thread get as far as it can. Only for a runtime of one thread, and for what happens on it.
pub async fn settle() {
    for _ in 0..100 {
        tokio::task::yield_now().await;
    }
}
