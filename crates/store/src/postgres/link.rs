//! One of the store's few connections: connected again when it is lost, with statements prepared once.
//! Never lets an operation wait long for a server that is down: it fails at once. Never uses a connection that is older
//! than the loss of another connection of the store.
//! Called by every operation of the store.

use std::{
    collections::HashMap,
    sync::{
        Arc, PoisonError,
        atomic::{AtomicU64, Ordering},
    },
    time::{Duration, Instant},
};

use futures::future::{join_all, try_join_all};
use tokio::sync::Mutex;
use tokio_postgres::{Client, Row, Statement, error::Error as ServerError};

use super::{address::Target, columns::Param, fault};
use crate::Error;

/// How long making a connection may take, over all hosts of the url.
const DIAL_MAX: Duration = Duration::from_secs(2);
/// The first and the longest pause before a lost server is tried again.
const BACKOFF_MIN: Duration = Duration::from_millis(50);
const BACKOFF_MAX: Duration = Duration::from_secs(1);

/// The settings of every session, where the server knows them and the url left them at their defaults: a timeout that
/// the operator chose stays. A plan made while a table was small must not scan it once it is large; all our statements
/// look rows up by key, so only such plans are allowed.
const SETTLE: &str = "SELECT set_config(known.name, wanted.value, false) FROM pg_settings known
    JOIN (VALUES ('statement_timeout', '2000', '0'), ('idle_in_transaction_session_timeout', '5000', '0'), ('plan_cache_mode', 'force_generic_plan', 'auto'),
        ('jit', 'off', 'on'), ('enable_seqscan', 'off', 'on'), ('enable_hashjoin', 'off', 'on'), ('enable_mergejoin', 'off', 'on'),
        ('synchronous_commit', 'on', 'off'), ('synchronous_commit', 'on', 'local'),
        ('synchronous_commit', 'on', 'remote_write')) AS wanted (name, value, instead_of)
    ON known.name = wanted.name AND known.setting = wanted.instead_of";

/// How long a commit waits for a row that another transaction holds.
pub(super) const LOCK_WAIT: &str = "SET lock_timeout = '250ms'";

/// Reads which database system a server belongs to, and its timeline. A promoted standby begins a higher timeline than
/// the one it followed, so an old primary that still answers is known by its lower one.
const HISTORY: &str = "SELECT (SELECT system_identifier FROM pg_control_system()),
    ('x' || substr(pg_walfile_name(pg_current_wal_insert_lsn()), 1, 8))::bit(32)::bigint";

/// The result of [`HISTORY`].
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(super) struct Lineage {
    system: i64,
    timeline: i64,
}

/// Counts how often the connections of a store were given up, and keeps the latest lineage of any of them. They are
/// given up together: after a failover, one that still answers may lead to the old primary, and a decision over rows
/// read there must not be written elsewhere.
#[derive(Default)]
pub(super) struct Epoch {
    number: AtomicU64,
    lineage: std::sync::Mutex<Option<Lineage>>,
}

impl Epoch {
    fn current(&self) -> u64 {
        self.number.load(Ordering::Acquire)
    }

    // Connections that are lost together end their epoch once.
    fn end(&self, epoch: u64) {
        let _ = self.number.compare_exchange(epoch, epoch + 1, Ordering::AcqRel, Ordering::Acquire);
    }

    // Ends the epoch where a new connection leads to a server of another lineage, and refuses one of an older timeline.
    fn reached(&self, epoch: u64, new: Lineage) -> Result<(), Error> {
        let mut known = self.lineage.lock().unwrap_or_else(PoisonError::into_inner);
        match *known {
            Some(known) if known == new => return Ok(()),
            Some(known) if known.system == new.system && known.timeline > new.timeline => {
                return Err(Error::NotApplied(format!(
                    "the database server is an old primary, on timeline {}: one on timeline {} has taken over",
                    new.timeline, known.timeline
                )));
            }
            Some(_) => self.end(epoch),
            None => {}
        }
        *known = Some(new);
        Ok(())
    }
}

/// A connection that is in use.
pub(super) struct Session {
    client: Client,
    statements: std::sync::Mutex<HashMap<&'static str, Statement>>,
    /// The epoch in which it was dialled; it is usable in that one only.
    epoch: u64,
    epochs: Arc<Epoch>,
    /// None where the server has no timeline to report.
    lineage: Option<Lineage>,
}

impl Session {
    /// Runs a statement of [`super::sql`], prepared at its first use.
    pub(super) async fn query(&self, sql: &'static str, params: &[Param<'_>]) -> Result<Vec<Row>, ServerError> {
        let statement = self.prepared(sql).await?;
        self.noticed(self.client.query(&statement, params).await)
    }

    /// The same for a statement that returns only how many rows it changed.
    pub(super) async fn execute(&self, sql: &'static str, params: &[Param<'_>]) -> Result<u64, ServerError> {
        let statement = self.prepared(sql).await?;
        self.noticed(self.client.execute(&statement, params).await)
    }

    /// Runs a statement without parameters and results, such as `BEGIN`.
    pub(super) async fn say(&self, sql: &str) -> Result<(), ServerError> {
        self.noticed(self.client.batch_execute(sql).await)
    }

    /// Gives up all connections of the store: the state of this one is unknown, and a new one may reach another server.
    pub(super) fn spoil(&self) {
        self.epochs.end(self.epoch);
    }

    /// The lineage of the server behind it; none where the server has no timeline to report.
    pub(super) fn lineage(&self) -> Option<Lineage> {
        self.lineage
    }

    /// Whether no connection of the store was given up since this one was dialled.
    pub(super) fn usable(&self) -> bool {
        !self.client.is_closed() && self.epoch == self.epochs.current()
    }

    // A server that cannot write was a primary before: a new connection may find the present primary.
    fn noticed<T>(&self, answer: Result<T, ServerError>) -> Result<T, ServerError> {
        answer.inspect_err(|error| {
            if fault::read_only(error) {
                self.spoil();
            }
        })
    }

    async fn prepared(&self, sql: &'static str) -> Result<Statement, ServerError> {
        let known = || self.statements.lock().unwrap_or_else(PoisonError::into_inner);
        if let Some(statement) = known().get(sql).cloned() {
            return Ok(statement);
        }
        let statement = self.client.prepare(sql).await?;
        known().insert(sql, statement.clone());
        Ok(statement)
    }
}

/// Where the statements of a transaction run: on a session of ours, or within a transaction of the user's.
#[derive(Clone, Copy)]
pub(super) enum Run<'a> {
    Ours(&'a Session),
    Theirs(&'a Client),
}

impl Run<'_> {
    /// Prepares statements, then runs them in order in one round trip. The first that fails also fails those after it.
    pub(super) async fn all(self, steps: &[(&'static str, Vec<Param<'_>>)]) -> Result<Vec<Vec<Row>>, ServerError> {
        // Sent only when all are prepared: a statement that is not must not be overtaken by those after it.
        let statements = try_join_all(steps.iter().map(|(sql, _)| self.prepared(sql))).await?;
        let client = match self {
            Self::Ours(session) => &session.client,
            Self::Theirs(client) => client,
        };
        let sent = statements.iter().zip(steps).map(|(statement, (_, params))| client.query(statement, params));
        let answers = join_all(sent).await.into_iter().collect();
        match self {
            Self::Ours(session) => session.noticed(answers),
            Self::Theirs(_) => answers,
        }
    }

    async fn prepared(self, sql: &'static str) -> Result<Statement, ServerError> {
        match self {
            Self::Ours(session) => session.prepared(sql).await,
            Self::Theirs(client) => client.prepare(sql).await,
        }
    }

    pub(super) async fn query(self, sql: &'static str, params: &[Param<'_>]) -> Result<Vec<Row>, ServerError> {
        match self {
            Self::Ours(session) => session.query(sql, params).await,
            Self::Theirs(client) => client.query(sql, params).await,
        }
    }
}

/// Connects once, and limits how long anything may take: a node that stops in a transaction must not stop the others.
/// The session ends when the client is dropped.
pub(super) async fn dial(target: &Target) -> Result<Client, Error> {
    dial_until(target, || {}).await
}

// The same; `ended` is called when the connection is over, whichever side ended it.
async fn dial_until(target: &Target, ended: impl FnOnce() + Send + 'static) -> Result<Client, Error> {
    let down = |why: String| Error::NotApplied(format!("the database cannot be reached: {why}"));
    let connecting = target.config.connect(target.tls.clone());
    let connected = tokio::time::timeout(DIAL_MAX, connecting).await.map_err(|_| down("no answer".to_owned()))?;
    let (client, connection) = connected.map_err(|error| match error.as_db_error() {
        // The server answered, and its message names what is wrong: the database, the user, the password.
        Some(said) => Error::NotApplied(format!("connected, but {}", said.message())),
        None => down(fault::told(&error)),
    })?;
    // A caller that waits for an answer learns of a lost connection there.
    tokio::spawn(async move {
        drop(connection.await);
        ended();
    });
    client.query(SETTLE, &[]).await.map_err(|error| fault::of_read(&error))?;
    client.batch_execute(LOCK_WAIT).await.map_err(|error| fault::of_read(&error))?;
    Ok(client)
}

// Other databases that speak PostgreSQL's protocol have no timelines: there, nothing is compared.
async fn lineage(client: &Client) -> Option<Lineage> {
    let told = client.query_one(HISTORY, &[]).await.ok()?;
    Some(Lineage { system: told.try_get(0).ok()?, timeline: told.try_get(1).ok()? })
}

/// One of the store's connections.
pub(super) struct Link {
    target: Arc<Target>,
    epochs: Arc<Epoch>,
    /// Statements that are prepared on connecting, so that the first commit does not pay for it.
    first: &'static [&'static str],
    state: Mutex<State>,
}

#[derive(Default)]
struct State {
    session: Option<Arc<Session>>,
    failure: Option<Failure>,
}

struct Failure {
    why: String,
    until: Instant,
    pause: Duration,
}

impl Link {
    pub(super) fn new(target: Arc<Target>, epochs: Arc<Epoch>, first: &'static [&'static str]) -> Self {
        Self { target, epochs, first, state: Mutex::default() }
    }

    /// The session, connected again where it was lost. If this fails, nothing was sent.
    pub(super) async fn session(&self) -> Result<Arc<Session>, Error> {
        let mut state = self.state.lock().await;
        if let Some(session) = state.session.as_ref().filter(|session| session.usable()) {
            return Ok(session.clone());
        }
        state.session = None;
        if let Some(failure) = state.failure.as_ref().filter(|failure| Instant::now() < failure.until) {
            return Err(Error::NotApplied(failure.why.clone()));
        }
        let silent = |_| Err(Error::NotApplied("the database does not answer".to_owned()));
        match tokio::time::timeout(DIAL_MAX, self.connect_in_epoch()).await.unwrap_or_else(silent) {
            Ok(session) => {
                let session = Arc::new(session);
                *state = State { session: Some(session.clone()), failure: None };
                Ok(session)
            }
            Err(error) => {
                let last = state.failure.as_ref().map_or(BACKOFF_MIN / 2, |failure| failure.pause);
                let pause = (last * 2).min(BACKOFF_MAX);
                // Random, so that nodes that lost the server together do not all come back at once.
                let until = Instant::now() + pause.mul_f64(0.5 + fastrand::f64() / 2.0);
                let (Error::NotApplied(why) | Error::Unknown(why) | Error::Broken(why)) = error;
                state.failure = Some(Failure { why: why.clone(), until, pause });
                Err(Error::NotApplied(why))
            }
        }
    }

    // If another connection is lost while this one is dialled, it is unknown which server this one leads to.
    async fn connect_in_epoch(&self) -> Result<Session, Error> {
        loop {
            let session = self.connect().await?;
            if session.usable() {
                return Ok(session);
            }
        }
    }

    async fn connect(&self) -> Result<Session, Error> {
        let (epoch, epochs) = (self.epochs.current(), self.epochs.clone());
        let client = dial_until(&self.target, move || epochs.end(epoch)).await?;
        let lineage = lineage(&client).await;
        if let Some(lineage) = lineage {
            self.epochs.reached(epoch, lineage)?;
        }
        let (statements, epochs) = (std::sync::Mutex::default(), self.epochs.clone());
        let session = Session { client, statements, epoch, epochs, lineage };
        for sql in self.first {
            session.prepared(sql).await.map_err(|error| fault::of_read(&error))?;
        }
        Ok(session)
    }
}
