//! For tests of programs that use wakeq: a queue in memory, with a clock that the test moves.
//!
//! [`TestKit`] runs handlers as a worker does: with the same state machine, driver, retry policies,
//! time-outs and rules. Only the tables differ, and a test compares their statements with those of
//! Postgres. On a database, all of the kit's queue is the real one. It needs the feature `testing`,
//! which belongs in `dev-dependencies`.
//!
//! A handler that is retried three times, ten minutes apart:
//!
//! ```
//! use std::time::Duration;
//! use wakeq::testing::{TestKit, assert_dead, assert_emitted};
//! use wakeq::{Event, Execution, HandlerError, HandlerResult, Handlers, Queue, RetryPolicy, Route};
//!
//! /// The program's own code: charges a card, and has a receipt sent.
//! async fn charge(event: Execution, queue: Queue) -> HandlerResult {
//!     let cents: u64 = event.value()?;
//!     if cents > 1000 && event.attempt < 4 {
//!         return Err(HandlerError::operational("the bank is closed"));
//!     }
//!     queue.emit(Event::new("send-receipt", &cents)?).await?;
//!     Ok(())
//! }
//!
//! fn handlers(queue: Queue) -> Handlers {
//!     let patient = RetryPolicy { retries: 3, delay: Duration::from_secs(600), ..Default::default() };
//!     let route = Route::new("charge").retry(patient);
//!     Handlers::new().on(route, move |event| charge(event, queue.clone()))
//! }
//!
//! # #[tokio::main(flavor = "current_thread")]
//! # async fn main() -> Result<(), Box<dyn std::error::Error>> {
//! let mut kit = TestKit::new();
//! kit.handlers(handlers(kit.queue()))?;
//! kit.emit(Event::new("charge", &2500)?).await?;
//!
//! for _ in 0..3 {
//!     let drained = kit.drain().await?;
//!     assert_eq!((drained.completed, drained.retried), (0, 1));
//!     kit.advance(Duration::from_secs(600)).await?;
//! }
//! assert_emitted!(kit, "send-receipt", count = 0);
//!
//! let drained = kit.drain().await?;
//! assert_eq!((drained.completed, drained.waiting), (1, 1));
//! assert_emitted!(kit, "send-receipt", value = 2500);
//! assert_dead!(kit, "charge", count = 0);
//! # Ok(())
//! # }
//! ```

mod asserts;
mod delay_queue;
mod drained;
mod elsewhere;
mod emitted;
mod error;
mod kit;
mod notifier;
mod stepper;
mod system;

pub use crate::{assert_dead, assert_emitted};
#[doc(hidden)]
pub use asserts::{Expected, check_dead, check_emitted};
pub use drained::DrainReport;
pub use elsewhere::RunningElsewhere;
pub use emitted::EmittedEvent;
pub use error::KitError;
pub use kit::TestKit;
pub use notifier::{Faults, MemoryNotifier};
pub use system::{answer, tick};
