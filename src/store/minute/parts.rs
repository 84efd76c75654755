//! The minute's pass in parts: what [`Store::minute`] does where one statement for all of it takes
//! too long. Each part has a statement of its own, and one that fails stops no other.
//!
//! Nothing here reads a range whose length is not known without being able to read less of it: an
//! old snapshot keeps the index entries of everything that completed since.

use std::time::{Duration, Instant};

use uuid::Uuid;

use super::chores::MinuteOutcome;
use super::workers::Attendance;
use crate::event::{CanvasId, Timestamp};
use crate::store::kernel::pass::{Parts, Slice, TooLong};
use crate::store::kernel::{Sql, Store, StoreError, interval, notifications};

/// What a pass finds when it begins.
struct OpenRow {
    low_water: Option<Timestamp>,
    behind: Option<Timestamp>,
    tenth: bool,
    log: bool,
    now: Timestamp,
}

struct SliceRow {
    ids: Vec<Uuid>,
    canvases: Vec<Uuid>,
    recovered: i64,
    full: bool,
    passed_over: bool,
    reached: Option<Timestamp>,
}

impl Store {
    /// As [`Store::minute`]. The process that is let through reads the promises from the low-water
    /// mark on, the latest first. What is before the mark is read from each tenth pass on, over as
    /// many passes as it takes: how far is noted in `chores`, for whichever process has the next.
    pub(in crate::store) async fn minute_in_parts(
        &self,
        again: bool,
        worker: Option<&Attendance>,
    ) -> Result<MinuteOutcome, StoreError> {
        if !again {
            Sql(self).compare_timing().await?;
        }
        let mut outcome = MinuteOutcome { crons: !again, ..MinuteOutcome::default() };
        if let Some(worker) = worker {
            match Sql(self).see_worker(worker).await {
                Ok(seen) => outcome.seen = seen,
                Err(error) => outcome.failed.push(error),
            }
        }
        let Some(opened) = self.open_pass(again).await? else { return Ok(outcome) };
        (outcome.open, outcome.queues, outcome.log) = (true, !again, opened.log);
        outcome.cancelled = !again;
        outcome.batches = !again;
        outcome.limits = !again;
        self.probe.begin(again, (opened.low_water, opened.now), opened.behind);
        match self.end_rule().await {
            Ok(ended) => outcome.more = ended,
            Err(error) => outcome.failed.push(error),
        }
        match self.open_jobs().await {
            Ok(jobs) => outcome.jobs = jobs,
            Err(error) => outcome.failed.push(error),
        }
        match self.next_slice(again, &opened, &mut outcome).await {
            Ok(more) => outcome.more |= more,
            Err(error) => outcome.failed.push(error),
        }
        Ok(outcome)
    }

    /// Moves the overdue promises of the next slice; returns whether there is another one.
    async fn next_slice(
        &self,
        again: bool,
        opened: &OpenRow,
        outcome: &mut MinuteOutcome,
    ) -> Result<bool, StoreError> {
        let Some(mut parts) = self.probe.parts() else { return Ok(false) };
        let Some((slice, is_behind)) = parts.slice() else { return Ok(false) };
        let (started, limit) = (Instant::now(), self.statement_timeout());
        let row = match self.move_overdue(slice, parts.reading(is_behind).portion.page).await {
            Err(error) if error.is_too_long() => {
                return self.read_less(again, opened, parts, (slice, is_behind), error).await;
            }
            row => row?,
        };
        outcome.recovered = usize::try_from(row.recovered).unwrap_or(0);
        outcome.notifications = notifications(row.ids, row.canvases);
        let reached = row.reached.filter(|_| row.full);
        let after = parts.after_read((slice, is_behind), reached, (started.elapsed(), limit));
        self.probe.keep(after);
        if is_behind {
            self.note_behind(after.behind.at()).await?;
        } else {
            let passed_over = row.passed_over && !opened.tenth;
            self.probe.learn((again, passed_over), after.recent.at(), self.kept_until(opened));
        }
        Ok(after.slice().is_some())
    }

    /// Reads less than a slice that took too long, or leaves it out; returns whether this pass goes
    /// on.
    async fn read_less(
        &self,
        again: bool,
        opened: &OpenRow,
        parts: Parts,
        (slice, is_behind): (Slice, bool),
        error: StoreError,
    ) -> Result<bool, StoreError> {
        let (less, becomes) = parts.after_too_long((slice, is_behind));
        self.probe.keep(less);
        let (from, to) = slice;
        match becomes {
            TooLong::Less => {
                tracing::info!(
                    error = &error as &dyn std::error::Error,
                    "promises are read in smaller slices"
                );
            }
            TooLong::LeftBehind => {
                tracing::warn!(until = %to, "older promises are read over several passes");
                self.note_behind(Some(to)).await?;
                self.probe.learn((again, false), None, self.kept_until(opened));
            }
            TooLong::SteppedOver => {
                let from = from.map(tracing::field::display);
                tracing::warn!(from, until = %to, "promises are passed over: they take too long");
                self.note_behind(less.behind.at()).await?;
            }
        }
        if less.gives_up() { Err(error) } else { Ok(true) }
    }

    /// Until when all promises are kept once this pass has read what is recent: later ones may
    /// still be hidden in open transactions.
    fn kept_until(&self, opened: &OpenRow) -> Timestamp {
        opened.now - 2 * self.timing().probe_period
    }

    /// Begins a pass if one is due, or continues it: counts it, raises the low-water mark, and in
    /// each tenth marks what is before it as to be read. So does a tenth of which a later page took
    /// too long at once.
    async fn open_pass(&self, again: bool) -> Result<Option<OpenRow>, StoreError> {
        let begins = !again || !self.probe.parts().is_some_and(|parts| parts.has_begun());
        let query = sqlx::query_as!(
            OpenRow,
            r#"update wakeq.chores
                  set next_at = now() + $2, passes = passes + (not $1)::integer,
                      low_water = least(greatest(low_water, $3::timestamptz), now() - 2 * $2::interval),
                      behind = case when $4 and (passes + (not $1)::integer) % 10 = 0
                                    then coalesce(nullif(behind, '-infinity'), low_water) else behind end
                where name || '' = 'minute' and ($1 or next_at <= now() or next_at > now() + 2 * $2::interval)
            returning nullif(low_water, '-infinity') as low_water, nullif(behind, '-infinity') as behind,
                      passes % 10 = 0 as "tenth!", now() as "now!",
                      case when not $1 and passes % 10 = 0
                           then (select last_value + 5000000 >= made_to from wakeq.log_seq, wakeq.log_partitioning)
                           else false end as "log!""#,
            again,
            interval(self.timing().probe_period),
            self.probe.known().kept_until,
            begins
        );
        self.session().await?.optional("begin the minute's pass", query).await
    }

    /// Lifts a rule that reached its end; returns whether there was one.
    async fn end_rule(&self) -> Result<bool, StoreError> {
        let query = sqlx::query_scalar!(
            r#"with expired as (
                   delete from wakeq.scheduling_rules where id = (
                       select id from wakeq.scheduling_rules where until <= now()
                        order by until limit 1 for update skip locked)
                returning canvas_id, event_space, handler_name
               ), job as (
                   insert into wakeq.resume_jobs (kind, canvas_id, module, name)
                   select 'lifted', canvas_id, event_space, handler_name from expired
               )
               select exists (select from expired) as "lifted!""#
        );
        self.session().await?.one("lift a rule that reached its end", query).await
    }

    /// Open resume jobs: the first of each canvas before the second of any.
    async fn open_jobs(&self) -> Result<Vec<(CanvasId, i64)>, StoreError> {
        let query = sqlx::query!(
            r#"select id as "id!", canvas_id as "canvas_id!" from wakeq.open_jobs() order by rank, id"#
        );
        let rows = self.session().await?.all("look for open jobs", query).await?;
        Ok(rows.into_iter().map(|row| (CanvasId(row.canvas_id), row.id)).collect())
    }

    /// Moves the promises of a page of overdue events, from the end of this slice on.
    async fn move_overdue(&self, (from, to): Slice, page: i64) -> Result<SliceRow, StoreError> {
        let timing = self.timing();
        let query = sqlx::query_as!(
            SliceRow,
            r#"with found as materialized (
                   select e.id, e.notify_at from wakeq.events_v2 e
                    where e.notify_at >= coalesce($1::timestamptz, '-infinity') and e.notify_at <= least($2::timestamptz, now())
                    order by e.notify_at desc limit $3
               ), overdue as materialized (
                   select e.id from wakeq.events_v2 e
                    where e.id = any (array(select id from found)) and coalesce(e.notify_at <= now(), false) for update skip locked
               ), moved as (
                   update wakeq.events_v2 e
                      set notify_at = case
                              when e.locked_at > clock_timestamp() - $4::interval then e.locked_at + $4 + $6
                              when e.delay_until > now() then wakeq.wake_at(e.delay_until, now(), $5, $6)
                              else now() + least($7::interval * power(2, least(e.probes, 20)), $8::interval)
                          end,
                          probes = e.probes + (e.delay_until <= now() and coalesce(e.locked_at <= clock_timestamp() - $4::interval, true))::integer
                    where e.id = any (array(select id from overdue))
                returning e.id, e.canvas_id, e.delay_until <= now() as due,
                          e.delay_until <= now() + $5 and coalesce(e.locked_at <= clock_timestamp() - $4::interval, true) as publish
               )
               select array(select id from moved where publish order by id) as "ids!",
                      array(select canvas_id from moved where publish order by id) as "canvases!",
                      (select count(*) from moved where publish and due) as "recovered!",
                      (select count(*) from found) >= $3 as "full!",
                      (select count(*) from overdue) < (select count(*) from found) as "passed_over!",
                      (select min(notify_at) from found)
                          - case when exists (select from overdue) then interval '0' else interval '1 microsecond' end as reached"#,
            from,
            to,
            page,
            interval(timing.lease),
            interval(timing.horizon),
            interval(timing.grace),
            interval(timing.probe_backoff),
            interval(timing.probe_backoff_max)
        );
        self.session().await?.one("move overdue promises", query).await
    }

    /// Notes how far what is before the low-water mark was read; `None`: to its beginning.
    async fn note_behind(&self, at: Option<Timestamp>) -> Result<(), StoreError> {
        let query = sqlx::query!("update wakeq.chores set behind = $1 where name = 'minute'", at);
        self.session().await?.execute("note how far promises were read", query).await.map(drop)
    }

    /// How long a statement may take.
    fn statement_timeout(&self) -> Duration {
        self.config.statement_timeout
    }
}
