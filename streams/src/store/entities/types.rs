//! Which types of entities a canvas has.

use crate::event::EntityType;
use crate::store::Store;
use wakeq::{CanvasId, StoreError};

/// How many types of the deployment are looked at for a page. They are named by its programs.
const TYPES_LOOKED_AT: i64 = 10_000;

impl Store {
    /// The types of which a canvas has an entity, after this one and by name. Each type of the
    /// deployment is found by a look at the index of entities, and so is whether the canvas has
    /// one.
    pub(crate) async fn list_entity_types(
        &self,
        canvas: CanvasId,
        after: Option<&EntityType>,
        limit: i64,
    ) -> Result<Vec<EntityType>, StoreError> {
        let query = sqlx::query!(
            r#"with recursive types as (
                   (select e.entity_type::text as entity_type from wakeq.entities e where e.entity_type::text > $2::text
                     order by e.entity_type::text limit 1)
                    union all
                   select (select e.entity_type::text from wakeq.entities e where e.entity_type::text > t.entity_type
                            order by e.entity_type::text limit 1)
                     from types t where t.entity_type is not null
               )
               select t.entity_type as "entity_type!"
                 from (select entity_type from types where entity_type is not null limit $4) as t
                where exists (select from wakeq.entities e
                               where e.entity_type::text = t.entity_type and e.canvas_id = $1 offset 0)
                order by t.entity_type limit $3"#,
            canvas.0,
            after.map_or("", EntityType::as_str),
            limit,
            TYPES_LOOKED_AT
        );
        let rows = self.session().await?.all("list types of entities", query).await?;
        Ok(rows.into_iter().filter_map(|row| row.entity_type.parse().ok()).collect())
    }
}
