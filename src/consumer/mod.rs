//! Consumers: they read a source of the log in order, and keep how far they have come.
//!
//! What a consumer is made of stands behind traits: where events come from, where positions are kept, and who tells it what
//! it may read. Nothing here decides who reads what, and nothing relies on having been decided upon: a position is moved
//! only under the epoch that it was opened with.

mod budget;
mod config;
#[expect(clippy::module_inception, reason = "the consumer itself, among what it is made of")]
mod consumer;
mod error;
mod log;
mod memory;
mod positions;
mod postgres;
mod provider;
mod reading;
mod subscriber;

pub use budget::ReadBudget;
pub use config::{ConsumerConfig, ErrorStrategy, GiveUp, InvalidConsumer};
pub use consumer::Consumer;
pub use error::ConsumerError;
pub use memory::{MemoryLog, MemoryPositions};
pub use positions::{DeadLetter, PositionKey, PositionStore};
pub use provider::{EventProcessor, EventProvider};
pub use subscriber::{EventSubscriber, Health};
