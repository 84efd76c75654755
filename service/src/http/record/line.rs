//! A line of the record, before it is written.

use std::sync::Arc;

use crate::http::client::Client;
use wakeq::control::AuditOutcome;
use wakeq::{CanvasId, HandlerScope};

/// What happened, to which caller, and why. Equal lines are counted as one.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub(in crate::http) struct Line {
    pub(in crate::http) outcome: AuditOutcome,
    /// `None` means every canvas.
    pub(in crate::http) canvas: Option<CanvasId>,
    /// The caller's name, if it was identified.
    pub(in crate::http) actor: Option<String>,
    /// The public part of its credential, if it has one.
    pub(in crate::http) credential: Option<String>,
    pub(in crate::http) client: Client,
    /// The operation's name in the OpenAPI document, or `sign-in`.
    pub(in crate::http) action: Arc<str>,
    pub(in crate::http) scope: Option<HandlerScope>,
    /// Why it was refused.
    pub(in crate::http) reason: Option<String>,
}

/// The beginning of an entry's detail: the credential and the client address.
pub(in crate::http) fn shown(credential: Option<&str>, client: Client) -> String {
    match credential {
        Some(credential) => format!("{credential} from {}", client.0),
        None => format!("from {}", client.0),
    }
}
