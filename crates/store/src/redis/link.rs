//! One connection to one server that reconnects by itself, and the outcome of a pipeline sent over it.
//! Never sends anything twice: it reports whether anything was sent. Called by the router.

use std::time::Duration;

use ::redis::{
    AsyncConnectionConfig, Client, ConnectionInfo, Pipeline, ServerError, Value,
    aio::{ConnectionLike, MultiplexedConnection},
};
use tokio::{sync::Mutex, time::timeout};

const CONNECT_MAX: Duration = Duration::from_millis(1_000);
/// Longer than two commits wait for their replicas, one behind the other.
const ANSWER_MAX: Duration = Duration::from_millis(2_500);

/// Why a command has no result.
#[derive(Clone, Debug)]
pub(super) enum Fault {
    /// It was never sent.
    NotSent(String),
    /// The server answered with an error.
    Refused(ServerError),
    /// It was sent, and its outcome is unknown.
    Lost(String),
}

impl std::fmt::Display for Fault {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        match self {
            Self::NotSent(why) | Self::Lost(why) => f.write_str(why),
            Self::Refused(error) => write!(f, "{} {}", error.code(), error.details().unwrap_or_default()),
        }
    }
}

const HARMLESS: [&str; 13] = [
    "MOVED",
    "ASK",
    "TRYAGAIN",
    "CLUSTERDOWN",
    "MASTERDOWN",
    "CROSSSLOT",
    "LOADING",
    "READONLY",
    "OOM",
    "MISCONF",
    "NOREPLICAS",
    "NOSCRIPT",
    "BUSY",
];

impl Fault {
    /// Whether it proves that the command changed nothing. A server refuses the first write of a script or none.
    pub(super) fn harmless(&self) -> bool {
        match self {
            Self::NotSent(_) => true,
            Self::Lost(_) => false,
            Self::Refused(_) => HARMLESS.iter().any(|code| self.says(code)),
        }
    }

    /// Whether the server refused it with this code. An older server wraps the error of a script's first write.
    pub(super) fn says(&self, code: &str) -> bool {
        let Self::Refused(error) = self else { return false };
        error.code() == code || error.details().is_some_and(|why| why.contains(&format!("-{code} ")))
    }
}

/// A connection that is made when it is needed and dropped when it fails.
pub(super) struct Link {
    client: Client,
    open: Mutex<Open>,
}

#[derive(Default)]
struct Open {
    connection: Option<MultiplexedConnection>,
    /// Counts connections, so that a late failure of an old one does not end the new one.
    number: u64,
}

impl Link {
    pub(super) fn new(info: ConnectionInfo) -> Result<Self, String> {
        let client = Client::open(info).map_err(|error| error.to_string())?;
        Ok(Self { client, open: Mutex::default() })
    }

    /// Sends the commands in one go; one answer each, refusals among them.
    pub(super) async fn send(&self, pipeline: &Pipeline) -> Result<Vec<Value>, Fault> {
        // A caller that waits for another's attempt to connect waits no longer than for its own.
        let (mut connection, number) = match timeout(CONNECT_MAX, self.connection()).await {
            Ok(connected) => connected.map_err(|error| Fault::NotSent(error.to_string()))?,
            Err(_) => return Err(Fault::NotSent("no connection in time".to_owned())),
        };
        let answered = connection.req_packed_commands(pipeline, 0, pipeline.len()).await;
        match answered {
            Ok(values) if values.len() == pipeline.len() => Ok(values),
            Ok(_) => Err(self.lost(number, "answers are missing".to_owned()).await),
            Err(error) => Err(self.lost(number, error.to_string()).await),
        }
    }

    async fn connection(&self) -> Result<(MultiplexedConnection, u64), ::redis::RedisError> {
        let mut open = self.open.lock().await;
        if let Some(connection) = &open.connection {
            return Ok((connection.clone(), open.number));
        }
        let limits = AsyncConnectionConfig::new()
            .set_connection_timeout(Some(CONNECT_MAX))
            .set_response_timeout(Some(ANSWER_MAX));
        let connection = self.client.get_multiplexed_async_connection_with_config(&limits).await?;
        open.connection = Some(connection.clone());
        open.number += 1;
        Ok((connection, open.number))
    }

    /// Drops the connection: callers that wait for an answer still get it, and the next caller connects anew.
    pub(super) async fn leave(&self) {
        self.open.lock().await.connection = None;
    }

    async fn lost(&self, number: u64, why: String) -> Fault {
        let mut open = self.open.lock().await;
        if open.number == number {
            open.connection = None;
        }
        Fault::Lost(why)
    }
}
