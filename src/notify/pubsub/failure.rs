//! Describes failures of the broker, and what to do about them.
//!
//! It only translates errors of the client library; it neither retries nor creates anything.

use std::sync::Arc;

use google_cloud_gax::error::rpc::Code;
use google_cloud_pubsub::Error;
use google_cloud_pubsub::error::PublishError;

use super::config::PubSubConfig;
use crate::notify::NotifyError;

/// The kinds of failure that are handled differently.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum FailureKind {
    /// The topic or the subscription does not exist.
    Missing,
    /// It exists already.
    AlreadyThere,
    /// The broker answers, but refuses access.
    Denied,
    /// The broker could not be reached or did not answer in time.
    Unreachable,
    /// Anything else the broker said.
    Other,
}

impl FailureKind {
    pub(super) fn of(error: &Error) -> Self {
        match error.status().map(|status| status.code) {
            Some(Code::NotFound) => return Self::Missing,
            Some(Code::AlreadyExists) => return Self::AlreadyThere,
            Some(Code::PermissionDenied | Code::Unauthenticated) => return Self::Denied,
            Some(Code::Unavailable | Code::DeadlineExceeded) => return Self::Unreachable,
            Some(_) | None => {}
        }
        match error.http_status_code() {
            Some(404) => Self::Missing,
            Some(409) => Self::AlreadyThere,
            Some(401 | 403) => Self::Denied,
            Some(500..) => Self::Unreachable,
            Some(_) => Self::Other,
            None if error.is_authentication() => Self::Denied,
            None => Self::Unreachable,
        }
    }

    /// What is wrong with `subject`, and what to do about it.
    pub(super) fn words(self, subject: &str, config: &PubSubConfig) -> String {
        let place = match &config.emulator_host {
            Some(host) => format!("the Pub/Sub emulator at {host}"),
            None => "Google Pub/Sub".to_owned(),
        };
        match self {
            Self::Missing => {
                format!("{subject} does not exist in {place}; create it with `wakeq topics create`")
            }
            Self::AlreadyThere => format!("{subject} exists already in {place}"),
            Self::Denied => format!(
                "{place} refuses access to {subject}; check the credentials, and grant roles/pubsub.publisher on the \
                 topic and roles/pubsub.subscriber on the subscription"
            ),
            Self::Unreachable => {
                format!(
                    "{place} cannot be reached for {subject}; check that it runs and that the network lets us through"
                )
            }
            Self::Other => format!("{place} does not serve {subject}; see the cause"),
        }
    }
}

/// An error about `subject` with its cause attached.
pub(super) fn failed(subject: &str, config: &PubSubConfig, error: Error) -> NotifyError {
    let kind = FailureKind::of(&error);
    NotifyError { what: kind.words(subject, config), source: Some(Box::new(error)) }
}

/// An error and its cause in one line, where no error value can be kept.
pub(super) fn in_one_line(error: &NotifyError) -> String {
    match &error.source {
        Some(source) => format!("{} ({source})", error.what),
        None => error.what.clone(),
    }
}

/// The remote error of a failed publish, if the request got that far.
pub(super) fn cause_of(error: &PublishError) -> Option<Arc<Error>> {
    if let PublishError::Rpc(cause) = error { Some(Arc::clone(cause)) } else { None }
}
