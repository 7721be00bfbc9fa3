//! A Redis server for one test. Called by tests and by `cluster`.

use std::{path::Path, process::Command};

use tempfile::TempDir;

use crate::{programs::free_port, server::Server, slow_clock};

/// A running Redis server; dropping it kills it.
pub struct RedisServer {
    server: Option<Server>,
    port: u16,
    settings: Vec<String>,
    /// Seconds that the server's clock is ahead; negative where it is behind.
    clock_shift_s: i64,
    dir: TempDir,
}

impl RedisServer {
    /// Starts a server with settings such as `["--appendonly", "yes"]`. By default it saves nothing.
    pub fn start(settings: &[&str]) -> Self {
        let settings = settings.iter().map(|&setting| setting.to_owned()).collect();
        let (port, dir) = (free_port().unwrap(), tempfile::tempdir().unwrap());
        let mut own = Self { server: None, port, settings, clock_shift_s: 0, dir };
        own.restart();
        own
    }

    /// Starts a server that syncs before every reply.
    pub fn synced() -> Self {
        Self::start(&["--appendonly", "yes", "--appendfsync", "always"])
    }

    pub fn port(&self) -> u16 {
        self.port
    }

    /// The address for a client.
    pub fn url(&self) -> String {
        format!("redis://127.0.0.1:{}", self.port)
    }

    /// Kills the server with SIGKILL.
    pub fn kill(&mut self) {
        self.server = None;
    }

    /// Kills the server, starts it again on the same port and data, and waits until it answers.
    pub fn restart(&mut self) {
        self.kill();
        self.server = Some(spawn(self.port, self.dir.path(), &self.settings, self.clock_shift_s));
    }

    /// Restarts the server with a clock that is `shift_s` seconds ahead.
    pub fn restart_with_clock(&mut self, shift_s: i64) {
        self.clock_shift_s = shift_s;
        self.restart();
    }

    /// Runs `redis-cli` and returns what it prints.
    pub fn cli(&self, words: &[&str]) -> String {
        cli(self.port, words)
    }
}

pub(crate) fn spawn(port: u16, dir: &Path, settings: &[String], clock_shift_s: i64) -> Server {
    let mut command = Command::new("redis-server");
    if clock_shift_s != 0 {
        command.env("LD_PRELOAD", slow_clock::library(dir, clock_shift_s));
    }
    command.args(["--bind", "127.0.0.1", "--protected-mode", "no", "--save", "", "--port"]).arg(port.to_string());
    command.arg("--dir").arg(dir).args(settings);
    let mut server = Server::spawn(command, dir);
    server.ready(|| cli(port, &["PING"]) == "PONG");
    server
}

pub(crate) fn cli(port: u16, words: &[&str]) -> String {
    let output = Command::new("redis-cli").arg("-p").arg(port.to_string()).args(words).output().unwrap();
    String::from_utf8_lossy(&output.stdout).trim().to_owned()
}
