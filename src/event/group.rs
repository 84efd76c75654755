//! The vocabulary of consumer groups: nodes, the subscribers on them, and what each of these is given to work on.
//!
//! Plain data; no I/O.

use std::fmt;

use uuid::Uuid;

use super::{EventSource, Name, Timestamp};

macro_rules! ids {
    ($($(#[$doc:meta])* $name:ident;)*) => {$(
        $(#[$doc])*
        #[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
        pub struct $name(pub Uuid);

        impl $name {
            /// A new one. It is greater than those that were made before it.
            pub fn new() -> Self {
                Self(Uuid::now_v7())
            }

            /// The one with this number, for tests.
            #[cfg(test)]
            pub(crate) fn from_number(number: u128) -> Self {
                Self(Uuid::from_u128(number))
            }
        }

        impl Default for $name {
            fn default() -> Self {
                Self::new()
            }
        }

        impl fmt::Display for $name {
            fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
                self.0.fmt(formatter)
            }
        }
    )*};
}

ids! {
    /// One process that has subscribers. It picks its id when it starts.
    NodeId;
    /// One instance of a group's consumer, in one process.
    SubscriberId;
}

/// A node, as the others see it.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct GroupNode {
    /// Which one it is.
    pub id: NodeId,
    /// When it was last heard of.
    pub heartbeat_at: Timestamp,
    /// Whether its lease has run out: it is not counted on any more.
    pub lapsed: bool,
}

/// A subscriber, as the others see it.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct SubscriberState {
    /// The name of its group.
    pub group: Name,
    /// Which instance it is.
    pub id: SubscriberId,
    /// Where it runs.
    pub node: NodeId,
    /// The sources it could work on.
    pub requests: Vec<EventSource>,
    /// Why it can't work, if it can't.
    pub unhealthy: Option<String>,
    /// The highest epoch of its subscription that it has confirmed: it works on nothing that had been taken from it by then.
    pub confirmed_epoch: i64,
    /// When it was last heard of. While it is unhealthy this stands still.
    pub heartbeat_at: Timestamp,
    /// Whether its lease has run out: its sources may be given to others.
    pub lapsed: bool,
}

/// What a subscriber is given to work on.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Subscription {
    /// The name of its group.
    pub group: Name,
    /// Whose it is.
    pub subscriber: SubscriberId,
    /// Where the subscriber runs.
    pub node: NodeId,
    /// The sources.
    pub sources: Vec<EventSource>,
    /// Sources that were taken from it, and that nobody else is given before it has confirmed this epoch.
    pub releasing: Vec<EventSource>,
    /// Grows with each change, over all subscriptions: fences what is committed.
    pub epoch: i64,
    /// The term of the coordinator who wrote it.
    pub term: i64,
}

/// What a subscriber is to have from now on.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct NewSubscription {
    /// The name of its group.
    pub group: Name,
    /// Whose it is.
    pub subscriber: SubscriberId,
    /// Where the subscriber runs.
    pub node: NodeId,
    /// What it works on.
    pub sources: Vec<EventSource>,
    /// What it has to end with.
    pub releasing: Vec<EventSource>,
    /// The epoch of what it had when this was decided; 0 if it had nothing.
    pub seen_epoch: i64,
}

/// A lock that somebody holds: the right to coordinate, for one.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Lead {
    /// The lock's name.
    pub name: Name,
    /// Whoever holds it.
    pub owner: Uuid,
    /// Grows each time the lock is taken: what is written under a former one is refused.
    pub term: i64,
}
