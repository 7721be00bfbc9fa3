//! Jobs while things go wrong: crashes, nodes that end, partners that cancel, and others who want to be served meanwhile.

use fencepost_rig::PostgresServer;
use serde_json::{Value, json};

use super::{
    super::server::{Serve, Server, dev, until},
    jobs::{ended, lines, results, upload},
    sending::{Sender, at, nodes, sku, uom},
};

// Items of which every third waits for a unit that is not there.
fn skus(count: usize) -> Vec<Value> {
    let unit = |number: usize| if number.is_multiple_of(3) { "KG" } else { "EA" };
    (0..count).map(|number| at(sku(&format!("S-{number}"), unit(number)), 1)).collect()
}

#[track_caller]
fn done(sender: &mut Sender, job: &str) -> u64 {
    sender.get(&format!("jobs/{job}")).ok(200)["progress"]["done"].as_u64().unwrap()
}

// Each item was counted once, and its line says the status that the item's own rows show.
fn check(acme: &mut Sender, job: &str, count: usize) {
    let shown = ended(acme, job);
    let quarantined = count.div_ceil(3);
    let summary = json!({"accepted": count - quarantined, "replay": 0, "quarantined": quarantined, "rejected": 0});
    assert_eq!((&shown["status"], &shown["summary"]), (&json!("COMPLETED"), &summary));
    let lines = results(acme, job, "", 1_000);
    let numbers = lines.iter().map(|line| line["line"].as_u64().unwrap());
    assert!(numbers.eq(1..=count as u64), "each line once, in order");
    for (number, line) in lines.iter().enumerate() {
        assert_eq!(line["source_id"], format!("S-{number}"));
        assert_eq!(line["status"], if number.is_multiple_of(3) { "QUARANTINED" } else { "ACCEPTED" }, "{line}");
    }
    for number in [1, count / 2 + 1, count - 1].into_iter().filter(|number| !number.is_multiple_of(3)) {
        let history = acme.get(&format!("master/skus/S-{number}/history")).ok(200);
        assert_eq!(history["items"].as_array().unwrap().len(), 1);
    }
}

#[test]
fn job_goes_on_after_kill_9_and_counts_each_item_once() {
    const COUNT: usize = 20_000;
    let dir = tempfile::tempdir().unwrap();
    let mut server = Serve::dev(dir.path()).start();
    let mut acme = Sender::acme(&server);
    acme.accepted("master/uoms", &[uom("EA")]);
    let job = upload(&mut acme, "master/skus", "b-1", &lines(&skus(COUNT)));
    let mut seen = 0;
    for kill in 1..=4 {
        until("it has moved on", || {
            let now = done(&mut acme, &job);
            (now > seen || now == COUNT as u64).then(|| seen = now)
        });
        server.kill();
        server = Serve::dev(dir.path()).start();
        acme = Sender::acme(&server);
        assert!(done(&mut acme, &job) >= seen, "what was told is lost after kill {kill}");
    }
    check(&mut acme, &job, COUNT);
}

#[test]
fn job_goes_on_at_another_node() {
    const COUNT: usize = 12_000;
    let postgres = PostgresServer::start();
    let mut both = nodes(&postgres, 2);
    let second = both.pop().unwrap();
    let first = both.pop().unwrap();
    let mut acme = Sender::acme(&first);
    acme.accepted("master/uoms", &[uom("EA")]);
    let job = upload(&mut acme, "master/skus", "b-1", &lines(&skus(COUNT)));
    until("it has begun", || (done(&mut acme, &job) > 0).then_some(()));
    first.kill();
    check(&mut Sender::acme(&second), &job, COUNT);
}

#[test]
fn cancelled_job_ends_and_keeps_what_it_has_decided() {
    let server = dev();
    let mut acme = Sender::acme(&server);
    acme.accepted("master/uoms", &[uom("EA")]);
    let job = upload(&mut acme, "master/skus", "b-1", &lines(&skus(30_000)));
    acme.post(&format!("jobs/{job}/cancel?dry_run=true"), "any", "").problem(400, "malformed-request");
    let cancelled = acme.post(&format!("jobs/{job}/cancel"), "any", "").ok(200);
    assert_eq!(cancelled["status"], "CANCELLED");
    let decided = cancelled["progress"]["done"].as_u64().unwrap();
    assert!(decided < 30_000);
    assert_eq!(acme.post(&format!("jobs/{job}/cancel"), "any", "").ok(200), cancelled);
    assert_eq!(results(&mut acme, &job, "", 1_000).len() as u64, decided);
    acme.get("master/skus/S-29999").problem(404, "unknown-item");
    // One that has ended by itself cannot be cancelled any more.
    let whole = upload(&mut acme, "master/skus", "b-2", &lines(&skus(1)));
    ended(&mut acme, &whole);
    acme.post(&format!("jobs/{whole}/cancel"), "any", "").problem(409, "job-ended");
    assert_eq!(done(&mut acme, &job), decided);
}

#[test]
fn small_job_of_another_partner_does_not_wait_for_a_large_one() {
    let server = dev();
    let (mut acme, mut globex) = (Sender::acme(&server), Sender::globex(&server));
    acme.accepted("master/uoms", &[uom("EA")]);
    let large = upload(&mut acme, "master/skus", "b-1", &lines(&skus(40_000)));
    let small = upload(&mut globex, "master/uoms", "b-1", &lines(&[uom("EA")]));
    assert_eq!(ended(&mut globex, &small)["summary"]["accepted"], 1);
    assert!(done(&mut acme, &large) < 40_000, "the large one was over before the small one");
    acme.post(&format!("jobs/{large}/cancel"), "any", "").ok(200);
}

fn released(server: &Server, source_id: &str) -> bool {
    Sender::acme(server).get(&format!("master/skus/{source_id}")).status == 200
}

#[test]
fn arrivals_of_a_job_release_what_waits_for_them() {
    let server = super::super::server::dev_with("ingest: { auto_release: true }");
    let mut acme = Sender::acme(&server);
    acme.quarantined("master/skus", sku("S-1", "EA"));
    let units: Vec<Value> = ["CS", "EA"].map(uom).into();
    let job = upload(&mut acme, "master/uoms", "b-1", &lines(&units));
    ended(&mut acme, &job);
    until("the item is released", || released(&server, "S-1").then_some(()));
}
