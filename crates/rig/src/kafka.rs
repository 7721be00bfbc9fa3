//! A Kafka broker for one test: nisshi, which speaks the protocol and keeps its log in SQLite. Called by tests.

use std::{
    net::TcpStream,
    path::PathBuf,
    process::{Command, Stdio},
};

use tempfile::TempDir;

use crate::{
    programs::{cache, find, free_port},
    server::Server,
};

/// A running broker; dropping it kills it.
pub struct Kafka {
    server: Option<Server>,
    port: u16,
    dir: TempDir,
}

impl Kafka {
    /// Starts a broker without topics.
    pub fn start() -> Self {
        let mut own = Self { server: None, port: free_port().unwrap(), dir: tempfile::tempdir().unwrap() };
        own.restart();
        own
    }

    /// The broker's address, host and port.
    pub fn brokers(&self) -> String {
        format!("127.0.0.1:{}", self.port)
    }

    /// Kills the broker with SIGKILL.
    pub fn kill(&mut self) {
        self.server = None;
    }

    /// Kills the broker, starts it again on the same port and data, and waits until it answers.
    pub fn restart(&mut self) {
        self.kill();
        let url = format!("tcp://127.0.0.1:{}", self.port);
        let mut command = Command::new(program());
        command.args(["broker", "--listener-url", &url, "--advertised-listener-url", &url]);
        command.args(["--storage-engine", "sqlite://log.db"]).current_dir(self.dir.path());
        let mut server = Server::spawn(command, self.dir.path());
        server.ready(|| TcpStream::connect(("127.0.0.1", self.port)).is_ok());
        self.server = Some(server);
    }

    /// Creates a topic.
    pub fn topic(&self, name: &str, partitions: u32) {
        let broker = format!("tcp://127.0.0.1:{}", self.port);
        let mut command = Command::new(program());
        command.args(["topic", "create", "--broker", &broker, "--partitions", &partitions.to_string(), name]);
        let made = command.current_dir(self.dir.path()).stdout(Stdio::null()).status().unwrap();
        assert!(made.success(), "the topic {name} was not made");
    }
}

// The program on the PATH, or the one that ./test has built.
fn program() -> PathBuf {
    let built = cache().map(|cache| cache.join("nisshi/bin/nisshi")).filter(|program| program.is_file());
    built.or_else(|| find("nisshi")).unwrap_or_else(|| panic!("no Kafka broker: run ./test --install"))
}
