//! The authorities that Fencepost trusts as a client of TLS: the public ones, and those that a file names.
//! Never turns verification off. Called by the gateway and the webhook sink.

use std::{path::Path, sync::Arc};

use tokio_rustls::rustls::{
    ClientConfig, RootCertStore,
    crypto::ring,
    pki_types::{CertificateDer, pem::PemObject as _},
};

/// The configuration of a TLS client without a certificate of its own.
pub(crate) fn client(authorities: Option<&Path>) -> Result<ClientConfig, String> {
    let mut roots = RootCertStore { roots: webpki_roots::TLS_SERVER_ROOTS.to_vec() };
    if let Some(path) = authorities {
        add(&mut roots, path).map_err(|why| format!("{}: {why}", path.display()))?;
    }
    let config = ClientConfig::builder_with_provider(Arc::new(ring::default_provider()))
        .with_safe_default_protocol_versions()
        .map_err(|error| error.to_string())?;
    Ok(config.with_root_certificates(roots).with_no_client_auth())
}

fn add(roots: &mut RootCertStore, path: &Path) -> Result<(), String> {
    let before = roots.len();
    for root in CertificateDer::pem_file_iter(path).map_err(|error| error.to_string())? {
        roots.add(root.map_err(|error| error.to_string())?).map_err(|error| error.to_string())?;
    }
    if roots.len() == before { Err("it holds no certificate".to_owned()) } else { Ok(()) }
}
