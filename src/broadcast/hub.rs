//! One subscription for all listeners of a process: opened for the first, shared by the others, and
//! kept for a while after the last, so that listeners that come and go do not create more. Each
//! listener's selection decides what it gets.

use std::sync::{Arc, Mutex, PoisonError};
use std::time::Duration;

use tokio::sync::{OwnedMutexGuard, oneshot};
use tokio_util::sync::CancellationToken;
use tokio_util::task::TaskTracker;

use super::selection::Selection;
use super::{Broadcasts, Inbox, ListenError, ListenItem};
use crate::event::CanvasId;

/// How long the subscription is kept after the last listener.
const LINGER: Duration = Duration::from_secs(30);

/// Listeners that share a subscription. Cheap to clone.
#[derive(Clone)]
pub struct Hub {
    shared: Arc<SharedSubscription>,
}

struct SharedSubscription {
    broadcasts: Broadcasts,
    /// All current listeners, if the subscription is open.
    audience: Mutex<Option<Arc<Inbox>>>,
    /// Held while the subscription is opened.
    opening: Arc<tokio::sync::Mutex<()>>,
    tasks: TaskTracker,
    stop: CancellationToken,
}

impl Hub {
    #[doc(hidden)]
    pub fn new(broadcasts: Broadcasts) -> Self {
        let (audience, opening) = (Mutex::default(), Arc::default());
        let (tasks, stop) = (TaskTracker::new(), CancellationToken::new());
        Self { shared: Arc::new(SharedSubscription { broadcasts, audience, opening, tasks, stop }) }
    }

    /// Listens to the events of these canvases, or of every canvas, whose topic matches the
    /// pattern. It hears the events that are emitted after this has returned, and perhaps a few
    /// from just before. Must be called inside a tokio runtime.
    #[doc(hidden)]
    pub async fn listen(
        &self,
        canvases: Option<&[CanvasId]>,
        pattern: &str,
    ) -> Result<HubListener, ListenError> {
        let selection = Selection::new(pattern.parse()?, canvases.map(<[_]>::to_vec));
        let inbox = Arc::new(Inbox::new(selection, self.shared.broadcasts.waiting.clone()));
        if let Some(listener) = self.shared.join(&inbox) {
            return Ok(listener);
        }
        let opening = Arc::clone(&self.shared.opening).lock_owned().await;
        // Another caller has opened it meanwhile.
        if let Some(listener) = self.shared.join(&inbox) {
            return Ok(listener);
        }
        if self.shared.stop.is_cancelled() {
            return Err(ListenError::Ending);
        }
        let everything = Selection::new("*".parse()?, None);
        let (opening_result, opened) = oneshot::channel();
        // In a task of its own: if the caller leaves, the next one uses the subscription.
        self.shared.tasks.spawn(Arc::clone(&self.shared).keep(everything, opening, opening_result));
        opened.await.map_err(|_| ListenError::Ending)??;
        self.shared.join(&inbox).ok_or(ListenError::Ending)
    }

    /// Ends the subscription and waits until it is deleted.
    #[doc(hidden)]
    pub async fn close(&self, within: Duration) {
        self.shared.stop.cancel();
        self.shared.tasks.close();
        if tokio::time::timeout(within, self.shared.tasks.wait()).await.is_err() {
            tracing::warn!("the subscription of listeners is left to expire");
        }
    }
}

impl SharedSubscription {
    fn join(&self, inbox: &Arc<Inbox>) -> Option<HubListener> {
        let audience = self.audience.lock().unwrap_or_else(PoisonError::into_inner).clone()?;
        audience.join(inbox).then(|| HubListener { inbox: Arc::clone(inbox), audience })
    }

    /// Opens the subscription and keeps it until no one has listened for a while.
    async fn keep(
        self: Arc<Self>,
        everything: Selection,
        opening: OwnedMutexGuard<()>,
        opening_result: oneshot::Sender<Result<(), ListenError>>,
    ) {
        let audience = Arc::new(Inbox::of_many(everything));
        let upstream = match self.broadcasts.listen_with(Arc::clone(&audience)).await {
            Ok(upstream) => upstream,
            // A caller that has left gets no answer.
            Err(error) => return drop(opening_result.send(Err(error))),
        };
        *self.audience.lock().unwrap_or_else(PoisonError::into_inner) = Some(Arc::clone(&audience));
        drop(opening_result.send(Ok(())));
        drop(opening);
        self.stop.run_until_cancelled(audience.unused(LINGER)).await;
        audience.close();
        upstream.close().await;
    }
}

/// One listener. It leaves when it is dropped, with what it has not read.
pub struct HubListener {
    inbox: Arc<Inbox>,
    audience: Arc<Inbox>,
}

impl HubListener {
    /// The next event; `None` once the process ends. Cancel safe.
    #[doc(hidden)]
    pub async fn next(&self) -> Option<ListenItem> {
        self.inbox.next().await
    }
}

impl Drop for HubListener {
    fn drop(&mut self) {
        self.audience.leave(&self.inbox);
    }
}

#[cfg(test)]
mod tests {
    use std::sync::atomic::{AtomicUsize, Ordering};

    use async_trait::async_trait;
    use futures_util::future::BoxFuture;
    use tokio::sync::Semaphore;
    use uuid::Uuid;

    use super::*;
    use crate::broadcast::tests::broadcast;
    use crate::broadcast::{Channel, LocalChannel, PublishOutcome};
    use crate::event::Broadcast;

    /// Counts subscriptions, and opens one when it is allowed to.
    struct Counting {
        local: LocalChannel,
        leave: Semaphore,
        created: AtomicUsize,
        deleted: AtomicUsize,
    }

    struct Counted(Arc<Counting>);

    #[async_trait]
    impl Channel for Counted {
        async fn publish(&self, broadcasts: &[Broadcast]) -> PublishOutcome {
            self.0.local.publish(broadcasts).await
        }

        async fn open(
            &self,
            inbox: Arc<Inbox>,
            closing: CancellationToken,
        ) -> Result<BoxFuture<'static, ()>, ListenError> {
            self.0.created.fetch_add(1, Ordering::Relaxed);
            drop(self.0.leave.acquire().await);
            let (counting, receiving) = (Arc::clone(&self.0), self.0.local.open(inbox, closing).await?);
            Ok(Box::pin(async move {
                receiving.await;
                counting.deleted.fetch_add(1, Ordering::Relaxed);
            }))
        }
    }

    fn hub(opens: usize) -> (Hub, Arc<Counting>, Broadcasts) {
        let counting = Arc::new(Counting {
            local: LocalChannel::default(),
            leave: Semaphore::new(opens),
            created: AtomicUsize::new(0),
            deleted: AtomicUsize::new(0),
        });
        let broadcasts = Broadcasts::over(Arc::new(Counted(Arc::clone(&counting))));
        (Hub::new(broadcasts.clone()), counting, broadcasts)
    }

    fn counts(counting: &Counting) -> (usize, usize) {
        (counting.created.load(Ordering::Relaxed), counting.deleted.load(Ordering::Relaxed))
    }

    async fn name(listener: &HubListener) -> String {
        match listener.next().await {
            Some(ListenItem::Event(broadcast)) => broadcast.address.scope.name.to_string(),
            other => panic!("{other:?} is no event"),
        }
    }

    #[tokio::test(start_paused = true)]
    async fn sixty_short_lived_listeners_share_one_subscription() {
        let (hub, counting, _) = hub(0);
        for _ in 0..30 {
            tokio::select! {
                biased;
                _ = hub.listen(None, "*") => panic!("it is not open"),
                () = tokio::task::yield_now() => {}
            }
        }
        counting.leave.add_permits(1);
        for _ in 0..30 {
            drop(hub.listen(None, "*").await.unwrap());
        }
        assert_eq!(counts(&counting), (1, 0));
        tokio::time::sleep(2 * LINGER).await;
        assert_eq!(counts(&counting), (1, 1), "nobody listens any more");
        let listener = hub.listen(None, "*").await.unwrap();
        tokio::time::sleep(2 * LINGER).await;
        assert_eq!(counts(&counting), (2, 1), "somebody does");
        hub.close(LINGER).await;
        assert_eq!((counts(&counting), listener.next().await), ((2, 2), None));
        assert!(matches!(hub.listen(None, "*").await, Err(ListenError::Ending)));
    }

    #[tokio::test]
    async fn each_listener_receives_only_its_canvases_and_pattern() {
        let (hub, counting, broadcasts) = hub(1);
        let (own, other) = ([CanvasId(Uuid::from_u128(7))], [CanvasId(Uuid::from_u128(8))]);
        let all = hub.listen(None, "*").await.unwrap();
        let mine = hub.listen(Some(&own), "*:WORKER:v*").await.unwrap();
        let theirs = hub.listen(Some(&other), "*").await.unwrap();
        for sent in ["click", "view"] {
            broadcasts.send(broadcast(sent, "1"));
        }
        let mut foreign = broadcast("foreign", "1");
        foreign.address.scope.canvas = other[0];
        broadcasts.send(foreign);
        assert_eq!((name(&all).await, name(&all).await), ("click".into(), "view".into()));
        assert_eq!((name(&mine).await, name(&theirs).await), ("view".into(), "foreign".into()));
        assert_eq!(counts(&counting), (1, 0));
        drop(mine);
        broadcasts.send(broadcast("end", "1"));
        assert_eq!((name(&all).await, name(&all).await), ("foreign".into(), "end".into()));
        broadcasts.close(LINGER).await;
        assert_eq!(all.next().await, None);
    }
}
