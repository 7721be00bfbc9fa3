//! The state of the fence after each answer: sealed, free again, or unknown until the lease runs out.

use std::net::TcpListener;

use serde_json::json;

use super::{
    World,
    caller::{Ask, post},
    in_flight, replayed,
    upstream::{Say, Upstream, bytes, said},
};

const POLICY: &str = r#"
gateway: { timeout: 400ms }
scopes:
  CHARGE: { key: [id], retain: 1h, lease: 500ms }
  HELD: { key: [id], retain: 1h, lease: 500ms, on_lapse: hold }
routes:
  - { match: "POST /charges", upstream: "UPSTREAM", scope: CHARGE, key: { id: "header:Idempotency-Key" } }
  - { match: "POST /held", upstream: "UPSTREAM", scope: HELD, key: { id: "header:Idempotency-Key" } }
  - { match: "POST /release", upstream: "UPSTREAM", scope: CHARGE, key: { id: "header:Idempotency-Key" }, on_error: release }
  - { match: "POST /seal", upstream: "UPSTREAM", scope: CHARGE, key: { id: "header:Idempotency-Key" }, on_error: seal }
"#;

fn charge(path: &str, key: &str) -> Ask {
    post(path).key(key).json(r#"{"amount":5}"#)
}

#[test]
fn an_outcome_is_sealed_and_an_answer_that_a_retry_may_change_is_not() {
    let world = World::new(POLICY);
    for status in [200, 201, 202, 206, 226, 300, 302, 308, 400, 402, 404, 405, 410, 413, 415, 418, 422, 451, 499] {
        world.upstream.say(said(status, "", "said"));
        let (asked, calls) = (charge("/charges", &status.to_string()), world.upstream.count());
        let (first, second) = (world.send(&asked), world.send(&asked));
        assert_eq!((first.status, replayed(&first)), (status, false));
        assert_eq!((second.status, second.text().as_str(), replayed(&second)), (status, "said", true));
        assert!(first.header("idempotency-expires").is_some(), "{status}");
        assert_eq!(world.upstream.count(), calls + 1, "{status}");
    }
    for status in [401, 403, 408, 409, 425, 429] {
        world.upstream.say(said(status, "retry-after: 7\r\n", "not now"));
        let (asked, calls) = (charge("/charges", &status.to_string()), world.upstream.count());
        let first = world.send(&asked);
        assert_eq!((first.status, first.text().as_str()), (status, "not now"));
        assert_eq!((first.header("retry-after"), first.header("idempotency-expires")), (Some("7"), None));
        world.upstream.say(said(201, "", "done"));
        let second = world.send(&asked);
        assert_eq!((second.status, replayed(&second)), (201, false), "{status}");
        assert_eq!(world.upstream.count(), calls + 2);
        assert_eq!(world.upstream.last().attempt(), 2, "the attempt counted");
    }
}

#[test]
fn a_refused_connection_frees_the_key_at_once() {
    // Below the ports that connections get by themselves: no other process takes it meanwhile.
    let bound = || TcpListener::bind(("127.0.0.1", fastrand::u16(20_000..32_000))).ok();
    let listener = (0..100).find_map(|_| bound()).unwrap();
    let address = listener.local_addr().unwrap();
    drop(listener);
    let other = Upstream::start();
    let world = World::before(other, &POLICY.replace("UPSTREAM", &format!("http://{address}")));
    for path in ["/charges", "/held", "/seal"] {
        let refused = world.send(&charge(path, path));
        refused.problem(502, "upstream-unreachable");
        assert!(refused.header("retry-after").is_some());
    }
    let upstream = Upstream::on(TcpListener::bind(address).unwrap());
    for (number, path) in ["/charges", "/held", "/seal"].into_iter().enumerate() {
        world.send(&charge(path, path)).ok(201);
        assert_eq!((upstream.count(), upstream.last().attempt()), (number + 1, 2));
    }
}

/// Ways of giving no outcome, and what the client hears.
fn silences() -> Vec<(&'static str, Say, u16)> {
    vec![
        ("500", said(500, "x-a: b\r\n", "broken"), 500),
        ("503", said(503, "", "broken"), 503),
        ("599", said(599, "", "broken"), 599),
        ("nothing", Say::Last(Vec::new()), 502),
        ("half a head", Say::Last(b"HTTP/1.1 200 O".to_vec()), 502),
        ("not HTTP", Say::Last(b"what?\r\n\r\n".to_vec()), 502),
        (
            "another protocol",
            Say::Last(b"HTTP/1.1 101 Switching\r\nupgrade: x\r\nconnection: upgrade\r\n\r\n".to_vec()),
            502,
        ),
        ("silence", Say::Hold(Box::new(said(200, "", ""))), 504),
    ]
}

/// Heads that say it was done, with bodies that break off.
fn torn(more: &str) -> Vec<(&'static str, Say, u16)> {
    let head = format!("HTTP/1.1 201 Created\r\nlocation: /charges/1\r\n{more}");
    let bytes = |rest: &str| format!("{head}{rest}").into_bytes();
    vec![
        ("half a body", Say::Last(bytes("content-length: 9\r\n\r\nhalf")), 502),
        ("half a chunk", Say::Last(bytes("transfer-encoding: chunked\r\n\r\n9\r\nhalf")), 502),
        ("silence within", Say::Bytes(bytes("content-length: 9\r\n\r\nhalf")), 504),
    ]
}

#[test]
fn no_outcome_is_unknown_until_the_lease_runs_out_and_then_the_next_attempt_is_told() {
    let world = World::new(POLICY);
    for (what, say, status) in silences().into_iter().chain(torn("")) {
        world.upstream.say(say);
        let (asked, calls) = (charge("/charges", &what.replace(' ', "-")), world.upstream.count());
        let first = world.send(&asked);
        assert_eq!(first.status, status, "{what}: {}", first.text());
        assert_eq!(first.header("idempotency-expires"), None, "{what}");
        assert!(in_flight(&world.send(&asked)), "{what}: it may have happened");
        assert_eq!(world.upstream.count(), calls + 1, "{what}");
        world.upstream.say(said(201, "", "done"));
        let next = world.settled(&asked);
        assert_eq!((next.status, replayed(&next)), (201, false), "{what}");
        let heard = world.upstream.heard();
        let (one, two) = (&heard[calls], &heard[calls + 1]);
        assert_eq!((heard.len(), one.attempt(), two.attempt()), (calls + 2, 1, 2), "{what}");
        assert_eq!(one.header("idempotency-key"), two.header("idempotency-key"), "{what}");
        let token = |number: usize| heard[number].header("fencepost-token").unwrap().parse::<u64>().unwrap();
        assert!(token(calls) < token(calls + 1), "{what}");
    }
}

#[test]
fn a_payment_without_an_outcome_is_held_until_a_person_says_what_became_of_it() {
    let world = World::new(POLICY);
    world.upstream.say(said(500, "", "broken"));
    let asked = charge("/held", "k");
    assert_eq!(world.send(&asked).status, 500);
    world.settled(&asked).problem(409, "in-doubt");
    world.send(&asked).problem(409, "in-doubt");
    assert_eq!(world.upstream.count(), 1);
    let mut admin = world.server.admin();
    let resolve = json!({"scope": "HELD", "key": {"id": "k"}, "tenant": "acme", "why": "asked the bank",
        "outcome": "sealed", "effect_id": "PAY-1", "receipt": {"paid": [1, 2.50]}});
    admin.post("/admin/idempotency/resolve", resolve.to_string()).ok(200);
    let replay = world.send(&asked);
    assert_eq!((replay.status, replay.header("content-type")), (200, Some("application/json")));
    assert_eq!((replay.text().as_str(), replayed(&replay)), (r#"{"paid":[1,2.5]}"#, true));
    assert_eq!(world.upstream.count(), 1);
}

#[test]
fn a_route_may_say_that_no_outcome_frees_the_key() {
    let world = World::new(POLICY);
    for (what, say, status) in silences() {
        world.upstream.say(say);
        let (asked, calls) = (charge("/release", &what.replace(' ', "-")), world.upstream.count());
        assert_eq!(world.send(&asked).status, status, "{what}");
        world.upstream.say(said(201, "", "done"));
        let next = world.send(&asked);
        assert_eq!((next.status, replayed(&next), world.upstream.last().attempt()), (201, false, 2), "{what}");
        assert_eq!(world.upstream.count(), calls + 2, "{what}");
    }
}

#[test]
fn a_body_that_breaks_off_does_not_free_an_effect_that_was_reported_done() {
    let world = World::new(POLICY);
    for (what, say, status) in torn("") {
        world.upstream.say(say);
        let (asked, calls) = (charge("/release", &what.replace(' ', "-")), world.upstream.count());
        assert_eq!(world.send(&asked).status, status, "{what}");
        assert!(in_flight(&world.send(&asked)), "{what}");
        assert_eq!(world.upstream.count(), calls + 1, "{what}");
    }
    for (path, more) in [("/seal", ""), ("/release", "fencepost-outcome: applied\r\n")] {
        for (what, say, _) in torn(more) {
            world.upstream.say(say);
            let asked = charge(path, &format!("{}{}", what.replace(' ', "-"), more.len()));
            let calls = world.upstream.count();
            let (first, second) = (world.send(&asked), world.send(&asked));
            for answer in [&first, &second] {
                assert_eq!((answer.status, answer.text().as_str()), (201, ""), "{path} {what}");
                assert_eq!(answer.header("fencepost-body"), Some("omitted"), "{path} {what}");
                assert_eq!(answer.header("location"), Some("/charges/1"));
            }
            assert_eq!((replayed(&first), replayed(&second), world.upstream.count()), (false, true, calls + 1));
        }
    }
}

#[test]
fn a_route_may_say_that_no_outcome_is_the_answer() {
    let world = World::new(POLICY);
    for (what, say, status) in silences() {
        world.upstream.say(say);
        let (asked, calls) = (charge("/seal", &what.replace(' ', "-")), world.upstream.count());
        let first = world.send(&asked);
        assert_eq!(first.status, status, "{what}");
        let next = world.send(&asked);
        assert_eq!((next.status, replayed(&next)), (status, true), "{what}");
        assert_eq!((next.text(), next.header("content-type")), (first.text(), first.header("content-type")), "{what}");
        assert_eq!(world.upstream.count(), calls + 1, "{what}");
    }
}

#[test]
fn the_upstream_itself_may_say_whether_it_happened() {
    let world = World::new(POLICY);
    for (key, status, word) in [("a", 500, "applied"), ("b", 429, "applied"), ("c", 201, "applied")] {
        world.upstream.say(said(
            status,
            &format!("fencepost-outcome: {word}\r\nfencepost-effect-id: E-{key}\r\n"),
            "once",
        ));
        let (asked, calls) = (charge("/charges", key), world.upstream.count());
        let (first, second) = (world.send(&asked), world.send(&asked));
        assert_eq!((first.status, first.header("fencepost-outcome")), (status, None), "it is said to us");
        assert_eq!(first.header("fencepost-effect-id"), None);
        assert_eq!((second.status, second.text().as_str(), replayed(&second)), (status, "once", true));
        assert_eq!(world.upstream.count(), calls + 1);
        let told = world.server.admin().lookup("CHARGE", &json!({"id": key}), "&tenant=acme").ok(200);
        assert_eq!(told["resultUrn"], format!("E-{key}"));
    }
    for (key, status) in [("d", 500), ("e", 201), ("f", 404)] {
        world.upstream.say(Say::Bytes(bytes(status, "Fencepost-Outcome: not-applied\r\n", "no")));
        let asked = charge("/charges", key);
        let first = world.send(&asked);
        assert_eq!((first.status, first.header("fencepost-outcome")), (status, None));
        world.upstream.say(said(201, "", "done"));
        let second = world.send(&asked);
        assert_eq!((second.status, second.text().as_str(), replayed(&second)), (201, "done", false));
        assert_eq!(world.upstream.last().attempt(), 2);
    }
}
