//! The processor of a type: a subscriber of its inbox.

use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use async_trait::async_trait;
use tokio::sync::{RwLock, watch};
use tokio::task::JoinError;
use tokio_util::sync::CancellationToken;

use super::actors::Actors;
use super::cache::Key;
use super::config::EntityConfig;
use super::define::Entity;
use super::owner::Owner;
use super::parts::Parts;
use super::run::{AROUND_BYTES, Limits};
use super::shard::CacheLookup;
use super::warm::LoadReport;
use crate::consumer::{EventProvider, EventSubscriber, Health, Running};
use crate::event::{EntityType, InvalidEntityType, SubscriberId};
use crate::store::Store;
use crate::telemetry::EntityMetrics;
use wakeq::log::EventSource;
use wakeq::{CanvasId, Name, Queue};

/// Why a processor could not be made.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum InvalidProcessor {
    /// The name of its type is not valid.
    #[error(transparent)]
    Type(#[from] InvalidEntityType),
    /// Its configuration is not valid.
    #[error("{0}")]
    Config(&'static str),
    /// Its threads could not be started.
    #[error("the threads of its actors could not be started")]
    Threads(#[source] std::io::Error),
}

/// Processes the entities of one type.
///
/// Of all processors of a type in a cluster, one at a time owns its inbox and works: a broker
/// chooses it, and an epoch keeps any other from committing.
///
/// ```no_run
/// # use std::sync::Arc;
/// # use wakeq::Queue;
/// # use wakeq_streams::{Entity, EntityConfig, EntityProcessor, EventProvider};
/// # fn example<Account: Entity>(queue: Queue, log: Arc<dyn EventProvider>) -> Result<(), Box<dyn std::error::Error>> {
/// let accounts = EntityProcessor::<Account>::new(queue, log, EntityConfig::default())?;
/// # Ok(())
/// # }
/// ```
pub struct EntityProcessor<E: Entity> {
    parts: Arc<Parts<E>>,
    id: SubscriberId,
    running: Mutex<Option<Running>>,
}

impl<E: Entity> EntityProcessor<E> {
    /// A processor that reads from this provider and emits follow-ups with this queue. It does
    /// nothing until it is given its inbox.
    pub fn new(
        queue: Queue,
        provider: Arc<dyn EventProvider>,
        config: EntityConfig,
    ) -> Result<Self, InvalidProcessor> {
        config.check().map_err(InvalidProcessor::Config)?;
        if queue.payload_limit_bytes() <= AROUND_BYTES {
            return Err(InvalidProcessor::Config(
                "the queue's payload limit leaves no room for answers: it must be more than 6 KiB",
            ));
        }
        let entity_type: EntityType = E::TYPE.parse()?;
        let invalid = |_| InvalidProcessor::Config("the type's name is not a valid group name");
        let group: Name = group_of(&entity_type).parse().map_err(invalid)?;
        let limits = Limits {
            snapshot_every: i64::from(config.snapshot_every),
            state_bytes: config.state_limit_bytes,
            payload_bytes: queue.payload_limit_bytes(),
            attempts: config.attempts,
            memory_bytes: config.memory_limit_bytes / config.actors,
        };
        let actors = Actors::start(config.actors, limits).map_err(InvalidProcessor::Threads)?;
        let isolated_actor = Actors::start(1, limits).map_err(InvalidProcessor::Threads)?;
        let parts = Parts {
            group,
            source: entity_type.source(),
            entity_type,
            store: Store::from(queue.store()),
            metrics: EntityMetrics::new(E::TYPE),
            queue,
            provider,
            actors: Arc::new(actors),
            isolated_actor: Arc::new(isolated_actor),
            config,
            health: watch::Sender::new(Health::Healthy),
            ready: watch::Sender::new(None),
            committing: RwLock::default(),
        };
        Ok(Self { parts: Arc::new(parts), id: SubscriberId::new(), running: Mutex::default() })
    }

    /// The type.
    pub fn entity_type(&self) -> &EntityType {
        &self.parts.entity_type
    }

    /// Returns once it owns the inbox and has its entities in memory, as far as they fit: how many
    /// those are, and how many events were replayed because they are in no snapshot.
    pub async fn ready(&self) -> (usize, u64) {
        let mut ready = self.parts.ready.subscribe();
        // The sender lives as long as `self`.
        match ready.wait_for(Option::is_some).await.ok().and_then(|warm| *warm) {
            Some(LoadReport { entities, replayed }) => (entities, replayed),
            None => (0, 0),
        }
    }

    /// Whether it owns the inbox and has its entities in memory.
    pub fn is_ready(&self) -> bool {
        self.parts.ready.borrow().is_some()
    }

    /// The state and the version of an entity as of the last commit: from memory or, if it was
    /// evicted, rebuilt from what is stored. `None` if the entity does not exist, if this processor
    /// does not own the type, or if the database does not answer.
    /// [`Entities::show`](crate::Entities::show) asks the database, from any process.
    pub async fn state(&self, canvas: CanvasId, id: &str) -> Option<(E::State, i64)> {
        let key = Key { canvas, id: id.parse().ok()? };
        let actor = self.parts.actors.of(&key);
        let _committed = self.parts.committing.read().await;
        if !self.is_ready() {
            return None;
        }
        let at = key.clone();
        match self.parts.actors.ask(actor, move |shard| shard.read(&at)).await.ok()? {
            CacheLookup::Cached(state, version) => Some((state, version)),
            CacheLookup::Absent => None,
            CacheLookup::Cold => self.parts.loader().show(&key).await.unwrap_or_else(|error| {
                tracing::warn!(entity_type = E::TYPE, %canvas, entity = %key.id, error = &error as &dyn std::error::Error,
                    "an entity that is not in memory can't be read");
                None
            }),
        }
    }

    /// The index of an entity's actor: the same after every start, and in every processor with as
    /// many actors. `None` if this can't be the name of an entity.
    pub fn actor_of(&self, canvas: CanvasId, id: &str) -> Option<usize> {
        Some(self.parts.actors.of(&Key { canvas, id: id.parse().ok()? }))
    }

    /// How many entities are in memory, and their estimated size in bytes, as of the last commit:
    /// a caller who has seen that an event is done also sees that what did not fit any more has
    /// left. While a batch is processed, the entities that were loaded for it come on top.
    pub async fn size(&self) -> (usize, usize) {
        let _committed = self.parts.committing.read().await;
        let sizes = self.parts.actors.ask_all(|shard| shard.size()).await.unwrap_or_default();
        sizes
            .into_iter()
            .fold((0, 0), |(entities, bytes), size| (entities + size.entities, bytes + size.bytes))
    }

    /// Makes a processor that stopped at a failure healthy again, and restarts it if it still has
    /// its inbox.
    pub fn recover(&self) {
        let stopped = {
            let mut running = self.running();
            running.take_if(|one| one.is_over()).map(|one| one.epoch)
        };
        self.parts.health.send_replace(Health::Healthy);
        if let Some(epoch) = stopped {
            self.accept(self.parts.source.clone(), epoch);
        }
    }

    fn running(&self) -> MutexGuard<'_, Option<Running>> {
        // No code panics half-way under this lock, so what a poisoned lock guards is consistent.
        self.running.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

/// An owner that panicked no longer owns anything: another processor should get the type.
fn cut_short<E: Entity>(parts: &Parts<E>, defect: &JoinError) {
    tracing::error!(
        error = defect as &dyn std::error::Error,
        entity_type = E::TYPE,
        "a processor of entities was cut short"
    );
    parts.ready.send_replace(None);
    parts.actors.tell_all(|shard| shard.forget());
    parts
        .health
        .send_replace(Health::Unhealthy(format!("the processor of {} was cut short: {defect}", E::TYPE)));
}

/// The group of a type's processors.
fn group_of(entity_type: &EntityType) -> String {
    format!("entities.{entity_type}")
}

#[async_trait]
impl<E: Entity> EventSubscriber for EntityProcessor<E> {
    fn name(&self) -> &Name {
        &self.parts.group
    }

    fn id(&self) -> SubscriberId {
        self.id
    }

    fn requests(&self) -> Vec<EventSource> {
        vec![self.parts.source.clone()]
    }

    fn accept(&self, source: EventSource, epoch: i64) {
        if source != self.parts.source {
            tracing::error!(entity_type = E::TYPE, %source, "a processor of entities works only on its inbox");
            return;
        }
        let mut running = self.running();
        if running.as_ref().is_some_and(|one| one.continues(epoch)) {
            return;
        }
        self.parts.health.send_replace(Health::Healthy);
        let cancel = CancellationToken::new();
        let owner = Owner::new(Arc::clone(&self.parts), epoch, cancel.clone());
        let parts = Arc::clone(&self.parts);
        let work = async { tokio::spawn(owner.run()).await };
        *running = Some(Running::start(epoch, cancel, work, move |end| match end {
            Ok(None) => {}
            Ok(Some(health)) => drop(parts.health.send_replace(health)),
            Err(defect) => cut_short(&parts, &defect),
        }));
    }

    async fn withdraw(&self, source: &EventSource) {
        if *source != self.parts.source {
            return;
        }
        let Some(Running { cancel, task, .. }) = self.running().take() else { return };
        drop(cancel);
        if let Err(defect) = task.await {
            cut_short(&self.parts, &defect);
        }
    }

    fn health(&self) -> watch::Receiver<Health> {
        self.parts.health.subscribe()
    }

    fn recover(&self) {
        Self::recover(self);
    }
}
