//! Entities: things whose state is kept in memory by the one active processor of their type, and
//! changes only by events that were found valid and stored.
//!
//! Events are sent to the inbox of a type, a category of the log; those that were valid are in its
//! repository, another category. Nothing here decides which process owns an inbox, or relies on
//! being its only owner: every commit is fenced by an epoch. Code of the user runs on threads of
//! its own, and never while a connection is held.

mod actors;
mod asked;
mod attempt;
mod batch;
mod cache;
mod config;
mod define;
mod envelope;
mod erase;
mod event;
mod halt;
mod handle;
mod list;
mod owner;
mod page;
mod parts;
mod processor;
mod residency;
mod run;
mod shard;
mod warm;

pub use asked::{Asked, Question};
pub use config::EntityConfig;
pub use define::{Applied, Entity, Rejection};
pub use envelope::{EntityAnswer, EntityOutcome};
pub use event::EntityEvent;
pub use handle::{Entities, EntityError, EntityProgress, SendReceipt, SentToEntity};
pub use list::EntityPage;
pub use processor::{EntityProcessor, InvalidProcessor};
