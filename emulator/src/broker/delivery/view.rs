//! A subscription's messages as somebody looks at them: which there are, in which state, one page
//! at a time. It changes nothing.

use std::fmt;
use std::sync::Arc;

use super::key::Availability;
use super::list::NONE;
use super::slot::{Lane, State};
use super::{Delivery, Holder, Message, Time};

/// The most messages that one page passes, shown or not: it bounds the time that looking takes.
const PASSED_MAX: usize = 20_000;

/// Of a larger message, only so many bytes count for the size of a page.
pub(crate) const COUNTED_BYTES_MAX: usize = 128 * 1024;

/// Where a subscription has a message: its address, and where the next page begins.
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
pub struct Place {
    id: u64,
    copy: bool,
    slot: u32,
}

impl Place {
    /// Reads what [`fmt::Display`] wrote; `None` if it is anything else.
    pub fn parse(text: &str) -> Option<Self> {
        let mut parts = text.split('.');
        let id = parts.next()?.parse().ok()?;
        let copy = match parts.next()? {
            "0" => false,
            "1" => true,
            _ => return None,
        };
        let slot = parts.next()?.parse().ok()?;
        parts.next().is_none().then_some(Self { id, copy, slot })
    }

    pub(super) fn slot(self) -> u32 {
        self.slot
    }

    /// The order of publication.
    pub(super) fn order(self) -> (u64, bool) {
        (self.id, self.copy)
    }
}

impl fmt::Display for Place {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(formatter, "{}.{}.{}", self.id, u8::from(self.copy), self.slot)
    }
}

/// The size of a page of messages.
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
pub struct PageSize {
    /// The most messages.
    pub messages: usize,
    /// A page ends with the message that reaches this size; large messages count in part.
    pub bytes: usize,
}

/// Which messages of a subscription are asked for.
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
pub struct MessageQuery {
    /// The messages after this place; from the oldest on if there is none.
    pub after: Option<Place>,
    /// Whether acknowledged messages that are kept are asked for as well.
    pub acknowledged: bool,
    /// The size of the page.
    pub size: PageSize,
}

/// A page of a subscription's messages, the oldest first.
#[derive(Clone, Debug, Default)]
pub struct MessagePage {
    /// The messages. There may be none although another page follows: one page passes a limited
    /// number of messages that were not asked for.
    pub messages: Vec<MessageView>,
    /// Where the next page begins, if there may be one.
    pub next: Option<Place>,
}

/// A message of a subscription.
#[derive(Clone, Debug)]
pub struct MessageView {
    /// Where it is.
    pub place: Place,
    /// The message.
    pub message: Arc<Message>,
    /// Its state.
    pub state: MessageState,
    /// How many of its deliveries failed, and one more while it is leased.
    pub attempts: u32,
}

/// The state of a message.
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
pub enum MessageState {
    /// It can be handed out now.
    Available,
    /// It can't be handed out before this time: a back-off or a delay.
    Waiting {
        /// When the wait ends.
        until: Time,
    },
    /// It can't be handed out before earlier messages of its ordering key.
    Behind,
    /// It was handed out and is not acknowledged.
    Outstanding {
        /// When the lease ends.
        until: Time,
        /// What holds it.
        holder: Holder,
    },
    /// It is kept, but acknowledged.
    Acknowledged,
}

/// What became of a message that was acknowledged by its place.
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
pub(crate) enum PlaceResult {
    Acknowledged,
    /// It is not there, or was acknowledged before.
    Gone,
    /// Exactly-once delivery with ordering: an earlier message of its key is not acknowledged yet.
    Unordered,
}

impl Delivery {
    /// A page of the messages.
    pub(crate) fn page(&self, query: &MessageQuery) -> MessagePage {
        let mut page = MessagePage::default();
        let (mut bytes, mut passed, mut last) = (0, 0, query.after);
        let mut at = self.page_start(query.after);
        while at != NONE {
            let slot = &self.slots[at];
            let after = query.after.filter(|after| slot.order() <= after.order());
            let is_shown = after.is_none() && (slot.is_pending() || query.acknowledged);
            let is_full = is_shown
                && !page.messages.is_empty()
                && (page.messages.len() >= query.size.messages || bytes >= query.size.bytes);
            if is_full || passed == PASSED_MAX {
                page.next = last;
                break;
            }
            let (id, copy) = after.map_or(slot.order(), Place::order);
            let place = Place { id, copy, slot: at };
            if is_shown {
                bytes += (slot.size as usize).min(COUNTED_BYTES_MAX);
                page.messages.push(self.view(place));
            }
            last = Some(place);
            passed += 1;
            at = slot.after(Lane::Age);
        }
        page
    }

    /// Where a page begins: at the last message of the page before, if that is still there.
    fn page_start(&self, after: Option<Place>) -> u32 {
        let is_before = |place: &Place| {
            let slot = self.slots.items.get(place.slot as usize);
            slot.is_some_and(|slot| slot.state != State::Free && slot.order() <= place.order())
        };
        after.filter(is_before).map_or(self.age.head, |place| place.slot)
    }

    fn view(&self, place: Place) -> MessageView {
        let slot = &self.slots[place.slot];
        let state = self.state_of(place.slot);
        let is_leased = matches!(state, MessageState::Outstanding { .. });
        let attempts = slot.failures + u32::from(is_leased);
        MessageView { place, message: Arc::clone(&slot.message), state, attempts }
    }

    fn state_of(&self, at: u32) -> MessageState {
        match self.slots[at].state {
            State::Ready { .. } => MessageState::Available,
            State::Waiting { until } => MessageState::Waiting { until },
            State::Queued { not_before } if not_before > self.latest => {
                MessageState::Waiting { until: not_before }
            }
            State::Queued { .. } if self.is_next_of_key(at) => MessageState::Available,
            State::Queued { .. } => MessageState::Behind,
            State::Leased { holder, until, .. } => MessageState::Outstanding { until, holder },
            State::Free | State::Done | State::Kept => MessageState::Acknowledged,
        }
    }

    fn is_next_of_key(&self, at: u32) -> bool {
        let key = &self.keys[self.slots[at].key];
        let is_available = match key.availability {
            Availability::Ready | Availability::Stream(_) | Availability::Session => true,
            Availability::Idle | Availability::Waiting(_) | Availability::Blocked => false,
        };
        is_available && key.cursor == at
    }
}
