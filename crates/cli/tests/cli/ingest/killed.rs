//! kill -9 under load, again and again on one store: a request and its items are there together or not at all, and what was
//! acknowledged is answered with the same bytes. The same of a backup that is taken under load.

use std::{
    sync::mpsc::{Receiver, Sender as Acks, channel},
    thread,
    time::Instant,
};

use fencepost_rig::PostgresServer;
use serde_json::Value;

use super::{
    super::{
        ledger::{cycles, hear, seed},
        server::{Serve, Server, fencepost, text},
    },
    sending::{Sender, at, body, uom},
};

const SENDERS: usize = 4;
/// Of the items of a request so many are new, and as many get their next version.
const EACH: usize = 10;

/// One request. Its number counts the requests of its sender, and is the version of the items that it brings again.
struct Sent {
    id: String,
    number: u64,
    body: String,
    /// The bytes of its answer, where one was read, and when.
    answer: Option<(Vec<u8>, Instant)>,
}

fn fresh(sender: usize, number: u64) -> impl Iterator<Item = String> {
    (0..EACH).map(move |item| format!("F-{sender}-{number}-{item}"))
}

fn again(sender: usize) -> impl Iterator<Item = String> {
    (0..EACH).map(move |item| format!("A-{sender}-{item}"))
}

/// Sends one request after the other, until one has no answer.
fn send_on(server: &Server, sender: usize, first: u64, acks: &Acks<()>) -> Vec<Sent> {
    let mut acme = Sender::acme(server);
    let mut sent = Vec::new();
    for number in first.. {
        let ids = fresh(sender, number).zip(again(sender)).flat_map(|(fresh, again)| [fresh, again]);
        let items: Vec<Value> = ids.map(|id| at(uom(&id), number)).collect();
        let (id, body) = (format!("r-{sender}-{number}"), body(&items));
        let answer = acme.try_post("master/uoms", &id, body.as_bytes()).ok();
        let over = answer.is_none();
        let answer = answer.map(|answer| {
            assert_eq!(answer.status, 200, "{}", answer.text());
            (answer.body, Instant::now())
        });
        sent.push(Sent { id, number, body, answer });
        if over {
            break;
        }
        let _ = acks.send(());
    }
    sent
}

/// Which of these items are there, each at this version or a higher one.
fn there(acme: &mut Sender, ids: impl Iterator<Item = String>, version: u64) -> Vec<bool> {
    ids.map(|id| {
        let answer = acme.get(&format!("master/uoms/{id}"));
        answer.status == 200 && answer.json()["source_version"].as_u64().unwrap() >= version
    })
    .collect()
}

/// Whether the request had its effect.
fn audit(server: &Server, sender: usize, sent: &Sent) -> bool {
    let mut acme = Sender::acme(server);
    let mut found = there(&mut acme, fresh(sender, sent.number), sent.number);
    found.extend(there(&mut acme, again(sender), sent.number));
    let all = found.iter().all(|there| *there);
    assert!(all || !found.contains(&true), "{} is there in part: {found:?}", sent.id);
    let answer = acme.post("master/uoms", &sent.id, &sent.body);
    assert_eq!(answer.status, 200, "{}", answer.text());
    assert_eq!(
        answer.header("idempotency-replayed").is_some(),
        all,
        "{}: items without their receipt, or it without them",
        sent.id
    );
    assert_eq!(answer.json()["summary"]["accepted"], 2 * EACH, "{}", sent.id);
    if let Some((first, _)) = &sent.answer {
        assert!(all, "{} was acknowledged and is lost", sent.id);
        assert_eq!(answer.body, *first, "{}", sent.id);
    }
    all
}

#[test]
fn acknowledged_requests_survive_kill_9_and_others_are_all_or_nothing() {
    let dir = tempfile::tempdir().unwrap();
    kill_and_audit(|| Serve::dev(dir.path()).start(), cycles(8));
}

#[test]
fn acknowledged_requests_survive_kill_9_of_a_node_on_postgres_and_others_are_all_or_nothing() {
    let postgres = PostgresServer::start();
    let database = postgres.fresh_database();
    kill_and_audit(|| Serve::sharing(&database).start(), cycles(4));
}

#[test]
fn backup_taken_under_load_has_every_request_acknowledged_before_it_and_its_items() {
    let dir = tempfile::tempdir().unwrap();
    let path = |name: &str| dir.path().join(name).to_str().unwrap().to_owned();
    let server = Serve::dev(&dir.path().join("data")).start();
    let (acks, heard): (_, Receiver<()>) = channel();
    let (sent, began): (Vec<Vec<Sent>>, Instant) = thread::scope(|scope| {
        let server = &server;
        let send = |sender| {
            let acks = acks.clone();
            scope.spawn(move || send_on(server, sender, 1, &acks))
        };
        let senders: Vec<_> = (0..SENDERS).map(send).collect();
        hear(&heard, 40);
        let began = Instant::now();
        let output = fencepost(["backup", "--url", &server.url(), "--out", &path("backup")]);
        assert!(output.status.success(), "{}", text(&output.stderr));
        hear(&heard, 40);
        server.signal(rustix::process::Signal::KILL);
        (senders.into_iter().map(|sender| sender.join().unwrap()).collect(), began)
    });
    let output = fencepost(["restore", &path("backup"), &path("restored")]);
    assert!(output.status.success(), "{}", text(&output.stderr));
    let restored = Serve::dev(&dir.path().join("restored")).start();
    let mut acme = Sender::acme(&restored);
    let mut known = 0;
    for (sender, requests) in sent.iter().enumerate() {
        for request in requests {
            let mut found = there(&mut acme, fresh(sender, request.number), request.number);
            found.extend(there(&mut acme, again(sender), request.number));
            let answer = acme.post("master/uoms", &request.id, &request.body);
            let summary = &answer.json()["summary"];
            let is_known = answer.header("idempotency-replayed").is_some();
            assert!(!is_known || found.iter().all(|there| *there), "{}: {found:?}", request.id);
            if let Some((first, at)) = &request.answer {
                assert!(is_known || *at > began, "{} was acknowledged before the backup", request.id);
                assert!(!is_known || answer.body == *first, "{}", request.id);
            }
            let done = summary["accepted"].as_u64().unwrap() + summary["replay"].as_u64().unwrap();
            assert_eq!(done, 2 * EACH as u64, "{}: {summary}", request.id);
            known += usize::from(is_known);
        }
        let next = requests.last().unwrap().number + 1;
        assert_versions(&mut acme, sender, next);
    }
    let all: usize = sent.iter().map(Vec::len).sum();
    assert!(known >= 40 && known < all, "{known} of {all}: the backup was not taken under load");
}

// Each version that was sent was accepted once.
fn assert_versions(acme: &mut Sender, sender: usize, next: u64) {
    let entries = acme.all(&format!("master/uoms/A-{sender}-0/history"), 1_000);
    let versions: Vec<u64> = entries.iter().map(|entry| entry["source_version"].as_u64().unwrap()).collect();
    assert!(versions.iter().copied().eq((1..next).rev()), "{versions:?}");
}

fn kill_and_audit(start: impl Fn() -> Server, cycles: usize) {
    let mut random = fastrand::Rng::with_seed(seed());
    let mut next = [1; SENDERS];
    let (mut acknowledged, mut unheard, mut lost) = (0, 0, 0);
    for _ in 0..cycles {
        let server = start();
        let (acks, heard): (_, Receiver<()>) = channel();
        let enough = random.usize(5..60);
        let sent: Vec<Vec<Sent>> = thread::scope(|scope| {
            let server = &server;
            let senders: Vec<_> = (0..SENDERS)
                .map(|sender| {
                    let (acks, first) = (acks.clone(), next[sender]);
                    scope.spawn(move || send_on(server, sender, first, &acks))
                })
                .collect();
            hear(&heard, enough);
            server.signal(rustix::process::Signal::KILL);
            senders.into_iter().map(|sender| sender.join().unwrap()).collect()
        });
        server.kill();
        let server = start();
        for (sender, requests) in sent.iter().enumerate() {
            for request in requests {
                let had_effect = audit(&server, sender, request);
                match (&request.answer, had_effect) {
                    (Some(_), _) => acknowledged += 1,
                    (None, true) => unheard += 1,
                    (None, false) => lost += 1,
                }
            }
            next[sender] = requests.last().unwrap().number + 1;
        }
    }
    let server = start();
    for (sender, next) in next.into_iter().enumerate() {
        assert_versions(&mut Sender::acme(&server), sender, next);
    }
    eprintln!("kill -9: {acknowledged} requests acknowledged, 0 lost; {unheard} done and unheard, {lost} not done");
    assert!(acknowledged > 50, "the load did too little to prove anything");
}
