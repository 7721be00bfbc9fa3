//! `/admin/backup`: the store as a backup file, streamed while it is being served.
//! Never holds more than a few pages of it: a slow reader slows the reading of the store.

use std::{
    pin::Pin,
    task::{Context, Poll},
};

use axum::{body::Body, response::Response};
use bytes::Bytes;
use fencepost::{
    moving::{Backup, Error},
    policy::identity::Role,
};
use http::{HeaderValue, Method, header};
use http_body::Frame;
use tokio::{runtime::Handle, sync::mpsc};

use super::{
    App,
    call::Call,
    route::{Access, BodyLimit, Class, Content, RequestBody, Route, buffered},
};
use crate::{log::Level, problem::Problem};

/// Pieces that may wait for the client.
const PIECES_MAX: usize = 2;

pub(super) const ROUTES: &[Route] = &[Route {
    method: Method::GET,
    path: "/admin/backup",
    handler: buffered!(backup),
    access: Access::Roles(&[Role::Admin]),
    class: Class::Normal,
    body_limit: BodyLimit::Policy,
    operation_id: "backup",
    summary: "The whole store as a backup file, read out while it is being served",
    parameters: &[],
    request: RequestBody::None,
    answers: &[(200, Content::File, "The file; it is whole only where its trailer and its sum are right")],
    errors: &[],
}];

/// `GET /admin/backup`
async fn backup(call: &Call) -> Result<Response, Problem> {
    let backup = call.app.fencepost.backup().await?;
    let (pieces, out) = mpsc::channel(PIECES_MAX);
    let (app, by, handle) = (call.app.clone(), call.caller.id.clone(), Handle::current());
    // Reading pages from a disk blocks, which must not hold up claims.
    tokio::task::spawn_blocking(move || handle.block_on(read_out(&app, &by, backup, pieces)));
    let mut response = Response::new(Body::new(Pieces(out)));
    response.headers_mut().insert(header::CONTENT_TYPE, HeaderValue::from_static("application/octet-stream"));
    Ok(response)
}

async fn read_out(app: &App, by: &str, mut backup: Backup, out: mpsc::Sender<Result<Bytes, Error>>) {
    let outcome = loop {
        match backup.next().await {
            Ok(Some(piece)) => {
                if out.send(Ok(piece)).await.is_err() {
                    break Err("the client went away".to_owned());
                }
            }
            Ok(None) => break Ok(()),
            Err(error) => {
                let why = error.to_string();
                // The answer is cut here, and the file has no trailer: it cannot be taken for a whole one.
                let _ = out.send(Err(error)).await;
                break Err(why);
            }
        }
    };
    let now_ms = app.fencepost.engine().now().0;
    let rows = backup.rows().total();
    match outcome {
        Ok(()) => app.log.line(Level::Info, now_ms, "backup read out").text("by", by).number("rows", rows),
        Err(why) => app.log.line(Level::Warn, now_ms, "backup not finished").text("by", by).text("why", &why),
    };
}

/// The parts that are read so far, as a body.
struct Pieces(mpsc::Receiver<Result<Bytes, Error>>);

impl http_body::Body for Pieces {
    type Data = Bytes;
    type Error = Error;

    fn poll_frame(mut self: Pin<&mut Self>, context: &mut Context<'_>) -> Poll<Option<Result<Frame<Bytes>, Error>>> {
        self.0.poll_recv(context).map(|piece| piece.map(|piece| piece.map(Frame::data)))
    }
}
