//! Periodic work, done by one process at a time: a row of `chores` lets one through when it is due.

use std::time::{Duration, Instant};

use sqlx::postgres::types::PgInterval;
use uuid::Uuid;

use super::workers::Attendance;
use crate::event::{CanvasId, Notification, Timestamp};
use crate::store::kernel::pass::Portion;
use crate::store::kernel::{Sql, Store, StoreError, interval, notifications};

/// How far ahead ticks are emitted, in periods of the minute's pass. The period varies by a tenth,
/// so a pass that comes late is still early enough.
const AHEAD: f64 = 1.25;
/// Limit on how far ahead ticks are emitted.
const AHEAD_MAX: Duration = Duration::from_secs(600);

/// What the minute's statement found to do.
#[derive(Clone, Debug, Default)]
pub(crate) struct MinuteOutcome {
    /// Overdue events, to be published; their promises have already been moved.
    pub(crate) notifications: Vec<Notification>,
    /// How many of them were already due: their first notifications had no effect.
    pub(crate) recovered: usize,
    /// Open resume jobs: the first of each canvas before the second of any.
    pub(crate) jobs: Vec<(CanvasId, i64)>,
    /// Whether crons tick now or within [`Store::cron_ahead`]; also reported if another process was
    /// first.
    pub(crate) crons: bool,
    /// Whether queues need attention: one is being drained, a facet with a limit has copies in
    /// flight or was full, copies have to be woken, or, in every tenth pass, a queue was ever
    /// registered.
    pub(crate) queues: bool,
    /// Whether events were cancelled while they ran and are left.
    pub(crate) cancelled: bool,
    /// Whether there are batches that are not over.
    pub(crate) batches: bool,
    /// Whether events wait for places of limits.
    pub(crate) limits: bool,
    /// Whether the log needs partitions for what is appended next; checked in every tenth pass.
    pub(crate) log: bool,
    /// Whether the statement should run again at once.
    pub(crate) more: bool,
    /// Whether it was due, and no other process was first.
    pub(crate) open: bool,
    /// Whether the worker that was to be seen has a row, which was written.
    pub(crate) seen: bool,
    /// Why parts of it were not done.
    pub(crate) failed: Vec<StoreError>,
}

struct MinuteRow {
    ids: Vec<Uuid>,
    canvases: Vec<Uuid>,
    jobs: Vec<i64>,
    job_canvases: Vec<Uuid>,
    crons: bool,
    queues: bool,
    cancelled: bool,
    batches: bool,
    limits: bool,
    log: bool,
    recovered: i64,
    open: bool,
    full: bool,
    passed_over: bool,
    lifted: bool,
    retimed: bool,
    seen: bool,
    reached: Option<Timestamp>,
    now: Timestamp,
}

impl MinuteRow {
    fn into_minute(self) -> MinuteOutcome {
        MinuteOutcome {
            notifications: notifications(self.ids, self.canvases),
            recovered: usize::try_from(self.recovered).unwrap_or(0),
            jobs: self.job_canvases.into_iter().map(CanvasId).zip(self.jobs).collect(),
            crons: self.crons,
            queues: self.queues,
            cancelled: self.cancelled,
            batches: self.batches,
            limits: self.limits,
            log: self.log,
            more: self.full || self.lifted,
            open: self.open,
            seen: self.seen,
            failed: Vec::new(),
        }
    }
}

impl Sql<'_> {
    /// With [one statement](Self::minute_at_once) where that is possible. Where it takes too long,
    /// which under an old snapshot it may, this and the next passes do [its
    /// parts](Store::minute_in_parts) one by one.
    pub(in crate::store) async fn minute(
        &self,
        again: bool,
        worker: Option<&Attendance>,
    ) -> Result<MinuteOutcome, StoreError> {
        if !self.probe.is_in_parts(again) {
            match self.minute_at_once(again, worker).await {
                Err(error) if error.is_too_long() => {
                    tracing::warn!(
                        error = &error as &dyn std::error::Error,
                        "the minute's statement is divided: does a long transaction hold an old snapshot?"
                    );
                }
                outcome => return outcome,
            }
        }
        self.minute_in_parts(again, worker).await
    }

    /// The minute's statement: lifts one rule that reached its end, moves the promises of a page of
    /// overdue events, lists open jobs. Does none of that unless it is due, or `again`: the next
    /// page of the same pass.
    ///
    /// Whether crons tick is reported to each process in its own pass, since the process that was
    /// first may be of a release that does not know crons, or can't read this one. The process that
    /// emits a tick moves the cron's fence, so that the next one finds nothing.
    ///
    /// Promises are read from the low-water mark of earlier passes on, which skips the dead index
    /// entries of events that were woken or parked; every tenth pass starts at the beginning, for
    /// promises that a long transaction committed late. The promises of running events are moved to
    /// the end of their lease, and not published. The mark is raised by the next pass, to where
    /// this process knows that an earlier pass got: a process that dies between two pages leaves it
    /// where it was. A pass that skipped a promise because its row was locked does not raise the
    /// mark either, except every tenth: otherwise a row that is locked for hours would make each
    /// pass read all that happened since. If the clock was set back, so is the mark.
    ///
    /// What is overdue is found by the index of promises, from the mark on, and then locked by
    /// primary key alone: the beginning of that index holds entries of events that completed long
    /// ago.
    ///
    /// A tenth pass reads all that a pass in parts may have left behind, so it ends that reading.
    ///
    /// A process whose durations are no longer the deployment's is not let through, and learns of
    /// it.
    ///
    /// A worker's process also writes the worker's row, whichever process is let through.
    ///
    /// An idle queue asks nothing else, so this reads twelve pages at most, and five more for a
    /// worker's row; when it is not due, only `chores`, without its index (which has as many pages
    /// as the table), the one page of `settings`, a page or two of the index of crons, and the row.
    async fn minute_at_once(
        &self,
        again: bool,
        worker: Option<&Attendance>,
    ) -> Result<MinuteOutcome, StoreError> {
        let row = self.minute_row(again, worker.and_then(Attendance::report).as_deref()).await?;
        if row.retimed {
            self.compare_timing().await?;
        }
        if row.open {
            let kept_until = row.now - 2 * self.timing().probe_period;
            self.probe.learn((again, row.passed_over), row.reached.filter(|_| row.full), kept_until);
        }
        Ok(row.into_minute())
    }

    /// Its statement.
    async fn minute_row(&self, again: bool, worker: Option<&str>) -> Result<MinuteRow, StoreError> {
        let (timing, known, (names, values)) = (self.timing(), self.probe.known(), self.compared_timing());
        let query = sqlx::query_as!(
            MinuteRow,
            r#"with others as (
                   select exists (select from wakeq.settings s where s.value_us <> ($12::bigint[])[array_position($11::text[], s.name)]) as retimed
               ), gate as (
                   update wakeq.chores
                      set next_at = now() + $2, passes = passes + (not $1)::integer,
                          low_water = least(greatest(low_water, $9::timestamptz), now() - 2 * $2::interval),
                          behind = case when not $1 and (passes + 1) % 10 = 0 then null else behind end
                    where name || '' = 'minute' and ($1 or next_at <= now() or next_at > now() + 2 * $2::interval)
                      and not (select retimed from others)
                returning passes, case when $1 then coalesce($8::timestamptz, low_water) when passes % 10 = 0 then '-infinity' else low_water end as start
               ), expired as (
                   delete from wakeq.scheduling_rules where id = (
                       select id from wakeq.scheduling_rules where until <= now() and exists (select from gate) order by until limit 1 for update skip locked)
                returning canvas_id, event_space, handler_name
               ), job as (
                   insert into wakeq.resume_jobs (kind, canvas_id, module, name) select 'lifted', canvas_id, event_space, handler_name from expired returning id, canvas_id
               ), jobs as (
                   select id, canvas_id, rank from wakeq.open_jobs() where exists (select from gate)
                    union all select id, canvas_id, 0 from job
               ), found as materialized (
                   select e.id, e.notify_at from wakeq.events_v2 e where e.notify_at >= (select start from gate) and e.notify_at <= now() order by e.notify_at limit 1000
               ), overdue as (
                   select e.id from wakeq.events_v2 e where e.id = any (array(select id from found)) and coalesce(e.notify_at <= now(), false) for update skip locked
               ), moved as (
                   update wakeq.events_v2 e
                      set notify_at = case
                              when coalesce(e.locked_at > now() - $3::interval, false) then e.locked_at + $3 + $5
                              when e.delay_until > now() then wakeq.wake_at(e.delay_until, now(), $4, $5)
                              else now() + least($6::interval * power(2, least(e.probes, 20)), $7::interval)
                          end,
                          probes = e.probes + (not coalesce(e.locked_at > now() - $3::interval, false) and e.delay_until <= now())::integer
                    where e.id = any (array(select id from overdue))
                returning e.id, e.canvas_id, not coalesce(e.locked_at > now() - $3::interval, false) and e.delay_until <= now() + $4 as publish, e.delay_until <= now() as due
               ), seen as (
                   update wakeq.workers w set seen_at = now(), is_stopping = r.is_stopping, running = r.running, runs = r.runs, slowed = r.slowed
                     from jsonb_to_record($13::text::jsonb) as r (name text, instance uuid, is_stopping boolean, running integer, runs jsonb, slowed jsonb)
                    where w.name = r.name and w.instance = r.instance returning w.instance
               )
               select array(select id from moved where publish order by id) as "ids!", array(select canvas_id from moved where publish order by id) as "canvases!",
                      array(select id from jobs order by rank, id) as "jobs!", array(select canvas_id from jobs order by rank, id) as "job_canvases!",
                      not $1 and exists (select from wakeq.cron_records where next_at <= now() + $10::interval) as "crons!",
                      not $1 and exists (select from gate) and (exists (select from wakeq.queues where draining) or exists (select from wakeq.facets where running <> '{}' or was_full) or exists (select from wakeq.queue_wakes)
                               or (select passes % 10 = 0 from gate) and exists (select from wakeq.queue_registry where version > 0)) as "queues!",
                      case when not $1 and (select passes % 10 = 0 from gate) then (select last_value + 5000000 >= made_to from wakeq.log_seq, wakeq.log_partitioning) else false end as "log!",
                      (select count(*) from moved where publish and due) as "recovered!", exists (select from gate) as "open!",
                      (select count(*) from found) >= 1000 as "full!", exists (select from expired) as "lifted!", (select retimed from others) as "retimed!", exists (select from seen) as "seen!",
                      not $1 and exists (select from gate) and exists (select from wakeq.events_v2 where cancelled_by > '') as "cancelled!", not $1 and exists (select from gate) and exists (select from wakeq.batches where over_at is null) as "batches!",
                      not $1 and exists (select from gate) and exists (select from wakeq.limit_waits) as "limits!",
                      (select count(*) from overdue) < (select count(*) from found) and (select passes % 10 <> 0 from gate) as "passed_over!",
                      (select max(notify_at) from found) + case when exists (select from overdue) then interval '0' else interval '1 microsecond' end as reached, now() as "now!""#,
            again,
            interval(timing.probe_period),
            interval(timing.lease),
            interval(timing.horizon),
            interval(timing.grace),
            interval(timing.probe_backoff),
            interval(timing.probe_backoff_max),
            known.from,
            known.kept_until,
            interval(self.cron_ahead()),
            &names,
            &values,
            worker
        );
        self.session().await?.one("the minute's statement", query).await
    }

    pub(in crate::store) async fn hasten_minute(&self, within: Duration) -> Result<(), StoreError> {
        let query = sqlx::query!(
            "update wakeq.chores set next_at = now()
              where name = 'minute' and next_at > now() and next_at <= now() + $1::interval",
            interval(within)
        );
        self.session().await?.execute("make the minute's statement due", query).await.map(drop)
    }

    pub(in crate::store) async fn make_due(&self, progress: &mut MakingDue) -> Result<u64, StoreError> {
        let started = Instant::now();
        let row = match self.page_made_due(progress).await {
            Err(error) if error.is_too_long() => {
                progress.portion = progress.portion.smaller().ok_or(error)?;
                return Ok(0);
            }
            row => row?,
        };
        let is_full = row.count >= progress.portion.page;
        progress.is_over = !is_full && row.until.is_none();
        progress.from = if is_full { row.reached } else { row.until };
        progress.portion = progress.portion.after(started.elapsed(), self.config.statement_timeout);
        Ok(row.count.cast_unsigned())
    }

    async fn page_made_due(&self, progress: &MakingDue) -> Result<DueRow, StoreError> {
        let query = sqlx::query_as!(
            DueRow,
            r#"with page as materialized (
                   select id, notify_at from wakeq.events_v2
                    where notify_at > now() and notify_at >= coalesce($2::timestamptz, now())
                      and notify_at <= coalesce(coalesce($2, now()) + $3::interval, 'infinity')
                      and delay_until <= now() + $1 and locked_at is null
                    order by notify_at limit $4 for update skip locked
               ), reset as (
                   update wakeq.chores set next_at = now(), low_water = '-infinity' where name = 'minute'
               ), moved as (
                   update wakeq.events_v2 set notify_at = now(), probes = 0 where id = any (array(select id from page))
               )
               select count(*) as "count!", max(notify_at) as reached, coalesce($2, now()) + $3 as until from page"#,
            interval(self.timing().horizon),
            progress.from,
            progress.portion.length().map(interval) as Option<PgInterval>,
            progress.portion.page
        );
        self.session().await?.one("make everything due", query).await
    }
}

impl Store {
    /// How far ahead of its time a tick is emitted: until after the next pass, so that a worker has
    /// its event when it is due.
    pub(crate) fn cron_ahead(&self) -> Duration {
        self.timing().probe_period.mul_f64(AHEAD).min(AHEAD_MAX)
    }

    /// How long nothing needs a pass, as far as is known now; `None` if nothing ever does. Promises
    /// are what passes wake; so rules that end, ticks, and what passes carry on. The promises are
    /// looked at from the beginning and not from the low-water mark: no tenth pass comes while
    /// nothing is sent.
    pub(crate) async fn until_next_pass(&self) -> Result<Option<Duration>, StoreError> {
        let query = sqlx::query_scalar!(
            r#"select extract(epoch from least(
                          (select notify_at from wakeq.events_v2 where notify_at >= '-infinity' order by notify_at limit 1),
                          (select min(until) from wakeq.scheduling_rules),
                          (select min(next_at) from wakeq.cron_records) - $1::interval,
                          case when exists (select from wakeq.resume_jobs) or exists (select from wakeq.queue_wakes)
                                 or exists (select from wakeq.queues where draining)
                                 or exists (select from wakeq.facets where running <> '{}' or was_full)
                                 or exists (select from wakeq.limit_waits)
                                 or exists (select from wakeq.batches where closed_at is not null and over_at is null
                                                   and not wakeq.has_members(canvas_id, name))
                               then now() end) - now())::float8"#,
            interval(self.cron_ahead())
        );
        let seconds = self.session().await?.one("look for what needs a pass", query).await?;
        Ok(seconds.map(|seconds| Duration::try_from_secs_f64(seconds.max(0.0)).unwrap_or(Duration::MAX)))
    }
}

/// How far [`Store::make_due`] has come.
#[derive(Debug)]
pub(crate) struct MakingDue {
    /// Where it continues; `None` at first.
    from: Option<Timestamp>,
    portion: Portion,
    pub(crate) is_over: bool,
}

impl Default for MakingDue {
    fn default() -> Self {
        Self { from: None, portion: Portion::WHOLE, is_over: false }
    }
}

#[cfg(test)]
impl MakingDue {
    /// As after a page that took too long.
    pub(crate) fn in_slices() -> Self {
        Self { portion: Portion::FIRST, ..Self::default() }
    }
}

struct DueRow {
    count: i64,
    reached: Option<Timestamp>,
    /// The end of the slice; `None`: there was none.
    until: Option<Timestamp>,
}
