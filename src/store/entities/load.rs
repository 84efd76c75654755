//! Reading entities: one of them for who asks, all of a type for their processor.

use uuid::Uuid;

use crate::event::{CanvasId, EntityId, EntityType, Name, StreamName, Timestamp};
use crate::store::{Store, StoreError};

/// Most entities that are read at once.
const PAGE: i64 = 200;
/// Most events of an entity that are read at once.
const TAIL: i64 = 200;

/// An entity as it was committed.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct StoredEntity {
    /// The entity.
    pub id: EntityId,
    /// How many events of it are in the repository.
    pub version: i64,
    /// Its state as JSON, as it was after `state_version` events; none, before the first snapshot.
    pub state: Option<String>,
    /// The version of the state. It is that of the entity, unless snapshots are rarer than batches.
    pub state_version: i64,
    /// When the last event was decided upon.
    pub updated_at: Timestamp,
}

/// What a type's entities would take.
#[derive(Clone, Copy, Debug)]
pub(crate) struct EntitySize {
    pub(crate) entities: usize,
    pub(crate) id_bytes: usize,
    pub(crate) state_bytes: usize,
}

/// An entity on its way into memory.
#[derive(Clone, Debug)]
pub(crate) struct LoadedEntity {
    pub(crate) canvas: CanvasId,
    pub(crate) id: StreamName,
    pub(crate) version: i64,
    pub(crate) last_link: i64,
    /// Its snapshot, if that is of the shape that was asked for.
    pub(crate) snapshot: Option<EntitySnapshot>,
}

/// The state of an entity at an earlier time.
#[derive(Clone, Debug)]
pub(crate) struct EntitySnapshot {
    pub(crate) state: String,
    pub(crate) version: i64,
    /// Where the last event that is in it is in the log.
    pub(crate) seq: i64,
}

/// An event of the repository.
#[derive(Clone, Debug)]
pub(crate) struct EntityTail {
    pub(crate) seq: i64,
    pub(crate) name: Name,
    pub(crate) payload: String,
}

/// Where an entity stands among those of its type.
#[derive(Clone, Debug)]
pub(crate) struct EntityPosition {
    pub(crate) canvas: CanvasId,
    pub(crate) id: StreamName,
}

impl Store {
    /// An entity, if any event of it was ever stored.
    pub(crate) async fn entity(&self, id: &EntityId) -> Result<Option<StoredEntity>, StoreError> {
        let mut session = self.session().await?;
        let query = sqlx::query!(
            r#"select version, state::text as state, state_version, updated_at from wakeq.entities
                where entity_type = $1 and canvas_id = $2 and id = $3"#,
            id.entity_type.as_str() as _,
            id.canvas.0,
            id.id.as_str() as _
        );
        let row = session.limit(|connection| query.fetch_optional(connection)).await;
        let row = session.answered("read an entity", row)?;
        Ok(row.map(|row| StoredEntity {
            id: id.clone(),
            version: row.version,
            state: row.state,
            state_version: row.state_version,
            updated_at: row.updated_at,
        }))
    }

    /// How many entities a type has, and how large they are.
    pub(crate) async fn entities_size(&self, entity_type: &EntityType) -> Result<EntitySize, StoreError> {
        let mut session = self.session().await?.for_statements(6);
        let query = sqlx::query!(
            r#"select count(*) as "entities!", coalesce(sum(octet_length(id)), 0)::bigint as "id_bytes!",
                      coalesce(sum(octet_length(state)), 0)::bigint as "state_bytes!"
                 from wakeq.entities where entity_type = $1"#,
            entity_type.as_str() as _
        );
        let row = session.limit(|connection| query.fetch_one(connection)).await;
        let row = session.answered("measure entities", row)?;
        let size = |count: i64| usize::try_from(count).unwrap_or_default();
        Ok(EntitySize {
            entities: size(row.entities),
            id_bytes: size(row.id_bytes),
            state_bytes: size(row.state_bytes),
        })
    }

    /// A page of a type's entities, after one of them; fewer than a page is the last.
    pub(crate) async fn entities_after(
        &self,
        entity_type: &EntityType,
        after: Option<&EntityPosition>,
        shape: i32,
    ) -> Result<(Vec<LoadedEntity>, bool), StoreError> {
        let mut session = self.session().await?;
        let query = sqlx::query!(
            r#"select canvas_id, id::text as "id!", version, last_link,
                      case when shape = $4 then state end::text as state, state_version, state_seq
                 from wakeq.entities
                where entity_type = $1 and (canvas_id, id::text) > ($2, $3::text)
                order by canvas_id, id::text limit $5"#,
            entity_type.as_str() as _,
            after.map_or(Uuid::nil(), |after| after.canvas.0),
            after.map_or("", |after| after.id.as_str()),
            shape,
            PAGE
        );
        let rows = session.limit(|connection| query.fetch_all(connection)).await;
        let rows = session.answered("read entities", rows)?;
        let more = i64::try_from(rows.len()).is_ok_and(|count| count >= PAGE);
        let loaded = rows.into_iter().filter_map(|row| {
            Some(LoadedEntity {
                canvas: CanvasId(row.canvas_id),
                id: row.id.parse().ok()?,
                version: row.version,
                last_link: row.last_link,
                snapshot: row.state.map(|state| EntitySnapshot {
                    state,
                    version: row.state_version,
                    seq: row.state_seq,
                }),
            })
        });
        Ok((loaded.collect(), more))
    }

    /// Events of an entity in the repository after this `seq`, in their order; none are left when there is none.
    ///
    /// No reader's bound is asked for: only the owner appends there, and who asks is the owner.
    pub(crate) async fn entity_tail(
        &self,
        entity_type: &EntityType,
        at: &EntityPosition,
        after: i64,
    ) -> Result<Vec<EntityTail>, StoreError> {
        let mut session = self.session().await?;
        let query = sqlx::query!(
            r#"select seq, name::text as "name!", payload::text as "payload!" from wakeq.log
                where canvas_id = $1 and category = $2 and stream = $3 and seq > $4
                order by seq limit $5"#,
            at.canvas.0,
            entity_type.repository().as_str() as _,
            at.id.as_str() as _,
            after,
            TAIL
        );
        let rows = session.limit(|connection| query.fetch_all(connection)).await;
        let rows = session.answered("read the repository of an entity", rows)?;
        let event = |name: String, payload, seq| Some(EntityTail { seq, name: name.parse().ok()?, payload });
        Ok(rows.into_iter().filter_map(|row| event(row.name, row.payload, row.seq)).collect())
    }

    /// A stream of the type's repository that does not end where its entity says, and both versions: somebody else has
    /// appended there.
    pub(crate) async fn entity_stranger(
        &self,
        entity_type: &EntityType,
    ) -> Result<Option<(EntityPosition, i64, i64)>, StoreError> {
        let mut session = self.session().await?.for_statements(6);
        let query = sqlx::query!(
            r#"select s.canvas_id, s.stream::text as "stream!", s.position + 1 as "stored!", coalesce(e.version, 0) as "known!"
                 from wakeq.log_streams s
                 left join wakeq.entities e on e.entity_type = $1 and e.canvas_id = s.canvas_id and e.id::text = s.stream::text
                where s.category = $2 and s.position + 1 <> coalesce(e.version, 0) limit 1"#,
            entity_type.as_str() as _,
            entity_type.repository().as_str() as _
        );
        let row = session.limit(|connection| query.fetch_optional(connection)).await;
        let row = session.answered("compare entities with the repository", row)?;
        Ok(row.and_then(|row| {
            let at = EntityPosition { canvas: CanvasId(row.canvas_id), id: row.stream.parse().ok()? };
            Some((at, row.stored, row.known))
        }))
    }

    /// Keeps the log from being dropped: the repository of a type is all that its entities can be made of again.
    pub(crate) async fn pin_repository(&self, entity_type: &EntityType) -> Result<(), StoreError> {
        let mut session = self.session().await?;
        let query = sqlx::query!(
            "insert into wakeq.log_pins (name, seq) values ($1, 0) on conflict do nothing",
            format!("entities/{entity_type}")
        );
        let pinned = session.limit(|connection| query.execute(connection)).await;
        session.answered("pin a repository", pinned).map(drop)
    }
}
