//! Consumers read the sources of the log in order and keep their positions.
//!
//! The parts of a consumer are traits: where events come from, where positions are stored, and how
//! a broker gives it sources. Nothing here decides which consumer reads which source, and nothing
//! relies on that decision being right: a position moves only under the epoch with which it was
//! opened.

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
mod running;
mod subscriber;
mod waits;

pub use budget::ReadBudget;
pub use config::{ConsumerConfig, ErrorStrategy, GiveUp, InvalidConsumer};
pub use consumer::Consumer;
pub use error::ConsumerError;
pub use memory::{MemoryLog, MemoryPositions};
pub use positions::{DeadLetter, PositionKey, PositionStore};
pub use provider::{EventProcessor, EventProvider};
pub(crate) use running::Running;
pub use subscriber::{EventSubscriber, Health};
pub(crate) use waits::{Waits, grown};
