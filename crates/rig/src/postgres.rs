//! A PostgreSQL server for one test. Called by tests and by `pair`.

use std::{
    fs::Permissions,
    os::unix::fs::PermissionsExt,
    path::PathBuf,
    process::Command,
    sync::atomic::{AtomicU32, Ordering},
};

use rustix::process::Signal;
use tempfile::TempDir;

use crate::{
    programs::{as_postgres, find, folder_of_postgres, free_port, init_postgres},
    server::Server,
    slow_clock,
    wait::until,
};

/// A running PostgreSQL server with fsync on; dropping it kills it.
pub struct PostgresServer {
    server: Option<Server>,
    port: u16,
    settings: Vec<String>,
    databases: AtomicU32,
    /// Seconds that the server's clock is ahead; negative where it is behind.
    clock_shift_s: i64,
    dir: TempDir,
}

impl PostgresServer {
    /// Starts a server with default settings.
    pub fn start() -> Self {
        Self::start_with(&[])
    }

    /// Starts a server with settings such as `fsync=off`.
    pub fn start_with(settings: &[&str]) -> Self {
        let dir = passable_dir();
        init_postgres(&dir.path().join("postgres")).unwrap();
        let settings = settings.iter().map(|&setting| setting.to_owned()).collect();
        Self::run(dir, free_port().unwrap(), settings)
    }

    fn run(dir: TempDir, port: u16, settings: Vec<String>) -> Self {
        let mut own = Self { server: None, port, settings, databases: AtomicU32::new(0), clock_shift_s: 0, dir };
        own.restart();
        own
    }

    /// Copies this server to `port` as a standby that every later commit waits for.
    pub fn standby(&self, port: u16) -> Self {
        let dir = passable_dir();
        let folder = dir.path().join("postgres");
        folder_of_postgres(&folder).unwrap();
        let mut copy = as_postgres("pg_basebackup");
        copy.args(["-h", "127.0.0.1", "-U", "postgres", "-R", "-X", "stream", "-c", "fast", "--no-sync", "-p"]);
        let copied = copy.arg(self.port.to_string()).arg("-D").arg(folder.join("data")).output().unwrap();
        assert!(copied.status.success(), "pg_basebackup: {}", String::from_utf8_lossy(&copied.stderr));
        let own = Self::run(dir, port, self.settings.clone());
        self.sql(&self.url(), "ALTER SYSTEM SET synchronous_standby_names = '*'");
        self.sql(&self.url(), "SELECT pg_reload_conf()");
        self.wait_for_standby();
        own
    }

    /// Waits until commits wait for the standby.
    pub fn wait_for_standby(&self) {
        until("a standby is synchronous", || {
            self.sql(&self.url(), "SELECT sync_state FROM pg_stat_replication") == "sync"
        });
    }

    /// Restarts the server with a clock that is `shift_s` seconds ahead.
    pub fn restart_with_clock(&mut self, shift_s: i64) {
        self.clock_shift_s = shift_s;
        self.restart();
    }

    pub fn port(&self) -> u16 {
        self.port
    }

    /// The address of the database `postgres`, which always exists.
    pub fn url(&self) -> String {
        self.url_of("postgres")
    }

    /// Creates an empty database and returns its address.
    pub fn fresh_database(&self) -> String {
        let name = format!("fresh_{}", self.databases.fetch_add(1, Ordering::Relaxed));
        self.sql(&self.url(), &format!("CREATE DATABASE {name}"));
        self.url_of(&name)
    }

    /// Runs a statement with `psql` and returns what it prints.
    pub fn sql(&self, database_url: &str, statement: &str) -> String {
        let output = psql(database_url, statement);
        assert!(output.status.success(), "{statement}: {}", String::from_utf8_lossy(&output.stderr));
        String::from_utf8(output.stdout).unwrap().trim().to_owned()
    }

    /// The log of the server since its first start.
    pub fn log(&self) -> String {
        std::fs::read_to_string(self.dir.path().join("log")).unwrap()
    }

    /// Kills the server and its connections' processes with SIGKILL.
    pub fn kill(&mut self) {
        self.server = None;
    }

    /// Kills the connections' processes: as after a crash of one, the server then recovers.
    pub fn crash_backends(&self) {
        self.server.as_ref().unwrap().signal_children(Signal::KILL);
    }

    /// Stops all processes of the server with SIGSTOP, or continues them.
    pub fn freeze(&self, frozen: bool) {
        let what = if frozen { Signal::STOP } else { Signal::CONT };
        let server = self.server.as_ref().unwrap();
        server.signal(what);
        server.signal_children(what);
    }

    /// Kills the server, starts it again on the same port and data, and waits until it answers.
    pub fn restart(&mut self) {
        self.kill();
        let folder = self.folder();
        let mut command = match self.clock_shift_s {
            0 => as_postgres("postgres"),
            shift_s => {
                let mut command = as_postgres("env");
                let library = slow_clock::library(self.dir.path(), shift_s);
                command.arg(format!("LD_PRELOAD={}", library.display()));
                command.arg(find("postgres").unwrap_or_else(|| "postgres".into()));
                command
            }
        };
        command.arg("-D").arg(folder.join("data")).arg("-k").arg(&folder).arg("-p").arg(self.port.to_string());
        command.args(["-c", "listen_addresses=127.0.0.1", "-c", "max_connections=200"]);
        for setting in &self.settings {
            command.arg("-c").arg(setting);
        }
        let mut server = Server::spawn(command, self.dir.path());
        let url = self.url();
        server.ready(|| psql(&url, "SELECT 1").status.success());
        self.server = Some(server);
    }

    fn url_of(&self, database: &str) -> String {
        format!("postgres://postgres@127.0.0.1:{}/{database}", self.port)
    }

    fn folder(&self) -> PathBuf {
        self.dir.path().join("postgres")
    }
}

// The user postgres must be able to enter the folder.
fn passable_dir() -> TempDir {
    let dir = tempfile::tempdir().unwrap();
    std::fs::set_permissions(dir.path(), Permissions::from_mode(0o711)).unwrap();
    dir
}

fn psql(database_url: &str, statement: &str) -> std::process::Output {
    let program = find("psql").unwrap_or_else(|| "psql".into());
    Command::new(program)
        .args(["-X", "-A", "-t", "-v", "ON_ERROR_STOP=1", "-c", statement, database_url])
        .output()
        .unwrap()
}
