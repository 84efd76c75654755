//! Which audiences a deployment allows for which targets, as they are written in its configuration. Asks for no token.

use std::str::FromStr;

use crate::event::TargetUrl;

/// An audience, and the only origin that tokens for it may go to: `orders=https://orders-x.a.run.app`.
///
/// ```
/// use wakeq::delivery::{AllowedAudience, InvalidAllowedAudience};
///
/// let allowed: AllowedAudience = "orders=https://orders-x.a.run.app".parse().unwrap();
/// assert!(allowed.allows("orders", &"https://orders-x.a.run.app/events".parse().unwrap()));
/// assert!(!allowed.allows("orders", &"https://elsewhere.example/events".parse().unwrap()));
/// assert_eq!("orders".parse::<AllowedAudience>(), Err(InvalidAllowedAudience));
/// ```
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct AllowedAudience {
    audience: String,
    origin: String,
}

/// A text that does not say which audience is meant for which origin.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[error(
    "an allowed audience stands with the origin its tokens may go to, orders=https://orders-x.a.run.app: https, and no \
     path; one with several origins is given once for each"
)]
pub struct InvalidAllowedAudience;

impl AllowedAudience {
    /// Whether a token for this audience may go to this URL.
    pub fn allows(&self, audience: &str, url: &TargetUrl) -> bool {
        self.audience == audience && self.origin == url.origin()
    }
}

impl FromStr for AllowedAudience {
    type Err = InvalidAllowedAudience;

    fn from_str(text: &str) -> Result<Self, InvalidAllowedAudience> {
        // An origin has no "=", and an audience may have.
        let (audience, origin) = text.rsplit_once('=').ok_or(InvalidAllowedAudience)?;
        let url: TargetUrl = origin.parse().map_err(|_| InvalidAllowedAudience)?;
        let origin = url.origin();
        if audience.is_empty() || !url.is_https() || url.as_str() != format!("{origin}/") {
            return Err(InvalidAllowedAudience);
        }
        Ok(Self { audience: audience.to_owned(), origin })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_pair_is_read_whole_or_not_at_all() {
        let allows = |pair: &str, audience: &str, url: &str| {
            pair.parse::<AllowedAudience>().unwrap().allows(audience, &url.parse().unwrap())
        };
        assert!(allows("orders=https://Orders.example:443/", "orders", "https://orders.example/a?b=c"));
        assert!(allows("a=b=https://orders.example:8443", "a=b", "https://orders.example:8443/"));
        for (audience, url) in [
            ("orders", "https://orders.example:8443/"),
            ("orders", "http://orders.example/"),
            ("orders", "https://orders.example.evil.example/"),
            ("orders", "https://evil.example/?https://orders.example/"),
            ("Orders", "https://orders.example/"),
            ("", "https://orders.example/"),
        ] {
            assert!(!allows("orders=https://orders.example", audience, url), "{audience} {url}");
        }
        for text in [
            "",
            "orders",
            "orders=",
            "=https://orders.example",
            "https://orders.example",
            "orders=orders.example",
            "orders=http://orders.example",
            "orders=https://orders.example/events",
            "orders=https://orders.example/?",
            "orders=https://*.example@orders.example",
        ] {
            assert_eq!(text.parse::<AllowedAudience>(), Err(InvalidAllowedAudience), "{text}");
        }
    }
}
