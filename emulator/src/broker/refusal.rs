//! Why a request is refused: a gRPC status code, the service's message, and its machine-readable
//! reason.

use std::collections::BTreeMap;

use tonic::Code;

/// The refusal of a request, which has changed nothing.
#[derive(Clone, Debug, Eq, PartialEq, thiserror::Error)]
#[error("{message}")]
pub struct Refusal {
    /// The status code.
    pub code: Code,
    /// The message, for logs.
    pub message: String,
    /// The content of the status details, if the service has a reason for this refusal.
    pub reason: Option<Reason>,
}

/// A machine-readable reason: `google.rpc.ErrorInfo`.
#[derive(Clone, Debug, Eq, PartialEq)]
pub struct Reason {
    /// Like `RESOURCE_NOT_FOUND`; empty if only the metadata counts (acknowledgements with
    /// exactly-once delivery).
    pub reason: String,
    /// Details by key: an ack id and what became of it.
    pub metadata: BTreeMap<String, String>,
}

/// The result of a request to the broker.
pub type Answer<T> = Result<T, Refusal>;

impl Refusal {
    /// A refusal with a code and a message, without a machine-readable reason.
    pub fn new(code: Code, message: impl Into<String>) -> Self {
        Self { code, message: message.into(), reason: None }
    }

    pub(crate) fn invalid(message: impl Into<String>) -> Self {
        Self::new(Code::InvalidArgument, message)
    }

    /// The service's refusal for a resource that does not exist.
    pub(crate) fn not_found(name: &str) -> Self {
        let resource = name.rsplit('/').next().unwrap_or(name);
        Self::new(Code::NotFound, format!("Resource not found (resource={resource})."))
    }

    /// The service's refusal for a name that is taken.
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
