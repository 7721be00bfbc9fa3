//! Duplicates get the first answer, byte for byte, without the headers that belong to the first client alone.

use super::{World, caller::post, replayed, upstream::Say, upstream::said};

const ROUTES: &str = r#"
reject_on_body_mismatch: true
scopes:
  CHARGE: { key: [id], retain: 1h, lease: 500ms }
  LENIENT: { key: [id], retain: 1h, reject_on_body_mismatch: false }
routes:
  - { match: "POST /charges", upstream: "UPSTREAM", scope: CHARGE, key: { id: "header:Idempotency-Key" } }
  - match: "POST /lenient"
    upstream: "UPSTREAM"
    scope: LENIENT
    key: { id: "header:Idempotency-Key" }
  - match: "POST /cases"
    upstream: "UPSTREAM/nexa"
    scope: CASE_CREATION
    key: { externalEventId: "body:/externalEventId" }
    replay: { status: 200, header: "X-Nexa-Replayed: true" }
"#;

/// Headers of an answer that may be kept, without `idempotency-expires`, which is ours.
const KEPT: [&str; 5] = ["content-type", "content-encoding", "content-language", "location", "etag"];

#[test]
fn a_replay_is_the_first_answer_byte_for_byte_with_the_headers_that_may_be_kept() {
    let world = World::new(ROUTES);
    let body = "\u{0}\u{1}\r\n{\"not\": \"json\u{fc}\"}  ";
    let headers = "content-type: application/x-odd; a=\"b\"\r\ncontent-encoding: identity\r\ncontent-language: de\r\n\
                   location: /charges/7?a=b\r\netag: W/\"1\"\r\nset-cookie: session=secret\r\nx-rate: 5\r\n\
                   www-authenticate: Basic\r\nserver: shop\r\n";
    world.upstream.say(said(202, headers, body));
    let charge = post("/charges").key("k").json(r#"{"amount":5}"#);
    let first = world.send(&charge);
    assert_eq!((first.status, first.body.as_slice(), replayed(&first)), (202, body.as_bytes(), false));
    assert_eq!(first.header("set-cookie"), Some("session=secret"), "the first client's own answer is whole");
    let ends = first.header("idempotency-expires").unwrap().to_owned();
    for _ in 0..2 {
        let second = world.send(&charge);
        assert_eq!((second.status, &second.body, replayed(&second)), (202, &first.body, true));
        assert_eq!(second.header("idempotency-expires"), Some(ends.as_str()));
        for name in KEPT {
            assert_eq!(second.header(name), first.header(name), "{name}");
        }
        for (name, value) in &second.headers {
            let own = ["idempotency-replayed", "idempotency-expires", "content-length", "date"];
            assert!(KEPT.contains(&name.as_str()) || own.contains(&name.as_str()), "{name}: {value}");
        }
    }
    assert_eq!(world.upstream.count(), 1);
}

#[test]
fn empty_chunked_and_closing_answers_are_kept_whole_too() {
    let world = World::new(ROUTES);
    let chunked = "HTTP/1.1 200 OK\r\ntransfer-encoding: chunked\r\ntrailer: x-sum\r\n\r\n\
                   3;a=b\r\nabc\r\n4\r\ndefg\r\n0\r\nx-sum: 7\r\n\r\n";
    let closing = "HTTP/1.0 200 OK\r\ncontent-type: text/plain\r\n\r\nto the end";
    let early = "HTTP/1.1 100 Continue\r\n\r\nHTTP/1.1 103 Early Hints\r\nlink: </a>\r\n\r\nHTTP/1.1 201 C\r\ncontent-length: 2\r\n\r\nok";
    for (key, say, status, body) in [
        ("chunked", Say::Bytes(chunked.into()), 200, "abcdefg"),
        ("closing", Say::Last(closing.into()), 200, "to the end"),
        ("early", Say::Bytes(early.into()), 201, "ok"),
        ("empty", said(200, "", ""), 200, ""),
        ("nothing", Say::Bytes("HTTP/1.1 204 No Content\r\n\r\n".into()), 204, ""),
        ("moved", said(303, "location: /elsewhere\r\n", "see"), 303, "see"),
        ("unmodified", Say::Bytes("HTTP/1.1 304 Not Modified\r\netag: \"e\"\r\n\r\n".into()), 304, ""),
    ] {
        world.upstream.say(say);
        let calls = world.upstream.count();
        let charge = post("/charges").key(key).json("{}");
        let (first, second) = (world.send(&charge), world.send(&charge));
        assert_eq!((first.status, first.text().as_str()), (status, body), "{key}");
        assert_eq!((second.status, second.text().as_str(), replayed(&second)), (status, body, true), "{key}");
        assert_eq!(first.header("location"), second.header("location"), "{key}");
        assert_eq!(first.header("etag"), second.header("etag"), "{key}");
        assert_eq!(world.upstream.count(), calls + 1, "{key}");
    }
}

#[test]
fn nexas_case_is_opened_once_and_its_replay_is_200_with_its_own_mark() {
    let world = World::new(ROUTES);
    world.upstream.say(said(
        201,
        "content-type: application/json\r\nlocation: /cases/C-1\r\n",
        r#"{"caseUrn": "C-1"}"#,
    ));
    let case = |sent: &str| post("/cases").json(format!(r#"{{"externalEventId":"LH-1","sentAt":"{sent}"}}"#));
    let first = world.send(&case("10:00"));
    assert_eq!((first.status, first.header("x-nexa-replayed")), (201, None));
    // The airline's retry differs in its time, which this scope lets pass.
    for sent in ["10:00", "10:05"] {
        let again = world.send(&case(sent));
        assert_eq!((again.status, &again.body), (200, &first.body));
        assert_eq!((again.header("x-nexa-replayed"), again.header("location")), (Some("true"), Some("/cases/C-1")));
        assert!(replayed(&again));
    }
    assert_eq!((world.upstream.count(), world.upstream.last().target.as_str()), (1, "/nexa/cases"));
}

#[test]
fn another_body_gets_the_first_answer_where_the_scope_says_so() {
    let world = World::new(ROUTES);
    let send = |path: &str, body: &str| world.send(&post(path).key("k").json(body));
    send("/lenient", r#"{"a":1}"#).ok(201);
    assert!(replayed(&send("/lenient", r#"{"a":2}"#)));
    assert!(replayed(&send("/lenient?b=1", "[]")));
    send("/charges", r#"{"a":1}"#).ok(201);
    send("/charges", r#"{"a":2}"#).problem(409, "conflict");
    // Spelled otherwise, the same.
    assert!(replayed(&send("/charges", "{ \"a\" : 1.0 }")));
    assert_eq!(world.upstream.count(), 2);
}

#[test]
fn an_answer_outlives_the_server_that_gave_it() {
    let world = World::new(ROUTES);
    let charge = post("/charges").key("k").json("{}");
    let first = world.send(&charge);
    let world = world.killed();
    let second = world.send(&charge);
    assert_eq!((second.status, &second.body, replayed(&second)), (first.status, &first.body, true));
    assert_eq!(world.upstream.count(), 1);
}
