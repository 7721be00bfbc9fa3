//! TLS from PEM files, with client certificates where an authority for them is configured.
//! Never decides who a client is: it passes on the thumbprint of a certificate that the authority signed.
//! Called by `cli` at start, and by `accept`.

use std::fmt;
use std::io;
use std::path::{Path, PathBuf};
use std::sync::Arc;

use sha2::{Digest, Sha256};
use tokio::io::{AsyncRead, AsyncWrite};
use tokio_rustls::TlsAcceptor;
use tokio_rustls::rustls::crypto::ring;
use tokio_rustls::rustls::pki_types::pem::PemObject;
use tokio_rustls::rustls::pki_types::{CertificateDer, PrivateKeyDer};
use tokio_rustls::rustls::server::WebPkiClientVerifier;
use tokio_rustls::rustls::{RootCertStore, ServerConfig};
use tokio_rustls::server::TlsStream;

use super::peer::PeerThumbprint;
use super::sniff::Protocol;

/// Whether clients show certificates, and the PEM file of the authority that signs them.
#[derive(Debug, Clone)]
pub enum ClientAuth {
    /// Clients are not asked for a certificate.
    Off,
    /// Clients are asked; one without a certificate may use another credential.
    Optional(PathBuf),
    /// The handshake fails for a client without a certificate.
    Required(PathBuf),
}

const ALPN_HTTP2: &[u8] = b"h2";

/// A finished handshake, with the protocol and the client certificate's thumbprint.
pub(super) struct FinishedHandshake<IO> {
    pub(super) stream: TlsStream<IO>,
    pub(super) thumbprint: Option<PeerThumbprint>,
    pub(super) protocol: Protocol,
}

/// A loaded certificate and key.
#[derive(Clone)]
pub struct Tls {
    acceptor: TlsAcceptor,
}

/// Why TLS could not be set up.
#[derive(Debug)]
pub enum Error {
    /// A file could not be read, or holds no usable PEM.
    File(PathBuf, String),
    /// The files do not belong together, for example key and certificate.
    Config(String),
}

impl Tls {
    /// Reads a certificate chain and its private key, both PEM.
    pub fn load(cert: &Path, key: &Path, clients: &ClientAuth) -> Result<Tls, Error> {
        let chain = certificates(cert)?;
        let secret = PrivateKeyDer::from_pem_file(key).map_err(|e| Error::File(key.to_owned(), e.to_string()))?;
        let config = |e: &dyn fmt::Display| Error::Config(e.to_string());
        let provider = Arc::new(ring::default_provider());
        let builder = ServerConfig::builder_with_provider(provider.clone())
            .with_safe_default_protocol_versions()
            .map_err(|e| config(&e))?;
        let verifier = |authority: &Path| {
            let mut roots = RootCertStore::empty();
            for root in certificates(authority)? {
                roots.add(root).map_err(|e| Error::File(authority.to_owned(), e.to_string()))?;
            }
            Ok(WebPkiClientVerifier::builder_with_provider(Arc::new(roots), provider.clone()))
        };
        let builder = match clients {
            ClientAuth::Off => builder.with_no_client_auth(),
            ClientAuth::Optional(authority) => builder.with_client_cert_verifier(
                verifier(authority)?.allow_unauthenticated().build().map_err(|e| config(&e))?,
            ),
            ClientAuth::Required(authority) => {
                builder.with_client_cert_verifier(verifier(authority)?.build().map_err(|e| config(&e))?)
            }
        };
        let mut server = builder.with_single_cert(chain, secret).map_err(|e| config(&e))?;
        server.alpn_protocols = vec![ALPN_HTTP2.to_vec(), b"http/1.1".to_vec()];
        Ok(Tls { acceptor: TlsAcceptor::from(Arc::new(server)) })
    }

    pub(super) async fn handshake<IO>(&self, io: IO) -> io::Result<FinishedHandshake<IO>>
    where
        IO: AsyncRead + AsyncWrite + Unpin,
    {
        let stream = self.acceptor.accept(io).await?;
        let session = stream.get_ref().1;
        let protocol = match session.alpn_protocol() {
            Some(ALPN_HTTP2) => Protocol::Http2,
            _ => Protocol::Http1,
        };
        let leaf = session.peer_certificates().and_then(|chain| chain.first());
        let thumbprint = leaf.map(|leaf| {
            let digest = Sha256::digest(leaf);
            PeerThumbprint(digest.iter().map(|byte| format!("{byte:02x}")).collect())
        });
        Ok(FinishedHandshake { stream, thumbprint, protocol })
    }
}

fn certificates(path: &Path) -> Result<Vec<CertificateDer<'static>>, Error> {
    let failed = |why: String| Error::File(path.to_owned(), why);
    let chain: Result<Vec<_>, _> = CertificateDer::pem_file_iter(path).map_err(|e| failed(e.to_string()))?.collect();
    match chain {
        Ok(chain) if chain.is_empty() => Err(failed("it holds no certificate".to_owned())),
        Ok(chain) => Ok(chain),
        Err(error) => Err(failed(error.to_string())),
    }
}

impl fmt::Debug for Tls {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("Tls")
    }
}

impl fmt::Display for Error {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Error::File(path, why) => write!(f, "{}: {why}", path.display()),
            Error::Config(why) => write!(f, "the TLS files do not fit together: {why}"),
        }
    }
}

impl std::error::Error for Error {}
