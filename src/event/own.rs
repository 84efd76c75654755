//! Recognizes the deployment itself as a target, by its origins, its audiences and its mark.

use std::fmt;

use aws_lc_rs::hmac;
use url::{Host, Url};
use uuid::Uuid;

use super::TargetUrl;

/// The deployment's own identity. Deliveries must not come back to the deployment, where they would
/// be authorized as the account of its workers.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct OwnDeployment {
    id: String,
    names: Vec<String>,
}

/// The target is the deployment itself.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
#[error(
    "the target, or the audience of its token, is this deployment itself: emit from the handler \
     that receives the event, with a key of its own"
)]
pub struct OwnTarget;

impl OwnDeployment {
    /// The header of a delivery that names the deployment that sent it.
    pub const HEADER: &str = "wakeq-delivery";
    /// Longest origin or audience, in bytes.
    pub const NAME_BYTES_MAX: usize = 2048;

    /// `secret` is known only to the deployment's processes; `names` are its origins and audiences.
    #[doc(hidden)]
    pub fn new(secret: Uuid, names: Vec<String>) -> Self {
        let key = hmac::Key::new(hmac::HMAC_SHA256, secret.as_bytes());
        let tag = hmac::sign(&key, b"wakeq: the deployment that sends a delivery");
        let id = tag.as_ref().iter().take(16).map(|byte| format!("{byte:02x}")).collect();
        Self { id, names }
    }

    /// The value of the header: it can't be guessed, and reveals nothing.
    pub fn id(&self) -> &str {
        &self.id
    }

    /// Refuses a target that is on one of the deployment's own hosts, or whose token would be for
    /// the deployment.
    pub fn check(&self, url: &TargetUrl, audience: Option<&str>) -> Result<(), OwnTarget> {
        let is_ours = |name: &String| {
            let own: Option<Url> = name.parse().ok();
            let asked: Option<Url> = audience.and_then(|audience| audience.parse().ok());
            let at_ours = |host: Option<Host<&str>>, port: Option<u16>| {
                own.as_ref().is_some_and(|own| is_at(own, host, port))
            };
            at_ours(Some(url.host()), Some(url.port()))
                || asked.is_some_and(|asked| at_ours(asked.host(), asked.port_or_known_default()))
                || audience
                    .is_some_and(|audience| audience.trim_end_matches('/') == name.trim_end_matches('/'))
        };
        if self.names.iter().any(is_ours) { Err(OwnTarget) } else { Ok(()) }
    }
}

/// Whether a host is that of one of the deployment's own origins. A domain name is the deployment's
/// on every port; an address, or a name without a dot, only on the origin's port.
fn is_at(own: &Url, host: Option<Host<&str>>, port: Option<u16>) -> bool {
    let bare = |host: Host<&str>| host.to_string().trim_end_matches('.').to_lowercase();
    let (Some(own_host), Some(host)) = (own.host().map(bare), host.map(bare)) else { return false };
    let is_whole = matches!(own.host(), Some(Host::Domain(_))) && own_host.contains('.');
    own_host == host && (is_whole || own.port_or_known_default() == port)
}

impl fmt::Display for OwnDeployment {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        formatter.pad(&self.names.join(", "))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_target_is_not_the_deployment_in_any_spelling() {
        let names =
            ["https://queue.example", "wakeq-prod", "http://127.0.0.1:8080", "https://QUEUE.internal./"];
        let own = OwnDeployment::new(Uuid::nil(), names.map(str::to_owned).to_vec());
        let check = |url: &str, audience: Option<&str>| own.check(&url.parse().unwrap(), audience);
        for url in [
            "https://queue.example/v1/canvases/x/events",
            "https://QUEUE.example./",
            "http://queue.example:8080/",
            "https://queue.internal/",
            "http://127.0.0.1:8080/",
            "http://0x7f.1:8080/",
        ] {
            assert_eq!(check(url, None), Err(OwnTarget), "{url}");
        }
        for audience in
            ["https://queue.example", "https://queue.example/", "https://queue.example:443/v1", "wakeq-prod"]
        {
            assert_eq!(check("https://shop.example/", Some(audience)), Err(OwnTarget), "{audience}");
        }
        for url in ["https://shop.queue.example/", "http://127.0.0.1:8081/", "https://notqueue.example/"] {
            assert_eq!(check(url, Some("https://shop.example")), Ok(()), "{url}");
        }
    }

    #[test]
    fn the_deployment_id_depends_on_its_secret() {
        let of = |secret| OwnDeployment::new(Uuid::from_u128(secret), Vec::new());
        assert_eq!(of(1).id(), of(1).id());
        assert_ne!(of(1).id(), of(2).id());
        assert_eq!(of(1).id().len(), 32);
    }
}
