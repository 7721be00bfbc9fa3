//! Every row of the two tables that say which headers cross, sent through the running gateway, each way.

use fencepost_wire::http::gateway::crossing::{ANSWERS, Crossing, HeaderRule, REQUESTS};

use super::{
    Upstream, World,
    caller::{Ask, ask, post},
    upstream::{Heard, said},
};

const POLICY: &str = r#"
server: { trusted_proxies: [TRUSTED] }
require_headers: [X-Asked-For]
scopes:
  CHARGE: { key: [id], retain: 1h }
routes:
  - { match: "POST /charges", upstream: "UPSTREAM", scope: CHARGE, key: { id: "header:Idempotency-Key" } }
  - { match: "POST /orders", upstream: "UPSTREAM", scope: CHARGE, key: { id: "header:X-Order" }, principal: "header:X-User" }
"#;

fn world(trusted: &str) -> World {
    World::new(&POLICY.replace("TRUSTED", trusted))
}

/// A write with what the policy requires.
fn write(path: &str) -> Ask {
    post(path).header("x-asked-for: 1")
}

/// A name that a row is for.
fn name(row: &HeaderRule) -> String {
    row.name.replace("*_*", "x_sample_name").replace('*', "sample")
}

/// A value that the name may have.
fn value(name: &str) -> &'static str {
    match name {
        "authorization" => "Basic dXNlcg==",
        "connection" => "keep-alive",
        "expect" => "100-continue",
        "host" => "shop.example",
        "te" => "trailers",
        "traceparent" => "00-4bf92f3577b34da6a3ce929d0e0e4736-00f067aa0ba902b7-01",
        "upgrade" => "h2c",
        _ => "1234567",
    }
}

/// A read that carries a row, if it is not one that HTTP itself reads.
fn carrying(row: &HeaderRule) -> Option<(Ask, String, &'static str)> {
    let (name, value) = (name(row), value(&name(row)));
    match name.as_str() {
        // Each frames a body: they have a test of their own.
        "content-length" | "transfer-encoding" => None,
        // There already.
        "host" => Some((ask("GET", "/charges"), name, value)),
        _ => Some((ask("GET", "/charges").header(&format!("{name}: {value}")), name, value)),
    }
}

fn arrived<'h>(heard: &'h Heard, name: &str, value: &str) -> Vec<&'h str> {
    heard.all(name).into_iter().filter(|known| known.contains(value)).collect()
}

#[test]
fn every_row_of_a_request_crosses_as_its_table_says() {
    for (trusted, kept) in [("", false), ("10.0.0.0/8, \"127.0.0.1\"", true)] {
        let world = world(trusted);
        for row in REQUESTS {
            let Some((asked, name, value)) = carrying(row) else { continue };
            world.send(&asked).ok(201);
            let heard = world.upstream.last();
            let crossed = match row.crossing {
                Crossing::Hop | Crossing::Ours | Crossing::Diverts => false,
                Crossing::Forwarding => kept,
                Crossing::Essential => true,
            };
            let expected: &[&str] = if crossed { &[value] } else { &[] };
            assert_eq!(arrived(&heard, &name, value), expected, "{row:?} {trusted:?} {:?}", heard.head);
        }
    }
}

#[test]
fn connection_may_name_nothing_that_is_meant_for_the_upstream() {
    let world = world("");
    for row in REQUESTS {
        let named = name(row);
        // Upgrade to anything but h2c is refused by itself; these two frame a body.
        if matches!(named.as_str(), "upgrade" | "transfer-encoding") {
            continue;
        }
        let before = world.upstream.count();
        let asked = ask("GET", "/charges").header(&format!("connection: close, {}", named.to_uppercase()));
        let answer = world.send(&asked);
        if row.crossing == Crossing::Hop {
            answer.ok(201);
        } else {
            answer.problem(400, "malformed-request");
            let named = write("/charges").key("k").header(&format!("connection: {named}")).json("{}");
            world.send(&named).problem(400, "malformed-request");
            assert_eq!(world.upstream.count(), before, "{row:?}");
        }
    }
    // A rule's own headers are meant for the upstream, too: key and request would differ.
    let order = |connection: &str| {
        write("/orders").header("x-order: 7").header("x-user: ann").header(connection).header("x-hop: 1").json("{}")
    };
    for connection in ["connection: x-order", "connection: X-Asked-For", "connection: x-user"] {
        world.send(&order(connection)).problem(400, "malformed-request");
    }
    world.send(&order("connection: x-hop")).ok(201);
    assert_eq!((world.upstream.last().header("x-order"), world.upstream.last().header("x-hop")), (Some("7"), None));
}

#[test]
fn every_row_of_an_answer_crosses_as_its_table_says() {
    let world = world("");
    for (index, row) in ANSWERS.iter().enumerate() {
        let name = name(row);
        // They frame the answer, and `te` is no word of an answer.
        if matches!(name.as_str(), "transfer-encoding" | "upgrade") {
            continue;
        }
        let value = if name == "connection" { "x-unknown" } else { "1234567" };
        // A `Connection` header of the answer that names it changes nothing.
        world.upstream.say(said(200, &format!("{name}: {value}\r\nconnection: {name}\r\nx-end: 1\r\n"), "said"));
        for answer in
            [world.send(&ask("GET", "/charges")), world.send(&write("/charges").key(&format!("k-{index}")).json("{}"))]
        {
            let crossed = row.crossing == Crossing::Essential;
            let found = answer.headers.iter().any(|(known, said)| *known == name && said == value);
            assert_eq!((answer.text().as_str(), found), ("said", crossed), "{row:?} {:?}", answer.headers);
            assert_eq!(answer.header("x-end"), Some("1"));
        }
    }
}

#[test]
fn upstream_hears_where_a_request_came_from_and_a_client_cannot_say_otherwise() {
    let forged = |asked: Ask| {
        asked
            .header("x-forwarded-for: 10.9.9.9")
            .header("x-forwarded-for: 10.8.8.8")
            .header("x-forwarded-proto: https")
            .header("x-forwarded-host: evil.example")
            .header("forwarded: for=10.9.9.9;proto=https")
            .header("x-real-ip: 10.9.9.9")
            .header("x_forwarded_for: 10.9.9.9")
    };
    let of = |world: &World, asked: Ask| {
        world.send(&asked).ok(201);
        let heard = world.upstream.last();
        ["x-forwarded-for", "x-forwarded-host", "x-forwarded-proto", "forwarded", "x-real-ip", "x_forwarded_for"]
            .map(|name| heard.all(name).join(" | "))
    };
    let untrusted = world("10.0.0.0/8");
    let own = ["127.0.0.1", "shop.example", "http", "", "", ""].map(str::to_owned);
    assert_eq!(of(&untrusted, forged(ask("GET", "/charges"))), own);
    assert_eq!(of(&untrusted, forged(write("/charges").key("a").json("{}"))), own);
    assert_eq!(of(&untrusted, ask("GET", "/charges")), own);
    let trusted = world("127.0.0.0/8");
    let told = ["10.9.9.9, 10.8.8.8, 127.0.0.1", "evil.example", "https", "for=10.9.9.9;proto=https", "10.9.9.9", ""];
    assert_eq!(of(&trusted, forged(ask("GET", "/charges"))), told.map(str::to_owned));
    assert_eq!(of(&trusted, ask("GET", "/charges")), own);
}

#[test]
fn length_of_a_body_is_said_once_and_in_its_shortest_form() {
    let world = world("");
    let asked = write("/charges").key("k").header("content-type: text/plain");
    let text = String::from_utf8(asked.bytes()).unwrap().replace("content-length: 0", "content-length: 0000011");
    let mut stream = ask("GET", "/healthz").begin(world.address());
    super::caller::read(&mut stream).unwrap();
    std::io::Write::write_all(stream.get_mut(), format!("{text}hello world").as_bytes()).unwrap();
    assert_eq!(super::caller::read(&mut stream).unwrap().status, 201);
    let heard = world.upstream.last();
    assert_eq!((heard.all("content-length"), heard.body.as_slice()), (vec!["11"], b"hello world".as_slice()));
    let chunks = write("/charges").key("c").header("transfer-encoding: chunked").body("5\r\nhello\r\n0\r\n\r\n");
    world.send(&chunks).ok(201);
    let heard = world.upstream.last();
    assert_eq!((heard.all("content-length"), heard.all("transfer-encoding")), (vec!["5"], vec![]));
}

#[test]
fn unusable_trusted_proxy_is_refused_at_start() {
    let dir = tempfile::tempdir().unwrap();
    let file = dir.path().join("policy.yml");
    for wrong in ["proxy.internal", "10.0.0.1/8", "10.0.0.0/99"] {
        std::fs::write(&file, format!("server: {{ trusted_proxies: [\"{wrong}\"] }}\n")).unwrap();
        let output = super::super::server::fencepost(["check".as_ref(), file.as_os_str()]);
        let said = format!("{}{}", String::from_utf8_lossy(&output.stdout), String::from_utf8_lossy(&output.stderr));
        assert!(!output.status.success() && said.contains("trusted_proxies"), "{said}");
    }
}

mod protocols {
    //! TLS in front and HTTP/2 behind: cases that only they can show.

    use std::{convert::Infallible, sync::Arc, sync::Mutex};

    use bytes::Bytes;
    use http::{HeaderMap, Request, Response, Version};
    use http_body_util::{BodyExt, Full};
    use hyper::{body::Incoming, service::service_fn};
    use hyper_util::rt::{TokioExecutor, TokioIo};
    use tokio::net::{TcpListener, TcpStream};
    use tokio_rustls::{
        TlsConnector,
        rustls::{ClientConfig, RootCertStore, crypto::ring},
    };

    use super::*;

    type Seen = Arc<Mutex<Vec<(Version, HeaderMap, Bytes, Option<HeaderMap>)>>>;

    async fn record(seen: Seen, request: Request<Incoming>) -> Result<Response<Full<Bytes>>, Infallible> {
        let (parts, body) = request.into_parts();
        let body = body.collect().await.unwrap();
        let trailers = body.trailers().cloned();
        seen.lock().unwrap().push((parts.version, parts.headers, body.to_bytes(), trailers));
        Ok(Response::new(Full::new(Bytes::from_static(b"ok"))))
    }

    #[test]
    fn trailers_of_a_request_reach_no_upstream() {
        let runtime = tokio::runtime::Builder::new_multi_thread().worker_threads(2).enable_all().build().unwrap();
        let seen = Seen::default();
        let listener = runtime.block_on(TcpListener::bind("127.0.0.1:0")).unwrap();
        let (upstream, recorded) = (listener.local_addr().unwrap(), seen.clone());
        runtime.spawn(async move {
            while let Ok((stream, _)) = listener.accept().await {
                let recorded = recorded.clone();
                let service = service_fn(move |request| record(recorded.clone(), request));
                let builder = hyper::server::conn::http2::Builder::new(TokioExecutor::new());
                tokio::spawn(builder.serve_connection(TokioIo::new(stream), service));
            }
        });
        let rule = |path: &str, to: &str| {
            format!(
                "  - {{ match: \"POST {path}\", upstream: \"{to}\", scope: CHARGE, pass_body: true,\n      \
                 key: {{ id: \"header:Idempotency-Key\" }} }}\n"
            )
        };
        let rules = rule("/h2", &format!("h2c://{upstream}")) + &rule("/h1", "UPSTREAM");
        let world = World::before(
            Upstream::start(),
            &format!("scopes:\n  CHARGE: {{ key: [id], retain: 1h }}\nroutes:\n{rules}"),
        );
        let address = world.address();
        runtime.block_on(async {
            let io = TokioIo::new(TcpStream::connect(address).await.unwrap());
            let (mut sender, connection) =
                hyper::client::conn::http2::handshake(TokioExecutor::new(), io).await.unwrap();
            tokio::spawn(connection);
            for (method, path) in [("GET", "/h2"), ("POST", "/h2"), ("GET", "/h1"), ("POST", "/h1")] {
                let mut trailers = HeaderMap::new();
                trailers.insert("fencepost-tenant", "globex".parse().unwrap());
                trailers.insert("x-sum", "1".parse().unwrap());
                let body = Full::new(Bytes::from_static(b"body"));
                let body = body.with_trailers(Box::pin(async move { Some(Ok::<_, Infallible>(trailers)) }));
                let request = Request::builder()
                    .method(method)
                    .uri(format!("http://{address}{path}"))
                    .header("authorization", "Bearer dev-partner")
                    .header("idempotency-key", path)
                    .header("te", "trailers")
                    .header("trailer", "x-sum")
                    .body(body)
                    .unwrap();
                let status = sender.send_request(request).await.unwrap().status();
                assert!(status.is_success(), "{method} {path} {status}");
            }
        });
        let seen = seen.lock().unwrap();
        assert_eq!(seen.len(), 2);
        for (version, head, body, trailers) in seen.iter() {
            assert_eq!((*version, &body[..], trailers.as_ref()), (Version::HTTP_2, &b"body"[..], None));
            assert_eq!((head["fencepost-tenant"].as_bytes(), head.get("trailer")), (&b"acme"[..], None));
            assert_eq!((head.get("te"), head.get("connection")), (None, None));
        }
        for heard in world.upstream.heard() {
            assert_eq!(
                (heard.all("fencepost-tenant"), heard.all("x-sum"), heard.body.as_slice()),
                (vec!["acme"], vec![], &b"body"[..])
            );
        }
        assert_eq!(world.upstream.count(), 2);
    }

    #[test]
    fn upstream_hears_of_tls_in_front() {
        let dir = tempfile::tempdir().unwrap();
        let made = rcgen::generate_simple_self_signed(["localhost".to_owned()]).unwrap();
        let path = |name: &str| dir.path().join(name);
        std::fs::write(path("cert.pem"), made.cert.pem()).unwrap();
        std::fs::write(path("key.pem"), made.signing_key.serialize_pem()).unwrap();
        let tls =
            format!("tls: {{ cert: \"{}\", key: \"{}\" }}", path("cert.pem").display(), path("key.pem").display());
        let policy = POLICY.replace("trusted_proxies: [TRUSTED]", &tls);
        let world = World::before(Upstream::start(), &policy);
        let mut roots = RootCertStore::empty();
        roots.add(made.cert.der().clone()).unwrap();
        let config = ClientConfig::builder_with_provider(Arc::new(ring::default_provider()))
            .with_safe_default_protocol_versions()
            .unwrap()
            .with_root_certificates(roots)
            .with_no_client_auth();
        let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build().unwrap();
        runtime.block_on(async {
            let tcp = TcpStream::connect(world.address()).await.unwrap();
            let name = "localhost".try_into().unwrap();
            let io = TokioIo::new(TlsConnector::from(Arc::new(config)).connect(name, tcp).await.unwrap());
            let (mut sender, connection) = hyper::client::conn::http1::handshake(io).await.unwrap();
            tokio::spawn(connection);
            let request = Request::get("/charges").header("host", "shop.example").header("x-forwarded-proto", "ftp");
            let answer = sender.send_request(request.body(Full::<Bytes>::default()).unwrap()).await.unwrap();
            assert_eq!(answer.status(), 201);
        });
        let heard = world.upstream.last();
        assert_eq!(
            (heard.all("x-forwarded-proto"), heard.all("x-forwarded-host")),
            (vec!["https"], vec!["shop.example"])
        );
    }
}
