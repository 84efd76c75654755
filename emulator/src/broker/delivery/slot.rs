//! The places that messages have in a subscription, and what each message is doing there.
//!
//! Keeps no rules: what may follow what is decided by the rest of `delivery`.

use std::collections::BTreeMap;
use std::ops::{Index, IndexMut};
use std::sync::Arc;
use std::time::Duration;

use super::list::{Linked, Links, NONE};
use super::{Holder, Message, Time};
use bytes::Bytes;

/// The lists that a message can be in at once.
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
pub(super) enum Lane {
    /// All of the subscription, the oldest first.
    Age,
    /// What can be taken; or what its ordering key has.
    Queue,
    /// Those leased for equally long.
    Lease,
}

/// What a message is doing.
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
pub(super) enum State {
    /// There is none.
    Free,
    /// It can be taken.
    Ready { ahead: bool },
    /// It can be taken later.
    Waiting { until: Time },
    /// It stands in its key's line, and can be taken when it is its turn, but not before this.
    Queued { not_before: Time },
    /// Somebody has it.
    Leased { holder: Holder, until: Time, span: Duration },
    /// Acknowledged, but stands in its key's line until all before it are: should one of them come again, so does this.
    Done,
    /// Acknowledged and retained.
    Kept,
}

/// A message's place.
#[derive(Debug)]
pub(super) struct Slot {
    pub(super) message: Arc<Message>,
    pub(super) state: State,
    /// The last lease it had; 0 for none that counts.
    pub(super) lease: u64,
    /// Which grant of time its lease lives on: of those that run out at the same moment, the earlier granted goes first.
    pub(super) grant: u64,
    /// How many deliveries failed: by a nack, or by a lease that ran out.
    pub(super) failures: u32,
    pub(super) size: u32,
    /// Its ordering key's place, if it has one.
    pub(super) key: u32,
    /// The second of two alike.
    pub(super) copy: bool,
    links: [Links; 3],
}

impl Slot {
    /// Not acknowledged.
    pub(super) fn is_pending(&self) -> bool {
        match self.state {
            State::Ready { .. } | State::Waiting { .. } | State::Queued { .. } | State::Leased { .. } => true,
            State::Free | State::Done | State::Kept => false,
        }
    }

    pub(super) fn is_queued(&self) -> bool {
        matches!(self.state, State::Queued { .. })
    }

    /// Of publication.
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

/// All places, in use or free.
#[derive(Debug)]
pub(super) struct Slots {
    pub(super) items: Vec<Slot>,
    free: Vec<u32>,
    /// What stands in free places.
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
        };
        Self { items: Vec::new(), free: Vec::new(), nothing: Arc::new(nothing) }
    }

    /// A place for a message; the state is for the caller to set.
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

    /// The place is free for another.
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
