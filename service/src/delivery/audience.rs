//! The audiences that the configuration allows for which targets. Requests no tokens.

use std::str::FromStr;

use super::allowed::CanvasFilter;
use wakeq::CanvasId;
use wakeq::targets::TargetUrl;

/// An audience, the only origin that its tokens may be sent to, and the canvas whose targets may
/// use it: `CANVAS=orders=https://orders-x.a.run.app`, or `CANVAS=https://orders-x.a.run.app` if
/// the audience is that origin.
///
/// The first part is a canvas, `queues` for the targets of registered queues, or `*` for all.
///
/// ```
/// use wakeq::CanvasId;
/// use wakeq_service::delivery::{AllowedAudience, InvalidAllowedAudience};
///
/// let allowed: AllowedAudience = "*=orders=https://orders-x.a.run.app".parse().unwrap();
/// let canvas = CanvasId::DEFAULT;
/// assert!(allowed.allows(canvas, "orders", &"https://orders-x.a.run.app/events".parse().unwrap()));
/// assert!(!allowed.allows(canvas, "orders", &"https://elsewhere.example/events".parse().unwrap()));
/// assert_eq!("orders=https://orders-x.a.run.app".parse::<AllowedAudience>(), Err(InvalidAllowedAudience));
/// ```
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct AllowedAudience {
    pub(super) applies_to: CanvasFilter,
    audience: String,
    origin: String,
}

/// The text is not an allowed audience.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[error(
    "an allowed audience looks like CANVAS=orders=https://orders-x.a.run.app, or \
     CANVAS=https://orders-x.a.run.app if it is the origin itself: whose targets may use it (a \
     canvas, `queues` or `*`), the audience, and the origin that its tokens may be sent to (https, \
     and no path); give one with several origins once for each"
)]
pub struct InvalidAllowedAudience;

impl AllowedAudience {
    /// Whether a target of this canvas may have tokens for this audience sent to this URL.
    pub fn allows(&self, canvas: CanvasId, audience: &str, url: &TargetUrl) -> bool {
        self.applies_to.includes(canvas) && self.allows_at(audience, url)
    }

    /// Like [`Self::allows`], for any canvas.
    pub(super) fn allows_at(&self, audience: &str, url: &TargetUrl) -> bool {
        let is_it = self.audience == audience
            || self.audience == self.origin && audience.trim_end_matches('/') == self.origin;
        is_it && self.origin == url.origin()
    }
}

impl FromStr for AllowedAudience {
    type Err = InvalidAllowedAudience;

    fn from_str(text: &str) -> Result<Self, InvalidAllowedAudience> {
        let (applies_to, pair) = text.split_once('=').ok_or(InvalidAllowedAudience)?;
        let applies_to = CanvasFilter::read(applies_to).ok_or(InvalidAllowedAudience)?;
        // An origin contains no `=`, but an audience may.
        let (audience, origin) = match pair.rsplit_once('=') {
            Some((audience, origin)) => (Some(audience), origin),
            None => (None, pair),
        };
        let url: TargetUrl = origin.parse().map_err(|_| InvalidAllowedAudience)?;
        let origin = url.origin();
        if audience == Some("") || !url.is_https() || url.as_str() != format!("{origin}/") {
            return Err(InvalidAllowedAudience);
        }
        Ok(Self { applies_to, audience: audience.unwrap_or(&origin).to_owned(), origin })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_pair_is_read_whole_or_not_at_all() {
        let allows = |pair: &str, audience: &str, url: &str| {
            let allowed = format!("*={pair}").parse::<AllowedAudience>().unwrap();
            allowed.allows(CanvasId::DEFAULT, audience, &url.parse().unwrap())
        };
        assert!(allows("https://a.example", "https://a.example/", "https://a.example/b"));
        assert!(!allows("https://a.example", "https://a.example.evil.example", "https://a.example/b"));
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
            if text != "https://orders.example" {
                let whole = format!("*={text}");
                assert_eq!(whole.parse::<AllowedAudience>(), Err(InvalidAllowedAudience), "{whole}");
            }
        }
    }

    #[test]
    fn an_audience_is_allowed_for_one_canvas_and_not_for_another() {
        let (ours, theirs) = (CanvasId(uuid::Uuid::from_u128(1)), CanvasId(uuid::Uuid::from_u128(2)));
        let url = "https://orders.example/events".parse().unwrap();
        let allowed: AllowedAudience = format!("{ours}=https://orders.example").parse().unwrap();
        assert!(allowed.allows(ours, "https://orders.example", &url));
        assert!(!allowed.allows(theirs, "https://orders.example", &url));
        let queues: AllowedAudience = "queues=orders=https://orders.example".parse().unwrap();
        assert!(queues.allows(CanvasId::OF_QUEUES, "orders", &url) && !queues.allows(ours, "orders", &url));
    }
}
