//! A Redis of one's own.

use std::{path::Path, process::Command};

use tempfile::TempDir;

use crate::{programs::free_port, server::Server};

/// A Redis server, gone when dropped.
pub struct Redis {
    server: Option<Server>,
    port: u16,
    settings: Vec<String>,
    dir: TempDir,
}

impl Redis {
    /// A server with settings such as `["--appendonly", "yes"]`; it saves nothing unless told to.
    pub fn start(settings: &[&str]) -> Self {
        let settings = settings.iter().map(|&setting| setting.to_owned()).collect();
        let mut own = Self { server: None, port: free_port().unwrap(), settings, dir: tempfile::tempdir().unwrap() };
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
        self.server = Some(spawn(self.port, self.dir.path(), &self.settings));
    }

    /// What `redis-cli` says.
    pub fn cli(&self, words: &[&str]) -> String {
        cli(self.port, words)
    }
}

pub(crate) fn spawn(port: u16, dir: &Path, settings: &[String]) -> Server {
    let mut command = Command::new("redis-server");
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
