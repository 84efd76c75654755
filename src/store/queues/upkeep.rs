//! Background work on queues: drained ones are deleted, and waiting copies are woken when they may
//! run.

use crate::event::{CanvasId, Name, Notification};
use crate::store::kernel::{Store, StoreError, interval, notifications};

/// Maximum number of copies that one statement wakes.
const WAKE_PAGE: i64 = 1000;
/// Maximum number of facets that one statement deletes.
const FORGET_PAGE: i64 = 1000;

impl Store {
    /// Deletes the queues that are drained, with their targets, and facets without copies; returns
    /// how many queues.
    ///
    /// An emit whose statement began before a queue was unregistered may commit after its end: the
    /// queue is then created again, draining, until that copy is done.
    pub(crate) async fn end_drained(&self) -> Result<u64, StoreError> {
        let module = Name::queue();
        let query = sqlx::query_scalar!(
            r#"with recursive named as (
                   (select queue from wakeq.events_v2
                     where queue <> '' and coalesce(isfinite(notify_at), false) order by queue limit 1)
                    union all
                   select (select e.queue from wakeq.events_v2 e
                            where e.queue > n.queue and e.queue <> '' and coalesce(isfinite(e.notify_at), false)
                            order by e.queue limit 1)
                     from named n where n.queue is not null
               ), late as (
                   insert into wakeq.queues (name, draining, created_by, updated_by)
                   select queue, true, 'wakeq', 'wakeq' from named where queue is not null
                       on conflict (name) do nothing
               ), ended as (
                   delete from wakeq.queues q
                    where draining and not exists (
                        select from wakeq.events_v2 e where e.queue = q.name and e.queue <> '' offset 0)
                returning name
               ), targets as (
                   delete from wakeq.http_targets t using ended
                    where t.canvas_id = $1 and t.module = $2 and t.name = ended.name
               ), facets as (
                   delete from wakeq.facets f using ended where f.queue = any (array[ended.name])
               ), halted as (
                   delete from wakeq.halted_lanes h using ended where h.queue = ended.name
               ), turns as (
                   delete from wakeq.queue_turns where queue in (
                       select t.queue from wakeq.queue_turns t
                        where not exists (select from wakeq.queues q where q.name = t.queue)
                        limit $3 for update skip locked)
               ), empty as materialized (
                   select f.queue, f.canvas_id, f.xmin as version from wakeq.facets f
                    where f.position is null
                      and not exists (select from wakeq.events_v2 e
                                       where e.queue = f.queue and e.canvas_id = f.canvas_id and e.queue <> '' offset 0)
                    limit $3
               ), left_over as (
                   -- As it was seen: a turn may have filled it since.
                   delete from wakeq.facets f using (
                       select f.queue, f.canvas_id from empty e
                         join wakeq.facets f on f.queue = any (array[e.queue]) and f.canvas_id = e.canvas_id and f.xmin = e.version
                          for update of f skip locked) as old
                    where f.queue = any (array[old.queue]) and f.canvas_id = old.canvas_id
               )
               select count(*) as "count!" from ended"#,
            CanvasId::OF_QUEUES.0,
            module.as_str() as _,
            FORGET_PAGE
        );
        self.session().await?.one("end drained queues", query).await.map(i64::cast_unsigned)
    }

    /// Moves the promises of a page of those copies of a queue, or of any queue, that have to be
    /// woken and are due; returns what to publish. Also advances that work, or ends it, in the same
    /// statement. `None` if none are left, or another process has the work.
    ///
    /// Locked rows are skipped: a process that starts, parks or gives up an event leaves something
    /// that wakes it.
    pub(crate) async fn wake_page(
        &self,
        queue: Option<&Name>,
    ) -> Result<Option<Vec<Notification>>, StoreError> {
        let timing = self.timing();
        let query = sqlx::query!(
            r#"with work as materialized (
                   select * from wakeq.queue_wakes where $1::text is null or queue = $1
                    order by id limit 1 for update skip locked
               ), page as materialized (
                   select id, canvas_id, delay_until from wakeq.events_v2
                    where queue = (select queue from work)
                      and canvas_id >= coalesce((select canvas_id from work), (select after_canvas from work))
                      and canvas_id <= coalesce((select canvas_id from work), 'ffffffff-ffff-ffff-ffff-ffffffffffff')
                      and (canvas_id, delay_until, id)
                          > ((select after_canvas from work), (select after_due from work), (select after_id from work))
                      and coalesce(isfinite(notify_at), false) and delay_until <= clock_timestamp() and queue <> ''
                      and (locked_at is null or locked_at < clock_timestamp() - $2::interval)
                    order by canvas_id, delay_until, id limit $5
               ), woken as (
                   update wakeq.events_v2 e
                      set notify_at = wakeq.wake_at(e.delay_until, statement_timestamp(), $3, $4), probes = 0
                    where e.id = any (array(
                        select x.id from wakeq.events_v2 x where x.id = any (array(select id from page)) for update skip locked))
                returning e.id, e.canvas_id
               ), moved as (
                   update wakeq.queue_wakes w
                      set after_canvas = last.canvas_id, after_due = last.delay_until, after_id = last.id
                     from (select * from page order by canvas_id desc, delay_until desc, id desc limit 1) as last
                    where w.id = (select id from work) and (select count(*) from page) >= $5
               ), ended as (
                   delete from wakeq.queue_wakes where id = (select id from work) and (select count(*) from page) < $5
               )
               select exists (select from work) as "open!", array(select id from woken order by id) as "ids!",
                      array(select canvas_id from woken order by id) as "canvases!""#,
            queue.map(Name::as_str),
            interval(timing.lease),
            interval(timing.horizon),
            interval(timing.grace),
            WAKE_PAGE
        );
        let row = self.session().await?.one("wake a queue", query).await?;
        Ok(row.open.then(|| notifications(row.ids, row.canvases)))
    }
}
