//! People who sign in at an OpenID provider: sent there, received back, and known by their
//! sessions. What they may do is what was granted to their addresses.

use super::error::InvalidSignIn;
use super::oidc::{Flow, Oidc};
use super::session::{PersonSession, SignIn, Signer};
use super::{Access, Browser, IssuerAnswer, Principal, Refusal, SESSION, SIGN_IN_S, Unauthenticated, token};

/// A sign-in that has begun.
pub(crate) struct Begun {
    /// Where it goes on.
    pub(crate) address: String,
    /// What the browser keeps until it comes back.
    pub(crate) kept: String,
}

/// A sign-in that has ended well.
pub(crate) struct Ended {
    /// The token of the session.
    pub(crate) token: String,
    /// Where to go on, as it was given at the beginning.
    pub(crate) next: String,
}

impl Access {
    /// The name of the provider at which people sign in, if there is one.
    pub(crate) fn provider_name(&self) -> Option<&str> {
        self.inner.oidc.as_ref().map(Oidc::name)
    }

    /// Begins a sign-in, after which the person wants to see `next`.
    pub(crate) async fn begin_sign_in(&self, next: &str) -> Result<Begun, Unauthenticated> {
        let (oidc, signer) = (self.oidc()?, &self.sessions().await?.signer);
        let ends_at_s = self.inner.clock.unix_seconds().saturating_add(SIGN_IN_S);
        let flow = Flow::begin(next, ends_at_s);
        let flow = flow.map_err(|error| Unauthenticated::Unavailable(error.into()))?;
        Ok(Begun { address: oidc.address(&flow, signer).await?, kept: flow.sealed(signer) })
    }

    /// Ends a sign-in with what the browser has kept and the provider's answer: opens a session if
    /// anything was granted to the person.
    pub(crate) async fn end_sign_in(
        &self,
        kept: Option<&str>,
        answer: &IssuerAnswer,
        browser: &Browser,
    ) -> Result<Ended, Unauthenticated> {
        let (oidc, sessions) = (self.oidc()?, self.sessions().await?);
        let (signer, now_s) = (&sessions.signer, self.inner.clock.unix_seconds());
        let flow = kept.and_then(|kept| Flow::opened(signer, kept)).filter(|flow| flow.ends_at_s > now_s);
        let flow = flow.ok_or(refused(InvalidSignIn::NotBegun))?;
        let email = oidc.email(&flow, signer, answer, now_s).await?;
        if token::is_service_account(&email) {
            // Its address is Google's, for whom no other provider speaks.
            return Err(Unauthenticated::Unknown(Refusal::NotListed { email }));
        }
        self.account(email.clone()).await?;
        // Only now, so that nobody who may not come in fills what is remembered: anybody may have
        // an account at the provider.
        if !sessions.use_once(flow.seed, flow.ends_at_s, now_s) {
            return Err(refused(InvalidSignIn::Used));
        }
        let session = PersonSession::new(email, oidc.digest(), now_s.saturating_add(SESSION.as_secs()));
        let session = session.map_err(|error| Unauthenticated::Unavailable(error.into()))?;
        Ok(Ended { token: self.opened_by_person(&session, SESSION, browser).await?, next: flow.next })
    }

    /// The session of a token and the person's account, unless either has ended, or the provider is
    /// no longer the one that has opened it.
    pub(super) async fn resume_person(
        &self,
        signer: &Signer,
        token: &str,
    ) -> Result<(SignIn, Principal), Unauthenticated> {
        let session = signer.person(token).ok_or(Unauthenticated::Malformed)?;
        let is_of_provider = self.inner.oidc.as_ref().is_some_and(|oidc| oidc.digest() == session.issuer);
        if !is_of_provider || session.ends_at_s <= self.inner.clock.unix_seconds() {
            return Err(Unauthenticated::Unknown(Refusal::PersonSessionOver { email: session.email }));
        }
        let principal = self.account(session.email.clone()).await?;
        if !self.is_open(session.id()).await? {
            return Err(Unauthenticated::Unknown(Refusal::PersonSessionOver { email: session.email }));
        }
        Ok((SignIn::Person(session), principal))
    }

    fn oidc(&self) -> Result<&Oidc, Unauthenticated> {
        self.inner.oidc.as_ref().ok_or(refused(InvalidSignIn::Off))
    }
}

fn refused(reason: InvalidSignIn) -> Unauthenticated {
    Unauthenticated::Unknown(Refusal::SignIn(reason))
}
