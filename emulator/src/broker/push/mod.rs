//! Pushing, as far as it is decided: which messages are to be sent to which endpoints now, and what the endpoints' answers
//! mean for them.
//!
//! It sends nothing, and knows nothing of HTTP: what counts as an acknowledgement is said by whoever sends.

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

/// Requests under way of all subscriptions together: each is a socket.
const UNDER_WAY_MAX: usize = 512;

/// An endpoint has the acknowledgement deadline to answer. The lease lasts a little longer, so that what ends a request
/// that is too late is its own end, which slows the subscription down, and not the lease's.
const GRACE: Duration = Duration::from_secs(1);

/// A message that is to be sent to an endpoint now.
#[derive(Clone, Debug)]
pub struct PushDelivery {
    /// The subscription's full name.
    pub subscription: String,
    /// By which [`Broker::push_answered`] is told what became of it.
    pub ack_id: String,
    /// Where to, in which form, and for which account.
    pub config: Arc<PushConfig>,
    /// The how-manieth delivery it is; only with dead-lettering.
    pub attempt: Option<u32>,
    /// How long the endpoint has to answer: the subscription's acknowledgement deadline.
    pub deadline: Duration,
    /// What is sent.
    pub message: Arc<Message>,
}

/// What became of a request.
#[derive(Clone, Debug, Eq, PartialEq)]
pub enum PushResult {
    /// The endpoint acknowledged the message.
    Acknowledged,
    /// It did not, or not in time, or there is none; in words for whoever looks for the reason.
    Failed(String),
}

/// How a subscription's pushes stand.
#[derive(Clone, Debug, Default, PartialEq, serde::Serialize)]
pub struct PushFigures {
    /// Where to.
    pub endpoint: String,
    /// How many requests are under way.
    pub under_way: usize,
    /// How many may be.
    pub window: usize,
    /// How long it still pauses after failures; zero if it does not.
    #[serde(serialize_with = "super::faults::seconds::serialize")]
    pub pauses_for: Duration,
    /// Why the last request that failed did.
    pub last_failure: Option<String>,
}

/// All subscriptions that push.
#[derive(Debug, Default)]
pub(super) struct Pushes {
    pushers: BTreeMap<Name, Pusher>,
    /// Those that may have something to send.
    ready: BTreeSet<Name>,
    under_way: usize,
    /// The one that had the last turn: the next one begins, or the first names would have all the requests.
    last: Option<Name>,
}

#[derive(Debug)]
struct Pusher {
    config: Arc<PushConfig>,
    pace: Pace,
}

impl Pushes {
    /// Something happened in a subscription.
    pub(super) fn stir(&mut self, name: &Name) {
        if self.pushers.contains_key(name) {
            self.ready.insert(name.clone());
        }
    }

    /// A subscription is configured like this now; `None`: it does not push, or is gone. A new endpoint is got to know
    /// anew.
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
    /// What is to be sent now. Each delivery has to be answered with [`Broker::push_answered`].
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

    /// What became of a delivery. An answer that comes after the subscription was changed or deleted counts as far as
    /// there is something left that it can count for.
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
        // Ack ids that are no more good are none of the endpoint's business.
        match result {
            PushResult::Acknowledged => drop(subscription.delivery.acknowledge(now, &[ack_id.to_owned()])),
            PushResult::Failed(_) => {
                drop(subscription.delivery.modify_deadline(now, &[(ack_id.to_owned(), Duration::ZERO)]));
            }
        }
        self.settled(now, &name);
    }

    /// How a subscription's pushes stand; `None` if it does not push.
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

    /// After a subscription was made, configured, detached or removed.
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

    /// All that there is room for: not every take fills it.
    fn push_from(&mut self, now: Time, name: &Name, due: &mut Vec<PushDelivery>) {
        while self.push_some(now, name, due) {}
        self.attend(now, name);
    }

    /// Whether there may be more to send now.
    fn push_some(&mut self, now: Time, name: &Name, due: &mut Vec<PushDelivery>) -> bool {
        let left = UNDER_WAY_MAX - self.pushes.under_way;
        let Some(pusher) = self.pushes.pushers.get_mut(name) else { return false };
        let Some(subscription) = self.subscriptions.get_mut(name) else { return false };
        // A full window opens with the next answer, and a pause is in the agenda: both stir the subscription.
        let Some(room) = pusher.pace.room(now) else { return false };
        let deadline = subscription.ack_deadline();
        let most = room.messages.min(left);
        let taken = subscription.delivery.take(now, Holder::Push, most, room.bytes, deadline + GRACE);
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
