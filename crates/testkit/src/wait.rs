//! Waiting in a task. Never blocks its thread: what is waited for may run there. Called by tests.

use std::time::Instant;

use fencepost_rig::wait::{Found, PATIENCE, pauses};

/// Asks again, less and less often, until there is an answer. Panics after [`PATIENCE`].
pub async fn until_async<F: Found>(what: &str, mut ask: impl AsyncFnMut() -> F) -> F::Value {
    let (begun, mut pauses) = (Instant::now(), pauses());
    loop {
        if let Some(value) = ask().await.found() {
            return value;
        }
        assert!(begun.elapsed() < PATIENCE, "not within {PATIENCE:?}: {what}");
        tokio::time::sleep(pauses.next().unwrap()).await;
    }
}
