//! The last attempts at the events of a handler, whatever became of these. Attempts are stored by
//! their event, so events of the handler are looked at first, a bounded number of each kind: those
//! that have been tried and have not ended, those that died last, and those that ended last and are
//! kept.

use std::time::Duration;

use uuid::Uuid;

use super::history::AttemptRecord;
use crate::event::{EventId, HandlerScope, Name, Timestamp};
use crate::store::kernel::{Store, StoreError};

/// An attempt at an event of a handler.
#[derive(Clone, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub struct HandlerAttempt {
    /// The event.
    pub event: EventId,
    /// The event's modifier.
    pub modifier: Name,
    /// The attempt. Its outcome may also be that of a kept event that it ended: `completed`,
    /// `failed` or `cancelled`.
    pub attempt: AttemptRecord,
}

/// The last attempts at the events of a handler, the latest first.
#[derive(Clone, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub struct LastAttempts {
    /// The attempts, up to the limit.
    pub attempts: Vec<HandlerAttempt>,
    /// Whether there may be more: they are beyond the limit, or at events that were not looked at.
    pub more: bool,
}

/// An attempt, if there are any, and whether some events were not looked at.
struct TriedRow {
    id: Option<Uuid>,
    modifier: Option<String>,
    number: Option<i32>,
    outcome: Option<String>,
    worker: Option<String>,
    started_at: Option<Timestamp>,
    took_us: Option<i64>,
    error: Option<String>,
    more: bool,
}

impl TriedRow {
    fn into_attempt(self) -> Option<HandlerAttempt> {
        let attempt = AttemptRecord {
            number: self.number?.unsigned_abs(),
            outcome: self.outcome?,
            worker: self.worker.and_then(|name| name.parse().ok()),
            started_at: self.started_at?,
            took: Duration::from_micros(self.took_us?.unsigned_abs()),
            error: self.error,
        };
        Some(HandlerAttempt { event: EventId(self.id?), modifier: self.modifier?.parse().ok()?, attempt })
    }
}

impl LastAttempts {
    /// From rows of which there is one too many if there are more.
    fn of(mut rows: Vec<TriedRow>, limit: usize) -> Self {
        let more = rows.len() > limit || rows.iter().any(|row| row.more);
        rows.truncate(limit);
        Self { attempts: rows.into_iter().filter_map(TriedRow::into_attempt).collect(), more }
    }
}

impl Store {
    /// The last attempts, the latest first. Of the events that have not ended, 3,000 are looked at:
    /// those that are due last, next, and since the shortest time. The attempts at 200 of them are.
    /// Of those that have ended, 1,000 of each outcome are looked at, also if they are kept no
    /// longer.
    /// If there may be more events of a kind than were looked at, every row says so, also that
    /// which stands for no attempt.
    pub(crate) async fn last_attempts(
        &self,
        scope: &HandlerScope,
        modifier: Option<&Name>,
        limit: usize,
    ) -> Result<LastAttempts, StoreError> {
        let query = sqlx::query_as!(
            TriedRow,
            r#"with looked as materialized (
                   (select id, modifier::text as modifier, delay_until, queue, claims from wakeq.events_v2
                     where canvas_id = $1 and module = $2 and name = $3 and delay_until > '-infinity'
                     order by delay_until desc, id desc limit 1000)
                    union
                   (select id, modifier::text, delay_until, queue, claims from wakeq.events_v2
                     where canvas_id = $1 and module = $2 and name = $3 and delay_until > '-infinity' and delay_until > now()
                     order by delay_until, id limit 1000)
                    union
                   (select id, modifier::text, delay_until, queue, claims from wakeq.events_v2
                     where canvas_id = $1 and module = $2 and name = $3 and delay_until > '-infinity' and delay_until <= now()
                     order by delay_until desc, id desc limit 1000)
               ), unended as materialized (
                   select e.id, e.modifier from looked e
                    where e.queue is null and e.claims > 0 and ($4::text is null or e.modifier = $4)
                    order by e.delay_until desc, e.id limit 200
               ), died_last as materialized (
                   select id, modifier::text as modifier, queue, died_at from wakeq.dead_events
                    where canvas_id = $1 and module = $2 and name = $3 and module <> ''
                    order by died_at desc, id desc limit 1000
               ), died as materialized (
                   select d.id, d.modifier from died_last d where d.queue is null and ($4::text is null or d.modifier = $4)
                    order by d.died_at desc, d.id desc limit $5
               ), ended_last as materialized (
                   select x.id, x.modifier::text as modifier, x.claims, x.outcome, x.worker, x.started_at, x.took_us,
                          x.ended_at, x.kept_until, case when x.outcome = 'failed' then left(x.error, 1000) end as error
                     from (values ('completed'), ('failed'), ('cancelled')) as meant (outcome)
                    cross join lateral wakeq.ended_after($1, array[meant.outcome], $2::text, $3::text, '-infinity', 'infinity',
                                                         'ffffffff-ffff-ffff-ffff-ffffffffffff', 1000) as x
               ), ended as materialized (
                   select page.* from (values ('completed'), ('failed'), ('cancelled')) as meant (outcome)
                    cross join lateral (
                        select x.id, x.modifier, x.claims, x.outcome, x.worker, x.started_at, x.took_us, x.error from ended_last x
                         where x.outcome = meant.outcome and x.kept_until > now() and ($4::text is null or x.modifier = $4)
                         order by x.ended_at desc, x.id desc limit $5) as page
               ), cut as materialized (
                   select (select count(*) from looked) >= 1000 or (select count(*) from unended) >= 200
                          or (select count(*) from died_last) >= 1000 or (select count(*) from died) >= $5
                          or exists (select from ended group by outcome having count(*) >= $5)
                          or exists (select from ended_last group by outcome having count(*) >= 1000) as more
               )
               select id as "id?", modifier as "modifier?", number as "number?", outcome as "outcome?", worker as "worker?",
                      started_at as "started_at?", took_us as "took_us?", error as "error?", more as "more!"
                 from cut
                 left join (select t.id, t.modifier, a.number, a.outcome, a.worker, a.started_at, a.took_us, a.error
                              from (select id, modifier from unended union select id, modifier from died
                                     union select id, modifier from ended) as t
                             cross join lateral (select * from wakeq.attempts b where b.canvas_id = $1 and b.event_id = t.id
                                                  order by b.number desc limit $5) as a
                             union all
                            select id, modifier, claims, outcome, worker, started_at, took_us, error from ended
                             where started_at is not null) as tried on true
                order by started_at desc nulls last, id, number desc limit $5"#,
            scope.canvas.0,
            scope.module.as_str() as _,
            scope.name.as_str() as _,
            modifier.map(Name::as_str),
            limit as i64 + 1
        );
        let rows = self.session().await?.all("look at the last attempts of a handler", query).await?;
        Ok(LastAttempts::of(rows, limit))
    }
}
