//! Decides which contestants are measured and in which order: each round measures all of them, each on a fresh server.
//! Never runs two contestants at once, and never carries data from one measurement into the next.
//! Called by `main` and `ingest`; `report` gets the rows.

use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::sync::atomic::AtomicU64;
use std::time::Duration;

use anyhow::{Context, Result, bail};

use fencepost_rig::programs;

use crate::fence::{self, Batches, Cycles, Numbers, Replays, claim_template};
use crate::gateway::{self, Keys, Orders};
use crate::keys::Numbering;
use crate::library::{self, Extent};
use crate::load::{self, Shape};
use crate::machine;
use crate::noop::Posts;
use crate::rivals::{Postgres, Redis};
use crate::server::{self, Server};
use crate::stats::{PERCENTILES, Sample, median};

/// Sealed keys that the replays are spread over.
const REPLAY_KEYS: u64 = 50_000;

/// The folder of PostgreSQL's data, relative to `Ground::work`; all contestants on PostgreSQL share it.
pub const CLUSTER: &str = "postgres-cluster";

/// Rows of one group are compared with each other.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Group {
    /// Durable claim and seal over a socket.
    Durable,
    /// Requests over HTTP that write nothing.
    Http,
    /// Requests through a proxy to one trivial upstream.
    Gateway,
    /// Synced writes without a socket.
    InProcess,
    /// Items of partners, a thousand a request.
    Items,
}

/// One thing that is measured.
#[derive(Debug)]
pub struct Contestant {
    /// The name for `--only` and the results file.
    pub name: &'static str,
    /// The name in tables and in the picture.
    pub label: &'static str,
    /// The group whose rows it is compared with.
    pub group: Group,
    /// Cycles, requests or keys in one timed step.
    pub per_step: u64,
    /// The description of one timed step, whose latencies are measured.
    pub step: &'static str,
}

macro_rules! contestants {
    ($($name:literal, $label:literal, $group:ident, $per_step:expr, $step:literal;)*) => {
        /// All contestants, in the order of a round.
        pub const ALL: &[Contestant] = &[$(Contestant {
            name: $name, label: $label, group: Group::$group, per_step: $per_step as u64, step: $step,
        }),*];
    };
}

contestants! {
    "redis", "Redis, appendfsync always", Durable, 1, "claim + seal";
    "postgres", "PostgreSQL, synchronous_commit on", Durable, 1, "claim + seal";
    "fencepost", "fencepost, one request per operation", Durable, 1, "claim + seal";
    "fencepost-batch", "fencepost, 100 commands a request", Durable, fence::BATCH, "100 claims + 100 seals";
    "fencepost-postgres", "fencepost on PostgreSQL", Durable, 1, "claim + seal";
    "fencepost-postgres-3", "fencepost on PostgreSQL, three nodes", Durable, 1, "claim + seal";
    "fencepost-postgres-batch", "fencepost on PostgreSQL, 100 commands a request", Durable, fence::BATCH, "100 claims + 100 seals";
    "fencepost-redis", "fencepost on Redis", Durable, 1, "claim + seal";
    "fencepost-redis-batch", "fencepost on Redis, 100 commands a request", Durable, fence::BATCH, "100 claims + 100 seals";
    "noop", "no-op axum server", Http, 1, "request";
    "fencepost-replay", "fencepost, duplicates", Http, 1, "request";
    "nginx", "nginx, plain reverse proxy", Gateway, 1, "request";
    "fencepost-gateway", "fencepost gateway, first-time writes", Gateway, 1, "request, durable";
    "fencepost-gateway-replay", "fencepost gateway, replays", Gateway, 1, "request";
    "fjall", "raw fjall, 256 keys a synced batch", InProcess, library::BATCH, "256 keys, synced";
    "library", "fencepost library, claims", InProcess, 1, "claim";
    "library-cycle", "fencepost library, claim + seal", InProcess, 1, "claim + seal";
}

impl Contestant {
    /// Whether the fencepost server takes part in this measurement.
    pub fn is_fencepost(&self) -> bool {
        self.name.starts_with("fencepost")
    }

    fn on_postgres(&self) -> bool {
        self.name.starts_with("postgres") || self.name.starts_with("fencepost-postgres")
    }

    /// Other programs that must be installed, with the Debian package that has them.
    fn programs(&self) -> &'static [(&'static str, &'static str)] {
        match self.name {
            "nginx" | "fencepost-gateway" | "fencepost-gateway-replay" => &[("nginx", "nginx-light")],
            "redis" | "fencepost-redis" | "fencepost-redis-batch" => &[("redis-server", "redis-server")],
            _ if self.on_postgres() => &[("postgres", "postgresql"), ("initdb", "postgresql")],
            _ => &[],
        }
    }
}

/// The settings of a run, and its folder.
pub struct Ground {
    /// Size and length of each measurement.
    pub shape: Shape,
    /// The longest wait, before each measurement, for other processes to leave the cores alone.
    pub patience: Duration,
    /// The folder for all data; empty at the start.
    pub work: PathBuf,
    /// The server under test; `None` where only others are measured.
    pub fencepost: Option<PathBuf>,
}

/// The results of one contestant.
pub struct Row {
    /// The contestant that was measured.
    pub contestant: &'static Contestant,
    /// Cycles, requests or keys a second, one entry a round.
    pub rates: Vec<f64>,
    /// Percentiles of a step in milliseconds, one entry a round, in the order of `PERCENTILES`.
    pub percentiles_ms: Vec<[f64; 4]>,
}

impl Row {
    /// The median rate over the rounds.
    pub fn rate(&self) -> f64 {
        median(&self.rates)
    }

    /// The median over the rounds of the percentile at this index of `PERCENTILES`.
    pub fn percentile_ms(&self, index: usize) -> f64 {
        median(&self.percentiles_ms.iter().map(|round| round[index]).collect::<Vec<_>>())
    }
}

/// The results of all rounds.
pub struct Outcome {
    /// One row for each chosen contestant, in the order of `ALL`.
    pub rows: Vec<Row>,
    /// Latencies of a 4 KiB append and sync, over all rounds.
    pub sync: Sample,
    /// The highest share of the cores, from 0 to 1, that was in use just before a measurement.
    pub others_busy: f64,
}

/// Fails where a program is missing, and says how to install it.
pub fn require_programs(chosen: &[&'static Contestant]) -> Result<()> {
    for (program, package) in chosen.iter().flat_map(|contestant| contestant.programs()) {
        if programs::find(program).is_none() {
            bail!("{program} is not on this machine: apt-get install {package}, or choose others with --only");
        }
    }
    Ok(())
}

/// Measures each chosen contestant `rounds` times.
pub fn run(ground: &Ground, chosen: &[&'static Contestant], rounds: u32) -> Result<Outcome> {
    let cluster = ground.work.join(CLUSTER);
    if chosen.iter().any(|contestant| contestant.on_postgres()) {
        server::postgres_cluster(&cluster)?;
    }
    in_rounds(ground, chosen, rounds, |contestant, dir, salt| measure(ground, contestant, dir, salt))
}

/// Calls `measure` for each chosen contestant in turn, `rounds` times: with the contestant, a folder name of its own and the
/// number of the round.
pub fn in_rounds(
    ground: &Ground,
    chosen: &[&'static Contestant],
    rounds: u32,
    mut measure: impl FnMut(&'static Contestant, &Path, u64) -> Result<Sample>,
) -> Result<Outcome> {
    let mut rows: Vec<Row> =
        chosen.iter().map(|contestant| Row { contestant, rates: Vec::new(), percentiles_ms: Vec::new() }).collect();
    let mut sync = Sample::new(Duration::ZERO);
    let mut others_busy: f64 = 0.0;
    for round in 1..=rounds {
        sync.add(&machine::sync_latency(&ground.work, ground.shape.measure.min(Duration::from_secs(1)))?)?;
        for row in &mut rows {
            others_busy = others_busy.max(machine::settle(ground.patience)?);
            let name = row.contestant.name;
            let dir = ground.work.join(name);
            let sample =
                measure(row.contestant, &dir, u64::from(round)).with_context(|| format!("{name}, round {round}"))?;
            if let Some(error) = &sample.first_error {
                bail!("{name}, round {round}: {} connections met an unexpected reply, first: {error}", sample.errors);
            }
            let rate = sample.rate() * row.contestant.per_step as f64;
            eprintln!("round {round}/{rounds}  {name:<17} {rate:>9.0}/s");
            row.rates.push(rate);
            row.percentiles_ms.push(PERCENTILES.map(|(_, percentile)| sample.percentile_ms(percentile)));
        }
    }
    Ok(Outcome { rows, sync, others_busy })
}

fn measure(ground: &Ground, contestant: &Contestant, dir: &Path, salt: u64) -> Result<Sample> {
    let Shape { connections, warm_up, measure, .. } = ground.shape;
    let numbering = Numbering::new(salt);
    std::fs::create_dir_all(dir)?;
    let binary = || ground.fencepost.as_deref().context("no fencepost binary");
    let fencepost = || Server::fencepost(binary()?, dir, None);
    let gateway = |upstream: &Server| {
        let policy = dir.join("policy.yml");
        std::fs::write(&policy, gateway::policy(upstream.port))?;
        Server::fencepost_under(binary()?, dir, &policy)
    };
    // All rounds use one cluster; each server start makes its tables anew.
    let postgres = || Server::postgres(&ground.work.join(CLUSTER), connections);
    let url = |database: &Server| format!("postgres://postgres@127.0.0.1:{}/postgres", database.port);
    let nodes = |store: &str, count: usize| -> Result<Vec<Server>> {
        let node = |index| {
            let dir = dir.join(format!("node-{index}"));
            std::fs::create_dir_all(&dir)?;
            Server::fencepost(binary()?, &dir, Some(store))
        };
        (0..count).map(node).collect()
    };
    let sample = match contestant.name {
        "redis" => {
            let server = Server::redis(dir)?;
            load::run(ground.shape, Redis { port: server.port, numbering })
        }
        "postgres" => {
            let server = postgres()?;
            load::run(ground.shape, Postgres { port: server.port, numbering })
        }
        "fencepost" => {
            let server = fencepost()?;
            load::run(ground.shape, Cycles { ports: vec![server.port], numbering })
        }
        "fencepost-postgres" | "fencepost-postgres-3" => {
            let database = postgres()?;
            let nodes = nodes(&url(&database), if contestant.name.ends_with("-3") { 3 } else { 1 })?;
            load::run(ground.shape, Cycles { ports: ports(&nodes), numbering })
        }
        "fencepost-postgres-batch" => {
            let database = postgres()?;
            let nodes = nodes(&url(&database), 1)?;
            load::run(ground.shape, Batches { port: nodes[0].port, numbering, numbers: Numbers::PerConnection })
        }
        "fencepost-redis" => {
            let redis = Server::redis(dir)?;
            let nodes = nodes(&format!("redis://127.0.0.1:{}", redis.port), 1)?;
            load::run(ground.shape, Cycles { ports: ports(&nodes), numbering })
        }
        "fencepost-batch" => {
            let server = fencepost()?;
            let port = server.port;
            load::run(ground.shape, Batches { port, numbering, numbers: Numbers::PerConnection })
        }
        "fencepost-redis-batch" => {
            let redis = Server::redis(dir)?;
            let nodes = nodes(&format!("redis://127.0.0.1:{}", redis.port), 1)?;
            load::run(ground.shape, Batches { port: nodes[0].port, numbering, numbers: Numbers::PerConnection })
        }
        "noop" => {
            let server = Server::noop(dir)?;
            load::run(ground.shape, Posts { port: server.port, request: claim_template() })
        }
        "fencepost-replay" => {
            let server = fencepost()?;
            let next = Arc::new(AtomicU64::new(0));
            fence::fill(server.port, numbering, &next, REPLAY_KEYS, connections)?;
            load::run(ground.shape, Replays { port: server.port, numbering, sealed: REPLAY_KEYS })
        }
        "nginx" => {
            let upstream = Server::nginx_upstream(dir)?;
            let proxy = Server::nginx_proxy(dir, upstream.port)?;
            load::run(ground.shape, Orders { port: proxy.port, numbering, keys: Keys::Fresh })
        }
        "fencepost-gateway" => {
            let upstream = Server::nginx_upstream(dir)?;
            let gateway = gateway(&upstream)?;
            load::run(ground.shape, Orders { port: gateway.port, numbering, keys: Keys::Fresh })
        }
        "fencepost-gateway-replay" => {
            let upstream = Server::nginx_upstream(dir)?;
            let gateway = gateway(&upstream)?;
            gateway::fill(gateway.port, numbering, REPLAY_KEYS, connections)?;
            load::run(ground.shape, Orders { port: gateway.port, numbering, keys: Keys::Known(REPLAY_KEYS) })
        }
        "fjall" => library::raw_fjall(dir, warm_up, measure, salt),
        "library" => library::fencepost(dir, ground.shape, salt, Extent::Claim),
        "library-cycle" => library::fencepost(dir, ground.shape, salt, Extent::Cycle),
        other => bail!("nobody knows how to measure {other}"),
    };
    std::fs::remove_dir_all(dir)?;
    sample
}

fn ports(nodes: &[Server]) -> Vec<u16> {
    nodes.iter().map(|node| node.port).collect()
}
