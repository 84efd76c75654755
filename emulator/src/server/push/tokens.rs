//! The tokens in use: signed once, and reused for most of their hour.
//!
//! Their content is defined in `oidc`.

use std::collections::HashMap;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use serde_json::Value;

use super::oidc::{Claims, GOOGLE_ISSUER, KeyError, Signer, Token};
use crate::broker::Time;
use crate::proto::pubsub::push_config::OidcToken;

/// The most accounts and audiences whose tokens are cached.
const KEPT_MAX: usize = 1_000;

/// Issues tokens, and publishes how to verify them.
pub(crate) struct Tokens {
    signer: Signer,
    kept: Mutex<HashMap<Claims, Token>>,
}

impl Tokens {
    /// With this issuer; Google's by default.
    pub(crate) fn new(issuer: Option<String>) -> Self {
        Self {
            signer: Signer::new(issuer.unwrap_or_else(|| GOOGLE_ISSUER.to_owned())),
            kept: Mutex::default(),
        }
    }

    /// A token for an account. Its audience is the endpoint, unless another one is configured.
    pub(super) async fn token(
        this: &Arc<Self>,
        now: Time,
        account: &OidcToken,
        endpoint: &str,
    ) -> Result<String, KeyError> {
        let audience = if account.audience.is_empty() { endpoint } else { &account.audience };
        let email = account.service_account_email.clone();
        let claims = Claims { email, audience: audience.to_owned() };
        if let Some(token) = this.kept().get(&claims).filter(|token| token.serves(now)) {
            return Ok(token.text.clone());
        }
        let tokens = Arc::clone(this);
        // Generating the key takes a large part of a second.
        tokio::task::spawn_blocking(move || tokens.make(now, claims)).await.map_err(|_| KeyError)?
    }

    /// The public keys, as a JSON Web Key Set.
    pub(crate) async fn keys(this: &Arc<Self>) -> Result<Value, KeyError> {
        let tokens = Arc::clone(this);
        tokio::task::spawn_blocking(move || tokens.signer.keys()).await.map_err(|_| KeyError)?
    }

    /// The OpenID discovery document of an emulator at this address.
    pub(crate) fn discovery(&self, base: &str) -> Value {
        self.signer.discovery(base)
    }

    fn make(&self, now: Time, claims: Claims) -> Result<String, KeyError> {
        let token = self.signer.token(now, &claims)?;
        let text = token.text.clone();
        let mut kept = self.kept();
        if kept.len() >= KEPT_MAX {
            kept.retain(|_, token| token.serves(now));
        }
        if kept.len() < KEPT_MAX {
            kept.insert(claims, token);
        }
        Ok(text)
    }

    fn kept(&self) -> MutexGuard<'_, HashMap<Claims, Token>> {
        // Nothing panics with the lock held.
        self.kept.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

#[cfg(test)]
mod tests {
    use std::time::Duration;

    use base64::Engine as _;

    use super::*;

    const NOW: Time = Time::from_secs(1_800_000_000);

    fn account(audience: &str) -> OidcToken {
        OidcToken { service_account_email: "push@demo.example".into(), audience: audience.into() }
    }

    fn claims(token: &str) -> Value {
        let body = token.split('.').nth(1).unwrap();
        let body = base64::engine::general_purpose::URL_SAFE_NO_PAD.decode(body).unwrap();
        serde_json::from_slice(&body).unwrap()
    }

    #[tokio::test]
    async fn a_token_is_for_the_endpoint_unless_it_is_for_an_audience() {
        let tokens = Arc::new(Tokens::new(None));
        let endpoint = "https://example.com/push?token=1";
        let token = Tokens::token(&tokens, NOW, &account(""), endpoint).await.unwrap();
        assert_eq!(claims(&token)["aud"], endpoint);
        let token = Tokens::token(&tokens, NOW, &account("me"), endpoint).await.unwrap();
        assert_eq!((&claims(&token)["aud"], &claims(&token)["iss"]), (&"me".into(), &GOOGLE_ISSUER.into()));
    }

    #[tokio::test]
    async fn a_token_is_used_again_until_it_is_nearly_over() {
        let tokens = Arc::new(Tokens::new(Some("https://issuer.example".into())));
        let at = async |now| Tokens::token(&tokens, now, &account("me"), "").await.unwrap();
        let first = at(NOW).await;
        assert_eq!(first, at(NOW + Duration::from_secs(2999)).await);
        let second = at(NOW + Duration::from_secs(3000)).await;
        assert_eq!(claims(&second)["iat"], 1_800_003_000);
        assert_eq!(claims(&second)["iss"], "https://issuer.example");
        assert_eq!(second, at(NOW + Duration::from_secs(3001)).await);
    }
}
