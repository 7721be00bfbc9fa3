//! Reads the store's guarantees from every server's own settings, and never assumes one.
//! Never accepts a server that may evict rows: an evicted fence is an effect that runs twice. Called at opening.

use std::collections::BTreeMap;

use ::redis::{Cmd, Pipeline, Value, cmd, from_redis_value_ref};

use super::{cluster::Node, router::Router};
use crate::{Durability, Error, Promises};

/// The settings that one server reports.
#[derive(Default, Debug)]
struct Said(BTreeMap<String, String>);

const ASKED: [&str; 5] = ["appendonly", "appendfsync", "no-appendfsync-on-rewrite", "save", "maxmemory-policy"];

/// The store promises no more than its weakest server. A replica counts too where it can be reached: it may take over.
pub(super) async fn promises(router: &Router, many_rows: bool) -> Result<Promises, Error> {
    let map = router.map();
    let mut weakest = (Durability::Synced, String::new());
    for (node, master) in map.servers() {
        let said = match said(node).await {
            Ok(said) => said,
            Err(why) if master => return Err(Error::NotApplied(format!("{}: {why}", node.name()))),
            Err(_) => continue,
        };
        if said.get("cluster") == Some("1") && !router.settings().cluster {
            return Err(Error::Broken(format!(
                "{} is a member of a cluster: open it as redis+cluster://",
                node.name()
            )));
        }
        if let Some(policy) = said.get("maxmemory-policy").filter(|policy| *policy != "noeviction") {
            return Err(Error::Broken(format!(
                "{} has maxmemory-policy {policy}: an evicted fence is an effect that runs twice; set it to noeviction",
                node.name()
            )));
        }
        let (durability, why) = said.durability();
        if durability < weakest.0 {
            weakest = (durability, format!("{} {why}", node.name()));
        }
    }
    let (durability, mut because) = weakest;
    if durability == Durability::Synced {
        because =
            "appendfsync always on every server; a failover may lose what its replica had not received".to_owned();
    }
    Ok(Promises { durability, because, shared: true, many_rows, lanes: false })
}

impl Said {
    fn get(&self, name: &str) -> Option<&str> {
        self.0.get(name).map(String::as_str)
    }

    fn durability(&self) -> (Durability, String) {
        match (self.get("appendonly"), self.get("appendfsync")) {
            (Some("yes"), Some("always")) if self.get("no-appendfsync-on-rewrite") == Some("yes") => {
                (Durability::Delayed, "has no-appendfsync-on-rewrite: while it rewrites, nothing is synced".to_owned())
            }
            (Some("yes"), Some("always")) => (Durability::Synced, String::new()),
            (Some("yes"), Some(other)) => (Durability::Delayed, format!("has appendfsync {other}")),
            (Some("yes"), None) => (Durability::Delayed, "does not tell its appendfsync".to_owned()),
            // Writes after the last snapshot are gone with the process.
            _ if self.get("save").is_some_and(|save| !save.is_empty()) => {
                (Durability::None, "has appendonly no, only snapshots".to_owned())
            }
            _ => (Durability::None, "has appendonly no".to_owned()),
        }
    }
}

async fn said(node: &Node) -> Result<Said, String> {
    let values = ask(node, ASKED.map(|name| cmd("CONFIG").arg("GET").arg(name).to_owned())).await?;
    let mut said = Said::default();
    for value in &values {
        said.0.extend(from_redis_value_ref::<BTreeMap<String, String>>(value).unwrap_or_default());
    }
    // Managed services forbid CONFIG; INFO tells less.
    let parts: &[&str] = if said.0.is_empty() { &["cluster", "persistence", "memory"] } else { &["cluster"] };
    for info in ask(node, parts.iter().map(|part| cmd("INFO").arg(part).to_owned())).await? {
        said.read_info(&from_redis_value_ref::<String>(&info).unwrap_or_default());
    }
    Ok(said)
}

impl Said {
    fn read_info(&mut self, info: &str) {
        for (name, value) in info.lines().filter_map(|line| line.trim().split_once(':')) {
            let (name, value) = match (name, value) {
                ("aof_enabled", "1") => ("appendonly", "yes"),
                ("aof_enabled", _) => ("appendonly", "no"),
                ("cluster_enabled", enabled) => ("cluster", enabled),
                ("maxmemory_policy", policy) => ("maxmemory-policy", policy),
                _ => continue,
            };
            self.0.insert(name.to_owned(), value.to_owned());
        }
    }
}

async fn ask(node: &Node, commands: impl IntoIterator<Item = Cmd>) -> Result<Vec<Value>, String> {
    let mut pipeline = Pipeline::new();
    for command in commands {
        pipeline.add_command(command);
    }
    node.reads.send(&pipeline).await.map_err(|fault| fault.to_string())
}

#[cfg(test)]
mod tests {
    use super::*;

    fn said(pairs: &[(&str, &str)]) -> Durability {
        Said(pairs.iter().map(|(name, value)| ((*name).to_owned(), (*value).to_owned())).collect()).durability().0
    }

    #[test]
    fn only_an_append_only_file_that_is_always_synced_is_synced() {
        let always = [("appendonly", "yes"), ("appendfsync", "always"), ("no-appendfsync-on-rewrite", "no")];
        assert_eq!(said(&always), Durability::Synced);
        assert_eq!(said(&[always[0], always[1], ("no-appendfsync-on-rewrite", "yes")]), Durability::Delayed);
        assert_eq!(said(&[always[0], ("appendfsync", "everysec")]), Durability::Delayed);
        assert_eq!(said(&[("appendonly", "no"), ("appendfsync", "always")]), Durability::None);
        assert_eq!(said(&[]), Durability::None);
    }

    #[test]
    fn where_config_is_forbidden_the_sync_is_not_assumed() {
        let mut said = Said::default();
        said.read_info("# Persistence\r\naof_enabled:1\r\n");
        said.read_info("# Memory\r\nmaxmemory_policy:allkeys-lru\r\n");
        assert_eq!(said.durability().0, Durability::Delayed);
        assert_eq!(said.get("maxmemory-policy"), Some("allkeys-lru"));
    }
}
