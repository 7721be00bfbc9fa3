//! TLS to the server, with rustls on ring, as everywhere in this repository.
//! Never checks less than the url asks for. Called when a store is opened, and used for every connection.

use std::{path::PathBuf, sync::Arc};

use tokio_postgres_rustls::MakeRustlsConnect;
use tokio_rustls::rustls::{
    ClientConfig, DigitallySignedStruct, RootCertStore, SignatureScheme,
    client::danger::{HandshakeSignatureValid, ServerCertVerified, ServerCertVerifier},
    crypto::{CryptoProvider, ring, verify_tls12_signature, verify_tls13_signature},
    pki_types::{CertificateDer, ServerName, UnixTime, pem::PemObject},
};

use crate::Error;

/// Makes TLS connections.
pub(super) type Tls = MakeRustlsConnect;

/// Which certificates of the server are accepted.
pub(super) enum Trust {
    /// Any: this protects against listeners, not against an impostor of the server.
    Anyone,
    /// Those that a public authority has signed.
    Public,
    /// Those that an authority in a PEM file has signed.
    File(PathBuf),
}

/// The TLS connector that accepts these certificates.
pub(super) fn tls(trust: &Trust) -> Result<Tls, Error> {
    let provider = Arc::new(ring::default_provider());
    let builder = ClientConfig::builder_with_provider(provider.clone())
        .with_safe_default_protocol_versions()
        .map_err(|error| Error::Broken(format!("TLS to the database: {error}")))?;
    let config = match trust {
        Trust::Anyone => builder.dangerous().with_custom_certificate_verifier(Arc::new(AcceptAnyCertificate(provider))),
        Trust::Public => builder
            .with_root_certificates(Arc::new(RootCertStore::from_iter(webpki_roots::TLS_SERVER_ROOTS.iter().cloned()))),
        Trust::File(path) => builder.with_root_certificates(Arc::new(authorities(path)?)),
    };
    Ok(Tls::new(config.with_no_client_auth()))
}

fn authorities(path: &PathBuf) -> Result<RootCertStore, Error> {
    let wrong = |why: &dyn std::fmt::Display| Error::Broken(format!("sslrootcert {}: {why}", path.display()));
    let mut roots = RootCertStore::empty();
    for certificate in CertificateDer::pem_file_iter(path).map_err(|error| wrong(&error))? {
        roots.add(certificate.map_err(|error| wrong(&error))?).map_err(|error| wrong(&error))?;
    }
    if roots.is_empty() { Err(wrong(&"it holds no certificate")) } else { Ok(roots) }
}

/// Accepts any certificate, as `sslmode=require` without an authority asks for. Signatures are still checked.
#[derive(Debug)]
struct AcceptAnyCertificate(Arc<CryptoProvider>);

impl ServerCertVerifier for AcceptAnyCertificate {
    fn verify_server_cert(
        &self,
        _: &CertificateDer<'_>,
        _: &[CertificateDer<'_>],
        _: &ServerName<'_>,
        _: &[u8],
        _: UnixTime,
    ) -> Result<ServerCertVerified, tokio_rustls::rustls::Error> {
        Ok(ServerCertVerified::assertion())
    }

    fn verify_tls12_signature(
        &self,
        message: &[u8],
        certificate: &CertificateDer<'_>,
        signed: &DigitallySignedStruct,
    ) -> Result<HandshakeSignatureValid, tokio_rustls::rustls::Error> {
        verify_tls12_signature(message, certificate, signed, &self.0.signature_verification_algorithms)
    }

    fn verify_tls13_signature(
        &self,
        message: &[u8],
        certificate: &CertificateDer<'_>,
        signed: &DigitallySignedStruct,
    ) -> Result<HandshakeSignatureValid, tokio_rustls::rustls::Error> {
        verify_tls13_signature(message, certificate, signed, &self.0.signature_verification_algorithms)
    }

    fn supported_verify_schemes(&self) -> Vec<SignatureScheme> {
        self.0.signature_verification_algorithms.supported_schemes()
    }
}
