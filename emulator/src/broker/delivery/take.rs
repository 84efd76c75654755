//! How messages are handed out.

use std::sync::Arc;
use std::time::Duration;

use super::ack_id::AckId;
use super::key::Availability;
use super::list::{List, NONE};
use super::slot::{Lane, State};
use super::{Delivery, Holder, LeasedMessage, StreamLoad, Time};

/// Where the next message can come from.
#[derive(Clone, Copy, Debug, Default, Eq, PartialEq)]
enum Source {
    /// Messages without a key that overtake others.
    Ahead,
    /// Messages without a key.
    #[default]
    Ready,
    /// The keys of which the taker already holds messages.
    Own,
    /// The keys of which no taker holds messages.
    Common,
}

/// Which source is next: the overtaking messages, if there are any, alternate with the other
/// sources, which take turns, so that none starves.
#[derive(Clone, Copy, Debug, Default)]
pub(super) struct Rotation {
    last: Source,
    went_ahead: bool,
}

impl Rotation {
    fn order(self) -> [Source; 4] {
        let [first, second, third] = match self.last {
            Source::Ready | Source::Ahead => [Source::Own, Source::Common, Source::Ready],
            Source::Own => [Source::Common, Source::Ready, Source::Own],
            Source::Common => [Source::Ready, Source::Own, Source::Common],
        };
        if self.went_ahead {
            [first, second, third, Source::Ahead]
        } else {
            [Source::Ahead, first, second, third]
        }
    }

    fn took(&mut self, source: Source) {
        self.went_ahead = source == Source::Ahead;
        if !self.went_ahead {
            self.last = source;
        }
    }
}

/// A batch ends with the message that reaches this size, which limits the size of responses.
const ENOUGH_BYTES: usize = 1 << 20;

impl Delivery {
    /// Whether there is anything that this holder could take now.
    pub(crate) fn has_for(&mut self, now: Time, holder: Holder) -> bool {
        self.catch_up(now);
        self.next_for(holder).is_some()
    }

    /// Hands out what is available now, and leases it for `deadline`. Limits count the sizes of
    /// messages; a single message that exceeds `max_bytes` is still handed out to a holder that
    /// holds nothing.
    pub(crate) fn take(
        &mut self,
        now: Time,
        holder: Holder,
        max_messages: usize,
        max_bytes: usize,
        deadline: Duration,
    ) -> Vec<LeasedMessage> {
        self.catch_up(now);
        self.pulling = (holder == Holder::Pull).then_some(self.last_lease);
        let mut delivered = Vec::new();
        let mut bytes = 0;
        while delivered.len() < max_messages && bytes < ENOUGH_BYTES {
            let Some((source, at)) = self.next_for(holder) else {
                break;
            };
            bytes += self.slots[at].size as usize;
            if bytes > max_bytes && !(delivered.is_empty() && self.holds_nothing(holder)) {
                break;
            }
            self.rotation.took(source);
            delivered.push(self.hand_out(at, holder, deadline));
        }
        self.pulling = None;
        self.end_session();
        delivered
    }

    fn next_for(&self, holder: Holder) -> Option<(Source, u32)> {
        let own = match holder {
            Holder::Pull => Some(&self.keys.session),
            Holder::Stream(stream) => self.streams.get(&stream).map(|load| &load.keys),
            Holder::Push => None,
        };
        self.rotation.order().into_iter().find_map(|source| {
            let at = match source {
                Source::Ahead => self.ahead.head,
                Source::Ready => self.ready.head,
                Source::Own => own.map_or(NONE, |keys| self.first_of(keys)),
                Source::Common => self.first_of(&self.keys.ready),
            };
            (at != NONE).then_some((source, at))
        })
    }

    fn holds_nothing(&self, holder: Holder) -> bool {
        match holder {
            Holder::Stream(stream) => self.held_by(stream).0 == 0,
            Holder::Pull | Holder::Push => true,
        }
    }

    fn hand_out(&mut self, at: u32, holder: Holder, span: Duration) -> LeasedMessage {
        if let State::Ready { ahead } = self.slots[at].state {
            let list = if ahead { &mut self.ahead } else { &mut self.ready };
            list.remove(&mut self.slots.items, Lane::Queue, at);
        }
        self.last_lease += 1;
        self.slots[at].lease = self.last_lease;
        self.begin_lease(at, holder, span);
        let slot = &self.slots[at];
        let (key, delivered) = (
            slot.key,
            LeasedMessage {
                ack_id: AckId { serial: self.serial, slot: at, lease: slot.lease }.text(),
                attempt: self.settings.dead_letter_after.map(|_| slot.failures + 1),
                message: Arc::clone(&slot.message),
            },
        );
        if key != NONE {
            self.keys[key].cursor = self.next_queued(at);
            self.requeue_key(key);
        }
        delivered
    }

    fn begin_lease(&mut self, at: u32, holder: Holder, span: Duration) {
        self.lease_until(at, holder, span);
        self.tally.leased += 1;
        let slot = &self.slots[at];
        if let Holder::Stream(stream) = holder {
            let load = self.streams.entry(stream).or_insert(StreamLoad {
                messages: 0,
                bytes: 0,
                keys: List::EMPTY,
                closed: false,
            });
            load.messages += 1;
            load.bytes += slot.size as usize;
        }
        if slot.key != NONE {
            let key = &mut self.keys[slot.key];
            key.mixed |= key.leased > 0 && key.availability == Availability::Ready;
            key.leased += 1;
            key.holder = Some(holder);
        }
    }

    /// Leases a message for this long from now. It must not be in a list of leases.
    pub(super) fn lease_until(&mut self, at: u32, holder: Holder, span: Duration) {
        let until = self.latest + span;
        self.last_grant += 1;
        self.slots[at].grant = self.last_grant;
        self.slots[at].state = State::Leased { holder, until, span };
        let list = self.leases.entry(span).or_insert(List::EMPTY);
        list.push_back(&mut self.slots.items, Lane::Lease, at);
        self.first_lapse = Some(self.first_lapse.map_or(until, |first| first.min(until)));
    }
}
