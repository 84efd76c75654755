//! One subscription's delivery: which of its messages may be handed out now, who holds them until
//! when, and what happens to them after that.
//!
//! It knows nothing of names, topics, filters or other subscriptions. Time is passed in; nothing
//! here waits.
//!
//! # What the service's documentation leaves open, and how it is read here
//!
//! - **Expired leases.** Without exactly-once delivery, an acknowledgement still counts if the
//!   message has not been handed out again meanwhile; after that it has no effect. Neither is an
//!   error. With exactly-once delivery it is refused, unless this very lease was acknowledged
//!   already: a client may retry if an answer was lost.
//! - **Order after a failed delivery.** The failed message is redelivered, followed in order by
//!   every later one of its key that has been handed out or acknowledged meanwhile. Those later
//!   ones have not failed: their attempts do not count. The rest of their leases is void.
//! - **Order with exactly-once delivery.** A later message that is still leased is not sent again
//!   before its lease has ended, and an acknowledged one never. So a key's messages have to be
//!   acknowledged in order, or in one request; others are refused as unordered.
//! - **Who gets a key's next message.** The stream that holds earlier ones, and no other taker
//!   until they are settled. A unary pull can take several of a key at once; the next pull gets
//!   more when they are settled. Push has one of a key in flight at a time. With exactly-once
//!   delivery, only later ones may be leased: then the stream that holds those gets it, or else any
//!   taker.
//! - **A stream that ends** leaves its messages leased: the ids stay valid on other streams and in
//!   unary calls until the leases expire, and then the messages are redelivered.
//! - **Dead messages** of a key do not block the later ones.
//! - **Seeking back** redelivers acknowledged and leased messages as if for the first time. The ids
//!   with which they were handed out no longer acknowledge them.

mod ack_id;
mod enter;
mod key;
mod lapse;
mod line;
mod list;
mod load;
mod retain;
mod settle;
mod slot;
mod take;
#[cfg(test)]
mod tests;
mod view;
mod vocabulary;

use std::collections::{BTreeMap, BTreeSet, VecDeque};
use std::time::Duration;

use key::Keys;
use list::List;
use slot::Slots;
use take::Rotation;
pub(crate) use view::{COUNTED_BYTES_MAX, PlaceResult};
pub use view::{MessagePage, MessageQuery, MessageState, MessageView, PageSize, Place};
pub(crate) use vocabulary::{
    AckResult, AdvanceResult, Contents, DeadLetter, Fate, LeasedMessage, RetryPolicy, Settings,
};
pub use vocabulary::{Figures, Holder};

use super::changes::Ledger;
use super::{Message, StreamId, Time};

/// How many acknowledged leases exactly-once delivery remembers, to answer a client that retries.
const REMEMBERED: usize = 16_384;

/// One subscription's messages.
#[derive(Debug)]
pub(crate) struct Delivery {
    serial: u64,
    settings: Settings,
    /// The latest time that was passed in: time does not run backwards, even if a clock does.
    latest: Time,
    slots: Slots,
    keys: Keys,
    /// All messages, the oldest first.
    age: List,
    /// Available messages without an ordering key.
    ready: List,
    /// The same, but overtaking the others: mainly redelivered messages.
    ahead: List,
    /// By the duration of the lease, so that each list is in the order of expiry.
    leases: BTreeMap<Duration, List>,
    /// No lease expires before this.
    first_lapse: Option<Time>,
    /// Back-offs and delays.
    timers: BTreeSet<(Time, Timer)>,
    /// The streams that hold messages.
    streams: BTreeMap<StreamId, StreamLoad>,
    rotation: Rotation,
    /// The last lease before the unary pull in progress.
    pulling: Option<u64>,
    last_lease: u64,
    last_grant: u64,
    /// Leases acknowledged with exactly-once delivery, in ascending order.
    remembered: VecDeque<u64>,
    dead: Vec<DeadLetter>,
    /// Something has become available, or a stream has room again, since `advance` last reported
    /// it.
    awakened: bool,
    tally: Tally,
    ledger: Ledger,
    /// Leases up to this one were granted by an earlier process, if any were.
    loaded_at_lease: u64,
}

/// The messages that a stream holds.
#[derive(Debug)]
struct StreamLoad {
    messages: usize,
    bytes: usize,
    /// The keys of which only it can take more.
    keys: List,
    closed: bool,
}

/// What a back-off or delay is for.
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
    /// The oldest pending message.
    oldest: Option<u32>,
    /// The keys whose next message can't be handed out yet.
    blocked_keys: usize,
}

impl Delivery {
    /// An empty one. The serial must never have been used by another subscription of the broker, as
    /// ack ids carry it.
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
            ledger: Ledger::default(),
            loaded_at_lease: 0,
        }
    }

    /// The serial that it was created with.
    pub(crate) fn serial(&self) -> u64 {
        self.serial
    }

    /// The current settings.
    pub(crate) fn settings(&self) -> &Settings {
        &self.settings
    }

    /// Applies new settings from now on, except for ordering: the service never changes it.
    pub(crate) fn configure(&mut self, now: Time, settings: Settings) {
        self.catch_up(now);
        let ordering = self.settings.ordering;
        let before = std::mem::replace(&mut self.settings, Settings { ordering, ..settings });
        if before.exactly_once && !self.settings.exactly_once {
            self.remembered.clear();
            self.requeue_gaps();
        }
        if before.retain_acked && !self.settings.retain_acked {
            self.drop_kept();
        }
        self.catch_up(now);
    }

    /// Lets time pass: leases expire, back-offs end, and expired messages are dropped.
    pub(crate) fn advance(&mut self, now: Time) -> AdvanceResult {
        self.catch_up(now);
        AdvanceResult {
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

    /// Whether any taker could get a message now, so that waiters should be woken.
    pub(crate) fn deliverable(&self) -> bool {
        !self.ahead.is_empty()
            || !self.ready.is_empty()
            || !self.keys.ready.is_empty()
            || self.streams.values().any(|load| !load.closed && !load.keys.is_empty())
    }

    /// How many messages are not acknowledged.
    pub(crate) fn backlog(&self) -> usize {
        self.tally.pending
    }

    /// How many messages no one holds, including those whose time has not come.
    pub(crate) fn at_hand(&self) -> usize {
        self.tally.pending.saturating_sub(self.tally.leased)
    }

    /// How many messages a stream holds, and their size.
    pub(crate) fn held_by(&self, stream: StreamId) -> (usize, usize) {
        self.streams.get(&stream).map_or((0, 0), |load| (load.messages, load.bytes))
    }

    /// Closes a stream. What it held stays leased; its keys are no longer reserved for it.
    pub(crate) fn release(&mut self, now: Time, stream: StreamId) {
        self.catch_up(now);
        let Some(load) = self.streams.get_mut(&stream) else {
            return;
        };
        load.closed = true;
        while let Some(key) =
            self.streams.get(&stream).map(|load| load.keys.head).filter(|key| *key != list::NONE)
        {
            self.refresh_key(key);
        }
    }

    /// Its current figures, which are counted as they change: nothing is walked through.
    pub(crate) fn figures(&self, now: Time) -> Figures {
        Figures {
            backlog: self.tally.pending,
            leased: self.tally.leased,
            waiting: self.timers.len(),
            acked_retained: self.tally.kept,
            bytes: self.tally.bytes,
            oldest_unacked: self.tally.oldest.map(|at| now.since(self.slots[at].message.published)),
            ordering_keys_blocked: self.tally.blocked_keys,
        }
    }

    /// The messages that are not acknowledged, the oldest first.
    fn pending(&self) -> impl Iterator<Item = u32> {
        self.all().filter(|at| self.slots[*at].is_pending())
    }

    /// Counts a message that is pending from now on.
    fn count(&mut self, at: u32) {
        self.tally.pending += 1;
        self.tally.bytes += self.slots[at].size as usize;
        let order = self.slots[at].order();
        if self.tally.oldest.is_none_or(|oldest| order < self.slots[oldest].order()) {
            self.tally.oldest = Some(at);
        }
        self.note_pending(at);
    }

    /// Stops counting a message that is no longer pending, but still in its place by age.
    fn discount(&mut self, at: u32) {
        self.tally.pending -= 1;
        self.tally.bytes -= self.slots[at].size as usize;
        if self.tally.oldest == Some(at) {
            let next = self.since(at).skip(1).find(|later| self.slots[*later].is_pending());
            self.tally.oldest = next;
        }
    }

    fn forget_timer(&mut self, time: Time, timer: Timer) {
        self.timers.remove(&(time, timer));
    }

    fn wake(&mut self) {
        self.awakened = true;
    }
}
