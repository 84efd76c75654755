//! Why a credential was not accepted, for logs and the audit. No variant holds a secret or a token.

use std::fmt;

use super::KeyId;
use super::jwks::FetchError;
use crate::store::StoreError;

/// Why nobody was recognized. A client is told no more than "unauthenticated", or "try again later".
#[derive(Clone, Debug, thiserror::Error)]
pub enum Unauthenticated {
    /// No `Authorization` header, or an empty one.
    #[error("no credential: send `Authorization: Bearer` with a key or a Google ID token")]
    Missing,
    /// Something that is neither a key nor a token.
    #[error("the `Authorization` header is no `Bearer` with a key or a Google ID token")]
    Malformed,
    /// A key or a token that does not count, or not any more.
    #[error("the credential was refused: {0}")]
    Unknown(Refusal),
    /// Nobody can tell now: the database, or Google's keys, are away.
    #[error("the credential can't be checked now; try again")]
    Unavailable(#[source] Unchecked),
}

/// Why a push was not taken.
#[derive(Clone, Debug, thiserror::Error)]
pub enum PushDenied {
    /// Nobody may push here.
    #[error(
        "this process takes no pushes: set WAKEQ_PUSH_AUDIENCE and WAKEQ_PUSH_ACCOUNTS for `wakeq serve`, as \
         docs/operations.md says under \"Push\""
    )]
    Off,
    /// Its token does not hold.
    #[error(transparent)]
    Unauthenticated(#[from] Unauthenticated),
    /// The token holds, and is of an account that is not named.
    #[error("the push was refused: {0}")]
    NotNamed(Refusal),
}

/// What is wrong with a credential. For operators, and not for who sent it.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Refusal {
    /// This deployment made no such key: the check at its end does not hold.
    MadeUp(KeyId),
    /// There is no such key.
    NoSuchKey(KeyId),
    /// There is such a key, with another secret.
    WrongSecret(KeyId),
    /// The key was revoked.
    Revoked(KeyId),
    /// The key has expired.
    Expired(KeyId),
    /// The ID token does not hold.
    Token(InvalidToken),
    /// The ID token holds, but nobody let this account in.
    NotListed {
        /// Whose token it is.
        email: String,
    },
}

impl fmt::Display for Refusal {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::MadeUp(id) => {
                write!(formatter, "key {id:?} was not made by this deployment, or is mistyped")
            }
            Self::NoSuchKey(id) => write!(formatter, "there is no key {id:?}"),
            Self::WrongSecret(id) => write!(formatter, "wrong secret for key {id:?}"),
            Self::Revoked(id) => write!(formatter, "key {id:?} was revoked"),
            Self::Expired(id) => write!(formatter, "key {id:?} has expired"),
            Self::Token(reason) => write!(formatter, "{reason}"),
            Self::NotListed { email } => write!(formatter, "the service account {email} is not let in"),
        }
    }
}

/// What is wrong with an ID token.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
pub enum InvalidToken {
    /// This service was given no audience, so it takes no tokens.
    #[error("no audience is configured, so ID tokens are not taken")]
    Off,
    /// Its parts can't be read, or a claim is missing or of the wrong kind.
    #[error("the ID token can't be read")]
    Unreadable,
    /// Google removed the signature, as Cloud Run does with what its own check has used.
    #[error(
        "the ID token's signature was removed on the way: Cloud Run checked it for itself. Send that one in \
         X-Serverless-Authorization, and wakeq's in Authorization"
    )]
    SignatureRemoved,
    /// Not RS256.
    #[error("the ID token is not signed with RS256")]
    Algorithm,
    /// Google has no such key.
    #[error("the ID token names a signing key that Google does not have")]
    UnknownKey,
    /// The signature is not of that key.
    #[error("the ID token's signature does not hold")]
    Signature,
    /// For somebody else.
    #[error("the ID token was made for another audience")]
    Audience,
    /// From somebody else.
    #[error("the ID token is not Google's")]
    Issuer,
    /// Too old.
    #[error("the ID token has expired")]
    Expired,
    /// Too young: a clock is wrong.
    #[error("the ID token is not valid yet; is a clock wrong?")]
    NotYet,
    /// Google does not vouch for the address.
    #[error("the ID token has no verified email address; ask for one with `format=full`")]
    Email,
}

/// What was needed to check a credential, and is away.
#[derive(Clone, Debug, thiserror::Error)]
pub enum Unchecked {
    /// The database.
    #[error(transparent)]
    Store(#[from] StoreError),
    /// Google's public keys.
    #[error("Google's public keys can't be had")]
    Keys(#[from] FetchError),
}

/// Why a key or an account was not made, changed or listed.
#[derive(Debug, thiserror::Error)]
pub enum AccessError {
    /// What was asked for makes no sense.
    #[error("{0}")]
    Invalid(&'static str),
    /// Two live keys are enough for a rotation.
    #[error("{holder} has two live keys there already: revoke one first")]
    TwoLive {
        /// Whose.
        holder: String,
    },
    /// Others make keys for the same holder at the same moment.
    #[error("keys for {holder} are being made by somebody else, too: try again")]
    Busy {
        /// Whose.
        holder: String,
    },
    /// No random numbers.
    #[error(transparent)]
    NoRandomness(#[from] super::NoRandomness),
    /// The configuration is wrong.
    #[error("{0}")]
    Config(&'static str),
    /// TLS can't be set up, for example because there are no root certificates.
    #[error("nothing can be fetched over HTTPS: {0}")]
    Tls(String),
    /// The database.
    #[error(transparent)]
    Store(#[from] StoreError),
}
