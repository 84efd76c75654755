//! The slots of a subscription's messages, with the state of each message.
//!
//! This module contains no rules: the rest of `delivery` decides which state may follow which.

use std::collections::BTreeMap;
use std::ops::{Index, IndexMut};
use std::sync::Arc;
use std::time::Duration;

use super::list::{Linked, Links, NONE};
use super::{Holder, Message, Time};
use bytes::Bytes;

/// The lists that a message can be in at the same time.
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
pub(super) enum Lane {
    /// All of the subscription, the oldest first.
    Age,
    /// The available ones; or the line of its ordering key.
    Queue,
    /// Those that were leased for the same duration.
    Lease,
}

/// The state of a message.
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
pub(super) enum State {
    /// The slot is empty.
    Free,
    /// Available.
    Ready { ahead: bool },
    /// Available later.
    Waiting { until: Time },
    /// In its key's line: available when it is its turn, but not before this time.
    Queued { not_before: Time },
    /// Held by a taker.
    Leased { holder: Holder, until: Time, span: Duration },
    /// Acknowledged, but still in its key's line until all before it are: if one of those is
    /// redelivered, so is this.
    Done,
    /// Acknowledged and retained.
    Kept,
}

/// The slot of a message.
#[derive(Debug)]
pub(super) struct Slot {
    pub(super) message: Arc<Message>,
    pub(super) state: State,
    /// The number of its last lease; 0 if none is valid.
    pub(super) lease: u64,
    /// The sequence number of the grant that its lease is based on: of leases that expire at the
    /// same moment, the one granted earlier is handled first.
    pub(super) grant: u64,
    /// The number of failed deliveries: by a nack, or by a lease that expired.
    pub(super) failures: u32,
    pub(super) size: u32,
    /// Its ordering key, if it has one.
    pub(super) key: u32,
    /// Whether this is the second copy of a duplicated message.
    pub(super) copy: bool,
    links: [Links; 3],
}

impl Slot {
    /// Whether it is not acknowledged.
    pub(super) fn is_pending(&self) -> bool {
        self.is_to_come() || matches!(self.state, State::Leased { .. })
    }

    /// Whether it is going to be handed out: neither acknowledged nor leased.
    pub(super) fn is_to_come(&self) -> bool {
        match self.state {
            State::Ready { .. } | State::Waiting { .. } | State::Queued { .. } => true,
            State::Leased { .. } | State::Free | State::Done | State::Kept => false,
        }
    }

    pub(super) fn is_queued(&self) -> bool {
        matches!(self.state, State::Queued { .. })
    }

    /// The order of publication.
    pub(super) fn order(&self) -> (u64, bool) {
        (self.message.id, self.copy)
    }

    pub(super) fn before(&self, lane: Lane) -> u32 {
        self.links[lane as usize].before
    }

    pub(super) fn after(&self, lane: Lane) -> u32 {
        self.links[lane as usize].after
    }
}

impl Linked for Slot {
    type Lane = Lane;

    fn links(&self, lane: Lane) -> Links {
        self.links[lane as usize]
    }

    fn links_mut(&mut self, lane: Lane) -> &mut Links {
        &mut self.links[lane as usize]
    }
}

/// All slots, in use or free.
#[derive(Debug)]
pub(super) struct Slots {
    pub(super) items: Vec<Slot>,
    free: Vec<u32>,
    /// Placeholder in free slots.
    nothing: Arc<Message>,
}

impl Slots {
    pub(super) fn new() -> Self {
        let nothing = Message {
            id: 0,
            published: Time::default(),
            data: Bytes::new(),
            attributes: BTreeMap::new(),
            ordering_key: String::new(),
            schema: None,
        };
        Self { items: Vec::new(), free: Vec::new(), nothing: Arc::new(nothing) }
    }

    /// Allocates a slot for a message; the caller has to set its state.
    pub(super) fn occupy(&mut self, message: Arc<Message>, copy: bool) -> u32 {
        let size = u32::try_from(message.size()).unwrap_or(u32::MAX);
        let slot = Slot {
            message,
            state: State::Free,
            lease: 0,
            grant: 0,
            failures: 0,
            size,
            key: NONE,
            copy,
            links: [Links::UNLINKED; 3],
        };
        if let Some(at) = self.free.pop() {
            self[at] = slot;
            return at;
        }
        let at = u32::try_from(self.items.len()).unwrap_or(NONE);
        assert_ne!(at, NONE, "four thousand million messages in one subscription do not fit into memory");
        self.items.push(slot);
        at
    }

    /// Frees a slot.
    pub(super) fn vacate(&mut self, at: u32) {
        let nothing = Arc::clone(&self.nothing);
        let slot = &mut self[at];
        (slot.message, slot.state, slot.lease) = (nothing, State::Free, 0);
        self.free.push(at);
    }
}

impl Index<u32> for Slots {
    type Output = Slot;

    fn index(&self, at: u32) -> &Slot {
        &self.items[at as usize]
    }
}

impl IndexMut<u32> for Slots {
    fn index_mut(&mut self, at: u32) -> &mut Slot {
        &mut self.items[at as usize]
    }
}
