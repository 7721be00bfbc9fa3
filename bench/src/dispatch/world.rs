//! The servers that a part starts from: a fresh server with an empty store, and a receiver that has seen no event.
//! Never waits without a bound: a wait that times out is an error that says how many events arrived.
//! Called by the parts.

use std::path::{Path, PathBuf};
use std::time::Duration;

use anyhow::{Context, Result, bail, ensure};
use serde_json::Value;
use tokio::task::LocalSet;

use super::events::Request;
use super::planner::{self, MANY};
use super::receiver::{TIMES, WAIT};
use crate::contest::Ground;
use crate::http::Connection;
use crate::machine;
use crate::server::{self, Server};
use crate::stats::Sample;
use crate::stop;

/// The longest wait for the deliveries of one part.
const WAIT_MAX: Duration = Duration::from_secs(600);
const CLUSTER: &str = "dispatch-cluster";

/// Where lanes are kept.
#[derive(Clone, Copy, Debug, PartialEq, Eq, clap::ValueEnum)]
pub enum Store {
    /// A directory on disk
    Embedded,
    /// PostgreSQL, started for the run
    Postgres,
}

/// A fencepost server and its store. Fields are dropped in this order: the server stops before its database.
pub struct World {
    server: Option<Server>,
    _database: Option<Server>,
    binary: PathBuf,
    store: Option<String>,
    dir: PathBuf,
}

impl World {
    /// Starts a server with an empty store.
    pub fn start(ground: &Ground, store: Store, name: &str) -> Result<World> {
        machine::settle(ground.patience)?;
        let dir = fresh(&ground.work.join(name))?;
        let database = match store {
            Store::Embedded => None,
            Store::Postgres => Some(database(ground)?),
        };
        let store =
            database.as_ref().map(|database| format!("postgres://postgres@127.0.0.1:{}/postgres", database.port));
        let binary = ground.fencepost.clone().context("no fencepost binary")?;
        let mut world = World { server: None, _database: database, binary, store, dir };
        world.begin()?;
        Ok(world)
    }

    /// Stops the server with SIGTERM, if it runs.
    pub fn end(&mut self) {
        self.server = None;
    }

    /// Starts the server again over the stored data.
    pub fn begin(&mut self) -> Result<()> {
        self.server = Some(Server::fencepost(&self.binary, &self.dir, self.store.as_deref())?);
        Ok(())
    }

    /// The port on 127.0.0.1; an error while the server is stopped.
    pub fn port(&self) -> Result<u16> {
        Ok(self.server.as_ref().context("the server is stopped")?.port)
    }

    /// The peak of the server's resident memory, in bytes.
    pub fn peak_bytes(&self) -> Result<u64> {
        Ok(machine::resident(self.pid()?)?.1)
    }

    /// Processor time that the server has used so far, in microseconds.
    pub fn cpu_us(&self) -> Result<u64> {
        machine::cpu_us(self.pid()?)
    }

    fn pid(&self) -> Result<u32> {
        Ok(self.server.as_ref().context("the server is stopped")?.pid())
    }

    /// The server's folder.
    pub fn dir(&self) -> &Path {
        &self.dir
    }
}

// The cluster is made once; each server start makes its tables anew.
fn database(ground: &Ground) -> Result<Server> {
    let cluster = ground.work.join(CLUSTER);
    if !cluster.exists() {
        server::postgres_cluster(&cluster)?;
    }
    Server::postgres(&cluster, MANY)
}

/// Deletes the folder if it exists and makes it anew, empty.
pub fn fresh(dir: &Path) -> Result<PathBuf> {
    if dir.exists() {
        std::fs::remove_dir_all(dir)?;
    }
    std::fs::create_dir_all(dir)?;
    Ok(dir.to_owned())
}

/// A running receiver process.
pub struct Receiver {
    server: Server,
}

impl Receiver {
    pub fn start(ground: &Ground, name: &str, port: u16) -> Result<Receiver> {
        Ok(Receiver { server: Server::receiver(&fresh(&ground.work.join(name))?, port)? })
    }

    pub fn port(&self) -> u16 {
        self.server.port
    }

    /// Waits until `count` different events have arrived; fails if an event arrived twice.
    pub async fn wait(&self, count: u64) -> Result<()> {
        let path = format!("{WAIT}{count}");
        let Ok(said) = tokio::time::timeout(WAIT_MAX, self.ask(&path)).await else {
            let so_far = self.ask(WAIT_NOT).await?;
            bail!("{count} events did not come within {WAIT_MAX:?}: {}", String::from_utf8_lossy(&so_far));
        };
        let said: Value = serde_json::from_slice(&said?)?;
        ensure!(said["again"] == 0, "{} deliveries came twice", said["again"]);
        Ok(())
    }

    /// When each event arrived first, in nanoseconds, by its number.
    pub async fn times_ns(&self) -> Result<Vec<u64>> {
        let times = self.ask(TIMES).await?;
        let (chunks, _) = times.as_chunks();
        Ok(chunks.iter().map(|chunk| u64::from_le_bytes(*chunk)).collect())
    }

    async fn ask(&self, path: &str) -> Result<Vec<u8>> {
        let mut connection = Connection::open(self.port()).await?;
        let request = format!("GET {path} HTTP/1.1\r\nHost: 127.0.0.1\r\n\r\n");
        Ok(connection.exchange(request.as_bytes()).await?.body.to_vec())
    }

    /// Measures `count` exchanges with the receiver, one after another.
    pub fn round_trips(&self, count: u64) -> Result<Sample> {
        drive(async {
            let mut connection = Connection::open(self.port()).await?;
            let mut request = Request::bare();
            let mut sample = Sample::new(Duration::ZERO);
            for number in 0..count {
                request.set(0, number, 0);
                let began = std::time::Instant::now();
                planner::expect_200(&mut connection, &request).await?;
                sample.record(began.elapsed())?;
            }
            Ok(sample)
        })
    }
}

/// A path that is answered at once.
const WAIT_NOT: &str = "/wait/0";

/// The time from `from_ns` to `to_ns` for each of these events; fails if an event was lost.
pub fn delays(from_ns: &[u64], to_ns: &[u64], numbers: std::ops::Range<u64>) -> Result<Sample> {
    let mut sample = Sample::new(Duration::ZERO);
    for number in numbers {
        let at = |times: &[u64]| times.get(number as usize).copied().filter(|ns| *ns > 0);
        let (from, to) = at(from_ns).zip(at(to_ns)).with_context(|| format!("event {number} was lost"))?;
        sample.record(Duration::from_nanos(to.saturating_sub(from)))?;
    }
    Ok(sample)
}

/// Runs `work` on this thread until it ends or a signal asks the process to stop.
pub fn drive<T>(work: impl Future<Output = Result<T>>) -> Result<T> {
    let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build()?;
    LocalSet::new().block_on(&runtime, async {
        tokio::select! {
            done = work => done,
            () = stop::requested() => bail!("interrupted"),
        }
    })
}
