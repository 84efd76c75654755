//! Signing in at an OpenID provider, by the authorization code flow with PKCE, state and nonce.
//! Says who a person is, and never what the person may do. Must not know pages or cookies.

mod claims;
mod config;
mod flow;
mod provider;

use aws_lc_rs::digest::{SHA256, digest};
use serde::Deserialize;

use super::clock::Clock;
use super::error::{AccessError, InvalidSignIn, InvalidToken, Refusal, Unauthenticated, VerifierUnavailable};
use super::jwks::NoKey;
use super::session::{ISSUER_BYTES, Signer};
use claims::Expected;
pub(crate) use config::CALLBACK;
pub use config::OidcConfig;
pub(super) use flow::Flow;
pub(crate) use flow::SIGN_IN_S;
use provider::{Endpoints, NotRedeemed, Provider};

/// How long a code may be.
const CODE_MAX_BYTES: usize = 4096;

/// With what a provider sends somebody back.
#[derive(Default, Deserialize)]
#[serde(default)]
pub(crate) struct IssuerAnswer {
    code: String,
    state: String,
    iss: Option<String>,
    error: Option<String>,
}

/// The configured provider.
pub(super) struct Oidc(Provider);

impl Oidc {
    /// Does not fetch anything yet.
    pub(super) fn new(config: OidcConfig, clock: Clock) -> Result<Self, AccessError> {
        Provider::new(config, clock).map(Self)
    }

    /// Its name for people.
    pub(super) fn name(&self) -> &str {
        self.0.name()
    }

    /// Which provider it is, in the sessions that it has opened.
    pub(super) fn digest(&self) -> [u8; ISSUER_BYTES] {
        let digest = digest(&SHA256, self.0.config().issuer.as_bytes());
        digest.as_ref().try_into().unwrap_or([0; ISSUER_BYTES])
    }

    /// Where somebody is sent to sign in.
    pub(super) async fn address(&self, flow: &Flow, signer: &Signer) -> Result<String, Unauthenticated> {
        let endpoints = self.endpoints().await?;
        let OidcConfig { client_id, redirect_url, .. } = self.0.config();
        let mut url = endpoints.authorization.clone();
        url.query_pairs_mut()
            .append_pair("response_type", "code")
            .append_pair("client_id", client_id)
            .append_pair("redirect_uri", redirect_url)
            .append_pair("scope", "openid email")
            .append_pair("state", &flow.state(signer))
            .append_pair("nonce", &flow.nonce(signer))
            .append_pair("code_challenge", &flow.challenge(signer))
            .append_pair("code_challenge_method", "S256");
        Ok(url.into())
    }

    /// The address of the person whom the provider has sent back, in lower case.
    pub(super) async fn email(
        &self,
        flow: &Flow,
        signer: &Signer,
        answer: &IssuerAnswer,
        now_s: u64,
    ) -> Result<String, Unauthenticated> {
        if !flow.has_state(signer, &answer.state) {
            return Err(refused(InvalidSignIn::State));
        }
        let OidcConfig { issuer, client_id, .. } = self.0.config();
        if answer.iss.as_ref().is_some_and(|named| named != issuer) {
            return Err(refused(InvalidSignIn::Issuer));
        }
        if answer.error.is_some() || answer.code.is_empty() || answer.code.len() > CODE_MAX_BYTES {
            return Err(refused(InvalidSignIn::Refused));
        }
        let endpoints = self.endpoints().await?;
        if endpoints.names_itself && answer.iss.is_none() {
            return Err(refused(InvalidSignIn::Issuer));
        }
        let token = self.0.redeem(&endpoints, &answer.code, &flow.verifier(signer)).await;
        let token = token.map_err(|error| match error {
            NotRedeemed::Refused => refused(InvalidSignIn::Code),
            NotRedeemed::Unavailable(error) => unavailable(VerifierUnavailable::Provider(error)),
        })?;
        let expected = Expected { issuer, client_id, nonce: &flow.nonce(signer), now_s };
        verified(&token, &endpoints, expected).await
    }

    async fn endpoints(&self) -> Result<std::sync::Arc<Endpoints>, Unauthenticated> {
        self.0.endpoints().await.map_err(|error| unavailable(VerifierUnavailable::Provider(error)))
    }
}

async fn verified(
    token: &str,
    endpoints: &Endpoints,
    expected: Expected<'_>,
) -> Result<String, Unauthenticated> {
    let invalid = |reason| Unauthenticated::Unknown(Refusal::Token(reason));
    let (kind, id) = claims::signed_with(token).map_err(invalid)?;
    let key = endpoints.key(kind, &id).await.map_err(|reason| match reason {
        NoKey::Unknown => invalid(InvalidToken::UnknownKey),
        NoKey::FetchFailed(error) => unavailable(error.into()),
    })?;
    claims::verify(token, (kind, &key), expected).map_err(invalid)
}

fn refused(reason: InvalidSignIn) -> Unauthenticated {
    Unauthenticated::Unknown(Refusal::SignIn(reason))
}

fn unavailable(what: VerifierUnavailable) -> Unauthenticated {
    Unauthenticated::Unavailable(what)
}
