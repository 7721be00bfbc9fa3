//! Requests that are not fenced: reads pass as they are, and a path without a rule goes nowhere.

use super::{
    World,
    caller::{ask, post},
    replayed,
    upstream::{Say, said},
};

const POLICY: &str = r#"
scopes:
  CHARGE: { key: [id], retain: 1h }
routes:
  - { match: "POST /charges", upstream: "UPSTREAM", scope: CHARGE, key: { id: "header:Idempotency-Key" } }
  - { match: "PUT /charges/{id}", upstream: "UPSTREAM", scope: CHARGE, key: { id: "path:id" } }
"#;

#[test]
fn reads_pass_untouched_unfenced_and_without_a_credential() {
    let world = World::new(POLICY);
    world.upstream.script(|heard| match heard.method.as_str() {
        "HEAD" => Say::Bytes(b"HTTP/1.1 200 OK\r\ncontent-length: 12345\r\netag: \"e\"\r\n\r\n".to_vec()),
        "OPTIONS" => said(204, "allow: POST\r\naccess-control-allow-origin: *\r\n", ""),
        _ => said(200, "set-cookie: a=b\r\nx-more: 1\r\ncache-control: no-store\r\n", "read"),
    });
    for _ in 0..2 {
        let got = world.send(&ask("GET", "/charges?page=2").key("k").header("cookie: a=b"));
        assert_eq!((got.status, got.text().as_str(), replayed(&got)), (200, "read", false));
        assert_eq!((got.header("set-cookie"), got.header("x-more")), (Some("a=b"), Some("1")));
        assert_eq!(got.header("idempotency-expires"), None);
    }
    let heard = world.upstream.last();
    assert_eq!((heard.target.as_str(), heard.header("idempotency-key")), ("/charges?page=2", Some("k")));
    assert_eq!((heard.header("fencepost-attempt"), heard.header("fencepost-token")), (None, None));
    let head = world.send(&ask("HEAD", "/charges/7"));
    assert_eq!((head.status, head.header("content-length"), head.header("etag")), (200, Some("12345"), Some("\"e\"")));
    let options = world.send(&ask("OPTIONS", "/charges").header("origin: http://a"));
    assert_eq!((options.status, options.header("allow")), (204, Some("POST")));
    assert_eq!(world.upstream.count(), 4);
    let trailed = "HTTP/1.1 103 Early\r\nlink: </a>\r\n\r\nHTTP/1.1 200 OK\r\ntransfer-encoding: chunked\r\n\
                   trailer: x-sum\r\n\r\n3\r\nabc\r\n0\r\nx-sum: 6\r\n\r\n";
    world.upstream.say(Say::Bytes(trailed.into()));
    assert_eq!(world.send(&ask("GET", "/charges")).text(), "abc");
    world.upstream.say(said(500, "", "broken"));
    assert_eq!(world.send(&ask("GET", "/charges")).status, 500, "an error passes, too");
    world.upstream.say(Say::Last(Vec::new()));
    world.send(&ask("GET", "/charges")).problem(502, "upstream-failed");
}

#[test]
fn a_credential_of_ours_never_leaves_and_the_applications_own_does() {
    let world = World::new(POLICY);
    world.send(&ask("GET", "/charges").header("authorization: Bearer dev-partner"));
    let heard = world.upstream.last();
    assert_eq!((heard.header("authorization"), heard.header("fencepost-tenant")), (None, Some("acme")));
    world.send(&ask("GET", "/charges").header("authorization: Basic dXNlcg=="));
    let heard = world.upstream.last();
    assert_eq!((heard.header("authorization"), heard.header("fencepost-tenant")), (Some("Basic dXNlcg=="), None));
    // Twice is nobody's credential, and is not passed on with ours in it.
    for second in ["authorization: Bearer dev-partner", "authorization: Basic dXNlcg=="] {
        world.send(&ask("GET", "/charges").header("authorization: Bearer dev-admin").header(second));
        for heard in world.upstream.heard() {
            assert!(!heard.all("authorization").iter().any(|value| value.contains("dev-")), "{:?}", heard.head);
        }
    }
}

#[test]
fn a_path_that_no_route_takes_goes_nowhere_and_another_method_is_not_allowed() {
    let world = World::new(POLICY);
    for path in ["/", "/charge", "/charges/", "/charges/7/lines", "/Charges"] {
        let answer = world.send(&post(path).key("k").json("{}"));
        assert_eq!(answer.status, 404, "{path}: {}", answer.text());
    }
    world.send(&post("//charges").key("k").json("{}")).problem(400, "malformed-request");
    world.send(&ask("GET", "/nowhere")).problem(404, "not-found");
    world.send(&post("/charges/7").json("{}")).problem(405, "method-not-allowed");
    let put = |path: &str| ask("PUT", path).header("authorization: Bearer dev-partner").json("{}");
    for (asked, allowed) in [
        (put("/charges"), "GET, HEAD, OPTIONS, POST"),
        (ask("DELETE", "/charges"), "GET, HEAD, OPTIONS, POST"),
        (ask("TRACE", "/nowhere"), ""),
    ] {
        let answer = world.send(&asked);
        answer.problem(405, "method-not-allowed");
        assert_eq!(answer.header("allow"), Some(allowed), "RFC 9110: a 405 names what is allowed");
    }
    // Our own paths are ours, whatever a route says.
    world.send(&ask("GET", "/healthz")).ok(200);
    for walking in ["/charges/..", "/charges/%2e%2E", "/charges/."] {
        world.send(&put(walking)).problem(400, "malformed-request");
    }
    assert_eq!(world.upstream.connections(), 0);
    world.send(&put("/charges/7")).ok(201);
    assert_eq!(world.upstream.last().target, "/charges/7");
}

#[test]
fn a_long_read_streams_while_it_comes() {
    let world = World::new(POLICY);
    // The answer's first half is here before the upstream has said the second.
    let (half, rest) = ("HTTP/1.1 200 OK\r\ntransfer-encoding: chunked\r\n\r\n4\r\nhalf\r\n", "4\r\nrest\r\n0\r\n\r\n");
    let listener = std::net::TcpListener::bind("127.0.0.1:0").unwrap();
    let policy = POLICY.replace("UPSTREAM", &format!("http://{}", listener.local_addr().unwrap()));
    let own = World::before(super::Upstream::start(), &policy);
    drop(world);
    let mut client = ask("GET", "/charges").begin(own.address());
    let (mut upstream, _) = listener.accept().unwrap();
    std::io::Read::read(&mut upstream, &mut [0; 4096]).unwrap();
    std::io::Write::write_all(&mut upstream, half.as_bytes()).unwrap();
    let head = super::caller::read_head(&mut client).unwrap();
    assert_eq!((head.status, head.header("transfer-encoding")), (200, Some("chunked")));
    let mut line = String::new();
    for expected in ["4\r\n", "half\r\n"] {
        line.clear();
        std::io::BufRead::read_line(&mut client, &mut line).unwrap();
        assert_eq!(line, expected);
    }
    std::io::Write::write_all(&mut upstream, rest.as_bytes()).unwrap();
    assert_eq!(super::upstream::chunks(&mut client).unwrap(), b"rest");
}
