//! A Redis of one's own.

use std::{path::Path, process::Command};

use tempfile::TempDir;

use crate::{programs::free_port, server::Server, slow_clock};

/// A Redis server, gone when dropped.
pub struct Redis {
    server: Option<Server>,
    port: u16,
    settings: Vec<String>,
    /// How far its clock is off.
    clock_shift_s: i64,
    dir: TempDir,
}

impl Redis {
    /// A server with settings such as `["--appendonly", "yes"]`; it saves nothing unless told to.
    pub fn start(settings: &[&str]) -> Self {
        let settings = settings.iter().map(|&setting| setting.to_owned()).collect();
        let (port, dir) = (free_port().unwrap(), tempfile::tempdir().unwrap());
        let mut own = Self { server: None, port, settings, clock_shift_s: 0, dir };
        own.restart();
        own
    }

    /// A server that syncs before every reply.
    pub fn synced() -> Self {
        Self::start(&["--appendonly", "yes", "--appendfsync", "always"])
    }

    /// The port on 127.0.0.1.
    pub fn port(&self) -> u16 {
        self.port
    }

    /// Its address.
    pub fn url(&self) -> String {
        format!("redis://127.0.0.1:{}", self.port)
    }

    /// kill -9.
    pub fn kill(&mut self) {
        self.server = None;
    }

    /// Starts again on the same port and data, and waits until it answers.
    pub fn restart(&mut self) {
        self.kill();
        self.server = Some(spawn(self.port, self.dir.path(), &self.settings, self.clock_shift_s));
    }

    /// Starts again with a clock that is off by so many seconds.
    pub fn restart_with_clock(&mut self, shift_s: i64) {
        self.clock_shift_s = shift_s;
        self.restart();
    }

    /// What `redis-cli` says.
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
