//! Whether an entity has asked the question that an event answers.

use sqlx::postgres::PgConnection;
use uuid::Uuid;

use crate::event::EntityId;
use crate::store::Store;
use wakeq::{EventId, StoreError};

/// A question, as the answer describes it.
#[derive(Clone, Debug)]
pub(crate) struct EntityQuestion<'a> {
    /// The entity that is supposed to have asked, on the canvas of the answer.
    pub(crate) entity: &'a EntityId,
    /// The event that made it ask.
    pub(crate) event: EventId,
    pub(crate) correlation_id: Uuid,
    /// The event with the question.
    pub(crate) asking: EventId,
}

impl Store {
    /// Whether this entity asked that question.
    pub(crate) async fn was_asked(&self, question: &EntityQuestion<'_>) -> Result<bool, StoreError> {
        let mut session = self.session().await?;
        let asked = session.limit(|connection| was_asked(connection, question)).await;
        session.answered("check whether an entity has asked", asked).await
    }
}

/// Whether this entity asked that question. The record of an event outlives its questions, so a
/// question without a record was not asked.
pub(super) async fn was_asked(
    connection: &mut PgConnection,
    question: &EntityQuestion<'_>,
) -> Result<bool, sqlx::Error> {
    let EntityQuestion { entity, event, correlation_id, asking } = question;
    sqlx::query_scalar!(
        r#"select exists (
               select from wakeq.entity_events
                where canvas_id = $1 and event_id = $2 and entity_type = $3 and entity = $4
                  and coalesce(correlation_id = $5, false)
                  and $6 = any (follow_ups)) as "asked!""#,
        entity.canvas.0,
        event.0,
        entity.entity_type.as_str() as _,
        entity.id.as_str() as _,
        correlation_id,
        asking.0
    )
    .fetch_one(connection)
    .await
}
