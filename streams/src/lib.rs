//! The streams of [wakeq](wakeq): consumers and brokers of its log, and entities whose state is
//! kept in memory.
//!
//! A [`Consumer`] reads sources of the log in order and keeps its positions; an [`EventBroker`]
//! decides which process reads which source. An [`EntityProcessor`] keeps the entities of a type in
//! memory and decides about the events that are sent to them with [`Entities`]. [`Groups`] shows
//! all of that to operators.

mod broker;
mod consumer;
mod entity;
mod event;
mod groups;
#[doc(hidden)]
pub mod internals;
pub mod machine;
mod store;
mod telemetry;

pub use broker::{
    BrokerBacking, BrokerConfig, BrokerError, EventBroker, EventSubscriberStateStore,
    EventSubscriptionSourceMappingStore, EventSubscriptionStateStore, LeaderElector, Leadership, LockElector,
    LockManager, MemoryGroups, NodeHeartbeat,
};
pub use consumer::{
    Consumer, ConsumerConfig, ConsumerError, DeadLetter, ErrorStrategy, EventProcessor, EventProvider,
    EventSubscriber, GiveUp, Health, InvalidConsumer, MemoryLog, MemoryPositions, PositionKey, PositionStore,
    ReadBudget,
};
pub use entity::{
    Applied, Asked, Entities, Entity, EntityAnswer, EntityConfig, EntityError, EntityEvent, EntityOutcome,
    EntityPage, EntityProcessor, EntityProgress, InvalidProcessor, Question, Rejection, SendReceipt,
    SentToEntity,
};
pub use event::{
    EntityId, EntityStatus, EntityType, GroupNode, InvalidEntityId, InvalidEntityType, Lead, NewSubscription,
    NodeId, SubscriberId, SubscriberState, Subscription,
};
pub use groups::{Group, GroupError, GroupNodes, GroupSource, Groups, RemoveGroup, ResetGroup, ResetTo};
pub use store::{
    EntityCursor, EntityEventStatus, EntitySummary, FailingEvent, GroupDead, GroupDeadCursor, GroupDeadPage,
    GroupPosition, InvalidEntityCursor, InvalidGroupDeadCursor, StoredEntity,
};

/// Compiles the code in the page about entities.
#[cfg(doctest)]
#[doc = include_str!("../../docs/entities.md")]
struct EntitiesPage;

/// Compiles the code in the page about consumers.
#[cfg(doctest)]
#[doc = include_str!("../../docs/consumers.md")]
struct Consumers;
