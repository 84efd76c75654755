//! Reading entities: a single one, pages of a type for its processor, or those that the processor
//! names. Each read is bounded in rows and in bytes.

use uuid::Uuid;

use crate::event::{EntityId, EntityType};
use crate::store::Store;
use wakeq::log::StreamName;
use wakeq::{CanvasId, Name, StoreError, Timestamp};

/// Maximum number of entities that one statement reads.
const PAGE: i64 = 200;
/// Maximum number of events of entities that one statement reads.
pub(crate) const TAIL_ROWS: usize = 1000;

/// A committed entity.
#[derive(Clone, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub struct StoredEntity {
    /// The entity.
    pub id: EntityId,
    /// How many events of it are in the repository.
    pub version: i64,
    /// Its state as JSON, after `state_version` events; `None` before the first snapshot.
    pub state: Option<String>,
    /// The version of the state: that of the entity, unless snapshots are rarer than batches.
    pub state_version: i64,
    /// When the outcome of its last event was decided.
    pub updated_at: Timestamp,
}

/// An entity to be taken into memory.
#[derive(Clone, Debug)]
pub(crate) struct LoadedEntity {
    pub(crate) canvas: CanvasId,
    pub(crate) id: StreamName,
    pub(crate) version: i64,
    pub(crate) last_link: i64,
    /// How many events its stream in the repository has.
    pub(crate) stored: i64,
    /// Its snapshot, if that has the requested shape.
    pub(crate) snapshot: Option<EntitySnapshot>,
}

impl LoadedEntity {
    pub(crate) fn state_bytes(&self) -> usize {
        self.snapshot.as_ref().map_or(0, |snapshot| snapshot.state.len())
    }
}

/// The state of an entity at an earlier version.
#[derive(Clone, Debug)]
pub(crate) struct EntitySnapshot {
    pub(crate) state: String,
    pub(crate) version: i64,
    /// The `seq` of the last event that it includes.
    pub(crate) seq: i64,
}

/// An event of the repository.
#[derive(Clone, Debug)]
pub(crate) struct EntityTail {
    pub(crate) seq: i64,
    pub(crate) name: Name,
    pub(crate) payload: String,
}

/// Which events of an entity to read: the first `most` after this `seq` of the log.
#[derive(Clone, Debug)]
pub(crate) struct WantedTail {
    pub(crate) canvas: CanvasId,
    pub(crate) id: StreamName,
    pub(crate) after: i64,
    pub(crate) most: usize,
}

/// The place of an entity among those of its type.
#[derive(Clone, Debug)]
pub(crate) struct EntityPosition {
    pub(crate) canvas: CanvasId,
    /// `None`: before the first of the canvas.
    pub(crate) id: Option<StreamName>,
}

/// A row of a page of entities.
struct EntityPageRow {
    canvas_id: Uuid,
    id: String,
    version: i64,
    last_link: i64,
    stored: i64,
    state: Option<String>,
    state_version: i64,
    state_seq: i64,
    /// How many rows there were before the byte limit.
    looked: i64,
}

impl EntityPageRow {
    fn loaded(self) -> Option<LoadedEntity> {
        let (version, seq) = (self.state_version, self.state_seq);
        Some(LoadedEntity {
            canvas: CanvasId(self.canvas_id),
            id: self.id.parse().ok()?,
            version: self.version,
            last_link: self.last_link,
            stored: self.stored,
            snapshot: self.state.map(|state| EntitySnapshot { state, version, seq }),
        })
    }
}

impl Store {
    /// An entity, if any event of it was ever stored.
    pub(crate) async fn entity(&self, id: &EntityId) -> Result<Option<StoredEntity>, StoreError> {
        let query = sqlx::query!(
            r#"select version, state::text as state, state_version, updated_at from wakeq.entities
                where entity_type = $1 and canvas_id = $2 and id = $3"#,
            id.entity_type.as_str() as _,
            id.canvas.0,
            id.id.as_str() as _
        );
        let row = self.session().await?.optional("read an entity", query).await?;
        Ok(row.map(|row| StoredEntity {
            id: id.clone(),
            version: row.version,
            state: row.state,
            state_version: row.state_version,
            updated_at: row.updated_at,
        }))
    }

    /// A page of a type's entities after one of them, with at most this many bytes of states, or
    /// one entity; and whether there are more.
    pub(crate) async fn entities_after(
        &self,
        entity_type: &EntityType,
        after: Option<&EntityPosition>,
        shape: i32,
        bytes: usize,
    ) -> Result<(Vec<LoadedEntity>, bool), StoreError> {
        let query = sqlx::query_as!(
            EntityPageRow,
            r#"select canvas_id, id as "id!", version, last_link, stored as "stored!",
                      case when shape = $4 then state end::text as state, state_version, state_seq, looked as "looked!"
                 from (select e.canvas_id, e.id::text as id, e.version, e.last_link, e.shape, e.state, e.state_version,
                              e.state_seq, coalesce(s.position + 1, e.version) as stored, count(*) over () as looked,
                              row_number() over entities as number,
                              sum(coalesce(octet_length(e.state), 0)) over entities as bytes
                         from (select * from wakeq.entities
                                where entity_type = $1 and (canvas_id, id::text) > ($2, $3::text)
                                order by canvas_id, id::text limit $5) as e
                         left join wakeq.log_streams s
                           on s.canvas_id = e.canvas_id and s.category = $7 and s.stream = e.id
                       window entities as (order by e.canvas_id, e.id::text rows unbounded preceding)) as page
                where bytes <= $6 or number = 1
                order by canvas_id, id"#,
            entity_type.as_str() as _,
            after.map_or(Uuid::nil(), |after| after.canvas.0),
            after.and_then(|after| after.id.as_ref()).map_or("", StreamName::as_str),
            shape,
            PAGE,
            i64::try_from(bytes).unwrap_or(i64::MAX),
            entity_type.repository().as_str() as _
        );
        let rows = self.session().await?.all("read entities", query).await?;
        let looked = rows.first().map_or(0, |row| row.looked);
        let more = looked >= PAGE || i64::try_from(rows.len()).is_ok_and(|count| count < looked);
        Ok((rows.into_iter().filter_map(EntityPageRow::loaded).collect(), more))
    }

    /// These entities, in this order, until their states exceed this many bytes, but at least the
    /// first; one that was never stored has version 0.
    pub(crate) async fn entities_of(
        &self,
        entity_type: &EntityType,
        keys: &[(CanvasId, &StreamName)],
        shape: i32,
        bytes: usize,
    ) -> Result<Vec<LoadedEntity>, StoreError> {
        let query = sqlx::query_as!(
            EntityPageRow,
            r#"select canvas_id as "canvas_id!", id as "id!", version as "version!", last_link as "last_link!",
                      stored as "stored!", case when shape = $4 then state end::text as state,
                      state_version as "state_version!", state_seq as "state_seq!", 0::bigint as "looked!"
                 from (select w.canvas_id, w.id, w.number, coalesce(e.version, 0) as version,
                              coalesce(e.last_link, 0) as last_link, e.shape, e.state,
                              coalesce(e.state_version, 0) as state_version, coalesce(e.state_seq, 0) as state_seq,
                              coalesce(s.position + 1, e.version, 0) as stored,
                              sum(coalesce(octet_length(e.state), 0)) over (order by w.number rows unbounded preceding) as bytes
                         from unnest($2::uuid[], $3::text[]) with ordinality as w (canvas_id, id, number)
                         left join wakeq.entities e
                           on e.entity_type = $1 and e.canvas_id = w.canvas_id and e.id = w.id
                         left join wakeq.log_streams s
                           on s.canvas_id = w.canvas_id and s.category = $6 and s.stream = w.id) as wanted
                where bytes <= $5 or number = 1
                order by number"#,
            entity_type.as_str() as _,
            &keys.iter().map(|(canvas, _)| canvas.0).collect::<Vec<_>>(),
            &keys.iter().map(|(_, id)| id.to_string()).collect::<Vec<_>>(),
            shape,
            i64::try_from(bytes).unwrap_or(i64::MAX),
            entity_type.repository().as_str() as _
        );
        let rows = self.session().await?.all("read the entities of a batch", query).await?;
        Ok(rows.into_iter().filter_map(EntityPageRow::loaded).collect())
    }

    /// The wanted events from the repository, each with the index of its entity in `wanted`: those
    /// of the first entity, then of the next, each in order, with at most this many bytes together,
    /// or one event. The limit cuts off the end: an entity has events only if those before it are
    /// complete.
    ///
    /// The horizon is not consulted: only the owner appends there, and the caller is the owner.
    pub(crate) async fn entity_tails(
        &self,
        entity_type: &EntityType,
        wanted: &[WantedTail],
        bytes: usize,
    ) -> Result<Vec<(usize, EntityTail)>, StoreError> {
        let query = sqlx::query!(
            r#"select number as "number!", seq as "seq!", name::text as "name!", payload::text as "payload!"
                 from (select w.number, l.seq, l.name, l.payload, row_number() over events as place,
                              sum(octet_length(l.payload)) over events as bytes
                         from unnest($2::uuid[], $3::text[], $4::bigint[], $5::bigint[]) with ordinality
                              as w (canvas_id, id, after, most, number)
                        cross join lateral (
                              select seq, name, payload from wakeq.log
                               where canvas_id = w.canvas_id and category = $1 and stream = w.id and seq > w.after
                               order by seq limit w.most) as l
                       window events as (order by w.number, l.seq rows unbounded preceding)) as tails
                where bytes <= $6 or place = 1
                order by number, seq"#,
            entity_type.repository().as_str() as _,
            &wanted.iter().map(|one| one.canvas.0).collect::<Vec<_>>(),
            &wanted.iter().map(|one| one.id.to_string()).collect::<Vec<_>>(),
            &wanted.iter().map(|one| one.after).collect::<Vec<_>>(),
            &wanted.iter().map(|one| i64::try_from(one.most).unwrap_or(1)).collect::<Vec<_>>(),
            i64::try_from(bytes).unwrap_or(i64::MAX)
        );
        let rows = self.session().await?.all("read the repositories of entities", query).await?;
        let event = |number: i64, seq, name: String, payload| {
            let place = usize::try_from(number).ok()?.checked_sub(1)?;
            Some((place, EntityTail { seq, name: name.parse().ok()?, payload }))
        };
        Ok(rows.into_iter().filter_map(|row| event(row.number, row.seq, row.name, row.payload)).collect())
    }

    /// Keeps the log from being dropped: the entities of a type can be rebuilt only from their
    /// repository.
    pub(crate) async fn pin_repository(&self, entity_type: &EntityType) -> Result<(), StoreError> {
        let query = sqlx::query!(
            "insert into wakeq.log_pins (name, seq) values ($1, 0) on conflict do nothing",
            format!("entities/{entity_type}")
        );
        self.session().await?.execute("pin a repository", query).await.map(drop)
    }
}
