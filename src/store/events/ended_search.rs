//! Which events a filter selects of those that are kept after they have ended, page by page, the
//! latest first.

use uuid::Uuid;

use super::history::{EndedEvent, EndedRow};
use crate::event::{EndedFilter, EndedOutcome, EventFilter, EventId, Timestamp};
use crate::store::kernel::{Sql, StoreError};

/// An ended event that was looked at.
#[derive(Clone, Debug)]
pub(crate) struct FoundEnded {
    pub(crate) event: EndedEvent,
    /// Whether it meets the filter and is still kept. If not, it only marks the end of what was
    /// looked at.
    pub(crate) is_meant: bool,
    /// Its number among those that were looked at, from 1.
    pub(crate) number: i64,
    /// Whether it is the last one that was looked at, and if so, whether there may be others.
    pub(crate) last: Option<bool>,
}

impl FoundEnded {
    /// Its place in the list.
    pub(crate) fn place(&self) -> (Timestamp, EventId) {
        (self.event.ended_at, self.event.id)
    }

    fn of(row: EndedRow) -> Option<Self> {
        let EndedRow { is_meant, number, last, .. } = row;
        Some(Self { event: row.into_event()?, is_meant, number, last })
    }
}

impl Sql<'_> {
    /// The handler of a filter finds the events, if it has one, and its outcome; the other
    /// conditions are checked. Values and results are read only if the filter asks for what is in
    /// them, and then up to 8 MiB: a search may look into millions of kept events, and each MiB
    /// takes up to ten milliseconds. What may be long of an event is left out unless it is `shown`.
    pub(in crate::store) async fn search_ended(
        &self,
        filter: &EndedFilter,
        after: Option<(Timestamp, EventId)>,
        (look, limit): (i64, i64),
        shown: bool,
    ) -> Result<Vec<FoundEnded>, StoreError> {
        let (ended_at, id) = first_place(filter, after);
        let outcomes = filter.outcome.map_or(EndedOutcome::ALL.to_vec(), |outcome| vec![outcome]);
        let outcomes: Vec<&str> = outcomes.into_iter().map(EndedOutcome::as_str).collect();
        let scope = filter.scope.as_ref();
        let query = sqlx::query_as!(
            EndedRow,
            r#"with looked as (
                   select d.*, row_number() over seen as number, sum(d.value_bytes) over seen as bytes,
                          lead(d.value_bytes) over seen as next_bytes
                     from (
                       select e.id, e.canvas_id, e.module, e.name, e.modifier, e.outcome, e.error, e.ended_by, e.enqueued_at,
                              e.due_at, e.started_at, e.took_us, e.ended_at, e.kept_until, e.worker, e.claims, e.retries,
                              e.losses, e.result is not null as has_result, e.traceparent, e.options, e.object, e.seq, e.prev,
                              case when $5 then e.value end as value, case when $5 then e.result end as result,
                              case when $5 then octet_length(e.value) + coalesce(octet_length(e.result), 0) else 0 end as value_bytes
                         from wakeq.ended_after(
                                  $1, $6::text[], $7::text, $8::text, coalesce($9::timestamptz, '-infinity'),
                                  coalesce($10::timestamptz, 'infinity'), $11::uuid, $2) with ordinality as e
                        order by e.ordinality) as d
                   window seen as (rows between unbounded preceding and current row)
               )
               select d.id as "id!", d.canvas_id as "canvas_id!", d.module::text as "module!", d.name::text as "name!",
                      d.modifier::text as "modifier!", d.outcome as "outcome!", case when $13 then d.error end as error, d.ended_by,
                      d.enqueued_at as "enqueued_at!", d.due_at as "due_at!", d.started_at, d.took_us,
                      d.ended_at as "ended_at!", d.kept_until as "kept_until!", d.worker, d.claims as "claims!",
                      d.retries as "retries!", d.losses as "losses!", d.has_result as "has_result!",
                      d.traceparent::text as traceparent, case when $13 then d.options end::text as options, d.object::text as object, d.seq, d.prev,
                      d.number as "number!", meant.is_meant as "is_meant!",
                      case when ends.is_last then d.number = $2 or d.next_bytes is not null end as last
                 from looked d,
                      lateral (select d.kept_until > now()
                                  and ($3::text is null or wakeq.matches((select $3::text::jsonb), d.module, d.name,
                                      d.modifier, null, null, d.options->'tags', d.enqueued_at, null, null, null, d.error,
                                      d.value, d.object, d.options ->> 'batch'))
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
            asked(&filter.of_result()),
            shown
        );
        let rows = self.session().await?.all("search ended events", query).await?;
        Ok(rows.into_iter().filter_map(FoundEnded::of).collect())
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
