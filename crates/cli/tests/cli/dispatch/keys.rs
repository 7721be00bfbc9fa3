//! The keys that seal secrets, urls and cursors: rotated on a running server, retired, and lost.

use std::path::PathBuf;

use fencepost_rig::PostgresServer;
use rustix::process::Signal;
use serde_json::{Value, json};
use tempfile::TempDir;

use super::{
    super::server::{BINARY, Serve, Server, command, fencepost, text, until},
    planner::{Planner, event, webhook},
    receiver::{Receiver, SECRET, Say},
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

    // The resealed secret is in the store: a server that never knew the old key sends.
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
fn restored_store_without_its_key_sends_nothing_says_so_and_goes_on_when_the_key_is_there() {
    let (place, receiver) = (Place::new(), Receiver::start());
    let dir = place.dir.path().to_owned();
    let server = place.start();
    let mut planner = Planner(server.client(&place.planner));
    planner.put("WH-1", webhook(&receiver)).ok(200);
    planner.put("WH-2", json!({"executor_id": "dev-wes", "poll": {}})).ok(200);
    // Never delivered: it is in the backup, too.
    receiver.say(Say::Status(503));
    release(&mut planner, "a", "WH-1");
    receiver.nth(1);
    let key = server.client(&place.admin).get("/admin/nodes").ok(200)["keys"]["first"].as_str().unwrap().to_owned();
    let file = dir.join("b.fpb").to_str().unwrap().to_owned();
    let backed_up = fencepost(["backup", "--url", &server.url(), "--token", &place.admin, "--out", &file]);
    let sealed = format!("keys      1 transport is sealed with the key {key}, which no backup holds");
    assert!(text(&backed_up.stdout).contains(&sealed), "{}{}", text(&backed_up.stdout), text(&backed_up.stderr));
    server.kill();
    receiver.say(Say::Status(200));

    let (lost, fresh) = (dir.join("lost"), place.data());
    std::fs::rename(&fresh, &lost).unwrap();
    let said = text(&fencepost(["restore", &file, fresh.to_str().unwrap()]).stdout);
    let kept = fresh.join("secret.key");
    assert!(said.contains(&format!("sealed with the key {key}")) && said.contains(kept.to_str().unwrap()), "{said}");
    std::fs::copy(lost.join("credentials.yml"), fresh.join("credentials.yml")).unwrap();
    let offline = fencepost(["doctor", "--url", "http://127.0.0.1:1", "--data", fresh.to_str().unwrap()]);
    let said = text(&offline.stdout);
    assert!(!offline.status.success() && said.contains(&format!("and {key} is not in")), "{said}");

    let server = place.start();
    let mut planner = Planner(server.client(&place.planner));
    release(&mut planner, "b", "WH-1");
    place.until_logged("\"level\":\"error\",\"msg\":\"the key file is missing, and stored transports are sealed", 1);
    place.until_logged("\"level\":\"error\",\"msg\":\"transports cannot be opened", 1);
    place.until_logged("\"level\":\"error\",\"msg\":\"lanes do not start", 1);
    assert!(!kept.exists(), "no key is made that would open nothing");
    let lane = planner.0.get("/wes/v1/dispatch/lanes/wms:WH-1").ok(200);
    assert_eq!((&lane["state"], &lane["missing_key"]), (&json!("blocked"), &json!(key)), "{lane}");
    assert_eq!((&lane["head"]["attempts"], receiver.count()), (&json!(1), 1), "no attempt is spent");
    let metrics = server.client(&place.admin).get("/metrics").text();
    for line in ["fencepost_lanes_blocked_total 1", "fencepost_lanes{state=\"without_key\"} 1"] {
        assert!(metrics.contains(line), "no {line}: {metrics}");
    }
    // A setting that needs a key to be sealed is refused, and not served broken.
    planner.put("WH-3", webhook(&receiver)).problem(501, "transport-unsupported");
    let pending = server.client(&place.executor).get("/wes/v1/dispatch/pending?limit=1");
    pending.problem(501, "transport-unsupported");
    let said = place.doctor(&server);
    assert!(said.contains(&format!("BAD   keys           1 transport is sealed with {key}")), "{said}");
    let stranger = fencepost(["doctor", "--url", &server.url(), "--token", "nobody", "--data", dir.to_str().unwrap()]);
    let said = text(&stranger.stdout);
    assert!(!stranger.status.success() && said.contains("BAD   keys"), "without a token, too: {said}");

    std::fs::copy(lost.join("secret.key"), &kept).unwrap();
    let came: Vec<String> = receiver.until(3).iter().map(|one| one.id()).collect();
    assert_eq!(came, ["a", "a", "b"]);
    assert!(place.doctor(&server).contains(&format!("{key} seals every transport\n")), "{}", place.doctor(&server));
}

#[test]
fn lane_whose_key_another_file_replaced_waits_and_goes_on_with_both_keys() {
    let (place, receiver) = (Place::new(), Receiver::start());
    let server = place.start();
    let mut planner = Planner(server.client(&place.planner));
    planner.put("WH-1", webhook(&receiver)).ok(200);
    server.kill();
    let key = place.data().join("secret.key");
    let kept = std::fs::read(&key).unwrap();
    let new = "0c".repeat(32).into_bytes();
    std::fs::write(&key, &new).unwrap();

    let server = place.start();
    let mut planner = Planner(server.client(&place.planner));
    release(&mut planner, "a", "WH-1");
    place.until_logged("lanes do not start", 1);
    assert!(place.doctor(&server).contains("BAD   keys           1 transport"), "{}", place.doctor(&server));
    let lane = planner.0.get("/wes/v1/dispatch/lanes/wms:WH-1").ok(200);
    assert_eq!((&lane["state"], &lane["head"]["attempts"]), (&json!("blocked"), &json!(0)), "{lane}");
    // The old key beside the new one: all of it opens again, and is sealed anew.
    std::fs::write(&key, [&*new, b"\n", &*kept].concat()).unwrap();
    place.until_logged("transports sealed anew with the first key", 1);
    assert!(signed::newest_is(&receiver.nth(1), SECRET));
    // A transport that is put again needs no key of before.
    std::fs::write(&key, "0d".repeat(32)).unwrap();
    place.until_logged("keys read again", 2);
    release(&mut planner, "b", "WH-1");
    place.until_logged("lanes do not start", 2);
    planner.put("WH-1", webhook(&receiver)).ok(200);
    assert!(signed::newest_is(&receiver.nth(2), SECRET));
}

/// The key of `--dev` counted as present everywhere, and the lanes of a server without `--dev` did not start.
#[test]
fn store_first_used_with_dev_is_not_said_to_have_its_key_for_another_server() {
    let (dir, receiver) = (tempfile::tempdir().unwrap(), Receiver::start());
    let data = dir.path().join("data");
    let place = |name: &str| dir.path().join(name).to_str().unwrap().to_owned();
    let server = Serve::dev(&data).start();
    Planner(server.client("dev-planner")).put("WH-1", webhook(&receiver)).ok(200);
    let backup = fencepost(["backup", "--url", &server.url(), "--out", &place("b.fpb")]);
    assert!(text(&backup.stdout).contains("the public key of --dev"), "{}", text(&backup.stdout));
    server.kill();
    for told in [
        fencepost(["restore", &place("b.fpb"), &place("restored")]),
        fencepost(["copy", &place("data"), &place("copied"), "--yes"]),
    ] {
        let said = text(&told.stdout);
        assert!(told.status.success(), "{}", text(&told.stderr));
        assert!(said.contains("the public key of --dev") && !said.contains("nothing to do"), "{said}");
    }
    let doctor = || text(&fencepost(["doctor", "--url", "http://127.0.0.1:1", "--data", &place("data")]).stdout);
    assert!(doctor().contains("warn  keys"), "{}", doctor());
    let planner = credential(&data, "fgai-wms", "planner");
    let server = Serve::plain(&data).start();
    let lane = "/wes/v1/dispatch/lanes";
    until("its lane says which key is missing", || {
        let lanes = server.client(&planner).get(lane).ok(200);
        lanes["items"].as_array().unwrap().iter().all(|lane| lane["missing_key"].is_string()).then_some(())
    });
    server.kill();
    assert!(doctor().contains("BAD   keys"), "{}", doctor());
}

#[test]
fn copied_store_says_where_its_key_file_goes() {
    let (place, receiver) = (Place::new(), Receiver::start());
    let server = place.start();
    Planner(server.client(&place.planner)).put("WH-1", webhook(&receiver)).ok(200);
    server.kill();
    let from = place.data().to_str().unwrap().to_owned();
    let to = place.dir.path().join("copy").to_str().unwrap().to_owned();
    let copied = || text(&fencepost(["copy", &from, &to, "--yes"]).stdout);
    let said = copied();
    assert!(said.contains(&format!("copy {from}/secret.key to {to}/secret.key")), "{said}");
    std::fs::copy(format!("{from}/secret.key"), format!("{to}/secret.key")).unwrap();
    let said = copied();
    assert!(said.contains("nothing to do"), "{said}");
    let doctor = fencepost(["doctor", "--url", "http://127.0.0.1:1", "--data", &to]);
    assert!(text(&doctor.stdout).contains("ok    keys"), "{}", text(&doctor.stdout));
}

#[test]
fn node_with_another_key_file_sends_nothing_for_the_lane_it_drives_and_says_so() {
    let (place, receiver, postgres) = (Place::new(), Receiver::start(), PostgresServer::start());
    let (store, dir) = (postgres.fresh_database(), place.dir.path());
    let [first, second] = ["0b", "0c"].map(|byte| byte.repeat(32));
    let log = |node: usize| dir.join(format!("log-{node}"));
    let nodes = [(0, &first), (1, &second)].map(|(node, key)| {
        let [config, key_file] = ["yml", "key"].map(|kind| dir.join(format!("node-{node}.{kind}")));
        std::fs::write(&key_file, key).unwrap();
        let text = format!(
            "server: {{ data: {} }}\ndispatch: {{ egress_allow: [127.0.0.1], key_file: {} }}\n",
            place.data().display(),
            key_file.display()
        );
        std::fs::write(&config, text).unwrap();
        let mut serve = command(BINARY);
        serve.args(["serve", "--listen", "127.0.0.1:0", "--store", &store, "--config"]).arg(config);
        Serve::ready(serve).log(log(node)).start()
    });
    Planner(nodes[0].client(&place.planner)).put("WH-1", webhook(&receiver)).ok(200);
    // The lane is with the node that its first event came through, which lacks the key.
    release(&mut Planner(nodes[1].client(&place.planner)), "a", "WH-1");
    until("the second node says so", || {
        std::fs::read_to_string(log(1)).unwrap().contains("lanes do not start").then_some(())
    });
    let lane = nodes[1].client(&place.planner).get("/wes/v1/dispatch/lanes/wms:WH-1").ok(200);
    assert_eq!((&lane["state"], &lane["head"]["attempts"]), (&json!("blocked"), &json!(0)), "{lane}");
    assert!(place.doctor(&nodes[1]).contains("BAD   keys"), "{}", place.doctor(&nodes[1]));
    assert!(!place.doctor(&nodes[0]).contains("BAD   keys"), "{}", place.doctor(&nodes[0]));
    std::fs::write(dir.join("node-1.key"), format!("{second}\n{first}")).unwrap();
    assert!(signed::newest_is(&receiver.nth(1), SECRET));
}

#[test]
fn nodes_that_share_a_store_rotate_in_two_steps_and_send_throughout() {
    let (place, receiver, postgres) = (Place::new(), Receiver::start(), PostgresServer::start());
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
