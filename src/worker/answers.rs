//! The results of a handler, and their effect on the run of its event.

use std::error::Error;
use std::fmt;
use std::time::Duration;

use serde::Serialize;
use serde::de::IgnoredAny;

use crate::machine::HandlerEnd;

/// The result of a handler: `Ok` completes the event.
pub type HandlerResult<T = ()> = Result<T, HandlerError>;

/// Longest result of an event, in bytes.
const RESULT_BYTES_MAX: usize = 65_536;

/// How a handler completed an event: perhaps with a result, which is stored if the event is kept
/// ([`Route::keep`](crate::Route::keep)), and otherwise dropped.
#[derive(Clone, Debug, Default)]
#[non_exhaustive]
pub struct Completion {
    result: Option<Box<str>>,
}

impl Completion {
    /// A completion with a result, which is stored as JSON of at most 65,536 bytes. For a longer
    /// one this is an error that no retry mends, so the event dies: store what is large elsewhere,
    /// and record where it is.
    ///
    /// ```
    /// use wakeq::workers::Completion;
    /// use wakeq::{Execution, HandlerResult};
    ///
    /// async fn count(event: Execution) -> HandlerResult<Completion> {
    ///     let text: String = event.value()?;
    ///     Completion::with_result(&text.split_whitespace().count())
    /// }
    /// ```
    pub fn with_result<T: Serialize + ?Sized>(result: &T) -> HandlerResult<Self> {
        let json = serde_json::to_string(result).map_err(|error| {
            HandlerError::dead(format!("the result of the handler can't be stored as JSON: {error}"))
        })?;
        Self::with_json(json)
    }

    /// The same with a result that is JSON already.
    ///
    /// ```
    /// use wakeq::workers::Completion;
    ///
    /// assert_eq!(Completion::with_json("[1]").unwrap().result(), Some("[1]"));
    /// assert!(Completion::with_json("[1").is_err());
    /// ```
    pub fn with_json(json: impl Into<Box<str>>) -> HandlerResult<Self> {
        let json = json.into();
        if json.len() > RESULT_BYTES_MAX {
            return Err(HandlerError::dead(format!(
                "the result of the handler has {} bytes as JSON, the limit is {RESULT_BYTES_MAX}: store it \
                 elsewhere, and record where it is",
                json.len()
            )));
        }
        if let Err(error) = serde_json::from_str::<IgnoredAny>(&json) {
            return Err(HandlerError::dead(format!("the result of the handler is not JSON: {error}")));
        }
        Ok(Self { result: Some(json) })
    }

    /// The result as JSON, if there is one.
    pub fn result(&self) -> Option<&str> {
        self.result.as_deref()
    }

    pub(super) fn into_result(self) -> Option<Box<str>> {
        self.result
    }
}

/// What the `Ok` of a handler may hold. Nearly always that is `()`.
pub trait HandlerOutput: Send + 'static {
    /// How the event completed.
    fn completion(self) -> Completion;
}

impl HandlerOutput for () {
    fn completion(self) -> Completion {
        Completion::default()
    }
}

impl HandlerOutput for Completion {
    fn completion(self) -> Completion {
        self
    }
}

/// Why a handler did not complete: an operational error, which is retried; an error value, which is
/// not; that no retry can help; or that it is too early for the event.
///
/// Every error converts into an operational one, so `?` retries. Use [`HandlerError::value`] for an
/// outcome that a retry can't change.
#[derive(Clone, Debug)]
pub struct HandlerError {
    message: String,
    kind: ErrorKind,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum ErrorKind {
    Operational(Option<Duration>),
    Value,
    Dead,
    NotYet(Duration),
    Busy(Duration),
    Gone,
}

impl HandlerError {
    /// An operational error: the event is retried according to the handler's policy.
    pub fn operational(message: impl fmt::Display) -> Self {
        Self { message: message.to_string(), kind: ErrorKind::Operational(None) }
    }

    /// An error value: the event has completed with this as its result, and is not retried.
    ///
    /// ```
    /// use wakeq::{Execution, HandlerError, HandlerResult};
    ///
    /// async fn send_email(event: Execution) -> HandlerResult {
    ///     let address: String = event.value()?;
    ///     if !address.contains('@') {
    ///         return Err(HandlerError::value("no e-mail address"));
    ///     }
    ///     Ok(())
    /// }
    /// ```
    pub fn value(message: impl fmt::Display) -> Self {
        Self { message: message.to_string(), kind: ErrorKind::Value }
    }

    /// No retry can help: the event dies now, with this as its error, whatever retries are left. A
    /// person can see it among the dead events, and redrive it once the cause is mended.
    ///
    /// ```
    /// use wakeq::{Execution, HandlerError, HandlerResult};
    ///
    /// async fn charge(event: Execution) -> HandlerResult {
    ///     let card: String = event.value()?;
    ///     if card.is_empty() {
    ///         return Err(HandlerError::dead("the order has no card: ask the customer, then redrive this"));
    ///     }
    ///     Ok(())
    /// }
    /// ```
    pub fn dead(reason: impl fmt::Display) -> Self {
        Self { message: reason.to_string(), kind: ErrorKind::Dead }
    }

    /// It is too early for this event: it runs again after `delay`, up to the longest delay of the
    /// handler's [`RetryPolicy`](crate::RetryPolicy). A delay below 1 s becomes 1 s, and twice as
    /// long each time, up to a minute. No attempt is counted until the event has been postponed for
    /// [`Route::patience`](crate::Route::patience); from then on it counts as an operational error.
    ///
    /// ```
    /// use std::time::Duration;
    /// use wakeq::machine::{Consumption, consume};
    /// use wakeq::{Execution, HandlerError, HandlerResult};
    ///
    /// /// `last` is the last event of its object that this consumer has seen.
    /// async fn book(event: Execution, last: i64) -> HandlerResult {
    ///     let place = event.place.ok_or_else(|| HandlerError::value("it is on no object"))?;
    ///     match consume(last, place.link) {
    ///         Consumption::Consume => Ok(()),
    ///         Consumption::Done => Ok(()),
    ///         Consumption::Delay => Err(HandlerError::not_yet(Duration::from_secs(5))),
    ///     }
    /// }
    /// ```
    pub fn not_yet(delay: Duration) -> Self {
        Self { message: "not yet".into(), kind: ErrorKind::NotYet(delay) }
    }

    /// The same error with another message, which is kept with the attempt and logged.
    ///
    /// ```
    /// use std::time::Duration;
    /// use wakeq::HandlerError;
    ///
    /// let error = HandlerError::not_yet(Duration::from_secs(60)).with_message("the invoice is not there");
    /// assert_eq!(error.message(), "the invoice is not there");
    /// ```
    pub fn with_message(mut self, message: impl fmt::Display) -> Self {
        self.message = message.to_string();
        self
    }

    /// The service that the handler calls has no capacity now: like [`HandlerError::not_yet`]. If
    /// the handler runs elsewhere, the worker also sends it fewer events until it accepts them
    /// again.
    pub fn busy(message: impl fmt::Display, delay: Duration) -> Self {
        Self { message: message.to_string(), kind: ErrorKind::Busy(delay) }
    }

    /// Makes this an operational error that is retried after `delay`, or after the policy's delay
    /// if that is longer; it counts as a retry.
    pub fn retry_after(mut self, delay: Duration) -> Self {
        self.kind = ErrorKind::Operational(Some(delay));
        self
    }

    /// The handler runs elsewhere and is permanently gone there: nothing more is sent to its target
    /// until another is registered or the handler is unpaused, with this reason in the audit log.
    pub fn gone(reason: impl fmt::Display) -> Self {
        Self { message: reason.to_string(), kind: ErrorKind::Gone }
    }

    /// An operational error with the text of an error and of its sources.
    pub(super) fn of_chain(error: &dyn Error) -> Self {
        let mut message = error.to_string();
        let mut source = error.source();
        while let Some(cause) = source {
            message.push_str(": ");
            message.push_str(&cause.to_string());
            source = cause.source();
        }
        Self::operational(message)
    }

    /// What happened.
    pub fn message(&self) -> &str {
        &self.message
    }

    /// Whether the service that the handler calls has no capacity now.
    pub(super) fn is_busy(&self) -> bool {
        matches!(self.kind, ErrorKind::Busy(_))
    }

    /// The machine's input for a run in which the handler returned this error.
    pub(super) fn end(&self) -> HandlerEnd {
        match self.kind {
            ErrorKind::Operational(delay) => HandlerEnd::Failed(delay),
            ErrorKind::Value => HandlerEnd::Completed,
            ErrorKind::Dead => HandlerEnd::Rejected,
            ErrorKind::NotYet(delay) | ErrorKind::Busy(delay) => HandlerEnd::NotYet(delay),
            ErrorKind::Gone => HandlerEnd::Gone,
        }
    }
}

impl<E: Error> From<E> for HandlerError {
    fn from(error: E) -> Self {
        Self::of_chain(&error)
    }
}

/// What a handler has panicked with.
pub(super) fn panic_message(panic: &(dyn std::any::Any + Send)) -> &str {
    let text = panic.downcast_ref::<&str>().copied();
    text.or_else(|| panic.downcast_ref::<String>().map(String::as_str)).unwrap_or("no message")
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn errors_are_operational_unless_they_are_values() {
        let from_error = HandlerError::from("x".parse::<i32>().unwrap_err());
        assert_eq!(from_error.end(), HandlerEnd::Failed(None));
        assert_eq!(HandlerError::value("done").end(), HandlerEnd::Completed);
        assert_eq!(HandlerError::dead("no card").end(), HandlerEnd::Rejected);
        let later = HandlerError::operational("busy").retry_after(Duration::from_secs(3));
        assert_eq!(later.end(), HandlerEnd::Failed(Some(Duration::from_secs(3))));
        assert_eq!(HandlerError::not_yet(Duration::MAX).end(), HandlerEnd::NotYet(Duration::MAX));
        let busy = HandlerError::busy("full", Duration::ZERO);
        assert_eq!((busy.end(), busy.is_busy()), (HandlerEnd::NotYet(Duration::ZERO), true));
    }

    #[test]
    fn a_result_is_json_and_has_a_limit() {
        assert_eq!(Completion::with_result("a word").unwrap().result(), Some(r#""a word""#));
        assert_eq!(().completion().result(), None);
        let longest = "x".repeat(RESULT_BYTES_MAX - 2);
        assert!(Completion::with_result(&longest).is_ok());
        let too_long = Completion::with_result(&format!("{longest}x")).unwrap_err();
        assert_eq!(too_long.end(), HandlerEnd::Rejected);
        assert!(too_long.message().contains("65537 bytes"), "{}", too_long.message());
        assert_eq!(Completion::with_json("{").unwrap_err().end(), HandlerEnd::Rejected);
    }
}
