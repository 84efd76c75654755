//! Emit: insert, then publish; alone, in a batch, or inside the caller's own transaction.
//!
//! The row is the event. A failed notification is not an error: the probe publishes it later.

mod batches;
mod byte_budget;
mod error;
mod idempotent;
mod inserts;
mod limits;
mod listening;
mod objects;
mod quotas;

use std::sync::Arc;
use std::time::Duration;

use sqlx::postgres::PgConnection;
use tracing::Instrument;

use crate::broadcast::{Broadcasts, Signals};
use crate::event::{
    CanvasId, Event, EventError, EventId, HandlerScope, Link, NewEvent, Notification, UniqueOutcome,
};
use crate::notify::Notifier;
use crate::store::{Coalescer, InsertOutcome, Store, StoreError, add_one};
use crate::telemetry::{EmitCall, SendMetrics};
use crate::{fault, telemetry};

pub use batches::{BatchError, EventBatch};
use byte_budget::{ByteBudget, CheckedEvents};
use error::EVENTS_MAX;
pub use error::EmitError;
pub use idempotent::Idempotent;
use inserts::{BATCH_MAX, Inserts};

/// Largest value that shares a statement.
const SHARED_BYTES_MAX: usize = 16 * 1024;
/// How often an emit is tried if another transaction holds its object, its stream of the log or its
/// unique key.
const TRIES: u32 = 5;

/// How events are emitted.
#[derive(Clone, Debug)]
pub struct QueueConfig {
    /// The canvas of events that name none. Default: the nil uuid, for deployments with one tenant.
    pub canvas: CanvasId,
    /// Largest value of an event, as JSON, in bytes. Default 256 KiB.
    pub payload_limit_bytes: usize,
    /// Maximum bytes of values of all emits that wait for Postgres at once. Default 64 MiB; further
    /// emits are refused with [`StoreError::Overloaded`]. One call counts as at most half of the
    /// limit, so that it is never too large by itself.
    pub waiting_bytes_max: usize,
    /// How long an emit waits for its publish before leaving it to the probe. Default 2 s.
    pub publish_timeout: Duration,
    /// Whether the quotas of canvases limit what this queue emits. Default true.
    pub quotas: bool,
}

impl Default for QueueConfig {
    fn default() -> Self {
        Self {
            canvas: CanvasId::DEFAULT,
            payload_limit_bytes: 256 * 1024,
            waiting_bytes_max: 64 * 1024 * 1024,
            publish_timeout: Duration::from_secs(2),
            quotas: true,
        }
    }
}

/// Emits events. Cheap to clone; all clones share their insert statements.
#[derive(Clone)]
pub struct Queue {
    store: Store,
    notifier: Arc<dyn Notifier>,
    config: QueueConfig,
    inserts: Inserts,
    budget: ByteBudget,
    announcements: Coalescer<Arc<[EventId]>, ()>,
    metrics: SendMetrics,
    broadcasts: Option<Broadcasts>,
    signals: Signals,
}

/// An event that was emitted: its row is committed.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Emitted {
    /// The event's id; if the caller chose one, this is [`EventId::chosen`] of it. If its unique
    /// key was taken, the id of the event that has the key.
    pub id: EventId,
    /// The caller chose the id, and it had been emitted before: nothing was added.
    pub duplicate: bool,
    /// Its link in the chain of its object; `None` if it is not on an object, or a duplicate.
    pub link: Option<Link>,
    /// How many registered queues received a copy.
    pub copies: u32,
    /// Whether a notification was published. Duplicates and events far in the future need none now,
    /// nor do those that were kept or postponed. If Pub/Sub did not accept it, the probe makes up
    /// for that.
    pub notified: bool,
    /// What was done, if the event has a unique key.
    pub unique: Option<UniqueOutcome>,
}

impl Queue {
    /// A queue over a store and a notifier. Must be called inside a tokio runtime.
    pub fn new(store: Store, notifier: Arc<dyn Notifier>, config: QueueConfig) -> Self {
        let inserts = Inserts::new(&store);
        let budget = ByteBudget::new(config.waiting_bytes_max);
        let (broadcasts, signals) = (notifier.broadcasts(), notifier.signals());
        let announcements = Coalescer::new(BATCH_MAX, 1, {
            let store = store.clone();
            move |copies: Vec<Arc<[EventId]>>| {
                let store = store.clone();
                async move { store.announce(&copies.concat()).await.map(|()| vec![(); copies.len()]) }
            }
        });
        let metrics = SendMetrics::new();
        Self { store, notifier, config, inserts, budget, announcements, metrics, broadcasts, signals }
    }

    /// Emits an event. When this returns, its row is committed.
    ///
    /// ```no_run
    /// # async fn example(queue: wakeq::Queue) -> Result<(), Box<dyn std::error::Error>> {
    /// use wakeq::Event;
    ///
    /// let emitted = queue.emit(Event::new("send-email", &"ada@example.com")?).await?;
    /// println!("event {}", emitted.id);
    /// # Ok(())
    /// # }
    /// ```
    pub async fn emit(&self, event: Event) -> Result<Emitted, EmitError> {
        let span = self.sending(std::slice::from_ref(&event), false);
        self.emit_one(event).instrument(span).await
    }

    async fn emit_one(&self, event: Event) -> Result<Emitted, EmitError> {
        if event.object.is_some() || event.logged.is_some() {
            let mut emitted = self.emit_together(vec![event]).await?;
            let emitted = emitted.pop().ok_or(EmitError::Store(StoreError::Defect))?;
            telemetry::sends(emitted.id);
            return Ok(emitted);
        }
        let chosen = event.id.is_some();
        let event = Arc::new(self.checked(event)?);
        telemetry::sends(event.id);
        let one = std::slice::from_ref(&*event);
        self.admit(one).await?;
        let permit = self.budget.take(event.value.len()).map_err(|error| self.overloaded(one, error))?;
        // None of them shares a statement: a chosen id or a unique key may have to wait for another
        // session's transaction, and a large value takes its time.
        let inserted = if chosen {
            self.store.insert_chosen(&event).await
        } else if event.unique.is_some() {
            retry_busy(one, || self.store.insert_unique(&event)).await
        } else if event.value.len() > SHARED_BYTES_MAX {
            self.store.insert_alone(&event).await
        } else {
            self.inserts.insert(&event, permit).await
        };
        let inserted = self.counted(one, inserted).map_err(|error| refused(one, error))?;
        fault::point("emit.committed");
        let (mut emitted, notifications) = outcome(&event, &inserted);
        self.remember(&event, &inserted);
        emitted.notified = self.wake(inserted.due_copies(), &notifications).await;
        self.wake_at_left(std::slice::from_ref(&inserted)).await;
        Ok(emitted)
    }

    /// Emits up to 10,000 events in one transaction: all or none.
    pub async fn emit_all(&self, events: Vec<Event>) -> Result<Vec<Emitted>, EmitError> {
        let span = self.sending(&events, true);
        self.emit_together(events).instrument(span).await
    }

    async fn emit_together(&self, events: Vec<Event>) -> Result<Vec<Emitted>, EmitError> {
        let CheckedEvents { events, chosen, permit: _permit } = self.all_checked(events)?;
        self.admit(&events).await?;
        let inserted = retry_busy(&events, || self.store.insert_all(&events, &chosen)).await;
        let inserted = self.counted(&events, inserted).map_err(|error| refused(&events, error))?;
        self.after_commit(&events, inserted).await
    }

    fn all_checked(&self, events: Vec<Event>) -> Result<CheckedEvents, EmitError> {
        if events.len() > EVENTS_MAX {
            return Err(EmitError::TooMany(events.len()));
        }
        let chosen: Vec<bool> = events.iter().map(|event| event.id.is_some()).collect();
        let events = events.into_iter().map(|event| self.checked(event)).collect::<Result<Vec<_>, _>>()?;
        let bytes = events.iter().map(|event| event.value.len()).sum();
        let permit = self.budget.take(bytes).map_err(|error| self.overloaded(&events, error))?;
        Ok(CheckedEvents { events, chosen, permit })
    }

    /// Counts events that were refused because there is no room, and converts the error.
    fn overloaded(&self, events: &[NewEvent], error: StoreError) -> EmitError {
        self.not_sent(events, &error);
        error.into()
    }

    /// The store into which it emits.
    pub fn store(&self) -> &Store {
        &self.store
    }

    /// The canvas of events that name none.
    pub fn canvas(&self) -> CanvasId {
        self.config.canvas
    }

    /// Maximum size of an event's value, as JSON, in bytes.
    pub fn payload_limit_bytes(&self) -> usize {
        self.config.payload_limit_bytes
    }

    /// Announces such events in the background, after their commit. Needs a tokio runtime.
    #[doc(hidden)]
    pub fn announce_inserted(&self, events: Vec<NewEvent>, inserted: Vec<InsertOutcome>) {
        if events.is_empty() {
            return;
        }
        let queue = self.clone();
        tokio::spawn(async move {
            queue.sent(&events);
            if let Err(error) = queue.after_commit(&events, inserted).await {
                tracing::error!(
                    error = &error as &dyn std::error::Error,
                    "events were not announced; the probe will announce them"
                );
            }
        });
    }

    /// Performs what follows the commit of several events.
    async fn after_commit(
        &self,
        events: &[NewEvent],
        inserted: Vec<InsertOutcome>,
    ) -> Result<Vec<Emitted>, EmitError> {
        fault::point("emit.committed");
        let outcomes: Vec<_> =
            events.iter().zip(&inserted).map(|(event, inserted)| outcome(event, inserted)).collect();
        events.iter().zip(&inserted).for_each(|(event, inserted)| self.remember(event, inserted));
        let notifications: Vec<_> =
            outcomes.iter().flat_map(|(_, notifications)| notifications).copied().collect();
        let copies: Vec<EventId> = inserted.iter().flat_map(InsertOutcome::due_copies).copied().collect();
        let notified = self.wake(&copies, &notifications).await;
        self.wake_at_left(&inserted).await;
        let emitted = outcomes.into_iter().map(|(emitted, notifications)| Emitted {
            notified: notified && !notifications.is_empty(),
            ..emitted
        });
        Ok(emitted.collect())
    }

    /// Emits an event inside the caller's own transaction. Call [`Receipt::notify`] after the
    /// commit; if that is forgotten, the probe makes up for it. After a rollback there is neither a
    /// row nor a notification.
    ///
    /// ```no_run
    /// # async fn example(queue: wakeq::Queue, pool: sqlx::PgPool) -> Result<(), Box<dyn std::error::Error>> {
    /// use wakeq::Event;
    ///
    /// let mut transaction = pool.begin().await?;
    /// // … the caller's own statements …
    /// let receipt = queue.emit_in(&mut transaction, Event::new("send-email", &"ada@example.com")?).await?;
    /// transaction.commit().await?;
    /// receipt.notify().await;
    /// # Ok(())
    /// # }
    /// ```
    pub async fn emit_in(&self, connection: &mut PgConnection, event: Event) -> Result<Receipt, EmitError> {
        let span = self.sending(std::slice::from_ref(&event), false);
        self.emit_on_connection(connection, event).instrument(span).await
    }

    async fn emit_on_connection(
        &self,
        connection: &mut PgConnection,
        event: Event,
    ) -> Result<Receipt, EmitError> {
        let chosen = event.id.is_some();
        let event = Arc::new(self.checked(event)?);
        telemetry::sends(event.id);
        self.admit_beside(std::slice::from_ref(&*event), None).await?;
        let inserted = add_one(connection, &event, chosen, self.store.emission()).await;
        let inserted = inserted.map_err(|error| StoreError::from_sqlx("insert an event", error));
        let inserted = inserted.map_err(|error| refused(std::slice::from_ref(&*event), error))?;
        self.receipt(event, inserted)
    }

    fn receipt(&self, event: Arc<NewEvent>, inserted: InsertOutcome) -> Result<Receipt, EmitError> {
        let (emitted, notifications) = outcome(&event, &inserted);
        Ok(Receipt { emitted, notifications, queue: self.clone(), event, inserted })
    }

    /// An event in the form in which it is inserted, for callers with a transaction of the store.
    #[doc(hidden)]
    pub fn checked(&self, event: Event) -> Result<NewEvent, EventError> {
        event.checked(self.config.canvas, self.config.payload_limit_bytes, telemetry::trace_of_emit)
    }

    /// The span of a call that emits these events.
    fn sending(&self, events: &[Event], batch: bool) -> tracing::Span {
        let scope = events.first().map(|event| event.address(self.config.canvas).scope);
        let same = |scope: &HandlerScope| {
            events.iter().all(|event| event.module == scope.module && event.name == scope.name)
        };
        telemetry::send_span(&EmitCall {
            scope: scope.as_ref().filter(|scope| same(scope)),
            batch: batch.then_some(events.len()),
            cause: events.first().and_then(|event| event.metadata.traceparent.as_ref()),
        })
    }

    /// Counts events that were sent, or could not be.
    fn counted<T>(&self, events: &[NewEvent], inserted: Result<T, StoreError>) -> Result<T, StoreError> {
        match &inserted {
            Ok(_) => self.sent(events),
            Err(error) => self.not_sent(events, error),
        }
        inserted
    }

    fn sent(&self, events: &[NewEvent]) {
        for (scope, count) in by_handler(events) {
            self.metrics.sent(scope, count, None);
        }
    }

    fn not_sent(&self, events: &[NewEvent], error: &StoreError) {
        telemetry::failed(&tracing::Span::current(), error.kind(), &error.to_string());
        for (scope, count) in by_handler(events) {
            self.metrics.sent(scope, count, Some(error.kind()));
        }
    }

    /// Does the work after a commit: announces copies to their queues and publishes notifications.
    /// Returns whether the notifications were published.
    async fn wake(&self, copies: &[EventId], notifications: &[Notification]) -> bool {
        tokio::join!(self.announce(copies), self.publish(notifications)).1
    }

    /// Puts the facets of copies into their rotations, as their notifications do, but at once.
    async fn announce(&self, copies: &[EventId]) {
        if copies.is_empty() || !self.notifier.wakes() {
            return;
        }
        let announcing = self.announcements.call(copies.into());
        match tokio::time::timeout(self.config.publish_timeout, announcing).await {
            Ok(Ok(())) => {}
            Ok(Err(error)) => {
                let error = &error as &dyn std::error::Error;
                tracing::warn!(
                    error,
                    "could not announce queue copies; they start when their notifications arrive"
                );
            }
            Err(_) => tracing::warn!("queue copies are announced late; their notifications go first"),
        }
    }

    async fn publish(&self, notifications: &[Notification]) -> bool {
        if notifications.is_empty() || !self.notifier.wakes() {
            return false;
        }
        let (notifier, notifications) = (Arc::clone(&self.notifier), notifications.to_vec());
        let events = notifications.len();
        // In its own task: an abandoned publish would never notice that its connection is dead.
        let publishing = tokio::spawn(async move { notifier.publish(&notifications).await });
        match tokio::time::timeout(self.config.publish_timeout, publishing).await {
            Ok(Ok(Ok(()))) => return true,
            Ok(Ok(Err(error))) => tracing::warn!(
                events,
                error = &error as &dyn std::error::Error,
                "notifications not published; the probe will publish them"
            ),
            Ok(Err(defect)) => {
                tracing::error!(error = &defect as &dyn std::error::Error, "a publish was cut short")
            }
            Err(_) => tracing::warn!(
                events,
                after = ?self.config.publish_timeout,
                "notifications not published in time; the probe will publish them"
            ),
        }
        false
    }
}

/// Repeats a transaction that was rolled back because another session holds its object, stream or
/// unique key.
async fn retry_busy<T, F>(events: &[NewEvent], insert: impl Fn() -> F) -> Result<T, StoreError>
where
    F: Future<Output = Result<T, StoreError>>,
{
    let mut tries = 1;
    loop {
        match insert().await {
            Err(error) if is_object_busy(events, &error) && tries < TRIES => tries += 1,
            inserted => return inserted,
        }
    }
}

/// Whether the error is that another session holds an object, a log stream or a unique key of these
/// events.
fn is_object_busy(events: &[NewEvent], error: &StoreError) -> bool {
    let holds = |event: &NewEvent| event.object.is_some() || event.logged.is_some() || event.unique.is_some();
    error.is_contention() && events.iter().any(holds)
}

fn refused(events: &[NewEvent], error: StoreError) -> EmitError {
    if is_object_busy(events, &error) { EmitError::ObjectBusy(error) } else { EmitError::Store(error) }
}

/// An event inserted in a transaction that the caller still has to commit.
#[must_use = "call `notify` after the commit, or the event waits for the probe"]
pub struct Receipt {
    emitted: Emitted,
    notifications: Vec<Notification>,
    queue: Queue,
    event: Arc<NewEvent>,
    inserted: InsertOutcome,
}

impl Receipt {
    /// The event's id.
    pub fn id(&self) -> EventId {
        self.emitted.id
    }

    /// Its link in the chain of its object, if it is on one.
    pub fn link(&self) -> Option<Link> {
        self.emitted.link
    }

    /// What was done, if the event has a unique key.
    pub fn unique(&self) -> Option<UniqueOutcome> {
        self.emitted.unique
    }

    /// Publishes the event's notification. Call it after the commit.
    pub async fn notify(self) -> Emitted {
        self.queue.remember(&self.event, &self.inserted);
        self.queue.sent(std::slice::from_ref(&*self.event));
        let notified = self.queue.wake(self.inserted.due_copies(), &self.notifications).await;
        self.queue.wake_at_left(std::slice::from_ref(&self.inserted)).await;
        Emitted { notified, ..self.emitted }
    }
}

/// How many of the events each handler gets. Consecutive events mostly have the same handler.
fn by_handler(events: &[NewEvent]) -> impl Iterator<Item = (&HandlerScope, u64)> {
    let same = |one: &NewEvent, other: &NewEvent| one.address.scope == other.address.scope;
    let groups = events.chunk_by(same);
    groups.filter_map(|group| {
        let count = u64::try_from(group.len()).unwrap_or(u64::MAX);
        group.first().map(|event| (&event.address.scope, count))
    })
}

/// What is known of an event that was emitted, before its notifications.
fn emitted(event: &NewEvent, inserted: &InsertOutcome) -> Emitted {
    let copies = u32::try_from(inserted.copies().len()).unwrap_or(u32::MAX);
    let (id, duplicate, unique) = match inserted {
        InsertOutcome::New { .. } => {
            (event.id, false, event.unique.as_ref().map(|_| UniqueOutcome::Inserted))
        }
        InsertOutcome::Known => (event.id, true, None),
        InsertOutcome::Stands { id, outcome, .. } => (*id, false, Some(*outcome)),
    };
    Emitted { id, duplicate, link: inserted.link(), copies, notified: false, unique }
}

fn outcome(event: &NewEvent, inserted: &InsertOutcome) -> (Emitted, Vec<Notification>) {
    let canvas = event.address.scope.canvas;
    let own = if let InsertOutcome::Stands { id, .. } = inserted { *id } else { event.id };
    let due: Vec<EventId> = match inserted {
        InsertOutcome::New { due_soon: true, .. } => {
            let own = (!event.only_queues).then_some(&event.id);
            own.into_iter().chain(inserted.notified_copies()).copied().collect()
        }
        InsertOutcome::Stands { id, due_soon: true, .. } => vec![*id],
        InsertOutcome::New { due_soon: false, .. }
        | InsertOutcome::Stands { due_soon: false, .. }
        | InsertOutcome::Known => Vec::new(),
    };
    // Copies have no options, so they are not urgent.
    let is_urgent = |id: EventId| id == own && event.is_urgent();
    let told = due.into_iter().map(|id| Notification::new(id, canvas).urgent_if(is_urgent(id)));
    (emitted(event, inserted), told.collect())
}
