//! The ceiling: an axum server that reads a POST and answers fixed JSON, in a process of its own.
//! Never touches a disk or parses anything, so what it reaches is the cost of HTTP alone on this machine.
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

/// Serves until killed.
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

/// Sends what `fence::Replays` sends.
#[derive(Clone)]
pub struct Posts {
    /// The server.
    pub port: u16,
    /// The request, with one hole.
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
