//! `notify_at`, the promise on a row, where neither emit nor the owner of a claim writes it: park,
//! defer, bring forward.

use std::collections::{HashMap, HashSet};
use std::time::Duration;

use uuid::Uuid;

use crate::event::{CanvasId, EventId, Notification};
use crate::store::kernel::{Sql, StoreError, interval};

/// Maximum number of handlers of a canvas that are noted as unknown.
const UNKNOWN_MAX: i64 = 10_000;

impl Sql<'_> {
    /// The rule's row is locked, so that lifting it waits and then finds these events parked. One
    /// of several rules is enough: lifting another leaves events parked that this one holds. For
    /// copies the row of their queue is locked as well, since rules may stop applying to its
    /// copies, except one on everything.
    pub(in crate::store) async fn park(&self, ids: &[EventId]) -> Result<Vec<bool>, StoreError> {
        let keys: Vec<Uuid> = ids.iter().map(|id| id.0).collect();
        let query = sqlx::query_scalar!(
            "update wakeq.events_v2 e set notify_at = null, postponed_since = null
              where e.id = any ((select $1::uuid[])::uuid[])
                and (    (   exists (
                                 select from wakeq.scheduling_rules r
                                  where r.canvas_id = e.canvas_id and r.event_space = e.module and r.handler_name = e.name
                                    and (r.until is null or r.until > clock_timestamp())
                                    for share of r)
                          or (select exists (select from wakeq.scheduling_rules where event_space = 'CANVAS')) and exists (
                                 select from wakeq.scheduling_rules r
                                  where r.canvas_id = e.canvas_id and r.event_space = 'CANVAS' and r.handler_name = '_'
                                    and (r.until is null or r.until > clock_timestamp())
                                    for share of r))
                     and (e.queue is null or exists (
                         select from wakeq.queues q where q.name = e.queue and q.tenant_visible for share of q))
                     or (select exists (select from wakeq.scheduling_rules where event_space = 'CANVAS')) and exists (
                         select from wakeq.scheduling_rules r
                          where r.canvas_id = 'ffffffff-ffff-ffff-ffff-ffffffffffff' and r.event_space = 'CANVAS'
                            and r.handler_name = '_' and (r.until is null or r.until > clock_timestamp())
                            for share of r))
          returning e.id",
            &keys
        );
        let parked = self.session().await?.all("park events", query).await?;
        Ok(keys.iter().map(|key| parked.contains(key)).collect())
    }

    /// Parked events stay parked by the assignment. As a condition it would make the planner read
    /// all promises in their order, and deadlock with batches in the order of the ids.
    pub(in crate::store) async fn defer(&self, ids: &[EventId]) -> Result<(), StoreError> {
        let keys: Vec<Uuid> = ids.iter().map(|id| id.0).collect();
        let query = sqlx::query!(
            "with deferred as (
                 update wakeq.events_v2 e
                    set notify_at = case when e.notify_at is not null then clock_timestamp() + wakeq.defer_for($2, e.probes) end,
                        postponed_since = case when e.postponed_since is null or not exists (
                            select from wakeq.http_targets t
                             where t.gone_at is not null
                               and t.canvas_id = case when e.queue is null then e.canvas_id else 'ffffffff-ffff-ffff-ffff-ffffffffffff' end
                               and t.module = case when e.queue is null then e.module::text else 'QUEUE' end
                               and t.name = coalesce(e.queue, e.name)::text
                               and t.modifier = case when e.queue is null then e.modifier::text else '_' end
                            offset 0) then e.postponed_since end
                  where e.id = any ($1) and e.delay_until <= clock_timestamp()
                    and (e.locked_at is null or e.locked_at < clock_timestamp() - $3::interval)
              returning e.canvas_id, e.module, e.name, e.modifier, e.queue
             ), full_up as materialized (
                 select c.canvas_id from (select distinct d.canvas_id from deferred d where d.queue is null) as c
                  where exists (select from wakeq.unknown_handlers u where u.canvas_id = c.canvas_id offset $4)
             )
             insert into wakeq.unknown_handlers (canvas_id, module, name, modifier)
             select d.canvas_id, d.module, d.name, d.modifier
               from (select distinct canvas_id, module, name, modifier from deferred where queue is null) as d
              where not exists (select from wakeq.pulled_handlers p
                                 where p.canvas_id = d.canvas_id and p.module = d.module and p.name = d.name offset 0)
                and (d.canvas_id not in (select f.canvas_id from full_up f)
                     or exists (select from wakeq.unknown_handlers u
                                 where u.canvas_id = d.canvas_id and u.module = d.module and u.name = d.name
                                   and u.modifier = d.modifier offset 0))
              order by 1, 2, 3, 4
                 on conflict (canvas_id, module, name, modifier) do update set last_seen = now()",
            &keys,
            interval(self.timing().unknown_handler_wait),
            interval(self.timing().lease),
            UNKNOWN_MAX - 1
        );
        self.session().await?.execute("defer events", query).await.map(drop)
    }

    /// Parked events stay parked by the assignment, as in [`Sql::defer`]. The claim is not checked,
    /// as another process may have it by now: a promise that is too early costs one look by the
    /// probe, and a deleted row needs none.
    pub(in crate::store) async fn bring_forward(
        &self,
        asked: &[(EventId, Duration)],
    ) -> Result<(), StoreError> {
        let mut nearest: HashMap<Uuid, f64> = HashMap::with_capacity(asked.len());
        for (id, wait) in asked {
            let wait_s = nearest.entry(id.0).or_insert(f64::MAX);
            *wait_s = wait_s.min(wait.as_secs_f64());
        }
        let (keys, waits_s): (Vec<Uuid>, Vec<f64>) = nearest.into_iter().unzip();
        let query = sqlx::query!(
            "update wakeq.events_v2
                set notify_at = case when notify_at is not null then least(notify_at,
                        clock_timestamp() + ($2::float8[])[array_position($1, id)] * interval '1 second') end
              where id = any ((select $1::uuid[])::uuid[])",
            &keys,
            &waits_s
        );
        self.session().await?.execute("bring promises forward", query).await.map(drop)
    }

    /// A statement of its own, after the deferral: only then does it see what was committed while
    /// that waited.
    pub(in crate::store) async fn wake_registered(&self, ids: &[EventId]) -> Result<(), StoreError> {
        let keys: Vec<Uuid> = ids.iter().map(|id| id.0).collect();
        let query = sqlx::query!(
            "with woken as (
                 update wakeq.events_v2 e
                    set notify_at = case when e.notify_at is not null then clock_timestamp() end
                   from wakeq.http_targets t
                  where e.id = any ($1) and e.delay_until <= clock_timestamp() and t.gone_at is null
                    and (e.locked_at is null or e.locked_at < clock_timestamp() - $2::interval)
                    and t.canvas_id = any (array[
                            case when e.queue is null then e.canvas_id else 'ffffffff-ffff-ffff-ffff-ffffffffffff' end])
                    and t.module = case when e.queue is null then e.module::text else 'QUEUE' end
                    and t.name = coalesce(e.queue, e.name)::text
                    and t.modifier = case when e.queue is null then e.modifier::text else '_' end
                    and (e.queue is not null or not exists (
                        select from wakeq.pulled_handlers p
                         where p.canvas_id = e.canvas_id and p.module = e.module and p.name = e.name offset 0))
              returning e.canvas_id, e.module, e.name, e.modifier
             )
             delete from wakeq.unknown_handlers u using woken w
              where u.canvas_id = any (array[w.canvas_id]) and (u.module, u.name, u.modifier) = (w.module, w.name, w.modifier)",
            &keys,
            interval(self.timing().lease)
        );
        self.session().await?.execute("wake events whose handler was registered", query).await.map(drop)
    }

    pub(in crate::store) async fn postpone(&self, later: &[(EventId, Duration)]) -> Result<(), StoreError> {
        let (keys, waits_s): (Vec<Uuid>, Vec<f64>) =
            later.iter().map(|(id, wait)| (id.0, wait.as_secs_f64())).unzip();
        let query = sqlx::query!(
            "update wakeq.events_v2
                set notify_at = case when notify_at is not null then greatest(delay_until + $3,
                        clock_timestamp() + ($2::float8[])[array_position($1, id)] * interval '1 second') end,
                    probes = greatest(probes - (delay_until <= clock_timestamp())::integer, 0)
              where id = any (array(
                  select id from wakeq.events_v2
                   where id = any ($1) and (locked_at is null or locked_at < clock_timestamp() - $4::interval)
                     for update skip locked))",
            &keys,
            &waits_s,
            interval(self.timing().grace),
            interval(self.timing().lease)
        );
        self.session().await?.execute("postpone promises", query).await.map(drop)
    }

    pub(in crate::store) async fn still_waiting(
        &self,
        ids: &[EventId],
    ) -> Result<HashSet<EventId>, StoreError> {
        let keys: Vec<Uuid> = ids.iter().map(|id| id.0).collect();
        let query = sqlx::query_scalar!(
            "select e.id from wakeq.events_v2 e
              where e.id = any ((select $1::uuid[])::uuid[])
                and coalesce(isfinite(e.notify_at), false) and e.locked_at is null and e.delay_until <= now()
                and (e.starts_at is null or (
                    select w.woken_at is null from wakeq.limit_waits w where w.event_id = e.id) is not true)",
            &keys
        );
        let waiting = self.session().await?.all("look which events wait", query).await?;
        Ok(waiting.into_iter().map(EventId).collect())
    }

    pub(in crate::store) async fn of_handlers(
        &self,
        asked: &[Notification],
        any_canvas: &[String],
        one_canvas: &[String],
    ) -> Result<HashSet<EventId>, StoreError> {
        let (ids, canvases): (Vec<Uuid>, Vec<Uuid>) =
            asked.iter().map(|notification| (notification.id.0, notification.canvas.0)).unzip();
        let query = sqlx::query_scalar!(
            r#"select found.id as "id!"
                 from unnest($1::uuid[], $2::uuid[]) as asked (id, canvas_id) cross join lateral (
                      select e.id, e.queue, e.module || '/' || e.name || '/' || e.modifier as key from wakeq.events_v2 e
                       where e.id = asked.id and e.canvas_id is not distinct from asked.canvas_id offset 0) as found
                where found.queue is null
                  and (found.key = any ($3::text[]) or asked.canvas_id || '/' || found.key = any ($4::text[]))"#,
            &ids,
            &canvases,
            any_canvas,
            one_canvas
        );
        let found = self.session().await?.all("look for the handlers of events", query).await?;
        Ok(found.into_iter().map(EventId).collect())
    }

    /// In the order of ids, so that one page of an index is read for each handler that has only
    /// later ones; the canvas of the last one that is looked at counts as well.
    pub(in crate::store) async fn other_canvas(
        &self,
        canvas: CanvasId,
    ) -> Result<Option<CanvasId>, StoreError> {
        let query = sqlx::query_scalar!(
            r#"with recursive handlers as (
                   (select canvas_id, module, name, delay_until, 1 as number, 'ffffffff-ffff-ffff-ffff-ffffffffffff'::uuid as below
                      from wakeq.events_v2 where canvas_id > $1 and delay_until > '-infinity'
                     order by canvas_id, module, name, delay_until limit 1)
                    union all
                   (select canvas_id, module, name, delay_until, 1, $1 from wakeq.events_v2
                     where canvas_id < $1 and delay_until > '-infinity'
                     order by canvas_id, module, name, delay_until limit 1)
                    union all
                   select next.*, h.number + 1, h.below from handlers h cross join lateral (
                       select canvas_id, module, name, delay_until from wakeq.events_v2 e
                        where (e.canvas_id, e.module, e.name) > (h.canvas_id, h.module, h.name)
                          and e.canvas_id < h.below and e.delay_until > '-infinity'
                        order by canvas_id, module, name, delay_until limit 1) as next
                    where h.number < 50 and h.delay_until > now() + $2
               )
               select canvas_id as "canvas!" from handlers where number = 50 or delay_until <= now() + $2 limit 1"#,
            canvas.0,
            interval(self.timing().horizon)
        );
        Ok(self.session().await?.optional("look for other canvases", query).await?.map(CanvasId))
    }

    pub(in crate::store) async fn promise_again(&self, ids: &[EventId]) -> Result<(), StoreError> {
        let keys: Vec<Uuid> = ids.iter().map(|id| id.0).collect();
        let query = sqlx::query!(
            "update wakeq.events_v2
                set notify_at = case when notify_at is not null then clock_timestamp() + $2 end,
                    probes = greatest(probes - 1, 0)
              where id = any (array(
                  select id from wakeq.events_v2
                   where id = any ($1) and (locked_at is null or locked_at < clock_timestamp() - $3::interval)
                     for update skip locked))",
            &keys,
            interval(self.timing().grace),
            interval(self.timing().lease)
        );
        self.session().await?.execute("promise events again", query).await.map(drop)
    }
}
