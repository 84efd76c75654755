//! TLS to targets, with the system's certificate authorities and additional ones; describes errors
//! in its own words. Opens no connections, and repeats nothing that the peer sent.

use std::io;
use std::sync::Arc;

use rustls_platform_verifier::Verifier;
use tokio_rustls::TlsConnector;
use tokio_rustls::rustls::crypto::aws_lc_rs;
use tokio_rustls::rustls::pki_types::CertificateDer;
use tokio_rustls::rustls::{CertificateError, ClientConfig, Error};

use super::DeliveryError;

/// The TLS configuration, if there are any certificate authorities.
pub(super) struct Tls {
    connector: Option<TlsConnector>,
}

impl Tls {
    /// `extra` are certificates of authorities in addition to the system's, as DER.
    pub(super) fn new(extra: &[Vec<u8>]) -> Result<Self, DeliveryError> {
        let provider = Arc::new(aws_lc_rs::default_provider());
        let extra: Vec<_> = extra.iter().map(|der| CertificateDer::from(der.clone())).collect();
        let has_extra = !extra.is_empty();
        let verifier = match Verifier::new_with_extra_roots(extra, provider.clone()) {
            Ok(verifier) => verifier,
            Err(error) if has_extra => return Err(DeliveryError::Authorities(error.to_string())),
            Err(error) => {
                tracing::warn!(%error, "there are no CA certificates: targets with https can't be reached");
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

/// Why a handshake failed. The library's messages contain names from the peer's certificate, which
/// the target's owner must not see.
pub(super) fn fault(error: &io::Error) -> &'static str {
    use CertificateError as Fault;
    use Error::InvalidCertificate as Invalid;
    match error.get_ref().and_then(|source| source.downcast_ref()) {
        Some(Invalid(Fault::UnknownIssuer)) => "the issuer of its certificate is unknown here",
        Some(Invalid(Fault::NotValidForName | Fault::NotValidForNameContext { .. })) => {
            "its certificate is not valid for this host"
        }
        Some(Invalid(Fault::Expired | Fault::ExpiredContext { .. })) => "its certificate has expired",
        Some(Invalid(Fault::NotValidYet | Fault::NotValidYetContext { .. })) => {
            "its certificate is not valid yet"
        }
        Some(Invalid(Fault::Revoked)) => "its certificate is revoked",
        Some(Invalid(_)) => "its certificate can't be used",
        Some(Error::InvalidMessage(_)) => "its answer is not TLS",
        Some(Error::PeerIncompatible(_) | Error::NoApplicationProtocol) => {
            "it has no version, cipher or protocol that is accepted here; TLS 1.2 and 1.3 are"
        }
        Some(Error::AlertReceived(_)) => "it refused the handshake",
        Some(_) => "the handshake failed",
        None => "the connection broke during the handshake",
    }
}

#[cfg(test)]
mod tests {
    use tokio_rustls::rustls::pki_types::ServerName;
    use tokio_rustls::rustls::{AlertDescription, InvalidMessage};

    use super::*;

    #[test]
    fn tls_errors_are_described_in_our_words() {
        let names = CertificateError::NotValidForNameContext {
            expected: ServerName::try_from("target.example").unwrap(),
            presented: vec!["DnsName(\"internal.example\")".to_owned()],
        };
        for (error, words) in [
            (Error::InvalidCertificate(names), "not valid for this host"),
            (
                Error::InvalidCertificate(CertificateError::UnknownIssuer),
                "issuer of its certificate is unknown",
            ),
            (Error::InvalidCertificate(CertificateError::Expired), "expired"),
            (Error::InvalidCertificate(CertificateError::BadSignature), "can't be used"),
            (Error::InvalidMessage(InvalidMessage::InvalidContentType), "not TLS"),
            (Error::AlertReceived(AlertDescription::HandshakeFailure), "refused the handshake"),
            (Error::General("internal.example".to_owned()), "handshake failed"),
        ] {
            let said = fault(&io::Error::new(io::ErrorKind::InvalidData, error));
            assert!(said.contains(words) && !said.contains("internal.example"), "{words} in: {said}");
        }
        assert!(fault(&io::ErrorKind::UnexpectedEof.into()).contains("broke"));
    }
}
