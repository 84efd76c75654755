//! Hooks: how a sender of webhooks signs them, and with what secret. Plain data; verifies nothing.

use std::fmt;
use std::str::FromStr;

use super::{NoSecret, Secret};

/// How the sender of webhooks signs them, and where the id is by which a repeat is recognized.
///
/// ```
/// use wakeq::hooks::HookKind;
///
/// assert_eq!("github".parse(), Ok(HookKind::GitHub));
/// assert_eq!(HookKind::Stripe.to_string(), "stripe");
/// ```
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum HookKind {
    /// [Standard Webhooks](https://www.standardwebhooks.com): the headers `webhook-id`,
    /// `webhook-timestamp` and `webhook-signature`.
    Standard,
    /// Stripe: the header `Stripe-Signature`, and `id` in the body.
    Stripe,
    /// GitHub: the headers `X-Hub-Signature-256` and `X-GitHub-Delivery`.
    GitHub,
}

/// A text that is not a kind of hook.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
#[error("the kind of a hook is `standard`, `stripe` or `github`")]
pub struct InvalidHookKind;

impl HookKind {
    /// All kinds.
    pub const ALL: [Self; 3] = [Self::Standard, Self::Stripe, Self::GitHub];

    /// Its name in the API, on the command line and in the database.
    pub fn as_str(self) -> &'static str {
        match self {
            Self::Standard => "standard",
            Self::Stripe => "stripe",
            Self::GitHub => "github",
        }
    }

    /// Whether the receiver can make the secret. Stripe makes those of its endpoints.
    pub fn can_generate(self) -> bool {
        match self {
            Self::Standard | Self::GitHub => true,
            Self::Stripe => false,
        }
    }
}

displayed_as_text!(HookKind);

impl FromStr for HookKind {
    type Err = InvalidHookKind;

    fn from_str(text: &str) -> Result<Self, InvalidHookKind> {
        Self::ALL.into_iter().find(|kind| kind.as_str() == text).ok_or(InvalidHookKind)
    }
}

/// The secret that the sender of a hook signs with, in the form in which sender and receiver know
/// it. Printed only by [`HookSecret::reveal`].
///
/// ```
/// use wakeq::hooks::{HookKind, HookSecret};
///
/// let secret = HookSecret::new(HookKind::Standard, "whsec_MfKQ9r8GKYqrTwjUPD8ILPZIo2LaLaSw").unwrap();
/// assert_eq!(secret.key().len(), 24);
/// assert_eq!(format!("{secret:?}"), "HookSecret(standard)");
/// assert!(HookSecret::new(HookKind::Stripe, "sk_live_an_api_key").is_err());
/// ```
#[derive(Clone)]
pub struct HookSecret {
    kind: HookKind,
    text: String,
    key: Vec<u8>,
}

/// A text that can't be the secret of a hook of this kind. The error repeats nothing of it.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
#[error("{}", .0.secret_words())]
pub struct InvalidHookSecret(HookKind);

impl HookKind {
    fn secret_words(self) -> &'static str {
        match self {
            Self::Standard => {
                "the secret of a hook of the kind `standard` is `whsec_` followed by 24 to 64 bytes in base64, as \
                 its sender shows it"
            }
            Self::Stripe => {
                "the secret of a hook of the kind `stripe` is the signing secret of the endpoint, `whsec_…`, as \
                 Stripe shows it: it is not an API key"
            }
            Self::GitHub => {
                "the secret of a hook of the kind `github` has 16 to 256 visible ASCII characters: omit it to have \
                 one generated"
            }
        }
    }
}

impl HookSecret {
    const BYTES_MIN: usize = 16;
    const BYTES_MAX: usize = 256;
    const PREFIX: &str = "whsec_";

    /// Checks that this is a secret of the kind: 16 to 256 visible ASCII characters, which begin
    /// with `whsec_` unless the kind is GitHub.
    pub fn new(kind: HookKind, text: &str) -> Result<Self, InvalidHookSecret> {
        let invalid = InvalidHookSecret(kind);
        let is_long_enough = (Self::BYTES_MIN..=Self::BYTES_MAX).contains(&text.len());
        if !is_long_enough || !text.bytes().all(|byte| byte.is_ascii_graphic()) {
            return Err(invalid);
        }
        let key = match kind {
            HookKind::Standard => text.parse::<Secret>().map_err(|_| invalid)?.as_bytes().to_vec(),
            HookKind::Stripe if !text.starts_with(Self::PREFIX) => return Err(invalid),
            HookKind::Stripe | HookKind::GitHub => text.as_bytes().to_vec(),
        };
        Ok(Self { kind, text: text.to_owned(), key })
    }

    /// Generates a secret of 256 random bits, which is to be given to the sender.
    pub fn generate(kind: HookKind) -> Result<Self, NoSecret> {
        let secret = Secret::generate()?;
        let text = secret.reveal();
        let key = match kind {
            HookKind::Standard => secret.as_bytes().to_vec(),
            HookKind::Stripe | HookKind::GitHub => text.as_bytes().to_vec(),
        };
        Ok(Self { kind, text, key })
    }

    /// The kind of hook that it is for.
    pub fn kind(&self) -> HookKind {
        self.kind
    }

    /// The key of the signature.
    pub fn key(&self) -> &[u8] {
        &self.key
    }

    /// The whole secret as text. Only for the sender.
    pub fn reveal(&self) -> &str {
        &self.text
    }
}

impl fmt::Debug for HookSecret {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(formatter, "HookSecret({})", self.kind)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn secrets_have_the_form_of_their_kind_and_are_not_repeated() {
        let (long, longest) = (format!("whsec_{}", "s".repeat(251)), "s".repeat(256));
        for (kind, text) in [
            (HookKind::Standard, ""),
            (HookKind::Standard, "s3cr3ts3cr3ts3cr3t"),
            (HookKind::Standard, "whsec_s3cr3ts3cr3t"),
            (HookKind::Stripe, "sk_live_s3cr3ts3cr3t"),
            (HookKind::Stripe, "whsec_s3cr3t"),
            (HookKind::Stripe, long.as_str()),
            (HookKind::GitHub, "s3cr3ts3cr3ts3c"),
            (HookKind::GitHub, "s3cr3t s3cr3t s3cr3t"),
            (HookKind::GitHub, "s3cr3ts3cr3ts3cr3té"),
        ] {
            let refused = HookSecret::new(kind, text).unwrap_err().to_string();
            assert!(refused.contains(kind.as_str()) && !refused.contains("s3cr3t"), "{text}: {refused}");
        }
        let key = |kind, text: &str| HookSecret::new(kind, text).unwrap().key().to_vec();
        assert_eq!(key(HookKind::GitHub, &longest).len(), 256);
        assert_eq!(key(HookKind::Stripe, "whsec_0123456789"), b"whsec_0123456789", "with its prefix");
        assert_eq!(key(HookKind::Standard, "whsec_MfKQ9r8GKYqrTwjUPD8ILPZIo2LaLaSw").len(), 24);
    }

    #[test]
    fn generated_secrets_are_read_back() {
        for kind in HookKind::ALL {
            let made = HookSecret::generate(kind).unwrap();
            let again = HookSecret::new(kind, made.reveal()).unwrap();
            assert_eq!((again.key(), again.kind()), (made.key(), kind));
            assert_eq!(kind.as_str().parse(), Ok(kind));
        }
        assert_eq!("GitHub".parse::<HookKind>(), Err(InvalidHookKind));
    }
}
