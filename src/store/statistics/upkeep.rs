//! Moves old minutes into their hours, and deletes old hours, a page at a time.

use std::time::Duration;

use super::write::ROWS_MAX;
use crate::store::kernel::{Store, StoreError, interval};

/// How long minutes are kept: for a day, and an hour in which nobody who asks for that day finds
/// its beginning gone.
const MINUTES_KEPT: Duration = Duration::from_secs(25 * 3600);
/// How long hours are kept.
pub(super) const HOURS_KEPT: Duration = Duration::from_secs(14 * 24 * 3600);

impl Store {
    /// Adds a page of minutes to their hours, and deletes them. Only whole hours leave, so that a
    /// chart has either all of the minutes of an hour or none. Returns how many there were.
    pub(in crate::store) async fn roll_up_statistics(&self) -> Result<u64, StoreError> {
        let query = sqlx::query_scalar!(
            r#"with old as materialized (
                   select m.at, m.canvas_id, m.module, m.name from wakeq.minute_statistics m
                    where m.at < date_trunc('hour', now() - $1::interval)
                    order by m.at, m.canvas_id, m.module, m.name limit 1000 for update skip locked
               ), gone as (
                   delete from wakeq.minute_statistics m using old
                    where m.at = any (array[old.at]) and (m.canvas_id, m.module, m.name) = (old.canvas_id, old.module, old.name)
                returning m.*
               ), binned as (
                   select date_trunc('hour', g.at) as at, g.canvas_id, g.module, g.name, b.bin,
                          sum(g.emitted) filter (where b.bin = 1) as emitted,
                          sum(g.completed) filter (where b.bin = 1) as completed,
                          sum(g.failed) filter (where b.bin = 1) as failed, sum(g.retried) filter (where b.bin = 1) as retried,
                          sum(g.dead) filter (where b.bin = 1) as dead,
                          sum(g.wait_us) filter (where b.bin = 1) as wait_us, sum(g.run_us) filter (where b.bin = 1) as run_us,
                          coalesce(sum(g.wait_bins[b.bin]), 0)::integer as wait,
                          coalesce(sum(g.run_bins[b.bin]), 0)::integer as run
                     from gone g
                    cross join lateral generate_series(1, greatest(1, cardinality(g.wait_bins), cardinality(g.run_bins)))
                          as b (bin)
                    group by 1, 2, 3, 4, 5
               ), hours as (
                   select at, canvas_id, module, name, sum(emitted)::bigint as emitted, sum(completed)::bigint as completed,
                          sum(failed)::bigint as failed, sum(retried)::bigint as retried, sum(dead)::bigint as dead,
                          sum(wait_us)::bigint as wait_us, sum(run_us)::bigint as run_us,
                          array_agg(wait order by bin) as wait_bins, array_agg(run order by bin) as run_bins
                     from binned group by at, canvas_id, module, name
               ), known as (
                   select h.*, exists (select from wakeq.hour_statistics x
                                        where x.at = h.at and x.canvas_id = h.canvas_id and x.module = h.module and x.name = h.name
                                       offset 0) as has_row
                     from hours h
               ), numbered as (
                   select k.*, row_number() over (partition by k.at, k.canvas_id, k.has_row order by k.module, k.name) as number
                     from known k
               ), limited as (
                   select h.*, max(case h.number when 1 then (
                               select count(*) from (
                                   select from wakeq.hour_statistics x
                                    where x.at = h.at and x.canvas_id = h.canvas_id limit $2) as x) end)
                               over (partition by h.at, h.canvas_id) as kept
                     from numbered h
               ), added as (
                   insert into wakeq.hour_statistics as s
                          (at, canvas_id, module, name, emitted, completed, failed, retried, dead, wait_us, run_us,
                           wait_bins, run_bins)
                   select h.at, h.canvas_id, h.module, h.name, h.emitted, h.completed, h.failed, h.retried, h.dead, h.wait_us,
                          h.run_us, h.wait_bins, h.run_bins
                     from limited h
                    where h.module = '' or h.has_row or h.number + h.kept <= $2
                    order by 1, 2, 3, 4
                       on conflict (at, canvas_id, module, name) do update
                      set emitted = s.emitted + excluded.emitted, completed = s.completed + excluded.completed,
                          failed = s.failed + excluded.failed, retried = s.retried + excluded.retried,
                          dead = s.dead + excluded.dead,
                          wait_us = s.wait_us + excluded.wait_us, run_us = s.run_us + excluded.run_us,
                          wait_bins = wakeq.add_bins(s.wait_bins, excluded.wait_bins),
                          run_bins = wakeq.add_bins(s.run_bins, excluded.run_bins)
               )
               select count(*) as "count!" from old"#,
            interval(MINUTES_KEPT),
            ROWS_MAX
        );
        Ok(self.session().await?.one("add minutes to their hours", query).await?.unsigned_abs())
    }

    /// Deletes a page of hours that are too old to keep; returns how many.
    pub(in crate::store) async fn expire_statistics(&self) -> Result<u64, StoreError> {
        let query = sqlx::query!(
            "delete from wakeq.hour_statistics h using (
                 select at, canvas_id, module, name from wakeq.hour_statistics
                  where at < now() - $1::interval
                  order by at, canvas_id, module, name limit 1000 for update skip locked) as old
              where h.at = any (array[old.at]) and (h.canvas_id, h.module, h.name) = (old.canvas_id, old.module, old.name)",
            interval(HOURS_KEPT)
        );
        Ok(self.session().await?.execute("delete old statistics", query).await?.rows_affected())
    }
}
