//! Why a request is refused: a gRPC status code, the service's words for it, and its machine-readable reason.

use std::collections::BTreeMap;

use tonic::Code;

/// A request that was not carried out; nothing was changed by it.
#[derive(Clone, Debug, Eq, PartialEq, thiserror::Error)]
#[error("{message}")]
pub struct Refusal {
    /// The status code.
    pub code: Code,
    /// The words for whoever reads the log.
    pub message: String,
    /// What goes into the status' details, where the service has such a reason.
    pub reason: Option<Reason>,
}

/// `google.rpc.ErrorInfo`: a reason for programs.
#[derive(Clone, Debug, Eq, PartialEq)]
pub struct Reason {
    /// `RESOURCE_NOT_FOUND`, …; empty where only the metadata counts (acknowledgements of exactly-once delivery).
    pub reason: String,
    /// More about it, by key: an ack id and what became of it.
    pub metadata: BTreeMap<String, String>,
}

/// What the broker answers.
pub type Answer<T> = Result<T, Refusal>;

impl Refusal {
    /// With a code and words, and no reason for programs.
    pub fn new(code: Code, message: impl Into<String>) -> Self {
        Self { code, message: message.into(), reason: None }
    }

    pub(crate) fn invalid(message: impl Into<String>) -> Self {
        Self::new(Code::InvalidArgument, message)
    }

    /// The service's words for something that isn't there.
    pub(crate) fn not_found(name: &str) -> Self {
        let resource = name.rsplit('/').next().unwrap_or(name);
        Self::new(Code::NotFound, format!("Resource not found (resource={resource})."))
    }

    /// The service's words for a name that is taken.
    pub(crate) fn already_exists(name: &str) -> Self {
        let resource = name.rsplit('/').next().unwrap_or(name);
        Self::new(
            Code::AlreadyExists,
            format!("Resource already exists in the project (resource={resource})."),
        )
    }

    pub(crate) fn unsupported(message: impl Into<String>) -> Self {
        Self::new(Code::Unimplemented, message)
    }
}
