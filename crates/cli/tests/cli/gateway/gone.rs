//! Clients that go away, and servers that are stopped or killed, with an effect under way.

use std::{
    fs,
    io::{BufReader, Write},
    net::TcpStream,
};

use rustix::process::Signal;

use super::{
    World,
    caller::{Ask, ask, post, read},
    replayed, started, until,
    upstream::{Say, said},
};

/// Goes away, and returns when the server has seen it: its end of the connection is closed, too.
fn leave(client: BufReader<TcpStream>) {
    let client = client.into_inner();
    let [here, there] = [client.local_addr(), client.peer_addr()].map(|address| address.unwrap().port());
    drop(client);
    let end = format!(" 0100007F:{there:04X} 0100007F:{here:04X} ");
    until("the server has seen its client go", || !fs::read_to_string("/proc/net/tcp").unwrap().contains(&end));
}

fn charge() -> Ask {
    post("/charges").key("k").json("{}")
}

fn held(world: &World) {
    world.upstream.say(Say::Hold(Box::new(said(201, "location: /charges/1\r\n", "done"))));
}

#[test]
fn an_effect_whose_client_has_gone_is_sealed_all_the_same() {
    let world = World::charges();
    held(&world);
    let client = charge().begin(world.address());
    world.upstream.until(1);
    leave(client);
    world.upstream.release();
    let retry = world.settled(&charge());
    assert_eq!((retry.status, retry.text().as_str(), replayed(&retry)), (201, "done", true));
    assert_eq!(world.upstream.count(), 1);
}

#[test]
fn disconnect_before_full_request_has_no_effect() {
    let world = World::charges();
    let bytes = charge().json(r#"{"a":1}"#).bytes();
    let mut stream = TcpStream::connect(world.address()).unwrap();
    stream.write_all(&bytes[..bytes.len() - 3]).unwrap();
    leave(BufReader::new(stream));
    world.send(&post("/charges").key("other").json("{}")).ok(201);
    let key = serde_json::json!({"id": "k"});
    assert_eq!(world.server.admin().lookup("CHARGE", &key, "&tenant=acme").ok(200)["exists"], false);
    assert_eq!(world.upstream.count(), 1);
}

#[test]
fn a_client_that_goes_at_any_moment_leaves_no_claim_without_its_effect() {
    // A claim that nobody acts under would be in flight for the whole of this lease.
    let world = World::new(&super::CHARGES.replace("500ms", "10m"));
    let asked = |round: usize| post("/charges").key(&round.to_string()).json(round.to_string());
    let is_upstream =
        |round: usize| world.upstream.heard().iter().any(|heard| heard.body == round.to_string().as_bytes());
    let mut early = 0;
    for round in 0..200 {
        let client = asked(round).begin(world.address());
        // From before the claim to after the seal.
        (0..round * 20).for_each(|_| std::thread::yield_now());
        match round % 2 {
            0 => early += usize::from(!is_upstream(round)),
            _ => until("its request is upstream", || is_upstream(round)),
        }
        leave(client);
    }
    assert!(early > 0, "no client left before its request was upstream");
    for round in 0..200 {
        assert_eq!(world.send(&asked(round).header("prefer: wait=20")).status, 201, "{round}");
    }
    let heard = world.upstream.heard();
    assert!(heard.iter().all(|heard| heard.attempt() == 1));
    assert_eq!(heard.len(), 200, "each once");
}

#[test]
fn client_that_leaves_while_it_waits_frees_its_seat_and_its_bytes_and_never_goes_upstream() {
    let world = World::new(&super::CHARGES.replace("500ms", "2s"));
    // The first one's outcome stays unknown: its lease runs out, and the next in line would go upstream.
    world.upstream.say(Say::Last(Vec::new()));
    let body = format!("{{\"pad\":\"{}\"}}", "x".repeat(1 << 20));
    let charge = post("/charges").key("k").json(&body);
    world.send(&charge).problem(502, "upstream-failed");
    let waiters: Vec<_> = (0..20).map(|_| charge.clone().header("prefer: wait=50").begin(world.address())).collect();
    world.server.until_waiting(20);
    drop(waiters);
    world.server.until_waiting(0);
    let figures = world.server.client("").get("/metrics").text();
    assert!(figures.contains("fencepost_buffered_bytes 0\n"), "{figures}");
    // One that stays gets its turn when the lease is over; those who left never did.
    world.upstream.say(said(201, "", "done"));
    assert_eq!(world.send(&charge.header("prefer: wait=50")).status, 201);
    assert_eq!(world.upstream.count(), 2);
}

#[test]
fn tenant_with_all_its_waiting_seats_taken_leaves_others_theirs() {
    let limits = "server: { limits: { waiters_per_tenant_max: 2 } }\n";
    let world = World::new(&format!("{limits}{}", super::CHARGES));
    held(&world);
    let waiting =
        |tenant: &str| ask("POST", "/charges").header(&format!("authorization: Bearer {tenant}")).key("k").json("{}");
    let _first = waiting("dev-partner").begin(world.address());
    let _other = waiting("dev-partner-2").begin(world.address());
    world.upstream.until(2);
    let patient = |tenant: &str| waiting(tenant).header("prefer: wait=50");
    let _waiters: Vec<_> = (0..2).map(|_| patient("dev-partner").begin(world.address())).collect();
    world.server.until_waiting(2);
    world.send(&patient("dev-partner")).problem(409, "in-flight");
    let mut other = patient("dev-partner-2").begin(world.address());
    world.server.until_waiting(3);
    world.upstream.release();
    assert!(replayed(&read(&mut other).unwrap()));
}

#[test]
fn sigterm_waits_for_the_seal_of_what_is_under_way() {
    let world = World::charges();
    held(&world);
    let mut client = charge().begin(world.address());
    let gone = post("/charges").key("gone").json("{}");
    let going = gone.begin(world.address());
    world.upstream.until(2);
    leave(going);
    let World { server, upstream, dir } = world;
    server.signal(Signal::TERM);
    let address = server.address;
    until("new connections are refused", || TcpStream::connect(address).is_err().then_some(()));
    upstream.release();
    assert_eq!(read(&mut client).unwrap().status, 201);
    let (status, said) = server.wait();
    assert_eq!(status.code(), Some(0), "{said}");
    let world = World { server: started(&dir, "127.0.0.1:0"), upstream, dir };
    for asked in [charge(), gone] {
        let retry = world.send(&asked);
        assert_eq!((retry.status, retry.text().as_str(), replayed(&retry)), (201, "done", true));
    }
    assert_eq!(world.upstream.count(), 2);
}

#[test]
fn sigterm_waits_for_an_effect_though_nobody_is_connected() {
    let world = World::charges();
    held(&world);
    let client = charge().begin(world.address());
    world.upstream.until(1);
    leave(client);
    let World { server, upstream, dir } = world;
    server.signal(Signal::TERM);
    let address = server.address;
    until("new connections are refused", || TcpStream::connect(address).is_err().then_some(()));
    upstream.release();
    let (status, said) = server.wait();
    assert_eq!(status.code(), Some(0), "{said}");
    let world = World { server: started(&dir, "127.0.0.1:0"), upstream, dir };
    assert!(replayed(&world.send(&charge())));
    assert_eq!(world.upstream.count(), 1);
}

#[test]
fn after_a_kill_between_the_call_and_the_seal_the_next_attempt_is_told() {
    let world = World::charges();
    held(&world);
    let client = charge().begin(world.address());
    let first = world.upstream.until(1).remove(0);
    let world = world.killed();
    drop(client);
    world.upstream.say(said(201, "", "again"));
    let retry = world.settled(&charge());
    assert_eq!((retry.status, retry.text().as_str(), replayed(&retry)), (201, "again", false));
    let second = world.upstream.last();
    assert_eq!((first.attempt(), second.attempt(), world.upstream.count()), (1, 2, 2));
    assert_eq!(first.header("idempotency-key"), second.header("idempotency-key"));
    let told = world.server.admin().lookup("CHARGE", &serde_json::json!({"id": "k"}), "&tenant=acme").ok(200);
    assert_eq!((&told["attempts"], &told["state"]), (&2.into(), &"sealed".into()), "{told}");
}

#[test]
fn an_effect_that_does_not_end_within_the_grace_does_not_keep_the_server() {
    let world = World::new(&format!("server: {{ shutdown_grace: 300ms }}\n{}", super::CHARGES));
    held(&world);
    let client = charge().begin(world.address());
    world.upstream.until(1);
    leave(client);
    let World { server, upstream, dir } = world;
    server.signal(Signal::TERM);
    let (status, said) = server.wait();
    assert_eq!(status.code(), Some(0), "{said}");
    drop((upstream, dir));
}
