//! Postgres as the notifier: NOTIFY after the commit, on a connection of its own.
//!
//! Every process hears every notification, and one of them is to handle it first; the others keep
//! it in reserve for a moment, and look at the event if they have nothing else to do. So a worker
//! that is busy, or dies, holds up nothing for longer than that, and one that comes later is told
//! what waits. What nobody hears is found by the promises on the rows.

mod broadcasts;
mod ear;
mod members;
mod message;
mod sender;

use std::fmt;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError, Weak};
use std::time::Duration;

use async_trait::async_trait;
use tokio::sync::oneshot;
use tokio::time::sleep;
use tokio_util::task::AbortOnDropHandle;
use uuid::Uuid;

use super::mailbox::{Content, Mailbox};
use super::{Delivery, Notifier, NotifyError, Subscription};
use crate::broadcast::{Broadcasts, Signals};
use crate::event::Notification;
use crate::store::{Store, StoreError};
use broadcasts::PostgresChannel;
use ear::{Hear, listen};
use members::Members;
use message::{Message, News};
use sender::Sender;

/// The channel of notifications.
const CHANNEL: &str = "wakeq";
/// The channel of signals between processes.
const SIGNALS: &str = "wakeq_signals";
/// The channel of broadcasts.
const BROADCASTS: &str = "wakeq_broadcasts";
/// Most notifications that wait in a process. They take about 30 MB; events beyond them are woken
/// by their promises.
const WAITING_MAX: usize = 250_000;
/// Beyond so many waiting messages, those that are no notifications are dropped.
const NONSENSE_MAX: usize = 1_000;
/// The delay before a message that was put back is delivered again: the same as for the
/// subscription that `wakeq topics create` makes.
const RETRY_DELAY: Duration = Duration::from_secs(10);

/// How long another worker's answer takes at most.
const ANSWER: Duration = Duration::from_secs(1);

/// A notifier that needs nothing but Postgres, for a handful of processes: NOTIFY wakes the workers
/// of all of them. Clones share their messages.
///
/// Notifications of a process are sent together, at most 200 times a second, on a connection of
/// their own, so that no commit of an event waits for them. A worker needs a second connection,
/// which listens; a pooler in transaction mode does not support that, so give the notifier a
/// [`Store`] with a direct connection. Every worker hears of every event, which costs the others a
/// lookup each if they are idle: beyond about five workers, use [`PubSub`](super::PubSub).
///
/// Notifications are kept by the workers only. If all of them end, call
/// [`Admin::wake`](crate::Admin::wake) with `true` when the first one starts again; otherwise the
/// minute's pass finds the events.
///
/// ```no_run
/// use std::sync::Arc;
/// use wakeq::notify::PostgresNotifier;
/// use wakeq::{Queue, QueueConfig, Store, StoreConfig};
///
/// # async fn example() -> Result<(), wakeq::StoreError> {
/// let store = Store::connect("postgres://app@localhost/app", StoreConfig::default()).await?;
/// let notifier = Arc::new(PostgresNotifier::new(&store));
/// let queue = Queue::new(store, notifier, QueueConfig::default());
/// # Ok(())
/// # }
/// ```
#[derive(Clone)]
pub struct PostgresNotifier {
    shared: Arc<Shared>,
    broadcasts: Option<Broadcasts>,
    signals: Signals,
}

struct Shared {
    /// Identifies the own messages, which are skipped when they come back.
    id: Uuid,
    store: Store,
    sender: Sender,
    mailbox: Mailbox,
    members: Mutex<Members>,
    working: Mutex<Weak<Working>>,
    /// Held while a first subscription begins to listen.
    beginning: tokio::sync::Mutex<()>,
    trouble: Mutex<Option<String>>,
}

impl PostgresNotifier {
    /// A notifier over the database of this store. Must be called inside a tokio runtime; nothing
    /// is sent yet.
    pub fn new(store: &Store) -> Self {
        let id = Uuid::new_v4();
        let signals = PostgresChannel::new(store, SIGNALS);
        let shared = Shared {
            id,
            store: store.clone(),
            sender: Sender::new(store.clone(), CHANNEL, id),
            mailbox: Mailbox::new(RETRY_DELAY),
            members: Mutex::new(Members::of(id)),
            working: Mutex::default(),
            beginning: tokio::sync::Mutex::default(),
            trouble: Mutex::default(),
        };
        let signals = Signals::over(Some(Broadcasts::over(Arc::new(signals))));
        Self { shared: Arc::new(shared), broadcasts: None, signals }
    }

    /// A notifier that also broadcasts what is emitted, to listeners in every process. An event
    /// whose broadcast takes more than 7,999 bytes of JSON goes without its value, or is missed if
    /// its metadata are that large.
    pub fn broadcasting(store: &Store) -> Self {
        let broadcasts = Broadcasts::over(Arc::new(PostgresChannel::new(store, BROADCASTS)));
        Self { broadcasts: Some(broadcasts), ..Self::new(store) }
    }
}

impl fmt::Debug for PostgresNotifier {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        formatter.debug_struct("PostgresNotifier").field("id", &self.shared.id).finish_non_exhaustive()
    }
}

#[async_trait]
impl Notifier for PostgresNotifier {
    async fn publish(&self, notifications: &[Notification]) -> Result<(), NotifyError> {
        if notifications.is_empty() {
            return Ok(());
        }
        if self.shared.works() && self.shared.take_in(notifications.iter().copied()) {
            return Ok(());
        }
        self.shared.sender.wake(notifications.to_vec()).await.map_err(failed)
    }

    async fn check(&self) -> Result<(), NotifyError> {
        self.shared.store.notify(CHANNEL, &[]).await.map_err(failed)
    }

    /// Other workers answer within a second, and know what waits.
    async fn starts_empty(&self) -> bool {
        let _listening = self.shared.work().await;
        sleep(ANSWER).await;
        self.shared.members().is_alone()
    }

    fn broadcasts(&self) -> Option<Broadcasts> {
        self.broadcasts.clone()
    }

    fn signals(&self) -> Signals {
        self.signals.clone()
    }

    async fn subscribe(&self, max_outstanding: usize) -> Result<Box<dyn Subscription>, NotifyError> {
        self.shared.store.can_listen().map_err(failed)?;
        let inner = self.shared.mailbox.subscribe(max_outstanding)?;
        let working = self.shared.work().await;
        Ok(Box::new(PostgresSubscription { inner, working: Some(working), shared: Arc::clone(&self.shared) }))
    }
}

fn failed(error: StoreError) -> NotifyError {
    NotifyError { what: "NOTIFY failed".to_owned(), source: Some(Box::new(error)) }
}

impl Shared {
    fn members(&self) -> MutexGuard<'_, Members> {
        self.members.lock().unwrap_or_else(PoisonError::into_inner)
    }

    fn working(&self) -> MutexGuard<'_, Weak<Working>> {
        self.working.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Whether this process has a worker.
    fn works(&self) -> bool {
        self.working().strong_count() > 0
    }

    /// Listens as long as the result is held. Returns when it listens, or could not at once.
    async fn work(self: &Arc<Self>) -> Arc<Working> {
        let _beginning = self.beginning.lock().await;
        let current = self.working().upgrade();
        if let Some(working) = current {
            return working;
        }
        let (begun, beginning) = oneshot::channel();
        let echo = Message { from: self.id, news: News::Here }.text();
        let hearer = Hearer { shared: Arc::clone(self), echo };
        let task = tokio::spawn(listen(self.store.clone(), CHANNEL, hearer, begun));
        // Ends with the caller, also while it begins.
        let listening = AbortOnDropHandle::new(task);
        // It reports by itself why it does not listen.
        let _ = beginning.await;
        let working = Arc::new(Working { sender: self.sender.clone(), _listening: listening });
        *self.working() = Arc::downgrade(&working);
        working
    }

    /// Keeps these notifications for the workers of this process. Returns whether no other process
    /// has any.
    fn take_in(&self, notifications: impl Iterator<Item = Notification>) -> bool {
        let members = self.members();
        self.mailbox.change(|messages| {
            for notification in notifications {
                // A worker that takes the waiting one sees everything that was committed before.
                if messages.names(notification.id) {
                    continue;
                }
                let is_own = members.is_own(notification.id);
                if messages.waiting() >= WAITING_MAX && !(is_own && messages.drop_reserve()) {
                    continue;
                }
                let content = Content::Notification(notification);
                if is_own { messages.push(content) } else { messages.push_reserve(content) }
            }
        });
        members.is_alone()
    }

    /// After the members have changed.
    fn divide(&self, members: &Members) {
        self.mailbox.change(|messages| messages.divide(|event| members.is_own(event)));
    }
}

/// Ends when the last subscription of the process stops.
struct Working {
    sender: Sender,
    _listening: AbortOnDropHandle<()>,
}

impl Drop for Working {
    fn drop(&mut self) {
        self.sender.say(News::Bye);
    }
}

/// What a worker hears.
struct Hearer {
    shared: Arc<Shared>,
    /// The own message that comes back.
    echo: String,
}

impl Hear for Hearer {
    fn begin(&self) {
        self.shared.sender.say(News::Hello);
    }

    fn hear(&self, text: &str) {
        let shared = &self.shared;
        let Ok(message) = serde_json::from_str::<Message>(text) else {
            let body = Content::Body(text.as_bytes().to_vec());
            shared
                .mailbox
                .change(|messages| (messages.waiting() < NONSENSE_MAX).then(|| messages.push(body)));
            return;
        };
        if message.from == shared.id {
            return;
        }
        match message.news {
            News::Wake(events) => {
                let events = events
                    .into_iter()
                    .flat_map(|(canvas, ids)| ids.into_iter().map(move |id| Notification { id, canvas }));
                shared.take_in(events);
            }
            News::Hello => {
                shared.sender.say(News::Here);
                let waiting = shared.mailbox.read(super::mailbox::Messages::ready_notifications);
                self.joined(message.from);
                if !waiting.is_empty() {
                    let sender = shared.sender.clone();
                    // What it does not learn now is found by the promises.
                    tokio::spawn(async move { drop(sender.wake(waiting).await) });
                }
            }
            News::Here => self.joined(message.from),
            News::Bye => {
                let mut members = shared.members();
                if members.left(message.from) {
                    shared.divide(&members);
                }
            }
        }
    }

    fn check(&self) {
        let mut members = self.shared.members();
        if members.forget_silent() {
            self.shared.divide(&members);
        }
        drop(members);
        self.shared.sender.say(News::Here);
    }

    fn is_echo(&self, text: &str) -> bool {
        text == self.echo
    }

    fn trouble(&self, reason: Option<String>) {
        *self.shared.trouble.lock().unwrap_or_else(PoisonError::into_inner) = reason;
    }
}

impl Hearer {
    fn joined(&self, worker: Uuid) {
        let mut members = self.shared.members();
        if members.heard(worker) {
            self.shared.divide(&members);
        }
    }
}

struct PostgresSubscription {
    inner: Box<dyn Subscription>,
    /// Nothing once it has stopped.
    working: Option<Arc<Working>>,
    shared: Arc<Shared>,
}

#[async_trait]
impl Subscription for PostgresSubscription {
    async fn next(&mut self) -> Option<Delivery> {
        self.inner.next().await
    }

    fn stop(&mut self) {
        self.inner.stop();
        self.working = None;
    }

    fn trouble(&self) -> Option<String> {
        self.shared.trouble.lock().unwrap_or_else(PoisonError::into_inner).clone()
    }

    async fn close(self: Box<Self>, grace: Duration) {
        let Self { inner, working, shared: _ } = *self;
        drop(working);
        inner.close(grace).await;
    }
}
