//! The limits of requests, as the server's configuration sets them.

use std::sync::Arc;
use std::time::Duration;

use super::bytes::{Answers, Budget};

/// The limits of each request, and of all of them together.
pub(crate) struct Limits {
    pub(crate) body_bytes: usize,
    pub(crate) body_time: Duration,
    pub(crate) request_time: Duration,
    pub(crate) requests: usize,
    /// Maximum number of refusals that are delayed at once.
    pub(crate) delayed_refusals: usize,
    /// Bytes of bodies, from their arrival to the end of their requests.
    pub(crate) bodies: Arc<Budget>,
    /// Bytes of answers being sent.
    pub(crate) answers: Answers,
}
