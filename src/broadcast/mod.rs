//! Broadcasts of emitted events for listeners: a topic on which every event is also published after
//! its commit, and subscriptions to it by pattern.
//!
//! Nothing depends on a broadcast: it may be lost, so work that must not be lost belongs in a
//! handler. An emit neither waits for its broadcast nor fails because of it.

mod channel;
mod hub;
mod inbox;
mod local;
mod outbox;
mod pattern;
mod selection;
mod signal;

use std::fmt;
use std::sync::Arc;
use std::time::Duration;

use futures_util::stream::{Stream, unfold};
use tokio::sync::oneshot;
use tokio::task::JoinHandle;
use tokio_util::sync::{CancellationToken, DropGuard};
use tokio_util::task::TaskTracker;

use crate::event::{Broadcast, CanvasId};
pub use channel::ListenError;
pub(crate) use channel::{Channel, PublishOutcome};
pub use hub::{Hub, HubListener};
pub(crate) use inbox::Inbox;
pub use inbox::ListenItem;
use inbox::QueuedBytes;
pub(crate) use local::LocalChannel;
use outbox::Outbox;
pub use pattern::{InvalidTopicPattern, TopicPattern};
use selection::Selection;
pub use signal::{Signal, Signals};

/// The time limit for ending one listener: its subscription is deleted.
const CLOSING: Duration = Duration::from_secs(10);

/// The broadcasts of emitted events, from
/// [`Notifier::broadcasts`](crate::notify::Notifier::broadcasts). Clones share the queue of what is
/// to be published.
#[derive(Clone)]
pub struct Broadcasts {
    channel: Arc<dyn Channel>,
    outbox: Arc<Outbox>,
    waiting: QueuedBytes,
    listeners: TaskTracker,
    closing: CancellationToken,
}

impl Broadcasts {
    pub(crate) fn over(channel: Arc<dyn Channel>) -> Self {
        let outbox = Arc::new(Outbox::new(Arc::clone(&channel)));
        let (waiting, listeners) = (QueuedBytes::default(), TaskTracker::new());
        Self { channel, outbox, waiting, listeners, closing: CancellationToken::new() }
    }

    /// Broadcasts to the listeners of this process only.
    pub(crate) fn local() -> Self {
        Self::over(Arc::new(LocalChannel::default()))
    }

    /// Queues a broadcast. It never blocks; if the queue is full, listeners miss the event.
    pub(crate) fn send(&self, broadcast: Broadcast) {
        self.outbox.put(broadcast);
    }

    /// Publishes a broadcast at once, before those that are queued; returns whether that succeeded.
    async fn publish(&self, broadcast: &Broadcast) -> bool {
        self.channel.publish(std::slice::from_ref(broadcast)).await.lost == 0
    }

    /// Listens to the events of every canvas whose topic `canvas:module:name` matches a
    /// [`TopicPattern`]. It hears the events that are emitted after this has returned.
    ///
    /// ```
    /// use wakeq::notify::{LocalNotifier, Notifier};
    ///
    /// # #[tokio::main(flavor = "current_thread")]
    /// # async fn main() -> Result<(), wakeq::listeners::ListenError> {
    /// let notifier = LocalNotifier::broadcasting();
    /// let broadcasts = notifier.broadcasts().expect("it broadcasts");
    /// let pages = broadcasts.subscribe("*:page:*").await?;
    /// pages.close().await;
    /// # Ok(())
    /// # }
    /// ```
    pub async fn subscribe(&self, pattern: &str) -> Result<Listener, ListenError> {
        self.listen(Selection::new(pattern.parse()?, None)).await
    }

    /// The same for the events of these canvases only; without canvases it hears nothing.
    pub async fn subscribe_on(&self, canvases: &[CanvasId], pattern: &str) -> Result<Listener, ListenError> {
        self.listen(Selection::new(pattern.parse()?, Some(canvases.to_vec()))).await
    }

    async fn listen(&self, selection: Selection) -> Result<Listener, ListenError> {
        self.listen_with(Arc::new(Inbox::new(selection, self.waiting.clone()))).await
    }

    async fn listen_with(&self, inbox: Arc<Inbox>) -> Result<Listener, ListenError> {
        if self.closing.is_cancelled() {
            return Err(ListenError::Ending);
        }
        let token = self.closing.child_token();
        // Ends the listener if the caller drops this future.
        let closing = token.clone().drop_guard();
        let (opening_result, opened) = oneshot::channel();
        let (channel, task_inbox) = (Arc::clone(&self.channel), Arc::clone(&inbox));
        // In a task of its own: an abandoned future would leave a subscription behind.
        let task = self.listeners.spawn(async move {
            let _closed = CloseWhenDropped(Arc::clone(&task_inbox));
            match channel.open(task_inbox, token).await {
                Ok(receiving) => {
                    // A caller that has gone has cancelled it.
                    opening_result.send(Ok(())).ok();
                    receiving.await;
                }
                Err(error) => drop(opening_result.send(Err(error))),
            }
        });
        opened.await.map_err(|_| ListenError::Ending)??;
        Ok(Listener { inbox, closing, task })
    }

    /// Waits until what was emitted in this process before is published or lost. For a process that
    /// ends soon after it has emitted.
    pub async fn flush(&self, within: Duration) {
        self.outbox.flush(within).await;
    }

    /// Ends all listeners of this process, with their subscriptions, and waits until what was
    /// emitted is published.
    pub async fn close(&self, within: Duration) {
        self.closing.cancel();
        self.listeners.close();
        let ended = async {
            self.outbox.flush(within).await;
            self.listeners.wait().await;
        };
        if tokio::time::timeout(within, ended).await.is_err() {
            let left = self.listeners.len();
            tracing::warn!(left, "subscriptions of listeners are left to expire");
        }
    }
}

impl fmt::Debug for Broadcasts {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        formatter.debug_struct("Broadcasts").finish_non_exhaustive()
    }
}

/// Tells the reader that nothing more will come, also when the runtime ends.
struct CloseWhenDropped(Arc<Inbox>);

impl Drop for CloseWhenDropped {
    fn drop(&mut self) {
        self.0.close();
    }
}

/// Receives emitted events through a subscription of its own.
///
/// A slow reader misses the oldest events and is told how many: a listener holds up to 1,000
/// events, or 4 MiB of them, and all listeners of a process together hold up to 32 MiB.
///
/// If it is dropped without [`Listener::close`], its subscription is deleted in the background; a
/// subscription of a process that died expires after a day.
///
/// ```no_run
/// # async fn example(queue: wakeq::Queue) -> Result<(), wakeq::listeners::ListenError> {
/// use wakeq::listeners::ListenItem;
///
/// let mut pages = queue.subscribe("*:page:*").await?;
/// while let Some(item) = pages.next().await {
///     match item {
///         ListenItem::Event(page) => println!("{} {:?}", page.topic(), page.value),
///         ListenItem::Missed(count) => println!("missed {count:?}"),
///     }
/// }
/// # Ok(())
/// # }
/// ```
#[derive(Debug)]
pub struct Listener {
    inbox: Arc<Inbox>,
    closing: DropGuard,
    task: JoinHandle<()>,
}

impl Listener {
    /// The next event; `None` once the process ends. Cancel safe.
    pub async fn next(&mut self) -> Option<ListenItem> {
        self.inbox.next().await
    }

    /// The events as a stream.
    pub fn into_stream(self) -> impl Stream<Item = ListenItem> + Send {
        unfold(self, async |mut listener| listener.next().await.map(|item| (item, listener)))
    }

    /// Why nothing can be received now, with what to do about it; `None` if all is well.
    pub fn trouble(&self) -> Option<String> {
        self.inbox.trouble()
    }

    /// Stops listening, and waits until the subscription is deleted.
    pub async fn close(self) {
        let Self { inbox: _, closing, task } = self;
        drop(closing);
        if tokio::time::timeout(CLOSING, task).await.is_err() {
            tracing::warn!("the subscription of a listener is left to expire");
        }
    }
}

#[cfg(test)]
mod tests {
    use std::sync::atomic::{AtomicI32, Ordering};

    use async_trait::async_trait;
    use futures_util::future::BoxFuture;
    use tokio::sync::Notify;
    use uuid::Uuid;

    use super::*;
    use crate::event::{Due, EventId, HandlerAddress, HandlerScope, Metadata, Name};

    pub(super) fn broadcast(name: &str, value: &str) -> Broadcast {
        let scope = HandlerScope::worker(CanvasId(Uuid::from_u128(7)), name).unwrap();
        Broadcast {
            id: EventId::new(),
            address: HandlerAddress { scope, modifier: Name::no_modifier() },
            value: Some(value.to_owned()),
            metadata: Metadata::root(),
            place: None,
            due: Due::Now,
        }
    }

    fn name(item: Option<ListenItem>) -> String {
        match item {
            Some(ListenItem::Event(broadcast)) => broadcast.address.scope.name.to_string(),
            other => panic!("{other:?} is no event"),
        }
    }

    #[tokio::test]
    async fn each_listener_of_a_process_receives_what_it_subscribed_to() {
        let broadcasts = Broadcasts::local();
        let mut all = broadcasts.subscribe("*").await.unwrap();
        let mut views = broadcasts.subscribe("*:WORKER:v*").await.unwrap();
        let mut elsewhere = broadcasts.subscribe_on(&[CanvasId::DEFAULT], "*").await.unwrap();
        for sent in ["click", "view"] {
            broadcasts.send(broadcast(sent, "1"));
        }
        assert_eq!((name(all.next().await), name(all.next().await)), ("click".into(), "view".into()));
        assert_eq!(name(views.next().await), "view");
        views.close().await;
        broadcasts.close(CLOSING).await;
        assert_eq!((all.next().await, elsewhere.next().await), (None, None));
        assert!(matches!(broadcasts.subscribe("*").await, Err(ListenError::Ending)));
    }

    /// A channel that opens when it is allowed to, and then waits to be closed.
    #[derive(Default)]
    struct Reluctant {
        asked: Notify,
        leave: Notify,
        left_behind: AtomicI32,
    }

    struct Opener(Arc<Reluctant>);

    #[async_trait]
    impl Channel for Opener {
        async fn publish(&self, _: &[Broadcast]) -> PublishOutcome {
            PublishOutcome::default()
        }

        async fn open(
            &self,
            _: Arc<Inbox>,
            closing: CancellationToken,
        ) -> Result<BoxFuture<'static, ()>, ListenError> {
            let shared = Arc::clone(&self.0);
            shared.asked.notify_one();
            shared.leave.notified().await;
            shared.left_behind.fetch_add(1, Ordering::Relaxed);
            Ok(Box::pin(async move {
                closing.cancelled().await;
                shared.left_behind.fetch_sub(1, Ordering::Relaxed);
            }))
        }
    }

    #[tokio::test]
    async fn a_listener_that_leaves_while_subscribing_leaves_nothing_behind() {
        let shared = Arc::new(Reluctant::default());
        let broadcasts = Broadcasts::over(Arc::new(Opener(Arc::clone(&shared))));
        let subscribing = broadcasts.subscribe("*");
        tokio::select! {
            _ = subscribing => panic!("it is not open"),
            () = shared.asked.notified() => {}
        }
        shared.leave.notify_one();
        broadcasts.listeners.close();
        tokio::time::timeout(CLOSING, broadcasts.listeners.wait()).await.expect("it goes on");
        assert_eq!(shared.left_behind.load(Ordering::Relaxed), 0);
    }

    #[tokio::test]
    async fn listeners_that_ended_are_removed() {
        let channel = Arc::new(LocalChannel::default());
        let broadcasts = Broadcasts::over(channel.clone());
        drop(broadcasts.subscribe("*").await.unwrap());
        broadcasts.subscribe("*").await.unwrap().close().await;
        broadcasts.close(CLOSING).await;
        assert_eq!(broadcasts.listeners.len(), 0);
        assert!(format!("{channel:?}").contains("[]"), "{channel:?}");
        let bad = Broadcasts::local().subscribe("[").await.unwrap_err();
        assert!(bad.to_string().contains("not closed"), "{bad}");
    }
}
