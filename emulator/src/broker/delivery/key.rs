//! The ordering keys of a subscription: the line of each key's messages, and its availability.
//!
//! A line reaches from the oldest unacknowledged message to the newest. This module contains no
//! rules.

use std::collections::HashMap;
use std::ops::{Index, IndexMut};
use std::sync::Arc;

use super::list::{Linked, Links, List, NONE};
use super::{Holder, StreamId, Time};

/// Which takers a key's next message is available to.
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
pub(super) enum Availability {
    /// No message is left to hand out.
    Idle,
    /// Any taker.
    Ready,
    /// Only the stream that holds earlier ones.
    Stream(StreamId),
    /// Only the unary pull in progress, which has taken earlier ones.
    Session,
    /// None before this time.
    Waiting(Time),
    /// None until the earlier ones that are leased have been settled.
    Blocked,
}

/// An ordering key that has messages.
#[derive(Debug)]
pub(super) struct Key {
    name: Arc<str>,
    /// Its messages, in order.
    pub(super) line: List,
    /// The next one to hand out.
    pub(super) cursor: u32,
    /// How many are leased.
    pub(super) leased: u32,
    /// The holder of the one that was leased last.
    pub(super) holder: Option<Holder>,
    /// Set if they may belong to several holders, or to several pulls.
    pub(super) mixed: bool,
    pub(super) availability: Availability,
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
    /// The keys in `Availability::Ready`.
    pub(super) ready: List,
    /// The keys in `Availability::Session`.
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

    /// The key of this name; allocates it if it is new.
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
            availability: Availability::Idle,
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

    /// Frees a key. Its line must be empty, and it must not be in any list.
    pub(super) fn vacate(&mut self, at: u32) {
        let name: Arc<str> = std::mem::replace(&mut self[at].name, Arc::from(""));
        self.by_name.remove(&name);
        self.free.push(at);
    }

    /// The keys in use, always in the same order.
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
