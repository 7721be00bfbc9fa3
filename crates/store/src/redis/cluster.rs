//! Maps slots to the servers that hold them, as the servers themselves report.
//! Never waits for a server that does not answer while another one does. Called by the router.

use std::{collections::BTreeMap, sync::Arc, time::Duration};

use ::redis::{ConnectionInfo, Pipeline, Value, cmd};
use futures::future::select_ok;
use tokio::time::timeout;

use super::{
    address::{at, host},
    link::Link,
};

const DISCOVER_MAX: Duration = Duration::from_millis(2_000);

/// One server, with a connection for reading and one for writing.
pub(super) struct Node {
    name: String,
    pub(super) info: ConnectionInfo,
    pub(super) reads: Link,
    pub(super) writes: Link,
}

impl Node {
    pub(super) fn new(info: ConnectionInfo) -> Result<Arc<Self>, String> {
        let (host, port) = host(&info);
        let name = format!("{host}:{port}");
        let (reads, writes) = (Link::new(info.clone())?, Link::new(info.clone())?);
        Ok(Arc::new(Self { name, info, reads, writes }))
    }

    /// Its host and port.
    pub(super) fn name(&self) -> &str {
        &self.name
    }

    /// Drops its connections: the next command connects anew, to the server that the name leads to by then.
    pub(super) async fn leave(&self) {
        self.reads.leave().await;
        self.writes.leave().await;
    }
}

/// Which server holds which slot.
pub(super) struct Map {
    // By the last slot of each range, with the first one.
    ranges: BTreeMap<u16, (u16, Arc<Node>)>,
    nodes: BTreeMap<String, Arc<Node>>,
}

impl Map {
    /// One server holds everything.
    pub(super) fn single(node: &Arc<Node>) -> Self {
        let nodes = BTreeMap::from([(node.name.clone(), node.clone())]);
        Self { ranges: BTreeMap::from([(u16::MAX, (0, node.clone()))]), nodes }
    }

    /// Asks every server at once, and uses the first full answer.
    pub(super) async fn discover(seeds: &[Arc<Node>], known: Option<&Self>) -> Result<Self, String> {
        let mut nodes: BTreeMap<_, _> = known.map(|map| map.nodes.clone()).unwrap_or_default();
        for seed in seeds {
            nodes.entry(seed.name.clone()).or_insert_with(|| seed.clone());
        }
        let asks = nodes.values().map(|node| {
            // Each question runs to its end, whichever answers first: its timeout drops a silent server's connection.
            let asked = tokio::spawn(ask(node.clone()));
            let nodes = &nodes;
            Box::pin(async move {
                let slots = asked.await.unwrap_or_else(|error| Err(error.to_string()));
                let map = slots.and_then(|slots| {
                    Self::read(&slots, node, nodes).ok_or_else(|| "not every slot is served".to_owned())
                });
                map.map_err(|why| format!("{}: {why}", node.name))
            })
        });
        match timeout(DISCOVER_MAX, select_ok(asks)).await {
            Ok(found) => found.map(|(map, _)| map),
            Err(_) => Err("no server answers in time".to_owned()),
        }
    }

    // `CLUSTER SLOTS`: ranges, each with its master first and its replicas after it.
    fn read(slots: &Value, asked: &Node, known: &BTreeMap<String, Arc<Node>>) -> Option<Self> {
        let mut own = Self { ranges: BTreeMap::new(), nodes: BTreeMap::new() };
        let mut covered = 0u32;
        for range in list(slots)? {
            let [Value::Int(first), Value::Int(last), servers @ ..] = list(range)? else { return None };
            let (first, last) = (u16::try_from(*first).ok()?, u16::try_from(*last).ok()?);
            covered += u32::from(last.checked_sub(first)?) + 1;
            for (rank, server) in servers.iter().enumerate() {
                let [name, Value::Int(port), ..] = list(server)? else { return None };
                // A server that does not know its own name is reached under the name that was asked.
                let name = text(name).filter(|name| !name.is_empty() && *name != "?").unwrap_or(host(&asked.info).0);
                let port = u16::try_from(*port).ok()?;
                let node = own.node(known, &asked.info, name, port)?;
                if rank == 0 {
                    own.ranges.insert(last, (first, node));
                }
            }
        }
        (covered == 16_384).then_some(own)
    }

    fn node(
        &mut self,
        known: &BTreeMap<String, Arc<Node>>,
        seed: &ConnectionInfo,
        host: &str,
        port: u16,
    ) -> Option<Arc<Node>> {
        let name = format!("{host}:{port}");
        let made = self.nodes.get(&name).or_else(|| known.get(&name)).cloned();
        let node = made.or_else(|| Node::new(at(seed, host, port)).ok())?;
        self.nodes.insert(name, node.clone());
        Some(node)
    }

    /// The server that holds a slot.
    pub(super) fn owner(&self, slot: u16) -> Option<&Arc<Node>> {
        let (_, (first, node)) = self.ranges.range(slot..).next()?;
        (*first <= slot).then_some(node)
    }

    /// Every server, and whether it is a master.
    pub(super) fn servers(&self) -> impl Iterator<Item = (&Arc<Node>, bool)> {
        let master = |node: &Arc<Node>| self.ranges.values().any(|(_, owner)| owner.name == node.name);
        self.nodes.values().map(move |node| (node, master(node)))
    }

    /// The server that a redirection such as `3999 127.0.0.1:6381` names.
    pub(super) fn asked(&self, seed: &ConnectionInfo, redirection: &str) -> Option<Arc<Node>> {
        let (host, port) = redirection.split_whitespace().nth(1)?.rsplit_once(':')?;
        let known = self.nodes.get(&format!("{host}:{port}")).cloned();
        known.or_else(|| Node::new(at(seed, host, port.parse().ok()?)).ok())
    }
}

async fn ask(node: Arc<Node>) -> Result<Value, String> {
    let mut pipeline = Pipeline::new();
    pipeline.add_command(cmd("CLUSTER").arg("SLOTS").to_owned());
    let mut values = node.reads.send(&pipeline).await.map_err(|fault| fault.to_string())?;
    match values.pop() {
        Some(Value::ServerError(error)) => Err(format!("{} {}", error.code(), error.details().unwrap_or_default())),
        Some(value) => Ok(value),
        None => Err("no answer".to_owned()),
    }
}

fn list(value: &Value) -> Option<&[Value]> {
    match value {
        Value::Array(values) => Some(values),
        _ => None,
    }
}

fn text(value: &Value) -> Option<&str> {
    match value {
        Value::BulkString(bytes) => std::str::from_utf8(bytes).ok(),
        Value::SimpleString(text) => Some(text),
        _ => None,
    }
}
