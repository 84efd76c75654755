//! How clients settle their leases: acknowledge, extend, give back.

use std::time::Duration;

use super::ack_id::AckId;
use super::list::NONE;
use super::slot::State;
use super::{AckResult, Delivery, Place, PlaceResult, REMEMBERED, Time};
use crate::broker::changes::Held;

/// What an ack id currently refers to.
#[derive(Clone, Copy, Debug)]
enum AckIdState {
    /// A running lease.
    Leased(u32),
    /// An expired lease; the message has not been handed out since.
    Expired(u32),
    /// An acknowledged lease.
    Acknowledged,
    /// An expired lease; the message is gone, or has a newer lease.
    Superseded,
    /// No lease of this subscription.
    Foreign,
}

impl Delivery {
    /// Acknowledges messages by the ack ids with which they were handed out.
    pub(crate) fn acknowledge(&mut self, now: Time, ack_ids: &[String]) -> AckResult {
        self.catch_up(now);
        let mut answer = AckResult { acked: Vec::with_capacity(ack_ids.len()), ..AckResult::default() };
        let mut early: Vec<(u32, &String)> = Vec::new();
        for id in ack_ids {
            match self.find(id) {
                AckIdState::Leased(at) if self.is_early(at) => early.push((at, id)),
                AckIdState::Leased(at) => {
                    self.settle(at);
                    answer.acked.push(id.clone());
                }
                AckIdState::Expired(at) if !self.settings.exactly_once => {
                    self.settle_late(at);
                    answer.acked.push(id.clone());
                }
                AckIdState::Superseded if !self.settings.exactly_once => answer.acked.push(id.clone()),
                AckIdState::Acknowledged => answer.acked.push(id.clone()),
                AckIdState::Expired(_) | AckIdState::Superseded => answer.lapsed.push(id.clone()),
                AckIdState::Foreign => answer.invalid.push(id.clone()),
            }
        }
        self.acknowledge_in_order(early, &mut answer);
        answer
    }

    /// Handles the ids that came before their predecessors, now that the rest of the request is
    /// done.
    fn acknowledge_in_order(&mut self, mut early: Vec<(u32, &String)>, answer: &mut AckResult) {
        early.sort_by_key(|(at, _)| self.slots[*at].order());
        for (_, id) in early {
            match self.find(id) {
                AckIdState::Leased(at) if self.is_early(at) => answer.unordered.push(id.clone()),
                AckIdState::Leased(at) => {
                    self.settle(at);
                    answer.acked.push(id.clone());
                }
                AckIdState::Acknowledged => answer.acked.push(id.clone()),
                AckIdState::Expired(_) | AckIdState::Superseded | AckIdState::Foreign => {
                    answer.lapsed.push(id.clone())
                }
            }
        }
    }

    /// Acknowledges the message in a place, leased or not.
    pub(crate) fn acknowledge_at(&mut self, now: Time, place: Place) -> PlaceResult {
        self.catch_up(now);
        let at = place.slot();
        let slot = self.slots.items.get(at as usize);
        let Some(slot) = slot.filter(|slot| slot.is_pending() && slot.order() == place.order()) else {
            return PlaceResult::Gone;
        };
        let is_leased = matches!(slot.state, State::Leased { .. });
        if self.is_early(at) {
            return PlaceResult::Unordered;
        }
        if is_leased {
            self.settle(at);
        } else {
            self.mark_acknowledged(at);
        }
        PlaceResult::Acknowledged
    }

    /// Extends leases, counting from now; zero gives the message back as a failed delivery.
    pub(crate) fn modify_deadline(&mut self, now: Time, deadlines: &[(String, Duration)]) -> AckResult {
        self.catch_up(now);
        let mut answer = AckResult::default();
        for (id, deadline) in deadlines {
            match self.find(id) {
                AckIdState::Leased(at) => {
                    if deadline.is_zero() {
                        self.fail(at, self.latest);
                    } else {
                        self.extend(at, *deadline);
                    }
                    answer.acked.push(id.clone());
                }
                AckIdState::Expired(_) | AckIdState::Acknowledged | AckIdState::Superseded
                    if !self.settings.exactly_once =>
                {
                    answer.acked.push(id.clone());
                }
                AckIdState::Expired(_) | AckIdState::Acknowledged | AckIdState::Superseded => {
                    answer.lapsed.push(id.clone())
                }
                AckIdState::Foreign => answer.invalid.push(id.clone()),
            }
        }
        answer
    }

    /// Ends the leases of messages that did not reach the client, without counting a failed
    /// delivery.
    pub(crate) fn give_back(&mut self, now: Time, ack_ids: &[String]) {
        self.catch_up(now);
        for id in ack_ids {
            if let AckIdState::Leased(at) = self.find(id) {
                self.end_lease(at);
                self.come_again(at, self.latest);
            }
        }
    }

    fn find(&self, id: &str) -> AckIdState {
        let ours = |id: &AckId| id.serial == self.serial && (1..=self.last_lease).contains(&id.lease);
        let Some(id) = AckId::parse(id).filter(ours) else {
            return AckIdState::Foreign;
        };
        match self.slots.items.get(id.slot as usize) {
            None if id.lease <= self.loaded_at_lease => AckIdState::Superseded,
            None => AckIdState::Foreign,
            Some(slot) if slot.lease == id.lease => match slot.state {
                State::Leased { .. } => AckIdState::Leased(id.slot),
                State::Ready { .. } | State::Waiting { .. } | State::Queued { .. } => {
                    AckIdState::Expired(id.slot)
                }
                State::Done | State::Kept => AckIdState::Acknowledged,
                State::Free => AckIdState::Superseded,
            },
            Some(_) if self.remembered.binary_search(&id.lease).is_ok() => AckIdState::Acknowledged,
            Some(_) => AckIdState::Superseded,
        }
    }

    /// With exactly-once delivery, a key's messages have to be acknowledged in order.
    fn is_early(&self, at: u32) -> bool {
        let key = self.slots[at].key;
        self.settings.exactly_once && key != NONE && self.keys[key].line.head != at
    }

    /// Acknowledges a running lease.
    fn settle(&mut self, at: u32) {
        if self.settings.exactly_once {
            self.remember(self.slots[at].lease);
        }
        self.mark_acknowledged(at);
    }

    /// Acknowledges an expired lease whose message was not handed out again. If earlier messages of
    /// its key are still pending, the message is redelivered with them, and this changes nothing.
    fn settle_late(&mut self, at: u32) {
        let key = self.slots[at].key;
        if key == NONE || self.keys[key].line.head == at {
            self.mark_acknowledged(at);
        }
    }

    /// Acknowledges a pending message.
    pub(super) fn mark_acknowledged(&mut self, at: u32) {
        let key = self.slots[at].key;
        self.withdraw(at);
        if key == NONE {
            self.retire(at);
        } else {
            self.slots[at].state = State::Done;
            self.trim(key);
            // If its line began with it, it is retired.
            if self.slots[at].state == State::Done {
                self.note(at, Held::Settled);
            }
        }
    }

    fn extend(&mut self, at: u32, deadline: Duration) {
        if let State::Leased { holder, span, .. } = self.slots[at].state {
            self.unlist_lease(at, span);
            self.lease_until(at, holder, deadline);
        }
    }

    /// Leases are settled in any order; a new one is inserted near the end.
    fn remember(&mut self, lease: u64) {
        let at = self.remembered.partition_point(|other| *other < lease);
        self.remembered.insert(at, lease);
        if self.remembered.len() > REMEMBERED {
            self.remembered.pop_front();
        }
    }
}
