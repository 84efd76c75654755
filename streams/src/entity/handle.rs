//! Entities from outside: events are sent to them, and their progress can be asked for.

use std::collections::BTreeMap;
use std::time::Duration;

use sqlx::postgres::PgConnection;
use tokio::time::Instant;
use uuid::Uuid;

use super::asked::Question;
use super::event::EntityEvent;
use crate::event::{EntityId, EntityStatus, EntityType, InvalidEntityId};
use crate::store::{
    EntityEventStatus, EntityQuestion, InvalidEntityCursor, SendEnd, SentEntityEvent, Store, StoredEntity,
    ToEntity, send_to_entities,
};
use wakeq::internals::{Additions, stable_hash};
use wakeq::listeners::Signal;
use wakeq::machine::Link;
use wakeq::{Actor, CanvasId, EventError, EventId, Queue, StoreError};

/// Maximum number of events per call.
const EVENTS_MAX: usize = 1000;
/// How long a send that conflicts with other senders to the same entities is tried again: this many
/// lock timeouts, 10 s by default.
const TRIED_FOR: u32 = 50;
/// Longest pause between two tries; each is a random part of it, so that senders that conflicted do
/// not conflict again.
const REST: Duration = Duration::from_millis(50);

/// Sends events to entities, and tells their outcome; in any process. Cheap to clone.
///
/// ```no_run
/// # async fn example(queue: wakeq::Queue) -> Result<(), Box<dyn std::error::Error>> {
/// use wakeq::CanvasId;
/// use wakeq_streams::{Entities, EntityEvent, EntityId};
///
/// let entities = Entities::new(queue);
/// let account = EntityId::new(CanvasId::DEFAULT, "account", "ada")?;
/// let sent = entities.send(&account, EntityEvent::new("deposit", &500)?).await?;
/// println!("event {}", sent.id);
/// # Ok(())
/// # }
/// ```
#[derive(Clone)]
pub struct Entities {
    queue: Queue,
    pub(super) store: Store,
}

/// An event that is in an entity's inbox.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct SentToEntity {
    /// Its id.
    pub id: EventId,
    /// The id that connects it with others.
    pub correlation_id: Uuid,
    /// Its link among the events of the entity; if it was sent before, the first one.
    pub link: Link,
    /// Whether it was sent before.
    pub again: bool,
}

/// Maximum number of events whose outcomes are read at once: each may have a large result.
const PROGRESS_MAX: u32 = 100;

/// The outcome of events, each and together.
#[derive(Clone, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub struct EntityProgress {
    /// Failed if one of them has failed, otherwise the status of the one that has come least far.
    pub status: EntityStatus,
    /// The events, in the order in which they were sent; at most 100.
    pub events: Vec<EntityEventStatus>,
    /// The link after which more of them follow, for [`Entities::status_after`]; `None` at the end.
    /// The status is that of these events alone.
    pub next: Option<i64>,
}

/// Why nothing was sent, or no answer can be given.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum EntityError {
    /// The event itself can't be sent.
    #[error(transparent)]
    Event(#[from] EventError),
    /// No such entity can exist.
    #[error(transparent)]
    Entity(#[from] InvalidEntityId),
    /// Postgres refused it or did not answer, or a quota of the canvas is used up. After
    /// [`StoreError::TimedOut`] and [`StoreError::Unavailable`] the event may have been sent
    /// nevertheless: send it again. It counts only once if its id is of your choice, from the first
    /// time on.
    #[error(transparent)]
    Store(#[from] StoreError),
    /// Others keep sending to the same entities, or a transaction that has sent to them stays open.
    /// Nothing was sent.
    #[error(
        "nothing was sent, since others were sending to one of these entities for {0:?}: send it \
         again; if many callers send to one entity, send several events in one call, and keep \
         transactions with `send_in` short"
    )]
    Busy(Duration, #[source] StoreError),
    /// The chosen id belongs to an event of another entity, or to an erasure where this is none, or
    /// occurs twice in one call.
    #[error(
        "the id {0} belongs to an event that was sent to another entity, or to an erasure, or \
         occurs twice in one call: choose another one"
    )]
    Taken(EventId),
    /// An answer to a question that was not asked: the event was not emitted by this entity on the
    /// canvas of the execution, or its value was made up.
    #[error(
        "the event {asking} is not a question of the entity {entity}, whatever its value says: only \
         an event that an entity emitted as a question can be answered, and only by its own \
         handler; to send the entity anything else, send it an event"
    )]
    NotAsked {
        /// The event that was to be answered.
        asking: EventId,
        /// The entity that its value names, on the canvas of the event.
        entity: Box<EntityId>,
    },
    /// It is not a cursor, or is the cursor of another type's list.
    #[error(transparent)]
    Cursor(#[from] InvalidEntityCursor),
    /// More events than one call may send.
    #[error("{0} events in one call, the limit is {EVENTS_MAX}: send them in several calls")]
    TooMany(usize),
}

/// A receipt for events that were sent in a transaction that the caller still has to commit.
#[must_use = "call `notify` after the commit, or the events wait for the processor's next poll"]
pub struct SendReceipt {
    entities: Entities,
    to: Vec<ToEntity>,
    /// The events that were sent.
    pub sent: Vec<SentToEntity>,
}

impl SendReceipt {
    /// Signals the processors. Call it after the commit.
    pub fn notify(self) -> Vec<SentToEntity> {
        self.entities.signal(&self.to);
        self.sent
    }
}

impl Entities {
    /// Entities of the queue's database.
    pub fn new(queue: Queue) -> Self {
        Self { store: Store::from(queue.store()), queue }
    }

    /// Sends an event to an entity, which need not exist yet: when this returns, the event is in
    /// the inbox. One that was sent before, with an id of the sender's choice, is appended again
    /// with its first link, and is not applied twice.
    pub async fn send(&self, entity: &EntityId, event: EntityEvent) -> Result<SentToEntity, EntityError> {
        let mut sent = self.send_all(vec![(entity.clone(), event)]).await?;
        sent.pop().ok_or(EntityError::Store(StoreError::Defect))
    }

    /// Sends up to 1,000 events in one transaction: all or none.
    pub async fn send_all(
        &self,
        events: Vec<(EntityId, EntityEvent)>,
    ) -> Result<Vec<SentToEntity>, EntityError> {
        let to = self.checked(events)?;
        self.admit(self.queue.store(), &to).await?;
        self.sent(&to, None).await
    }

    async fn sent(
        &self,
        to: &[ToEntity],
        question: Option<&EntityQuestion<'_>>,
    ) -> Result<Vec<SentToEntity>, EntityError> {
        let end = self.patiently(|| self.store.send_to_entities(to, question)).await?;
        let sent = match (end, question) {
            (SendEnd::NotAsked, Some(question)) => return Err(not_asked(question)),
            (end, _) => outcome(to, end)?,
        };
        self.signal(to);
        Ok(sent)
    }

    /// Repeats a send that conflicted with other senders to the same entities, and so was rolled
    /// back.
    async fn patiently<F>(&self, send: impl Fn() -> F) -> Result<SendEnd, EntityError>
    where
        F: Future<Output = Result<SendEnd, StoreError>>,
    {
        let (begun, limit) = (Instant::now(), self.store.lock_timeout() * TRIED_FOR);
        loop {
            match send().await {
                Err(error) if error.is_contention() && begun.elapsed() >= limit => {
                    return Err(EntityError::Busy(limit, error));
                }
                Err(error) if error.is_contention() => {
                    let part = u32::from(Uuid::new_v4().as_bytes()[0]);
                    tokio::time::sleep(REST * part / 256).await;
                }
                end => return Ok(end?),
            }
        }
    }

    /// Sends an erasure; the audit log names the actor. It is exempt from quotas, because it frees
    /// space.
    pub(super) async fn sent_erasure(
        &self,
        to: ToEntity,
        actor: &Actor,
    ) -> Result<SentToEntity, EntityError> {
        if to.entity.canvas.is_reserved() {
            return Err(EventError::ReservedCanvas.into());
        }
        let end = self.patiently(|| self.store.send_erasure(&to, actor)).await?;
        let to = [to];
        let mut sent = outcome(&to, end)?;
        self.signal(&to);
        sent.pop().ok_or(EntityError::Store(StoreError::Defect))
    }

    /// Sends events inside the caller's own transaction. Call [`SendReceipt::notify`] after the
    /// commit; after an error the transaction must be rolled back. Keep it short: other senders to
    /// the same entities wait for its end.
    pub async fn send_in(
        &self,
        connection: &mut PgConnection,
        events: Vec<(EntityId, EntityEvent)>,
    ) -> Result<SendReceipt, EntityError> {
        let to = self.checked(events)?;
        self.admit(&self.queue.store().beside_transactions(), &to).await?;
        let end = send_to_entities(connection, &to).await;
        let end = end.map_err(|error| StoreError::from_sqlx("send to entities", error))?;
        let sent = outcome(&to, end)?;
        Ok(SendReceipt { entities: self.clone(), to, sent })
    }

    /// Answers an entity that has asked for something outside, from the handler of the question:
    /// sends it an event with the correlation id of the question. However often the handler runs,
    /// the entity gets the answer once.
    ///
    /// The transaction of the send checks, on the canvas of the execution, that this entity has
    /// asked this because of this event. The record of that is kept as long as the question waits,
    /// runs, or is among the dead events.
    ///
    /// ```no_run
    /// # use wakeq::{Execution, HandlerResult};
    /// # use wakeq_streams::{Asked, Entities, EntityEvent};
    /// async fn charge(entities: Entities, execution: Execution) -> HandlerResult {
    ///     let asked = execution.asked::<u32>()?;
    ///     entities.verify(&asked).await?;
    ///     // … charge the card of `asked.entity()` with `asked.value()` …
    ///     entities.answer(&asked, EntityEvent::new("charged", asked.value())?).await?;
    ///     Ok(())
    /// }
    /// ```
    ///
    /// Errors: [`EntityError::NotAsked`] for an event that was emitted by anyone else, whatever its
    /// value says; nothing was sent then.
    pub async fn answer<T>(
        &self,
        asked: &Question<T>,
        event: EntityEvent,
    ) -> Result<SentToEntity, EntityError> {
        let event = event.answering(answer_id(asked.asking()), asked.correlation_id());
        let to = self.checked(vec![(asked.entity().clone(), event)])?;
        let mut sent = self.sent(&to, Some(&asked.question())).await?;
        sent.pop().ok_or(EntityError::Store(StoreError::Defect))
    }

    /// Checks that the entity has asked this, before its handler does what can't be undone: anyone
    /// who may emit on a canvas can emit an event that looks like a question.
    /// [`answer`](Self::answer) checks it again.
    ///
    /// Errors: [`EntityError::NotAsked`].
    pub async fn verify<T>(&self, asked: &Question<T>) -> Result<(), EntityError> {
        let question = asked.question();
        if self.store.was_asked(&question).await? { Ok(()) } else { Err(not_asked(&question)) }
    }

    /// An entity as it was committed; `None` if no event of it was ever stored.
    pub async fn show(&self, entity: &EntityId) -> Result<Option<StoredEntity>, EntityError> {
        Ok(self.store.entity(entity).await?)
    }

    /// The outcome of an event, by its id, or of the events with a correlation id, the first 100 of
    /// them. `None` if there are none, or they are no longer remembered.
    pub async fn status(&self, canvas: CanvasId, id: Uuid) -> Result<Option<EntityProgress>, EntityError> {
        self.status_after(canvas, id, 0, PROGRESS_MAX).await
    }

    /// The same of the events after a link, [`EntityProgress::next`], up to `limit`, 1 to 100.
    pub async fn status_after(
        &self,
        canvas: CanvasId,
        id: Uuid,
        after: i64,
        limit: u32,
    ) -> Result<Option<EntityProgress>, EntityError> {
        let limit = limit.clamp(1, PROGRESS_MAX) as usize;
        let mut events = self.store.entity_events(canvas, id, after, limit as i64 + 1).await?;
        let more = events.len() > limit;
        events.truncate(limit);
        let next = events.last().filter(|_| more).map(|last| last.link.id);
        let status = EntityStatus::of_all(events.iter().map(|event| event.status));
        Ok(status.map(|status| EntityProgress { status, events, next }))
    }

    /// The default canvas of the queue: that of events that name none.
    pub fn canvas(&self) -> CanvasId {
        self.queue.canvas()
    }

    /// The tables of the queue.
    #[doc(hidden)]
    pub fn store(&self) -> &wakeq::Store {
        self.queue.store()
    }

    fn checked(&self, events: Vec<(EntityId, EntityEvent)>) -> Result<Vec<ToEntity>, EntityError> {
        if events.len() > EVENTS_MAX {
            return Err(EntityError::TooMany(events.len()));
        }
        if events.iter().any(|(entity, _)| entity.canvas.is_reserved()) {
            return Err(EventError::ReservedCanvas.into());
        }
        let limit = self.queue.payload_limit_bytes();
        let checked = events.into_iter().map(|(entity, event)| event.to(entity, limit));
        Ok(checked.collect::<Result<_, EventError>>()?)
    }

    /// Refuses events that exceed the quotas of their canvas, before anything is written.
    async fn admit(&self, store: &wakeq::Store, to: &[ToEntity]) -> Result<(), StoreError> {
        if !self.queue.has_quotas() {
            return Ok(());
        }
        let mut all: BTreeMap<CanvasId, Additions<'_>> = BTreeMap::new();
        for event in to {
            let EntityId { canvas, entity_type, id } = &event.entity;
            let size_bytes = event.payload.len() + event.metadata.len();
            all.entry(*canvas).or_default().send(entity_type.as_str(), id.as_str(), size_bytes);
        }
        for (canvas, added) in all {
            store.admit(canvas, &added).await?;
        }
        Ok(())
    }

    /// Signals the owners of the inboxes, here and in other processes.
    fn signal(&self, to: &[ToEntity]) {
        let mut types: Vec<&EntityType> = to.iter().map(|to| &to.entity.entity_type).collect();
        types.sort_unstable();
        types.dedup();
        let inboxes = types.into_iter().map(|entity_type| entity_type.inbox().clone());
        inboxes.for_each(|inbox| self.queue.signals().send(Signal::Log(inbox)));
    }
}

fn not_asked(question: &EntityQuestion<'_>) -> EntityError {
    EntityError::NotAsked { asking: question.asking, entity: Box::new(question.entity.clone()) }
}

/// The id of the answer to an event, which is always the same.
fn answer_id(asking: EventId) -> EventId {
    let half = |part: &[u8]| stable_hash(&[b"wakeq.answer", part, asking.0.as_bytes()]);
    let bytes = Uuid::from_u64_pair(half(b"1"), half(b"2")).into_bytes();
    EventId(uuid::Builder::from_random_bytes(bytes).into_uuid())
}

fn outcome(to: &[ToEntity], end: SendEnd) -> Result<Vec<SentToEntity>, EntityError> {
    match end {
        SendEnd::Sent(sent) => Ok(to.iter().zip(sent).map(|(to, sent)| of(to, sent)).collect()),
        SendEnd::Taken(id) => Err(EntityError::Taken(id)),
        // Only an answer ends like this.
        SendEnd::NotAsked => Err(StoreError::Defect.into()),
    }
}

fn of(to: &ToEntity, sent: SentEntityEvent) -> SentToEntity {
    SentToEntity { id: to.id, correlation_id: to.correlation_id, link: sent.link, again: sent.again }
}
