//! The minute's pass in parts: what [`Store::minute`] does where one statement for all of it takes
//! too long. Each part has a statement of its own, and one that fails stops no other.
//!
//! Nothing here reads a range whose length is not known without being able to read less of it: an
//! old snapshot keeps the index entries of everything that completed since.

use std::time::{Duration, Instant};

use uuid::Uuid;

use super::chores::{MinuteOutcome, notifications};
use super::session::interval;
use super::slices::{Portion, Walk};
use super::{Store, StoreError};
use crate::event::{CanvasId, Timestamp};

/// In how many passes the parts are taken one by one before all of it is tried again at once.
const PASSES: u32 = 10;
/// Most slices of one pass from before the low-water mark; the next pass continues.
const LOOKS_MAX: u32 = 10;
/// After how many slices that took too long a pass gives up; the next continues with smaller ones.
const TOO_LONG_MAX: u32 = 4;

/// What is left of a pass in parts, and how much its statements read.
#[derive(Clone, Copy, Debug)]
pub(super) struct Parts {
    portion: Portion,
    /// How many more passes are taken in parts.
    passes: u32,
    /// From the low-water mark on.
    recent: Option<Walk>,
    /// Before the mark.
    behind: Option<Walk>,
    looks: u32,
    too_long: u32,
}

impl Parts {
    /// After a pass at once has taken too long.
    pub(super) const AFTER_ALL_AT_ONCE: Self =
        Self { portion: Portion::FIRST, passes: PASSES, recent: None, behind: None, looks: 0, too_long: 0 };

    /// At the beginning of a pass: from the low-water mark until now, and what is still to be read
    /// before it.
    pub(super) fn of_pass(
        self,
        (from, now): (Option<Timestamp>, Timestamp),
        behind: Option<Timestamp>,
    ) -> Self {
        Self {
            passes: self.passes.saturating_sub(1),
            recent: Some(Walk::back(from, now)),
            behind: behind.map(|at| Walk::back(None, at)),
            looks: 0,
            too_long: 0,
            ..self
        }
    }

    /// Whether a pass has begun.
    pub(super) fn has_begun(&self) -> bool {
        self.recent.is_some()
    }

    /// Whether the next pass may try all at once again.
    pub(super) fn is_over(&self) -> bool {
        self.passes == 0
    }

    /// The slice to read now, and whether it is before the low-water mark.
    fn slice(&self) -> Option<(Slice, bool)> {
        let recent = self.recent.and_then(|walk| walk.slice(self.portion)).map(|slice| (slice, false));
        recent.or_else(|| {
            let walk = self.behind.filter(|_| self.looks < LOOKS_MAX)?;
            Some((walk.slice(self.portion)?, true))
        })
    }

    /// After a slice was read, in this time.
    fn read(self, (slice, behind): (Slice, bool), reached: Option<Timestamp>, portion: Portion) -> Self {
        let after = |walk: Option<Walk>| walk.map(|walk| walk.after(slice, reached));
        let (recent, behind) = match behind {
            false => (after(self.recent), self.behind),
            true => (self.recent, after(self.behind)),
        };
        let looks = self.looks + u32::from(self.recent.and_then(|walk| walk.at).is_none());
        Self { portion, recent, behind, looks, too_long: 0, ..self }
    }
}

type Slice = (Option<Timestamp>, Timestamp);

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
    pub(super) async fn minute_in_parts(&self, again: bool) -> Result<MinuteOutcome, StoreError> {
        let mut outcome = MinuteOutcome { crons: !again, ..MinuteOutcome::default() };
        let Some(opened) = self.open_pass(again).await? else { return Ok(outcome) };
        (outcome.open, outcome.queues, outcome.log) = (true, !again, opened.log);
        self.probe.begin(again, (opened.low_water, opened.now), opened.behind);
        match self.ends_and_jobs().await {
            Ok((jobs, lifted)) => (outcome.jobs, outcome.more) = (jobs, lifted),
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
        let Some(parts) = self.probe.parts() else { return Ok(false) };
        let Some((slice, is_behind)) = parts.slice() else { return Ok(false) };
        let (started, limit) = (Instant::now(), self.statement_timeout());
        let row = match self.move_overdue(slice, parts.portion.page).await {
            Err(error) if error.is_too_long() => return self.read_less(parts, error),
            row => row?,
        };
        let reached = row.reached.filter(|_| row.full);
        let portion = parts.portion.after(started.elapsed(), limit);
        let after = parts.read((slice, is_behind), reached, portion);
        self.probe.keep(after);
        if is_behind {
            self.note_behind(after.behind.and_then(|walk| walk.at)).await?;
        } else {
            let rest = after.recent.and_then(|walk| walk.at);
            let kept_until = opened.now - 2 * self.timing().probe_period;
            self.probe.learn((again, row.passed_over && !opened.tenth), rest, kept_until);
        }
        outcome.recovered = usize::try_from(row.recovered).unwrap_or(0);
        outcome.notifications = notifications(row.ids, row.canvases);
        Ok(after.slice().is_some())
    }

    /// Lets the next slice be smaller; returns whether this pass reads it.
    fn read_less(&self, parts: Parts, error: StoreError) -> Result<bool, StoreError> {
        let Some(portion) = parts.portion.smaller() else { return Err(error) };
        let less = Parts { portion, too_long: parts.too_long + 1, ..parts };
        self.probe.keep(less);
        if less.too_long >= TOO_LONG_MAX {
            return Err(error);
        }
        tracing::info!(error = &error as &dyn std::error::Error, "promises are read in smaller slices");
        Ok(true)
    }

    /// Begins a pass if one is due, or continues it: counts it, raises the low-water mark, and in
    /// each tenth marks what is before it as to be read.
    async fn open_pass(&self, again: bool) -> Result<Option<OpenRow>, StoreError> {
        let query = sqlx::query_as!(
            OpenRow,
            r#"update wakeq.chores
                  set next_at = now() + $2, passes = passes + (not $1)::integer,
                      low_water = least(greatest(low_water, $3::timestamptz), now() - 2 * $2::interval),
                      behind = case when not $1 and (passes + 1) % 10 = 0 then coalesce(nullif(behind, '-infinity'), low_water) else behind end
                where name || '' = 'minute' and ($1 or next_at <= now() or next_at > now() + 2 * $2::interval)
            returning nullif(low_water, '-infinity') as low_water, nullif(behind, '-infinity') as behind,
                      passes % 10 = 0 as "tenth!", now() as "now!",
                      case when not $1 and passes % 10 = 0
                           then (select last_value + 5000000 >= made_to from wakeq.log_seq, wakeq.log_partitioning)
                           else false end as "log!""#,
            again,
            interval(self.timing().probe_period),
            self.probe.known().kept_until
        );
        self.session().await?.optional("begin the minute's pass", query).await
    }

    /// Lifts a rule that reached its end, and lists open jobs; returns whether there was a rule.
    async fn ends_and_jobs(&self) -> Result<(Vec<(CanvasId, i64)>, bool), StoreError> {
        let query = sqlx::query!(
            r#"with expired as (
                   delete from wakeq.scheduling_rules where id = (
                       select id from wakeq.scheduling_rules where until <= now()
                        order by until limit 1 for update skip locked)
                returning canvas_id, event_space, handler_name
               ), job as (
                   insert into wakeq.resume_jobs (kind, canvas_id, module, name)
                   select 'lifted', canvas_id, event_space, handler_name from expired returning id, canvas_id
               ), jobs as (
                   (select id, canvas_id, row_number() over (partition by canvas_id order by id) as rank
                      from wakeq.resume_jobs order by rank, id limit 1000)
                    union all select id, canvas_id, 0 from job
               )
               select array(select id from jobs order by rank, id) as "jobs!",
                      array(select canvas_id from jobs order by rank, id) as "canvases!",
                      exists (select from expired) as "lifted!""#
        );
        let row = self.session().await?.one("look for open jobs", query).await?;
        Ok((row.canvases.into_iter().map(CanvasId).zip(row.jobs).collect(), row.lifted))
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
