//! How much there is to do in queues, at a cost that does not grow with the backlog.

use crate::event::Name;
use crate::store::kernel::{Store, StoreError, interval};

/// Maximum number of copies that are read of one queue, and of all queues together unless there are
/// many.
const LOOK_MAX: i64 = 10_000;
const LOOKS_MAX: i64 = 20_000;

/// The copies that are due and free to run in a queue.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct QueueDepth {
    /// The queue.
    pub queue: Name,
    /// Copies that are due, on no worker, not parked, and of a canvas that is not paused in the
    /// queue. Copies behind another of their object, or whose canvas is at its in-flight limit,
    /// count; one under a rule counts until it has been parked.
    pub depth: u64,
    /// Whether there may be more: at most 10,000 copies are read of a queue, and fewer if there are
    /// many queues.
    pub capped: bool,
    /// Canvases in the rotation now; at most 10,000 are counted.
    pub canvases: u64,
}

impl Store {
    /// The depth of the registered queues, or of the one of this name. Of each, its share of 20,000
    /// due copies is counted, at most 10,000; copies that are not due, or whose canvas is paused in
    /// the queue, are not read.
    #[doc(hidden)]
    pub async fn queue_depths(&self, only: Option<&Name>) -> Result<Vec<QueueDepth>, StoreError> {
        let query = sqlx::query!(
            r#"with asked as materialized (
                   select name, weight from wakeq.queues where $1::text is null or name = $1
               ), share as materialized (
                   select least($3 / greatest(count(*), 1), $4) as rows from asked
               )
               select a.name::text as "name!", counted.depth as "depth!", counted.seen >= (select rows from share) as "capped!",
                      (select count(*) from (select from wakeq.facets f
                         where f.queue = a.name and f.position is not null limit $4) as turning) as "canvases!"
                 from asked a
                cross join lateral (
                      select count(*) as seen, count(*) filter (where free) as depth from (
                          with recursive canvases as (
                              (select e.canvas_id, 1 as number from wakeq.events_v2 e
                                where e.queue = a.name and e.queue <> '' order by e.canvas_id limit 1)
                               union all
                              select (select e.canvas_id from wakeq.events_v2 e
                                       where e.queue = a.name and e.canvas_id > c.canvas_id and e.queue <> ''
                                        order by e.canvas_id limit 1),
                                     c.number + 1
                                from canvases c where c.canvas_id is not null and c.number < $4
                          )
                          select due.free
                            from canvases c
                            left join wakeq.facet_settings s on s.queue = a.name and s.canvas_id = c.canvas_id
                           cross join lateral (
                                 select e.locked_at is null or e.locked_at < now() - $2::interval as free
                                   from wakeq.events_v2 e
                                  where e.queue = a.name and e.canvas_id = c.canvas_id and e.delay_until <= now()
                                    and e.queue <> '' and coalesce(isfinite(e.notify_at), false) and coalesce(s.weight, a.weight) > 0
                                  order by e.delay_until limit (select rows from share)) as due
                           limit (select rows from share)) as looked) as counted
                order by a.name"#,
            only.map(Name::as_str),
            interval(self.timing().lease),
            LOOKS_MAX,
            LOOK_MAX
        );
        let rows = self.session().await?.all("count the copies of queues that can run", query).await?;
        let depths = rows.into_iter().filter_map(|row| {
            Some(QueueDepth {
                queue: row.name.parse().ok()?,
                depth: row.depth.cast_unsigned(),
                capped: row.capped,
                canvases: row.canvases.cast_unsigned(),
            })
        });
        Ok(depths.collect())
    }
}
