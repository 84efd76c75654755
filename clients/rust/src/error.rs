//! What can go wrong between the client and the service.

use std::time::Duration;

use serde::Deserialize;

/// Prefix of every problem's type.
const KIND_PREFIX: &str = "urn:wakeq:problem:";

/// A request that did not succeed.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum Error {
    /// It makes no sense, and was never sent.
    #[error("{0}")]
    Invalid(String),
    /// The service refused it.
    #[error("{0}")]
    Refused(Box<Problem>),
    /// An answer that is not wakeq's: of another program, or of something in front of it.
    #[error("{url} answered {}{}", shown(*.status), unexpected(*.status))]
    Unexpected {
        /// The service's URL.
        url: String,
        /// The HTTP status.
        status: u16,
    },
    /// There was no connection: it had no effect.
    #[error("{url} is not reachable: check the URL, and that the server runs: {cause}")]
    Unreachable {
        /// The service's URL.
        url: String,
        /// Why.
        cause: String,
    },
    /// There was no answer, or not all of it. The request may have taken effect.
    #[error("{url} {}; the request may have taken effect{}", lost(*.timed_out), because(.cause))]
    Lost {
        /// The service's URL.
        url: String,
        /// Whether the time was over.
        timed_out: bool,
        /// Why.
        cause: String,
    },
    /// The answer is over 32 MiB.
    #[error("the answer of {url} is too large: ask for less at a time")]
    TooLarge {
        /// The service's URL.
        url: String,
    },
    /// The answer is JSON of another shape.
    #[error("{url} returned an answer that this program can't read ({cause}): is the server older or newer?")]
    Unreadable {
        /// The service's URL.
        url: String,
        /// What is wrong with it.
        cause: serde_json::Error,
    },
}

/// Why the service refused a request ([RFC 9457](https://www.rfc-editor.org/rfc/rfc9457)).
#[derive(Clone, Debug, thiserror::Error, Deserialize)]
#[error("{title}: {detail} (request {request_id})")]
#[non_exhaustive]
pub struct Problem {
    /// The HTTP status.
    #[serde(skip)]
    pub status: u16,
    /// Its type, which is stable: `urn:wakeq:problem:not-found`; [`Problem::code`] is the end of
    /// it.
    #[serde(rename = "type")]
    pub kind: String,
    /// The type in words.
    pub title: String,
    /// What is wrong in this case, and what to do.
    pub detail: String,
    /// Names the request in the service's log.
    pub request_id: String,
    /// How long to wait before another attempt, if the service says so.
    #[serde(skip)]
    pub retry_after: Option<Duration>,
}

impl Problem {
    /// The last part of the type: `not-found`.
    pub fn code(&self) -> &str {
        self.kind.strip_prefix(KIND_PREFIX).unwrap_or(&self.kind)
    }
}

impl Error {
    /// Whether the same request may succeed later.
    pub fn is_temporary(&self) -> bool {
        match self {
            Self::Refused(problem) => is_later(problem.status) || problem.code() == "idempotency-in-progress",
            Self::Unexpected { status, .. } => is_later(*status),
            Self::Unreachable { .. } | Self::Lost { .. } => true,
            Self::Invalid(_) | Self::TooLarge { .. } | Self::Unreadable { .. } => false,
        }
    }

    /// Whether the request certainly had no effect, so that it may be sent again whatever it is.
    pub(crate) fn had_no_effect(&self) -> bool {
        match self {
            Self::Refused(problem) => problem.status == 429,
            Self::Unreachable { .. } | Self::Invalid(_) => true,
            Self::Unexpected { .. } | Self::Lost { .. } | Self::TooLarge { .. } | Self::Unreadable { .. } => {
                false
            }
        }
    }
}

fn is_later(status: u16) -> bool {
    matches!(status, 429 | 502..=504)
}

fn shown(status: u16) -> String {
    reqwest::StatusCode::from_u16(status).map_or_else(|_| status.to_string(), |status| status.to_string())
}

fn unexpected(status: u16) -> &'static str {
    match status {
        429 | 502..=504 => ": try again",
        401 | 403 => ", but not in wakeq's format: something in front of it requires a credential of its own",
        _ => ", but not in wakeq's format: is this its URL?",
    }
}

fn lost(timed_out: bool) -> &'static str {
    if timed_out { "did not answer in time" } else { "broke off its answer" }
}

fn because(cause: &str) -> String {
    if cause.is_empty() { String::new() } else { format!(": {cause}") }
}

/// The causes of an error on one line, each once.
pub(crate) fn causes(error: &(dyn std::error::Error + 'static)) -> String {
    let mut words = error.to_string();
    let mut next = error.source();
    while let Some(cause) = next {
        let more = cause.to_string();
        if !words.contains(&more) {
            words = format!("{words}: {more}");
        }
        next = cause.source();
    }
    words.replace('\n', " ")
}
