//! TLS to targets: the authorities of the system, and those that were added. Opens no connection.

use std::sync::Arc;

use rustls_platform_verifier::Verifier;
use tokio_rustls::TlsConnector;
use tokio_rustls::rustls::crypto::aws_lc_rs;
use tokio_rustls::rustls::pki_types::CertificateDer;
use tokio_rustls::rustls::{ClientConfig, Error};

use super::DeliveryError;

/// How certificates are checked, if there is anything to check them with.
pub(super) struct Tls {
    connector: Option<TlsConnector>,
}

impl Tls {
    /// With these certificates of authorities beside the system's, as DER.
    pub(super) fn new(extra: &[Vec<u8>]) -> Result<Self, DeliveryError> {
        let provider = Arc::new(aws_lc_rs::default_provider());
        let extra: Vec<_> = extra.iter().map(|der| CertificateDer::from(der.clone())).collect();
        let has_extra = !extra.is_empty();
        let verifier = match Verifier::new_with_extra_roots(extra, provider.clone()) {
            Ok(verifier) => verifier,
            Err(error) if has_extra => return Err(DeliveryError::Authorities(error.to_string())),
            Err(error) => {
                tracing::warn!(%error, "there are no certificates of authorities: targets with https can't be reached");
                return Ok(Self { connector: None });
            }
        };
        let unusable = |error: Error| DeliveryError::Tls(error.to_string());
        let versions = ClientConfig::builder_with_provider(provider).with_safe_default_protocol_versions();
        let mut config = versions
            .map_err(unusable)?
            .dangerous()
            .with_custom_certificate_verifier(Arc::new(verifier))
            .with_no_client_auth();
        config.alpn_protocols = vec![b"http/1.1".to_vec()];
        Ok(Self { connector: Some(TlsConnector::from(Arc::new(config))) })
    }

    pub(super) fn connector(&self) -> Option<&TlsConnector> {
        self.connector.as_ref()
    }
}
