//! The OpenID Connect tokens of authenticated push requests: an RSA key that is generated on first
//! use, tokens signed with it, and the documents with which receivers verify them.
//!
//! The key has no other use, lives as long as the process, and is never revealed.

use std::sync::OnceLock;
use std::time::Duration;

use aws_lc_rs::rand::SystemRandom;
use aws_lc_rs::rsa::{KeyPair, KeySize};
use aws_lc_rs::signature::{KeyPair as _, RSA_PKCS1_SHA256};
use aws_lc_rs::{digest, error::Unspecified};
use base64::Engine;
use base64::engine::general_purpose::URL_SAFE_NO_PAD;
use serde_json::{Value, json};

use crate::broker::Time;

/// The service's issuer, and the default here, as receivers expect it.
pub(crate) const GOOGLE_ISSUER: &str = "https://accounts.google.com";
/// The path at which the keys are served.
pub(crate) const KEYS_PATH: &str = "/oauth2/v3/certs";
/// The path at which the discovery document is served.
pub(crate) const DISCOVERY_PATH: &str = "/.well-known/openid-configuration";

const LIFETIME: Duration = Duration::from_secs(3600);
/// A token is reused for other requests until this long before it expires.
const SPARE: Duration = Duration::from_secs(600);
/// How long receivers may cache the keys.
pub(crate) const KEYS_MAX_AGE_SECONDS: u32 = 3600;

/// The key could not be generated or used, which means that the system's randomness is unusable.
#[derive(Debug, thiserror::Error)]
#[error(
    "the key for signing push tokens can't be generated or used: does this system have a source of randomness?"
)]
pub(crate) struct KeyError;

impl From<Unspecified> for KeyError {
    fn from(_: Unspecified) -> Self {
        Self
    }
}

/// Signs tokens.
pub(crate) struct Signer {
    issuer: String,
    key: OnceLock<Key>,
}

struct Key {
    pair: KeyPair,
    id: String,
}

/// The claims of a token.
#[derive(Clone, Debug, Eq, Hash, PartialEq)]
pub(crate) struct Claims {
    /// The service account.
    pub(crate) email: String,
    /// The receiver.
    pub(crate) audience: String,
}

/// A signed token, and until when it may be sent.
#[derive(Clone, Debug)]
pub(crate) struct Token {
    pub(crate) text: String,
    pub(crate) usable_until: Time,
}

impl Token {
    /// Whether it may still be sent.
    pub(crate) fn serves(&self, now: Time) -> bool {
        now < self.usable_until
    }
}

impl Signer {
    /// Generates no key yet.
    pub(crate) fn new(issuer: impl Into<String>) -> Self {
        Self { issuer: issuer.into(), key: OnceLock::new() }
    }

    /// A token that is valid for an hour from now.
    pub(crate) fn token(&self, now: Time, claims: &Claims) -> Result<Token, KeyError> {
        let key = self.key()?;
        let issued = now.since(Time::default()).as_secs();
        let header = json!({"alg": "RS256", "kid": key.id, "typ": "JWT"});
        let subject = subject(&claims.email);
        let body = json!({
            "aud": claims.audience,
            "azp": subject,
            "email": claims.email,
            "email_verified": true,
            "exp": issued + LIFETIME.as_secs(),
            "iat": issued,
            "iss": self.issuer,
            "sub": subject,
        });
        let encode = |part: &Value| URL_SAFE_NO_PAD.encode(part.to_string());
        let signed = format!("{}.{}", encode(&header), encode(&body));
        let mut signature = vec![0; key.pair.public_modulus_len()];
        key.pair.sign(&RSA_PKCS1_SHA256, &SystemRandom::new(), signed.as_bytes(), &mut signature)?;
        let text = format!("{signed}.{}", URL_SAFE_NO_PAD.encode(signature));
        Ok(Token { text, usable_until: now + (LIFETIME - SPARE) })
    }

    /// The public key, as a JSON Web Key Set.
    pub(crate) fn keys(&self) -> Result<Value, KeyError> {
        let key = self.key()?;
        let public = key.pair.public_key();
        let encode = |number: &[u8]| URL_SAFE_NO_PAD.encode(number);
        Ok(json!({"keys": [{
            "alg": "RS256",
            "e": encode(public.exponent().big_endian_without_leading_zero()),
            "kid": key.id,
            "kty": "RSA",
            "n": encode(public.modulus().big_endian_without_leading_zero()),
            "use": "sig",
        }]}))
    }

    /// The OpenID discovery document of an emulator at this address (`http://127.0.0.1:8085`).
    pub(crate) fn discovery(&self, base: &str) -> Value {
        json!({
            "issuer": self.issuer,
            "jwks_uri": format!("{base}{KEYS_PATH}"),
            "response_types_supported": ["id_token"],
            "subject_types_supported": ["public"],
            "id_token_signing_alg_values_supported": ["RS256"],
            "claims_supported": ["aud", "azp", "email", "email_verified", "exp", "iat", "iss", "sub"],
        })
    }

    /// Concurrent callers may each generate a key; the first one is kept.
    fn key(&self) -> Result<&Key, KeyError> {
        if let Some(key) = self.key.get() {
            return Ok(key);
        }
        let pair = KeyPair::generate(KeySize::Rsa2048)?;
        let fingerprint = digest::digest(&digest::SHA256, pair.public_key().as_ref());
        let id = fingerprint.as_ref().iter().take(20).map(|byte| format!("{byte:02x}")).collect();
        Ok(self.key.get_or_init(|| Key { pair, id }))
    }
}

/// The service's subjects are the numbers of the accounts; here it is a number of the same length,
/// derived from the address.
fn subject(email: &str) -> String {
    let hash = digest::digest(&digest::SHA256, email.as_bytes());
    let number = hash.as_ref().iter().take(8).fold(0_u64, |number, byte| (number << 8) | u64::from(*byte));
    format!("1{number:020}")
}

#[cfg(test)]
mod tests {
    use aws_lc_rs::signature::{RSA_PKCS1_2048_8192_SHA256, RsaPublicKeyComponents};

    use super::*;

    const NOW: Time = Time::from_secs(1_800_000_000);

    fn decoded(part: &str) -> Vec<u8> {
        URL_SAFE_NO_PAD.decode(part).unwrap()
    }

    fn claims() -> Claims {
        Claims {
            email: "push@demo.iam.gserviceaccount.com".into(),
            audience: "https://example.com/push".into(),
        }
    }

    #[test]
    fn a_token_is_checked_by_the_published_key_and_says_what_the_service_says() {
        let signer = Signer::new(GOOGLE_ISSUER);
        let token = signer.token(NOW, &claims()).unwrap();
        let parts: Vec<&str> = token.text.split('.').collect();
        let [header, body, signature] = parts[..] else { panic!("three parts: {token:?}") };

        let keys = signer.keys().unwrap();
        let key = &keys["keys"][0];
        let number = |name: &str| decoded(key[name].as_str().unwrap());
        let public = RsaPublicKeyComponents { n: number("n"), e: number("e") };
        let signed = format!("{header}.{body}");
        public.verify(&RSA_PKCS1_2048_8192_SHA256, signed.as_bytes(), &decoded(signature)).unwrap();

        let header: Value = serde_json::from_slice(&decoded(header)).unwrap();
        assert_eq!(header, json!({"alg": "RS256", "kid": key["kid"], "typ": "JWT"}));
        let body: Value = serde_json::from_slice(&decoded(body)).unwrap();
        assert_eq!(body["iss"], GOOGLE_ISSUER);
        assert_eq!(body["aud"], "https://example.com/push");
        assert_eq!(body["email"], "push@demo.iam.gserviceaccount.com");
        assert_eq!(body["email_verified"], true);
        assert_eq!(body["iat"], 1_800_000_000);
        assert_eq!(body["exp"], 1_800_003_600);
        assert_eq!(body["sub"], body["azp"]);
        assert_eq!(body["sub"].as_str().unwrap().len(), 21);
        assert_eq!(token.usable_until, NOW + Duration::from_secs(3000));
    }

    #[test]
    fn one_key_serves_a_whole_process() {
        let signer = Signer::new(GOOGLE_ISSUER);
        assert_eq!(signer.keys().unwrap(), signer.keys().unwrap());
        assert_ne!(signer.keys().unwrap(), Signer::new(GOOGLE_ISSUER).keys().unwrap());
    }

    #[test]
    fn the_discovery_document_leads_to_the_keys() {
        let document = Signer::new("http://127.0.0.1:8085").discovery("http://127.0.0.1:8085");
        assert_eq!(document["issuer"], "http://127.0.0.1:8085");
        assert_eq!(document["jwks_uri"], "http://127.0.0.1:8085/oauth2/v3/certs");
    }
}
