//! A Redis Cluster of six: three masters, a replica each.

use std::{process::Command, thread, time::Duration};

use rustix::process::Signal;
use tempfile::TempDir;

use crate::{
    programs::free_port,
    redis::{cli, spawn},
    server::{Server, wait_until},
};

/// Six servers that are one, gone when dropped.
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
    /// Six servers, with every slot served and every replica in step. The first three are masters.
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

    /// Its address: three of its members.
    pub fn url(&self) -> String {
        let hosts: Vec<_> = self.nodes.iter().take(3).map(|node| format!("127.0.0.1:{}", node.port)).collect();
        format!("redis+cluster://{}", hosts.join(","))
    }

    /// The port of a member, from 0.
    pub fn port(&self, member: usize) -> u16 {
        self.nodes[member].port
    }

    /// What `redis-cli` says on a member.
    pub fn cli(&self, member: usize, words: &[&str]) -> String {
        cli(self.nodes[member].port, words)
    }

    /// kill -9 of all six.
    pub fn kill_all(&mut self) {
        self.nodes.iter_mut().for_each(|node| node.server = None);
    }

    /// Starts those that are dead, and waits until every slot is served and every replica is in step.
    pub fn restart_all(&mut self) {
        self.nodes.iter_mut().filter(|node| !node.alive()).for_each(Member::start);
        self.settled();
    }

    /// kill -9 of one master; waits until its replica has taken over. Which port died.
    pub fn kill_a_master(&mut self) -> u16 {
        let master = self.nodes.iter_mut().find(|node| node.alive() && role(node.port) == "master").unwrap();
        master.server = None;
        let port = master.port;
        self.taken_over();
        port
    }

    /// SIGSTOP of a master: it keeps its connections and answers nothing. Waits until its replica has taken over.
    pub fn stall(&mut self, member: usize) {
        self.signal(member, Signal::STOP);
        self.nodes[member].stalled = true;
        self.taken_over();
    }

    /// SIGCONT, and waits until every slot is served and every replica is in step.
    pub fn wake(&mut self, member: usize) {
        self.signal(member, Signal::CONT);
        self.nodes[member].stalled = false;
        self.settled();
    }

    fn signal(&self, member: usize, what: Signal) {
        self.nodes[member].server.as_ref().unwrap().signal(what);
    }

    fn taken_over(&self) {
        // The survivors notice only after the node timeout.
        thread::sleep(Duration::from_millis(2_500));
        wait_until("a replica has taken over", || self.serves());
    }

    fn settled(&self) {
        wait_until("every slot is served", || self.serves());
        wait_until("every replica is in step", || {
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

// Members talk to one another on this port plus 10000, which must exist.
fn cluster_port() -> u16 {
    loop {
        let port = free_port().unwrap();
        if port < 55_000 {
            return port;
        }
    }
}
