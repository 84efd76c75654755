//! The registered HTTP targets, as handlers of a worker. They are looked up when an event needs
//! one, so that a new registration takes effect immediately.

use std::collections::HashMap;
use std::hash::Hash;
use std::sync::{Arc, Mutex, PoisonError};
use std::time::Duration;

use futures_util::FutureExt;
use futures_util::future::BoxFuture;
use tokio::sync::Semaphore;

use super::{Deliverer, DeliveryOutcome};
use wakeq::internals::{Coalescer, FoundTarget};
use wakeq::targets::TargetPolicy;
use wakeq::workers::{BoxedHandler, Completion, RemoteHandler, RemoteHandlers};
use wakeq::{Execution, HandlerAddress, HandlerError, HandlerResult, RetryPolicy, Store, StoreError};

/// Semaphores kept before unused ones are removed.
const SEMAPHORES_KEPT: usize = 10_000;
/// A delivery ends within its target's timeout plus the time that it may wait for room; if it does
/// not, it is cut off this much later.
const SLACK: Duration = Duration::from_secs(2);

/// The registered HTTP targets, as handlers of a worker.
///
/// ```
/// use wakeq_service::delivery::{Deliverer, DeliveryConfig, Targets};
/// use wakeq::{QueueWorker, Store};
///
/// fn with_targets(worker: QueueWorker, store: &Store) -> Result<QueueWorker, Box<dyn std::error::Error>> {
///     let deliverer = Deliverer::new(DeliveryConfig::default())?;
///     Ok(worker.remote_handlers(Targets::new(store, deliverer)))
/// }
/// ```
pub struct Targets {
    deliverer: Deliverer,
    lookups: Coalescer<HandlerAddress, Option<Arc<FoundTarget>>>,
    limits: Mutex<Semaphores<HandlerAddress>>,
}

impl Targets {
    /// The targets registered in a store, called by a deliverer. Nothing is read before
    /// [`RemoteHandlers::find`].
    pub fn new(store: &Store, deliverer: Deliverer) -> Self {
        let lookups = store.batched(|store, addresses: Vec<HandlerAddress>| async move {
            store.targets_at(&addresses).await
        });
        Self { deliverer, lookups, limits: Mutex::default() }
    }

    fn handler(&self, address: &HandlerAddress, found: Arc<FoundTarget>) -> RemoteHandler {
        let policy = &found.target.policy;
        let limit = policy.concurrency.map(|limit| usize::try_from(limit).unwrap_or(1));
        let concurrency = limit.map(|limit| semaphore(&self.limits, address, limit));
        let timeout = policy.timeout + Deliverer::CAPACITY_WITHIN + SLACK;
        let (retry, halts, keep) = (retry(policy), policy.halts, policy.keep);
        let revision = found.revision;
        let deliverer = self.deliverer.clone();
        let run: BoxedHandler = Arc::new(move |event| {
            let (deliverer, found) = (deliverer.clone(), Arc::clone(&found));
            Box::pin(async move { deliver(&deliverer, &found, event).await })
        });
        RemoteHandler { run, retry, timeout, concurrency, halts, keep, revision }
    }
}

impl RemoteHandlers for Targets {
    fn find<'a>(
        &'a self,
        address: &'a HandlerAddress,
    ) -> BoxFuture<'a, Result<Option<RemoteHandler>, StoreError>> {
        async move {
            let found = self.lookups.call(address.clone()).await?;
            Ok(found.map(|found| self.handler(address, found)))
        }
        .boxed()
    }
}

async fn deliver(deliverer: &Deliverer, found: &FoundTarget, event: Execution) -> HandlerResult<Completion> {
    let (outcome, result) = deliverer.deliver_for_result(&found.target, event, Some(&found.own)).await;
    match outcome {
        // An answer that can't be a result completes the event all the same.
        DeliveryOutcome::Completed => {
            Ok(result.and_then(|json| Completion::with_json(json).ok()).unwrap_or_default())
        }
        DeliveryOutcome::NotYet { delay, fault: None } => Err(HandlerError::not_yet(delay)),
        DeliveryOutcome::NotYet { delay, fault: Some(fault) } => {
            Err(HandlerError::not_yet(delay).with_message(format_args!("the target answered 425; {fault}")))
        }
        DeliveryOutcome::Busy { message, delay } => Err(HandlerError::busy(message, delay)),
        DeliveryOutcome::Gone { reason } => Err(HandlerError::gone(reason)),
        DeliveryOutcome::Dead { message } => Err(HandlerError::dead(message)),
        DeliveryOutcome::Failed { message, after } => {
            let error = HandlerError::operational(message);
            Err(match after {
                Some(delay) => error.retry_after(delay),
                None => error,
            })
        }
    }
}

fn retry(policy: &TargetPolicy) -> RetryPolicy {
    let TargetPolicy { retries, delay, factor, delay_max, .. } = *policy;
    RetryPolicy { retries, delay, factor, delay_max, ..RetryPolicy::default() }
}

fn semaphore<K: Clone + Eq + Hash>(all: &Mutex<Semaphores<K>>, key: &K, limit: usize) -> Arc<Semaphore> {
    all.lock().unwrap_or_else(PoisonError::into_inner).of(key, limit)
}

/// Limits how many deliveries this worker makes to an address at once, with one semaphore per
/// address, kept while it is in use.
struct Semaphores<K> {
    by_key: HashMap<K, (usize, Arc<Semaphore>)>,
}

impl<K> Default for Semaphores<K> {
    fn default() -> Self {
        Self { by_key: HashMap::new() }
    }
}

impl<K: Clone + Eq + Hash> Semaphores<K> {
    /// A changed limit makes a new semaphore: permits of the old one no longer count.
    fn of(&mut self, key: &K, limit: usize) -> Arc<Semaphore> {
        if let Some((known, semaphore)) = self.by_key.get(key)
            && *known == limit
        {
            return Arc::clone(semaphore);
        }
        if self.by_key.len() >= SEMAPHORES_KEPT {
            self.by_key.retain(|_, (_, semaphore)| Arc::strong_count(semaphore) > 1);
        }
        let semaphore = Arc::new(Semaphore::new(limit));
        self.by_key.insert(key.clone(), (limit, Arc::clone(&semaphore)));
        semaphore
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use wakeq::{CanvasId, HandlerScope, Name};

    fn address(name: &str) -> HandlerAddress {
        let scope = HandlerScope::worker(CanvasId::DEFAULT, name).unwrap();
        HandlerAddress { scope, modifier: Name::no_modifier() }
    }

    #[test]
    fn an_address_has_one_semaphore_until_its_limit_changes() {
        let mut limits = Semaphores::default();
        let first = limits.of(&address("a"), 1);
        let taken = first.clone().try_acquire_owned().unwrap();
        assert!(limits.of(&address("a"), 1).try_acquire().is_err());
        assert!(limits.of(&address("b"), 1).try_acquire().is_ok());
        assert!(limits.of(&address("a"), 2).try_acquire().is_ok());
        drop(taken);
    }

    #[test]
    fn unused_semaphores_are_removed() {
        let mut limits = Semaphores::default();
        let busy = limits.of(&address("busy"), 1);
        for index in 0..2 * SEMAPHORES_KEPT {
            limits.of(&address(&format!("h{index}")), 1);
        }
        assert!(limits.by_key.len() <= SEMAPHORES_KEPT);
        assert!(Arc::ptr_eq(&busy, &limits.of(&address("busy"), 1)));
    }
}
