//! The certificate and the key of the server, from PEM files.

use std::path::Path;
use std::sync::Arc;

use rustls::pki_types::pem::PemObject as _;
use rustls::pki_types::{CertificateDer, PrivateKeyDer};
use tokio_rustls::TlsAcceptor;

/// A server's side of TLS.
#[derive(Clone)]
pub struct TlsFiles(pub(crate) TlsAcceptor);

impl std::fmt::Debug for TlsFiles {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str("TlsFiles")
    }
}

/// Reads a chain of certificates and its key.
pub fn read_tls(certificate: &Path, key: &Path) -> Result<TlsFiles, String> {
    let wrong = |path: &Path, why: &dyn std::fmt::Display| format!("{}: {why}", path.display());
    let chain = CertificateDer::pem_file_iter(certificate)
        .and_then(Iterator::collect::<Result<Vec<_>, _>>)
        .map_err(|error| wrong(certificate, &error))?;
    if chain.is_empty() {
        return Err(wrong(certificate, &"contains no certificate"));
    }
    let secret = PrivateKeyDer::from_pem_file(key).map_err(|error| wrong(key, &error))?;
    let provider = Arc::new(rustls::crypto::ring::default_provider());
    let config = rustls::ServerConfig::builder_with_provider(provider)
        .with_safe_default_protocol_versions()
        .map_err(|error| error.to_string())?
        .with_no_client_auth()
        .with_single_cert(chain, secret)
        .map_err(|error| wrong(key, &error))?;
    Ok(TlsFiles(TlsAcceptor::from(Arc::new(config))))
}
