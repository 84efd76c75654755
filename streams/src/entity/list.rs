//! Lists the entities of a type on a canvas, page by page and without their states.

use super::handle::{Entities, EntityError};
use crate::event::EntityType;
use crate::store::{EntityCursor, EntitySummary};
use wakeq::CanvasId;

/// Maximum number of entities per page.
const PAGE_MAX: u32 = 1000;

/// A page of the entities of a type.
#[derive(Clone, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub struct EntityPage {
    /// In the order of their ids, by the database's collation.
    pub entities: Vec<EntitySummary>,
    /// The cursor of the next page; `None` at the end.
    pub next: Option<EntityCursor>,
}

impl Entities {
    /// The types of which a canvas has an entity, by name, after the given one: up to `limit`,
    /// which is clamped to 1 to 1,001.
    ///
    /// ```no_run
    /// # async fn example(entities: wakeq_streams::Entities) -> Result<(), Box<dyn std::error::Error>> {
    /// use wakeq::CanvasId;
    ///
    /// for entity_type in entities.types(CanvasId::DEFAULT, None, 100).await? {
    ///     let page = entities.list(CanvasId::DEFAULT, &entity_type, None, 100).await?;
    ///     println!("{entity_type} has {} entities, or more", page.entities.len());
    /// }
    /// # Ok(())
    /// # }
    /// ```
    pub async fn types(
        &self,
        canvas: CanvasId,
        after: Option<&EntityType>,
        limit: u32,
    ) -> Result<Vec<EntityType>, EntityError> {
        let limit = i64::from(limit.clamp(1, PAGE_MAX + 1));
        Ok(self.store.list_entity_types(canvas, after, limit).await?)
    }

    /// The entities of a type on a canvas, in the order of their ids: up to `limit`, which is
    /// clamped to 1 to 1,000, after this cursor. An entity is listed once an event of it was
    /// stored. One that is created between two pages may be missing.
    ///
    /// ```no_run
    /// # async fn example(entities: wakeq_streams::Entities) -> Result<(), Box<dyn std::error::Error>> {
    /// use wakeq::CanvasId;
    ///
    /// let (accounts, mut after) = ("account".parse()?, None);
    /// loop {
    ///     let page = entities.list(CanvasId::DEFAULT, &accounts, after.as_ref(), 100).await?;
    ///     for account in &page.entities {
    ///         println!("{} is at version {}", account.id, account.version);
    ///     }
    ///     let Some(next) = page.next else { break };
    ///     after = Some(next);
    /// }
    /// # Ok(())
    /// # }
    /// ```
    ///
    /// Errors: [`EntityError::Cursor`] for the cursor of another type's list.
    pub async fn list(
        &self,
        canvas: CanvasId,
        entity_type: &EntityType,
        after: Option<&EntityCursor>,
        limit: u32,
    ) -> Result<EntityPage, EntityError> {
        if let Some(after) = after
            && after.entity_type != *entity_type
        {
            return Err(EntityError::Cursor(crate::store::InvalidEntityCursor));
        }
        let limit = limit.clamp(1, PAGE_MAX);
        let after = after.map(|after| &after.id);
        let mut entities = self.store.list_entities(canvas, entity_type, after, i64::from(limit) + 1).await?;
        let more = entities.len() > limit as usize;
        entities.truncate(limit as usize);
        let cursor =
            |last: &EntitySummary| EntityCursor { entity_type: entity_type.clone(), id: last.id.id.clone() };
        let next = entities.last().filter(|_| more).map(cursor);
        Ok(EntityPage { entities, next })
    }
}
