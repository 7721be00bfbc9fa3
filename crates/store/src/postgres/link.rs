//! One connection of a fixed few, made again when it is lost, with statements prepared once.
//! Never lets an operation wait long for a server that is not there: while it is down, everything fails at once.
//! Used by every operation of the store.

use std::{
    collections::HashMap,
    sync::{
        Arc, PoisonError,
        atomic::{AtomicBool, Ordering},
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
/// How soon a lost server is tried again at first, and how seldom at last.
const BACKOFF_MIN: Duration = Duration::from_millis(50);
const BACKOFF_MAX: Duration = Duration::from_secs(1);

/// What every session is told. Only settings that the server knows and that the url left as they are: a timeout of the
/// operator's choosing stays. A plan that was made while a table was small must not scan it once it is large, and all
/// our statements look rows up by key: so only plans that do.
const SETTLE: &str = "SELECT set_config(known.name, wanted.value, false) FROM pg_settings known
    JOIN (VALUES ('statement_timeout', '2000', '0'), ('idle_in_transaction_session_timeout', '5000', '0'), ('plan_cache_mode', 'force_generic_plan', 'auto'),
        ('jit', 'off', 'on'), ('enable_seqscan', 'off', 'on'), ('enable_hashjoin', 'off', 'on'), ('enable_mergejoin', 'off', 'on'),
        ('synchronous_commit', 'on', 'off'), ('synchronous_commit', 'on', 'local'),
        ('synchronous_commit', 'on', 'remote_write')) AS wanted (name, value, instead_of)
    ON known.name = wanted.name AND known.setting = wanted.instead_of";

/// How long a commit waits for a row that another transaction holds.
pub(super) const LOCK_WAIT: &str = "SET lock_timeout = '250ms'";

/// A connection that is in use.
pub(super) struct Session {
    client: Client,
    statements: std::sync::Mutex<HashMap<&'static str, Statement>>,
    spoiled: AtomicBool,
}

impl Session {
    /// Runs a statement of [`super::sql`], prepared at its first use.
    pub(super) async fn query(&self, sql: &'static str, params: &[Param<'_>]) -> Result<Vec<Row>, ServerError> {
        let statement = self.prepared(sql).await?;
        self.client.query(&statement, params).await
    }

    /// The same for a statement that says only how many rows it changed.
    pub(super) async fn execute(&self, sql: &'static str, params: &[Param<'_>]) -> Result<u64, ServerError> {
        let statement = self.prepared(sql).await?;
        self.client.execute(&statement, params).await
    }

    /// Runs a statement without parameters and results, such as `BEGIN`.
    pub(super) async fn say(&self, sql: &str) -> Result<(), ServerError> {
        self.client.batch_execute(sql).await
    }

    /// Never to be used again: nobody knows what it is in the middle of.
    pub(super) fn spoil(&self) {
        self.spoiled.store(true, Ordering::Release);
    }

    fn usable(&self) -> bool {
        !self.client.is_closed() && !self.spoiled.load(Ordering::Acquire)
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
    /// Runs statements in order in one round trip, prepared first where they are not yet. What each says; the first that
    /// failed fails those after it.
    pub(super) async fn all(self, steps: &[(&'static str, Vec<Param<'_>>)]) -> Result<Vec<Vec<Row>>, ServerError> {
        // Sent only when every one is prepared: one that is not must not be overtaken by those after it.
        let statements = try_join_all(steps.iter().map(|(sql, _)| self.prepared(sql))).await?;
        let client = match self {
            Self::Ours(session) => &session.client,
            Self::Theirs(client) => client,
        };
        let sent = statements.iter().zip(steps).map(|(statement, (_, params))| client.query(statement, params));
        join_all(sent).await.into_iter().collect()
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

/// Connects once, and settles how long anything may take: a node that stops within a transaction must not stop the others.
/// The session ends when the client is dropped.
pub(super) async fn dial(target: &Target) -> Result<Client, Error> {
    let down = |why: String| Error::NotApplied(format!("the database cannot be reached: {why}"));
    let connecting = target.config.connect(target.tls.clone());
    let connected = tokio::time::timeout(DIAL_MAX, connecting).await.map_err(|_| down("no answer".to_owned()))?;
    let (client, connection) = connected.map_err(|error| down(fault::told(&error)))?;
    // Whoever waits for an answer is told of a lost connection there.
    tokio::spawn(async move { drop(connection.await) });
    client.query(SETTLE, &[]).await.map_err(|error| fault::of_read(&error))?;
    client.batch_execute(LOCK_WAIT).await.map_err(|error| fault::of_read(&error))?;
    Ok(client)
}

/// One of the store's connections.
pub(super) struct Link {
    target: Arc<Target>,
    /// Statements that are prepared at once, so that the first commit does not pay for it.
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
    pub(super) fn new(target: Arc<Target>, first: &'static [&'static str]) -> Self {
        Self { target, first, state: Mutex::default() }
    }

    /// The session, made again where it was lost. Nothing has been sent yet where this fails.
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
        match tokio::time::timeout(DIAL_MAX, self.connect()).await.unwrap_or_else(silent) {
            Ok(session) => {
                let session = Arc::new(session);
                *state = State { session: Some(session.clone()), failure: None };
                Ok(session)
            }
            Err(error) => {
                let last = state.failure.as_ref().map_or(BACKOFF_MIN / 2, |failure| failure.pause);
                let pause = (last * 2).min(BACKOFF_MAX);
                // Nodes that lost the server together do not come back together.
                let until = Instant::now() + pause.mul_f64(0.5 + fastrand::f64() / 2.0);
                let (Error::NotApplied(why) | Error::Unknown(why) | Error::Broken(why)) = error;
                state.failure = Some(Failure { why: why.clone(), until, pause });
                Err(Error::NotApplied(why))
            }
        }
    }

    async fn connect(&self) -> Result<Session, Error> {
        let client = dial(&self.target).await?;
        let session = Session { client, statements: std::sync::Mutex::default(), spoiled: AtomicBool::new(false) };
        for sql in self.first {
            session.prepared(sql).await.map_err(|error| fault::of_read(&error))?;
        }
        Ok(session)
    }
}
