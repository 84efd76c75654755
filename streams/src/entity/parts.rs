//! What a processor of a type works with, and what its parts look up with nothing else. None of the
//! work is done here.

use std::sync::Arc;

use tokio::sync::{RwLock, watch};

use super::actors::Actors;
use super::config::EntityConfig;
use super::define::Entity;
use super::envelope::InboxEvent;
use super::halt::Halt;
use super::warm::{LoadReport, Loader};
use crate::consumer::{EventProvider, Health};
use crate::event::{EntityId, EntityType};
use crate::store::{RecordedOutcome, Store};
use crate::telemetry::EntityMetrics;
use wakeq::log::{EventSource, StreamName};
use wakeq::{CanvasId, Name, Queue};

/// The parts that a processor works with.
pub(super) struct Parts<E: Entity> {
    pub(super) entity_type: EntityType,
    pub(super) group: Name,
    pub(super) source: EventSource,
    pub(super) store: Store,
    pub(super) queue: Queue,
    pub(super) provider: Arc<dyn EventProvider>,
    pub(super) actors: Arc<Actors<E>>,
    /// A single actor, for isolated entities.
    pub(super) isolated_actor: Arc<Actors<E>>,
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

    /// The entity of this type with that id on that canvas.
    pub(super) fn entity_id(&self, canvas: CanvasId, id: &StreamName) -> EntityId {
        EntityId { canvas, entity_type: self.entity_type.clone(), id: id.clone() }
    }

    /// The record of an event that was sent before, and so is a batch of its own.
    pub(super) async fn recorded(&self, events: &[InboxEvent]) -> Result<Option<RecordedOutcome>, Halt> {
        let [event] = events else { return Ok(None) };
        if !event.is_repost() {
            return Ok(None);
        }
        let entity = self.entity_id(event.canvas, &event.entity);
        Ok(Some(self.store.entity_recorded(&entity, event.id, event.link).await?))
    }
}
