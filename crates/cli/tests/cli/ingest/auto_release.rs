//! Items that leave quarantine by themselves when what they wait for arrives, where the policy says so.

use std::path::{Path, PathBuf};

use fencepost_rig::PostgresServer;
use serde_json::json;
use tempfile::TempDir;

use super::{
    super::server::{Dev, Serve, Server, dev, dev_with, until},
    sending::{Sender, at, bom, sku, uom},
};

const POLICY: &str = "ingest: { auto_release: true }\n";

fn until_nothing_waits(sender: &mut Sender) {
    until("everything has left quarantine", || sender.waiting().is_empty().then_some(()));
}

/// A unit is missing, the SKUs that are counted in it, and the BOM of those.
fn chain(sender: &mut Sender) {
    sender.quarantined("master/boms", at(bom("B", "S-1", &["S-2"]), 1));
    sender.quarantined("master/skus", at(sku("S-1", "CS"), 1));
    sender.quarantined("master/skus", at(sku("S-2", "CS"), 1));
}

fn chain_is_released(sender: &mut Sender) {
    until_nothing_waits(sender);
    for path in ["master/skus/S-1", "master/skus/S-2", "master/boms/B"] {
        let read = sender.get(path).ok(200);
        assert_eq!((&read["status"], &read["source_version"]), (&json!("ACTIVE"), &json!(1)), "{path}");
        assert_eq!(sender.all(&format!("{path}/history"), 10).len(), 1, "{path}: released once");
    }
    let ended = sender.all("quarantine?status=RESOLVED", 10);
    assert_eq!(ended.len(), 3);
    assert!(ended.iter().all(|row| row["resolution"] == "RELEASED" && row["resolved_by"] == "fencepost"), "{ended:#?}");
}

fn configured(dir: &TempDir) -> (PathBuf, PathBuf) {
    let config = dir.path().join("fencepost.yml");
    std::fs::write(&config, POLICY).unwrap();
    (dir.path().join("data"), config)
}

fn start(data: &Path, config: &Path) -> Server {
    Serve::dev(data).arg("--config").arg(config).start()
}

#[test]
fn chain_of_items_is_released_by_the_arrival_of_its_first() {
    let server = dev_with(POLICY);
    let mut acme = Sender::acme(&server);
    let mut globex = Sender::globex(&server);
    chain(&mut acme);
    globex.quarantined("master/skus", sku("S-1", "CS"));
    acme.send("master/uoms", "cid-uom", &[uom("CS")]).ok(200);
    chain_is_released(&mut acme);
    assert_eq!(acme.get("master/uoms/CS").ok(200)["correlation_id"], "cid-uom");
    assert_eq!(globex.waiting(), ["S-1"], "what arrived is of another partner");
    // An item that arrives again releases those that began to wait meanwhile.
    acme.delete("master/uoms/CS", "delete").ok(200);
    acme.quarantined("master/skus", sku("S-3", "CS"));
    acme.accepted("master/uoms", &[uom("CS")]);
    until_nothing_waits(&mut acme);
}

#[test]
fn more_items_than_one_batch_holds_are_all_released() {
    let server = dev_with(POLICY);
    let mut acme = Sender::acme(&server);
    let items: Vec<_> = (0..350).map(|number| sku(&format!("S-{number}"), "CS")).collect();
    acme.fresh("master/skus", &items);
    assert_eq!(acme.waiting().len(), 350);
    // One waits for two of them, and for something else.
    acme.quarantined("master/boms", bom("B", "S-0", &["S-1", "ELSEWHERE"]));
    acme.accepted("master/uoms", &[uom("CS")]);
    until("only one waits", || (acme.waiting() == ["B"]).then_some(()));
    until("it waits for the last thing only", || {
        let row = acme.all("quarantine?status=OPEN", 10).remove(0);
        (row["unresolved"].as_array().unwrap().len() == 1).then_some(())
    });
}

#[test]
fn chain_is_released_after_a_kill_9_right_after_the_arrival_was_acknowledged() {
    let dir = tempfile::tempdir().unwrap();
    let (data, config) = configured(&dir);
    for round in 0..5 {
        let server = start(&data, &config);
        let mut acme = Sender::acme(&server);
        let name = |what: &str| format!("{what}-{round}");
        acme.quarantined("master/boms", bom(&name("B"), &name("S"), &[&name("S")]));
        acme.quarantined("master/skus", sku(&name("S"), &name("CS")));
        acme.accepted("master/uoms", &[uom(&name("CS"))]);
        server.kill();
        let server = start(&data, &config);
        let mut acme = Sender::acme(&server);
        until_nothing_waits(&mut acme);
        assert_eq!(acme.get(&format!("master/boms/{}", name("B"))).ok(200)["status"], "ACTIVE");
        assert_eq!(acme.all(&format!("master/boms/{}/history", name("B")), 10).len(), 1);
    }
}

#[test]
fn arrival_at_one_node_of_a_postgres_releases_what_waits_once() {
    let postgres = PostgresServer::start();
    let (database, dir) = (postgres.fresh_database(), tempfile::tempdir().unwrap());
    let (_, config) = configured(&dir);
    let nodes = [(); 2].map(|()| Serve::sharing(&database).arg("--config").arg(&config).start());
    let (mut here, mut there) = (Sender::acme(&nodes[0]), Sender::acme(&nodes[1]));
    chain(&mut here);
    there.accepted("master/uoms", &[uom("CS")]);
    chain_is_released(&mut here);
    // The node that took the arrival is gone before it could follow it up.
    here.quarantined("master/skus", sku("S-3", "KG"));
    there.accepted("master/uoms", &[uom("KG")]);
    let [alive, dead] = nodes;
    dead.kill();
    until_nothing_waits(&mut here);
    drop(alive);
}

#[test]
fn waiting_items_stay_where_the_policy_does_not_release_them() {
    let server = dev();
    let mut acme = Sender::acme(&server);
    chain(&mut acme);
    acme.accepted("master/uoms", &[uom("CS")]);
    assert_eq!(acme.get("capabilities").ok(200)["auto_release"], false);
    // The figures are counted by the same background work, so it has looked at the store since.
    server_has_counted(&server, 3);
    assert_eq!(acme.waiting(), ["B", "S-1", "S-2"]);
}

fn server_has_counted(server: &Dev, open: usize) {
    let line = format!("fencepost_quarantines_open {open}\n");
    let mut anybody = server.client("");
    until(&line, || anybody.get("/metrics").text().contains(&line).then_some(()));
    let metrics = anybody.get("/metrics").text();
    assert!(metrics.contains("fencepost_oldest_quarantine_seconds "), "{metrics}");
}
