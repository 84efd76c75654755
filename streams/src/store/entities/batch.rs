//! The transaction of a batch: the position under its epoch, the repository, the entities, the
//! outcomes of the events, and the events that follow. All or nothing.

use std::collections::{HashMap, HashSet};

use sqlx::Connection;
use sqlx::postgres::PgConnection;
use uuid::Uuid;

use super::append::append;
use crate::event::{EntityType, IsolatedStep};
use crate::store::Store;
use crate::store::positions::{PositionMove, move_position};
use wakeq::internals::{Emission, InsertOutcome, NewEvent, add_with_state, lacks_partition, statements};
use wakeq::log::{NewLogEvent, StreamId, StreamName};
use wakeq::machine::Link;
use wakeq::{CanvasId, EventId, Name, StoreError};

/// Why an event that was passed over has failed.
pub(crate) const PASSED_OVER: &str =
    "it was passed over: its entity has processed a later one; send it as a new event";

/// A valid event that is to be stored in the repository.
#[derive(Clone, Debug)]
pub(crate) struct StoredEvent {
    pub(crate) canvas: CanvasId,
    pub(crate) entity: StreamName,
    /// The entity's version including it.
    pub(crate) version: i64,
    pub(crate) id: EventId,
    pub(crate) name: Name,
    pub(crate) payload: String,
    pub(crate) metadata: String,
}

/// An entity after a batch.
#[derive(Clone, Debug)]
pub(crate) struct EntityRow {
    pub(crate) canvas: CanvasId,
    pub(crate) id: StreamName,
    pub(crate) version: i64,
    pub(crate) last_link: i64,
    /// Its state, if that is to be written.
    pub(crate) snapshot: Option<String>,
}

/// The outcome of an event.
#[derive(Clone, Debug)]
pub(crate) struct DecidedEvent {
    pub(crate) canvas: CanvasId,
    pub(crate) entity: StreamName,
    pub(crate) event: EventId,
    pub(crate) correlation_id: Uuid,
    pub(crate) name: Name,
    pub(crate) link: Link,
    /// Whether it is in the repository or, if it is an erasure, was carried out.
    pub(crate) stored: bool,
    /// The entity's version including it, if that is known.
    pub(crate) version: Option<i64>,
    pub(crate) result: Option<String>,
    /// Why it was not stored.
    pub(crate) error: Option<String>,
    pub(crate) follow_ups: Vec<Uuid>,
    /// If it is given up: how often it was tried, its `seq`, and the payload with which it is kept
    /// among the dead events.
    pub(crate) dead: Option<(i32, i64, String)>,
}

/// A batch to be committed.
#[derive(Debug)]
pub(crate) struct EntityBatch<'a> {
    pub(crate) entity_type: &'a EntityType,
    pub(crate) shape: i32,
    pub(crate) position: PositionMove<'a>,
    pub(crate) stored: Vec<StoredEvent>,
    pub(crate) entities: Vec<EntityRow>,
    pub(crate) decided: Vec<DecidedEvent>,
    /// Events older than the last one of their entity, which normally have an outcome already. If
    /// one has none, the event beside it tells its sender.
    pub(crate) passed: Vec<(CanvasId, EventId, Option<NewEvent>)>,
    /// How far its entity has come, if it is isolated.
    pub(crate) isolated: Option<IsolatedStep>,
    /// Events that follow from those of the batch, and answers.
    pub(crate) events: Vec<NewEvent>,
}

/// How a batch ended.
#[derive(Debug)]
pub(crate) enum BatchEnd {
    /// Committed, with the outcome of inserting each of `events`, and the events that tell senders
    /// that theirs were passed over, with their outcomes.
    Committed(Vec<InsertOutcome>, Vec<(NewEvent, InsertOutcome)>),
    /// Nothing is committed: the position is elsewhere, or under another epoch.
    Refused,
    /// Nothing is committed: another process has appended to the repository of this entity.
    ForeignAppend(StreamName),
}

impl Store {
    /// Commits a batch, if the position is where its owner expects it, under that epoch.
    pub(crate) async fn commit_entities(&self, batch: &EntityBatch<'_>) -> Result<BatchEnd, StoreError> {
        let ended = self.commit_once(batch).await;
        if !ended.as_ref().is_err_and(lacks_partition) {
            return ended;
        }
        self.add_log_partitions().await?;
        self.commit_once(batch).await
    }

    async fn commit_once(&self, batch: &EntityBatch<'_>) -> Result<BatchEnd, StoreError> {
        let mut session = self.session().await?.for_statements(16 + statements(&batch.events));
        let ended = session.limit(|connection| self.commit_batch(connection, batch)).await;
        session.answered("commit a batch of entities", ended).await
    }

    async fn commit_batch(
        &self,
        connection: &mut PgConnection,
        batch: &EntityBatch<'_>,
    ) -> Result<BatchEnd, sqlx::Error> {
        let mut transaction = connection.begin().await?;
        // First, because it locks the position's row: a process that takes the position over waits
        // for the end of this transaction.
        if !move_position(&mut transaction, &batch.position).await? {
            transaction.rollback().await?;
            return Ok(BatchEnd::Refused);
        }
        let seqs = match store_events(&mut transaction, batch).await? {
            Ok(seqs) => seqs,
            Err(entity) => {
                transaction.rollback().await?;
                return Ok(BatchEnd::ForeignAppend(entity));
            }
        };
        write_entities(&mut transaction, batch, &seqs).await?;
        write_decisions(&mut transaction, batch).await?;
        let notices = fail_passed(&mut transaction, batch).await?;
        write_dead(&mut transaction, batch).await?;
        advance_isolated(&mut transaction, batch).await?;
        let inserted = emit(&mut transaction, &batch.events, self.emission()).await?;
        let answered = emit(&mut transaction, &notices, self.emission()).await?;
        transaction.commit().await?;
        Ok(BatchEnd::Committed(inserted, notices.into_iter().zip(answered).collect()))
    }
}

/// Appends to the repository. Returns the last `seq` of each entity, or an entity whose stream does
/// not end where expected.
async fn store_events(
    connection: &mut PgConnection,
    batch: &EntityBatch<'_>,
) -> Result<Result<HashMap<(CanvasId, StreamName), i64>, StreamName>, sqlx::Error> {
    let category = batch.entity_type.repository();
    let stream = |event: &StoredEvent| StreamId {
        canvas: event.canvas,
        category: category.clone(),
        name: event.entity.clone(),
    };
    let row = |event: &StoredEvent| {
        let (name, payload) = (event.name.clone(), event.payload.clone());
        NewLogEvent::of_checked(event.id, name, payload, event.metadata.clone())
    };
    let rows = batch.stored.iter().map(|event| (stream(event), row(event))).collect();
    let appended = append(connection, rows).await?;
    let mut seqs = HashMap::new();
    for (event, appended) in batch.stored.iter().zip(appended) {
        if appended.position + 1 != event.version {
            return Ok(Err(event.entity.clone()));
        }
        seqs.insert((event.canvas, event.entity.clone()), appended.seq);
    }
    Ok(Ok(seqs))
}

async fn write_entities(
    connection: &mut PgConnection,
    batch: &EntityBatch<'_>,
    seqs: &HashMap<(CanvasId, StreamName), i64>,
) -> Result<(), sqlx::Error> {
    let rows = &batch.entities;
    if rows.is_empty() {
        return Ok(());
    }
    let seq = |row: &EntityRow| seqs.get(&(row.canvas, row.id.clone())).copied().unwrap_or_default();
    sqlx::query!(
        "insert into wakeq.entities as e
             (entity_type, canvas_id, id, version, last_link, state, state_version, state_seq, shape)
         select $1, canvas_id, id, version, last_link, state, case when state is null then 0 else version end,
                case when state is null then 0 else seq end, $2
           from unnest($3::uuid[], $4::text[], $5::bigint[], $6::bigint[], $7::text[], $8::bigint[])
                as new (canvas_id, id, version, last_link, state, seq)
          order by canvas_id, id
             on conflict (entity_type, canvas_id, id) do update
            set version = excluded.version, last_link = excluded.last_link, updated_at = now(),
                state = coalesce(excluded.state, e.state),
                state_version = case when excluded.state is null then e.state_version else excluded.state_version end,
                state_seq = case when excluded.state is null then e.state_seq else excluded.state_seq end,
                shape = case when excluded.state is null then e.shape else excluded.shape end",
        batch.entity_type.as_str() as _,
        batch.shape,
        &rows.iter().map(|row| row.canvas.0).collect::<Vec<_>>(),
        &rows.iter().map(|row| row.id.to_string()).collect::<Vec<_>>(),
        &rows.iter().map(|row| row.version).collect::<Vec<_>>(),
        &rows.iter().map(|row| row.last_link).collect::<Vec<_>>(),
        &rows.iter().map(|row| row.snapshot.clone()).collect::<Vec<_>>() as &[Option<String>],
        &rows.iter().map(seq).collect::<Vec<_>>(),
    )
    .execute(connection)
    .await
    .map(drop)
}

/// Writes outcomes. An existing one stays, unless an event that had died was processed after all.
/// Events without a row, which were appended to the inbox by other means, get one.
async fn write_decisions(connection: &mut PgConnection, batch: &EntityBatch<'_>) -> Result<(), sqlx::Error> {
    let rows = &batch.decided;
    if rows.is_empty() {
        return Ok(());
    }
    let uuids = |row: &DecidedEvent| row.follow_ups.iter().map(Uuid::to_string).collect::<Vec<_>>().join(",");
    sqlx::query!(
        r#"insert into wakeq.entity_events as e
               (canvas_id, event_id, correlation_id, entity_type, entity, name, link_id, link_prev, status, version, result,
                error, follow_ups, ended_at)
           select canvas_id, event_id, correlation_id, $1, entity, name, link_id, link_prev,
                  case when stored then 'processed' else 'failed' end, version, result, error,
                  string_to_array(follow_ups, ',')::uuid[], clock_timestamp()
             from unnest($2::uuid[], $3::uuid[], $4::uuid[], $5::text[], $6::text[], $7::bigint[], $8::bigint[],
                         $9::bigint[], $10::text[], $11::text[], $12::text[], $13::boolean[])
                  as new (canvas_id, event_id, correlation_id, entity, name, link_id, link_prev, version, result, error,
                          follow_ups, stored)
            order by canvas_id, event_id
               on conflict (canvas_id, event_id) do update
              set status = excluded.status, version = excluded.version, result = excluded.result, error = excluded.error,
                  follow_ups = excluded.follow_ups, ended_at = excluded.ended_at
            where e.status = 'accepted' or e.status = 'failed' and excluded.status = 'processed'"#,
        batch.entity_type.as_str() as _,
        &rows.iter().map(|row| row.canvas.0).collect::<Vec<_>>(),
        &rows.iter().map(|row| row.event.0).collect::<Vec<_>>(),
        &rows.iter().map(|row| row.correlation_id).collect::<Vec<_>>(),
        &rows.iter().map(|row| row.entity.to_string()).collect::<Vec<_>>(),
        &rows.iter().map(|row| row.name.to_string()).collect::<Vec<_>>(),
        &rows.iter().map(|row| row.link.id).collect::<Vec<_>>(),
        &rows.iter().map(|row| row.link.prev).collect::<Vec<_>>(),
        &rows.iter().map(|row| row.version).collect::<Vec<_>>() as &[Option<i64>],
        &rows.iter().map(|row| row.result.clone()).collect::<Vec<_>>() as &[Option<String>],
        &rows.iter().map(|row| row.error.clone()).collect::<Vec<_>>() as &[Option<String>],
        &rows.iter().map(uuids).collect::<Vec<_>>(),
        &rows.iter().map(|row| row.stored).collect::<Vec<_>>(),
    )
    .execute(connection)
    .await
    .map(drop)
}

async fn emit(
    connection: &mut PgConnection,
    events: &[NewEvent],
    emission: Emission<'_>,
) -> Result<Vec<InsertOutcome>, sqlx::Error> {
    if events.is_empty() {
        return Ok(Vec::new());
    }
    add_with_state(connection, events, &vec![false; events.len()], None, emission).await
}

/// Fails those passed-over events that have no outcome yet; returns the events that tell their
/// senders.
async fn fail_passed(
    connection: &mut PgConnection,
    batch: &EntityBatch<'_>,
) -> Result<Vec<NewEvent>, sqlx::Error> {
    if batch.passed.is_empty() {
        return Ok(Vec::new());
    }
    let failed = sqlx::query!(
        "update wakeq.entity_events e
            set status = 'failed', ended_at = clock_timestamp(), error = $3
           from unnest($1::uuid[], $2::uuid[]) as passed (canvas_id, event_id)
          where e.canvas_id = any (array[passed.canvas_id]) and e.event_id = passed.event_id
            and coalesce(e.status = 'accepted', false)
      returning e.canvas_id, e.event_id",
        &batch.passed.iter().map(|(canvas, ..)| canvas.0).collect::<Vec<_>>(),
        &batch.passed.iter().map(|(_, event, _)| event.0).collect::<Vec<_>>(),
        PASSED_OVER
    )
    .fetch_all(connection)
    .await?;
    let failed: HashSet<(Uuid, Uuid)> = failed.into_iter().map(|row| (row.canvas_id, row.event_id)).collect();
    for (canvas, event) in &failed {
        tracing::error!(entity_type = %batch.entity_type, %canvas, %event, "an event of an entity was passed over, and has failed");
    }
    let notices = batch.passed.iter().filter(|(canvas, event, _)| failed.contains(&(canvas.0, event.0)));
    Ok(notices.filter_map(|(.., notice)| notice.clone()).collect())
}

/// Notes how far an isolated entity has come.
async fn advance_isolated(connection: &mut PgConnection, batch: &EntityBatch<'_>) -> Result<(), sqlx::Error> {
    let Some(IsolatedStep { canvas, id, after }) = &batch.isolated else { return Ok(()) };
    sqlx::query!(
        "update wakeq.entity_asides set after = greatest(after, $4), suspect = null, losses = 0
          where entity_type = $1 and canvas_id = $2 and id = $3",
        batch.entity_type.as_str() as _,
        canvas.0,
        id.as_str() as _,
        after
    )
    .execute(connection)
    .await
    .map(drop)
}

/// Stores dead events among those of the group that the processor is.
async fn write_dead(connection: &mut PgConnection, batch: &EntityBatch<'_>) -> Result<(), sqlx::Error> {
    let PositionMove { group, source, .. } = batch.position;
    for row in &batch.decided {
        let Some((attempts, seq, payload)) = &row.dead else { continue };
        sqlx::query!(
            "insert into wakeq.consumer_dead
                 (consumer_group, source, seq, id, canvas_id, category, stream, name, payload, attempts, last_error)
             values ($1, $2, $3, $4, $5, $6, $7, $8, $9, $10, $11)
                 on conflict (consumer_group, source, seq) do nothing",
            group.as_str() as _,
            source.to_string(),
            seq,
            row.event.0,
            row.canvas.0,
            batch.entity_type.inbox().as_str() as _,
            row.entity.as_str() as _,
            row.name.as_str() as _,
            payload as _,
            attempts,
            row.error.as_deref().unwrap_or_default()
        )
        .execute(&mut *connection)
        .await?;
    }
    Ok(())
}
