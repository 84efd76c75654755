//! Handlers that are reached over HTTP. They are looked up when an event needs one, so that a new
//! registration takes effect immediately.

use std::collections::HashMap;
use std::hash::Hash;
use std::sync::{Arc, Mutex, PoisonError};
use std::time::Duration;

use tokio::sync::Semaphore;

use super::answers::{HandlerError, HandlerResult};
use super::handlers::{BoxedHandler, Execution, Handler, PATIENCE};
use super::statements::batched;
use crate::delivery::{Delivered, Deliverer, Delivery};
use crate::event::{CanvasId, HandlerAddress, HandlerScope, Name, TargetPolicy};
use crate::machine::RetryPolicy;
use crate::store::{Coalescer, FoundTarget, Store, StoreError};
use crate::telemetry;

/// Rooms kept before unused ones are removed.
const ROOMS_KEPT: usize = 10_000;
/// A delivery ends within its target's timeout plus the time that it may wait for room; if it does
/// not, it is cut off this much later.
const SLACK: Duration = Duration::from_secs(2);

/// What a worker needs to call targets.
pub(super) struct Targets {
    deliverer: Deliverer,
    lookups: Coalescer<HandlerAddress, Option<Arc<FoundTarget>>>,
    rooms: Mutex<Rooms<HandlerAddress>>,
    shares: Mutex<Rooms<Sharer>>,
    share: usize,
}

impl Targets {
    /// `share` is how many deliveries of one canvas, or of one queue, are made at a time.
    pub(super) fn new(store: &Store, deliverer: Deliverer, share: usize) -> Self {
        let lookups = batched(store, |store, addresses: Vec<HandlerAddress>| async move {
            store.targets_at(&addresses).await
        });
        Self { deliverer, lookups, rooms: Mutex::default(), shares: Mutex::default(), share }
    }

    /// The handler at an address, if it has a target now.
    pub(super) async fn find(&self, address: &HandlerAddress) -> Result<Option<Arc<Handler>>, StoreError> {
        let found = self.lookups.call(address.clone()).await?;
        Ok(found.map(|found| Arc::new(self.handler(address, found))))
    }

    fn handler(&self, address: &HandlerAddress, found: Arc<FoundTarget>) -> Handler {
        let policy = &found.target.policy;
        let limit = policy.concurrency.map(|limit| usize::try_from(limit).unwrap_or(1));
        let share = Some(room(&self.shares, &Sharer::of(address), self.share));
        let room = limit.map(|limit| room(&self.rooms, address, limit));
        let timeout = policy.timeout + Deliverer::ROOM_WITHIN + SLACK;
        let (retry, halts, revision) = (retry(policy), policy.halts, found.revision);
        let deliverer = self.deliverer.clone();
        let run: BoxedHandler = Arc::new(move |event| {
            let (deliverer, found) = (deliverer.clone(), Arc::clone(&found));
            Box::pin(async move { deliver(&deliverer, &found, event).await })
        });
        let (timeout, revision) = (Some(timeout), Some(revision));
        Handler { run, retry, timeout, room, share, halts, patience: PATIENCE, revision }
    }
}

async fn deliver(deliverer: &Deliverer, found: &FoundTarget, event: Execution) -> HandlerResult {
    let traceparent = telemetry::current_trace();
    let delivery = Delivery {
        event: event.id,
        address: &event.address,
        json: event.json,
        attempt: event.attempt,
        enqueued_at: event.enqueued_at,
        traceparent: &traceparent,
        place: event.place.as_ref(),
        copy_of: event.copy_of.as_ref(),
        deployment: Some(&found.own),
    };
    match deliverer.deliver(&found.target, delivery).await {
        Delivered::Completed => Ok(()),
        Delivered::NotYet { delay } => Err(HandlerError::not_yet(delay)),
        Delivered::Gone { reason } => Err(HandlerError::gone(reason)),
        Delivered::Failed { message, retry_after: None } => Err(HandlerError::operational(message)),
        Delivered::Failed { message, retry_after: Some(delay) } => {
            Err(HandlerError::operational(message).retry_after(delay))
        }
    }
}

fn retry(policy: &TargetPolicy) -> RetryPolicy {
    let TargetPolicy { retries, delay, factor, delay_max, .. } = *policy;
    RetryPolicy { retries, delay, factor, delay_max }
}

fn room<K: Clone + Eq + Hash>(rooms: &Mutex<Rooms<K>>, whose: &K, limit: usize) -> Arc<Semaphore> {
    rooms.lock().unwrap_or_else(PoisonError::into_inner).of(whose, limit)
}

/// What shares a limit on deliveries: a canvas, or a queue, since the targets of all queues are on
/// one reserved canvas.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
enum Sharer {
    Canvas(CanvasId),
    Queue(Name),
}

impl Sharer {
    fn of(address: &HandlerAddress) -> Self {
        let HandlerScope { canvas, name, .. } = &address.scope;
        if canvas.is_reserved() { Self::Queue(name.clone()) } else { Self::Canvas(*canvas) }
    }
}

/// How many deliveries this worker makes at a time to an address, or for a sharer: one semaphore
/// each, kept while it is in use.
struct Rooms<K> {
    rooms: HashMap<K, (usize, Arc<Semaphore>)>,
}

impl<K> Default for Rooms<K> {
    fn default() -> Self {
        Self { rooms: HashMap::new() }
    }
}

impl<K: Clone + Eq + Hash> Rooms<K> {
    /// A changed limit makes a new room: permits held in the old one no longer count.
    fn of(&mut self, whose: &K, limit: usize) -> Arc<Semaphore> {
        if let Some((known, room)) = self.rooms.get(whose)
            && *known == limit
        {
            return Arc::clone(room);
        }
        if self.rooms.len() >= ROOMS_KEPT {
            self.rooms.retain(|_, (_, room)| Arc::strong_count(room) > 1);
        }
        let room = Arc::new(Semaphore::new(limit));
        self.rooms.insert(whose.clone(), (limit, Arc::clone(&room)));
        room
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::event::target_of_queue;

    fn address(name: &str) -> HandlerAddress {
        let scope = HandlerScope::worker(CanvasId::DEFAULT, name).unwrap();
        HandlerAddress { scope, modifier: Name::no_modifier() }
    }

    #[test]
    fn an_address_has_one_room_until_its_limit_changes() {
        let mut rooms = Rooms::default();
        let first = rooms.of(&address("a"), 1);
        let taken = first.clone().try_acquire_owned().unwrap();
        assert!(rooms.of(&address("a"), 1).try_acquire().is_err());
        assert!(rooms.of(&address("b"), 1).try_acquire().is_ok());
        assert!(rooms.of(&address("a"), 2).try_acquire().is_ok());
        drop(taken);
    }

    #[test]
    fn queues_and_canvases_have_shares_of_their_own() {
        let queue = |name: &str| Sharer::of(&target_of_queue(&name.parse().unwrap()));
        assert_ne!(queue("billing"), queue("search"));
        assert_eq!(queue("billing"), queue("billing"));
        assert_eq!(Sharer::of(&address("a")), Sharer::of(&address("b")));
        assert_ne!(Sharer::of(&address("billing")), queue("billing"));
        let mut shares = Rooms::default();
        let taken = shares.of(&queue("billing"), 1).try_acquire_owned().unwrap();
        assert!(shares.of(&queue("billing"), 1).try_acquire().is_err());
        assert!(shares.of(&queue("search"), 1).try_acquire().is_ok());
        drop(taken);
    }

    #[test]
    fn rooms_that_nobody_is_in_are_not_kept_for_ever() {
        let mut rooms = Rooms::default();
        let busy = rooms.of(&address("busy"), 1);
        for index in 0..2 * ROOMS_KEPT {
            rooms.of(&address(&format!("h{index}")), 1);
        }
        assert!(rooms.rooms.len() <= ROOMS_KEPT);
        assert!(Arc::ptr_eq(&busy, &rooms.of(&address("busy"), 1)));
    }
}
