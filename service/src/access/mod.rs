//! Access control: identifies callers by their credentials; [`authorize`] decides what they may do.
//! Knows no HTTP and performs none of the operations it permits.

mod clock;
mod error;
mod fetch;
mod jwks;
mod key;
mod keyring;
mod lookup;
mod oidc;
mod opened;
mod people;
mod principal;
mod push;
mod scope;
mod session;
mod sessions;
mod token;

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::{Duration, Instant};

pub use clock::Clock;
pub use error::{
    AccessError, FetchError, InvalidSignIn, InvalidToken, PushDenied, Refusal, Unauthenticated,
    VerifierUnavailable,
};
pub use key::{ApiKey, InvalidKeyId, KeyId, NoRandomness};
pub use keyring::{
    Account, CreatedKey, CredentialFilter, DEFAULT_LIFETIME, Key, KeyState, LIFETIME_MAX, NAME_MAX,
    NARROW_MAX, NewKey,
};
pub use oidc::OidcConfig;
pub(crate) use oidc::{CALLBACK, IssuerAnswer, SIGN_IN_S};
pub(crate) use opened::{Browser, OpenSession};
use principal::GrantSet;
pub use principal::{Denied, Grant, Principal, Reach, authorize, authorize_everywhere};
pub(crate) use principal::{authorize_handler, authorize_handlers, authorize_some_handler, canvases_with};
pub use push::PushCallers;
pub(crate) use scope::read_scopes;
pub use scope::{InvalidScope, NarrowScope, Scope, Scopes};
pub(crate) use session::SignIn;
pub use sessions::SESSION;

use tokio::sync::OnceCell;
use uuid::Uuid;

use crate::store::ServiceStore;
use jwks::{Jwks, KeyKind, NoKey};
use key::{KeyChecks, KeyHash};
use lookup::{Limits, Lookup};
use oidc::Oidc;
use push::Pushers;
use session::{KnownSession, Sessions};
use token::{AcceptedClaims, TokenKind};
use wakeq::{Store, StoreError};

const HEADER_MAX_BYTES: usize = 8 * 1024;
const CACHE_MAX: Duration = Duration::from_secs(30);
/// Together with the statement timeout, guarantees that a revoked credential is refused after 60 s
/// at the latest.
const STALE: Duration = Duration::from_secs(50);
const ENTRIES_MAX: usize = 10_000;
const LOADS_MAX: usize = 64;
const CANVASES_MAX: i64 = 1000;

/// How credentials are checked.
///
/// ```
/// use wakeq_service::access::AccessConfig;
///
/// let config = AccessConfig { audiences: vec!["https://queue.example".into()], ..AccessConfig::default() };
/// assert_eq!(config.cache.as_secs(), 30);
/// ```
#[derive(Clone, Debug)]
pub struct AccessConfig {
    /// Accepted `aud` claims of Google's ID tokens, compared exactly: the URLs of this service. If
    /// empty (the default), ID tokens are not accepted, and no keys are fetched for them.
    pub audiences: Vec<String>,
    /// Which callers may push. None by default: the service is not a push deployment.
    pub push: PushCallers,
    /// URL of Google's public keys. HTTPS, or plain HTTP on the loopback address.
    pub jwks_url: String,
    /// Accepted `iss` claims of ID tokens, compared exactly.
    pub issuers: Vec<String>,
    /// The `aud` claim of the assertions of Google's identity-aware proxy in front of the pages,
    /// such as `/projects/123/global/backendServices/456`. The people whom it lets through are
    /// signed in there, with what was granted to their addresses. None by default: assertions are
    /// ignored.
    pub iap_audience: Option<String>,
    /// URL of the public keys of that proxy. As for [`AccessConfig::jwks_url`].
    pub iap_jwks_url: String,
    /// The OpenID provider whose people sign in to the pages, with what was granted to the
    /// addresses that it has verified. None by default.
    pub oidc: Option<OidcConfig>,
    /// How long a key or an account is cached. At most 30 s (the default), so that a revocation
    /// takes effect within 60 s.
    pub cache: Duration,
    /// The clock; tests replace it.
    pub clock: Clock,
}

impl Default for AccessConfig {
    fn default() -> Self {
        Self {
            audiences: Vec::new(),
            push: PushCallers::default(),
            jwks_url: "https://www.googleapis.com/oauth2/v3/certs".to_owned(),
            issuers: vec!["https://accounts.google.com".to_owned(), "accounts.google.com".to_owned()],
            iap_audience: None,
            iap_jwks_url: "https://www.gstatic.com/iap/verify/public_key-jwk".to_owned(),
            oidc: None,
            cache: CACHE_MAX,
            clock: Clock::default(),
        }
    }
}

/// Identifies callers, and caches keys and accounts. Cheap to clone.
#[derive(Clone)]
pub struct Access {
    inner: Arc<AccessState>,
}

struct AccessState {
    store: ServiceStore,
    clock: Clock,
    accepted: AcceptedClaims,
    pushers: Option<Pushers>,
    jwks: Option<Jwks>,
    proxy: Option<Proxy>,
    oidc: Option<Oidc>,
    checks: OnceCell<KeyChecks>,
    sessions: OnceCell<Sessions>,
    opened: Lookup<Uuid, KnownSession>,
    keys: Lookup<KeyId, KnownKey>,
    accounts: Lookup<String, GrantSet>,
}

/// Google's identity-aware proxy in front of the pages.
struct Proxy {
    accepted: AcceptedClaims,
    jwks: Jwks,
}

impl Proxy {
    /// Who issues its assertions.
    const ISSUER: &'static str = "https://cloud.google.com/iap";

    fn new(audience: String, jwks_url: &str, clock: Clock) -> Result<Self, AccessError> {
        if !audience.starts_with("/projects/") {
            return Err(AccessError::Config(
                "the audience of the identity-aware proxy looks like /projects/123/global/backendServices/456: Google's \
                 console shows it as the \"signed header JWT audience\" of the backend",
            ));
        }
        let (audiences, issuers) = (vec![audience], vec![Self::ISSUER.to_owned()]);
        let accepted = AcceptedClaims { audiences, issuers, kind: TokenKind::Assertion };
        Ok(Self { accepted, jwks: Jwks::new(jwks_url, KeyKind::P256, clock)? })
    }
}

/// A cached key.
struct KnownKey {
    hash: KeyHash,
    principal: Principal,
    revoked: bool,
    /// `None` if the expiry is too far away for an [`Instant`].
    expires: Option<Instant>,
    use_to_note: AtomicBool,
}

impl Access {
    /// Creates the service; does not query or fetch anything yet. Errors: [`AccessError::Config`],
    /// [`AccessError::Tls`].
    pub fn new(store: Store, config: AccessConfig) -> Result<Self, AccessError> {
        if config.cache > CACHE_MAX {
            return Err(AccessError::Config(
                "keys are cached for at most 30 s, so that a revocation takes effect within 60 s",
            ));
        }
        if config.audiences.iter().any(String::is_empty) {
            return Err(AccessError::Config(
                "an audience is the URL of this service, exactly as clients request tokens for it",
            ));
        }
        let AccessConfig {
            audiences,
            push,
            jwks_url,
            issuers,
            iap_audience,
            iap_jwks_url,
            oidc,
            cache,
            clock,
        } = config;
        let pushers = Pushers::new(push, &audiences, &issuers)?;
        let limits = Limits { fresh: cache, stale: STALE, entries_max: ENTRIES_MAX, loads_max: LOADS_MAX };
        let no_tokens = audiences.is_empty() && pushers.is_none();
        let jwks = (!no_tokens).then(|| Jwks::new(&jwks_url, KeyKind::Rsa, clock.clone())).transpose()?;
        let proxy = iap_audience.map(|audience| Proxy::new(audience, &iap_jwks_url, clock.clone()));
        let oidc = oidc.map(|oidc| Oidc::new(oidc, clock.clone())).transpose()?;
        let inner = AccessState {
            store: store.into(),
            accepted: AcceptedClaims { audiences, issuers, kind: TokenKind::Id },
            pushers,
            jwks,
            proxy: proxy.transpose()?,
            oidc,
            checks: OnceCell::new(),
            sessions: OnceCell::new(),
            opened: Lookup::new(limits, clock.clone()),
            keys: Lookup::new(limits, clock.clone()),
            accounts: Lookup::new(limits, clock.clone()),
            clock,
        };
        Ok(Self { inner: Arc::new(inner) })
    }

    /// Identifies the sender of a request by the value of its only `Authorization` header.
    pub async fn authenticate(&self, authorization: Option<&str>) -> Result<Principal, Unauthenticated> {
        let credential = bearer(authorization)?;
        if ApiKey::has_prefix(credential) {
            let key = ApiKey::parse(credential).ok_or(Unauthenticated::Malformed)?;
            self.by_key(&key).await
        } else if token::looks_like_token(credential) {
            self.by_token(credential).await
        } else {
            Err(Unauthenticated::Malformed)
        }
    }

    /// Whether push is configured.
    pub fn takes_pushes(&self) -> bool {
        self.inner.pushers.is_some()
    }

    /// Identifies the account that sent a push by the value of its only `Authorization` header. API
    /// keys and tokens for the API are not accepted here.
    pub async fn authenticate_push(&self, authorization: Option<&str>) -> Result<String, PushDenied> {
        let pushers = self.inner.pushers.as_ref().ok_or(PushDenied::Off)?;
        let token = bearer(authorization)?;
        if !token::looks_like_token(token) {
            return Err(Unauthenticated::Malformed.into());
        }
        let email = self.verified(token, self.inner.jwks.as_ref(), &pushers.accepted).await?;
        if pushers.accounts.contains(&email) {
            Ok(email)
        } else {
            Err(PushDenied::NotNamed(Refusal::NotListed { email }))
        }
    }

    async fn by_key(&self, key: &ApiKey) -> Result<Principal, Unauthenticated> {
        let id = key.id();
        if !self.checks().await.map_err(unavailable)?.verify(key) {
            return Err(Unauthenticated::Unknown(Refusal::WrongCheck(id)));
        }
        let known = self.known(id).await?;
        let hash = known.as_ref().map_or(KeyHash::OF_NOTHING, |known| known.hash);
        let matches = key.hash().matches(&hash);
        if known.is_some() && !matches {
            return Err(Unauthenticated::Unknown(Refusal::WrongSecret(id)));
        }
        self.live(id, known)
    }

    /// The key with this id, from the cache or the database.
    async fn known(&self, id: KeyId) -> Result<Option<Arc<KnownKey>>, Unauthenticated> {
        let inner = &self.inner;
        let load = load_key(inner.store.clone(), inner.clock.clone(), id);
        Ok(inner.keys.find(&id, load).await.map_err(unavailable)?.value)
    }

    /// The holder of a key, unless it is no longer valid.
    fn live(&self, id: KeyId, known: Option<Arc<KnownKey>>) -> Result<Principal, Unauthenticated> {
        let inner = &self.inner;
        let refused = |refusal| Err(Unauthenticated::Unknown(refusal));
        let Some(known) = known else { return refused(Refusal::NoSuchKey(id)) };
        if known.revoked {
            return refused(Refusal::Revoked(id));
        }
        if known.expires.is_some_and(|expires| expires <= inner.clock.now()) {
            return refused(Refusal::Expired(id));
        }
        if known.use_to_note.swap(false, Ordering::Relaxed) {
            tokio::spawn(note_use(inner.store.clone(), id));
        }
        Ok(known.principal.clone())
    }

    /// Loads the deployment's secret for the check at the end of keys, unless it is loaded already.
    /// From then on, made-up keys are refused without a query. Called before the service accepts
    /// requests.
    pub(crate) async fn prepare(&self) -> Result<(), StoreError> {
        self.checks().await.map(drop)
    }

    /// Tells keys made by this deployment from made-up ones; its secret is queried once.
    async fn checks(&self) -> Result<&KeyChecks, StoreError> {
        let load = async || Ok(KeyChecks::new(&self.inner.store.key_check_secret().await?));
        self.inner.checks.get_or_try_init(load).await
    }

    async fn by_token(&self, text: &str) -> Result<Principal, Unauthenticated> {
        let inner = &self.inner;
        if inner.accepted.audiences.is_empty() {
            return Err(Unauthenticated::Unknown(Refusal::Token(InvalidToken::Off)));
        }
        let email = self.verified(text, inner.jwks.as_ref(), &inner.accepted).await?;
        if !token::is_service_account(&email) {
            // What was granted to a person is for the pages, behind the proxy: it is the proxy that
            // knows whether the address is still the person's.
            return Err(Unauthenticated::Unknown(Refusal::NotListed { email }));
        }
        self.account(email).await
    }

    /// Whether people whom Google's identity-aware proxy lets through are signed in to the pages.
    pub(crate) fn trusts_proxy(&self) -> bool {
        self.inner.proxy.is_some()
    }

    /// Identifies the person whom that proxy has let through, by its assertion.
    pub(crate) async fn by_assertion(&self, text: &str) -> Result<(SignIn, Principal), Unauthenticated> {
        let off = Unauthenticated::Unknown(Refusal::Token(InvalidToken::Off));
        let proxy = self.inner.proxy.as_ref().ok_or(off)?;
        if text.len() > HEADER_MAX_BYTES || !token::looks_like_token(text) {
            return Err(Unauthenticated::Malformed);
        }
        let email = self.verified(text, Some(&proxy.jwks), &proxy.accepted).await?;
        let principal = self.account(email.clone()).await?;
        Ok((SignIn::Proxy { email }, principal))
    }

    /// The account with this address, if anything was granted to it.
    async fn account(&self, email: String) -> Result<Principal, Unauthenticated> {
        let inner = &self.inner;
        let load = load_grants(inner.store.clone(), email.clone());
        match inner.accounts.find(&email, load).await.map_err(unavailable)?.value {
            Some(granted) => Ok(Principal::of_account(&email, (*granted).clone())),
            None => Err(Unauthenticated::Unknown(Refusal::NotListed { email })),
        }
    }

    /// The account of a valid token whose audience is ours. Does not say what the account may do.
    async fn verified(
        &self,
        text: &str,
        jwks: Option<&Jwks>,
        accepted: &AcceptedClaims,
    ) -> Result<String, Unauthenticated> {
        let invalid = |reason| Unauthenticated::Unknown(Refusal::Token(reason));
        let jwks = jwks.ok_or(invalid(InvalidToken::Off))?;
        let key_id = token::key_id(text, accepted.kind).map_err(invalid)?;
        let key = jwks.key(&key_id).await.map_err(|reason| match reason {
            NoKey::Unknown => invalid(InvalidToken::UnknownKey),
            NoKey::FetchFailed(error) => Unauthenticated::Unavailable(error.into()),
        })?;
        token::verify(text, &key, accepted, self.inner.clock.unix_seconds()).map_err(invalid)
    }
}

/// The credential that follows `Bearer`.
fn bearer(authorization: Option<&str>) -> Result<&str, Unauthenticated> {
    let header =
        authorization.map(str::trim).filter(|header| !header.is_empty()).ok_or(Unauthenticated::Missing)?;
    let (scheme, credential) = header.split_once(' ').ok_or(Unauthenticated::Malformed)?;
    if header.len() > HEADER_MAX_BYTES || !scheme.eq_ignore_ascii_case("bearer") {
        return Err(Unauthenticated::Malformed);
    }
    Ok(credential.trim_start_matches(' '))
}

fn unavailable(error: StoreError) -> Unauthenticated {
    Unauthenticated::Unavailable(error.into())
}

async fn load_key(store: ServiceStore, clock: Clock, id: KeyId) -> Result<Option<KnownKey>, StoreError> {
    // Taken before the query, so that the key never lives longer here than in the database.
    let asked_at = clock.now();
    let Some(row) = store.key_for_use(&id.to_string()).await? else { return Ok(None) };
    let granted = GrantSet::default().and(Reach::of_row(row.canvas_id), &row.scopes);
    let expires_in = Duration::try_from_secs_f64(row.expires_in_s.max(0.0)).unwrap_or(Duration::ZERO);
    Ok(KeyHash::of_row(&row.secret_sha256).map(|hash| KnownKey {
        hash,
        principal: Principal::of_key(id, &row.holder, granted),
        revoked: row.revoked,
        expires: asked_at.checked_add(expires_in),
        use_to_note: AtomicBool::new(row.use_to_note),
    }))
}

async fn load_grants(store: ServiceStore, email: String) -> Result<Option<GrantSet>, StoreError> {
    let rows = store.grants_of_account(&email, CANVASES_MAX).await?;
    let add = |granted: GrantSet, row: &crate::store::AccountRow| {
        granted.and(Reach::of_row(row.canvas_id), &row.scopes)
    };
    Ok((!rows.is_empty()).then(|| rows.iter().fold(GrantSet::default(), add)))
}

/// Records when a key was last used, so that operators can tell whether it is still needed. Best
/// effort, in the background: nothing depends on it.
async fn note_use(store: ServiceStore, id: KeyId) {
    if let Err(error) = store.note_use_of_key(&id.to_string()).await {
        tracing::debug!(key = ?id, %error, "the use of a key was not recorded");
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_header_is_bearer_and_one_credential() {
        for header in ["Bearer x", "bearer x", "BEARER  x", "  Bearer x  "] {
            assert_eq!(bearer(Some(header)).unwrap(), "x", "{header:?}");
        }
        for header in [None, Some(""), Some("  ")] {
            assert!(matches!(bearer(header), Err(Unauthenticated::Missing)), "{header:?}");
        }
        let long = format!("Bearer {}", "x".repeat(HEADER_MAX_BYTES));
        for header in ["Bearer", "Bearer ", "Basic eDp5", "x", "Token x", "Bearer\tx", &long] {
            assert!(matches!(bearer(Some(header)), Err(Unauthenticated::Malformed)), "{header:?}");
        }
    }
}
