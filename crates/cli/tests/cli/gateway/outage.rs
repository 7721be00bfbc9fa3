//! The store goes away: nothing new leaves, and what has happened is sealed when it is back.

use fencepost_rig::PostgresServer;

use super::super::server::Serve;
use super::{
    Upstream, World,
    caller::{post, read},
    replayed, until,
    upstream::{Say, said},
};

fn before_postgres(postgres: &PostgresServer, policy: &str) -> World {
    let (upstream, dir) = (Upstream::start(), tempfile::tempdir().unwrap());
    let policy = format!("server: {{ shutdown_grace: 1s }}\n{policy}");
    let config = dir.path().join("policy.yml");
    std::fs::write(&config, policy.replace("UPSTREAM", &format!("http://{}", upstream.address))).unwrap();
    let server = Serve::sharing(&postgres.url()).arg("--config").arg(&config).start();
    World { server, upstream, dir }
}

#[test]
fn an_effect_waiting_for_its_seal_is_not_done_again_by_its_node() {
    let mut postgres = PostgresServer::start();
    // Its lease is over long before the database is back: the next claim is let in.
    let world = before_postgres(&postgres, &super::CHARGES.replace("lease: 500ms", "lease: 50ms"));
    let asked = post("/charges").key("k").json("{}");
    world.upstream.say(Say::Hold(Box::new(said(201, "", "done"))));
    let mut client = asked.begin(world.address());
    world.upstream.until(1);
    postgres.kill();
    world.upstream.release();
    read(&mut client).unwrap().problem(503, "store-unavailable");
    postgres.restart();
    let replay = until("the outcome is sealed", || Some(world.send(&asked)).filter(|answer| answer.status != 503));
    assert_eq!((replay.status, replay.text().as_str(), world.upstream.count()), (201, "done", 1));
    assert!(replayed(&replay));
}

#[test]
fn an_effect_under_way_past_its_lease_is_not_done_again_by_its_node() {
    let mut postgres = PostgresServer::start();
    let world = before_postgres(&postgres, &super::CHARGES.replace("lease: 500ms", "lease: 3s"));
    let asked = post("/charges").key("k").json("{}");
    world.upstream.say(Say::Hold(Box::new(said(201, "", "done"))));
    let mut client = asked.begin(world.address());
    world.upstream.until(1);
    postgres.kill();
    // No renewal gets through: its lease is over when the database is back, and the next renewal is mostly later than this. A
    // sleep, since the lease runs out by time alone, and the store that could say so is away.
    std::thread::sleep(std::time::Duration::from_millis(3_100));
    postgres.restart();
    let told = until("the database is back", || Some(world.send(&asked)).filter(|answer| answer.status != 503));
    told.problem(409, "in-flight");
    assert_eq!(world.upstream.count(), 1, "nobody is let in beside it");
    world.upstream.release();
    let first = read(&mut client).unwrap();
    assert_eq!((first.status, first.text().as_str()), (201, "done"), "it seals with the right of who came after it");
    assert!(replayed(&world.send(&asked)));
    assert_eq!(world.upstream.count(), 1);
}

#[test]
fn without_its_store_nothing_leaves_and_an_outcome_is_sealed_once_it_is_back() {
    let mut postgres = PostgresServer::start();
    // Held, so that nobody else may act meanwhile: only the outcome itself ends the doubt.
    let world = before_postgres(&postgres, &super::CHARGES.replace("lease: 500ms", "lease: 500ms, on_lapse: hold"));
    let asked = post("/charges").key("k").json("{}");
    world.upstream.say(Say::Hold(Box::new(said(201, "", "done"))));
    let mut client = asked.begin(world.address());
    world.upstream.until(1);
    postgres.kill();
    let refused = world.send(&post("/charges").key("other").json("{}"));
    refused.problem(503, "store-unavailable");
    world.upstream.release();
    // It happened, but nobody could be told so twice: the client hears that it is not known.
    assert_eq!(read(&mut client).unwrap().problem(503, "store-unavailable")["status"], 503);
    assert_eq!(world.upstream.count(), 1, "nothing else left");
    // By now the lease is over.
    let held = world.send(&asked).problem(503, "store-unavailable");
    assert!(held["detail"].as_str().unwrap().contains("in-doubt once the lease has run out"), "{held}");
    postgres.restart();
    let replay = until("the outcome is sealed", || Some(world.send(&asked)).filter(replayed));
    assert_eq!((replay.status, replay.text().as_str()), (201, "done"));
    assert_eq!(world.upstream.count(), 1);
    // An outcome that waits for the store does not keep the server from ending.
    world.upstream.say(Say::Hold(Box::new(said(201, "", "done"))));
    let mut client = post("/charges").key("last").json("{}").begin(world.address());
    world.upstream.until(2);
    postgres.kill();
    world.upstream.release();
    let told = read(&mut client).unwrap().problem(503, "store-unavailable");
    assert!(told["detail"].as_str().unwrap().contains("it was done"), "{told}");
    world.server.signal(rustix::process::Signal::TERM);
    world.server.wait();
}
