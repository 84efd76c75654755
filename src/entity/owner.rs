//! What the owner of a type does: warm up, then read the inbox, have it worked, commit, and only then answer; until it is told to
//! end, or finds that the inbox is another's.

use std::sync::Arc;
use std::time::Duration;

use tokio::sync::{RwLock, watch};
use tokio_util::sync::CancellationToken;

use super::actors::Actors;
use super::batch::batch;
use super::config::EntityConfig;
use super::define::Entity;
use super::envelope::Received;
use super::shard::{Broken, Worked};
use super::warm::{ColdError, Warm, warm_up};
use crate::consumer::{ConsumerError, EventProvider, Health};
use crate::emit::Queue;
use crate::event::{EntityId, EntityType, EventSource, Name};
use crate::store::{BatchEnd, PositionMove, Recorded, Store, StoreError, lacks_partition};

/// How long after a failure it is tried again; doubled each time, up to the poll interval.
const FIRST_WAIT: Duration = Duration::from_millis(50);
/// How soon it is looked again for what an open transaction holds back; doubled each time, up to the poll interval.
const FIRST_HELD: Duration = Duration::from_millis(5);
/// How far the position may stay behind what was looked through, when none of it was for this type: in numbers of the log.
const IDLE_MOVE: i64 = 10_000;

/// What a processor works with.
pub(super) struct Parts<E: Entity> {
    pub(super) entity_type: EntityType,
    pub(super) group: Name,
    pub(super) source: EventSource,
    pub(super) store: Store,
    pub(super) queue: Queue,
    pub(super) provider: Arc<dyn EventProvider>,
    pub(super) actors: Arc<Actors<E>>,
    pub(super) config: EntityConfig,
    pub(super) health: watch::Sender<Health>,
    pub(super) ready: watch::Sender<Option<Warm>>,
    /// Held from before a commit until memory has followed it: whoever reads after an answer sees what was answered.
    pub(super) committing: RwLock<()>,
}

/// Why it goes no further.
enum Halt {
    /// The database or the provider gave no answer: tried again.
    Away(&'static str, Box<dyn std::error::Error + Send + Sync>),
    /// The inbox is another's.
    Fenced,
    /// It was told to end.
    Withdrawn,
    /// Somebody has to do something first.
    Broken(Broken),
}

impl From<StoreError> for Halt {
    fn from(error: StoreError) -> Self {
        if error.is_data() && !lacks_partition(&error) {
            // What is refused once is refused for ever.
            let why = std::error::Error::source(&error).map(ToString::to_string).unwrap_or_default();
            return Self::Broken(Broken(format!("{error}: {why}")));
        }
        Self::Away("the database", Box::new(error))
    }
}

impl From<Broken> for Halt {
    fn from(broken: Broken) -> Self {
        Self::Broken(broken)
    }
}

impl From<ConsumerError> for Halt {
    fn from(error: ConsumerError) -> Self {
        match error {
            ConsumerError::Fenced { .. } => Self::Fenced,
            error @ ConsumerError::Unavailable { .. } => Self::Away("the log", Box::new(error)),
        }
    }
}

impl From<ColdError> for Halt {
    fn from(error: ColdError) -> Self {
        match error {
            ColdError::Store(error) => error.into(),
            ColdError::Broken(broken) => broken.into(),
        }
    }
}

/// The inbox of a type, under one epoch.
pub(super) struct Owner<E: Entity> {
    parts: Arc<Parts<E>>,
    epoch: i64,
    cancel: CancellationToken,
    /// Where the position stands; none, before it was opened, or when that is not certain.
    committed: Option<i64>,
    /// Where it stood last, as far as is known.
    stood: i64,
    /// Up to where the inbox was looked through.
    looked: i64,
    /// Whether what is in memory is what the repository says.
    warm: bool,
}

impl<E: Entity> Owner<E> {
    pub(super) fn new(parts: Arc<Parts<E>>, epoch: i64, cancel: CancellationToken) -> Self {
        Self { parts, epoch, cancel, committed: None, stood: 0, looked: 0, warm: false }
    }

    /// Owns the inbox until it is told to end, or must; then nothing is kept in memory.
    pub(super) async fn run(mut self) {
        let mut grown = self.parts.provider.watch(&self.parts.source);
        let (mut wait, mut held_wait) = (FIRST_WAIT, FIRST_HELD);
        loop {
            // What is appended from here on is seen below, or changes this again.
            grown.mark_unchanged();
            let pause = match self.process_all().await {
                Ok(held) => {
                    wait = FIRST_WAIT;
                    self.is(Health::Healthy);
                    held_wait = if held { self.doubled(held_wait) } else { FIRST_HELD };
                    if held { held_wait } else { self.parts.config.poll_interval }
                }
                Err(Halt::Away(who, error)) => {
                    tracing::warn!(
                        entity_type = E::TYPE,
                        error = &*error as &dyn std::error::Error,
                        "{who} gave no answer to a processor of entities; tried again"
                    );
                    wait = self.doubled(wait);
                    wait
                }
                Err(Halt::Withdrawn) => break,
                Err(Halt::Fenced) => {
                    tracing::warn!(
                        entity_type = E::TYPE,
                        epoch = self.epoch,
                        "the inbox is another's by now; its entities are forgotten here"
                    );
                    break;
                }
                Err(Halt::Broken(broken)) => {
                    tracing::error!(
                        entity_type = E::TYPE,
                        error = &broken as &dyn std::error::Error,
                        "a processor of entities can't go on"
                    );
                    self.is(Health::Unhealthy(broken.to_string()));
                    break;
                }
            };
            let changed = async {
                if grown.changed().await.is_err() {
                    std::future::pending::<()>().await;
                }
            };
            tokio::select! {
                biased;
                () = self.cancel.cancelled() => break,
                () = tokio::time::sleep(pause) => {}
                () = changed => {}
            }
        }
        self.forget();
    }

    fn doubled(&self, wait: Duration) -> Duration {
        wait.saturating_mul(2).min(self.parts.config.poll_interval.max(FIRST_WAIT))
    }

    fn is(&self, health: Health) {
        self.parts.health.send_if_modified(|known| {
            let changes = *known != health;
            *known = health;
            changes
        });
    }

    fn forget(&mut self) {
        self.warm = false;
        self.parts.ready.send_replace(None);
        // Without waiting: an actor may be in the midst of an event, of which nothing is kept.
        self.parts.actors.tell_all(|shard| shard.forget());
    }

    /// Processes what is in the inbox; whether more of it is held back.
    async fn process_all(&mut self) -> Result<bool, Halt> {
        self.settle().await?;
        loop {
            if self.cancel.is_cancelled() {
                return Err(Halt::Withdrawn);
            }
            let read = self.parts.provider.read(&self.parts.source, self.looked, self.parts.config.batch);
            let page = read.await?;
            let (through, more, held) = (page.through, page.more, page.held);
            let events: Vec<Received> = page.events.into_iter().map(Received::of).collect();
            let mut rest = events.as_slice();
            while !rest.is_empty() {
                let part = first_part(rest);
                rest = &rest[part.len()..];
                let to = if rest.is_empty() { through } else { part.last().map_or(through, |last| last.seq) };
                self.process(part, to).await?;
            }
            self.looked = self.looked.max(through);
            self.catch_up().await?;
            if !more {
                return Ok(held);
            }
        }
    }

    /// Opens the position, and has the entities in memory.
    async fn settle(&mut self) -> Result<(), Halt> {
        if self.committed.is_none() {
            let Parts { store, group, source, .. } = &*self.parts;
            // From here on whoever had it before commits nothing more; what it did commit is what is read below.
            let position = store.open_position(group, source, self.epoch).await?.ok_or(Halt::Fenced)?;
            if self.warm && position != self.stood {
                // The answer to a commit got lost that was carried out: what is in memory is older.
                self.forget();
            }
            (self.committed, self.stood, self.looked) = (Some(position), position, position);
        }
        if !self.warm {
            let Parts { store, actors, entity_type, config, .. } = &*self.parts;
            actors.ask_all(|shard| shard.forget()).await?;
            store.pin_repository(entity_type).await?;
            let warm = warm_up(store, actors, entity_type, config.memory_limit_bytes).await?;
            tracing::info!(
                entity_type = E::TYPE,
                epoch = self.epoch,
                entities = warm.entities,
                replayed = warm.replayed,
                "the entities are in memory"
            );
            self.warm = true;
            self.parts.ready.send_replace(Some(warm));
        }
        Ok(())
    }

    /// Has a part of the inbox worked and committed: all of it, or nothing.
    async fn process(&mut self, events: &[Received], to: i64) -> Result<(), Halt> {
        let parts = Arc::clone(&self.parts);
        let recorded = self.recorded(events).await?;
        let stored = recorded.as_ref().is_some_and(|recorded| recorded.stored);
        let worked = self.work(events, stored).await?;
        let from = self.committed.unwrap_or_default();
        let position =
            PositionMove { group: &parts.group, source: &parts.source, epoch: self.epoch, from, to };
        let batch =
            batch::<E>(&parts.entity_type, position, events, worked, recorded.as_ref(), &parts.queue)?;
        if self.cancel.is_cancelled() {
            return Err(Halt::Withdrawn);
        }
        let _committing = parts.committing.write().await;
        // The position says what came of it, if the answer gets lost.
        self.committed = None;
        let ended = parts.store.commit_entities(&batch).await;
        if let Ok(BatchEnd::Committed(inserted)) = ended {
            crate::fault::point("entity.committed");
            (self.committed, self.stood, self.looked) = (Some(to), to, to);
            parts.actors.ask_all(|shard| shard.commit()).await?;
            parts.queue.announce_inserted(batch.events, inserted);
            return Ok(());
        }
        parts.actors.ask_all(|shard| shard.roll_back()).await?;
        match ended? {
            BatchEnd::Committed(_) => Ok(()),
            BatchEnd::Refused => Err(self.refused().await),
            BatchEnd::Stranger(entity) => Err(Halt::Broken(Broken(format!(
                "somebody else has appended to the repository of {}/{entity}: nobody but its processor may",
                E::TYPE
            )))),
        }
    }

    /// What it means that a commit was refused.
    async fn refused(&self) -> Halt {
        let Parts { store, group, source, .. } = &*self.parts;
        match store.position_epoch(group, source).await {
            Ok(epoch) if epoch == self.epoch => {
                // Somebody has moved it, or the answer to an earlier commit got lost: it is opened again.
                let moved = std::io::Error::other("the position was moved");
                Halt::Away("the position", Box::new(moved))
            }
            Ok(_) => Halt::Fenced,
            Err(error) => error.into(),
        }
    }

    /// Has the actors work, `stored` says whether an event that was sent before is in the repository; they may be waited for no longer than until it is told to end: nothing of it is done before the
    /// commit.
    async fn work(&self, events: &[Received], stored: bool) -> Result<Worked, Halt> {
        let stall = self.parts.config.stall;
        let working = self.parts.actors.work(events, stored);
        tokio::pin!(working);
        loop {
            tokio::select! {
                biased;
                worked = &mut working => return Ok(worked?),
                () = self.cancel.cancelled() => return Err(Halt::Withdrawn),
                () = tokio::time::sleep(stall) => {
                    let why = format!("validate and apply of {} hold up a batch for more than {stall:?}", E::TYPE);
                    tracing::error!(entity_type = E::TYPE, "{why}");
                    self.is(Health::Unhealthy(why));
                }
            }
        }
    }

    /// What is known of an event that was sent before; it is alone in its batch.
    async fn recorded(&self, events: &[Received]) -> Result<Option<Recorded>, Halt> {
        let [event] = events else { return Ok(None) };
        if !event.is_repost() {
            return Ok(None);
        }
        let (canvas, id) = (event.canvas, event.entity.clone());
        let entity = EntityId { canvas, entity_type: self.parts.entity_type.clone(), id };
        Ok(Some(self.parts.store.entity_recorded(&entity, event.id).await?))
    }

    /// Moves the position over what was not for this type, now and then.
    async fn catch_up(&mut self) -> Result<(), Halt> {
        let Some(from) = self.committed.filter(|from| *from + IDLE_MOVE <= self.looked) else {
            return Ok(());
        };
        let Parts { store, group, source, .. } = &*self.parts;
        let to = PositionMove { group, source, epoch: self.epoch, from, to: self.looked };
        if store.move_position(&to).await? {
            (self.committed, self.stood) = (Some(self.looked), self.looked);
            return Ok(());
        }
        self.committed = None;
        Err(self.refused().await)
    }
}

/// What is one batch of a page: events that were not sent before, or a single one that was.
fn first_part(events: &[Received]) -> &[Received] {
    let fresh = events.iter().take_while(|event| !event.is_repost()).count();
    &events[..fresh.max(1)]
}
