//! Consumers: they read a source of the log in order, and keep how far they have come.
//!
//! What a consumer is made of stands behind traits: where events come from, where positions are kept, and who tells it what
//! it may read. Nothing here decides who reads what, and nothing relies on having been decided upon: a position is moved
//! only under the epoch that it was opened with.

mod error;
mod positions;
mod provider;
mod subscriber;

pub use error::ConsumerError;
pub use positions::{OpenedPosition, PositionKey, PositionStore};
pub use provider::{EventProcessor, EventProvider};
pub use subscriber::{EventSubscriber, Health};
