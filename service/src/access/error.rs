//! Why a credential was refused, for the log and the audit log. No variant contains a secret or a
//! token.

use super::{KeyId, NoRandomness};
use wakeq::StoreError;

/// Why no caller was identified. Clients only learn "unauthenticated" or "try again later".
#[derive(Clone, Debug, thiserror::Error)]
pub enum Unauthenticated {
    /// The `Authorization` header is missing or empty.
    #[error("no credential: send `Authorization: Bearer` with a key or a Google ID token")]
    Missing,
    /// The credential is neither a key nor a token.
    #[error("the `Authorization` header is not a `Bearer` with a key or a Google ID token")]
    Malformed,
    /// The key or token is not valid, or no longer valid.
    #[error("the credential was refused: {0}")]
    Unknown(Refusal),
    /// The credential can't be checked now: the database or Google's keys are unavailable.
    #[error("the credential can't be checked now; try again")]
    Unavailable(#[source] VerifierUnavailable),
}

/// Why a push was refused.
#[derive(Clone, Debug, thiserror::Error)]
pub enum PushDenied {
    /// Push is not configured.
    #[error(
        "this process does not accept pushes: set WAKEQ_PUSH_AUDIENCE and WAKEQ_PUSH_ACCOUNTS for \
         `wakeq serve`, as described in docs/operations.md under \"Push mode\""
    )]
    Off,
    /// Its credential was refused or can't be checked.
    #[error(transparent)]
    Unauthenticated(#[from] Unauthenticated),
    /// The token is valid, but its account may not push.
    #[error("the push was refused: {0}")]
    NotNamed(Refusal),
}

/// What is wrong with a credential. For operators, not for the caller.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum Refusal {
    /// This deployment did not make the key: its check is wrong.
    #[error("key {0:?} was not made by this deployment, or is mistyped")]
    WrongCheck(KeyId),
    /// No key has this id.
    #[error("there is no key {0:?}")]
    NoSuchKey(KeyId),
    /// The key exists, but its secret is different.
    #[error("wrong secret for key {0:?}")]
    WrongSecret(KeyId),
    /// The key was revoked.
    #[error("key {0:?} was revoked")]
    Revoked(KeyId),
    /// The key has expired.
    #[error("key {0:?} has expired")]
    Expired(KeyId),
    /// The session in the page is over.
    #[error("a session of key {0:?} is over")]
    SessionOver(KeyId),
    /// A person's session in the page is over, or its provider is no longer configured.
    #[error("a session of {email} is over")]
    PersonSessionOver {
        /// The person's address.
        email: String,
    },
    /// The link that signs in was used before, or is too old.
    #[error("a link of key {0:?} was used before, or is too old")]
    LinkUsed(KeyId),
    /// The ID token is invalid.
    #[error("{0}")]
    Token(InvalidToken),
    /// What came back from the provider is not the end of a sign-in that was begun here.
    #[error("{0}")]
    SignIn(InvalidSignIn),
    /// The ID token is valid, but its account was not admitted.
    #[error("the account {email} is not allowed")]
    NotListed {
        /// The account's address.
        email: String,
    },
}

/// What is wrong with the end of a sign-in at an OpenID provider.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
pub enum InvalidSignIn {
    /// No provider is configured.
    #[error("no OpenID provider is configured, so nobody signs in at one")]
    Off,
    /// This browser has begun none, or too long ago.
    #[error("a sign-in was ended that was not begun in this browser, or too long ago")]
    NotBegun,
    /// It is another one than this browser has begun.
    #[error("a sign-in was ended with another state than it was begun with in this browser")]
    State,
    /// It has been ended before.
    #[error("a sign-in was ended that has been ended before")]
    Used,
    /// The answer says that it is from another provider.
    #[error("the end of a sign-in names another issuer")]
    Issuer,
    /// The provider has let nobody in.
    #[error("the OpenID provider has refused a sign-in")]
    Refused,
    /// The provider does not know the code, or not us.
    #[error("the OpenID provider did not accept the code of a sign-in")]
    Code,
}

/// What is wrong with an ID token.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
pub enum InvalidToken {
    /// No audience is configured, so ID tokens are not accepted.
    #[error("no audience is configured, so ID tokens are not accepted")]
    Off,
    /// Its parts can't be parsed, or a claim is missing or has the wrong type.
    #[error("the ID token can't be read")]
    Unreadable,
    /// Google removed the signature; Cloud Run does this to the token that it has checked itself.
    #[error(
        "the ID token's signature was removed in transit: Cloud Run verified it itself. Send that \
         token in X-Serverless-Authorization, and wakeq's in Authorization"
    )]
    SignatureRemoved,
    /// Its algorithm is not RS256, or ES256 for an assertion of Google's proxy. An OpenID provider
    /// may use either.
    #[error("the token is not signed with an algorithm that is accepted for it")]
    Algorithm,
    /// Its header has `crit`: whoever verifies it has to understand an extension.
    #[error("the ID token's header has `crit`, and no extension is supported")]
    Critical,
    /// Its issuer has no key with its key id.
    #[error("the ID token names a signing key that its issuer does not have")]
    UnknownKey,
    /// Its signature is wrong.
    #[error("the ID token's signature is not valid")]
    Signature,
    /// Its audience is not ours.
    #[error("the ID token is for a different audience")]
    Audience,
    /// Its issuer is not Google, or the configured provider.
    #[error("the ID token was not issued by Google, or by the configured provider")]
    Issuer,
    /// It has expired.
    #[error("the ID token has expired")]
    Expired,
    /// It is not valid yet: one of the clocks is wrong.
    #[error("the ID token is not valid yet; is a clock wrong?")]
    NotYet,
    /// It is of another sign-in.
    #[error("the ID token has the nonce of another sign-in")]
    Nonce,
    /// It has no email address that its issuer has verified.
    #[error("the ID token has no verified email address; ask Google for one with `format=full`")]
    Email,
}

/// Why public keys, or what an OpenID provider says about itself, could not be fetched.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum FetchError {
    /// No connection, a timeout, or a connection that broke.
    #[error("the fetch failed: {0}")]
    Failed(String),
    /// A status other than 200.
    #[error("the answer had status {0}")]
    Status(u16),
    /// The answer is too long, is not JSON, or has no usable key.
    #[error("the answer is not a set of usable keys of at most 256 KiB")]
    NoKeys,
    /// The answer is too long, or not the discovery document of the configured issuer.
    #[error(
        "the answer is not a discovery document of at most 256 KiB that names exactly the configured issuer, with \
         endpoints at https://"
    )]
    NoDocument,
    /// The answer is too long, or has no ID token.
    #[error("the answer to the code of a sign-in has no ID token; is the scope `openid` allowed?")]
    NoToken,
}

/// Something unavailable that is needed to verify a credential.
#[derive(Clone, Debug, thiserror::Error)]
pub enum VerifierUnavailable {
    /// The database.
    #[error(transparent)]
    Store(#[from] StoreError),
    /// The public keys of Google, or of the OpenID provider.
    #[error("the public keys of the issuer are unavailable")]
    Keys(#[from] FetchError),
    /// The OpenID provider.
    #[error("the OpenID provider is unavailable")]
    Provider(#[source] FetchError),
    /// Random numbers for a session.
    #[error("the system provided no random numbers")]
    Randomness(#[from] NoRandomness),
}

/// Why a key or an account was not created, changed or listed.
#[derive(Debug, thiserror::Error)]
pub enum AccessError {
    /// An argument is invalid.
    #[error("{0}")]
    Invalid(&'static str),
    /// The holder already has two live keys, which suffice for replacing one.
    #[error("{holder} has two live keys there already: revoke one first")]
    TwoLive {
        /// The holder.
        holder: String,
    },
    /// Other callers are creating keys for the same holder.
    #[error("keys for {holder} are being created by other requests at the same time: try again")]
    Busy {
        /// The holder.
        holder: String,
    },
    /// No random numbers were available.
    #[error(transparent)]
    NoRandomness(#[from] super::NoRandomness),
    /// The configuration is invalid.
    #[error("{0}")]
    Config(&'static str),
    /// TLS can't be set up, for example because there are no root certificates.
    #[error("nothing can be fetched over HTTPS: {0}")]
    Tls(String),
    /// The database failed.
    #[error(transparent)]
    Store(#[from] StoreError),
}
