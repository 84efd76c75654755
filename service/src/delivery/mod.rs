//! Sends events to HTTP targets: one signed POST per attempt, and a verdict on its answer.
//!
//! Must never decide what becomes of an event, connect to an unchecked address, follow a redirect,
//! use a proxy, send a header of a tenant's in place of one of ours, or repeat what a target sent.

mod address;
mod allowed;
mod answer;
mod audience;
mod checkpoint;
mod client;
mod clock;
mod connect;
mod headers;
mod id_token;
mod lookups;
mod names;
mod resolve;
mod rules;
mod sign;
mod targets;
mod tls;
mod value;
mod watched;

use std::sync::Arc;
use std::time::Duration;

pub use address::{AddressKind, InvalidIpRange, IpRange};
pub use allowed::{AllowedPlace, InvalidAllowedPlace};
pub use audience::{AllowedAudience, InvalidAllowedAudience};
pub use client::Deliverer;
pub use id_token::{GoogleIdTokens, IdTokens, NoIdToken};
pub use resolve::{Resolve, SystemResolver};
pub use rules::RefusedTarget;
pub use targets::Targets;

/// Where a deployment's requests may go. By default only to the public internet: `https` and public
/// addresses.
///
/// ```
/// use wakeq_service::delivery::DeliveryConfig;
///
/// let at_home = DeliveryConfig { allow: vec!["*=127.0.0.1".parse().unwrap()], allow_http: true, ..Default::default() };
/// assert!(DeliveryConfig::default().allow.is_empty() && at_home.allow.len() == 1);
/// ```
#[derive(Clone, Debug)]
pub struct DeliveryConfig {
    /// Places where the targets of a canvas, or of all, may be although they are not public, or
    /// their ports are not usual HTTP ports. Metadata services and link-local addresses stay
    /// refused.
    pub allow: Vec<AllowedPlace>,
    /// Whether requests without TLS are allowed. Default `false`.
    pub allow_http: bool,
    /// Audiences for which the targets of a canvas, or of all, may receive tokens, each with the
    /// only origin for it. A token carries the workers' own identity, so none is sent without
    /// permission.
    pub audiences: Vec<AllowedAudience>,
    /// Maximum number of open connections, including idle ones. Default 512; one canvas leaves a
    /// quarter of them to others.
    pub connections_max: usize,
    /// Certificates of additional certificate authorities beside the system's, as DER.
    pub authorities: Vec<Vec<u8>>,
    /// Resolves host names. By default the system's resolver.
    pub resolver: Arc<dyn Resolve>,
    /// Provides ID tokens. By default Google's.
    pub tokens: Arc<dyn IdTokens>,
}

impl Default for DeliveryConfig {
    fn default() -> Self {
        Self {
            allow: Vec::new(),
            allow_http: false,
            audiences: Vec::new(),
            connections_max: 512,
            authorities: Vec::new(),
            resolver: Arc::new(SystemResolver),
            tokens: Arc::new(GoogleIdTokens::default()),
        }
    }
}

/// Why the client can't be created.
#[derive(Debug, thiserror::Error)]
pub enum DeliveryError {
    /// An additional authority can't be read.
    #[error("a CA certificate for targets can't be used: {0}; give it as DER")]
    Authorities(String),
    /// TLS can't be set up.
    #[error("TLS to targets can't be set up: {0}")]
    Tls(String),
}

/// How an attempt ended.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum DeliveryOutcome {
    /// The target has processed the event.
    Completed,
    /// It is too early for the target: try again without counting an attempt.
    NotYet {
        /// How long to wait.
        delay: Duration,
        /// What was wrong with its answer beside that, if anything was.
        fault: Option<String>,
    },
    /// The target has no capacity now: try again without counting an attempt, and send it less.
    Busy {
        /// What it answered.
        message: String,
        /// The least wait that it asks for.
        delay: Duration,
    },
    /// The target permanently refuses further events.
    Gone {
        /// What it answered.
        reason: String,
    },
    /// No retry can help.
    Dead {
        /// What it answered.
        message: String,
    },
    /// An operational error: to be retried.
    Failed {
        /// What happened, and what to do about it.
        message: String,
        /// The least wait that the target asks for, if it does.
        after: Option<Duration>,
    },
}

impl DeliveryOutcome {
    fn failed(message: impl Into<String>) -> Self {
        Self::Failed { message: message.into(), after: None }
    }

    /// The same, with a remark where its message is kept with the event.
    fn noting(mut self, remark: &str) -> Self {
        match &mut self {
            Self::Failed { message, .. } | Self::Dead { message } | Self::Busy { message, .. } => {
                message.push_str("; ");
                message.push_str(remark);
            }
            Self::Gone { reason } => {
                reason.push_str("; ");
                reason.push_str(remark);
            }
            Self::NotYet { fault, .. } => *fault = Some(remark.to_owned()),
            Self::Completed => {}
        }
        self
    }
}
