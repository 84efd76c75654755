//! The OpenID provider over HTTP: what it says about itself, its keys, and the exchange of a code.
//! What it says is fetched when it is needed, by one caller for all, and kept for an hour.

use std::sync::Arc;
use std::time::{Duration, Instant};

use base64::Engine;
use base64::prelude::BASE64_STANDARD;
use jsonwebtoken::DecodingKey;
use reqwest::header::{ACCEPT, AUTHORIZATION, CONTENT_TYPE, HeaderValue};
use reqwest::{Client, RequestBuilder, StatusCode, Url};
use serde::Deserialize;
use tokio::sync::Mutex;
use url::form_urlencoded::{Serializer, byte_serialize};

use super::config::OidcConfig;
use crate::access::clock::Clock;
use crate::access::error::{AccessError, FetchError};
use crate::access::fetch;
use crate::access::jwks::{Jwks, KeyKind, NoKey};

/// How long what it says is used without a look, and while no look succeeds.
const FRESH: Duration = Duration::from_secs(3600);
const STALE: Duration = Duration::from_secs(24 * 3600);
/// Minimum time between two looks after one that failed, with and without something to go on with.
const PAUSE: Duration = Duration::from_secs(60);
const COLD_PAUSE: Duration = Duration::from_secs(1);

const FORM: &str = "application/x-www-form-urlencoded";

/// The configured provider.
pub(super) struct Provider {
    config: OidcConfig,
    issuer: Url,
    client: Client,
    clock: Clock,
    found: Mutex<Found>,
}

#[derive(Default)]
struct Found {
    endpoints: Option<(Instant, Arc<Endpoints>)>,
    failure: Option<(Instant, FetchError)>,
}

/// What a provider says about itself.
pub(super) struct Endpoints {
    pub(super) authorization: Url,
    token: Url,
    jwks: String,
    rsa: Jwks,
    p256: Jwks,
    /// Whether its answers say which provider they are from (RFC 9207).
    pub(super) names_itself: bool,
    /// Whether it takes the client's secret in the body only.
    takes_secret_in_body: bool,
}

/// Why a code was not exchanged.
#[derive(Debug)]
pub(super) enum NotRedeemed {
    /// The provider has refused it.
    Refused,
    Unavailable(FetchError),
}

#[derive(Deserialize)]
struct DiscoveryDocument {
    issuer: String,
    authorization_endpoint: String,
    token_endpoint: String,
    jwks_uri: String,
    #[serde(default)]
    token_endpoint_auth_methods_supported: Option<Vec<String>>,
    #[serde(default)]
    authorization_response_iss_parameter_supported: bool,
}

#[derive(Deserialize)]
struct Tokens {
    id_token: String,
}

impl Provider {
    /// Does not fetch anything yet.
    pub(super) fn new(config: OidcConfig, clock: Clock) -> Result<Self, AccessError> {
        let issuer = config.issuer_url()?;
        Ok(Self { config, issuer, client: fetch::client()?, clock, found: Mutex::default() })
    }

    /// Its name for people: its host.
    pub(super) fn name(&self) -> &str {
        self.issuer.host_str().unwrap_or_default()
    }

    pub(super) fn config(&self) -> &OidcConfig {
        &self.config
    }

    /// What it says about itself: fetched if that is needed, or else, while that fails, what it has
    /// said before.
    pub(super) async fn endpoints(&self) -> Result<Arc<Endpoints>, FetchError> {
        // Others wait for the same look, which has a timeout.
        let mut found = self.found.lock().await;
        let now = self.clock.now();
        let known = found.endpoints.clone().filter(|(at, _)| now < *at + STALE);
        if let Some((at, endpoints)) = &known
            && now < *at + FRESH
        {
            return Ok(Arc::clone(endpoints));
        }
        let pause = if known.is_some() { PAUSE } else { COLD_PAUSE };
        let recent = found.failure.clone().filter(|(at, _)| now < *at + pause);
        let known = known.map(|(_, endpoints)| endpoints);
        let error = match recent {
            Some((_, error)) => error,
            None => match self.discovered(known.as_deref()).await {
                Ok(endpoints) => {
                    let endpoints = Arc::new(endpoints);
                    *found = Found { endpoints: Some((now, Arc::clone(&endpoints))), failure: None };
                    return Ok(endpoints);
                }
                Err(error) => {
                    tracing::warn!(issuer = self.config.issuer, %error, "an OpenID provider does not answer");
                    found.failure = Some((self.clock.now(), error.clone()));
                    error
                }
            },
        };
        known.ok_or(error)
    }

    async fn discovered(&self, known: Option<&Endpoints>) -> Result<Endpoints, FetchError> {
        let url = format!("{}/.well-known/openid-configuration", self.config.issuer.trim_end_matches('/'));
        let response = self.client.get(url).send().await.map_err(fetch::failed)?;
        if response.status() != StatusCode::OK {
            return Err(FetchError::Status(response.status().as_u16()));
        }
        let body = fetch::body(response).await?.ok_or(FetchError::NoDocument)?;
        let document =
            serde_json::from_slice::<DiscoveryDocument>(&body).map_err(|_| FetchError::NoDocument)?;
        self.read(document, known).ok_or(FetchError::NoDocument)
    }

    /// The endpoints in a document, if it is of this issuer. Keys that were fetched from the same
    /// place are kept.
    fn read(&self, document: DiscoveryDocument, known: Option<&Endpoints>) -> Option<Endpoints> {
        if document.issuer != self.config.issuer {
            return None;
        }
        let (authorization, token) =
            (self.endpoint(&document.authorization_endpoint)?, self.endpoint(&document.token_endpoint)?);
        let jwks = self.endpoint(&document.jwks_uri)?.to_string();
        let keys = |kind| Jwks::new(&jwks, kind, self.clock.clone()).ok();
        let (rsa, p256) = match known.filter(|known| known.jwks == jwks) {
            Some(known) => (known.rsa.clone(), known.p256.clone()),
            None => (keys(KeyKind::Rsa)?, keys(KeyKind::P256)?),
        };
        let methods = document.token_endpoint_auth_methods_supported.unwrap_or_default();
        let takes = |method: &str| methods.iter().any(|one| one == method);
        Some(Endpoints {
            authorization,
            token,
            jwks,
            rsa,
            p256,
            names_itself: document.authorization_response_iss_parameter_supported,
            takes_secret_in_body: takes("client_secret_post") && !takes("client_secret_basic"),
        })
    }

    /// A URL of the document: plain HTTP on this machine only if the issuer is there, too.
    fn endpoint(&self, text: &str) -> Option<Url> {
        let url = Url::parse(text).ok()?;
        let is_safe = url.scheme() == "https" || fetch::is_local(&self.issuer) && fetch::is_local(&url);
        (is_safe && url.username().is_empty() && url.fragment().is_none()).then_some(url)
    }

    /// The request for the tokens of a code.
    fn redemption(&self, endpoints: &Endpoints, code: &str, verifier: &str) -> RequestBuilder {
        let OidcConfig { client_id, client_secret, redirect_url, .. } = &self.config;
        let mut form = Serializer::new(String::new());
        form.append_pair("grant_type", "authorization_code").append_pair("code", code);
        form.append_pair("redirect_uri", redirect_url).append_pair("code_verifier", verifier);
        let mut request = self.client.post(endpoints.token.clone());
        request = request.header(CONTENT_TYPE, FORM).header(ACCEPT, "application/json");
        match client_secret {
            Some(secret) if endpoints.takes_secret_in_body => {
                form.append_pair("client_id", client_id).append_pair("client_secret", secret);
            }
            Some(secret) => request = request.header(AUTHORIZATION, basic(client_id, secret)),
            None => {
                form.append_pair("client_id", client_id);
            }
        }
        request.body(form.finish())
    }

    /// The ID token for a code.
    pub(super) async fn redeem(
        &self,
        endpoints: &Endpoints,
        code: &str,
        verifier: &str,
    ) -> Result<String, NotRedeemed> {
        let failed = |error| NotRedeemed::Unavailable(fetch::failed(error));
        let request = self.redemption(endpoints, code, verifier);
        let response = request.send().await.map_err(failed)?;
        let status = response.status();
        if status != StatusCode::OK {
            if status == StatusCode::UNAUTHORIZED {
                tracing::warn!("the OpenID provider did not accept the client's id and secret");
            }
            return Err(match status {
                StatusCode::BAD_REQUEST | StatusCode::UNAUTHORIZED | StatusCode::FORBIDDEN => {
                    NotRedeemed::Refused
                }
                status => NotRedeemed::Unavailable(FetchError::Status(status.as_u16())),
            });
        }
        let body = fetch::body(response).await.map_err(NotRedeemed::Unavailable)?;
        let tokens = body.and_then(|body| serde_json::from_slice::<Tokens>(&body).ok());
        Ok(tokens.ok_or(NotRedeemed::Unavailable(FetchError::NoToken))?.id_token)
    }
}

impl Endpoints {
    /// The key with this id.
    pub(super) async fn key(&self, kind: KeyKind, id: &str) -> Result<Arc<DecodingKey>, NoKey> {
        match kind {
            KeyKind::Rsa => self.rsa.key(id).await,
            KeyKind::P256 => self.p256.key(id).await,
        }
    }
}

/// The client and its secret, as RFC 6749 writes them in section 2.3.1.
fn basic(client_id: &str, secret: &str) -> HeaderValue {
    let encoded = |text: &str| byte_serialize(text.as_bytes()).collect::<String>();
    let pair = BASE64_STANDARD.encode(format!("{}:{}", encoded(client_id), encoded(secret)));
    let value = HeaderValue::from_str(&format!("Basic {pair}"));
    let mut value = value.unwrap_or(HeaderValue::from_static(""));
    value.set_sensitive(true);
    value
}
