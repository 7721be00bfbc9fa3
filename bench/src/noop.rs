//! The upper bound: an axum server, in its own process, that reads a POST and answers fixed JSON.
//! Never touches a disk or parses a body, so its figures are the cost of HTTP alone on this machine.
//! Called by `main` (the hidden subcommand) and by `contest` (the client side).

use anyhow::Result;
use axum::Router;
use axum::body::Bytes;
use axum::http::header::CONTENT_TYPE;
use axum::routing::{get, post};

use crate::http::{Connection, Template};
use crate::keys::Numbering;
use crate::load::{Connect, Driver};

const ANSWER: &str = r#"{"decision":"new","token":1}"#;

/// Serves until the process is killed.
pub fn serve(port: u16) -> Result<()> {
    let runtime = tokio::runtime::Builder::new_multi_thread().enable_all().build()?;
    runtime.block_on(async {
        let answer = |_body: Bytes| async { ([(CONTENT_TYPE, "application/json")], ANSWER) };
        let router = Router::new().route("/v1/fences/claim", post(answer)).route("/readyz", get(|| async { "ok" }));
        let listener = tokio::net::TcpListener::bind(("127.0.0.1", port)).await?;
        axum::serve(listener, router).await?;
        Ok(())
    })
}

/// Sends the requests that `fence::Replays` sends.
#[derive(Clone)]
pub struct Posts {
    pub port: u16,
    /// The request; hole 0 is the key.
    pub request: Template,
}

/// A connection of `Posts`.
pub struct PostsDriver {
    connection: Connection,
    request: Template,
    turn: u64,
}

impl Connect for Posts {
    type Driver = PostsDriver;
    async fn connect(&self, connection: usize) -> Result<PostsDriver> {
        let request = self.request.clone();
        Ok(PostsDriver { connection: Connection::open(self.port).await?, request, turn: connection as u64 })
    }
}

impl Driver for PostsDriver {
    async fn step(&mut self) -> Result<()> {
        Numbering::new(0).write(self.turn, self.request.hole(0));
        self.turn += 1;
        let reply = self.connection.exchange(self.request.bytes()).await?;
        if reply.status != 200 || reply.body != ANSWER.as_bytes() {
            return Err(reply.unexpected("the fixed answer"));
        }
        Ok(())
    }
}
