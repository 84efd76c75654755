//! Which dead events a filter selects, page by page, the latest first.

use uuid::Uuid;

use super::load::{DeadEvent, DeadRow, dead_rows};
use crate::event::{
    BatchName, CanvasId, ErrorGroupId, EventFilter, EventId, Name, ObjectKey, Tag, Timestamp,
};
use crate::store::kernel::{Sql, StoreError};

/// A dead event that was looked at.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct FoundDead {
    pub(crate) id: EventId,
    pub(crate) died_at: Timestamp,
    /// Whether it meets the filter and may be shown. If not, it only marks the end of what was
    /// looked at.
    pub(crate) is_meant: bool,
    /// Its number among those that were looked at, from 1.
    pub(crate) number: i64,
    /// Whether it is the last one that was looked at, and if so, whether there may be others.
    pub(crate) last: Option<bool>,
}

/// A query for [`FoundDead`]s: those that a filter selects among the rows of a source, which is the
/// end of a select of up to `$2` dead events, in their order. Values are read as for the list of
/// those that have not ended.
macro_rules! found_rows {
    ($source:literal, $($argument:tt)*) => {
        sqlx::query!(
            r#"with looked as (
                   select d.*, row_number() over seen as number, sum(d.value_bytes) over seen as bytes,
                          lead(d.value_bytes) over seen as next_bytes
                     from (
                       select d.id, d.module, d.name, d.modifier, d.options->'tags' as tags, d.enqueued_at, d.died_at,
                              d.error_group, d.last_error, d.object, d.options ->> 'batch' as batch, case when $6 then d.value end as value,
                              case when $6 then octet_length(d.value) else 0 end as value_bytes,
                              $5 or d.queue is null or wakeq.is_shown(d.queue) as is_shown "# + $source + r#") as d
                   window seen as (rows between unbounded preceding and current row)
               )
               select d.id as "id!", d.died_at as "died_at!", d.number as "number!", meant.is_meant as "is_meant!",
                      case when ends.is_last then d.number = $2 or d.next_bytes is not null end as last
                 from looked d,
                      lateral (select d.is_shown and wakeq.matches((select $3::text::jsonb), d.module, d.name,
                                  d.modifier, 'dead', null, d.tags, d.enqueued_at, null, d.died_at, d.error_group,
                                  d.last_error, d.value, d.object, d.batch) as is_meant) as meant,
                      lateral (select coalesce(d.bytes + d.next_bytes > 33554432, true) as is_last) as ends
                where (d.bytes <= 33554432 or d.number = 1) and (meant.is_meant or ends.is_last)
                order by d.number limit $4"#,
            $($argument)*
        )
    };
}

/// The rows of such a query.
macro_rules! found {
    ($rows:expr) => {
        $rows
            .into_iter()
            .map(|row| FoundDead {
                id: EventId(row.id),
                died_at: row.died_at,
                is_meant: row.is_meant,
                number: row.number,
                last: row.last,
            })
            .collect()
    };
}

impl Sql<'_> {
    /// The error group of a filter finds the events, if it has one; else its object, its batch, its
    /// first tag, or its handler.
    pub(in crate::store) async fn search_dead(
        &self,
        canvas: CanvasId,
        filter: &EventFilter,
        copies: bool,
        after: Option<(Timestamp, EventId)>,
        looks: (i64, i64),
    ) -> Result<Vec<FoundDead>, StoreError> {
        // No event has the smallest id, so that none at the moment itself is before it.
        let after = after.or(filter.died_before.map(|before| (before, EventId(Uuid::nil()))));
        let after = (after.map(|(died_at, _)| died_at), after.map_or(Uuid::max(), |(_, id)| id.0));
        if let Some(group) = filter.error_group {
            return self.dead_of_group(canvas, (filter, group), copies, after, looks).await;
        }
        if let Some(object) = &filter.object {
            return self.dead_on_object(canvas, (filter, object), copies, after, looks).await;
        }
        if let Some(batch) = &filter.batch {
            return self.dead_of_batch(canvas, (filter, batch), copies, after, looks).await;
        }
        match (filter.tags.first(), filter.handler()) {
            (Some(tag), _) => self.tagged_dead(canvas, (filter, tag), copies, after, looks).await,
            (None, (Some(module), Some(name))) => {
                self.dead_of_handler(canvas, (filter, &module, &name), copies, after, looks).await
            }
            (None, _) => self.dead_of_canvas(canvas, filter, copies, after, looks).await,
        }
    }

    async fn dead_of_canvas(
        &self,
        canvas: CanvasId,
        filter: &EventFilter,
        copies: bool,
        (died_at, id): (Option<Timestamp>, Uuid),
        (look, limit): (i64, i64),
    ) -> Result<Vec<FoundDead>, StoreError> {
        let query = found_rows!(
            r#" from wakeq.dead_events d where d.canvas_id = $1 and d.died_at > '-infinity'
                 and (d.died_at, d.id) < (coalesce($7::timestamptz, 'infinity'), $8::uuid)
                 and d.died_at >= coalesce($9::timestamptz, '-infinity')
               order by d.canvas_id desc, d.died_at desc, d.id desc limit $2"#,
            canvas.0,
            look,
            filter.json(),
            limit,
            copies,
            filter.looks_inside(),
            died_at,
            id,
            filter.died_since
        );
        Ok(found!(self.session().await?.all("search dead events", query).await?))
    }

    async fn dead_of_handler(
        &self,
        canvas: CanvasId,
        (filter, module, name): (&EventFilter, &Name, &Name),
        copies: bool,
        (died_at, id): (Option<Timestamp>, Uuid),
        (look, limit): (i64, i64),
    ) -> Result<Vec<FoundDead>, StoreError> {
        let query = found_rows!(
            r#" from wakeq.dead_events d
               where d.canvas_id = $1 and d.module = $10::text and d.name = $11::text and d.module <> ''
                 and (d.died_at, d.id) < (coalesce($7::timestamptz, 'infinity'), $8::uuid)
                 and d.died_at >= coalesce($9::timestamptz, '-infinity')
               order by d.canvas_id desc, d.module desc, d.name desc, d.died_at desc, d.id desc limit $2"#,
            canvas.0,
            look,
            filter.json(),
            limit,
            copies,
            filter.looks_inside(),
            died_at,
            id,
            filter.died_since,
            module.as_str(),
            name.as_str()
        );
        Ok(found!(self.session().await?.all("search a handler's dead events", query).await?))
    }

    async fn dead_of_group(
        &self,
        canvas: CanvasId,
        (filter, group): (&EventFilter, ErrorGroupId),
        copies: bool,
        (died_at, id): (Option<Timestamp>, Uuid),
        (look, limit): (i64, i64),
    ) -> Result<Vec<FoundDead>, StoreError> {
        let query = found_rows!(
            r#" from wakeq.dead_events d where d.canvas_id = $1 and d.error_group = $10
                 and (d.died_at, d.id) < (coalesce($7::timestamptz, 'infinity'), $8::uuid)
                 and d.died_at >= coalesce($9::timestamptz, '-infinity')
               order by d.canvas_id desc, d.error_group desc, d.died_at desc, d.id desc limit $2"#,
            canvas.0,
            look,
            filter.json(),
            limit,
            copies,
            filter.looks_inside(),
            died_at,
            id,
            filter.died_since,
            group.0
        );
        Ok(found!(self.session().await?.all("search the dead events of a group", query).await?))
    }

    async fn dead_on_object(
        &self,
        canvas: CanvasId,
        (filter, object): (&EventFilter, &ObjectKey),
        copies: bool,
        (died_at, id): (Option<Timestamp>, Uuid),
        (look, limit): (i64, i64),
    ) -> Result<Vec<FoundDead>, StoreError> {
        let query = found_rows!(
            r#" from wakeq.dead_events d where d.canvas_id = $1 and d.object = $10::text
                 and (d.died_at, d.id) < (coalesce($7::timestamptz, 'infinity'), $8::uuid)
                 and d.died_at >= coalesce($9::timestamptz, '-infinity')
               order by d.canvas_id desc, d.object desc, d.died_at desc, d.id desc limit $2"#,
            canvas.0,
            look,
            filter.json(),
            limit,
            copies,
            filter.looks_inside(),
            died_at,
            id,
            filter.died_since,
            object.as_str()
        );
        Ok(found!(self.session().await?.all("search the dead events on an object", query).await?))
    }

    async fn dead_of_batch(
        &self,
        canvas: CanvasId,
        (filter, batch): (&EventFilter, &BatchName),
        copies: bool,
        (died_at, id): (Option<Timestamp>, Uuid),
        (look, limit): (i64, i64),
    ) -> Result<Vec<FoundDead>, StoreError> {
        let query = found_rows!(
            r#" from wakeq.dead_events d where d.canvas_id = $1 and d.options ->> 'batch' = $10::text
                 and (d.died_at, d.id) < (coalesce($7::timestamptz, 'infinity'), $8::uuid)
                 and d.died_at >= coalesce($9::timestamptz, '-infinity')
               order by d.canvas_id desc, d.options ->> 'batch' desc, d.died_at desc, d.id desc limit $2"#,
            canvas.0,
            look,
            filter.json(),
            limit,
            copies,
            filter.looks_inside(),
            died_at,
            id,
            filter.died_since,
            batch.as_str()
        );
        Ok(found!(self.session().await?.all("search the dead members of a batch", query).await?))
    }

    async fn tagged_dead(
        &self,
        canvas: CanvasId,
        (filter, tag): (&EventFilter, &Tag),
        copies: bool,
        (died_at, id): (Option<Timestamp>, Uuid),
        (look, limit): (i64, i64),
    ) -> Result<Vec<FoundDead>, StoreError> {
        let query = found_rows!(
            r#" from wakeq.tagged_dead(
                     $1, $9::text, coalesce($7::timestamptz, 'infinity'), $8::uuid, $2) with ordinality as t (id, place)
               cross join lateral (
                     select x.* from wakeq.dead_events x where x.canvas_id = $1 and x.id = t.id offset 0) as d
               order by t.place"#,
            canvas.0,
            look,
            filter.json(),
            limit,
            copies,
            filter.looks_inside(),
            died_at,
            id,
            tag.as_str()
        );
        Ok(found!(self.session().await?.all("search tagged dead events", query).await?))
    }

    pub(in crate::store) async fn dead_of(
        &self,
        canvas: CanvasId,
        ids: &[EventId],
    ) -> Result<Vec<DeadEvent>, StoreError> {
        let ids: Vec<Uuid> = ids.iter().map(|id| id.0).collect();
        let query = dead_rows!(
            " where canvas_id = $1 and id = any ((select $2::uuid[])::uuid[])
              order by died_at desc, id desc",
            canvas.0,
            &ids
        );
        let rows = self.session().await?.all("read dead events", query).await?;
        Ok(rows.into_iter().filter_map(DeadRow::into_event).collect())
    }
}
