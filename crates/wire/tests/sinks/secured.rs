//! Deliveries over TLS: with a private authority where it is named, and to nobody who cannot show its certificate.

use std::path::PathBuf;
use std::sync::Arc;

use fencepost_wire::sinks::webhook::{Egress, WebhookSettings, WebhookSink};
use rcgen::{BasicConstraints, CertificateParams, CertifiedIssuer, IsCa, KeyPair};
use tempfile::TempDir;
use tokio_rustls::TlsAcceptor;
use tokio_rustls::rustls::pki_types::PrivateKeyDer;
use tokio_rustls::rustls::{ServerConfig, crypto::ring};

use super::receiver::{BODY, OK, Receiver, Then, attempt, later, sink, vault};

/// A receiver for these names, and the file of the authority that vouches for it.
async fn receiver(names: &[&str]) -> (Receiver, TempDir, PathBuf) {
    let mut params = CertificateParams::new(Vec::new()).unwrap();
    params.is_ca = IsCa::Ca(BasicConstraints::Unconstrained);
    let issuer = CertifiedIssuer::self_signed(params, KeyPair::generate().unwrap()).unwrap();
    let dir = tempfile::tempdir().unwrap();
    let path = dir.path().join("ca.pem");
    std::fs::write(&path, issuer.pem()).unwrap();
    let key = KeyPair::generate().unwrap();
    let names: Vec<String> = names.iter().map(|&name| name.to_owned()).collect();
    let cert = CertificateParams::new(names).unwrap().signed_by(&key, &issuer).unwrap();
    let secret = PrivateKeyDer::try_from(key.serialize_der()).unwrap();
    let config = ServerConfig::builder_with_provider(Arc::new(ring::default_provider()))
        .with_safe_default_protocol_versions()
        .unwrap()
        .with_no_client_auth()
        .with_single_cert(vec![cert.der().clone()], secret)
        .unwrap();
    let tls = TlsAcceptor::from(Arc::new(config));
    (Receiver::start_with(OK.into(), Then::Listen, Some(tls)).await, dir, path)
}

fn trusting(path: PathBuf) -> WebhookSink {
    sink(&WebhookSettings { authorities: Some(path), ..WebhookSettings::default() })
}

#[tokio::test]
async fn a_private_authority_is_trusted_where_it_is_named() {
    let (receiver, _dir, path) = receiver(&["localhost", "127.0.0.1"]).await;
    let sink = trusting(path);
    for host in ["localhost", "localhost.", "127.0.0.1"] {
        assert_eq!(attempt(&sink, &format!("https://{host}:{}/", receiver.port)).await, Ok(()), "{host}");
    }
    let heard = receiver.heard();
    assert_eq!(heard.len(), 3);
    assert!(heard.iter().all(|one| one.body == BODY.as_bytes()));
}

#[tokio::test]
async fn a_certificate_of_an_unknown_authority_or_for_another_name_is_refused() {
    let (receiver, _dir, path) = receiver(&["localhost"]).await;
    let url = |host: &str| format!("https://{host}:{}/", receiver.port);
    let (status, note, _) = later(attempt(&sink(&WebhookSettings::default()), &url("localhost")).await);
    assert!(status.is_none() && note.contains("no TLS") && note.contains("UnknownIssuer"), "{note}");
    let (status, note, _) = later(attempt(&trusting(path), &url("127.0.0.1")).await);
    assert!(status.is_none() && note.contains("no TLS"), "{note}");
    assert_eq!(receiver.heard().len(), 0);
}

#[tokio::test]
async fn a_receiver_without_tls_gets_nothing_over_https() {
    let plain = Receiver::start("HTTP/1.1 200 OK\r\n\r\n", Then::Close).await;
    let (status, note, _) = later(
        attempt(
            &sink(&WebhookSettings { connect_ms_max: 300, ..WebhookSettings::default() }),
            &format!("https://127.0.0.1:{}/", plain.port),
        )
        .await,
    );
    assert!(status.is_none(), "{note}");
    assert_eq!(plain.heard().len(), 0);
}

#[test]
fn a_file_of_authorities_that_cannot_be_used_is_named() {
    let dir = tempfile::tempdir().unwrap();
    let (gone, empty) = (dir.path().join("gone.pem"), dir.path().join("empty.pem"));
    std::fs::write(&empty, "").unwrap();
    for path in [gone, empty] {
        let settings = WebhookSettings { authorities: Some(path.clone()), ..WebhookSettings::default() };
        let clock = Arc::new(fencepost::clock::SystemClock::default());
        let made = WebhookSink::new(Egress::new(&[], true).unwrap(), Arc::new(vault()), clock, &settings);
        assert!(made.err().unwrap().contains(path.to_str().unwrap()));
    }
}
