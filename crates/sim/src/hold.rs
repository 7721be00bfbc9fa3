//! Holds a node still: while its gate is shut its loops are not polled, as if its process were stopped, and time goes on.
//! Never loses a wake-up: a node that goes on first looks at everything once. Shut and opened by `nodes`.

use std::{
    future::poll_fn,
    pin::pin,
    sync::atomic::{AtomicBool, Ordering},
    task::Poll,
    time::Duration,
};

use futures::task::AtomicWaker;
use tokio::time::sleep;

/// Whether a node runs.
#[derive(Default)]
pub(crate) struct Gate {
    shut: AtomicBool,
    /// It was shut and the node has not committed since.
    behind: AtomicBool,
    waker: AtomicWaker,
}

impl Gate {
    pub(crate) fn shut(&self) {
        self.shut.store(true, Ordering::Relaxed);
    }

    pub(crate) fn is_shut(&self) -> bool {
        self.shut.load(Ordering::Relaxed)
    }

    /// Lets the node go on; whether it had to be.
    pub(crate) fn open(&self) -> bool {
        let was_shut = self.shut.swap(false, Ordering::Relaxed);
        if was_shut {
            self.behind.store(true, Ordering::Relaxed);
            self.waker.wake();
        }
        was_shut
    }

    /// Whether this is the first commit since the node went on.
    pub(crate) fn catches_up(&self) -> bool {
        self.behind.swap(false, Ordering::Relaxed)
    }

    /// Returns once the node runs: what arrives while it is held is read later.
    pub(crate) async fn opened(&self) {
        while self.is_shut() {
            sleep(Duration::from_millis(10)).await;
        }
    }

    /// Runs a node's loops, unless they are held.
    pub(crate) async fn pass(&self, loops: impl Future<Output = ()>) {
        let mut loops = pin!(loops);
        poll_fn(|context| {
            if self.is_shut() {
                self.waker.register(context.waker());
                return Poll::Pending;
            }
            loops.as_mut().poll(context)
        })
        .await;
    }
}
