//! TLS to a daemon that listens on a port: its certificate has to be of the authority that was saved, and ours is shown.

use super::way::TlsFiles;
use std::path::Path;
use std::sync::Arc;
use tokio_rustls::rustls::client::danger::{HandshakeSignatureValid, ServerCertVerified, ServerCertVerifier};
use tokio_rustls::rustls::crypto::{CryptoProvider, ring, verify_tls12_signature, verify_tls13_signature};
use tokio_rustls::rustls::pki_types::pem::PemObject;
use tokio_rustls::rustls::pki_types::{CertificateDer, PrivateKeyDer, ServerName, UnixTime};
use tokio_rustls::rustls::{ClientConfig, DigitallySignedStruct, Error, RootCertStore, SignatureScheme};

/// How to speak TLS with these files.
///
/// # Errors
/// Words that name the file that is missing, is no PEM, or does not go with the others.
pub fn config(files: &TlsFiles) -> Result<Arc<ClientConfig>, String> {
    let provider = Arc::new(ring::default_provider());
    let builder = ClientConfig::builder_with_provider(Arc::clone(&provider));
    let builder = builder.with_safe_default_protocol_versions().map_err(|e| e.to_string())?;
    let builder = match (&files.ca, files.unverified) {
        (_, true) => builder.dangerous().with_custom_certificate_verifier(Arc::new(Anything(provider))),
        (Some(ca), false) => {
            let mut roots = RootCertStore::empty();
            for one in certificates(ca)? {
                roots.add(one).map_err(|e| format!("{}: {e}", ca.display()))?;
            }
            builder.with_root_certificates(roots)
        }
        (None, false) => return Err("there is no ca.pem to know the daemon's certificate by".into()),
    };
    let config = match &files.own {
        None => builder.with_no_client_auth(),
        Some((certificate, key)) => {
            let chain = certificates(certificate)?;
            let secret = PrivateKeyDer::from_pem_file(key).map_err(|e| format!("{}: {e}", key.display()))?;
            let (certificate, key) = (certificate.display(), key.display());
            builder.with_client_auth_cert(chain, secret).map_err(|e| format!("{certificate} and {key}: {e}"))?
        }
    };
    Ok(Arc::new(config))
}

fn certificates(path: &Path) -> Result<Vec<CertificateDer<'static>>, String> {
    let wrong = |e: &dyn std::fmt::Display| format!("{}: {e}", path.display());
    let found = CertificateDer::pem_file_iter(path).map_err(|e| wrong(&e))?;
    let found = found.collect::<Result<Vec<_>, _>>().map_err(|e| wrong(&e))?;
    if found.is_empty() {
        return Err(wrong(&"there is no certificate in it"));
    }
    Ok(found)
}

/// Takes any certificate, where a context says so.
#[derive(Debug)]
struct Anything(Arc<CryptoProvider>);

impl ServerCertVerifier for Anything {
    fn verify_server_cert(
        &self,
        _end_entity: &CertificateDer<'_>,
        _intermediates: &[CertificateDer<'_>],
        _server_name: &ServerName<'_>,
        _ocsp_response: &[u8],
        _now: UnixTime,
    ) -> Result<ServerCertVerified, Error> {
        Ok(ServerCertVerified::assertion())
    }

    fn verify_tls12_signature(
        &self,
        message: &[u8],
        cert: &CertificateDer<'_>,
        dss: &DigitallySignedStruct,
    ) -> Result<HandshakeSignatureValid, Error> {
        verify_tls12_signature(message, cert, dss, &self.0.signature_verification_algorithms)
    }

    fn verify_tls13_signature(
        &self,
        message: &[u8],
        cert: &CertificateDer<'_>,
        dss: &DigitallySignedStruct,
    ) -> Result<HandshakeSignatureValid, Error> {
        verify_tls13_signature(message, cert, dss, &self.0.signature_verification_algorithms)
    }

    fn supported_verify_schemes(&self) -> Vec<SignatureScheme> {
        self.0.signature_verification_algorithms.supported_schemes()
    }
}
