//! Pulled queues and handlers: their policies, and lease tokens.

use std::fmt;
use std::str::FromStr;
use std::time::Duration;

use super::Keep;

/// How long a program may go on whose event was cancelled, after the extension of its lease that
/// says so; and a worker's handler, unless its configuration says something else.
pub(crate) const CANCEL_GRACE: Duration = Duration::from_secs(10);

/// The policy of a pulled handler, or of the copies in a pulled queue: what becomes of those that
/// were released as failed.
///
/// ```
/// let policy = wakeq::queues::PullPolicy::default();
/// assert_eq!((policy.retries, policy.delay.as_secs(), policy.halts), (2, 300, false));
/// ```
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct PullPolicy {
    /// Retries after the first failure. Default 2.
    pub retries: u32,
    /// Delay after the first failure. Default 5 min.
    pub delay: Duration,
    /// Factor between consecutive delays. Default 1.
    pub factor: u32,
    /// Longest delay, also of a delay that is requested with a release. Default 24 h.
    pub delay_max: Duration,
    /// Whether the death of a copy halts the later copies of its object. Default: no.
    pub halts: bool,
    /// For how long events of a pulled handler are kept after they have ended, in whole seconds.
    /// Copies in queues are not kept. Default: not at all.
    pub keep: Keep,
}

impl Default for PullPolicy {
    fn default() -> Self {
        Self {
            retries: 2,
            delay: Duration::from_secs(300),
            factor: 1,
            delay_max: Duration::from_secs(24 * 3600),
            halts: false,
            keep: Keep::default(),
        }
    }
}

/// Proof that a copy is leased: the fencing token of one claim, which can't be guessed. Printed
/// only by [`LeaseToken::reveal`].
///
/// ```
/// use wakeq::queues::LeaseToken;
///
/// let token: LeaseToken = "0000000137ab6c1c3f1d2a0b9e8f7a6b5c4d3e2f".parse().unwrap();
/// assert_eq!(token.reveal(), "0000000137ab6c1c3f1d2a0b9e8f7a6b5c4d3e2f");
/// assert_eq!(format!("{token:?}"), "LeaseToken(claim 1)");
/// assert!("37ab".parse::<LeaseToken>().is_err());
/// ```
#[derive(Clone, PartialEq, Eq)]
pub struct LeaseToken {
    claims: i32,
    nonce: i32,
    text: String,
}

/// A text that is not a lease token. The text itself is not repeated.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
#[error("not a lease token: send the `lease` that you were given with the copy, unchanged")]
pub struct InvalidLeaseToken;

impl LeaseToken {
    const LENGTH: usize = 40;

    /// The token as text. Only the holder of the lease should see it.
    pub fn reveal(&self) -> &str {
        &self.text
    }

    /// The number of the claim that the token says it belongs to.
    pub(crate) fn claims(&self) -> i32 {
        self.claims
    }

    /// The random number of that claim.
    pub(crate) fn nonce(&self) -> i32 {
        self.nonce
    }
}

impl FromStr for LeaseToken {
    type Err = InvalidLeaseToken;

    fn from_str(text: &str) -> Result<Self, InvalidLeaseToken> {
        let is_hex = |byte: u8| matches!(byte, b'0'..=b'9' | b'a'..=b'f');
        if text.len() != Self::LENGTH || !text.bytes().all(is_hex) {
            return Err(InvalidLeaseToken);
        }
        let number = |digits: &str| i32::from_str_radix(digits, 16).map_err(|_| InvalidLeaseToken);
        Ok(Self { claims: number(&text[..8])?, nonce: number(&text[8..16])?, text: text.to_owned() })
    }
}

impl fmt::Debug for LeaseToken {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(formatter, "LeaseToken(claim {})", self.claims)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn rejects_invalid_lease_tokens() {
        let token = "0000000a37ab6c1c3f1d2a0b9e8f7a6b5c4d3e2f";
        let read = token.parse::<LeaseToken>().unwrap();
        assert_eq!((read.claims(), read.nonce()), (10, 0x37ab_6c1c));
        let upper = token.to_uppercase();
        let beyond = format!("ffffffff{}", &token[8..]);
        let negative = format!("{}ffffffff{}", &token[..8], &token[16..]);
        let wide = format!("{}ß", &token[..38]);
        for text in ["", &token[1..], &format!("{token}0"), &upper, &beyond, &negative, &wide, "x"] {
            assert_eq!(text.parse::<LeaseToken>(), Err(InvalidLeaseToken), "{text}");
        }
    }
}
