//! The clock of the test kit: on Postgres it is advanced by moving every stored timestamp back.
//!
//! Statements compare timestamps only with each other and with the server's clock, so every
//! remaining duration is the same as if that clock had advanced. No statement of the queue knows of
//! it.

use std::time::Duration;

use crate::event::Timestamp;
use crate::store::kernel::{Sql, StoreError, interval};

impl Sql<'_> {
    pub(in crate::store) async fn advance(&self, by: Duration) -> Result<(), StoreError> {
        let query = sqlx::query!(
            "with events as (
                 update wakeq.events_v2
                    set delay_until = delay_until - $1::interval, enqueued_at = enqueued_at - $1::interval,
                        locked_at = locked_at - $1::interval, notify_at = notify_at - $1::interval, starts_at = starts_at - $1::interval,
                        postponed_since = postponed_since - $1::interval, leased_at = leased_at - $1::interval,
                        options = case when options ? 'not_after' then options || wakeq.kept_options(jsonb_build_object(
                            'not_after', ((options ->> 'not_after')::timestamptz - $1::interval)::text)) else options end
             ), rules as (
                 update wakeq.scheduling_rules set until = until - $1::interval, created_at = created_at - $1::interval
             ), dead as (
                 update wakeq.dead_events
                    set died_at = died_at - $1::interval, enqueued_at = enqueued_at - $1::interval,
                        options = case when options ? 'not_after' then options || wakeq.kept_options(jsonb_build_object(
                            'not_after', ((options ->> 'not_after')::timestamptz - $1::interval)::text)) else options end
             ), ended as (
                 update wakeq.ended_events set kept_until = kept_until - $1::interval,
                        ended_at = ended_at - $1::interval, started_at = started_at - $1::interval,
                        enqueued_at = enqueued_at - $1::interval, due_at = due_at - $1::interval
             ), attempts as (
                 update wakeq.attempts set started_at = started_at - $1::interval
             ), jobs as (
                 update wakeq.resume_jobs set created_at = created_at - $1::interval,
                        after_due = after_due - $1::interval, back_due = back_due - $1::interval
             ), operations as (
                 update wakeq.operations set cut_off = cut_off - $1::interval, after_at = after_at - $1::interval,
                        started_at = started_at - $1::interval, updated_at = updated_at - $1::interval,
                        ended_at = ended_at - $1::interval
             ), unknown as (
                 update wakeq.unknown_handlers
                    set first_seen = first_seen - $1::interval, last_seen = last_seen - $1::interval
             ), chosen as (
                 update wakeq.emitted_ids set emitted_at = emitted_at - $1::interval, due_at = due_at - $1::interval
             ), keys as (
                 update wakeq.idempotency_keys set created_at = created_at - $1::interval
             ), unique_keys as (
                 update wakeq.unique_keys set until = until - $1::interval
             ), checkpoints as (
                 update wakeq.checkpoints
                    set stored_at = stored_at - $1::interval, looked_at = looked_at - $1::interval
             ), batches as (
                 update wakeq.batches set opened_at = opened_at - $1::interval, closed_at = closed_at - $1::interval,
                        over_at = over_at - $1::interval, looked_at = looked_at - $1::interval
             ), limits as (
                 update wakeq.limits set created_at = created_at - $1::interval, updated_at = updated_at - $1::interval
             ), limit_states as (
                 update wakeq.limit_states set next_at = next_at - $1::interval, line_at = line_at - $1::interval,
                        used_at = used_at - $1::interval
             ), limit_waits as (
                 update wakeq.limit_waits
                    set due = due - $1::interval, since = since - $1::interval, woken_at = woken_at - $1::interval
             ), facets as (
                 update wakeq.facets set head_at = head_at - $1::interval where isfinite(head_at)
             ), targets as (
                 update wakeq.http_targets set previous_until = previous_until - $1::interval,
                        created_at = created_at - $1::interval, updated_at = updated_at - $1::interval
             ), hooks as (
                 update wakeq.hooks set previous_until = previous_until - $1::interval,
                        created_at = created_at - $1::interval, updated_at = updated_at - $1::interval
             ), record as (
                 update wakeq.audit_log set at = at - $1::interval
             )
             update wakeq.chores set next_at = next_at - $1::interval, low_water = '-infinity'",
            interval(by)
        );
        self.session().await?.execute("move the clock", query).await?;
        self.probe.forget();
        Ok(())
    }

    pub(in crate::store) async fn next_moment(
        &self,
        after: Timestamp,
    ) -> Result<Option<Timestamp>, StoreError> {
        let query = sqlx::query_scalar!(
            "select min(moment) from (
                 select coalesce(locked_at + $1::interval + interval '1 microsecond', delay_until) as moment
                   from wakeq.events_v2
                  union all
                 select until from wakeq.scheduling_rules
                  union all
                 select case when u.next_start > clock_timestamp() then u.next_start end
                   from (select distinct canvas_id, name from wakeq.limit_waits where woken_at is null) as w
                  cross join lateral wakeq.use_of(w.canvas_id, w.name, $1) as u) as moments
              where moment > $2",
            interval(self.timing().lease),
            after
        );
        self.session().await?.one("look for the next moment", query).await
    }

    pub(in crate::store) async fn count(&self) -> Result<u64, StoreError> {
        let query = sqlx::query_scalar!(r#"select count(*) as "count!" from wakeq.events_v2"#);
        self.session().await?.one("count events", query).await.map(i64::cast_unsigned)
    }
}
