//! TLS with and without client certificates, on real sockets.

use std::path::PathBuf;
use std::sync::Arc;

use fencepost_front::{ClientAuth, Limits, Tls, TlsError};
use rcgen::{BasicConstraints, CertificateParams, CertifiedIssuer, IsCa, KeyPair};
use sha2::{Digest, Sha256};
use tempfile::TempDir;
use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::net::TcpStream;
use tokio_rustls::TlsConnector;
use tokio_rustls::client::TlsStream;
use tokio_rustls::rustls::pki_types::{CertificateDer, PrivateKeyDer, ServerName};
use tokio_rustls::rustls::{ClientConfig, RootCertStore, crypto::ring};

use super::bytes_on_the_wire::{Front, assert_problem, soon};
use super::http2::Speaker;

struct Authority {
    dir: TempDir,
    issuer: CertifiedIssuer<'static, KeyPair>,
}

struct Identity {
    cert: CertificateDer<'static>,
    key: PrivateKeyDer<'static>,
}

impl Authority {
    fn new() -> Authority {
        let mut params = CertificateParams::new(Vec::new()).unwrap();
        params.is_ca = IsCa::Ca(BasicConstraints::Unconstrained);
        let issuer = CertifiedIssuer::self_signed(params, KeyPair::generate().unwrap()).unwrap();
        let authority = Authority { dir: tempfile::tempdir().unwrap(), issuer };
        std::fs::write(authority.path("ca.pem"), authority.issuer.pem()).unwrap();
        let key = KeyPair::generate().unwrap();
        let cert =
            CertificateParams::new(vec!["localhost".into()]).unwrap().signed_by(&key, &authority.issuer).unwrap();
        std::fs::write(authority.path("cert.pem"), cert.pem()).unwrap();
        std::fs::write(authority.path("key.pem"), key.serialize_pem()).unwrap();
        authority
    }

    fn path(&self, name: &str) -> PathBuf {
        self.dir.path().join(name)
    }

    fn tls(&self, clients: ClientAuth) -> Option<Tls> {
        Some(Tls::load(&self.path("cert.pem"), &self.path("key.pem"), &clients).unwrap())
    }

    fn identity(&self) -> Identity {
        let key = KeyPair::generate().unwrap();
        let cert = CertificateParams::new(vec!["worker".into()]).unwrap().signed_by(&key, &self.issuer).unwrap();
        Identity { cert: cert.der().clone(), key: PrivateKeyDer::try_from(key.serialize_der()).unwrap() }
    }

    /// A connection over TLS, on which these protocols are offered.
    async fn connect(
        &self,
        front: &Front,
        identity: Option<Identity>,
        protocols: &[&str],
    ) -> std::io::Result<TlsStream<TcpStream>> {
        let mut roots = RootCertStore::empty();
        roots.add(self.issuer.der().clone()).unwrap();
        let builder = ClientConfig::builder_with_provider(Arc::new(ring::default_provider()))
            .with_safe_default_protocol_versions()
            .unwrap()
            .with_root_certificates(roots);
        let mut config = match identity {
            Some(identity) => builder.with_client_auth_cert(vec![identity.cert], identity.key).unwrap(),
            None => builder.with_no_client_auth(),
        };
        config.alpn_protocols = protocols.iter().map(|protocol| protocol.as_bytes().to_vec()).collect();
        let stream = front.connect().await.stream;
        let name = ServerName::try_from("localhost").unwrap();
        soon("a handshake", TlsConnector::from(Arc::new(config)).connect(name, stream)).await
    }

    /// One request over TLS; the answer, or why there is none.
    async fn exchange(&self, front: &Front, identity: Option<Identity>, request: &str) -> std::io::Result<String> {
        let mut stream = self.connect(front, identity, &[]).await?;
        soon("an exchange over TLS", async {
            stream.write_all(request.as_bytes()).await?;
            let mut answer = String::new();
            stream.read_to_string(&mut answer).await?;
            Ok(answer)
        })
        .await
    }
}

const CLOSING: &str = "GET /t HTTP/1.1\r\nHost: localhost\r\nConnection: close\r\n\r\n";

#[tokio::test]
async fn requests_over_tls_are_served_and_guarded_alike() {
    let authority = Authority::new();
    let front = Front::start_tls(Limits::default(), authority.tls(ClientAuth::Off)).await;
    let answer = authority.exchange(&front, None, CLOSING).await.unwrap();
    assert!(answer.ends_with("GET /t  nobody"), "{answer}");
    let answer = authority.exchange(&front, None, "GET / HTTP/1.1\r\n\r\n").await.unwrap();
    assert_problem(&answer, 400, "malformed-request");
}

#[tokio::test]
async fn a_connection_that_ends_idle_or_with_the_server_ends_as_tls_does() {
    let authority = Authority::new();
    let staying = "GET /t HTTP/1.1\r\nHost: localhost\r\n\r\n";
    let front = Front::start_tls(Limits { idle_ms_max: 30, ..Limits::default() }, authority.tls(ClientAuth::Off)).await;
    let answer = authority.exchange(&front, None, staying).await.expect("a farewell when it was idle for too long");
    assert!(answer.ends_with("GET /t  nobody"), "{answer}");

    let mut front = Front::start_tls(Limits::default(), authority.tls(ClientAuth::Off)).await;
    let mut stream = authority.connect(&front, None, &[]).await.unwrap();
    stream.write_all(staying.as_bytes()).await.unwrap();
    soon("an answer", stream.read_u8()).await.unwrap();
    front.begin_shutdown();
    let mut rest = String::new();
    soon("the end", stream.read_to_string(&mut rest)).await.expect("a farewell when the server ends");
}

#[tokio::test]
async fn the_service_learns_the_thumbprint_of_a_client_certificate() {
    let authority = Authority::new();
    let front =
        Front::start_tls(Limits::default(), authority.tls(ClientAuth::Optional(authority.path("ca.pem")))).await;
    let identity = authority.identity();
    let thumbprint: String = Sha256::digest(&identity.cert).iter().map(|byte| format!("{byte:02x}")).collect();
    let answer = authority.exchange(&front, Some(identity), CLOSING).await.unwrap();
    assert!(answer.ends_with(&format!("GET /t  {thumbprint}")), "{answer}");
    let answer = authority.exchange(&front, None, CLOSING).await.unwrap();
    assert!(answer.ends_with("GET /t  nobody"), "{answer}");
}

#[tokio::test]
async fn http_2_is_agreed_on_in_the_handshake_and_knows_the_thumbprint_too() {
    let authority = Authority::new();
    let clients = ClientAuth::Required(authority.path("ca.pem"));
    let front = Front::start_tls(Limits::default(), authority.tls(clients)).await;
    let identity = authority.identity();
    let thumbprint: String = Sha256::digest(&identity.cert).iter().map(|byte| format!("{byte:02x}")).collect();
    let stream = authority.connect(&front, Some(identity), &["h2", "http/1.1"]).await.unwrap();
    assert_eq!(stream.get_ref().1.alpn_protocol(), Some(&b"h2"[..]));
    let mut client = Speaker::over(stream).await;
    assert_eq!(client.get("/t").await.1, format!("GET /t  {thumbprint}"));

    let stream = authority.connect(&front, Some(authority.identity()), &["http/1.1"]).await.unwrap();
    assert_eq!(stream.get_ref().1.alpn_protocol(), Some(&b"http/1.1"[..]));
    assert!(authority.connect(&front, Some(authority.identity()), &["spdy/3"]).await.is_err());
}

#[tokio::test]
async fn a_preface_that_was_not_agreed_on_over_tls_is_refused() {
    let authority = Authority::new();
    let front = Front::start_tls(Limits::default(), authority.tls(ClientAuth::Off)).await;
    let answer = authority.exchange(&front, None, "PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n").await.unwrap();
    assert_problem(&answer, 400, "http-version-unsupported");
}

#[tokio::test]
async fn a_required_certificate_that_is_missing_or_foreign_is_refused_in_the_handshake() {
    let (authority, foreign) = (Authority::new(), Authority::new());
    let front =
        Front::start_tls(Limits::default(), authority.tls(ClientAuth::Required(authority.path("ca.pem")))).await;
    assert!(authority.exchange(&front, None, CLOSING).await.is_err());
    assert!(authority.exchange(&front, Some(foreign.identity()), CLOSING).await.is_err());
    assert!(authority.exchange(&front, Some(authority.identity()), CLOSING).await.is_ok());
    assert_eq!(front.seen.calls(), 1);
}

#[tokio::test]
async fn a_handshake_that_never_comes_is_closed() {
    let authority = Authority::new();
    let limits = Limits { handshake_ms_max: 40, ..Limits::default() };
    let front = Front::start_tls(limits, authority.tls(ClientAuth::Off)).await;
    assert_eq!(front.exchange("").await, "");
    assert_eq!(front.exchange([0x16, 3, 1]).await, "");
}

#[tokio::test]
async fn plain_http_to_a_tls_port_is_closed_and_shutdown_waits_for_no_handshake() {
    let authority = Authority::new();
    let mut front = Front::start_tls(Limits::default(), authority.tls(ClientAuth::Off)).await;
    assert!(!front.exchange(CLOSING).await.contains("HTTP/1.1"));
    let mut silent = front.connect().await;
    front.begin_shutdown();
    assert_eq!(silent.rest().await, "");
    front.drained().await;
}

#[test]
fn files_that_are_missing_or_wrong_are_named() {
    let authority = Authority::new();
    let (cert, key, gone) = (authority.path("cert.pem"), authority.path("key.pem"), authority.path("gone.pem"));
    let check =
        |cert: &PathBuf, key: &PathBuf, clients: ClientAuth, named: &PathBuf| match Tls::load(cert, key, &clients) {
            Err(TlsError::File(path, why)) => assert!(&path == named && !why.is_empty()),
            other => panic!("{other:?}"),
        };
    check(&gone, &key, ClientAuth::Off, &gone);
    check(&cert, &gone, ClientAuth::Off, &gone);
    check(&cert, &key, ClientAuth::Required(gone.clone()), &gone);
    check(&key, &key, ClientAuth::Off, &key);
    let other = Authority::new();
    let mismatch = Tls::load(&cert, &other.path("key.pem"), &ClientAuth::Off);
    assert!(matches!(mismatch, Err(TlsError::Config(_))), "{mismatch:?}");
}
