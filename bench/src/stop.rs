//! Turns Ctrl-C and SIGTERM into an ordinary error, so that drop stops every child process.
//! Never exits the process by itself: that would leave servers running.
//! Called by `main` once at the start, and by every loop.

use std::sync::atomic::{AtomicBool, Ordering};
use std::thread;
use std::time::Duration;

use anyhow::{Result, bail};
use tokio::signal::unix::{SignalKind, signal};

static REQUESTED: AtomicBool = AtomicBool::new(false);

/// Starts the signal handlers; must run before the first server starts.
pub fn listen() -> Result<()> {
    let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build()?;
    let (mut interrupt, mut terminate) = {
        let _inside = runtime.enter();
        (signal(SignalKind::interrupt())?, signal(SignalKind::terminate())?)
    };
    thread::spawn(move || {
        runtime.block_on(async {
            tokio::select! { _ = interrupt.recv() => {}, _ = terminate.recv() => {} }
        });
        REQUESTED.store(true, Ordering::Relaxed);
        // The runtime and its handlers stay: a second signal must not kill the process while it stops its servers.
        runtime.block_on(std::future::pending::<()>());
    });
    Ok(())
}

/// Returns an error once a signal has asked the process to stop.
pub fn check() -> Result<()> {
    if REQUESTED.load(Ordering::Relaxed) {
        bail!("interrupted; the servers were stopped");
    }
    Ok(())
}

/// Completes soon after a signal has asked the process to stop.
pub async fn requested() {
    while check().is_ok() {
        tokio::time::sleep(Duration::from_millis(100)).await;
    }
}
