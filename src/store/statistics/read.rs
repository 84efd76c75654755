//! Reads statistics for charts.

use std::time::Duration;

use super::upkeep::HOURS_KEPT;
use crate::event::{CanvasId, DurationHistogram, EventCounts, HandlerScope, Timestamp};
use crate::store::kernel::{Store, StoreError, interval};

/// Nothing older is kept, even if it was not deleted at its time.
const LOOKED_BACK: Duration = HOURS_KEPT.saturating_add(Duration::from_secs(24 * 3600));

struct StatisticsRow {
    at: Timestamp,
    emitted: i64,
    completed: i64,
    failed: i64,
    retried: i64,
    dead: i64,
    wait_us: i64,
    run_us: i64,
    wait_bins: Vec<i32>,
    run_bins: Vec<i32>,
}

impl Store {
    /// What happened to the events of a canvas, or of one of its handlers, from the first moment up
    /// to the second, by minute and by hour, each with its beginning. The first one is the
    /// beginning of a minute.
    ///
    /// Each minute and hour is looked up by its key, whatever the planner expects, so what other
    /// canvases have costs nothing, nor what is gone.
    pub(crate) async fn statistics(
        &self,
        canvas: CanvasId,
        handler: Option<&HandlerScope>,
        (from, to): (Timestamp, Timestamp),
    ) -> Result<Vec<(Timestamp, EventCounts)>, StoreError> {
        let query = sqlx::query_as!(
            StatisticsRow,
            r#"with span as materialized (
                   select greatest($4::timestamptz, date_trunc('hour', now()) - $6::interval) as since,
                          least($5::timestamptz, now()) - interval '1 microsecond' as until
               )
               select s.at as "at!", s.emitted as "emitted!", s.completed as "completed!", s.failed as "failed!",
                      s.retried as "retried!", s.dead as "dead!", s.wait_us as "wait_us!", s.run_us as "run_us!",
                      s.wait_bins as "wait_bins!", s.run_bins as "run_bins!"
                 from span
                cross join lateral generate_series(span.since, span.until, interval '1 minute') as moment (at)
                cross join lateral (
                      select m.* from wakeq.minute_statistics m
                       where m.at = moment.at and m.canvas_id = $1 and m.module = $2 and m.name = $3 offset 0) as s
                union all
               select s.at, s.emitted, s.completed, s.failed, s.retried, s.dead, s.wait_us, s.run_us, s.wait_bins, s.run_bins
                 from span
                cross join lateral generate_series(date_trunc('hour', span.since), span.until, interval '1 hour') as moment (at)
                cross join lateral (
                      select h.* from wakeq.hour_statistics h
                       where moment.at >= span.since
                         and h.at = moment.at and h.canvas_id = $1 and h.module = $2 and h.name = $3 offset 0) as s"#,
            canvas.0,
            handler.map_or("", |handler| handler.module.as_str()),
            handler.map_or("", |handler| handler.name.as_str()),
            from,
            to,
            interval(LOOKED_BACK)
        );
        let rows = self.session().await?.all("read statistics", query).await?;
        Ok(rows.into_iter().map(|row| (row.at, row.counts())).collect())
    }
}

impl StatisticsRow {
    fn counts(&self) -> EventCounts {
        let histogram = |bins: &[i32], sum_us: i64| {
            let bins = bins.iter().map(|count| u64::try_from(*count).unwrap_or(0));
            DurationHistogram::of(bins, Duration::from_micros(sum_us.unsigned_abs()))
        };
        EventCounts {
            emitted: self.emitted.unsigned_abs(),
            completed: self.completed.unsigned_abs(),
            failed: self.failed.unsigned_abs(),
            retried: self.retried.unsigned_abs(),
            dead: self.dead.unsigned_abs(),
            wait: histogram(&self.wait_bins, self.wait_us),
            run: histogram(&self.run_bins, self.run_us),
        }
    }
}
