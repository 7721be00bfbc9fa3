//! Lets an effect run in its client's own task, and goes on without the client when that goes away.
//! Never drops an effect half done. Awaited by the gateway.

use std::{
    future::Future,
    pin::Pin,
    sync::Arc,
    task::{Context, Poll},
};

use axum::response::Response;

use crate::{http::App, problem::Problem};

type Effect = Pin<Box<dyn Future<Output = Result<Response, Problem>> + Send>>;

/// An effect under way. Dropped, it is moved to a task of its own: a second task for every request would cost a
/// wake-up each, for the few clients that go away.
pub(super) struct Landing {
    effect: Option<Effect>,
    app: Arc<App>,
}

impl Landing {
    pub(super) fn new(effect: impl Future<Output = Result<Response, Problem>> + Send + 'static, app: Arc<App>) -> Self {
        Self { effect: Some(Box::pin(effect)), app }
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
        if let Some(effect) = self.effect.take() {
            self.app.gateway.go_on(effect);
        }
    }
}
