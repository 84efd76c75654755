//! Sessions that are open. Each has a row, by which it ends before its token does: when its owner
//! says so, when another one takes its place, or when no page was opened for a while.

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;

use uuid::Uuid;

use super::session::{KnownSession, PersonSession, Purpose, Session, SignIn};
use super::{Access, Refusal, Unauthenticated, unavailable};
use crate::store::{NewSessionRow, ServiceStore, SessionRow};
use wakeq::{StoreError, Timestamp};

/// How long a session lasts in which no page is opened.
pub(super) const IDLE: Duration = Duration::from_secs(3600);
/// How many sessions a key or a person has at most. Another one ends the one that was not used for
/// longest.
const SESSIONS_MAX: i64 = 50;
/// How much is kept of what a browser says it is.
const BROWSER_CHARS: usize = 200;

/// From where somebody signs in: what the owner of a session knows it by.
#[derive(Clone, Debug)]
pub(crate) struct Browser {
    address: String,
    name: String,
}

impl Browser {
    /// At an address, and with what the browser says it is.
    pub(crate) fn new(address: String, name: &str) -> Self {
        Self { address, name: name.chars().filter(|sign| !sign.is_control()).take(BROWSER_CHARS).collect() }
    }
}

/// An open session, as its owner sees it.
#[derive(Clone, Debug)]
pub(crate) struct OpenSession {
    pub(crate) id: Uuid,
    pub(crate) opened_at: Timestamp,
    pub(crate) seen_at: Timestamp,
    pub(crate) ends_at: Timestamp,
    pub(crate) address: String,
    pub(crate) browser: String,
    /// Whether it is the one that asks.
    pub(crate) is_own: bool,
}

impl SignIn {
    /// Its row's id and owner. A proxy has the sessions of the people whom it lets through.
    fn row(&self) -> Option<(Uuid, String)> {
        match self {
            Self::Session(session) => Some((session.id(), owner(session))),
            Self::Person(session) => Some((session.id(), owner_of_person(session))),
            Self::Proxy { .. } => None,
        }
    }
}

fn owner(session: &Session) -> String {
    format!("key:{}", session.key)
}

fn owner_of_person(session: &PersonSession) -> String {
    format!("account:{}", session.email)
}

impl Access {
    /// Records that a session was opened, and returns its token. Errors: its link was used in
    /// another process.
    pub(super) async fn opened(
        &self,
        session: &Session,
        lasts: Duration,
        browser: &Browser,
    ) -> Result<String, Unauthenticated> {
        if !self.record_opened(session.id(), &owner(session), lasts, browser).await? {
            return Err(Unauthenticated::Unknown(Refusal::LinkUsed(session.key)));
        }
        Ok(self.sessions().await?.signer.token(Purpose::Session, session))
    }

    /// The same for the session of a person whom an OpenID provider has signed in.
    pub(super) async fn opened_by_person(
        &self,
        session: &PersonSession,
        lasts: Duration,
        browser: &Browser,
    ) -> Result<String, Unauthenticated> {
        self.record_opened(session.id(), &owner_of_person(session), lasts, browser).await?;
        Ok(self.sessions().await?.signer.token_of_person(session))
    }

    async fn record_opened(
        &self,
        id: Uuid,
        owner: &str,
        lasts: Duration,
        browser: &Browser,
    ) -> Result<bool, Unauthenticated> {
        let Browser { address, name } = browser;
        let new = NewSessionRow { id, owner, lasts, address, browser: name };
        self.inner.store.add_page_session(&new, SESSIONS_MAX - 1, IDLE).await.map_err(unavailable)
    }

    /// Whether a session is open. Its end counts at once in this process, and within a minute in
    /// others.
    pub(super) async fn is_open(&self, id: Uuid) -> Result<bool, Unauthenticated> {
        Ok(self.known_session(id).await?.is_some())
    }

    /// Records that somebody has opened a page. What a page asks by itself does not count.
    pub(crate) async fn note_activity(&self, sign_in: &SignIn) {
        let Some((id, _)) = sign_in.row() else { return };
        // A session that can't be looked up now is not kept from ending either.
        let known = self.known_session(id).await.ok().flatten();
        if known.is_some_and(|known| known.use_to_note.swap(false, Ordering::Relaxed)) {
            tokio::spawn(note_use(self.inner.store.clone(), id));
        }
    }

    /// Ends the session of a token.
    pub(crate) async fn sign_out(&self, token: &str) -> Result<(), Unauthenticated> {
        let signer = &self.sessions().await?.signer;
        let of_key = signer.read(Purpose::Session, token).map(|session| (session.id(), owner(&session)));
        let of_person = || signer.person(token).map(|session| (session.id(), owner_of_person(&session)));
        let (id, owner) = of_key.or_else(of_person).ok_or(Unauthenticated::Malformed)?;
        self.end(id, &owner).await.map(drop)
    }

    /// The open sessions of whoever is signed in, those that were used last first; `None` for a
    /// person whom a proxy has signed in.
    pub(crate) async fn sessions_of(
        &self,
        sign_in: &SignIn,
    ) -> Result<Option<Vec<OpenSession>>, Unauthenticated> {
        let Some((own, owner)) = sign_in.row() else { return Ok(None) };
        let rows = self.inner.store.page_sessions(&owner, IDLE, SESSIONS_MAX).await.map_err(unavailable)?;
        Ok(Some(rows.into_iter().map(|row| open_session(row, own)).collect()))
    }

    /// Ends a session of whoever is signed in; returns whether there was one.
    pub(crate) async fn end_session(&self, sign_in: &SignIn, id: Uuid) -> Result<bool, Unauthenticated> {
        match sign_in.row() {
            Some((_, owner)) => self.end(id, &owner).await,
            None => Ok(false),
        }
    }

    /// Ends all sessions of whoever is signed in but this one; returns how many those were.
    pub(crate) async fn end_other_sessions(&self, sign_in: &SignIn) -> Result<u64, Unauthenticated> {
        let Some((own, owner)) = sign_in.row() else { return Ok(0) };
        let ended = self.inner.store.end_other_page_sessions(&owner, own).await.map_err(unavailable)?;
        ended.iter().for_each(|id| self.inner.opened.forget(id));
        Ok(ended.len() as u64)
    }

    async fn end(&self, id: Uuid, owner: &str) -> Result<bool, Unauthenticated> {
        let ended = self.inner.store.end_page_session(owner, id).await.map_err(unavailable)?;
        self.inner.opened.forget(&id);
        Ok(ended)
    }

    async fn known_session(&self, id: Uuid) -> Result<Option<Arc<KnownSession>>, Unauthenticated> {
        let load = load_session(self.inner.store.clone(), id);
        Ok(self.inner.opened.find(&id, load).await.map_err(unavailable)?.value)
    }
}

fn open_session(row: SessionRow, own: Uuid) -> OpenSession {
    let SessionRow { id, opened_at, seen_at, ends_at, address, browser } = row;
    OpenSession { id, opened_at, seen_at, ends_at, address, browser, is_own: id == own }
}

async fn load_session(store: ServiceStore, id: Uuid) -> Result<Option<KnownSession>, StoreError> {
    let found = store.page_session_for_use(id, IDLE).await?;
    Ok(found.map(|row| KnownSession { use_to_note: AtomicBool::new(row.use_to_note) }))
}

/// Best effort, in the background: if it fails, the session may end early.
async fn note_use(store: ServiceStore, id: Uuid) {
    if let Err(error) = store.note_use_of_page_session(id, IDLE).await {
        tracing::debug!(%error, "the use of a session was not recorded");
    }
}
