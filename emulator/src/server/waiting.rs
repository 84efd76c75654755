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
pub(super) struct Bells(Mutex<HashMap<String, Bell>>);

/// A bell, and how many waiters it has.
#[derive(Debug, Default)]
struct Bell {
    bell: Arc<Notify>,
    waiters: usize,
}

/// A waiter at a subscription's bell, until it is dropped.
#[derive(Debug)]
pub(super) struct Waiter {
    bell: Arc<Notify>,
    subscription: String,
    bells: Arc<Bells>,
}

impl Bells {
    pub(super) fn at(self: &Arc<Self>, subscription: &str) -> Waiter {
        let mut bells = self.lock();
        let entry = bells.entry(subscription.to_owned()).or_default();
        entry.waiters += 1;
        let bell = Arc::clone(&entry.bell);
        Waiter { bell, subscription: subscription.to_owned(), bells: Arc::clone(self) }
    }

    /// Wakes all present waiters of these subscriptions.
    pub(super) fn ring(&self, subscriptions: &[String]) {
        if subscriptions.is_empty() {
            return;
        }
        let bells = self.lock();
        for bell in subscriptions.iter().filter_map(|subscription| bells.get(subscription)) {
            bell.bell.notify_waiters();
        }
    }

    fn lock(&self) -> MutexGuard<'_, HashMap<String, Bell>> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl Waiter {
    /// The next ring. To miss none: enable it, look, and only then await it.
    pub(super) fn rung(&self) -> Notified<'_> {
        self.bell.notified()
    }
}

impl Drop for Waiter {
    fn drop(&mut self) {
        let mut bells = self.bells.lock();
        let Some(bell) = bells.get_mut(&self.subscription) else { return };
        bell.waiters -= 1;
        if bell.waiters == 0 {
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
    fn a_wake_up_reaches_all_waiters_of_its_subscription_only() {
        let bells = Arc::new(Bells::default());
        let waiters = [bells.at("orders"), bells.at("orders"), bells.at("bills")];
        let mut rings = waiters.each_ref().map(|waiter| Box::pin(waiter.rung()));
        for ring in &mut rings {
            ring.as_mut().enable();
        }
        bells.ring(&["orders".to_owned(), "unknown".to_owned()]);
        assert_eq!(rings.map(|ring| ring.now_or_never().is_some()), [true, true, false]);
    }

    #[test]
    fn a_wake_up_between_checking_and_waiting_is_not_lost() {
        let bells = Arc::new(Bells::default());
        let waiter = bells.at("orders");
        let mut rung = pin!(waiter.rung());
        rung.as_mut().enable();
        bells.ring(&["orders".to_owned()]);
        assert!(rung.now_or_never().is_some());
    }

    #[test]
    fn two_waiters_that_leave_at_once_are_both_removed() {
        let bells = Arc::new(Bells::default());
        let waiter = bells.at("orders");
        // Held by another waiter that is just leaving.
        let rest = Arc::clone(&waiter.bell);
        drop(waiter);
        assert!(bells.lock().is_empty());
        drop(rest);
    }

    #[test]
    fn waiters_that_leave_are_removed() {
        let bells = Arc::new(Bells::default());
        let (first, second) = (bells.at("orders"), bells.at("orders"));
        drop(first);
        assert_eq!(bells.lock().len(), 1);
        drop(second);
        assert!(bells.lock().is_empty());
    }
}
