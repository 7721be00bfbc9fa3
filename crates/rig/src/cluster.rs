//! A Redis Cluster of six servers: three masters with a replica each. Called by tests.

use std::process::Command;

use rustix::process::Signal;
use tempfile::TempDir;

use crate::{
    programs::free_port,
    redis::{cli, spawn},
    server::Server,
    wait::until,
};

const MASTERS: usize = 3;

/// A running cluster; dropping it kills all six servers.
pub struct Cluster {
    nodes: Vec<Member>,
}

struct Member {
    server: Option<Server>,
    stalled: bool,
    port: u16,
    dir: TempDir,
}

impl Member {
    fn start(&mut self) {
        let settings = [
            ["--appendonly", "yes"],
            ["--appendfsync", "always"],
            ["--cluster-enabled", "yes"],
            ["--cluster-config-file", "nodes.conf"],
            ["--cluster-node-timeout", "2000"],
            ["--repl-diskless-sync-delay", "0"],
        ];
        let settings: Vec<String> = settings.iter().flatten().map(|&word| word.to_owned()).collect();
        (self.server, self.stalled) = (None, false);
        self.server = Some(spawn(self.port, self.dir.path(), &settings, 0));
    }

    fn alive(&self) -> bool {
        self.server.is_some() && !self.stalled
    }
}

impl Cluster {
    /// Starts six servers and waits until all slots are served and all replicas connected. The first three are masters.
    pub fn start() -> Self {
        let member =
            || Member { server: None, stalled: false, port: cluster_port(), dir: tempfile::tempdir().unwrap() };
        let mut nodes: Vec<Member> = (0..6).map(|_| member()).collect();
        nodes.iter_mut().for_each(Member::start);
        let hosts = nodes.iter().map(|node| format!("127.0.0.1:{}", node.port));
        let made = Command::new("redis-cli")
            .args(["--cluster", "create"])
            .args(hosts)
            .args(["--cluster-replicas", "1", "--cluster-yes"])
            .output()
            .unwrap();
        assert!(made.status.success(), "no cluster: {}", String::from_utf8_lossy(&made.stdout));
        let own = Self { nodes };
        own.settled();
        own
    }

    /// The address for a client: three of the servers.
    pub fn url(&self) -> String {
        let hosts: Vec<_> = self.nodes.iter().take(3).map(|node| format!("127.0.0.1:{}", node.port)).collect();
        format!("redis+cluster://{}", hosts.join(","))
    }

    /// The port of a server, numbered from 0.
    pub fn port(&self, member: usize) -> u16 {
        self.nodes[member].port
    }

    /// Runs `redis-cli` on a server and returns what it prints.
    pub fn cli(&self, member: usize, words: &[&str]) -> String {
        cli(self.nodes[member].port, words)
    }

    /// Kills all six servers with SIGKILL.
    pub fn kill_all(&mut self) {
        self.nodes.iter_mut().for_each(|node| node.server = None);
    }

    /// Starts the servers that were killed, and waits until every slot is served and every replica is connected.
    pub fn restart_all(&mut self) {
        self.nodes.iter_mut().filter(|node| !node.alive()).for_each(Member::start);
        self.settled();
    }

    /// Kills one master with SIGKILL, waits until its replica has taken over, and returns the killed port.
    pub fn kill_a_master(&mut self) -> u16 {
        let master = self.nodes.iter_mut().find(|node| node.alive() && role(node.port) == "master").unwrap();
        master.server = None;
        let port = master.port;
        self.taken_over();
        port
    }

    /// Stops a master with SIGSTOP: its connections stay open without answers. Waits until its replica has taken over.
    pub fn stall(&mut self, member: usize) {
        self.signal(member, Signal::STOP);
        self.nodes[member].stalled = true;
        self.taken_over();
    }

    /// Continues a stopped server, and waits until every slot is served and every replica is connected.
    pub fn wake(&mut self, member: usize) {
        self.signal(member, Signal::CONT);
        self.nodes[member].stalled = false;
        self.settled();
    }

    fn signal(&self, member: usize, what: Signal) {
        self.nodes[member].server.as_ref().unwrap().signal(what);
    }

    fn taken_over(&self) {
        // Until the others notice the loss, they tell of a cluster that is well: one of them has to be promoted.
        let masters = || self.nodes.iter().filter(|node| node.alive() && role(node.port) == "master").count();
        until("a replica has taken over", || masters() == MASTERS && self.serves());
    }

    fn settled(&self) {
        until("every slot is served", || self.serves());
        until("every replica is in step", || {
            self.nodes
                .iter()
                .filter(|node| role(node.port) == "slave")
                .all(|node| cli(node.port, &["INFO", "replication"]).contains("master_link_status:up"))
        });
    }

    fn serves(&self) -> bool {
        self.nodes.iter().filter(|node| node.alive()).all(|node| {
            let info = cli(node.port, &["CLUSTER", "INFO"]);
            info.contains("cluster_state:ok") && info.contains("cluster_slots_ok:16384")
        })
    }
}

fn role(port: u16) -> String {
    let info = cli(port, &["INFO", "replication"]);
    info.lines().find_map(|line| line.trim().strip_prefix("role:")).unwrap_or_default().to_owned()
}

// The servers talk to each other on this port plus 10000, which must be a valid port.
fn cluster_port() -> u16 {
    loop {
        let port = free_port().unwrap();
        if port < 55_000 {
            return port;
        }
    }
}
