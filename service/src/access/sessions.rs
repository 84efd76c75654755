//! Sessions as callers use them: opened with a key or a link, resumed with a token.

use std::collections::HashMap;
use std::sync::{Mutex, PoisonError};
use std::time::Duration;

use super::session::{Purpose, Session, Signer};
use super::{Access, ApiKey, KeyId, Principal, Refusal, Unauthenticated, bearer, unavailable};

/// How long a session lasts.
pub const SESSION: Duration = Duration::from_secs(12 * 3600);
/// How long a link that signs in can be used.
const LINK: Duration = Duration::from_secs(600);
/// How many links of which it is remembered that they were used.
const LINKS_MAX: usize = 10_000;

/// Makes and checks sessions, and knows which links were used in this process.
pub(super) struct Sessions {
    signer: Signer,
    /// The links that were used, and when they end, in seconds since 1970.
    used: Mutex<HashMap<[u8; 16], u64>>,
}

impl Sessions {
    fn new(secret: &[u8]) -> Self {
        Self { signer: Signer::new(secret), used: Mutex::default() }
    }

    /// Whether a link is used for the first time. Links beyond the limit can't be used, so that
    /// none is used twice.
    fn use_link(&self, link: &Session, now_s: u64) -> bool {
        let mut used = self.used.lock().unwrap_or_else(PoisonError::into_inner);
        used.retain(|_, ends_at_s| *ends_at_s > now_s);
        used.len() < LINKS_MAX && used.insert(link.nonce(), link.ends_at_s).is_none()
    }
}

impl Access {
    /// Makes a token that opens one session of a person in a browser, in the name of a key: the
    /// page's `/sign-in?link=` takes it within ten minutes, once. Errors: the key is not valid, or
    /// can't be checked now.
    ///
    /// ```no_run
    /// use wakeq_service::access::{Access, ApiKey};
    ///
    /// # async fn example(access: Access, key: ApiKey) -> Result<(), Box<dyn std::error::Error>> {
    /// println!("http://localhost:8080/sign-in?link={}", access.sign_in_link(&key).await?);
    /// # Ok(())
    /// # }
    /// ```
    pub async fn sign_in_link(&self, key: &ApiKey) -> Result<String, Unauthenticated> {
        self.by_key(key).await?;
        let session = self.new_session(key.id(), LINK)?;
        Ok(self.sessions().await?.signer.token(Purpose::Link, &session))
    }

    /// Opens a session with a key; returns its token.
    pub(crate) async fn open_session(&self, key: &str) -> Result<String, Unauthenticated> {
        let text = format!("Bearer {}", key.trim());
        let key = ApiKey::parse(bearer(Some(&text))?).ok_or(Unauthenticated::Malformed)?;
        self.by_key(&key).await?;
        self.session_of(key.id()).await
    }

    /// Opens a session with the token of a link, unless it was used or has ended.
    pub(crate) async fn follow_link(&self, token: &str) -> Result<String, Unauthenticated> {
        let sessions = self.sessions().await?;
        let link = sessions.signer.read(Purpose::Link, token).ok_or(Unauthenticated::Malformed)?;
        let now_s = self.inner.clock.unix_seconds();
        if link.ends_at_s <= now_s || !sessions.use_link(&link, now_s) {
            return Err(Unauthenticated::Unknown(Refusal::LinkUsed(link.key)));
        }
        self.live(link.key, self.known(link.key).await?)?;
        self.session_of(link.key).await
    }

    /// The session of a token and the holder of its key, unless either has ended.
    pub(crate) async fn resume(&self, token: &str) -> Result<(Session, Principal), Unauthenticated> {
        let sessions = self.sessions().await?;
        let session = sessions.signer.read(Purpose::Session, token).ok_or(Unauthenticated::Malformed)?;
        if session.ends_at_s <= self.inner.clock.unix_seconds() {
            return Err(Unauthenticated::Unknown(Refusal::SessionOver(session.key)));
        }
        let principal = self.live(session.key, self.known(session.key).await?)?;
        Ok((session, principal))
    }

    /// The hidden field that the forms of a session carry.
    pub(crate) async fn form_token(&self, session: &Session) -> Result<String, Unauthenticated> {
        Ok(self.sessions().await?.signer.token(Purpose::Form, session))
    }

    /// Whether a form carries the field of this session.
    pub(crate) async fn is_form_of(&self, session: &Session, token: &str) -> Result<bool, Unauthenticated> {
        Ok(self.sessions().await?.signer.read(Purpose::Form, token).is_some_and(|form| form == *session))
    }

    async fn session_of(&self, key: KeyId) -> Result<String, Unauthenticated> {
        let session = self.new_session(key, SESSION)?;
        Ok(self.sessions().await?.signer.token(Purpose::Session, &session))
    }

    fn new_session(&self, key: KeyId, length: Duration) -> Result<Session, Unauthenticated> {
        let ends_at_s = self.inner.clock.unix_seconds().saturating_add(length.as_secs());
        Session::new(key, ends_at_s).map_err(|error| Unauthenticated::Unavailable(error.into()))
    }

    async fn sessions(&self) -> Result<&Sessions, Unauthenticated> {
        let load = async || Ok(Sessions::new(&self.inner.store.key_check_secret().await?));
        self.inner.sessions.get_or_try_init(load).await.map_err(unavailable)
    }
}
