//! HTTP/2 on either side, and TLS to an upstream that a private authority vouches for.

use std::{
    convert::Infallible,
    net::SocketAddr,
    sync::{
        Arc,
        atomic::{AtomicUsize, Ordering::SeqCst},
    },
};

use bytes::Bytes;
use http::{Request, Response, Version};
use http_body_util::{BodyExt, Full};
use hyper::{body::Incoming, service::service_fn};
use hyper_util::rt::{TokioExecutor, TokioIo};
use tokio::{
    io::{AsyncRead, AsyncWrite},
    net::{TcpListener, TcpStream},
    runtime::Runtime,
};
use tokio_rustls::{
    TlsAcceptor,
    rustls::{ServerConfig, crypto::ring, pki_types::PrivateKeyDer},
};

use super::{
    Upstream, World,
    caller::{post, replayed_twice},
};

/// An application that counts, and answers with what it was asked by.
#[derive(Clone, Default)]
struct Counter(Arc<AtomicUsize>);

impl Counter {
    async fn answer(self, request: Request<Incoming>) -> Result<Response<Full<Bytes>>, Infallible> {
        let (parts, body) = request.into_parts();
        let body = body.collect().await.unwrap().to_bytes();
        let number = self.0.fetch_add(1, SeqCst) + 1;
        let text = |name: &str| parts.headers.get(name).map_or("", |value| value.to_str().unwrap()).to_owned();
        let host = parts.uri.authority().map_or_else(|| text("host"), ToString::to_string);
        let said = format!(
            "{number} {:?} {} {} {} {host} {}",
            parts.version,
            parts.method,
            parts.uri.path(),
            text("fencepost-attempt"),
            String::from_utf8_lossy(&body)
        );
        Ok(Response::builder().status(201).header("etag", "\"e\"").body(Full::new(said.into())).unwrap())
    }

    async fn serve(self, io: impl AsyncRead + AsyncWrite + Unpin + Send + 'static, version: Version) {
        let service = service_fn(move |request| self.clone().answer(request));
        let io = TokioIo::new(io);
        let _ = if version == Version::HTTP_2 {
            hyper::server::conn::http2::Builder::new(TokioExecutor::new()).serve_connection(io, service).await
        } else {
            hyper::server::conn::http1::Builder::new().serve_connection(io, service).await
        };
    }

    /// On a port of its own, over TLS where there is a certificate.
    fn start(&self, runtime: &Runtime, version: Version, tls: Option<TlsAcceptor>) -> SocketAddr {
        let listener = runtime.block_on(TcpListener::bind("127.0.0.1:0")).unwrap();
        let (address, counter) = (listener.local_addr().unwrap(), self.clone());
        runtime.spawn(async move {
            while let Ok((stream, _)) = listener.accept().await {
                let (counter, tls) = (counter.clone(), tls.clone());
                tokio::spawn(async move {
                    match tls {
                        None => counter.serve(stream, version).await,
                        Some(tls) => {
                            if let Ok(stream) = tls.accept(stream).await {
                                counter.serve(stream, version).await;
                            }
                        }
                    }
                });
            }
        });
        address
    }
}

fn policy(upstream: &str, more: &str) -> String {
    format!(
        r#"
{more}
scopes:
  CHARGE: {{ key: [id], retain: 1h }}
routes:
  - {{ match: "POST /charges", upstream: "{upstream}", scope: CHARGE, key: {{ id: "header:Idempotency-Key" }} }}
"#
    )
}

fn runtime() -> Runtime {
    tokio::runtime::Builder::new_multi_thread().worker_threads(2).enable_all().build().unwrap()
}

#[test]
fn a_client_may_speak_http_2_by_prior_knowledge() {
    let world = World::charges();
    let (runtime, address) = (runtime(), world.address());
    let answers = runtime.block_on(async move {
        let stream = TcpStream::connect(address).await.unwrap();
        let io = TokioIo::new(stream);
        let (sender, connection) = hyper::client::conn::http2::handshake(TokioExecutor::new(), io).await.unwrap();
        tokio::spawn(connection);
        let send = |key: &str, body: &str| {
            let request = Request::post(format!("http://{address}/charges"))
                .header("authorization", "Bearer dev-partner")
                .header("idempotency-key", key)
                .header("content-type", "application/json")
                .body(Full::new(Bytes::from(body.to_owned())))
                .unwrap();
            let mut sender = sender.clone();
            async move {
                let (parts, body) = sender.send_request(request).await.unwrap().into_parts();
                (parts, body.collect().await.unwrap().to_bytes())
            }
        };
        let first = send("k", "{}").await;
        let second = send("k", "{}").await;
        let conflict = send("k", "[]").await;
        // Many streams of one connection at once.
        let many = (0..20).map(|number| tokio::spawn(send(&format!("m-{}", number % 10), "{}")));
        let mut statuses = Vec::new();
        for one in many.collect::<Vec<_>>() {
            statuses.push(one.await.unwrap().0.status.as_u16());
        }
        (first, second, conflict, statuses)
    });
    let ((first, body), (second, again), (conflict, _), statuses) = answers;
    assert_eq!((first.version, first.status.as_u16(), &body[..]), (Version::HTTP_2, 201, &b"{\"charge\": 1}"[..]));
    assert_eq!((second.status.as_u16(), &again), (201, &body));
    assert_eq!(second.headers["idempotency-replayed"], "true");
    assert_eq!(conflict.status.as_u16(), 409);
    assert!(statuses.iter().all(|status| matches!(status, 201 | 409)), "{statuses:?}");
    assert_eq!(world.upstream.count(), 11);
    let heard = &world.upstream.heard()[0];
    assert_eq!((heard.header("authorization"), heard.header("fencepost-attempt")), (None, Some("1")));
    assert_eq!(heard.all("host"), [world.upstream.address.to_string()]);
    assert_eq!(heard.body, b"{}");
}

#[test]
fn read_over_http_2_with_a_body_is_refused_unless_its_rule_passes_bodies() {
    let world = World::new(
        r#"
scopes:
  CHARGE: { key: [id], retain: 1h }
routes:
  - { match: "POST /charges", upstream: "UPSTREAM", scope: CHARGE, key: { id: "header:Idempotency-Key" } }
  - { match: "POST /find", upstream: "UPSTREAM", scope: CHARGE, key: { id: "header:Idempotency-Key" }, pass_body: true }
"#,
    );
    let address = world.address();
    runtime().block_on(async move {
        let io = TokioIo::new(TcpStream::connect(address).await.unwrap());
        let (mut sender, connection) = hyper::client::conn::http2::handshake(TokioExecutor::new(), io).await.unwrap();
        tokio::spawn(connection);
        for (method, path, status) in [("GET", "/charges", 400), ("OPTIONS", "/charges", 400), ("GET", "/find", 201)] {
            // A body that has been mapped no longer knows its length.
            let body = Full::new(Bytes::from("{\"find\":1}")).map_frame(|frame| frame);
            let request = Request::builder().method(method).uri(format!("http://{address}{path}")).body(body).unwrap();
            assert_eq!(sender.send_request(request).await.unwrap().status(), status, "{method} {path}");
        }
    });
    assert_eq!((world.upstream.count(), world.upstream.last().body), (1, b"{\"find\":1}".to_vec()));
}

#[test]
fn an_upstream_may_speak_http_2_without_tls() {
    let (runtime, counter) = (runtime(), Counter::default());
    let address = counter.start(&runtime, Version::HTTP_2, None);
    let world = World::before(Upstream::start(), &policy(&format!("h2c://{address}"), ""));
    let asked = post("/charges").key("k").header("connection: close, x-a").header("x-a: b").json("{}");
    let first = world.send(&asked);
    assert_eq!(first.text(), format!("1 HTTP/2.0 POST /charges 1 {address} {{}}"));
    replayed_twice(world.address(), &asked, &first);
    assert_eq!(counter.0.load(SeqCst), 1);
}

#[test]
fn an_upstream_may_speak_tls_where_its_authority_is_known() {
    let dir = tempfile::tempdir().unwrap();
    let authority_key = rcgen::KeyPair::generate().unwrap();
    let mut authority = rcgen::CertificateParams::new([]).unwrap();
    authority.is_ca = rcgen::IsCa::Ca(rcgen::BasicConstraints::Unconstrained);
    let root = authority.self_signed(&authority_key).unwrap();
    std::fs::write(dir.path().join("ca.pem"), root.pem()).unwrap();
    let issuer = rcgen::Issuer::new(authority, authority_key);
    let key = rcgen::KeyPair::generate().unwrap();
    let leaf = rcgen::CertificateParams::new(["localhost".to_owned()]).unwrap().signed_by(&key, &issuer).unwrap();
    let acceptor = |alpn: &[&[u8]]| {
        let mut config = ServerConfig::builder_with_provider(Arc::new(ring::default_provider()))
            .with_safe_default_protocol_versions()
            .unwrap()
            .with_no_client_auth()
            .with_single_cert(vec![leaf.der().clone()], PrivateKeyDer::Pkcs8(key.serialize_der().into()))
            .unwrap();
        config.alpn_protocols = alpn.iter().map(|name| name.to_vec()).collect();
        TlsAcceptor::from(Arc::new(config))
    };
    let runtime = runtime();
    let ca = format!("gateway: {{ ca: \"{}\" }}", dir.path().join("ca.pem").display());
    for (version, alpn) in [(Version::HTTP_2, b"h2".as_slice()), (Version::HTTP_11, b"http/1.1")] {
        let counter = Counter::default();
        let port = counter.start(&runtime, version, Some(acceptor(&[alpn]))).port();
        let upstream = format!("https://localhost:{port}");
        let world = World::before(Upstream::start(), &policy(&upstream, &ca));
        let asked = post("/charges").key("k").json("{}");
        let first = world.send(&asked);
        assert_eq!(first.text(), format!("1 {version:?} POST /charges 1 localhost:{port} {{}}"));
        replayed_twice(world.address(), &asked, &first);
        assert_eq!(counter.0.load(SeqCst), 1);
        // Another name than the certificate's, or an authority that nobody knows: nothing is sent.
        for (upstream, more) in [(format!("https://127.0.0.1:{port}"), ca.as_str()), (upstream, "")] {
            let world = World::before(Upstream::start(), &policy(&upstream, more));
            world.send(&asked).problem(502, "upstream-unreachable");
            world.send(&asked).problem(502, "upstream-unreachable");
        }
        assert_eq!(counter.0.load(SeqCst), 1);
    }
}
