//! Which requests tell what is in events: for these the scope `values` is needed, and the audit log
//! names who has sent them. Decides by the query alone.

use axum::http::request::Parts;
use url::form_urlencoded;

/// Parameters that ask for what is in values, or in results.
const OF_VALUES: [&str; 4] = ["value", "value_text", "result", "result_text"];

/// Which successful requests of a route the audit log names the caller of.
#[derive(Clone, Copy, Default, PartialEq, Eq)]
pub(super) enum RecordedReads {
    #[default]
    None,
    /// Those that ask for a value, with `view=full`.
    FullViews,
    /// Those that ask for what is in values, with one of [`OF_VALUES`]: an answer tells of them.
    ValueSearches,
    /// Those of callers who may see values, which the answer has then.
    Shown,
    All,
}

impl RecordedReads {
    /// Whether the query makes the answer tell what is in values.
    pub(super) fn asks_for_values(self, parts: &Parts) -> bool {
        let query = parts.uri.query().unwrap_or_default().as_bytes();
        let mut pairs = form_urlencoded::parse(query);
        match self {
            Self::None | Self::Shown => false,
            Self::FullViews => pairs.any(|(name, value)| name == "view" && value == "full"),
            Self::ValueSearches | Self::All => pairs.any(|(name, _)| OF_VALUES.contains(&&*name)),
        }
    }
}
