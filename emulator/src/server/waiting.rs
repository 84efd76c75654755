//! Pulls and streams that wait for something to happen in a subscription.
//!
//! There is one bell per subscription, rung once for everything that happened in a request, however
//! many messages that was. It carries no information: a waiter that hears it looks again.

use std::collections::HashMap;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use tokio::sync::Notify;
use tokio::sync::futures::Notified;

/// The bells of the subscriptions that have waiters.
#[derive(Debug, Default)]
pub(super) struct Waiting(Mutex<HashMap<String, Bell>>);

/// A bell, and how many waiters it has.
#[derive(Debug, Default)]
struct Bell {
    bell: Arc<Notify>,
    places: usize,
}

/// A waiter's place at a subscription's bell; given up when it is dropped.
#[derive(Debug)]
pub(super) struct Place {
    bell: Arc<Notify>,
    subscription: String,
    waiting: Arc<Waiting>,
}

impl Waiting {
    pub(super) fn at(self: &Arc<Self>, subscription: &str) -> Place {
        let mut bells = self.bells();
        let entry = bells.entry(subscription.to_owned()).or_default();
        entry.places += 1;
        let bell = Arc::clone(&entry.bell);
        Place { bell, subscription: subscription.to_owned(), waiting: Arc::clone(self) }
    }

    /// Wakes all present waiters of these subscriptions.
    pub(super) fn ring(&self, subscriptions: &[String]) {
        if subscriptions.is_empty() {
            return;
        }
        let bells = self.bells();
        for bell in subscriptions.iter().filter_map(|subscription| bells.get(subscription)) {
            bell.bell.notify_waiters();
        }
    }

    fn bells(&self) -> MutexGuard<'_, HashMap<String, Bell>> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl Place {
    /// The next ring. To miss none: enable it, look, and only then await it.
    pub(super) fn rung(&self) -> Notified<'_> {
        self.bell.notified()
    }
}

impl Drop for Place {
    fn drop(&mut self) {
        let mut bells = self.waiting.bells();
        let Some(bell) = bells.get_mut(&self.subscription) else { return };
        bell.places -= 1;
        if bell.places == 0 {
            bells.remove(&self.subscription);
        }
    }
}

#[cfg(test)]
mod tests {
    use std::pin::pin;

    use futures_util::FutureExt as _;

    use super::*;

    #[test]
    fn a_ring_reaches_everybody_at_that_subscription_and_nobody_else() {
        let waiting = Arc::new(Waiting::default());
        let places = [waiting.at("orders"), waiting.at("orders"), waiting.at("bills")];
        let mut rings = places.each_ref().map(|place| Box::pin(place.rung()));
        for ring in &mut rings {
            ring.as_mut().enable();
        }
        waiting.ring(&["orders".to_owned(), "unknown".to_owned()]);
        assert_eq!(rings.map(|ring| ring.now_or_never().is_some()), [true, true, false]);
    }

    #[test]
    fn a_ring_between_looking_and_waiting_is_heard() {
        let waiting = Arc::new(Waiting::default());
        let place = waiting.at("orders");
        let mut rung = pin!(place.rung());
        rung.as_mut().enable();
        waiting.ring(&["orders".to_owned()]);
        assert!(rung.now_or_never().is_some());
    }

    #[test]
    fn of_two_who_leave_at_once_nothing_is_kept() {
        let waiting = Arc::new(Waiting::default());
        let place = waiting.at("orders");
        // Held by another waiter that is just leaving.
        let rest = Arc::clone(&place.bell);
        drop(place);
        assert!(waiting.bells().is_empty());
        drop(rest);
    }

    #[test]
    fn nothing_is_kept_of_those_who_left() {
        let waiting = Arc::new(Waiting::default());
        let (first, second) = (waiting.at("orders"), waiting.at("orders"));
        drop(first);
        assert_eq!(waiting.bells().len(), 1);
        drop(second);
        assert!(waiting.bells().is_empty());
    }
}
