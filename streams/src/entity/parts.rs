//! The parts that a processor of a type works with; none of the work is done here.

use std::sync::Arc;

use tokio::sync::{RwLock, watch};

use super::actors::Actors;
use super::config::EntityConfig;
use super::define::Entity;
use super::warm::{LoadReport, Loader};
use crate::consumer::{EventProvider, Health};
use crate::event::EntityType;
use crate::store::Store;
use crate::telemetry::EntityMetrics;
use wakeq::log::EventSource;
use wakeq::{Name, Queue};

/// The parts that a processor works with.
pub(super) struct Parts<E: Entity> {
    pub(super) entity_type: EntityType,
    pub(super) group: Name,
    pub(super) source: EventSource,
    pub(super) store: Store,
    pub(super) queue: Queue,
    pub(super) provider: Arc<dyn EventProvider>,
    pub(super) actors: Arc<Actors<E>>,
    /// A single actor, for the entities that are set aside.
    pub(super) aside_actor: Arc<Actors<E>>,
    pub(super) config: EntityConfig,
    pub(super) metrics: EntityMetrics,
    pub(super) health: watch::Sender<Health>,
    pub(super) ready: watch::Sender<Option<LoadReport>>,
    /// Held from before a commit until memory has followed it: a reader that has seen an answer
    /// also sees its effect.
    pub(super) committing: RwLock<()>,
}

impl<E: Entity> Parts<E> {
    pub(super) fn loader(&self) -> Loader<'_, E> {
        let Self { store, actors, entity_type, config, .. } = self;
        Loader { store, actors, entity_type, page_bytes: config.batch_bytes, stall: config.stall }
    }
}
