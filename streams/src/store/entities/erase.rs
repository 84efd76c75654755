//! Erasing the data of an entity: requested in its inbox, and done by the owner of the type, page
//! by page.

use sqlx::Connection;
use sqlx::postgres::PgConnection;

use super::send::{SendEnd, ToEntity, send_to_entities};
use crate::event::EntityId;
use crate::store::Store;
use crate::store::positions::PositionMove;
use wakeq::internals::lacks_partition;
use wakeq::{Actor, StoreError};

/// Maximum number of rows that one statement erases.
pub(crate) const ERASED_MAX: usize = 1000;

impl Store {
    /// Sends an erasure to an entity, and records the actor in the audit log, in one transaction.
    pub(crate) async fn send_erasure(
        &self,
        erasure: &ToEntity,
        actor: &Actor,
    ) -> Result<SendEnd, StoreError> {
        let sent = self.send_erasure_once(erasure, actor).await;
        if !sent.as_ref().is_err_and(lacks_partition) {
            return sent;
        }
        self.add_log_partitions().await?;
        self.send_erasure_once(erasure, actor).await
    }

    async fn send_erasure_once(&self, erasure: &ToEntity, actor: &Actor) -> Result<SendEnd, StoreError> {
        let mut session = self.session().await?.for_statements(14);
        let sent = session.limit(|connection| send(connection, erasure, actor)).await;
        session.answered("ask for an erasure", sent).await
    }

    /// The link of the last event whose outcome an entity has decided; 0 if nothing is stored of
    /// it.
    pub(crate) async fn entity_last_link(&self, entity: &EntityId) -> Result<i64, StoreError> {
        let query = sqlx::query_scalar!(
            "select last_link from wakeq.entities where entity_type = $1 and canvas_id = $2 and id = $3",
            entity.entity_type.as_str() as _,
            entity.canvas.0,
            entity.id.as_str() as _
        );
        let decisions = self.session().await?.optional("read the decisions of an entity", query).await?;
        Ok(decisions.unwrap_or_default())
    }

    /// Erases at most `most` rows of an entity's data, after this `seq` of the log, if the position
    /// of the inbox is where its owner expects it, under that epoch. Returns where the next page
    /// begins, or `Some(None)` if nothing is left; `None` if the position is not as expected. The
    /// position is locked, so that a process that takes it over waits.
    pub(crate) async fn erase_entity(
        &self,
        held: &PositionMove<'_>,
        entity: &EntityId,
        (erasure, after): (i64, i64),
        most: usize,
    ) -> Result<Option<Option<i64>>, StoreError> {
        let query = sqlx::query_scalar!(
            r#"with own as materialized (
                   select consumer_group from wakeq.consumer_positions
                    where consumer_group = $1 and source = $2 and epoch = $3 and position = $4 for share
               )
               select wakeq.erase_entity($5, $6, $7, $8, $9, $10) as gone from own"#,
            held.group.as_str() as _,
            held.source.to_string(),
            held.epoch,
            held.from,
            entity.canvas.0,
            entity.entity_type.as_str(),
            entity.id.as_str(),
            erasure,
            after,
            i32::try_from(most.min(ERASED_MAX)).unwrap_or(1)
        );
        self.session().await?.optional("erase a page of an entity", query).await
    }
}

async fn send(
    connection: &mut PgConnection,
    erasure: &ToEntity,
    actor: &Actor,
) -> Result<SendEnd, sqlx::Error> {
    let mut transaction = connection.begin().await?;
    let sent = send_to_entities(&mut transaction, std::slice::from_ref(erasure)).await?;
    match sent {
        SendEnd::Sent(_) => {
            record(&mut transaction, erasure, actor).await?;
            transaction.commit().await?;
        }
        SendEnd::Taken(_) | SendEnd::NotAsked => transaction.rollback().await?,
    }
    Ok(sent)
}

async fn record(connection: &mut PgConnection, erasure: &ToEntity, actor: &Actor) -> Result<(), sqlx::Error> {
    let EntityId { canvas, entity_type, id } = &erasure.entity;
    sqlx::query!(
        "insert into wakeq.audit_log (canvas_id, actor, action, event_id, outcome, request_id, detail)
         values ($1, $2, 'erase-entity', $3, 'done', $4, concat_ws('; ', $5::text, $6::text))",
        canvas.0,
        actor.name(),
        erasure.id.0,
        actor.request_id(),
        actor.credential_id(),
        format!("{entity_type}/{id}")
    )
    .execute(connection)
    .await
    .map(drop)
}
