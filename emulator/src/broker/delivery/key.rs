//! The places that ordering keys have in a subscription: the line of messages of each, and where the key stands.
//!
//! A line begins with the oldest message not acknowledged and ends with the newest. Keeps no rules.

use std::collections::HashMap;
use std::ops::{Index, IndexMut};
use std::sync::Arc;

use super::list::{Linked, Links, List, NONE};
use super::{Holder, StreamId, Time};

/// Where a key stands.
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
pub(super) enum Place {
    /// Nothing of it is left to hand out.
    Idle,
    /// Anybody can take its next message.
    Ready,
    /// Only the stream that has earlier ones can.
    Held(StreamId),
    /// Only the unary pull that is under way and has earlier ones can.
    Session,
    /// Its next message waits.
    Waiting(Time),
    /// Earlier ones are out, and nobody can take more until those are settled.
    Blocked,
}

/// An ordering key that has messages.
#[derive(Debug)]
pub(super) struct Key {
    name: Arc<str>,
    /// Its messages, in order.
    pub(super) line: List,
    /// The first that can be handed out next.
    pub(super) cursor: u32,
    /// How many are out.
    pub(super) leased: u32,
    /// Who had the last of them.
    pub(super) holder: Option<Holder>,
    /// Perhaps not all of them are with one holder, or from one pull.
    pub(super) mixed: bool,
    pub(super) place: Place,
    links: Links,
}

impl Linked for Key {
    type Lane = ();

    fn links(&self, (): ()) -> Links {
        self.links
    }

    fn links_mut(&mut self, (): ()) -> &mut Links {
        &mut self.links
    }
}

/// All keys, in use or free.
#[derive(Debug)]
pub(super) struct Keys {
    pub(super) items: Vec<Key>,
    free: Vec<u32>,
    by_name: HashMap<Arc<str>, u32>,
    /// Those in `Place::Ready`.
    pub(super) ready: List,
    /// Those in `Place::Session`.
    pub(super) session: List,
}

impl Keys {
    pub(super) fn new() -> Self {
        Self {
            items: Vec::new(),
            free: Vec::new(),
            by_name: HashMap::new(),
            ready: List::EMPTY,
            session: List::EMPTY,
        }
    }

    /// The key of this name, which gets a place if it has none.
    pub(super) fn named(&mut self, name: &str) -> u32 {
        if let Some(at) = self.by_name.get(name) {
            return *at;
        }
        let name: Arc<str> = name.into();
        let key = Key {
            name: Arc::clone(&name),
            line: List::EMPTY,
            cursor: NONE,
            leased: 0,
            holder: None,
            mixed: false,
            place: Place::Idle,
            links: Links::UNLINKED,
        };
        let at = if let Some(at) = self.free.pop() {
            self[at] = key;
            at
        } else {
            self.items.push(key);
            u32::try_from(self.items.len() - 1).unwrap_or(NONE)
        };
        self.by_name.insert(name, at);
        at
    }

    /// Its line is empty, and it is in no list.
    pub(super) fn vacate(&mut self, at: u32) {
        let name: Arc<str> = std::mem::replace(&mut self[at].name, Arc::from(""));
        self.by_name.remove(&name);
        self.free.push(at);
    }

    /// Those in use, always in the same order.
    pub(super) fn in_use(&self) -> impl Iterator<Item = u32> {
        (0_u32..).zip(&self.items).filter(|(_, key)| !key.line.is_empty()).map(|(at, _)| at)
    }
}

impl Index<u32> for Keys {
    type Output = Key;

    fn index(&self, at: u32) -> &Key {
        &self.items[at as usize]
    }
}

impl IndexMut<u32> for Keys {
    fn index_mut(&mut self, at: u32) -> &mut Key {
        &mut self.items[at as usize]
    }
}
