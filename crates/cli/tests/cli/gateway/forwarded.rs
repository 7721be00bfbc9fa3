//! Headers to the upstream: ours about the claim, and nothing that was for us or for one connection alone.

use super::{
    World,
    caller::{post, read_head},
};

const POLICY: &str = r#"
server: { limits: { body_timeout: 2s } }
scopes:
  CHARGE: { key: [id], retain: 1h, lease: 30s }
routes:
  - { match: "POST /charges", upstream: "UPSTREAM/api/", scope: CHARGE, key: { id: "header:Idempotency-Key" } }
  - { match: "POST /local", upstream: "LOCALHOST", scope: CHARGE, key: { id: "header:Idempotency-Key" } }
"#;

fn world() -> World {
    let upstream = super::Upstream::start();
    let named = format!("http://localhost:{}", upstream.address.port());
    World::before(upstream, &POLICY.replace("LOCALHOST", &named))
}

#[test]
fn the_upstream_hears_of_the_claim_and_nothing_that_was_for_us() {
    let world = world();
    let body = r#"{"amount": 5}"#;
    let asked = post("/charges?a=b&c=%20d")
        .key("k")
        .header("fencepost-attempt: 99")
        .header("Fencepost-Token: 1")
        .header("fencepost-tenant: globex")
        .header("fencepost-anything: x")
        .header("connection: keep-alive, x-hop, Idempotency-Extra")
        .header("x-hop: 1")
        .header("idempotency-extra: 1")
        .header("keep-alive: timeout=5")
        .header("proxy-connection: keep-alive")
        .header("proxy-authorization: Basic c2VjcmV0")
        .header("te: trailers")
        .header("x-forwarded-for: 10.0.0.1")
        .header("x-forwarded-for: 10.0.0.2")
        .header("cookie: a=b")
        .header("x-end: 1")
        .header("x-end: 2")
        .json(body);
    world.send(&asked).ok(201);
    let heard = world.upstream.last();
    assert_eq!((heard.method.as_str(), heard.target.as_str()), ("POST", "/api/charges?a=b&c=%20d"));
    assert_eq!(heard.body, body.as_bytes());
    let key = heard.header("idempotency-key").unwrap();
    assert!(key.len() == 64 && key.bytes().all(|byte| byte.is_ascii_hexdigit()), "{key}");
    assert_eq!(heard.all("fencepost-attempt"), ["1"]);
    assert!(heard.header("fencepost-token").unwrap().parse::<u64>().unwrap() > 1);
    assert_eq!(heard.all("fencepost-tenant"), ["acme"]);
    assert_eq!(heard.all("host"), [world.upstream.address.to_string()]);
    assert_eq!(heard.all("x-forwarded-host"), ["shop.example"]);
    assert_eq!((heard.all("x-forwarded-for"), heard.all("x-forwarded-proto")), (vec!["127.0.0.1"], vec!["http"]));
    assert_eq!((heard.all("cookie"), heard.all("x-end")), (vec!["a=b"], vec!["1", "2"]));
    assert_eq!(heard.all("content-type"), ["application/json"]);
    // Ours, not the client's: the connection carried a body, and is not used again.
    assert_eq!(heard.all("connection"), ["close"]);
    for name in [
        "authorization",
        "fencepost-anything",
        "x-hop",
        "idempotency-extra",
        "keep-alive",
        "proxy-connection",
        "proxy-authorization",
        "te",
        "upgrade",
        "expect",
        "transfer-encoding",
        "prefer-not",
    ] {
        assert_eq!(heard.header(name), None, "{name}");
    }
}

#[test]
fn a_trace_is_kept_or_begun() {
    let world = world();
    let parent = "00-4bf92f3577b34da6a3ce929d0e0e4736-00f067aa0ba902b7-01";
    world.send(
        &post("/charges").key("a").header(&format!("traceparent: {parent}")).header("tracestate: v=1").json("{}"),
    );
    let heard = world.upstream.last();
    assert_eq!((heard.all("traceparent"), heard.all("tracestate")), (vec![parent], vec!["v=1"]));
    for (key, broken) in [("b", "x-nothing: 1"), ("c", "traceparent: 00-zz-1-01"), ("d", "traceparent: ")] {
        world.send(&post("/charges").key(key).header(broken).json("{}"));
        let heard = world.upstream.last();
        let made = heard.header("traceparent").unwrap_or_default().to_owned();
        let parts: Vec<usize> = made.split('-').map(str::len).collect();
        assert_eq!(parts, [2, 32, 16, 2], "{broken}: {made}");
        assert_eq!(heard.all("traceparent").len(), 1);
    }
}

#[test]
fn the_host_is_the_upstreams_own_name() {
    let world = world();
    world.send(&post("/local").key("k").json("{}")).ok(201);
    assert_eq!(world.upstream.last().all("host"), [format!("localhost:{}", world.upstream.address.port())]);
    assert_eq!(world.upstream.last().target, "/local");
}

#[test]
fn a_chunked_request_arrives_whole_and_once() {
    let world = world();
    let asked = post("/charges")
        .key("k")
        .header("content-type: application/json")
        .header("transfer-encoding: chunked")
        .body("4\r\n{\"a\"\r\n3;x=y\r\n:1}\r\n0\r\nx-trailer: 1\r\n\r\n");
    world.send(&asked).ok(201);
    let heard = world.upstream.last();
    assert_eq!((heard.body.as_slice(), heard.header("x-trailer")), (br#"{"a":1}"#.as_slice(), None));
    // The same content in one piece is the same request.
    assert!(super::replayed(&world.send(&post("/charges").key("k").json(r#"{"a":1}"#))));
    assert_eq!(world.upstream.count(), 1);
}

#[test]
fn a_client_that_expects_100_continue_gets_it() {
    use std::io::{BufRead, Write};
    let world = world();
    let body = r#"{"a":1}"#;
    let bytes = post("/charges").key("k").header("expect: 100-continue").json(body).bytes();
    let head = &bytes[..bytes.len() - body.len()];
    let mut stream = super::caller::ask("GET", "/healthz").begin(world.address());
    super::caller::read(&mut stream).unwrap();
    stream.get_mut().write_all(head).unwrap();
    let mut line = String::new();
    stream.read_line(&mut line).unwrap();
    assert!(line.starts_with("HTTP/1.1 100"), "{line}");
    stream.read_line(&mut line).unwrap();
    assert_eq!(world.upstream.count(), 0);
    stream.get_mut().write_all(body.as_bytes()).unwrap();
    let answer = super::caller::read(&mut stream).unwrap();
    assert_eq!((answer.status, world.upstream.last().body), (201, body.as_bytes().to_vec()));
    assert_eq!(world.upstream.last().header("expect"), None);
    // Without a credential nobody asks for the body.
    let refused = super::caller::ask("POST", "/charges").key("k2").header("expect: 100-continue");
    let mut stream = refused.header("transfer-encoding: chunked").begin(world.address());
    line.clear();
    stream.read_line(&mut line).unwrap();
    assert!(line.starts_with("HTTP/1.1 401"), "{line}");
}

#[test]
fn a_change_of_protocol_is_refused_and_nothing_leaves() {
    let world = world();
    let upgrade = post("/charges").key("k").header("connection: upgrade").header("upgrade: websocket").json("{}");
    let read = super::caller::ask("GET", "/charges").header("connection: Upgrade").header("upgrade: websocket");
    for asked in [upgrade, read] {
        let answer = world.send(&asked);
        assert_eq!(answer.json()["code"], "not-implemented");
        assert!(answer.status >= 400);
    }
    let connect = read_head(&mut super::caller::ask("CONNECT", "shop.example:80").begin(world.address())).unwrap();
    assert!((400..500).contains(&connect.status), "{}", connect.status);
    assert_eq!(world.upstream.connections(), 0);
}

#[test]
fn a_compressed_body_is_refused_before_it_is_read_into() {
    let world = world();
    for coding in ["gzip", "br", "identity, gzip", "deflate"] {
        let coded = post("/charges").key("k").header(&format!("content-encoding: {coding}")).json("\x1f\u{8b}");
        world.send(&coded).problem(415, "coded-body");
    }
    assert_eq!(world.upstream.count(), 0);
    world.send(&post("/charges").key("k").header("content-encoding: identity").json("{}")).ok(201);
}
