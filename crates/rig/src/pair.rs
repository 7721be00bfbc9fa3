//! A PostgreSQL primary and its synchronous standby, on two ports that stay the same whoever is primary.

use crate::{postgres::Postgres, programs::free_port};

/// What one acknowledges, the other has.
pub struct Pair {
    ports: [u16; 2],
    /// The server that takes writes.
    pub primary: Postgres,
    standby: Option<Postgres>,
}

impl Pair {
    /// Starts both, and waits until commits wait for the standby.
    pub fn start() -> Self {
        let primary = Postgres::start();
        let ports = [primary.port(), free_port().unwrap()];
        let mut own = Self { ports, primary, standby: None };
        own.add_standby();
        own
    }

    /// Both servers in one address: a client is led to the one that takes writes.
    pub fn url(&self, database: &str) -> String {
        let [one, other] = self.ports;
        let name = database.rsplit('/').next().unwrap();
        format!("postgres://postgres@127.0.0.1:{one},127.0.0.1:{other}/{name}?target_session_attrs=read-write")
    }

    /// kill -9 of the primary; the standby is promoted, and has no standby of its own.
    pub fn fail_over(&mut self) {
        self.primary.kill();
        self.promote();
    }

    /// Promotes the standby beside a primary that is still there, and hands that one back.
    pub fn promote(&mut self) -> Postgres {
        let standby = self.standby.take().unwrap();
        standby.sql(&standby.url(), "SELECT pg_promote(true, 30)");
        std::mem::replace(&mut self.primary, standby)
    }

    /// The standby goes on with a clock that is off by so many seconds; waits until commits wait for it again.
    pub fn set_standby_clock(&mut self, shift_s: i64) {
        self.standby.as_mut().unwrap().restart_with_clock(shift_s);
        self.primary.wait_for_standby();
    }

    /// Copies the primary to the port that is free, and waits until commits wait for the copy.
    pub fn add_standby(&mut self) {
        let port = self.ports.into_iter().find(|port| *port != self.primary.port()).unwrap();
        self.standby = Some(self.primary.standby(port));
    }
}
