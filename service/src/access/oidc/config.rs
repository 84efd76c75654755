//! Where people have their accounts, and who we are there.

use std::fmt;

use reqwest::Url;

use crate::access::error::AccessError;
use crate::access::fetch;

/// The path, from the root of the API, that the provider sends people back to.
pub(crate) const CALLBACK: &str = "/sign-in/oidc/callback";

/// An OpenID provider, whose people sign in to the pages with their accounts there. They may do
/// what was granted to the e-mail addresses that it has verified.
///
/// ```
/// use wakeq_service::access::OidcConfig;
///
/// let oidc = OidcConfig {
///     issuer: "https://login.example".into(),
///     client_id: "wakeq".into(),
///     client_secret: Some("of the client".into()),
///     redirect_url: "https://queue.example/sign-in/oidc/callback".into(),
/// };
/// assert!(!format!("{oidc:?}").contains("of the client"));
/// ```
#[derive(Clone, PartialEq, Eq)]
pub struct OidcConfig {
    /// The issuer, exactly as its discovery document and its ID tokens name it. HTTPS, or plain
    /// HTTP on the loopback address.
    pub issuer: String,
    /// The client's id there.
    pub client_id: String,
    /// The client's secret, if it has one. PKCE is used with and without.
    pub client_secret: Option<String>,
    /// The URL of these pages that the provider sends people back to, as it is registered there:
    /// it ends with `/sign-in/oidc/callback`.
    pub redirect_url: String,
}

impl fmt::Debug for OidcConfig {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        let secret = self.client_secret.as_ref().map(|_| "…");
        let mut shown = formatter.debug_struct("OidcConfig");
        shown.field("issuer", &self.issuer).field("client_id", &self.client_id);
        shown.field("client_secret", &secret).field("redirect_url", &self.redirect_url).finish()
    }
}

impl OidcConfig {
    /// The issuer's URL, if all is as it has to be.
    pub(super) fn issuer_url(&self) -> Result<Url, AccessError> {
        let issuer = safe(&self.issuer).ok_or(AccessError::Config(
            "the OIDC issuer (WAKEQ_OIDC_ISSUER) is a URL like https://login.example or \
             https://login.example/realms/ours, exactly as its discovery document names it",
        ))?;
        if self.client_id.is_empty() {
            return Err(AccessError::Config(
                "the id of the OIDC client is missing: register wakeq at the provider, and set WAKEQ_OIDC_CLIENT_ID",
            ));
        }
        if self.client_secret.as_ref().is_some_and(String::is_empty) {
            return Err(AccessError::Config(
                "the secret of the OIDC client is empty: leave it out for a public client",
            ));
        }
        match safe(&self.redirect_url) {
            Some(url) if url.path().ends_with(CALLBACK) => Ok(issuer),
            Some(_) | None => Err(AccessError::Config(
                "the redirect URL of OIDC (WAKEQ_OIDC_REDIRECT_URL) is that of the pages with /sign-in/oidc/callback \
                 behind it, such as https://queue.example/sign-in/oidc/callback; register it at the provider, too",
            )),
        }
    }
}

/// A URL that is one of its own, without a query or a password, and that nobody on the way changes.
fn safe(text: &str) -> Option<Url> {
    let url = Url::parse(text).ok()?;
    let is_plain = url.query().is_none() && url.fragment().is_none() && url.username().is_empty();
    (is_plain && fetch::is_safe(&url)).then_some(url)
}

#[cfg(test)]
mod tests {
    use super::*;

    type Spoil = fn(&mut OidcConfig);

    #[test]
    fn what_is_wrong_is_named() {
        let good = OidcConfig {
            issuer: "https://login.example/realms/ours".into(),
            client_id: "wakeq".into(),
            client_secret: None,
            redirect_url: "https://shop.example/queue/sign-in/oidc/callback".into(),
        };
        assert!(good.issuer_url().is_ok());
        let with = |change: fn(&mut OidcConfig)| {
            let mut config = good.clone();
            change(&mut config);
            config.issuer_url().map(drop).map_err(|error| error.to_string())
        };
        assert_eq!(with(|config| config.issuer = "http://127.0.0.1:9000".into()), Ok(()));
        let cases: [(Spoil, &str); 9] = [
            (|config| config.issuer = String::new(), "WAKEQ_OIDC_ISSUER"),
            (|config| config.issuer = "http://login.example".into(), "WAKEQ_OIDC_ISSUER"),
            (|config| config.issuer = "https://login.example?a=b".into(), "WAKEQ_OIDC_ISSUER"),
            (|config| config.issuer = "https://me:pw@login.example".into(), "WAKEQ_OIDC_ISSUER"),
            (|config| config.client_id = String::new(), "WAKEQ_OIDC_CLIENT_ID"),
            (|config| config.client_secret = Some(String::new()), "secret"),
            (|config| config.redirect_url = String::new(), "WAKEQ_OIDC_REDIRECT_URL"),
            (|config| config.redirect_url = "https://queue.example/".into(), "WAKEQ_OIDC_REDIRECT_URL"),
            (
                |config| config.redirect_url = "http://queue.example/sign-in/oidc/callback".into(),
                "WAKEQ_OIDC_REDIRECT_URL",
            ),
        ];
        for (change, words) in cases {
            let error = with(change).unwrap_err();
            assert!(error.contains(words), "{error}");
        }
    }
}
