//! The vocabulary of consumer groups: nodes, their subscribers, and the sources allocated to each.
//!
//! Plain data; no I/O.

use std::fmt;

use uuid::Uuid;

use wakeq::log::EventSource;
use wakeq::{Name, Timestamp};

macro_rules! ids {
    ($($(#[$doc:meta])* $name:ident;)*) => {$(
        $(#[$doc])*
        #[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
        pub struct $name(pub Uuid);

        impl $name {
            /// A new id, greater than those made before it.
            pub fn new() -> Self {
                Self(Uuid::now_v7())
            }

            /// The id with this number, for tests.
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
    /// A process that has subscribers. It chooses its id when it starts.
    NodeId;
    /// One instance of a group's consumer, in one process.
    SubscriberId;
}

/// A node, as other nodes see it.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct GroupNode {
    /// The node's id.
    pub id: NodeId,
    /// Its last heartbeat.
    pub heartbeat_at: Timestamp,
    /// Whether its lease has expired: it no longer counts.
    pub lapsed: bool,
}

/// A subscriber, as other nodes see it.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct SubscriberState {
    /// The name of its group.
    pub group: Name,
    /// The subscriber's id.
    pub id: SubscriberId,
    /// The node it runs on.
    pub node: NodeId,
    /// The sources it can consume.
    pub requests: Vec<EventSource>,
    /// Why it can't consume anything, if it is unhealthy.
    pub unhealthy: Option<String>,
    /// The highest epoch of its subscription that it has confirmed: it has stopped consuming
    /// everything that was revoked up to this epoch.
    pub confirmed_epoch: i64,
    /// Its last heartbeat; it does not advance while the subscriber is unhealthy.
    pub heartbeat_at: Timestamp,
    /// Whether its lease has expired: its sources may be allocated to others.
    pub lapsed: bool,
}

/// The sources allocated to a subscriber.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Subscription {
    /// The name of its group.
    pub group: Name,
    /// The subscriber they are allocated to.
    pub subscriber: SubscriberId,
    /// The node the subscriber runs on.
    pub node: NodeId,
    /// The sources it consumes.
    pub sources: Vec<EventSource>,
    /// Sources that were revoked: they are not allocated to another subscriber before this one has
    /// confirmed the epoch.
    pub releasing: Vec<EventSource>,
    /// Grows with each change, across all subscriptions: the fencing token of commits.
    pub epoch: i64,
    /// The term of the coordinator that wrote it.
    pub term: i64,
}

/// The sources that a subscriber is to have from now on.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct NewSubscription {
    /// The name of its group.
    pub group: Name,
    /// The subscriber that it is for.
    pub subscriber: SubscriberId,
    /// The node the subscriber runs on.
    pub node: NodeId,
    /// The sources it consumes.
    pub sources: Vec<EventSource>,
    /// The sources it has to release.
    pub releasing: Vec<EventSource>,
    /// The epoch of the subscription that this decision is based on; 0 if there was none.
    pub seen_epoch: i64,
}

/// A term for which a lock is held, such as the right to coordinate.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Term {
    /// The lock's name.
    pub name: Name,
    /// The holder.
    pub owner: Uuid,
    /// Grows each time the lock is taken: writes under an earlier term are refused.
    pub term: i64,
}
