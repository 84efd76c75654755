//! Events that only wakeq itself emits, for tests of their handlers.

use serde::Serialize;

use crate::event::{Event, EventError, Name};

/// An event as it is emitted by a cron of this name.
///
/// ```
/// use wakeq::testing::{TestKit, tick};
/// use wakeq::workers::Origin;
/// use wakeq::{Execution, Handlers, Route};
///
/// # #[tokio::main(flavor = "current_thread")]
/// # async fn main() -> Result<(), Box<dyn std::error::Error>> {
/// let mut kit = TestKit::new();
/// kit.handlers(Handlers::new().on(Route::new("report").module("CRON"), |execution: Execution| async move {
///     assert_eq!(execution.origin(), Origin::Cron);
///     Ok(())
/// }))?;
/// kit.emit(tick("report", &"weekly")?).await?;
/// assert_eq!(kit.drain().await?.completed, 1);
/// # Ok(())
/// # }
/// ```
pub fn tick(cron: &str, value: &(impl Serialize + ?Sized)) -> Result<Event, EventError> {
    Ok(Event { module: Name::cron(), ..Event::new(cron, value)? })
}

/// An event as it is emitted for an entity, with an `EntityAnswer` of `wakeq-streams`, for the
/// handler that a `reply_to` names.
pub fn answer(handler: &str, answer: &(impl Serialize + ?Sized)) -> Result<Event, EventError> {
    Ok(Event { module: Name::answer(), ..Event::new(handler, answer)? })
}
