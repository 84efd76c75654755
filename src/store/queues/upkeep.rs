//! What becomes of queues by itself: drained ones end, and what waits goes on when it may.

use uuid::Uuid;

use crate::event::{CanvasId, EventId, Name, Notification, Timestamp};
use crate::store::chores::notifications;
use crate::store::session::interval;
use crate::store::{Store, StoreError};

/// Most copies that one statement wakes.
const WAKE_PAGE: i64 = 1000;
/// Most facets that one statement forgets.
const FORGET_PAGE: i64 = 1000;

/// A page of copies to be woken, and where the next one begins.
#[derive(Debug, Default)]
pub(crate) struct WokenCopies {
    pub(crate) notifications: Vec<Notification>,
    pub(crate) next: Option<CopyPosition>,
}

/// Where a copy stands among those of its queue.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct CopyPosition {
    canvas: CanvasId,
    due: Timestamp,
    id: EventId,
}

impl Store {
    /// Deletes the queues that were drained, with their targets, and facets that nothing waits in; how many queues.
    ///
    /// An emit whose statement began before a queue was taken back may come after its end: the queue then is there again,
    /// drained, until that copy is done.
    pub(crate) async fn end_drained(&self) -> Result<u64, StoreError> {
        let (mut session, module) = (self.session().await?, Name::queue());
        let query = sqlx::query_scalar!(
            r#"with recursive named as (
                   (select queue from wakeq.events_v2 where queue is not null and notify_at is not null order by queue limit 1)
                    union all
                   select (select e.queue from wakeq.events_v2 e
                            where e.queue > n.queue and e.queue is not null and e.notify_at is not null
                            order by e.queue limit 1)
                     from named n where n.queue is not null
               ), late as (
                   insert into wakeq.queues (name, draining, created_by, updated_by)
                   select queue, true, 'wakeq', 'wakeq' from named where queue is not null
                       on conflict (name) do nothing
               ), ended as (
                   delete from wakeq.queues q
                    where draining and not exists (select from wakeq.events_v2 e where e.queue = q.name)
                returning name
               ), targets as (
                   delete from wakeq.http_targets t using ended
                    where t.canvas_id = $1 and t.module = $2 and t.name = ended.name
               ), facets as (
                   delete from wakeq.facets f using ended where f.queue = ended.name
               ), halted as (
                   delete from wakeq.halted_lanes h using ended where h.queue = ended.name
               ), turns as (
                   delete from wakeq.queue_turns where queue in (
                       select t.queue from wakeq.queue_turns t
                        where not exists (select from wakeq.queues q where q.name = t.queue)
                        limit $3 for update skip locked)
               ), left_over as (
                   delete from wakeq.facets where (queue, canvas_id) in (
                       select f.queue, f.canvas_id from wakeq.facets f
                        where f.position is null
                          and not exists (select from wakeq.events_v2 e where e.queue = f.queue and e.canvas_id = f.canvas_id)
                        limit $3 for update skip locked)
               )
               select count(*) as "count!" from ended"#,
            CanvasId::OF_QUEUES.0,
            module.as_str() as _,
            FORGET_PAGE
        );
        let ended = session.limit(|connection| query.fetch_one(connection)).await;
        session.answered("end drained queues", ended).map(i64::cast_unsigned)
    }

    /// Moves the promises of a page of waiting copies that are due, of a canvas or all: they are to be published. For who
    /// let them go on.
    pub(crate) async fn wake_facets(
        &self,
        queue: &Name,
        canvas: Option<CanvasId>,
        after: Option<CopyPosition>,
    ) -> Result<WokenCopies, StoreError> {
        let timing = self.timing();
        let mut session = self.session().await?;
        let query = sqlx::query!(
            r#"with page as (
                   select id from wakeq.events_v2
                    where queue = $1 and ($2::uuid is null or canvas_id = $2) and notify_at is not null
                      and delay_until <= clock_timestamp()
                      and ($3::uuid is null or (canvas_id, delay_until, id) > ($3, $4::timestamptz, $5::uuid))
                      and (locked_at is null or locked_at < clock_timestamp() - $6::interval)
                    order by canvas_id, delay_until, id limit $9 for update skip locked
               ), woken as (
                   update wakeq.events_v2 e
                      set notify_at = wakeq.wake_at(e.delay_until, clock_timestamp(), $7, $8), probes = 0
                     from page where e.id = page.id
                returning e.id, e.canvas_id, e.delay_until
               )
               select id as "id!", canvas_id as "canvas_id!", delay_until as "delay_until!" from woken
                order by canvas_id, delay_until, id"#,
            queue.as_str() as _,
            canvas.map(|canvas| canvas.0),
            after.map(|after| after.canvas.0),
            after.map(|after| after.due),
            after.map(|after| after.id.0),
            interval(timing.lease),
            interval(timing.horizon),
            interval(timing.grace),
            WAKE_PAGE
        );
        let rows = session.limit(|connection| query.fetch_all(connection)).await;
        let rows = session.answered("wake a queue", rows)?;
        let last = rows.last().filter(|_| i64::try_from(rows.len()).is_ok_and(|count| count >= WAKE_PAGE));
        let next = last.map(|row| CopyPosition {
            canvas: CanvasId(row.canvas_id),
            due: row.delay_until,
            id: EventId(row.id),
        });
        let (ids, canvases): (Vec<Uuid>, Vec<Uuid>) = rows.iter().map(|row| (row.id, row.canvas_id)).unzip();
        Ok(WokenCopies { notifications: notifications(ids, canvases), next })
    }
}
