//! The vocabulary of the streams: entities, and the members of consumer groups.
//!
//! Everything here is plain data, validated when it is constructed. No I/O, no SQL, no clock.

mod entity;
mod group;

pub use entity::{EntityId, EntityStatus, EntityType, InvalidEntityId, InvalidEntityType};
pub(crate) use entity::{ISOLATED_MAX, IsolatedEntity, IsolatedStep};
pub use group::{GroupNode, NewSubscription, NodeId, SubscriberId, SubscriberState, Subscription, Term};
