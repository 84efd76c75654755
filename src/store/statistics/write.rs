//! Adds what this process has counted to the statistics of the minute.
//!
//! Processes add to the same rows, always in the order of their keys, so that two of them can't
//! deadlock.

use std::time::Duration;

use tokio::time::Instant;
use uuid::Uuid;

use crate::event::{DurationHistogram, EventCounts};
use crate::store::kernel::{CountRows, HANDLERS_MAX, Session, Store, StoreError};

/// Maximum number of rows that one statement adds to. A process seldom has more.
const PAGE: usize = 1_000;
/// Maximum number of rows of a canvas in a minute or an hour: those of handlers, and its own.
pub(super) const ROWS_MAX: i64 = HANDLERS_MAX as i64 + 1;

/// Why rows were not written.
struct Unwritten {
    error: StoreError,
    /// Whether they certainly were not, and may be written another time.
    is_certain: bool,
}

/// The columns of a page.
#[derive(Default)]
struct Columns {
    canvases: Vec<Uuid>,
    /// For each row its canvas, by the position among these, from 1.
    places: Vec<i32>,
    modules: Vec<String>,
    names: Vec<String>,
    counts: [Vec<i64>; 5],
    wait_us: Vec<i64>,
    run_us: Vec<i64>,
    wait_bins: Vec<String>,
    run_bins: Vec<String>,
}

impl Store {
    /// Adds to the statistics what this process has counted since the last time; nothing is sent if
    /// that is nothing. What is refused is added the next time. What may have been added is not
    /// added again.
    #[doc(hidden)]
    pub async fn write_statistics(&self) {
        let (mut rows, missed) = self.counting.take();
        if missed > 0 {
            tracing::warn!(missed, "the statistics lack what happened on too many canvases at once");
        }
        while !rows.is_empty() {
            let next = rows.keys().nth(PAGE).cloned();
            let rest = next.map(|next| rows.split_off(&next)).unwrap_or_default();
            if let Err(Unwritten { error, is_certain }) = self.write_page(&rows).await {
                let error = &error as &dyn std::error::Error;
                tracing::warn!(error, is_certain, "the statistics of this minute were not written");
                if is_certain {
                    self.counting.put_back(rows);
                }
                return self.counting.put_back(rest);
            }
            rows = rest;
        }
    }

    /// The same, and returns after this time at the latest: for the end of a worker or a process.
    /// The write then goes on as long as the process does, so that what it has taken is written or
    /// comes with the next.
    #[doc(hidden)]
    pub async fn write_statistics_within(&self, limit: Duration) {
        let store = self.clone();
        let writing = tokio::spawn(async move { store.write_statistics().await });
        if tokio::time::timeout(limit, writing).await.is_err() {
            tracing::warn!("the last statistics of this process may not have been written");
        }
    }

    async fn write_page(&self, rows: &CountRows) -> Result<(), Unwritten> {
        let session = self.session().await.map_err(|error| Unwritten { error, is_certain: true })?;
        match add_to_minute(session, &Columns::of(rows)).await {
            Ok(second) => {
                self.counting.note_write(Instant::now(), second);
                Ok(())
            }
            Err(error) => Err(Unwritten { is_certain: took_no_effect(&error), error }),
        }
    }
}

/// Adds rows to those of the minute in which half a minute ago was, because most of what was
/// counted happened in it. Returns the second of the database's minute.
async fn add_to_minute(session: Session, columns: &Columns) -> Result<f64, StoreError> {
    let [emitted, completed, failed, retried, dead] = &columns.counts;
    let query = sqlx::query_scalar!(
        r#"with at as materialized (
               select date_trunc('minute', now() - interval '30 seconds') as minute
           ), kept as materialized (
               select array(select (select count(*) from (
                                        select from wakeq.minute_statistics s
                                         where s.at = (select minute from at) and s.canvas_id = c.canvas_id limit $14) as s)
                              from unnest($1::uuid[]) with ordinality as c (canvas_id, place) order by c.place) as rows
           ), given as (
               select g.*, ($1::uuid[])[g.place] as canvas_id,
                      exists (select from wakeq.minute_statistics x
                               where x.at = (select minute from at) and x.canvas_id = ($1::uuid[])[g.place]
                                 and x.module = g.module and x.name = g.name offset 0) as has_row
                 from unnest($2::integer[], $3::text[], $4::text[], $5::bigint[], $6::bigint[], $7::bigint[], $8::bigint[],
                             $9::bigint[], $10::bigint[], $11::bigint[], $12::text[], $13::text[])
                      as g (place, module, name, emitted, completed, failed, retried, dead, wait_us, run_us, wait_bins, run_bins)
           ), numbered as (
               select *, row_number() over (partition by place, has_row order by module, name) as number from given
           ), added as (
               insert into wakeq.minute_statistics as s
                      (at, canvas_id, module, name, emitted, completed, failed, retried, dead, wait_us, run_us, wait_bins, run_bins)
               select a.minute, g.canvas_id, g.module, g.name, g.emitted, g.completed, g.failed, g.retried, g.dead,
                      g.wait_us, g.run_us, g.wait_bins::integer[], g.run_bins::integer[]
                 from at a, kept k, numbered g
                where g.module = '' or g.has_row or k.rows[g.place] + g.number <= $14
                order by 2, 3, 4
                   on conflict (at, canvas_id, module, name) do update
                  set emitted = s.emitted + excluded.emitted, completed = s.completed + excluded.completed,
                      failed = s.failed + excluded.failed, retried = s.retried + excluded.retried, dead = s.dead + excluded.dead,
                      wait_us = s.wait_us + excluded.wait_us, run_us = s.run_us + excluded.run_us,
                      wait_bins = wakeq.add_bins(s.wait_bins, excluded.wait_bins),
                      run_bins = wakeq.add_bins(s.run_bins, excluded.run_bins)
           )
           select extract(second from now())::float8 as "second!""#,
        &columns.canvases,
        &columns.places,
        &columns.modules,
        &columns.names,
        emitted,
        completed,
        failed,
        retried,
        dead,
        &columns.wait_us,
        &columns.run_us,
        &columns.wait_bins,
        &columns.run_bins,
        ROWS_MAX
    );
    session.one("add to the statistics", query).await
}

/// Whether the statement certainly changed nothing, and may succeed with the same data.
fn took_no_effect(error: &StoreError) -> bool {
    match error {
        StoreError::Refused { .. } => !error.is_data(),
        StoreError::TimedOut { ended, .. } => *ended,
        StoreError::NotMigrated(_) => true,
        StoreError::Unavailable(_)
        | StoreError::Migration(_)
        | StoreError::PartlyMigrated(_)
        | StoreError::UnsafeDurability { .. }
        | StoreError::RoleSettings { .. }
        | StoreError::PoolSettings { .. }
        | StoreError::ForeignEngine(_)
        | StoreError::Timing(_)
        | StoreError::OtherTiming { .. }
        | StoreError::Overloaded
        | StoreError::Quota(_)
        | StoreError::WaitingMax(_)
        | StoreError::NoBatch(_)
        | StoreError::IdTaken(_)
        | StoreError::Config(_)
        | StoreError::Defect => false,
    }
}

impl Columns {
    /// The rows of a canvas are next to each other.
    fn of(rows: &CountRows) -> Self {
        let mut columns = Self::default();
        for (key, counts) in rows {
            if columns.canvases.last() != Some(&key.canvas.0) {
                columns.canvases.push(key.canvas.0);
            }
            columns.places.push(i32::try_from(columns.canvases.len()).unwrap_or(i32::MAX));
            let (module, name) =
                key.handler.as_ref().map(|(module, name)| (module.as_str(), name.as_str())).unzip();
            columns.modules.push(module.unwrap_or_default().to_owned());
            columns.names.push(name.unwrap_or_default().to_owned());
            columns.add(counts);
        }
        columns
    }

    fn add(&mut self, counts: &EventCounts) {
        let EventCounts { emitted, completed, failed, retried, dead, wait, run } = counts;
        for (column, count) in self.counts.iter_mut().zip([emitted, completed, failed, retried, dead]) {
            column.push(i64::try_from(*count).unwrap_or(i64::MAX));
        }
        self.wait_us.push(sum_us(wait));
        self.run_us.push(sum_us(run));
        self.wait_bins.push(bins(wait));
        self.run_bins.push(bins(run));
    }
}

fn sum_us(histogram: &DurationHistogram) -> i64 {
    i64::try_from(histogram.sum().as_micros()).unwrap_or(i64::MAX)
}

/// The bins up to the last one that has something, as the text of an array: arrays in an array of a
/// statement would have to be of one length.
fn bins(histogram: &DurationHistogram) -> String {
    let bins = histogram.bins();
    let used = bins.iter().rposition(|count| *count > 0).map_or(0, |last| last + 1);
    let counts = bins[..used].iter().map(|count| i32::try_from(*count).unwrap_or(i32::MAX).to_string());
    format!("{{{}}}", counts.collect::<Vec<_>>().join(","))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn bins_are_written_up_to_the_last_one_that_is_used() {
        let mut histogram = DurationHistogram::default();
        assert_eq!(bins(&histogram), "{}");
        histogram.record(Duration::from_millis(1));
        histogram.record(Duration::from_millis(5));
        histogram.record(Duration::from_millis(6));
        assert_eq!((bins(&histogram).as_str(), sum_us(&histogram)), ("{0,1,0,2}", 12_000));
    }
}
