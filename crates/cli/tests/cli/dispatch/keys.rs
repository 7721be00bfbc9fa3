//! The keys that seal secrets, urls and cursors: rotated on a running server, retired, and lost.

use std::path::PathBuf;

use fencepost_rig::Postgres;
use rustix::process::Signal;
use serde_json::{Value, json};
use tempfile::TempDir;

use super::{
    super::server::{BINARY, Serve, Server, command, fencepost, text, until},
    planner::{Planner, event, webhook},
    receiver::{Receiver, SECRET},
    routes::{credential, executor},
    signed,
};

struct Place {
    dir: TempDir,
    planner: String,
    executor: String,
    admin: String,
}

impl Place {
    fn new() -> Self {
        let dir = tempfile::tempdir().unwrap();
        let data = dir.path().join("data");
        let (planner, admin) = (credential(&data, "wms", "planner"), credential(&data, "boss", "admin"));
        let executor = executor(&data, "dev-wes", &["wms"]);
        std::fs::write(dir.path().join("fencepost.yml"), "dispatch: { egress_allow: [127.0.0.1] }").unwrap();
        Self { dir, planner, executor, admin }
    }

    fn data(&self) -> PathBuf {
        self.dir.path().join("data")
    }

    fn log(&self) -> PathBuf {
        self.dir.path().join("log")
    }

    fn start(&self) -> Server {
        let config = self.dir.path().join("fencepost.yml");
        Serve::plain(&self.data()).arg("--config").arg(config).log(self.log()).start()
    }

    fn until_logged(&self, line: &str, count: usize) {
        until(line, || (std::fs::read_to_string(self.log()).unwrap().matches(line).count() >= count).then_some(()));
    }

    /// The fingerprints of the keys, the one that seals first.
    fn rotate_key(&self, how: &[&str]) -> Vec<String> {
        let data = self.data();
        let args = [&["credential", "rotate-key", "--data", data.to_str().unwrap()], how].concat();
        let output = fencepost(args);
        assert!(output.status.success(), "{}", text(&output.stderr));
        text(&output.stdout).lines().map(|line| line.split(' ').next().unwrap().to_owned()).collect()
    }

    fn doctor(&self, server: &Server) -> String {
        let mut doctor = command(BINARY);
        doctor.args(["doctor", "--url", &server.url()]).arg("--data").arg(self.data());
        text(&doctor.env("FENCEPOST_TOKEN", &self.admin).output().unwrap().stdout)
    }
}

fn release(planner: &mut Planner, id: &str, warehouse: &str) {
    let mut event = event(id, warehouse);
    event["planner_id"] = json!("wms");
    planner.publish(event.to_string()).ok(202);
}

fn page(server: &Server, place: &Place) -> Value {
    server.client(&place.executor).get("/wes/v1/dispatch/pending?limit=1").ok(200)
}

fn ack(server: &Server, place: &Place, cursor: &Value) -> super::super::client::Answer {
    server.client(&place.executor).post("/wes/v1/dispatch/ack", json!({"cursor": cursor}).to_string())
}

#[test]
fn keys_rotate_on_a_running_server_and_old_ones_are_retired() {
    let (place, receiver) = (Place::new(), Receiver::start());
    let server = place.start();
    let mut planner = Planner(server.client(&place.planner));
    planner.put("WH-1", webhook(&receiver)).ok(200);
    planner.put("WH-2", json!({"executor_id": "dev-wes", "poll": {}})).ok(200);
    for id in ["a", "b", "c", "d"] {
        release(&mut planner, id, "WH-2");
    }
    let mut delivered = 0;
    let mut deliver = |planner: &mut Planner| {
        delivered += 1;
        release(planner, &format!("push-{delivered}"), "WH-1");
        assert!(signed::newest_is(&receiver.nth(delivered), SECRET), "{delivered}");
    };
    deliver(&mut planner);
    let served_before = page(&server, &place)["next_cursor"].clone();
    assert!(place.doctor(&server).contains("seals every transport\n"), "{}", place.doctor(&server));

    let keys = place.rotate_key(&[]);
    assert_eq!(keys.len(), 2);
    place.until_logged("keys read again", 1);
    place.until_logged("transports sealed anew with the first key", 1);
    deliver(&mut planner);
    assert_eq!(planner.put("WH-1", webhook(&receiver)).ok(200)["replay"], true);
    // A cursor that was served under the older key counts, and so does one of the new.
    ack(&server, &place, &served_before).ok(200);
    let served_after = page(&server, &place)["next_cursor"].clone();
    ack(&server, &place, &served_after).ok(200);
    until("doctor says that the older key can go", || place.doctor(&server).contains("--drop-old").then_some(()));

    assert_eq!(place.rotate_key(&["--drop-old"]), keys[..1]);
    place.until_logged("keys read again", 2);
    deliver(&mut planner);
    ack(&server, &place, &served_before).problem(404, "unknown-cursor");
    assert_eq!(page(&server, &place)["events"][0]["correlation_id"], "c", "without a cursor it goes on");
    server.kill();

    // What was resealed is what is stored: a server that never knew the old key sends.
    let server = place.start();
    let mut planner = Planner(server.client(&place.planner));
    deliver(&mut planner);
    assert!(place.doctor(&server).contains(&format!("{} seals every transport\n", keys[0])));
}

#[test]
fn a_key_that_is_staged_opens_and_seals_once_it_is_promoted() {
    let (place, receiver) = (Place::new(), Receiver::start());
    let server = place.start();
    let mut planner = Planner(server.client(&place.planner));
    planner.put("WH-1", webhook(&receiver)).ok(200);
    let staged = place.rotate_key(&["--stage"]);
    place.until_logged("keys read again", 1);
    let promoted = place.rotate_key(&["--promote"]);
    assert_eq!(promoted, [staged[1].clone(), staged[0].clone()]);
    place.until_logged("transports sealed anew with the first key", 1);
    release(&mut planner, "a", "WH-1");
    assert!(signed::newest_is(&receiver.nth(1), SECRET));
    server.signal(Signal::TERM);
    server.wait();
    assert_eq!(std::fs::read_to_string(place.log()).unwrap().matches("sealed anew").count(), 1, "not when staged");
}

#[test]
fn a_lost_key_is_logged_and_doctor_says_so() {
    let (place, receiver) = (Place::new(), Receiver::start());
    let server = place.start();
    let mut planner = Planner(server.client(&place.planner));
    planner.put("WH-1", webhook(&receiver)).ok(200);
    server.kill();
    let key = place.data().join("secret.key");
    let kept = std::fs::read(&key).unwrap();
    std::fs::remove_file(&key).unwrap();

    let server = place.start();
    let mut planner = Planner(server.client(&place.planner));
    place.until_logged("transports cannot be opened", 1);
    assert!(place.doctor(&server).contains("BAD   keys           1 transports"), "{}", place.doctor(&server));
    release(&mut planner, "a", "WH-1");
    until("the lane waits", || {
        let lane = planner.0.get("/wes/v1/dispatch/lanes/wms:WH-1").ok(200);
        (lane["state"] == "retrying").then_some(())
    });
    // The old key beside the new one: all of it opens again, and is sealed anew.
    let new = std::fs::read(&key).unwrap();
    std::fs::write(&key, [&*new, b"\n", &*kept].concat()).unwrap();
    place.until_logged("transports sealed anew with the first key", 1);
    assert!(signed::newest_is(&receiver.nth(1), SECRET));
}

#[test]
fn nodes_that_share_a_store_rotate_in_two_steps_and_send_throughout() {
    let (place, receiver, postgres) = (Place::new(), Receiver::start(), Postgres::start());
    let (store, dir) = (postgres.fresh_database(), place.dir.path());
    let key = |node: usize| dir.join(format!("key-{node}"));
    let log = |node: usize| dir.join(format!("log-{node}"));
    std::fs::write(key(0), "0b".repeat(32)).unwrap();
    // Into its place whole, as the guide says.
    let copy = || {
        std::fs::copy(key(0), dir.join("key.new")).unwrap();
        std::fs::rename(dir.join("key.new"), key(1)).unwrap();
    };
    copy();
    let nodes = [0, 1].map(|node| {
        let config = dir.join(format!("node-{node}.yml"));
        let (data, key) = (place.data(), key(node));
        let text = format!(
            "server: {{ data: {} }}\ndispatch: {{ egress_allow: [127.0.0.1], key_file: {} }}\n",
            data.display(),
            key.display()
        );
        std::fs::write(&config, text).unwrap();
        let mut serve = command(BINARY);
        serve.args(["serve", "--listen", "127.0.0.1:0", "--store", &store, "--config"]).arg(config);
        Serve::ready(serve).log(log(node)).start()
    });
    let until_logged = |node: usize, line: &str, count: usize| {
        until(line, || (std::fs::read_to_string(log(node)).unwrap().matches(line).count() >= count).then_some(()));
    };
    let rotate = |how: &str| {
        let output = fencepost(["credential", "rotate-key", how, "--key-file", key(0).to_str().unwrap()]);
        assert!(output.status.success(), "{}", text(&output.stderr));
    };
    let mut planners = [0, 1].map(|node: usize| Planner(nodes[node].client(&place.planner)));
    for (node, planner) in planners.iter_mut().enumerate() {
        planner.put(&format!("WH-{node}"), webhook(&receiver)).ok(200);
    }
    planners[0].put("WH-P", json!({"executor_id": "dev-wes", "poll": {}})).ok(200);
    for id in 0..6 {
        release(&mut planners[0], &format!("poll-{id}"), "WH-P");
    }
    let mut delivered = 0;
    // Each lane is with the node that its first event came through. A cursor of one node is taken at the other.
    let mut all_send = |round: &str| {
        for (node, planner) in planners.iter_mut().enumerate() {
            delivered += 1;
            release(planner, &format!("{round}-{node}"), &format!("WH-{node}"));
            assert!(signed::newest_is(&receiver.nth(delivered), SECRET), "{round} {node}");
        }
        for (here, there) in [(0, 1), (1, 0)] {
            ack(&nodes[there], &place, &page(&nodes[here], &place)["next_cursor"]).ok(200);
        }
    };
    all_send("before");
    rotate("--stage");
    until_logged(0, "keys read again", 1);
    copy();
    until_logged(1, "keys read again", 1);
    rotate("--promote");
    until_logged(0, "transports sealed anew with the first key", 1);
    // The second node has the file of before, and opens what the first has sealed.
    all_send("promoted-on-one");
    copy();
    until_logged(1, "keys read again", 2);
    rotate("--drop-old");
    copy();
    until_logged(0, "keys read again", 3);
    until_logged(1, "keys read again", 3);
    for node in &nodes {
        let said = node.client(&place.admin).get("/admin/nodes").ok(200);
        assert_eq!((&said["keys"]["others"], &said["keys"]["unreadable"]), (&json!(0), &json!(0)), "{said}");
    }
    all_send("dropped");
}
