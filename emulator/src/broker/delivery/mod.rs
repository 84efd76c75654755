//! One subscription's delivery: which of its messages may be handed out now, who holds them until when, and what becomes
//! of them after that.
//!
//! Knows nothing of names, topics, filters or other subscriptions. Time is handed in; nothing here waits.
//!
//! # What the service's documentation leaves open, and how it is read here
//!
//! - **A lease that is over.** Without exactly-once delivery an acknowledgement still counts as long as the message was not
//!   handed out again meanwhile; after that it changes nothing. Neither is an error. With exactly-once delivery it is refused,
//!   unless this very lease was acknowledged already: a client may ask again when an answer was lost.
//! - **Order after a failed delivery.** The failed message comes again, and with it every later one of its key that was handed
//!   out or acknowledged meanwhile, in order. Those later ones have not failed: their attempts do not count. What is left of
//!   their leases counts no more.
//! - **Order with exactly-once delivery.** A later one that is still leased is not sent again before its lease is over, and what
//!   is acknowledged never. So a key's messages are acknowledged in their order, or in one request; others are refused as unordered.
//! - **Who gets the next of a key.** The stream that has earlier ones, and nobody else until they are settled. A unary pull can
//!   take several of a key at once; the next pull gets more when they are settled. Push has one of a key at a time. With
//!   exactly-once delivery only later ones may be out: then the stream that has those, or else anybody.
//! - **A stream that ends** leaves what it held leased: the ids stay valid on other streams and in unary calls until the leases
//!   run out, and then the messages come again.
//! - **Dead messages** of a key do not hold up the later ones.
//! - **Seeking back** brings acknowledged messages again as if for the first time.

mod ack_id;
mod enter;
mod key;
mod lapse;
mod line;
mod list;
mod retain;
mod settle;
mod slot;
mod take;
#[cfg(test)]
mod tests;
mod vocabulary;

use std::collections::{BTreeMap, BTreeSet, VecDeque};
use std::time::Duration;

use key::{Keys, Place};
use list::List;
use slot::Slots;
use take::Rotation;
pub use vocabulary::Figures;
pub(crate) use vocabulary::{
    Acked, Advanced, Contents, DeadLetter, Delivered, Fate, Holder, RetryPolicy, Settings,
};

use super::{Message, StreamId, Time};

/// How many acknowledged leases exactly-once delivery remembers, to answer a client that asks again.
const REMEMBERED: usize = 16_384;

/// One subscription's messages.
#[derive(Debug)]
pub(crate) struct Delivery {
    serial: u64,
    settings: Settings,
    /// The latest time that was handed in: time does not run back, even if a clock does.
    latest: Time,
    slots: Slots,
    keys: Keys,
    /// All messages, the oldest first.
    age: List,
    /// What can be taken and has no ordering key.
    ready: List,
    /// The same, but overtakes: what was delivered before, above all.
    ahead: List,
    /// By how long they were granted for; so each list is in the order in which its leases run out.
    leases: BTreeMap<Duration, List>,
    /// No lease runs out before.
    first_lapse: Option<Time>,
    /// Back-offs and delays.
    timers: BTreeSet<(Time, Timer)>,
    /// The streams that hold something.
    streams: BTreeMap<StreamId, Held>,
    rotation: Rotation,
    /// The last lease before the unary pull that is under way.
    pulling: Option<u64>,
    last_lease: u64,
    last_grant: u64,
    /// Acknowledged with exactly-once delivery, the latest last.
    remembered: VecDeque<u64>,
    dead: Vec<DeadLetter>,
    /// Something can be taken that could not be before, or by a stream that had no room before, since `advance` last
    /// said so.
    awakened: bool,
    tally: Tally,
}

/// What a stream holds.
#[derive(Debug)]
struct Held {
    messages: usize,
    bytes: usize,
    /// The keys of which only it can take more.
    keys: List,
    closed: bool,
}

/// Whose back-off or delay it is.
#[derive(Clone, Copy, Debug, Eq, Ord, PartialEq, PartialOrd)]
enum Timer {
    Message(u32),
    Key(u32),
}

#[derive(Debug, Default)]
struct Tally {
    pending: usize,
    bytes: usize,
    leased: usize,
    kept: usize,
}

impl Delivery {
    /// Empty. The serial is one that no other subscription of the broker has or had: ack ids carry it.
    pub(crate) fn new(serial: u64, settings: Settings) -> Self {
        Self {
            serial,
            settings,
            latest: Time::default(),
            slots: Slots::new(),
            keys: Keys::new(),
            age: List::EMPTY,
            ready: List::EMPTY,
            ahead: List::EMPTY,
            leases: BTreeMap::new(),
            first_lapse: None,
            timers: BTreeSet::new(),
            streams: BTreeMap::new(),
            rotation: Rotation::default(),
            pulling: None,
            last_lease: 0,
            last_grant: 0,
            remembered: VecDeque::new(),
            dead: Vec::new(),
            awakened: false,
            tally: Tally::default(),
        }
    }

    /// What it was made with.
    pub(crate) fn serial(&self) -> u64 {
        self.serial
    }

    /// How it delivers.
    pub(crate) fn settings(&self) -> &Settings {
        &self.settings
    }

    /// Delivers so from now on. Ordering stays as it was: the service never changes it.
    pub(crate) fn configure(&mut self, now: Time, settings: Settings) {
        self.catch_up(now);
        let ordering = self.settings.ordering;
        let before = std::mem::replace(&mut self.settings, Settings { ordering, ..settings });
        if before.exactly_once && !self.settings.exactly_once {
            self.remembered.clear();
            self.take_back_gaps();
        }
        if before.retain_acked && !self.settings.retain_acked {
            self.drop_kept();
        }
        self.catch_up(now);
    }

    /// Lets time pass: leases run out, back-offs end, what is too old goes.
    pub(crate) fn advance(&mut self, now: Time) -> Advanced {
        self.catch_up(now);
        Advanced {
            dead: std::mem::take(&mut self.dead),
            deliverable: std::mem::take(&mut self.awakened) && self.deliverable(),
        }
    }

    /// When `advance` should be called next.
    pub(crate) fn next_due(&self) -> Option<Time> {
        let lapse = self.next_lapse().map(|(until, ..)| until);
        let timer = self.timers.first().map(|(time, _)| *time);
        let dead = (!self.dead.is_empty()).then_some(self.latest);
        [lapse, timer, self.oldest_ends(), dead].into_iter().flatten().min()
    }

    /// Whether somebody can take something now: reason to wake those who wait.
    pub(crate) fn deliverable(&self) -> bool {
        !self.ahead.is_empty()
            || !self.ready.is_empty()
            || !self.keys.ready.is_empty()
            || self.streams.values().any(|held| !held.closed && !held.keys.is_empty())
    }

    /// How many messages nobody holds, those included whose time has not come.
    pub(crate) fn at_hand(&self) -> usize {
        self.tally.pending.saturating_sub(self.tally.leased)
    }

    /// How many messages a stream holds, and their size.
    pub(crate) fn held_by(&self, stream: StreamId) -> (usize, usize) {
        self.streams.get(&stream).map_or((0, 0), |held| (held.messages, held.bytes))
    }

    /// The stream has ended. What it held stays leased; nobody has a claim to its keys any more.
    pub(crate) fn release(&mut self, now: Time, stream: StreamId) {
        self.catch_up(now);
        let Some(held) = self.streams.get_mut(&stream) else {
            return;
        };
        held.closed = true;
        while let Some(key) =
            self.streams.get(&stream).map(|held| held.keys.head).filter(|key| *key != list::NONE)
        {
            self.replace_key(key);
        }
    }

    /// How it stands.
    pub(crate) fn figures(&self, now: Time) -> Figures {
        let blocked = |key: &u32| matches!(self.keys[*key].place, Place::Waiting(_) | Place::Blocked);
        Figures {
            backlog: self.tally.pending,
            leased: self.tally.leased,
            waiting: self.timers.len(),
            acked_retained: self.tally.kept,
            bytes: self.tally.bytes,
            oldest_unacked: self.pending().next().map(|at| now.since(self.slots[at].message.published)),
            ordering_keys_blocked: self.keys.in_use().filter(blocked).count(),
        }
    }

    /// What is not acknowledged, the oldest first.
    fn pending(&self) -> impl Iterator<Item = u32> {
        self.all().filter(|at| self.slots[*at].is_pending())
    }

    fn forget_timer(&mut self, time: Time, timer: Timer) {
        self.timers.remove(&(time, timer));
    }

    fn wake(&mut self) {
        self.awakened = true;
    }
}
