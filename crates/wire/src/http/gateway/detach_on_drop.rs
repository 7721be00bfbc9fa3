//! Runs an effect in the task of its client, and in a task of its own once the client disconnects. A request that only
//! waits for another's outcome ends with its client. Never drops an effect half done. Called by the gateway.

use std::{
    future::Future,
    pin::Pin,
    sync::{
        Arc,
        atomic::{AtomicBool, Ordering},
    },
    task::{Context, Poll},
};

use axum::response::Response;

use crate::{http::App, problem::Problem};

type Effect = Pin<Box<dyn Future<Output = Result<Response, Problem>> + Send>>;

/// An effect in flight. Dropping this moves the effect to a task of its own. A second task for every request would cost
/// each a wake-up, and few clients disconnect.
pub(super) struct DetachOnDrop {
    effect: Option<Effect>,
    /// The request only waits for another's outcome: no claim is granted, and none is being asked for.
    is_waiting: Arc<AtomicBool>,
    app: Arc<App>,
}

impl DetachOnDrop {
    /// `effect` gets a flag, which it keeps true while it may be dropped.
    pub(super) fn new<F>(effect: impl FnOnce(Arc<AtomicBool>) -> F, app: Arc<App>) -> Self
    where
        F: Future<Output = Result<Response, Problem>> + Send + 'static,
    {
        let is_waiting = Arc::new(AtomicBool::new(false));
        Self { effect: Some(Box::pin(effect(is_waiting.clone()))), is_waiting, app }
    }
}

impl Future for DetachOnDrop {
    type Output = Result<Response, Problem>;

    fn poll(mut self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<Self::Output> {
        let Some(effect) = &mut self.effect else { return Poll::Pending };
        let landed = effect.as_mut().poll(cx);
        if landed.is_ready() {
            self.effect = None;
        }
        landed
    }
}

impl Drop for DetachOnDrop {
    fn drop(&mut self) {
        if let Some(effect) = self.effect.take() {
            self.app.gateway.go_on(Detached { effect, is_waiting: self.is_waiting.clone() });
        }
    }
}

/// An effect without a client. It runs until it is done, and ends early where it only waits for another's outcome.
struct Detached {
    effect: Effect,
    is_waiting: Arc<AtomicBool>,
}

impl Future for Detached {
    type Output = ();

    fn poll(mut self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<()> {
        match self.effect.as_mut().poll(cx) {
            Poll::Pending if !self.is_waiting.load(Ordering::Acquire) => Poll::Pending,
            _ => Poll::Ready(()),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[tokio::test]
    async fn effect_without_a_client_ends_when_it_begins_to_wait_and_not_before() {
        let is_waiting = Arc::new(AtomicBool::new(false));
        let (flag, asked) = (is_waiting.clone(), Arc::new(tokio::sync::Notify::new()));
        let answered = asked.clone();
        let effect: Effect = Box::pin(async move {
            answered.notified().await;
            flag.store(true, Ordering::Release);
            std::future::pending().await
        });
        let mut detached = tokio::spawn(Detached { effect, is_waiting });
        // The store is being asked and may grant the claim: the effect does not end yet.
        let soon = std::time::Duration::from_millis(5);
        assert!(tokio::time::timeout(soon, &mut detached).await.is_err());
        asked.notify_one();
        detached.await.expect("it ends once it only waits");
    }
}
