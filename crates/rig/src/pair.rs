//! A PostgreSQL primary and its synchronous standby, on two ports that do not change on failover. Called by tests.

use crate::{postgres::PostgresServer, programs::free_port};

/// A primary and its standby: the standby has every commit that the primary has acknowledged.
pub struct Pair {
    ports: [u16; 2],
    /// The server that takes writes.
    pub primary: PostgresServer,
    standby: Option<PostgresServer>,
}

impl Pair {
    /// Starts both servers, and waits until commits wait for the standby.
    pub fn start() -> Self {
        let primary = PostgresServer::start();
        let ports = [primary.port(), free_port().unwrap()];
        let mut own = Self { ports, primary, standby: None };
        own.add_standby();
        own
    }

    /// The address of both servers: a client connects to the one that takes writes.
    pub fn url(&self, database: &str) -> String {
        let [one, other] = self.ports;
        let name = database.rsplit('/').next().unwrap();
        format!("postgres://postgres@127.0.0.1:{one},127.0.0.1:{other}/{name}?target_session_attrs=read-write")
    }

    /// Kills the primary with SIGKILL and promotes the standby, which then has no standby of its own.
    pub fn fail_over(&mut self) {
        self.primary.kill();
        self.promote();
    }

    /// Promotes the standby while the old primary still runs, and returns the old primary.
    pub fn promote(&mut self) -> PostgresServer {
        let standby = self.standby.take().unwrap();
        standby.sql(&standby.url(), "SELECT pg_promote(true, 30)");
        std::mem::replace(&mut self.primary, standby)
    }

    /// Restarts the standby with a clock that is off by `shift_s` seconds, and waits until commits wait for it again.
    pub fn set_standby_clock(&mut self, shift_s: i64) {
        self.standby.as_mut().unwrap().restart_with_clock(shift_s);
        self.primary.wait_for_standby();
    }

    /// Copies the primary to the free port, and waits until commits wait for the copy.
    pub fn add_standby(&mut self) {
        let port = self.ports.into_iter().find(|port| *port != self.primary.port()).unwrap();
        self.standby = Some(self.primary.standby(port));
    }
}
