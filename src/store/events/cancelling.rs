//! Events that are cancelled while they run. The row says so until it is gone, which follows from
//! whatever ends its claim: the handler that stops, the next claim, or the minute's pass.

use super::history::AttemptEnd;
use crate::event::{Actor, CanvasId, Claim, EventId, Lane, Name};
use crate::store::kernel::{Sql, StoreError, address, interval};

/// Maximum number of cancelled events that one statement finds or removes.
pub(crate) const CANCELLED_PAGE: usize = 1000;

/// What cancelling an event that may be running did.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) enum RunningCancel {
    /// It runs, and its row says now that it is cancelled.
    Asked,
    /// The same was done before.
    AskedBefore,
    /// It is not running, or was not a moment ago.
    Free,
    /// It is a copy that a service has leased from this queue.
    Leased(Name),
    /// The canvas has no such event.
    Missing,
}

impl Sql<'_> {
    pub(in crate::store) async fn cancel_running(
        &self,
        canvas: CanvasId,
        id: EventId,
        actor: &Actor,
    ) -> Result<RunningCancel, StoreError> {
        let query = sqlx::query!(
            r#"with asked as (
                   update wakeq.events_v2 e set cancelled_by = $4
                    where e.id = $1 and e.canvas_id = $2 and e.cancelled_by is null
                      and coalesce(e.locked_at >= clock_timestamp() - $3::interval, false)
                      and (e.queue is null or not wakeq.is_pulled(e.queue))
                returning e.id, e.canvas_id, e.module, e.name
               ), logged as (
                   insert into wakeq.audit_log (canvas_id, actor, action, module, name, event_id, outcome, request_id, detail)
                   select canvas_id, $4, 'cancel-running', module, name, id, 'done', $5, $6 from asked
               )
               select exists (select from asked) as "asked!", found.runs, found.is_cancelled, found.leased_from
                 from (values (1)) as one
                 left join lateral (
                      select coalesce(e.locked_at >= clock_timestamp() - $3, false) as runs,
                             e.cancelled_by is not null as is_cancelled,
                             case when e.queue is not null and wakeq.is_pulled(e.queue) then e.queue::text end as leased_from
                        from wakeq.events_v2 e where e.id = $1 and e.canvas_id = $2 offset 0) as found on true"#,
            id.0,
            canvas.0,
            interval(self.timing().lease),
            actor.name(),
            actor.request_id(),
            actor.credential_id()
        );
        let row = self.session().await?.one("cancel a running event", query).await?;
        let leased_from = row.leased_from.and_then(|queue| queue.parse().ok());
        Ok(match (row.asked, row.runs, leased_from) {
            (true, ..) => RunningCancel::Asked,
            (false, None, _) => RunningCancel::Missing,
            (false, Some(true), Some(queue)) => RunningCancel::Leased(queue),
            (false, Some(true), None) if row.is_cancelled == Some(true) => RunningCancel::AskedBefore,
            (false, Some(_), _) => RunningCancel::Free,
        })
    }

    pub(in crate::store) async fn cancelled_by(
        &self,
        canvas: CanvasId,
        id: EventId,
    ) -> Result<Option<String>, StoreError> {
        let query = sqlx::query_scalar!(
            "select cancelled_by from wakeq.events_v2 where id = $1 and canvas_id = $2",
            id.0,
            canvas.0
        );
        Ok(self.session().await?.optional("look who cancelled an event", query).await?.flatten())
    }

    /// By the index of cancelled events, which has no entry as long as there is none.
    pub(in crate::store) async fn cancelled_claims(&self) -> Result<Vec<Claim>, StoreError> {
        let query = sqlx::query!(
            "select id, claims, nonce from wakeq.events_v2
              where cancelled_by > '' and locked_at is not null order by cancelled_by limit $1",
            CANCELLED_PAGE as i64
        );
        let rows = self.session().await?.all("look for cancelled events", query).await?;
        let claim = |id, claims, nonce| Claim { id: EventId(id), claims, nonce };
        Ok(rows.into_iter().map(|row| claim(row.id, row.claims, row.nonce)).collect())
    }

    pub(in crate::store) async fn remove_cancelled(
        &self,
        claim: Claim,
        end: &AttemptEnd,
    ) -> Result<bool, StoreError> {
        let query = sqlx::query_scalar!(
            r#"with gone as (
                   delete from wakeq.events_v2 e
                    where id = $1 and claims::bigint << 32 | nonce = $2 and locked_at is not null
                      and coalesce(cancelled_by <> '', false)
                returning canvas_id, module, name, object, queue, seq, prev, options ->> 'batch' as batch, e as event
               ), counted as (
                   insert into wakeq.batch_ends (canvas_id, batch, completed, cancelled)
                   select canvas_id, batch, -1, 1 from gone where batch is not null
               ), kept as (
                   select wakeq.keep_ended(
                              event, wakeq.keep_of(event, $5, 'cancelled'), 'cancelled', $6, $7, null, (event).cancelled_by) from gone
               ), passed_over as (
                   insert into wakeq.tombstones (canvas_id, object, seq, queue, prev, cause)
                   select canvas_id, object, seq, coalesce(queue, ''), prev, 'cancelled' from gone where object is not null
                       on conflict do nothing
               ), armed as (
                   update wakeq.events_v2 e
                      set notify_at = wakeq.wake_at(e.delay_until, statement_timestamp(), $3, $4), probes = 0
                    where e.id = any (array(
                        select x.id from wakeq.events_v2 x
                         where x.id = any (array(
                             select wakeq.next_in_lane(canvas_id, object, queue, module, name, seq)
                               from gone where object is not null))
                           for update skip locked))
               )
               select count(*) > 0 as "gone!" from kept"#,
            claim.id.0,
            claim.fence(),
            interval(self.timing().horizon),
            interval(self.timing().grace),
            end.keep.as_secs_f64(),
            end.took_us(),
            end.error
        );
        self.session().await?.one("delete a cancelled event", query).await
    }

    /// Rows that other sessions hold are left to the next pass.
    pub(in crate::store) async fn remove_unclaimed_cancelled(
        &self,
    ) -> Result<(usize, Vec<Lane>), StoreError> {
        let query = sqlx::query!(
            r#"with gone as (
                   delete from wakeq.events_v2 e where id = any (array(
                       select id from wakeq.events_v2
                        where cancelled_by > '' and (locked_at is null or locked_at < clock_timestamp() - $2::interval)
                        order by cancelled_by limit $1 for update skip locked))
                returning id, canvas_id, module, name, object, queue, seq, prev, options ->> 'batch' as batch, e as event
               ), counted as (
                   insert into wakeq.batch_ends (canvas_id, batch, completed, cancelled)
                   select canvas_id, batch, -count(*), count(*) from gone where batch is not null group by canvas_id, batch
               ), kept as (
                   select wakeq.keep_ended(
                              event, wakeq.keep_of(event, null, 'cancelled'), 'cancelled', null, null, null, (event).cancelled_by) from gone
               ), lanes as (
                   select distinct canvas_id, object, queue, module, name from gone where object is not null
               ), passed_over as (
                   insert into wakeq.tombstones (canvas_id, object, seq, queue, prev, cause)
                   select canvas_id, object, seq, coalesce(queue, ''), prev, 'cancelled' from gone where object is not null
                       on conflict do nothing
               ), armed as (
                   update wakeq.events_v2 e
                      set notify_at = wakeq.wake_at(e.delay_until, statement_timestamp(), $3, $4), probes = 0
                    where e.id = any (array(
                        select x.id from wakeq.events_v2 x
                         where x.id = any (array(
                             select wakeq.first_without(
                                        canvas_id, object, queue, module, name, array(select id from gone)) from lanes))
                           and (x.locked_at is null or x.locked_at < clock_timestamp() - $2) for update skip locked))
               )
               select (select count(*) from kept) as "count!", lanes.canvas_id as "canvas?", lanes.module::text as module,
                      lanes.name::text as name, lanes.object::text as object, lanes.queue::text as queue
                 from (values (1)) as one left join lanes on true"#,
            CANCELLED_PAGE as i64,
            interval(self.timing().lease),
            interval(self.timing().horizon),
            interval(self.timing().grace)
        );
        let rows = self.session().await?.all("delete cancelled events that no longer run", query).await?;
        let count = rows.first().map_or(0, |row| usize::try_from(row.count).unwrap_or(0));
        let lanes = rows.into_iter().filter_map(|row| {
            let scope = address(row.canvas?, row.module.as_deref()?, row.name.as_deref()?, "_").ok()?.scope;
            let queue = row.queue.and_then(|queue| queue.parse().ok());
            Some(Lane { scope, object: row.object?.parse().ok()?, queue })
        });
        Ok((count, lanes.collect()))
    }
}
