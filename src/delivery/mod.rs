//! Sends events to HTTP targets: one signed POST an attempt, and a verdict on its answer.
//!
//! What it must never do: decide what becomes of an event, connect to an address that was not checked, follow a redirect,
//! use a proxy, send a header that somebody else chose, or repeat what a target said.

mod address;
mod allowed;
mod answer;
mod audience;
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
mod tls;
mod value;

use std::sync::Arc;
use std::time::Duration;

pub use address::{AddressKind, InvalidIpRange, IpRange};
pub use allowed::{AllowedPlace, InvalidAllowedPlace};
pub use audience::{AllowedAudience, InvalidAllowedAudience};
pub use client::Deliverer;
pub use id_token::{GoogleIdTokens, IdTokens, NoIdToken};
pub use resolve::{Resolve, SystemResolver};
pub use rules::RefusedTarget;

use crate::event::{CopyOf, EventId, HandlerAddress, OwnDeployment, Place, Timestamp, Traceparent};

/// What a deployment lets its requests go to. The default is for the public internet: `https` and public addresses.
///
/// ```
/// use wakeq::delivery::DeliveryConfig;
///
/// let at_home = DeliveryConfig { allow: vec!["*=127.0.0.1".parse().unwrap()], allow_http: true, ..Default::default() };
/// assert!(DeliveryConfig::default().allow.is_empty() && at_home.allow.len() == 1);
/// ```
#[derive(Clone, Debug)]
pub struct DeliveryConfig {
    /// Places that are allowed the targets of a canvas, or of all, although they are not public, or their ports not those of
    /// HTTP. Metadata services are refused even so.
    pub allow: Vec<AllowedPlace>,
    /// Whether requests may go without TLS.
    pub allow_http: bool,
    /// Audiences that the targets of a canvas, or of all, may be given tokens for, each with the origin it is meant for. A token
    /// carries the workers' own identity, so that none is sent without leave.
    pub audiences: Vec<AllowedAudience>,
    /// Connections at a time, idle ones included. Default 512.
    pub connections_max: usize,
    /// Certificates of authorities beside those of the system, as DER.
    pub authorities: Vec<Vec<u8>>,
    /// Where names are resolved.
    pub resolver: Arc<dyn Resolve>,
    /// Where tokens come from.
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

/// Why nothing can be delivered at all.
#[derive(Debug, thiserror::Error)]
pub enum DeliveryError {
    /// An authority that was added can't be read.
    #[error("a certificate of an authority for targets can't be used: {0}; give it as DER")]
    Authorities(String),
    /// TLS can't be set up.
    #[error("TLS to targets can't be set up: {0}")]
    Tls(String),
}

/// One attempt at an event.
#[derive(Clone, Debug)]
pub struct Delivery<'a> {
    /// The event: the same for every attempt, and the id of the message.
    pub event: EventId,
    /// The handler that the target stands for.
    pub address: &'a HandlerAddress,
    /// The event's value: the body.
    pub json: String,
    /// Which attempt this is, from 1.
    pub attempt: u32,
    /// When the event was emitted.
    pub enqueued_at: Timestamp,
    /// The trace it belongs to.
    pub traceparent: &'a Traceparent,
    /// The object it is about, and its link there.
    pub place: Option<&'a Place>,
    /// The registered queue that it is in, and the event that it is a copy of, if it is one.
    pub copy_of: Option<&'a CopyOf>,
    /// The deployment that sends it, so that its own API can refuse it.
    pub deployment: Option<&'a OwnDeployment>,
}

/// How an attempt ended.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Delivered {
    /// The target has done it.
    Completed,
    /// It is too early for the target: the same again, without an attempt being counted.
    NotYet {
        /// After how long.
        delay: Duration,
    },
    /// The target wants no more of them, for good.
    Gone {
        /// What it answered.
        reason: String,
    },
    /// An operational error: to be tried again.
    Failed {
        /// What happened, and what to do about it.
        message: String,
        /// When the target wants it again; none: as its policy says.
        retry_after: Option<Duration>,
    },
}

impl Delivered {
    fn failed(message: impl Into<String>) -> Self {
        Self::Failed { message: message.into(), retry_after: None }
    }
}
