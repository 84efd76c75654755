//! Which events a filter selects of those that are kept after they have ended, page by page, the
//! latest first.

use uuid::Uuid;

use crate::event::{EndedFilter, EndedOutcome, EventFilter, EventId, Timestamp};
use crate::store::kernel::{Sql, StoreError};

/// An ended event that was looked at.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct FoundEnded {
    pub(crate) id: EventId,
    pub(crate) ended_at: Timestamp,
    /// An id can have ended several times, each time with another one.
    pub(crate) kept_until: Timestamp,
    /// Whether it meets the filter and is still kept. If not, it only marks the end of what was
    /// looked at.
    pub(crate) is_meant: bool,
    /// Its number among those that were looked at, from 1.
    pub(crate) number: i64,
    /// Whether it is the last one that was looked at, and if so, whether there may be others.
    pub(crate) last: Option<bool>,
}

impl FoundEnded {
    /// Its key, by which it is read.
    pub(crate) fn key(&self) -> (EventId, Timestamp) {
        (self.id, self.kept_until)
    }
}

impl Sql<'_> {
    /// The handler of a filter finds the events, if it has one, and its outcome; the other
    /// conditions are checked. Values and results are read only if the filter asks for what is in
    /// them, and then up to 8 MiB: of kept events a page may find millions that it has to look
    /// into, and each MiB takes some ten milliseconds.
    pub(in crate::store) async fn search_ended(
        &self,
        filter: &EndedFilter,
        after: Option<(Timestamp, EventId)>,
        (look, limit): (i64, i64),
    ) -> Result<Vec<FoundEnded>, StoreError> {
        let (ended_at, id) = first_place(filter, after);
        let outcomes = filter.outcome.map_or(EndedOutcome::ALL.to_vec(), |outcome| vec![outcome]);
        let outcomes: Vec<&str> = outcomes.into_iter().map(EndedOutcome::as_str).collect();
        let scope = filter.scope.as_ref();
        let query = sqlx::query!(
            r#"with looked as (
                   select d.*, row_number() over seen as number, sum(d.value_bytes) over seen as bytes,
                          lead(d.value_bytes) over seen as next_bytes
                     from (
                       select e.id, e.module, e.name, e.modifier, e.enqueued_at, e.ended_at, e.kept_until, e.error, e.object,
                              e.options->'tags' as tags, e.options ->> 'batch' as batch, case when $5 then e.value end as value,
                              case when $5 then e.result end as result,
                              case when $5 then octet_length(e.value) + coalesce(octet_length(e.result), 0) else 0 end as value_bytes
                         from wakeq.ended_after(
                                  $1, $6::text[], $7::text, $8::text, coalesce($9::timestamptz, '-infinity'),
                                  coalesce($10::timestamptz, 'infinity'), $11::uuid, $2) with ordinality as e
                        order by e.ordinality) as d
                   window seen as (rows between unbounded preceding and current row)
               )
               select d.id as "id!", d.ended_at as "ended_at!", d.kept_until as "kept_until!", d.number as "number!",
                      meant.is_meant as "is_meant!",
                      case when ends.is_last then d.number = $2 or d.next_bytes is not null end as last
                 from looked d,
                      lateral (select d.kept_until > now()
                                  and ($3::text is null or wakeq.matches((select $3::text::jsonb), d.module, d.name, d.modifier,
                                      null, null, d.tags, d.enqueued_at, null, null, null, d.error, d.value, d.object, d.batch))
                                  and ($12::text is null or wakeq.matches((select $12::text::jsonb), null, null, null,
                                      null, null, null, null, null, null, null, null, d.result, null, null)) as is_meant) as meant,
                      lateral (select coalesce(d.bytes + d.next_bytes > 8388608, true) as is_last) as ends
                where (d.bytes <= 8388608 or d.number = 1) and (meant.is_meant or ends.is_last)
                order by d.number limit $4"#,
            filter.canvas.0,
            look,
            asked(&filter.of_event()),
            limit,
            filter.looks_into_values(),
            outcomes.as_slice() as &[&str],
            scope.map(|scope| scope.module.as_str()),
            scope.map(|scope| scope.name.as_str()),
            filter.ended_since,
            ended_at,
            id,
            asked(&filter.of_result())
        );
        let rows = self.session().await?.all("search ended events", query).await?;
        let found = rows.into_iter().map(|row| FoundEnded {
            id: EventId(row.id),
            ended_at: row.ended_at,
            kept_until: row.kept_until,
            is_meant: row.is_meant,
            number: row.number,
            last: row.last,
        });
        Ok(found.collect())
    }
}

/// The place after which the events are looked at. No event has the smallest id, so that none that
/// ended at the moment itself is before it.
fn first_place(filter: &EndedFilter, after: Option<(Timestamp, EventId)>) -> (Option<Timestamp>, Uuid) {
    let before = filter.ended_before.map(|before| (before, EventId(Uuid::nil())));
    let first = after.into_iter().chain(before).min();
    (first.map(|(ended_at, _)| ended_at), first.map_or(Uuid::max(), |(_, id)| id.0))
}

/// The JSON of a filter; `None` if every event meets it.
fn asked(filter: &EventFilter) -> Option<String> {
    (*filter != EventFilter::default()).then(|| filter.json())
}
