//! Starts the servers to measure, each on a free port with its own folder, and stops them on drop.
//! Never leaves a process running after an error, a panic or Ctrl-C; never reuses data of an earlier measurement.
//! Called by `contest`, `scale`, `dispatch` and `ingest`.

use std::fs::File;
use std::os::unix::process::CommandExt;
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};
use std::thread;
use std::time::{Duration, Instant};

use anyhow::{Context, Result, bail};
use fencepost_rig::programs::{as_postgres, free_port, init_postgres};
use rustix::process::{Pid, Signal, kill_process};

use crate::gateway;
use crate::http;
use crate::rivals::Postgres;
use crate::stop;

const START_WAIT_MAX: Duration = Duration::from_secs(30);
const STOP_WAIT_MAX: Duration = Duration::from_secs(20);

/// A running server; dropping it stops the process.
pub struct Server {
    name: &'static str,
    child: Child,
    polite: Signal,
    log: PathBuf,
    pub port: u16,
}

impl Server {
    fn spawn(name: &'static str, mut command: Command, polite: Signal, port: u16, dir: &Path) -> Result<Server> {
        stop::check()?;
        let log = dir.join(format!("{name}.log"));
        let output = File::create(&log)?;
        // A process group of its own: Ctrl-C reaches only this process, which then stops the servers in order.
        command.stdin(Stdio::null()).stdout(output.try_clone()?).stderr(output).process_group(0);
        let child = command.spawn().with_context(|| format!("starting {name}"))?;
        Ok(Server { name, child, polite, log, port })
    }

    /// Starts a Redis that syncs its append-only file before every reply.
    pub fn redis(dir: &Path) -> Result<Server> {
        let port = free_port()?;
        let mut command = Command::new("redis-server");
        command.args(["--bind", "127.0.0.1", "--save", "", "--appendonly", "yes", "--appendfsync", "always"]);
        // No rewrite during a measurement: this favours Redis.
        command.args(["--auto-aof-rewrite-percentage", "0"]);
        command.arg("--port").arg(port.to_string()).arg("--dir").arg(dir);
        let mut server = Server::spawn("redis", command, Signal::TERM, port, dir)?;
        server.wait_ready(async |port| {
            use tokio::io::{AsyncReadExt, AsyncWriteExt};
            let mut stream = tokio::net::TcpStream::connect(("127.0.0.1", port)).await?;
            stream.write_all(b"PING\r\n").await?;
            let mut reply = [0; 7];
            stream.read_exact(&mut reply).await?;
            anyhow::ensure!(&reply == b"+PONG\r\n");
            Ok(())
        })?;
        Ok(server)
    }

    /// Starts PostgreSQL with default settings and an empty table, on a cluster of `postgres_cluster`.
    pub fn postgres(cluster: &Path, connections: usize) -> Result<Server> {
        let port = free_port()?;
        let mut command = as_postgres("postgres");
        command.arg("-D").arg(cluster.join("data")).arg("-k").arg(cluster).arg("-p").arg(port.to_string());
        for setting in ["listen_addresses=127.0.0.1", "fsync=on", "synchronous_commit=on"] {
            command.arg("-c").arg(setting);
        }
        command.arg("-c").arg(format!("max_connections={}", connections + 16)).current_dir("/");
        let mut server = Server::spawn("postgres", command, Signal::INT, port, cluster)?;
        server.wait_ready(Postgres::prepare)?;
        Ok(server)
    }

    /// Starts the no-op server: this binary in another process.
    pub fn noop(dir: &Path) -> Result<Server> {
        Server::of_ours("noop", "noop-server", dir, free_port()?)
    }

    /// Starts the receiver of deliveries: this binary in another process.
    pub fn receiver(dir: &Path, port: u16) -> Result<Server> {
        Server::of_ours("receiver", "receiver", dir, port)
    }

    fn of_ours(name: &'static str, subcommand: &str, dir: &Path, port: u16) -> Result<Server> {
        let mut command = Command::new(std::env::current_exe()?);
        command.arg(subcommand).arg(port.to_string());
        let mut server = Server::spawn(name, command, Signal::TERM, port, dir)?;
        server.wait_ready(ready)?;
        Ok(server)
    }

    /// Starts the trivial upstream: an nginx that answers by itself.
    pub fn nginx_upstream(dir: &Path) -> Result<Server> {
        let port = free_port()?;
        Server::nginx("upstream", dir, port, |dir| gateway::upstream_settings(dir, port))
    }

    /// Starts an nginx that forwards every request to `upstream`.
    pub fn nginx_proxy(dir: &Path, upstream: u16) -> Result<Server> {
        let port = free_port()?;
        Server::nginx("nginx", dir, port, |dir| gateway::proxy_settings(dir, port, upstream))
    }

    fn nginx(name: &'static str, dir: &Path, port: u16, settings: impl FnOnce(&Path) -> String) -> Result<Server> {
        let own = dir.join(name);
        std::fs::create_dir_all(&own)?;
        let file = own.join("nginx.conf");
        std::fs::write(&file, settings(&own))?;
        let mut command = Command::new("nginx");
        command.arg("-p").arg(&own).arg("-e").arg(own.join("error.log")).arg("-c").arg(&file);
        let mut server = Server::spawn(name, command, Signal::TERM, port, &own)?;
        server.wait_ready(ready)?;
        Ok(server)
    }

    /// Starts fencepost on its embedded store, under this policy.
    pub fn fencepost_under(binary: &Path, dir: &Path, policy: &Path) -> Result<Server> {
        let config = [std::ffi::OsStr::new("--config"), policy.as_os_str()];
        Server::fencepost_with(binary, dir, None, &config)
    }

    /// Starts fencepost with `--dev` settings, on its embedded store unless `store` names another.
    pub fn fencepost(binary: &Path, dir: &Path, store: Option<&str>) -> Result<Server> {
        Server::fencepost_with(binary, dir, store, &[])
    }

    fn fencepost_with(binary: &Path, dir: &Path, store: Option<&str>, more: &[&std::ffi::OsStr]) -> Result<Server> {
        let port = free_port()?;
        let mut command = Command::new(binary);
        command.args(["serve", "--dev", "--listen"]).arg(format!("127.0.0.1:{port}"));
        match store {
            Some(store) => command.arg("--store").arg(store),
            None => command.arg("--data").arg(data_of(dir)),
        };
        command.args(more).current_dir(dir);
        let mut server = Server::spawn("fencepost", command, Signal::TERM, port, dir)?;
        server.wait_ready(ready)?;
        Ok(server)
    }

    /// The process id, for figures from /proc.
    pub fn pid(&self) -> u32 {
        self.child.id()
    }

    fn wait_ready(&mut self, probe: impl AsyncFn(u16) -> Result<()>) -> Result<()> {
        let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build()?;
        let deadline = Instant::now() + START_WAIT_MAX;
        loop {
            stop::check()?;
            let attempt =
                runtime.block_on(async { tokio::time::timeout(Duration::from_secs(5), probe(self.port)).await });
            let error = match attempt {
                Ok(Ok(())) => return Ok(()),
                Ok(Err(error)) => format!("{error:#}"),
                Err(_) => "no answer".to_owned(),
            };
            if let Some(status) = self.child.try_wait()? {
                bail!("{} ended before it was ready ({status}): {}", self.name, self.last_words());
            }
            if Instant::now() > deadline {
                bail!("{} was not ready in {START_WAIT_MAX:?} ({error}): {}", self.name, self.last_words());
            }
            thread::sleep(Duration::from_millis(20));
        }
    }

    fn last_words(&self) -> String {
        let text = std::fs::read(&self.log).unwrap_or_default();
        String::from_utf8_lossy(&text[text.len().saturating_sub(2000)..]).trim().to_owned()
    }
}

impl Drop for Server {
    fn drop(&mut self) {
        if let Some(pid) = i32::try_from(self.child.id()).ok().and_then(Pid::from_raw) {
            // The process may have ended already; then there is nothing to stop.
            let _ = kill_process(pid, self.polite);
        }
        let deadline = Instant::now() + STOP_WAIT_MAX;
        while Instant::now() < deadline {
            if !matches!(self.child.try_wait(), Ok(None)) {
                return;
            }
            thread::sleep(Duration::from_millis(10));
        }
        let _ = self.child.kill();
        let _ = self.child.wait();
    }
}

/// The folder of fencepost's store inside the folder of the server.
pub fn data_of(dir: &Path) -> PathBuf {
    dir.join("data")
}

async fn ready(port: u16) -> Result<()> {
    let mut connection = http::Connection::open(port).await?;
    let reply = connection.exchange(b"GET /readyz HTTP/1.1\r\nHost: 127.0.0.1\r\n\r\n").await?;
    match reply.status {
        200 => Ok(()),
        _ => Err(reply.unexpected("200 from /readyz")),
    }
}

/// Makes a PostgreSQL cluster; called once a run.
pub fn postgres_cluster(dir: &Path) -> Result<()> {
    Ok(init_postgres(dir)?)
}
