//! The future of one answer: the service's response, or the refusal that takes its place.
//! Never changes a response, except that it adds `Connection: close` or replaces the 4xx or 5xx to a body that failed.
//! Called by `connection` and `http2`; hyper polls it.

use std::convert::Infallible;
use std::future::Future;
use std::pin::Pin;
use std::sync::Arc;
use std::task::{Context, Poll, ready};

use bytes::Bytes;
use http::{HeaderValue, Request, Response, Uri, header};
use http_body_util::Full;
use pin_project_lite::pin_project;
use tower_service::Service;

use super::body::RequestBody;
use super::budget::{Budget, Charge};
use super::limits::Refuse;
use super::link::RequestInFlight;
use super::refusal::Refusal;
use super::reply::Reply;

pin_project! {
    /// One call, from the request's arrival to its response's head.
    pub(super) struct Answer<F, S> {
        #[pin]
        pub(super) step: Step<F, S>,
        pub(super) in_flight: Option<RequestInFlight>,
        pub(super) after: After,
        pub(super) budget: Arc<Budget>,
        pub(super) refuse: Refuse,
        // HTTP/2: the charge for the request's head. One connection may have many.
        pub(super) head: Option<Charge>,
    }
}

pin_project! {
    /// How far the call has come.
    #[project = StepNow]
    pub(super) enum Step<F, S> {
        Call { #[pin] future: F },
        Wait { waiting: Option<Box<(S, Request<RequestBody>)>> },
        Refuse { refusal: Refusal },
    }
}

/// Parts of the request that the answer needs after the service has taken the request.
#[derive(Debug, Default)]
pub(super) struct After {
    pub(super) has_body: bool,
    /// The connection ends with this answer.
    pub(super) is_last: bool,
    pub(super) traceparent: Option<HeaderValue>,
    pub(super) uri: Option<Uri>,
}

impl<F, S, B> Future for Answer<F, S>
where
    F: Future<Output = Result<Response<B>, Infallible>>,
    S: Service<Request<RequestBody>, Response = Response<B>, Error = Infallible, Future = F>,
    B: http_body::Body<Data = Bytes>,
{
    type Output = Result<Response<Reply<B>>, Infallible>;

    fn poll(self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<Self::Output> {
        let mut me = self.project();
        loop {
            let next = match me.step.as_mut().project() {
                StepNow::Call { future } => {
                    let Ok(response) = ready!(future.poll(cx));
                    let in_flight = me.in_flight.take().expect("a future is not polled after its end");
                    return Poll::Ready(Ok(me.after.finish(response, me.budget, *me.refuse, in_flight)));
                }
                StepNow::Wait { waiting } => {
                    let (service, _) = &mut **waiting.as_mut().expect("it waits until it calls");
                    let Ok(()) = ready!(service.poll_ready(cx));
                    let (mut service, request) = *waiting.take().expect("it calls once");
                    Step::Call { future: service.call(request) }
                }
                StepNow::Refuse { refusal } => {
                    let in_flight = me.in_flight.take().expect("a future is not polled after its end");
                    let response = me.after.refused(*me.refuse, refusal);
                    return Poll::Ready(Ok(response.map(|body| Reply::front(body, in_flight))));
                }
            };
            me.step.set(next);
        }
    }
}

impl After {
    // Empty for a request that could not be read, or that has no body.
    fn path(&self) -> &str {
        self.uri.as_ref().map_or("", Uri::path)
    }

    // A refusal, which also ends the connection.
    fn refused(&self, refuse: Refuse, refusal: &Refusal) -> Response<Full<Bytes>> {
        let mut response = refuse(refusal, self.path(), self.traceparent.as_ref());
        response.headers_mut().insert(header::CONNECTION, HeaderValue::from_static("close"));
        response
    }

    fn finish<B: http_body::Body>(
        &self,
        mut response: Response<B>,
        budget: &Arc<Budget>,
        refuse: Refuse,
        in_flight: RequestInFlight,
    ) -> Response<Reply<B>> {
        // The service knows only that the body failed; the front knows why.
        if self.has_body
            && (response.status().is_client_error() || response.status().is_server_error())
            && let Some(fault) = in_flight.link().fault()
        {
            let response = self.refused(refuse, &fault.refusal());
            return response.map(|body| Reply::front(body, in_flight));
        }
        if self.is_last {
            response.headers_mut().insert(header::CONNECTION, HeaderValue::from_static("close"));
        }
        let charge = budget.answer(&response);
        response.map(|body| Reply::service(body, charge, in_flight))
    }
}
