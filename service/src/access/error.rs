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
    /// The link that signs in was used before, or is too old.
    #[error("a link of key {0:?} was used before, or is too old")]
    LinkUsed(KeyId),
    /// The ID token is invalid.
    #[error("{0}")]
    Token(InvalidToken),
    /// The ID token is valid, but its account was not admitted.
    #[error("the account {email} is not allowed")]
    NotListed {
        /// The account's address.
        email: String,
    },
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
    /// Its algorithm is not RS256, or ES256 for an assertion of Google's proxy.
    #[error("the token is not signed with the algorithm that Google uses for it")]
    Algorithm,
    /// Its header has `crit`: whoever verifies it has to understand an extension.
    #[error("the ID token's header has `crit`, and no extension is supported")]
    Critical,
    /// Google has no key with its key id.
    #[error("the ID token names a signing key that Google does not have")]
    UnknownKey,
    /// Its signature is wrong.
    #[error("the ID token's signature is not valid")]
    Signature,
    /// Its audience is not ours.
    #[error("the ID token is for a different audience")]
    Audience,
    /// Its issuer is not Google.
    #[error("the ID token was not issued by Google")]
    Issuer,
    /// It has expired.
    #[error("the ID token has expired")]
    Expired,
    /// It is not valid yet: one of the clocks is wrong.
    #[error("the ID token is not valid yet; is a clock wrong?")]
    NotYet,
    /// It has no email address that Google has verified.
    #[error("the ID token has no verified email address; ask for one with `format=full`")]
    Email,
}

/// Why Google's public keys could not be fetched.
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
}

/// Something unavailable that is needed to verify a credential.
#[derive(Clone, Debug, thiserror::Error)]
pub enum VerifierUnavailable {
    /// The database.
    #[error(transparent)]
    Store(#[from] StoreError),
    /// Google's public keys.
    #[error("Google's public keys are unavailable")]
    Keys(#[from] FetchError),
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
