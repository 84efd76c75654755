//! Entities, directly on the database.

use std::sync::Arc;

use super::Database;
use crate::api::{Entity, EntityProgress, EntitySummary, List, NewEntityEvent, SentToEntity};
use crate::cli::arguments::Page;
use crate::cli::failure::Failure;
use wakeq::notify::{NoNotifier, Notifier};
use wakeq::{EventId, Queue, QueueConfig};
use wakeq_streams::entities::EntityCursor;
use wakeq_streams::{Entities, EntityError, EntityId, EntityType};

impl Database {
    pub(in crate::cli::backend) async fn list_entities(
        &self,
        entity_type: &EntityType,
        page: Page,
    ) -> anyhow::Result<List<EntitySummary>> {
        let after = page.cursor.as_deref().map(str::parse::<EntityCursor>).transpose();
        let after = after.map_err(EntityError::Cursor)?;
        let entities = self.entities(Arc::new(NoNotifier));
        Ok(entities.list(self.canvas, entity_type, after.as_ref(), page.limit).await?.into())
    }

    pub(in crate::cli::backend) async fn entity(&self, entity: &EntityId) -> anyhow::Result<Entity> {
        let entity = EntityId { canvas: self.canvas, ..entity.clone() };
        let shown = self.entities(Arc::new(NoNotifier)).show(&entity).await?;
        let words = || {
            Failure::NotFound(format!(
                "there is no entity {entity} on canvas {}: no event of it was stored",
                self.canvas
            ))
        };
        Ok(shown.ok_or_else(words)?.into())
    }

    pub(in crate::cli::backend) async fn send_to_entity(
        &self,
        entity: &EntityId,
        event: NewEntityEvent,
    ) -> anyhow::Result<SentToEntity> {
        let entity = EntityId { canvas: self.canvas, ..entity.clone() };
        let sent = self.entities(self.notifier.connect().await?).send(&entity, event.read()?).await?;
        Ok(sent.into())
    }

    pub(in crate::cli::backend) async fn erase_entity(
        &self,
        entity: &EntityId,
        id: Option<EventId>,
    ) -> anyhow::Result<SentToEntity> {
        let entity = EntityId { canvas: self.canvas, ..entity.clone() };
        let entities = self.entities(self.notifier.connect().await?);
        Ok(entities.erase(&entity, id, &self.actor).await?.into())
    }

    pub(in crate::cli::backend) async fn entity_status(&self, id: EventId) -> anyhow::Result<EntityProgress> {
        let progress = self.entities(Arc::new(NoNotifier)).status(self.canvas, id.0).await?;
        let words = || {
            let canvas = self.canvas;
            Failure::NotFound(format!(
                "{id} is unknown on canvas {canvas}: it was never sent, or was sent too long ago"
            ))
        };
        Ok(progress.ok_or_else(words)?.into())
    }

    fn entities(&self, notifier: Arc<dyn Notifier>) -> Entities {
        Entities::new(Queue::new(self.store.clone(), notifier, QueueConfig::default()))
    }
}
