//! The streams of [`wakeq`]: consumers and brokers of its log, and entities whose state is
//! kept in memory.
//!
//! A [`Consumer`] reads sources of the log (such as a category) in order and stores its positions;
//! an [`EventBroker`] decides which process reads which source. An [`EntityProcessor`] keeps the
//! entities of a type in memory, and validates and applies the events that are sent to them with
//! [`Entities`]. [`Groups`] shows all of that to operators.

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

pub use broker::{BrokerBacking, BrokerConfig, BrokerError, EventBroker};
pub use consumer::{
    Consumer, ConsumerConfig, ConsumerError, ErrorStrategy, EventProcessor, EventProvider, EventSubscriber,
    Health, PositionStore,
};
pub use entity::{
    Applied, Asked, Entities, Entity, EntityAnswer, EntityConfig, EntityError, EntityEvent, EntityProcessor,
    Rejection, SentToEntity,
};
pub use event::{EntityId, EntityStatus, EntityType};
pub use groups::{GroupError, Groups};

/// Brokers from inside: nodes, subscribers, subscriptions, the tables that hold them, and leaders.
pub mod brokers {
    pub use crate::broker::{
        EventSubscriberStateStore, EventSubscriptionSourceMappingStore, EventSubscriptionStateStore,
        LeaderElector, Leadership, LockElector, LockManager, MemoryGroups, NodeHeartbeat,
    };
    pub use crate::event::{
        GroupNode, NewSubscription, NodeId, SubscriberId, SubscriberState, Subscription, Term,
    };
}

/// The parts that a consumer can be given besides its configuration, and sources and positions in
/// memory.
pub mod consumers {
    pub use crate::consumer::{
        DeadLetter, GiveUp, InvalidConsumer, MemoryLog, MemoryPositions, PositionKey, ReadBudget,
    };
}

/// The operators' view of groups, and their actions, through [`Groups`].
pub mod control {
    pub use crate::groups::{Group, GroupNodes, GroupSource, ResetGroup, ResetTo};
    pub use crate::store::{
        FailingEvent, GroupDead, GroupDeadCursor, GroupDeadPage, GroupPosition, InvalidGroupDeadCursor,
        RemoveGroup,
    };
}

/// Entities as [`Entities`] shows them, and the progress of the events that they were sent.
pub mod entities {
    pub use crate::entity::{
        EntityOutcome, EntityPage, EntityProgress, InvalidProcessor, Question, SendReceipt,
    };
    pub use crate::event::{InvalidEntityId, InvalidEntityType};
    pub use crate::store::{
        EntityCursor, EntityEventStatus, EntitySummary, InvalidEntityCursor, StoredEntity,
    };
}

/// Compiles the code in the README and in the pages about the streams.
#[cfg(doctest)]
mod pages {
    #[doc = include_str!("../README.md")]
    struct Readme;
    #[doc = include_str!("../../docs/consumers.md")]
    struct ConsumersDocument;
    #[doc = include_str!("../../docs/entities.md")]
    struct EntitiesDocument;
}
