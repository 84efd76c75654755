//! What goes wrong with a broker.

use std::time::Duration;

use crate::event::{EventSource, Name};
use crate::store::StoreError;

/// Why a broker did not do what it was asked for.
#[derive(Clone, Debug, thiserror::Error)]
pub enum BrokerError {
    /// The tables can't be read or written; it may work later.
    #[error("{what}")]
    Unavailable {
        /// What was tried.
        what: &'static str,
        /// Why it failed.
        #[source]
        source: StoreError,
    },
    /// The configuration is wrong.
    #[error("{0}")]
    Config(&'static str),
    /// The group has read the category in other parts.
    #[error(
        "the group {group} has a position in {opened}, and {asked} is a part of the same category in another division: keep \
         the former number of partitions, or take another name for the group, which then begins at the start"
    )]
    Partitions {
        /// The group.
        group: Name,
        /// What it has read.
        opened: Box<EventSource>,
        /// What is asked for.
        asked: Box<EventSource>,
    },
    /// Members of the group work on something else.
    #[error(
        "a member of the group {group} that is there asks for {known}, and this one for {asked} instead: take another name for \
         other work, or let all members ask for the same sources, of which a consumer may have several"
    )]
    Sources {
        /// The group.
        group: Name,
        /// What the other asks for, and this one does not.
        known: Box<EventSource>,
        /// What this one asks for, and the other does not.
        asked: Box<EventSource>,
    },
    /// The name of the group is that of a type's processors.
    #[error(
        "the group {group} is that of the processors of a type of entities, which ask for the type's inbox and nothing else: \
         choose another name for the subscriber"
    )]
    Reserved {
        /// The group.
        group: Name,
    },
    /// No sources, or too many.
    #[error("a subscriber of the group {group} asks for {count} sources: ask for 1 to 1,024")]
    Requests {
        /// The group.
        group: Name,
        /// How many it asks for.
        count: usize,
    },
    /// A subscriber may take longer to end than others wait for it.
    #[error(
        "a subscriber of the group {group} takes up to {grace:?} to end with a source, more than a third of the broker's lease \
         of {lease:?}: make its grace {:?} at most, or the lease {:?} at least",
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
    /// A member of the group asks for the first of these sources, and another one for the second instead.
    pub(super) fn differs(group: &Name, known: EventSource, asked: EventSource) -> Self {
        Self::Sources { group: group.clone(), known: Box::new(known), asked: Box::new(asked) }
    }

    pub(super) fn unavailable(what: &'static str) -> impl FnOnce(StoreError) -> Self {
        move |source| Self::Unavailable { what, source }
    }
}
