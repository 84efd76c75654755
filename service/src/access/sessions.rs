//! Sessions as callers use them: opened with a key or a link, resumed with a token.

use std::time::Duration;

use aws_lc_rs::constant_time::verify_slices_are_equal;

use super::session::{Purpose, Session, Sessions, SignIn};
use super::{Access, ApiKey, Browser, KeyId, Principal, Refusal, Unauthenticated, bearer, unavailable};

/// How long a session lasts.
pub const SESSION: Duration = Duration::from_secs(12 * 3600);
/// How long a link that signs in can be used.
const LINK: Duration = Duration::from_secs(600);

/// How long the forms of a proxy's person have the same field.
const DAY_S: u64 = 24 * 3600;

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
    pub(crate) async fn open_session(&self, key: &str, browser: &Browser) -> Result<String, Unauthenticated> {
        let text = format!("Bearer {}", key.trim());
        let key = ApiKey::parse(bearer(Some(&text))?).ok_or(Unauthenticated::Malformed)?;
        self.by_key(&key).await?;
        self.session_of(key.id(), browser).await
    }

    /// Opens a session with the token of a link, unless it was used or has ended.
    pub(crate) async fn follow_link(
        &self,
        token: &str,
        browser: &Browser,
    ) -> Result<String, Unauthenticated> {
        let sessions = self.sessions().await?;
        let link = sessions.signer.read(Purpose::Link, token).ok_or(Unauthenticated::Malformed)?;
        let now_s = self.inner.clock.unix_seconds();
        if link.ends_at_s <= now_s || !sessions.use_link(&link, now_s) {
            return Err(Unauthenticated::Unknown(Refusal::LinkUsed(link.key)));
        }
        self.live(link.key, self.known(link.key).await?)?;
        self.opened(&link.of_link(now_s.saturating_add(SESSION.as_secs())), SESSION, browser).await
    }

    /// The session of a token and the holder of its key or of the account, unless either has ended.
    pub(crate) async fn resume(&self, token: &str) -> Result<(SignIn, Principal), Unauthenticated> {
        let sessions = self.sessions().await?;
        let Some(session) = sessions.signer.read(Purpose::Session, token) else {
            return self.resume_person(&sessions.signer, token).await;
        };
        if session.ends_at_s <= self.inner.clock.unix_seconds() {
            return Err(Unauthenticated::Unknown(Refusal::SessionOver(session.key)));
        }
        let principal = self.live(session.key, self.known(session.key).await?)?;
        if !self.is_open(session.id()).await? {
            return Err(Unauthenticated::Unknown(Refusal::SessionOver(session.key)));
        }
        Ok((SignIn::Session(session), principal))
    }

    /// The hidden field that the forms of a person carry.
    pub(crate) async fn form_token(&self, sign_in: &SignIn) -> Result<String, Unauthenticated> {
        let signer = &self.sessions().await?.signer;
        Ok(match sign_in {
            SignIn::Session(session) => signer.token(Purpose::Form, session),
            SignIn::Person(session) => signer.field_of_person(session),
            SignIn::Proxy { email } => signer.field_of_account(email, self.day()),
        })
    }

    /// Whether a form carries the field of this person. A proxy's has no session that ends, so its
    /// field is that of the day, or of the day before, for a form that was open at midnight.
    pub(crate) async fn is_form_of(&self, sign_in: &SignIn, token: &str) -> Result<bool, Unauthenticated> {
        let signer = &self.sessions().await?.signer;
        Ok(match sign_in {
            SignIn::Session(session) => {
                signer.read(Purpose::Form, token).is_some_and(|form| form == *session)
            }
            SignIn::Person(session) => {
                let field = signer.field_of_person(session);
                verify_slices_are_equal(field.as_bytes(), token.as_bytes()).is_ok()
            }
            SignIn::Proxy { email } => [self.day(), self.day().saturating_sub(1)].into_iter().any(|day| {
                let field = signer.field_of_account(email, day);
                verify_slices_are_equal(field.as_bytes(), token.as_bytes()).is_ok()
            }),
        })
    }

    fn day(&self) -> u64 {
        self.inner.clock.unix_seconds() / DAY_S
    }

    async fn session_of(&self, key: KeyId, browser: &Browser) -> Result<String, Unauthenticated> {
        self.opened(&self.new_session(key, SESSION)?, SESSION, browser).await
    }

    fn new_session(&self, key: KeyId, length: Duration) -> Result<Session, Unauthenticated> {
        let ends_at_s = self.inner.clock.unix_seconds().saturating_add(length.as_secs());
        Session::new(key, ends_at_s).map_err(|error| Unauthenticated::Unavailable(error.into()))
    }

    pub(super) async fn sessions(&self) -> Result<&Sessions, Unauthenticated> {
        let load = async || Ok(Sessions::new(&self.inner.store.key_check_secret().await?));
        self.inner.sessions.get_or_try_init(load).await.map_err(unavailable)
    }
}
