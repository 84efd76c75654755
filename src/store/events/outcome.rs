//! What became of an event's insert.

use std::collections::HashMap;

use crate::event::{EventId, HeldLimit, Link, UniqueOutcome};

/// By the position of an event, from 1: whether it is due soon, and its link.
pub(super) type InsertedRows = HashMap<i64, (bool, Option<Link>)>;

/// The outcome of an event's insert.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum InsertOutcome {
    /// Its rows exist.
    New {
        /// Whether it is due within the horizon, so that notifications have to be published.
        due_soon: bool,
        /// Its link, if it is on an object.
        link: Option<Link>,
        /// Its copies in queues.
        copies: Vec<EventId>,
        /// Those copies that are pulled: no worker is notified of them.
        pulled: Vec<EventId>,
    },
    /// The chosen id was already emitted on the same canvas.
    Known,
    /// Its unique key was taken: another event stands.
    Stands {
        /// The event that has the key, or had it and is remembered.
        id: EventId,
        /// What was done with it: anything but an insert.
        outcome: UniqueOutcome,
        /// Whether a notification of it has to be published now.
        due_soon: bool,
        /// The limit, as canvas and name, at which a place was kept for it before: what waits there
        /// has to be woken.
        room: Option<String>,
    },
}

impl InsertOutcome {
    /// The outcome of an event without object or copies.
    pub(in crate::store) fn new(due_soon: bool) -> Self {
        Self::New { due_soon, link: None, copies: Vec::new(), pulled: Vec::new() }
    }

    /// The outcome of an event whose rows are known to exist, without anything else being known.
    pub fn unanswered() -> Self {
        Self::new(true)
    }

    /// The only one of these, the outcomes of a single event.
    pub(in crate::store) fn only(inserted: Vec<Self>) -> Self {
        inserted.into_iter().next().unwrap_or(Self::new(true))
    }

    /// The limit at which a place was kept for the event that stands, and is not any more.
    pub(crate) fn left_limit(&self) -> Option<HeldLimit> {
        match self {
            Self::Stands { room, .. } => HeldLimit::parse(room.as_deref()?),
            Self::New { .. } | Self::Known => None,
        }
    }

    /// The link of a new event that is on an object.
    pub(crate) fn link(&self) -> Option<Link> {
        match self {
            Self::New { link, .. } => *link,
            Self::Known | Self::Stands { .. } => None,
        }
    }

    /// The copies of a new event that is due within the horizon.
    pub(crate) fn due_copies(&self) -> &[EventId] {
        match self {
            Self::New { due_soon: true, copies, .. } => copies,
            Self::New { due_soon: false, .. } | Self::Known | Self::Stands { .. } => &[],
        }
    }

    /// Those copies of a new event that workers are notified of.
    pub(crate) fn notified_copies(&self) -> impl Iterator<Item = &EventId> {
        let (copies, pulled) = match self {
            Self::New { copies, pulled, .. } => (copies.as_slice(), pulled.as_slice()),
            Self::Known | Self::Stands { .. } => (&[][..], &[][..]),
        };
        copies.iter().filter(|copy| !pulled.contains(copy))
    }

    /// The copies of a new event.
    pub(crate) fn copies(&self) -> &[EventId] {
        match self {
            Self::New { copies, .. } => copies,
            Self::Known | Self::Stands { .. } => &[],
        }
    }
}
