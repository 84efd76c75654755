//! Decisions about pushing: which messages have to be sent to which endpoints now, and what the
//! endpoints' answers mean for them.
//!
//! It sends nothing, and knows nothing of HTTP: the sender decides what counts as an
//! acknowledgement.

mod pace;
#[cfg(test)]
mod tests;

use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;
use std::time::Duration;

use pace::Pace;

use super::agenda::Entry;
use super::delivery::Holder;
use super::{Broker, Message, Name, Time};
use crate::proto::pubsub::PushConfig;

/// The most requests in flight for all subscriptions together: each takes a socket.
const UNDER_WAY_MAX: usize = 512;

/// An endpoint has the acknowledgement deadline to answer. The lease lasts slightly longer, so that
/// a late request ends by its own timeout, which slows the subscription down, rather than with the
/// lease.
const GRACE: Duration = Duration::from_secs(1);

/// A message that has to be sent to an endpoint now.
#[derive(Clone, Debug)]
pub struct PushDelivery {
    /// The subscription's full name.
    pub subscription: String,
    /// The id with which its outcome is reported to [`Broker::push_answered`].
    pub ack_id: String,
    /// The endpoint, the format, and the service account.
    pub config: Arc<PushConfig>,
    /// Which delivery attempt this is (1, 2, …); set only with dead-lettering.
    pub attempt: Option<u32>,
    /// How long the endpoint has to answer: the subscription's acknowledgement deadline.
    pub deadline: Duration,
    /// The message.
    pub message: Arc<Message>,
}

/// The outcome of a request.
#[derive(Clone, Debug, Eq, PartialEq)]
pub enum PushResult {
    /// The endpoint acknowledged the message.
    Acknowledged,
    /// The endpoint did not acknowledge it, was too late, or could not be reached; the reason, as
    /// text.
    Failed(String),
}

/// The state of a subscription's pushes.
#[derive(Clone, Debug, Default, PartialEq, serde::Serialize)]
pub struct PushFigures {
    /// The endpoint.
    pub endpoint: String,
    /// How many requests are in flight.
    pub under_way: usize,
    /// The most requests that may be in flight.
    pub window: usize,
    /// How long the current pause after failures still lasts; zero without one.
    #[serde(serialize_with = "super::faults::seconds::serialize")]
    pub pauses_for: Duration,
    /// The reason of the last failure.
    pub last_failure: Option<String>,
}

/// All subscriptions that push.
#[derive(Debug, Default)]
pub(super) struct Pushes {
    pushers: BTreeMap<Name, Pusher>,
    /// Those that may have something to send.
    ready: BTreeSet<Name>,
    under_way: usize,
    /// The one that had the last turn: the one after it is next, as otherwise the first names would
    /// take all the requests.
    last: Option<Name>,
}

#[derive(Debug)]
struct Pusher {
    config: Arc<PushConfig>,
    pace: Pace,
}

impl Pushes {
    /// Marks a subscription in which something happened.
    pub(super) fn stir(&mut self, name: &Name) {
        if self.pushers.contains_key(name) {
            self.ready.insert(name.clone());
        }
    }

    /// Applies a subscription's push configuration; `None` if it does not push, or is gone. A new
    /// endpoint starts with a new pace.
    fn follow(&mut self, name: &Name, config: Option<PushConfig>) {
        let Some(config) = config else {
            self.forget(name);
            return;
        };
        if let Some(pusher) = self.pushers.get_mut(name)
            && pusher.config.push_endpoint == config.push_endpoint
        {
            pusher.config = Arc::new(config);
        } else {
            self.forget(name);
            let pusher = Pusher { config: Arc::new(config), pace: Pace::default() };
            self.pushers.insert(name.clone(), pusher);
        }
        self.ready.insert(name.clone());
    }

    fn forget(&mut self, name: &Name) {
        if let Some(pusher) = self.pushers.remove(name) {
            self.under_way -= pusher.pace.under_way();
        }
        self.ready.remove(name);
    }

    /// Those that may have something to send, in the order of their turns.
    fn turns(&mut self) -> impl Iterator<Item = Name> + use<> {
        let ready = std::mem::take(&mut self.ready);
        let last = self.last.clone();
        let (first, later): (Vec<Name>, Vec<Name>) =
            ready.into_iter().partition(|name| Some(name) > last.as_ref());
        first.into_iter().chain(later)
    }
}

impl Broker {
    /// Takes the messages to send now. Each must be reported to [`Broker::push_answered`].
    pub fn push_due(&mut self, now: Time) -> Vec<PushDelivery> {
        let mut due = Vec::new();
        for name in self.pushes.turns() {
            if self.pushes.under_way >= UNDER_WAY_MAX {
                self.pushes.ready.insert(name);
            } else {
                self.push_from(now, &name, &mut due);
            }
        }
        due
    }

    /// Reports the outcome of a delivery. If the subscription was changed or deleted meanwhile, it
    /// counts as far as it still applies.
    pub fn push_answered(&mut self, now: Time, subscription: &str, ack_id: &str, result: &PushResult) {
        if let Some(pusher) = self.pushes.pushers.get_mut(subscription) {
            if pusher.pace.answered(now, ack_id, result) {
                self.pushes.under_way -= 1;
            }
            if let Some(until) = pusher.pace.pauses_until(now) {
                self.agenda.no_later(Entry::Push(subscription.into()), until);
            }
        }
        let Some(subscription) = self.subscriptions.get_mut(subscription) else { return };
        let name = subscription.name.clone();
        // Invalid or expired ack ids are no concern of the endpoint's.
        match result {
            PushResult::Acknowledged => drop(subscription.delivery.acknowledge(now, &[ack_id.to_owned()])),
            PushResult::Failed(_) => {
                drop(subscription.delivery.modify_deadline(now, &[(ack_id.to_owned(), Duration::ZERO)]));
            }
        }
        self.settled(now, &name);
    }

    /// The state of a subscription's pushes; `None` if it does not push.
    pub(super) fn push_figures(&self, now: Time, name: &str) -> Option<PushFigures> {
        let Pusher { config, pace } = self.pushes.pushers.get(name)?;
        Some(PushFigures {
            endpoint: config.push_endpoint.clone(),
            under_way: pace.under_way(),
            window: pace.window(),
            pauses_for: pace.pauses_until(now).map_or(Duration::ZERO, |until| until.since(now)),
            last_failure: pace.last_failure().map(str::to_owned),
        })
    }

    /// Must be called after a subscription was created, configured, detached or removed.
    pub(super) fn follow_push_config(&mut self, name: &Name) {
        let subscription = self.subscriptions.get(name);
        let pushing =
            subscription.filter(|subscription| subscription.pushes() && !subscription.config.detached);
        let config = pushing.and_then(|subscription| subscription.config.push_config.clone());
        if config.is_none() {
            self.agenda.forget(Entry::Push(name.clone()));
        }
        self.pushes.follow(name, config);
    }

    /// Takes everything that there is room for: a single take may not fill it.
    fn push_from(&mut self, now: Time, name: &Name, due: &mut Vec<PushDelivery>) {
        while self.push_some(now, name, due) {}
        self.reschedule(now, name);
    }

    /// Takes a batch; returns whether there may be more to send now.
    fn push_some(&mut self, now: Time, name: &Name, due: &mut Vec<PushDelivery>) -> bool {
        let left = UNDER_WAY_MAX - self.pushes.under_way;
        let Some(pusher) = self.pushes.pushers.get_mut(name) else { return false };
        let Some(subscription) = self.subscriptions.get_mut(name) else { return false };
        // A full window opens with the next answer, and the end of a pause is in the agenda: both
        // mark the subscription again.
        let Some(capacity) = pusher.pace.capacity(now) else { return false };
        let deadline = subscription.ack_deadline();
        let most = capacity.messages.min(left);
        let taken = subscription.delivery.take(now, Holder::Push, most, capacity.bytes, deadline + GRACE);
        if taken.is_empty() {
            return false;
        }
        subscription.touch(now);
        self.pushes.under_way += taken.len();
        self.pushes.last = Some(name.clone());
        let all_under_way = taken.len() == left;
        if all_under_way {
            self.pushes.ready.insert(name.clone());
        }
        for delivered in taken {
            pusher.pace.sent(now, &delivered.ack_id, delivered.message.size());
            due.push(PushDelivery {
                subscription: name.to_string(),
                ack_id: delivered.ack_id,
                config: Arc::clone(&pusher.config),
                attempt: delivered.attempt,
                deadline,
                message: delivered.message,
            });
        }
        !all_under_way
    }
}
