//! The credential of a request: where it stands, and what may be recorded of it.
//!
//! Must never reveal more of it than its public part.

use axum::http::{HeaderMap, header};

use crate::access::{Principal, Unauthenticated};

/// The only credential of a request.
pub(super) fn authorization(headers: &HeaderMap) -> Option<&str> {
    let mut values = headers.get_all(header::AUTHORIZATION).iter();
    let first = values.next().map(|value| value.to_str().unwrap_or_default());
    // With several headers, it would be ambiguous which one counts: this text is never valid.
    if values.next().is_some() { Some("several") } else { first }
}

/// The public part of the caller's key, which tells two keys of one holder apart in the audit log.
pub(super) fn credential(principal: &Principal) -> Option<String> {
    principal.key().map(|key| format!("with {key:?}"))
}

/// Why a credential was refused, with at most its public part; `None` if it wasn't checked.
pub(super) fn reason(error: &Unauthenticated) -> Option<String> {
    match error {
        Unauthenticated::Missing => Some("no credential".to_owned()),
        Unauthenticated::Malformed => Some("neither a key nor an ID token".to_owned()),
        Unauthenticated::Unknown(refusal) => Some(refusal.to_string()),
        Unauthenticated::Unavailable(_) => None,
    }
}
