//! One request hidden in another: whatever an upstream leaves unread or sends too much of, nothing runs that was not let
//! through, and every answer goes to the request that it answers.

use std::{
    io::{BufRead, BufReader, Read, Write},
    net::{TcpListener, TcpStream},
    sync::{
        Arc, Mutex,
        mpsc::{Receiver, Sender, channel},
    },
    thread,
};

use super::{
    Upstream, World,
    caller::{Ask, ask, post},
    undrained::{SMUGGLED, Undrained, wait_for_the_next},
    upstream::{Say, bytes, head, said},
};

const HIDDEN: &str = "POST /smuggled HTTP/1.1\r\nhost: x\r\nfencepost-tenant: globex\r\nidempotency-key: forged\r\n\
                      content-length: 9\r\n\r\nSMUGGLED!";

/// Rules that differ in what they say of bodies. `UPSTREAM` is an address.
const POLICY: &str = r#"
server: { limits: { request_bytes_max: 64MiB, buffered_bytes_max: 512MiB } }
scopes:
  CHARGE: { key: [id], retain: 1h }
routes:
  - { match: "POST /charges", upstream: "UPSTREAM", scope: CHARGE, key: { id: "header:Idempotency-Key" } }
  - { match: "DELETE /charges", upstream: "UPSTREAM", scope: CHARGE, key: { id: "header:Idempotency-Key" } }
  - { match: "POST /bodies", upstream: "UPSTREAM", scope: CHARGE, key: { id: "header:Idempotency-Key" }, pass_body: true }
  - { match: "POST /kept", upstream: "UPSTREAM", scope: CHARGE, key: { id: "header:Idempotency-Key" },
      upstream_reads_bodies: true }
"#;

fn before(address: std::net::SocketAddr) -> World {
    World::before(Upstream::start(), &POLICY.replace("UPSTREAM", &format!("http://{address}")))
}

fn chunked(body: &str) -> String {
    format!("{:x}\r\n{body}\r\n0\r\n\r\n", body.len())
}

/// A write of another tenant.
fn victim(path: &str, case: &str) -> Ask {
    let asked = ask("POST", path).header("authorization: Bearer dev-partner-2");
    asked.key(&format!("victim-{case}")).header(&format!("x-case: {case}")).json("{}")
}

#[track_caller]
fn assert_own_answer(world: &World, path: &str, case: &str) {
    let answer = world.send(&victim(path, case));
    answer.ok(201);
    let own = serde_json::json!({ "target": path, "case": case });
    assert_eq!(answer.json(), own, "another request's answer");
}

#[test]
fn read_with_a_body_is_refused_and_never_reaches_the_upstream() {
    let upstream = Undrained::start();
    let world = before(upstream.address);
    for method in ["GET", "HEAD", "OPTIONS"] {
        let length = ask(method, "/charges").body(HIDDEN);
        let chunks = ask(method, "/charges").header("transfer-encoding: chunked").body(chunked(HIDDEN));
        let empty = ask(method, "/charges").header("transfer-encoding: chunked").body("0\r\n\r\n");
        let expecting = ask(method, "/charges").header("expect: 100-continue").body(HIDDEN);
        for (index, asked) in [length, chunks, empty, expecting].iter().enumerate() {
            let answer = world.send(asked);
            assert_eq!(answer.status, 400, "{method} {index}");
            assert_own_answer(&world, "/charges", &format!("{method}-{index}"));
        }
    }
    upstream.assert_nothing_smuggled();
    assert!(upstream.heard().iter().all(|heard| heard.method == "POST"), "only writes came through");
    // A length of nothing is no body.
    let asked = ask("GET", "/charges").header("content-length: 0");
    assert_eq!(world.send(&asked).status, 201);
}

#[test]
fn body_that_the_upstream_does_not_read_is_never_read_as_a_request() {
    let upstream = Undrained::start();
    let world = before(upstream.address);
    for round in 0..5 {
        for (index, asked) in [
            ask("GET", "/bodies").body(HIDDEN),
            ask("GET", "/bodies").header("transfer-encoding: chunked").body(chunked(HIDDEN)),
            ask("OPTIONS", "/bodies").body(HIDDEN),
            // The attacker may have a credential, too.
            post("/charges").key(&format!("attack-{round}")).body(HIDDEN),
            post("/charges").key(&format!("chunks-{round}")).header("transfer-encoding: chunked").body(chunked(HIDDEN)),
        ]
        .iter()
        .enumerate()
        {
            assert_eq!(world.send(asked).status, 201, "{round} {index}");
            assert_own_answer(&world, "/charges", &format!("{round}-{index}"));
        }
    }
    upstream.assert_nothing_smuggled();
}

#[test]
fn upstream_that_does_not_close_when_told_to_still_loses_its_connection() {
    // It takes `Connection: close` for nothing, and reads the rest of the body as a request.
    let listener = TcpListener::bind("127.0.0.1:0").unwrap();
    let world = before(listener.local_addr().unwrap());
    let (heard, requests) = channel();
    thread::spawn(move || {
        for (number, stream) in listener.incoming().map_while(Result::ok).enumerate() {
            let heard = heard.clone();
            thread::spawn(move || stubborn(stream, number, &heard));
        }
    });
    assert_eq!(world.send(&post("/charges").key("attack").body(HIDDEN)).status, 201);
    let mut seen = vec![requests.recv().unwrap(), requests.recv().unwrap()];
    assert_eq!(seen, [(0, "/charges".to_owned()), (0, SMUGGLED.to_owned())]);
    // It ran the smuggled request, which is its own mistake; that answer must not reach the next client.
    assert_own_answer(&world, "/charges", "v");
    seen.push(requests.recv().unwrap());
    assert_eq!(seen[2], (1, "/charges".to_owned()));
}

fn stubborn(stream: TcpStream, number: usize, heard: &Sender<(usize, String)>) -> Option<()> {
    let mut stream = BufReader::new(stream);
    loop {
        let mut line = String::new();
        stream.read_line(&mut line).ok()?;
        let target = line.split(' ').nth(1)?.to_owned();
        let head = head(&mut stream)?;
        let case = head.iter().find(|(name, _)| name == "x-case").map_or("none", |(_, case)| case.as_str());
        let body = format!("{{\"target\":\"{target}\",\"case\":\"{case}\"}}");
        heard.send((number, target.clone())).ok()?;
        if target == SMUGGLED {
            wait_for_the_next(&mut stream, &head)?;
        }
        stream.get_mut().write_all(&bytes(201, "", &body)).ok()?;
    }
}

#[test]
fn reads_and_writes_share_no_connection() {
    let world = World::before(Upstream::start(), POLICY);
    for round in 0..3 {
        world.send(&ask("GET", "/charges")).ok(201);
        let delete = ask("DELETE", "/charges").header("authorization: Bearer dev-partner").key(&format!("{round}"));
        world.send(&delete).ok(201);
    }
    // Neither carries a body, so each kind keeps its one.
    assert_eq!(world.upstream.connections(), 2);
}

#[test]
fn connection_that_carried_a_body_is_kept_only_where_the_rule_says_that_it_is_read() {
    let world = World::before(Upstream::start(), POLICY);
    for round in 0..3 {
        world.send(&post("/kept").key(&format!("kept-{round}")).json("{}")).ok(201);
    }
    assert_eq!((world.upstream.connections(), world.upstream.last().header("connection")), (1, None));
    for round in 0..3 {
        world.send(&post("/charges").key(&format!("closed-{round}")).json("{}")).ok(201);
        assert_eq!(world.upstream.last().header("connection"), Some("close"));
    }
    // None of them touches the kept one: should its upstream not read bodies after all, only its own rules suffer.
    assert_eq!(world.upstream.connections(), 4);
    for round in 0..3 {
        world.send(&ask("GET", "/bodies").body("find")).ok(201);
        assert_eq!(world.upstream.last().body, b"find");
        assert_eq!(world.upstream.connections(), 5 + round);
    }
}

#[test]
fn upstream_that_answers_before_it_has_read_the_request_loses_its_connection() {
    let listener = TcpListener::bind("127.0.0.1:0").unwrap();
    let world = before(listener.local_addr().unwrap());
    let (heard, connections) = channel();
    let (read_on, may_read) = channel();
    let may_read = Arc::new(Mutex::new(may_read));
    thread::spawn(move || {
        for (number, stream) in listener.incoming().map_while(Result::ok).enumerate() {
            let (heard, may_read) = (heard.clone(), may_read.clone());
            thread::spawn(move || answer_first(stream, number, &heard, &may_read));
        }
    });
    // More than the kernel takes on its own: the answer comes while the request is being written.
    let large = "x".repeat(32 << 20);
    for round in 0..2 {
        assert_eq!(world.send(&post("/kept").key(&format!("early-{round}")).body(&large)).status, 201);
        assert_eq!(connections.recv().unwrap(), round);
        read_on.send(()).unwrap();
    }
}

/// Answers once it has the head, and reads the body once it may.
fn answer_first(stream: TcpStream, number: usize, heard: &Sender<usize>, may_read: &Mutex<Receiver<()>>) -> Option<()> {
    let mut stream = BufReader::new(stream);
    loop {
        let mut line = String::new();
        stream.read_line(&mut line).ok()?;
        let head = head(&mut stream)?;
        heard.send(number).ok()?;
        stream.get_mut().write_all(&bytes(201, "", "early")).ok()?;
        may_read.lock().unwrap().recv().ok()?;
        let length = head.iter().find(|(name, _)| name == "content-length")?.1.parse().ok()?;
        std::io::copy(&mut stream.by_ref().take(length), &mut std::io::sink()).ok()?;
    }
}

#[test]
fn bytes_behind_an_answer_are_nobodys_answer() {
    let forged = String::from_utf8(bytes(200, "", "forged")).unwrap();
    let world = World::before(Upstream::start(), POLICY);
    for (round, behind) in [&forged, "x", "\r\n", "HTTP/1.1 ", &forged.repeat(3)].into_iter().enumerate() {
        let answer = [bytes(201, "", "own"), behind.as_bytes().to_vec()].concat();
        world.upstream.say(Say::Bytes(answer));
        assert_eq!(world.send(&post("/kept").key(&format!("first-{round}")).json("{}")).text(), "own");
        assert_eq!(world.send(&ask("GET", "/kept")).text(), "own");
        world.upstream.say(said(201, "", "next"));
        assert_eq!(world.send(&post("/kept").key(&format!("next-{round}")).json("{}")).text(), "next");
        assert_eq!(world.send(&ask("GET", "/kept")).text(), "next");
    }
}

#[test]
fn bytes_that_come_while_no_request_is_under_way_are_nobodys_answer() {
    let listener = TcpListener::bind("127.0.0.1:0").unwrap();
    let world = before(listener.local_addr().unwrap());
    let (tell, told) = channel();
    let (done, is_done) = channel();
    thread::spawn(move || chatty(&listener, &told, &done));
    for round in 0..50 {
        let method = if round % 2 == 0 { "HEAD" } else { "GET" };
        let write = post("/kept").key(&format!("own-{round}")).json("{}");
        assert_eq!(world.send(&write).text(), "own", "round {round}");
        tell.send(()).unwrap();
        is_done.recv().unwrap();
        // HEAD with a body, sent late, is such an upstream too.
        let read = world.send(&ask(method, "/kept"));
        assert_eq!((read.status, read.text() == "forged"), (201, false), "round {round}");
        tell.send(()).unwrap();
        is_done.recv().unwrap();
    }
}

/// Sends an answer that nobody asked for on the connection that it served last, whenever it is told to.
fn chatty(listener: &TcpListener, told: &Receiver<()>, done: &Sender<()>) -> Option<()> {
    let (served, last) = channel::<TcpStream>();
    let listener = listener.try_clone().unwrap();
    thread::spawn(move || {
        for stream in listener.incoming().map_while(Result::ok) {
            let (mut stream, served) = (BufReader::new(stream), served.clone());
            thread::spawn(move || {
                loop {
                    let mut line = String::new();
                    stream.read_line(&mut line).ok().filter(|count| *count > 0)?;
                    let head = head(&mut stream)?;
                    let length = head.iter().find(|(name, _)| name == "content-length");
                    let length = length.map_or(0, |(_, length)| length.parse().unwrap());
                    std::io::copy(&mut stream.by_ref().take(length), &mut std::io::sink()).ok()?;
                    served.send(stream.get_ref().try_clone().unwrap()).ok()?;
                    stream.get_mut().write_all(&bytes(201, "", "own")).ok()?;
                }
                #[allow(unreachable_code)]
                Some(())
            });
        }
    });
    loop {
        told.recv().ok()?;
        // It may be gone already.
        let _ = last.recv().ok()?.write_all(&bytes(200, "", "forged"));
        done.send(()).ok()?;
    }
}
