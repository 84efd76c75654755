//! Looks at limits from outside: whether so many events wait for one that emits are refused, and
//! how much of each is in use, for gauges. Who gets a place is decided elsewhere.

use uuid::Uuid;

use crate::event::{CanvasId, LimitKey, WaitingMaxReached};
use crate::store::kernel::{Sql, Store, StoreError, interval};

/// Limits of the gauges: counted names whose places are read; names for which events wait; waiting
/// events read altogether, unless there are many names; those read of each name at least.
const GAUGED_STATES: i64 = 5_000;
const GAUGED_NAMES: i32 = 1_000;
const GAUGED_ROWS: i64 = 20_000;
const GAUGED_LEAST: i64 = 100;
/// Maximum number of limits that are returned, those with the most events first.
const GAUGES_MAX: i64 = 1_000;

/// How much of a limit is in use, of a family by all of its keys together.
#[derive(Clone, Debug)]
#[doc(hidden)]
pub struct LimitDepth {
    /// The canvas on which it is counted.
    pub canvas: CanvasId,
    /// Its name, without the keys of a family.
    pub name: String,
    /// Events that hold a place.
    pub running: u64,
    /// Events that wait, also those that were told to come and have not.
    pub waiting: u64,
}

impl Sql<'_> {
    /// The function finds the limit of a key as a claim does, and counts no more waiting events of
    /// it than may wait.
    pub(in crate::store) async fn waiting_max_reached(
        &self,
        keys: &[(CanvasId, &LimitKey)],
    ) -> Result<Option<WaitingMaxReached>, StoreError> {
        let canvases: Vec<Uuid> = keys.iter().map(|(canvas, _)| canvas.0).collect();
        let names: Vec<String> = keys.iter().map(|(_, key)| key.to_string()).collect();
        let query = sqlx::query!(
            r#"select a.canvas_id as "canvas_id!", f.key as "key!", f.waiting_max as "waiting_max!"
                 from (select canvas_id, array_agg(distinct name) as names
                         from unnest($1::uuid[], $2::text[]) as asked (canvas_id, name) group by canvas_id) as a,
                      lateral wakeq.full_waits(a.canvas_id, a.names) as f
                order by 1, 2 limit 1"#,
            &canvases,
            &names
        );
        let found = self.session().await?.optional("look at the limits of keys", query).await?;
        Ok(found.and_then(|row| {
            let key = row.key.parse().ok()?;
            Some(WaitingMaxReached {
                canvas: CanvasId(row.canvas_id),
                key,
                most: row.waiting_max.cast_unsigned(),
            })
        }))
    }
}

impl Store {
    /// How much is in use of each limit that is in use, over all canvases. Of the names that have
    /// places, 5,000 are read. Those for which events wait are found by skipping through the index
    /// from one to the next, 1,000 at most, and of each its share of 20,000 waiting events is
    /// counted, at least 100.
    #[doc(hidden)]
    pub async fn limit_depths(&self) -> Result<Vec<LimitDepth>, StoreError> {
        let query = sqlx::query!(
            r#"with recursive waited as (
                   (select canvas_id, name, 1 as number from (
                       (select canvas_id, name from wakeq.limit_waits where woken_at is null
                         order by canvas_id, name limit 1)
                        union all
                       (select canvas_id, name from wakeq.limit_waits where woken_at is not null
                         order by canvas_id, name limit 1)) as first
                     order by canvas_id, name limit 1)
                    union all
                   select next.canvas_id, next.name, n.number + 1 from waited n, lateral (
                       select o.canvas_id, o.name from (
                           (select w.canvas_id, w.name from wakeq.limit_waits w
                             where (w.canvas_id, w.name) > (n.canvas_id, n.name) and w.woken_at is null
                             order by w.canvas_id, w.name limit 1)
                            union all
                           (select w.canvas_id, w.name from wakeq.limit_waits w
                             where (w.canvas_id, w.name) > (n.canvas_id, n.name) and w.woken_at is not null
                             order by w.canvas_id, w.name limit 1)) as o
                        order by o.canvas_id, o.name limit 1) as next
                    where n.number < $2
               ), used as (
                   select s.canvas_id, s.name, 0::bigint as waiting, (
                              select count(*) from wakeq.events_v2 e
                               where e.id = any (s.holders) and e.locked_at >= now() - $1::interval) as running
                     from (select * from wakeq.limit_states order by canvas_id, name limit $3) as s
                    where s.holders <> '{}'
                    union all
                   select n.canvas_id, n.name, (
                              select count(*) from (
                                  (select from wakeq.limit_waits w
                                    where w.canvas_id = n.canvas_id and w.name = n.name and w.woken_at is null
                                    limit greatest($5::bigint, $4::bigint / s.names))
                                   union all
                                  (select from wakeq.limit_waits w
                                    where w.canvas_id = n.canvas_id and w.name = n.name and w.woken_at is not null
                                    limit greatest($5::bigint, $4::bigint / s.names))
                                   limit greatest($5::bigint, $4::bigint / s.names)) as few), 0
                     from waited n, (select count(*) as names from waited) as s
               ), defined as (
                   select u.canvas_id, u.running, u.waiting, coalesce((
                              select d.name::text from wakeq.limit_on(u.canvas_id, u.name) as d), u.name) as name
                     from used u
               )
               select canvas_id as "canvas_id!", name as "name!", sum(running)::bigint as "running!",
                      sum(waiting)::bigint as "waiting!"
                 from defined group by 1, 2 order by sum(running) + sum(waiting) desc, 1, 2 limit $6"#,
            interval(self.timing().lease),
            GAUGED_NAMES,
            GAUGED_STATES,
            GAUGED_ROWS,
            GAUGED_LEAST,
            GAUGES_MAX
        );
        let rows = self.session().await?.all("count what is in use of limits", query).await?;
        let depths = rows.into_iter().map(|row| LimitDepth {
            canvas: CanvasId(row.canvas_id),
            name: row.name,
            running: row.running.cast_unsigned(),
            waiting: row.waiting.cast_unsigned(),
        });
        Ok(depths.collect())
    }
}
