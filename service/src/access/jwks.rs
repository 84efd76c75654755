//! Fetches and caches the public keys of Google, or of an OpenID provider. All callers share one
//! fetch at a time; a caller whose key is cached never waits, and unknown key ids cause at most one
//! fetch per minute. Does not check tokens.

use std::collections::HashMap;
use std::pin::Pin;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::{Duration, Instant};

use futures_util::future::{FutureExt, Shared};
use jsonwebtoken::{DecodingKey, DecodingKeyKind};
use reqwest::header::CACHE_CONTROL;
use serde::Deserialize;

use super::error::{AccessError, FetchError};
use super::{Clock, fetch};

const KEYS_MAX: usize = 100;
const KEY_ID_MAX_BYTES: usize = 200;
/// Size of the RSA modulus in bytes. Smaller keys are not safe, larger ones are slow.
const MODULUS_BYTES: std::ops::RangeInclusive<usize> = 256..=1024;
/// Size of a point on P-256, uncompressed.
const POINT_BYTES: usize = 65;
/// Bounds of `max-age`, and its default if the answer has none.
const FRESH_MIN: Duration = Duration::from_secs(5 * 60);
const FRESH_MAX: Duration = Duration::from_secs(24 * 3600);
const FRESH_DEFAULT: Duration = Duration::from_secs(3600);
/// How long keys stay valid while no fetch succeeds.
const STALE_MAX: Duration = Duration::from_secs(48 * 3600);
/// Minimum time between two fetches for unknown key ids, and after a failed refresh.
const FETCH_INTERVAL: Duration = Duration::from_secs(60);
/// Minimum time between two fetches while no keys are cached.
const COLD_FETCH_INTERVAL: Duration = Duration::from_secs(1);

type Fetch = Pin<Box<dyn Future<Output = Result<Arc<KeySet>, FetchError>> + Send>>;

/// Why a key is not available.
#[derive(Debug)]
pub(super) enum NoKey {
    /// The issuer has no key with this id.
    Unknown,
    /// The keys could not be fetched.
    FetchFailed(FetchError),
}

/// What keys are for. Others are skipped.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum KeyKind {
    /// RS256, as ID tokens are signed.
    Rsa,
    /// ES256, as the identity-aware proxy signs, and some OpenID providers.
    P256,
}

/// The keys at one URL. Cheap to clone.
#[derive(Clone)]
pub(super) struct Jwks {
    inner: Arc<JwksState>,
}

struct JwksState {
    url: String,
    kind: KeyKind,
    client: reqwest::Client,
    clock: Clock,
    state: Mutex<KeyCache>,
}

#[derive(Default)]
struct KeyCache {
    keys: Option<Arc<KeySet>>,
    fetching: Option<Shared<Fetch>>,
    /// When the last fetch failed and why; `None` if it succeeded.
    failure: Option<(Instant, FetchError)>,
    /// When keys were last fetched because of an unknown key id.
    unknown_key_fetched_at: Option<Instant>,
}

/// The result of one fetch.
struct KeySet {
    keys: HashMap<String, Arc<DecodingKey>>,
    fetched_at: Instant,
    fresh_for: Duration,
}

enum KeyLookup {
    Cached(Arc<DecodingKey>),
    Pending(Shared<Fetch>),
}

impl Jwks {
    /// Does not fetch anything yet.
    pub(super) fn new(url: &str, kind: KeyKind, clock: Clock) -> Result<Self, AccessError> {
        let parsed = reqwest::Url::parse(url).map_err(|_| {
            AccessError::Config(
                "the URL of Google's keys is not valid: it should look like https://host/path",
            )
        })?;
        if !fetch::is_safe(&parsed) {
            return Err(AccessError::Config("the URL of Google's keys must begin with https://"));
        }
        let client = fetch::client()?;
        let (url, state) = (url.to_owned(), Mutex::default());
        Ok(Self { inner: Arc::new(JwksState { url, kind, client, clock, state }) })
    }

    /// Returns the key with this id; waits only if it is not cached.
    pub(super) async fn key(&self, id: &str) -> Result<Arc<DecodingKey>, NoKey> {
        let fetch = match self.inner.lookup(id)? {
            KeyLookup::Cached(key) => return Ok(key),
            KeyLookup::Pending(fetch) => fetch,
        };
        let keys = fetch.await.map_err(NoKey::FetchFailed)?;
        keys.keys.get(id).cloned().ok_or(NoKey::Unknown)
    }
}

impl JwksState {
    fn lookup(self: &Arc<Self>, id: &str) -> Result<KeyLookup, NoKey> {
        let now = self.clock.now();
        let mut state = self.state();
        let recently = |then: Option<Instant>, within| then.is_some_and(|then| now < then + within);
        let failed = state.failure.as_ref().map(|(at, _)| *at);
        let Some(keys) = state.keys.clone().filter(|keys| now < keys.fetched_at + STALE_MAX) else {
            return match &state.failure {
                Some((_, failure)) if state.fetching.is_none() && recently(failed, COLD_FETCH_INTERVAL) => {
                    Err(NoKey::FetchFailed(failure.clone()))
                }
                Some(_) | None => Ok(KeyLookup::Pending(self.fetch(&mut state))),
            };
        };
        if let Some(key) = keys.keys.get(id) {
            if now >= keys.fetched_at + keys.fresh_for && !recently(failed, FETCH_INTERVAL) {
                // The refresh continues in the background; the caller already has its key.
                drop(self.fetch(&mut state));
            }
            return Ok(KeyLookup::Cached(Arc::clone(key)));
        }
        if state.fetching.is_none() {
            if recently(state.unknown_key_fetched_at, FETCH_INTERVAL) {
                let failure = state.failure.as_ref().map(|(_, failure)| failure.clone());
                return Err(failure.map_or(NoKey::Unknown, NoKey::FetchFailed));
            }
            state.unknown_key_fetched_at = Some(now);
        }
        Ok(KeyLookup::Pending(self.fetch(&mut state)))
    }

    /// Joins the fetch in flight, or starts one. It runs in a task of its own, because the caller
    /// that started it may be cancelled; the fetch has a timeout.
    fn fetch(self: &Arc<Self>, state: &mut KeyCache) -> Shared<Fetch> {
        if let Some(fetching) = &state.fetching {
            return fetching.clone();
        }
        let inner = Arc::clone(self);
        let task = tokio::spawn(async move {
            let guard = FetchGuard(inner);
            let fetched = guard.0.get().await.map(Arc::new);
            guard.0.fetched(&fetched);
            fetched
        });
        let ended = |_| Err(FetchError::Failed("it was interrupted".to_owned()));
        let fetch: Fetch = Box::pin(task.map(move |fetched| fetched.unwrap_or_else(ended)));
        state.fetching.insert(fetch.shared()).clone()
    }

    fn fetched(&self, fetched: &Result<Arc<KeySet>, FetchError>) {
        let mut state = self.state();
        match fetched {
            Ok(keys) => {
                state.keys = Some(Arc::clone(keys));
                state.failure = None;
            }
            Err(error) => {
                tracing::warn!(url = self.url, %error, "public keys were not fetched");
                state.failure = Some((self.clock.now(), error.clone()));
            }
        }
    }

    async fn get(&self) -> Result<KeySet, FetchError> {
        let fetched_at = self.clock.now();
        let response = self.client.get(&self.url).send().await.map_err(fetch::failed)?;
        if response.status() != reqwest::StatusCode::OK {
            return Err(FetchError::Status(response.status().as_u16()));
        }
        let control = response.headers().get(CACHE_CONTROL).and_then(|value| value.to_str().ok());
        let fresh_for = fresh_for(control.unwrap_or_default());
        let body = fetch::body(response).await?.ok_or(FetchError::NoKeys)?;
        let keys = read(&body, self.kind).ok_or(FetchError::NoKeys)?;
        Ok(KeySet { keys, fetched_at, fresh_for })
    }

    fn state(&self) -> MutexGuard<'_, KeyCache> {
        // No code panics while a change is incomplete.
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

/// Allows the next fetch, however this one ends.
struct FetchGuard(Arc<JwksState>);

impl Drop for FetchGuard {
    fn drop(&mut self) {
        self.0.state().fetching = None;
    }
}

/// How long `Cache-Control` lets keys be used, within our own bounds.
fn fresh_for(control: &str) -> Duration {
    let seconds = control.split(',').find_map(|part| {
        let (name, value) = part.trim().split_once('=')?;
        if name.trim().eq_ignore_ascii_case("max-age") {
            value.trim().trim_matches('"').parse().ok()
        } else {
            None
        }
    });
    seconds.map_or(FRESH_DEFAULT, Duration::from_secs).clamp(FRESH_MIN, FRESH_MAX)
}

#[derive(Deserialize)]
struct KeyDocument {
    keys: Vec<serde_json::Value>,
}

#[derive(Deserialize)]
struct Jwk {
    kty: String,
    kid: String,
    alg: Option<String>,
    #[serde(rename = "use")]
    purpose: Option<String>,
    #[serde(flatten)]
    parts: JwkParts,
}

/// The numbers of a key, of which its kind has two.
#[derive(Deserialize)]
struct JwkParts {
    n: Option<String>,
    e: Option<String>,
    crv: Option<String>,
    x: Option<String>,
    y: Option<String>,
}

/// Parses the keys of a kind in a JWKS document, skipping everything else. `None` if there are
/// none.
fn read(body: &[u8], kind: KeyKind) -> Option<HashMap<String, Arc<DecodingKey>>> {
    let document: KeyDocument = serde_json::from_slice(body).ok()?;
    let jwks =
        document.keys.into_iter().take(KEYS_MAX).filter_map(|key| serde_json::from_value::<Jwk>(key).ok());
    let keys: HashMap<_, _> = jwks.filter_map(|jwk| usable(jwk, kind)).collect();
    (!keys.is_empty()).then_some(keys)
}

fn usable(jwk: Jwk, kind: KeyKind) -> Option<(String, Arc<DecodingKey>)> {
    let (family, algorithm) = match kind {
        KeyKind::Rsa => ("RSA", "RS256"),
        KeyKind::P256 => ("EC", "ES256"),
    };
    let meant = jwk.kty == family
        && jwk.alg.is_none_or(|alg| alg == algorithm)
        && jwk.purpose.is_none_or(|purpose| purpose == "sig")
        && (1..=KEY_ID_MAX_BYTES).contains(&jwk.kid.len());
    let key = if meant { sound(jwk.parts, kind) } else { None };
    key.map(|key| (jwk.kid, Arc::new(key)))
}

/// The key with these numbers, if they are of the right size.
fn sound(parts: JwkParts, kind: KeyKind) -> Option<DecodingKey> {
    let key = match kind {
        KeyKind::Rsa => DecodingKey::from_rsa_components(&parts.n?, &parts.e?).ok()?,
        KeyKind::P256 if parts.crv.as_deref() == Some("P-256") => {
            DecodingKey::from_ec_components(&parts.x?, &parts.y?).ok()?
        }
        KeyKind::P256 => return None,
    };
    let is_sound = match (key.kind(), kind) {
        (DecodingKeyKind::RsaModulusExponent { n, .. }, KeyKind::Rsa) => MODULUS_BYTES.contains(&n.len()),
        (DecodingKeyKind::SecretOrDer(point), KeyKind::P256) => point.len() == POINT_BYTES,
        (DecodingKeyKind::RsaModulusExponent { .. } | DecodingKeyKind::SecretOrDer(_), _) => false,
    };
    is_sound.then_some(key)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn cache_control_is_taken_within_limits() {
        for (control, seconds) in [
            ("public, max-age=19845, must-revalidate, no-transform", 19845),
            ("Max-Age = 600", 600),
            ("max-age=\"600\"", 600),
            ("max-age=0", 300),
            ("max-age=99999999", 24 * 3600),
            ("no-store", 3600),
            ("", 3600),
            ("max-age=x", 3600),
            ("s-maxage=700", 3600),
        ] {
            assert_eq!(fresh_for(control), Duration::from_secs(seconds), "{control:?}");
        }
    }

    fn jwk(change: impl FnOnce(&mut serde_json::Value)) -> Vec<u8> {
        let modulus = "A".repeat(342); // 256 bytes
        let mut key = serde_json::json!({"kty": "RSA", "kid": "one", "alg": "RS256", "use": "sig", "n": modulus, "e": "AQAB"});
        change(&mut key);
        serde_json::to_vec(&serde_json::json!({"keys": [key]})).unwrap()
    }

    #[test]
    fn only_keys_for_rs256_are_read() {
        let read = |body: &[u8]| super::read(body, KeyKind::Rsa);
        assert_eq!(read(&jwk(|_| {})).unwrap().keys().collect::<Vec<_>>(), ["one"]);
        assert!(
            read(&jwk(|key| {
                key.as_object_mut().unwrap().remove("alg");
            }))
            .is_some()
        );
        for (name, value) in [
            ("kty", "EC"),
            ("kty", "oct"),
            ("alg", "HS256"),
            ("alg", "RS512"),
            ("use", "enc"),
            ("kid", ""),
            ("n", "AQAB"),
            ("n", "%"),
            ("e", "%"),
        ] {
            assert!(read(&jwk(|key| key[name] = value.into())).is_none(), "{name} {value}");
        }
        assert!(read(&jwk(|key| key["kid"] = 7.into())).is_none());
        assert!(read(&jwk(|key| key["kid"] = "k".repeat(201).into())).is_none());
        for body in ["", "[]", "{}", "{\"keys\":[]}", "{\"keys\":[1]}", "{\"keys\":{}}", "<html>"] {
            assert!(read(body.as_bytes()).is_none(), "{body}");
        }
    }

    #[test]
    fn only_points_of_p256_are_read_for_the_proxy() {
        let point = "A".repeat(43); // 32 bytes
        let key = |change: fn(&mut serde_json::Value)| {
            let mut key = serde_json::json!({"kty": "EC", "kid": "one", "alg": "ES256", "use": "sig", "crv": "P-256",
                                             "x": point, "y": point});
            change(&mut key);
            read(&serde_json::to_vec(&serde_json::json!({"keys": [key]})).unwrap(), KeyKind::P256)
        };
        assert!(key(|_| {}).is_some());
        assert!(key(|key| key["crv"] = "P-384".into()).is_none());
        assert!(key(|key| key["x"] = "AAAA".into()).is_none());
        assert!(key(|key| key["alg"] = "RS256".into()).is_none());
        assert!(read(&jwk(|_| {}), KeyKind::P256).is_none(), "a key of the other kind");
        let of_p256 = serde_json::json!({"keys": [{"kty": "EC", "kid": "one", "crv": "P-256", "x": point, "y": point}]});
        assert!(read(&serde_json::to_vec(&of_p256).unwrap(), KeyKind::Rsa).is_none());
    }

    #[test]
    fn keys_are_fetched_from_where_nobody_can_change_them() {
        for url in
            ["https://www.googleapis.com/oauth2/v3/certs", "http://127.0.0.1:1/certs", "http://localhost/"]
        {
            assert!(Jwks::new(url, KeyKind::Rsa, Clock::default()).is_ok(), "{url}");
        }
        for url in
            ["http://www.googleapis.com/", "http://127.0.0.1.example.com/", "ftp://localhost/", "certs", ""]
        {
            assert!(
                matches!(Jwks::new(url, KeyKind::Rsa, Clock::default()), Err(AccessError::Config(_))),
                "{url}"
            );
        }
    }
}
