//! Lets an effect run in its client's own task, and goes on without the client when that goes away.
//! Never drops an effect half done. Awaited by the gateway.

use std::{
    future::Future,
    pin::Pin,
    task::{Context, Poll},
};

use axum::response::Response;
use tokio::runtime::Handle;
use tokio_util::task::TaskTracker;

use crate::problem::Problem;

type Effect = Pin<Box<dyn Future<Output = Result<Response, Problem>> + Send>>;

/// An effect under way. Dropped, it is moved to a task of its own: a second task for every request would cost a
/// wake-up each, for the few clients that go away.
pub(super) struct Landing {
    effect: Option<Effect>,
    flights: TaskTracker,
}

impl Landing {
    pub(super) fn new(
        effect: impl Future<Output = Result<Response, Problem>> + Send + 'static,
        flights: TaskTracker,
    ) -> Self {
        Self { effect: Some(Box::pin(effect)), flights }
    }
}

impl Future for Landing {
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

impl Drop for Landing {
    fn drop(&mut self) {
        // Without an executor the process is ending: the lease then runs out.
        if let (Some(effect), Ok(executor)) = (self.effect.take(), Handle::try_current()) {
            self.flights.spawn_on(effect, &executor);
        }
    }
}
