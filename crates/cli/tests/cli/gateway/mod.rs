//! The gateway, from outside: the real binary between a client that counts bytes and an application that counts calls.

mod caller;
mod conflicts;
mod corpora;
mod crossing;
mod forwarded;
mod gone;
mod hostile;
mod in_flight;
mod keys;
mod large;
mod lines;
mod outage;
mod outcomes;
mod passing;
mod providers;
mod recorded;
mod recovering;
mod replays;
mod smuggling;
mod spelling;
mod tenants;
mod undrained;
mod upstream;
mod versions;
mod webhooks;
mod workers;

use std::{net::SocketAddr, path::PathBuf};

use rustix::process::Signal;
use serde_json::Value;
use tempfile::TempDir;

use super::{
    client::Answer,
    server::{BINARY, Serve, Server, command, until},
};
use caller::Ask;
use upstream::Upstream;

/// A gateway with an application behind it.
pub struct World {
    pub server: Server,
    pub upstream: Upstream,
    pub dir: TempDir,
}

/// One route whose key is the Idempotency-Key. `UPSTREAM` stands for the application's address.
const CHARGES: &str = r#"
scopes:
  CHARGE: { key: [id], retain: 1h, lease: 500ms }
routes:
  - { match: "POST /charges", upstream: "UPSTREAM", scope: CHARGE, key: { id: "header:Idempotency-Key" } }
"#;

impl World {
    pub fn new(policy: &str) -> Self {
        Self::before(Upstream::start(), policy)
    }

    /// With one route, as most tests need it.
    pub fn charges() -> Self {
        Self::new(CHARGES)
    }

    pub fn before(upstream: Upstream, policy: &str) -> Self {
        let dir = tempfile::tempdir().unwrap();
        let address = format!("http://{}", upstream.address);
        std::fs::write(dir.path().join("policy.yml"), policy.replace("UPSTREAM", &address)).unwrap();
        let server = started(&dir, "127.0.0.1:0");
        Self { server, upstream, dir }
    }

    /// kill -9, and started again on the same port and store.
    pub fn killed(self) -> Self {
        let Self { server, upstream, dir } = self;
        let address = server.address.to_string();
        server.kill();
        Self { server: started(&dir, &address), upstream, dir }
    }

    /// Stopped as an operator does it, and started again on the same store.
    pub fn restarted(self) -> Self {
        let Self { server, upstream, dir } = self;
        server.signal(Signal::TERM);
        server.wait();
        Self { server: started(&dir, "127.0.0.1:0"), upstream, dir }
    }

    pub fn address(&self) -> SocketAddr {
        self.server.address
    }

    #[track_caller]
    pub fn send(&self, ask: &Ask) -> Answer {
        ask.send(self.address())
    }

    /// Asks again while somebody else is said to be at it.
    #[track_caller]
    pub fn settled(&self, ask: &Ask) -> Answer {
        until("nobody is at it", || Some(self.send(ask)).filter(|answer| !in_flight(answer)))
    }

    pub fn log(&self) -> PathBuf {
        self.dir.path().join("log")
    }

    /// The lines of the log that fit, once there are so many.
    pub fn lines(&self, count: usize, fits: impl Fn(&Value) -> bool) -> Vec<Value> {
        until("the lines are written", || {
            let text = std::fs::read_to_string(self.log()).unwrap();
            let lines = text.lines().filter_map(|line| serde_json::from_str::<Value>(line).ok());
            let lines: Vec<_> = lines.filter(|line| fits(line)).collect();
            (lines.len() >= count).then_some(lines)
        })
    }

    /// The first line of the log that fits.
    pub fn line(&self, fits: impl Fn(&Value) -> bool) -> Value {
        self.lines(1, fits).swap_remove(0)
    }
}

fn started(dir: &TempDir, address: &str) -> Server {
    let serve = Serve::on(address, command(BINARY), &dir.path().join("data")).arg("--dev");
    serve.arg("--config").arg(dir.path().join("policy.yml")).log(dir.path().join("log")).start()
}

fn in_flight(answer: &Answer) -> bool {
    matches!(answer.status, 409 | 503) && answer.text().contains("\"in-flight\"")
}

/// Whether an answer is somebody else's.
fn replayed(answer: &Answer) -> bool {
    answer.header("idempotency-replayed") == Some("true")
}
