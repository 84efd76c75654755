//! Postgres as the notifier: NOTIFY after the commit, on a connection of its own.
//!
//! Every role that may connect can LISTEN and NOTIFY, so channels have secret names and messages
//! are sealed. Messages of another role are dropped unread, and it can't read those that it hears.
//!
//! Every process hears every notification, and one of them is to handle it first; the others keep
//! it in reserve for a moment, and look at the event if they have nothing else to do. So a worker
//! that is busy, or dies, holds up nothing for longer than that, and one that comes later is told
//! what waits. Events of which no process hears are found by the promises on their rows. A process
//! that had no room for messages looks for what waits when it has handled most of the others.

mod bounds;
mod broadcasts;
mod ear;
mod gap;
mod members;
mod message;
mod outlet;
mod seal;
mod sender;
#[cfg(test)]
mod tests;

use std::collections::HashSet;
use std::fmt;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError, Weak};
use std::time::Duration;

use async_trait::async_trait;
use tokio::sync::oneshot;
use tokio::time::{sleep, sleep_until};
use tokio_util::task::AbortOnDropHandle;
use uuid::Uuid;

use super::mailbox::{Content, Mailbox};
use super::overflow::{self, Overflow};
use super::{Delivery, Notifier, NotifyError, Subscription};
use crate::broadcast::{Broadcasts, Signals};
use crate::event::{CanvasId, Notification};
use crate::store::{Store, StoreError};
use bounds::{Answers, Shares, WAITING_MAX};
use broadcasts::PostgresChannel;
use ear::{Ear, Hear};
use gap::Gaps;
use members::Members;
use message::News;
use outlet::{Keyring, Outlet};
use seal::Purpose;
use sender::Sender;

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
/// minute's pass finds the events. After a connection broke, a worker looks for what it missed. At
/// most 250,000 wait in a process, and a worker looks for the events beyond them when it has room
/// again.
///
/// The role of the store reads the table `wakeq.deployment`, whose secret keeps other roles of the
/// database from reading and forging messages.
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
    shared: Arc<SharedNotifier>,
    broadcasts: Option<Broadcasts>,
    signals: Signals,
}

struct SharedNotifier {
    /// Identifies this process's own messages, which are skipped when they come back.
    id: Uuid,
    keyring: Keyring,
    outlet: Arc<Outlet>,
    sender: Sender,
    mailbox: Mailbox,
    members: Mutex<Members>,
    shares: Mutex<Shares>,
    answers: Mutex<Answers>,
    gaps: Gaps,
    overflow: Overflow,
    working: Mutex<Weak<Working>>,
    /// Held while a first subscription begins to listen.
    beginning: tokio::sync::Mutex<()>,
    trouble: Mutex<Option<String>>,
}

impl PostgresNotifier {
    /// A notifier over the database of this store. Must be called inside a tokio runtime; nothing
    /// is sent yet.
    pub fn new(store: &Store) -> Self {
        Self::holding(store, WAITING_MAX)
    }

    /// A notifier in which this many notifications wait at most.
    pub(crate) fn holding(store: &Store, most: usize) -> Self {
        let (id, keyring) = (Uuid::new_v4(), Keyring::new(store));
        let outlet = Arc::new(Outlet::new(keyring.clone(), Purpose::Notifications, id));
        let signals = PostgresChannel::new(keyring.clone(), Purpose::Signals);
        let shared = SharedNotifier {
            id,
            keyring,
            outlet: Arc::clone(&outlet),
            sender: Sender::new(outlet),
            mailbox: Mailbox::new(RETRY_DELAY),
            members: Mutex::new(Members::of(id)),
            shares: Mutex::new(Shares::of(most)),
            answers: Mutex::default(),
            gaps: Gaps::default(),
            overflow: Overflow::default(),
            working: Mutex::default(),
            beginning: tokio::sync::Mutex::default(),
            trouble: Mutex::default(),
        };
        let signals = Signals::over(Some(Broadcasts::over(Arc::new(signals))));
        Self { shared: Arc::new(shared), broadcasts: None, signals }
    }

    /// A notifier that also broadcasts what is emitted, to listeners in every process. An event
    /// whose broadcast takes more than 5,958 bytes of JSON goes without its value, or is missed if
    /// its metadata are that large.
    pub fn broadcasting(store: &Store) -> Self {
        let alone = Self::new(store);
        let channel = PostgresChannel::new(alone.shared.keyring.clone(), Purpose::Broadcasts);
        Self { broadcasts: Some(Broadcasts::over(Arc::new(channel))), ..alone }
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
        if self.shared.works() {
            let taken = self.shared.take_in(self.shared.id, notifications.iter().copied());
            self.shared.note(&taken);
            if taken.is_alone {
                return Ok(());
            }
        }
        self.shared.sender.wake(notifications.to_vec()).await.map_err(failed)
    }

    async fn check(&self) -> Result<(), NotifyError> {
        self.shared.outlet.check().await.map_err(failed)
    }

    /// Other workers answer within a second, and know what waits.
    async fn starts_empty(&self) -> bool {
        let _listening = self.shared.work().await;
        sleep(ANSWER).await;
        self.shared.members().is_alone()
    }

    async fn missed(&self) -> Duration {
        let missed = self.shared.gaps.next().await;
        self.shared.sender.say(News::Looking(missed));
        missed
    }

    async fn overflowed(&self) {
        self.shared.overflow.noted().await;
        self.shared.drained().await;
        self.shared.overflow.look();
    }

    async fn drained(&self) {
        self.shared.drained().await;
    }

    /// Others are told as well, since some of the events are theirs to handle first: one that began
    /// to listen later has heard of none of them.
    async fn publish_again(&self, notifications: &[Notification]) -> Result<HashSet<CanvasId>, NotifyError> {
        let taken = self.shared.take_in(self.shared.id, notifications.iter().copied());
        if !taken.is_alone && !notifications.is_empty() {
            self.shared.sender.say(News::Again(notifications.to_vec()));
        }
        Ok(taken.refused)
    }

    fn broadcasts(&self) -> Option<Broadcasts> {
        self.broadcasts.clone()
    }

    fn signals(&self) -> Signals {
        self.signals.clone()
    }

    async fn subscribe(&self, max_outstanding: usize) -> Result<Box<dyn Subscription>, NotifyError> {
        let inner = self.shared.mailbox.subscribe(max_outstanding)?;
        self.subscribed(inner).await
    }

    async fn subscribe_urgent(
        &self,
        max_outstanding: usize,
    ) -> Result<Option<Box<dyn Subscription>>, NotifyError> {
        let inner = self.shared.mailbox.subscribe_urgent(max_outstanding)?;
        self.subscribed(inner).await.map(Some)
    }
}

impl PostgresNotifier {
    async fn subscribed(&self, inner: Box<dyn Subscription>) -> Result<Box<dyn Subscription>, NotifyError> {
        self.shared.keyring.store.can_listen().map_err(failed)?;
        let working = self.shared.work().await;
        Ok(Box::new(PostgresSubscription { inner, working: Some(working), shared: Arc::clone(&self.shared) }))
    }
}

fn failed(error: StoreError) -> NotifyError {
    NotifyError { what: "NOTIFY failed".to_owned(), source: Some(Box::new(error)) }
}

impl SharedNotifier {
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
        let ear = Ear { keyring: self.keyring.clone(), purpose: Purpose::Notifications, own: self.id };
        let task = tokio::spawn(ear.listen(WorkerHearer { shared: Arc::clone(self) }, begun));
        // Ends with the caller, also while it begins.
        let listening = AbortOnDropHandle::new(task);
        // It reports by itself why it does not listen.
        let _ = beginning.await;
        let working = Arc::new(Working { sender: self.sender.clone(), _listening: listening });
        *self.working() = Arc::downgrade(&working);
        working
    }

    fn shares(&self) -> MutexGuard<'_, Shares> {
        self.shares.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Waits until most of what is this process's to handle has been. With others there, a random
    /// time longer: one of those that had no room at the same time is the first to look, and what
    /// it finds may be enough for all of them.
    async fn drained(&self) {
        let most = self.shares().most();
        loop {
            overflow::drained(&self.mailbox, most).await;
            if self.members().is_alone() {
                return;
            }
            sleep(gap::pause()).await;
            if overflow::is_drained(&self.mailbox, most) {
                return;
            }
        }
    }

    /// Keeps these notifications of this sender for the workers of this process.
    fn take_in(&self, sender: Uuid, notifications: impl Iterator<Item = Notification>) -> TakenIn {
        let members = self.members();
        let mut shares = self.shares();
        let mut refused = HashSet::new();
        self.mailbox.change(|messages| {
            for notification in notifications {
                // A worker that takes the waiting one sees everything that was committed before.
                if messages.names(notification.id) {
                    continue;
                }
                let is_own = members.is_own(notification.id);
                // Each class has as much room, so that a backlog of one does not take the other's.
                let waiting = messages.waiting_of(notification.urgent);
                let has_room = match notification.urgent {
                    true => waiting < shares.most(),
                    false => shares.admit(sender, notification.canvas, waiting),
                };
                // Messages in reserve wait elsewhere as well, so they make room.
                if !(has_room || is_own && messages.drop_reserve()) {
                    if is_own {
                        refused.insert(notification.canvas);
                    }
                    continue;
                }
                let content = Content::Notification(notification);
                if is_own { messages.push(content) } else { messages.push_reserve(content) }
            }
        });
        TakenIn { is_alone: members.is_alone(), refused }
    }

    /// If there was no room for some of these, they are looked for later.
    fn note(&self, taken: &TakenIn) {
        if !taken.refused.is_empty() {
            self.overflow.note();
        }
    }

    /// Tells processes that have begun to listen what waits here.
    fn answer(self: &Arc<Self>, waiting: Vec<Notification>) {
        let Some(at) = self.answers.lock().unwrap_or_else(PoisonError::into_inner).add(waiting) else {
            return;
        };
        let shared = Arc::clone(self);
        tokio::spawn(async move {
            sleep_until(at).await;
            let waiting = shared.answers.lock().unwrap_or_else(PoisonError::into_inner).take();
            // The promises wake the events of which they do not learn now.
            drop(shared.sender.wake(waiting).await);
        });
    }

    /// After the members have changed.
    fn divide(&self, members: &Members) {
        self.mailbox.change(|messages| messages.divide(|event| members.is_own(event)));
    }
}

/// Notifications that were taken in.
struct TakenIn {
    /// Whether no other process has a worker.
    is_alone: bool,
    /// The canvases of those that are this process's to handle and for which there was no room.
    refused: HashSet<CanvasId>,
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

/// Handles the messages that a worker hears.
struct WorkerHearer {
    shared: Arc<SharedNotifier>,
}

impl Hear for WorkerHearer {
    fn begin(&self, missed: Option<Duration>) {
        self.shared.sender.say(News::Hello);
        if let Some(missed) = missed {
            self.shared.gaps.add(missed);
        }
    }

    fn hear(&self, sender: Uuid, content: &[u8]) {
        let shared = &self.shared;
        if sender == shared.id {
            return;
        }
        let Some(news) = News::read(content) else {
            tracing::debug!(%sender, "passed over a message of another release");
            return;
        };
        match news {
            News::Wake(notifications) => {
                let taken = shared.take_in(sender, notifications.into_iter());
                shared.note(&taken);
            }
            // The sender may look for what is left out here again; if each of two processes did so
            // for the other, they would not end.
            News::Again(notifications) => drop(shared.take_in(sender, notifications.into_iter())),
            News::Hello => {
                shared.sender.say(News::Here);
                // Read before its share of them becomes a reserve here.
                let waiting = shared.mailbox.read(super::mailbox::Messages::ready_notifications);
                self.joined(sender);
                shared.answer(waiting);
            }
            News::Here => self.joined(sender),
            News::Bye => {
                let mut members = shared.members();
                if members.left(sender) {
                    shared.divide(&members);
                }
            }
            News::Looking(missed) => shared.gaps.looked(missed),
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

    fn trouble(&self, reason: Option<String>) {
        *self.shared.trouble.lock().unwrap_or_else(PoisonError::into_inner) = reason;
    }
}

impl WorkerHearer {
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
    shared: Arc<SharedNotifier>,
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
