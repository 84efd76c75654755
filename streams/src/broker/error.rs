//! The errors of brokers.

use std::time::Duration;

use wakeq::log::EventSource;
use wakeq::{Name, StoreError};

/// Why a call of a broker failed.
#[derive(Clone, Debug, thiserror::Error)]
#[non_exhaustive]
pub enum BrokerError {
    /// The tables can't be read or written; it may succeed later.
    #[error("{what}")]
    Unavailable {
        /// The operation that failed.
        what: &'static str,
        /// Why it failed.
        #[source]
        source: StoreError,
    },
    /// The configuration is wrong, or the call is not possible in this state.
    #[error("{0}")]
    Config(&'static str),
    /// The group has read the category in another division: whole, or in another number of
    /// partitions.
    #[error(
        "the group {group} has a position in {opened}, and {asked} divides the same category \
         differently: keep the former number of partitions, or choose another name for the group, \
         which then begins at the start"
    )]
    Partitions {
        /// The group.
        group: Name,
        /// The source that it has read.
        opened: Box<EventSource>,
        /// The source that it is asked to read.
        asked: Box<EventSource>,
    },
    /// Another member of the group asks for other sources, and neither asks for all that the other
    /// does.
    #[error(
        "a current member of the group {group} requests {known}, and this one requests {asked} \
         instead: choose another group name for different work, or let all members request the \
         same sources, of which a consumer may have several"
    )]
    Sources {
        /// The group.
        group: Name,
        /// A source that the other member asks for and this one does not.
        known: Box<EventSource>,
        /// A source that this one asks for and the other does not.
        asked: Box<EventSource>,
    },
    /// The group's name is reserved for the processors of a type of entities.
    #[error(
        "the group name {group} is reserved for the processors of an entity type, which request \
         only the type's inbox: choose another name for the subscriber"
    )]
    Reserved {
        /// The group.
        group: Name,
    },
    /// The subscriber asks for no sources, or for too many.
    #[error("a subscriber of the group {group} requests {count} sources: request 1 to 1,024")]
    Requests {
        /// The group.
        group: Name,
        /// How many it asks for.
        count: usize,
    },
    /// The subscriber may take longer than a third of the lease to stop working on a source.
    #[error(
        "a subscriber of the group {group} takes up to {grace:?} to release a source, more than a \
         third of the broker's lease of {lease:?}: make its grace at most {:?}, or the lease at \
         least {:?}",
        third(.lease),
        .grace.saturating_mul(3)
    )]
    Grace {
        /// The group.
        group: Name,
        /// How long it may take.
        grace: Duration,
        /// The lease of the broker.
        lease: Duration,
    },
}

fn third(lease: &Duration) -> Duration {
    *lease / 3
}

impl BrokerError {
    /// A member of the group asks for the first of these sources, and another one for the second
    /// instead.
    pub(super) fn differs(group: &Name, known: EventSource, asked: EventSource) -> Self {
        Self::Sources { group: group.clone(), known: Box::new(known), asked: Box::new(asked) }
    }

    pub(super) fn unavailable(what: &'static str) -> impl FnOnce(StoreError) -> Self {
        move |source| Self::Unavailable { what, source }
    }
}
