//! Creates the tables, and brings older ones up to date, while any number of nodes start at once.
//! Never touches tables that a newer release has changed. Called when a store is opened.

use std::time::Duration;

use tokio_postgres::{
    Client,
    error::{Error as ServerError, SqlState},
};

use super::fault::Failed;
use crate::Error;

/// Every step from an empty database to today's tables; the first makes version 1. A released step is never changed.
const STEPS: [&str; 8] = [
    include_str!("schema.sql"),
    include_str!("schema_lanes.sql"),
    include_str!("schema_drives.sql"),
    include_str!("schema_due.sql"),
    include_str!("schema_due_index.sql"),
    include_str!("schema_items.sql"),
    include_str!("schema_quarantine.sql"),
    include_str!("schema_jobs.sql"),
];

/// How many times a step is tried again because another node was making it at that moment.
const TRIES_MAX: u32 = 20;
/// The same for a step that waits for a table that others write to: for half a minute at least.
const BLOCKED_TRIES_MAX: u32 = 80;

const REGISTER: &str = "CREATE TABLE IF NOT EXISTS fencepost_migrations (
    version integer NOT NULL PRIMARY KEY, at timestamptz NOT NULL DEFAULT now())";

/// Brings the tables up to date.
pub(super) async fn migrate(client: &mut Client) -> Result<(), Error> {
    let (mut raced_turns, mut blocked_turns) = (0, 0);
    loop {
        match step(client).await {
            Ok(true) => return Ok(()),
            Ok(false) => {}
            Err(Failed::Server(error)) if raced_turns < TRIES_MAX && raced(&error) => {
                raced_turns += 1;
                tokio::time::sleep(Duration::from_millis(fastrand::u64(10..50))).await;
            }
            // A user's transaction holds the table. Waiting in the lock queue would block every later transaction.
            Err(Failed::Server(error))
                if blocked_turns < BLOCKED_TRIES_MAX && error.code() == Some(&SqlState::LOCK_NOT_AVAILABLE) =>
            {
                blocked_turns += 1;
                tokio::time::sleep(Duration::from_millis(fastrand::u64(250..750))).await;
            }
            Err(failed) => return Err(failed.of_nothing()),
        }
    }
}

// Runs one step; true where none was left. The node that inserts a step's number runs it; all others wait for that.
async fn step(client: &mut Client) -> Result<bool, Failed> {
    let version = match client.query_one("SELECT coalesce(max(version), 0) FROM fencepost_migrations", &[]).await {
        Ok(row) => row.get::<_, i32>(0),
        Err(error) if error.code() == Some(&SqlState::UNDEFINED_TABLE) => {
            client.batch_execute(REGISTER).await?;
            0
        }
        Err(error) => return Err(error.into()),
    };
    let known = STEPS.len() as i32;
    if version > known {
        return Err(Failed::Store(Error::Broken(format!(
            "the database's tables are of version {version}, made by a newer release of Fencepost; this one knows \
             version {known}: run the newer release"
        ))));
    }
    let Some(statements) = STEPS.get(version as usize) else { return Ok(true) };
    let transaction = client.transaction().await?;
    // Building an index over many rows takes longer than any other statement may, and so does waiting for the node that
    // builds it. A step that waits for a table sets its own lock timeout.
    transaction.batch_execute("SET LOCAL statement_timeout = 0; SET LOCAL lock_timeout = 0").await?;
    let next = version + 1;
    let claim = "INSERT INTO fencepost_migrations (version) VALUES ($1) ON CONFLICT (version) DO NOTHING";
    if transaction.execute(claim, &[&next]).await? == 1 {
        transaction.batch_execute(statements).await?;
    }
    transaction.commit().await?;
    Ok(false)
}

// `IF NOT EXISTS` does not help two nodes that look at the same moment: one of them gets one of these errors.
fn raced(error: &ServerError) -> bool {
    let others = [
        SqlState::UNIQUE_VIOLATION,
        SqlState::DUPLICATE_TABLE,
        SqlState::DUPLICATE_OBJECT,
        SqlState::T_R_SERIALIZATION_FAILURE,
        SqlState::T_R_DEADLOCK_DETECTED,
        SqlState::INTERNAL_ERROR,
    ];
    error.code().is_some_and(|code| others.contains(code))
}
