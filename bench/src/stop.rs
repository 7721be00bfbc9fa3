//! Ctrl-C and SIGTERM, turned into an ordinary error so that every server guard is dropped and every child stopped.
//! Never exits the process by itself: that would leave servers behind.
//! Called by `main` once, and polled by everything that loops.

use std::sync::atomic::{AtomicBool, Ordering};
use std::thread;
use std::time::Duration;

use anyhow::{Result, bail};
use tokio::signal::unix::{SignalKind, signal};

static REQUESTED: AtomicBool = AtomicBool::new(false);

/// Starts listening for the two signals, before the first server is started.
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
        // The runtime stays, and with it the handlers: a second signal must not kill us half-way through stopping.
        runtime.block_on(std::future::pending::<()>());
    });
    Ok(())
}

/// An error once a stop was asked for.
pub fn check() -> Result<()> {
    if REQUESTED.load(Ordering::Relaxed) {
        bail!("interrupted; the servers were stopped");
    }
    Ok(())
}

/// Completes soon after a stop was asked for.
pub async fn requested() {
    while check().is_ok() {
        tokio::time::sleep(Duration::from_millis(100)).await;
    }
}
