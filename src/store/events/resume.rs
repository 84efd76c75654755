//! Resume jobs: waking a handler's events page by page, in a job that outlives its worker.

use uuid::Uuid;

use crate::event::{CanvasId, EventId, HeldLimit, Lane, Notification};
use crate::store::kernel::{Bounded, Session, Sql, StoreError, interval};

/// The result of a page of a resume job.
#[derive(Clone, Debug, Default)]
pub(crate) struct ResumePage {
    /// To be published now.
    pub(crate) notifications: Vec<Notification>,
    /// Lanes whose next events have to be woken, if it is of an operation.
    pub(crate) lanes: Vec<Lane>,
    /// The limits at which places were kept for events that it has deleted, where others have room
    /// now.
    pub(crate) limits: Vec<HeldLimit>,
    /// Whether it has cancelled events that run, of which their workers have to learn.
    pub(crate) stops: bool,
    /// Whether it is of an operation that publishes nothing, so that its next page needs no turn of
    /// its canvas.
    pub(crate) quiet: bool,
    /// Jobs that it made, if it is of a lifted switch.
    pub(crate) jobs: Vec<(CanvasId, i64)>,
    /// Whether there may be more: `false` if the job is done, if another process has it, or if all
    /// that is left of it is locked.
    pub(crate) more: bool,
    /// Whether another process has the job and continues it.
    pub(crate) elsewhere: bool,
}

impl ResumePage {
    /// Maximum number of events that one statement wakes.
    pub(in crate::store) const EVENTS_MAX: i64 = 1000;
}

impl Sql<'_> {
    pub(in crate::store) async fn resume_page(&self, job: i64) -> Result<ResumePage, StoreError> {
        let mut session = self.session().await?;
        let (mut statement, mut rows) =
            ("resume a page of events", self.resume_waiting(&mut session, job).await);
        if matches!(&rows, Some(Err(error)) if StoreError::is_refused_lock(error)) {
            // On the same connection: the server reports the lock that it could not get before it
            // releases those that it has, so on another connection the job would look as if another
            // process had it.
            statement = "resume a page of events, past what others hold";
            rows = self.resume_passing(&mut session, job).await;
        }
        let page = page(session.answered(statement, rows).await?);
        if !page.elsewhere {
            return Ok(page);
        }
        // That of a lifted switch looks as if another process had it, and so does that of an
        // operation.
        let page = self.spread_page(job).await?;
        if !page.elsewhere {
            return Ok(page);
        }
        Ok(self.operation_page(job).await?.unwrap_or(page))
    }

    /// The page, with all of its rows, locked in the order of their ids, as everywhere.
    ///
    /// The job's columns are read one by one, not joined: only then does the page limit the scan of
    /// the index, so that its cost does not depend on how much else waits.
    ///
    /// What another rule holds stays parked, as the job of that one will find it.
    async fn resume_waiting(&self, session: &mut Session, job: i64) -> Bounded<Vec<WokenRow>> {
        let query = sqlx::query_as!(
            WokenRow,
            r#"with job as (
                   select id, kind, canvas_id, module, name, after_id, after_due, back_id, created_at
                     from wakeq.resume_jobs where id = $1 and module <> 'CANVAS' and kind <> 'operation' for update skip locked
               ), over as materialized (
                   select canvas_id, wakeq.rules_hold(canvas_id, module, name) as held from job where kind = 'lifted'
               ), parked as (
                   select e.id, e.delay_until, e.queue from wakeq.events_v2 e
                    where e.canvas_id = (select canvas_id from over where held <> 'all')
                      and e.module = (select module from job) and e.name = (select name from job)
                      and e.notify_at is null and greatest(e.id, e.id) > (select after_id from job)
                    order by greatest(e.id, e.id) limit $2 for update
               ), due as materialized (
                   select e.id, e.delay_until from wakeq.events_v2 e
                    where e.canvas_id = (select canvas_id from job where kind = 'registered')
                      and e.module = (select module from job) and e.name = (select name from job)
                      and e.delay_until >= (select after_due from job) and e.delay_until <= now() and e.delay_until > '-infinity'
                      and coalesce(e.notify_at > now() + $4, false)
                      and coalesce(e.notify_at <= (select created_at from job) + wakeq.defer_for($5, e.probes), false)
                      and (e.locked_at is null or e.locked_at < clock_timestamp() - $6::interval)
                    order by e.delay_until limit $2
               ), deferred as (
                   select e.id from wakeq.events_v2 e
                    where e.id = any (array(select id from due order by id)) and coalesce(e.notify_at > now() + $4, false)
                      and (e.locked_at is null or e.locked_at < clock_timestamp() - $6::interval)
                    order by e.id for update
               ), page as (
                   select id, delay_until from parked union all select id, delay_until from due
               ), held as materialized (
                   select p.id from parked p where (select held from over) = 'none' or not wakeq.is_shown(p.queue)
                    union all select id from deferred
               ), woken as (
                   update wakeq.events_v2 e
                      set notify_at = wakeq.wake_at(e.delay_until, statement_timestamp(), $3, $4), probes = 0
                    where e.id = any (array(select id from held))
                returning e.id, e.canvas_id, e.delay_until
               ), moved as (
                   update wakeq.resume_jobs j
                      set after_id = (select id from page order by id desc limit 1),
                          after_due = (select max(delay_until) from page)
                     from job where j.id = any (array[job.id]) and (select count(*) from page) >= $2
                returning j.id
               ), back as (
                   update wakeq.resume_jobs j
                      set after_id = j.back_id, after_due = j.back_due, back_id = null, back_due = null
                     from job
                    where j.id = any (array[job.id]) and (select count(*) from page) < $2 and job.back_id is not null
               ), ended as (
                   delete from wakeq.resume_jobs j using job
                    where j.id = any (array[job.id]) and (select count(*) from page) < $2 and job.back_id is null
                returning j.id
               )
               select woken.id as "id?", woken.canvas_id as "canvas_id?",
                      woken.delay_until <= clock_timestamp() + $3 as due_soon,
                      exists (select from moved) as "more!",
                      exists (select from wakeq.resume_jobs where id = $1) and not exists (select from job) as "elsewhere!"
                 from (values (1)) as one left join woken on true"#,
            job,
            ResumePage::EVENTS_MAX,
            interval(self.timing().horizon),
            interval(self.timing().grace),
            interval(self.timing().unknown_handler_wait),
            interval(self.timing().lease)
        );
        session.limit(|connection| query.fetch_all(connection)).await
    }

    /// The page without locked rows, to which the job returns.
    async fn resume_passing(&self, session: &mut Session, job: i64) -> Bounded<Vec<WokenRow>> {
        let query = sqlx::query_as!(
            WokenRow,
            r#"with job as (
                   select id, kind, canvas_id, module, name, after_id, after_due, back_id, back_due, created_at
                     from wakeq.resume_jobs where id = $1 and module <> 'CANVAS' and kind <> 'operation' for update skip locked
               ), over as materialized (
                   select canvas_id, wakeq.rules_hold(canvas_id, module, name) as held from job where kind = 'lifted'
               ), parked as (
                   select e.id, e.delay_until, e.queue from wakeq.events_v2 e
                    where e.canvas_id = (select canvas_id from over where held <> 'all')
                      and e.module = (select module from job) and e.name = (select name from job)
                      and e.notify_at is null and greatest(e.id, e.id) > (select after_id from job)
                    order by greatest(e.id, e.id) limit $2 for update skip locked
               ), deferred as (
                   select e.id, e.delay_until from wakeq.events_v2 e
                    where e.canvas_id = (select canvas_id from job where kind = 'registered')
                      and e.module = (select module from job) and e.name = (select name from job)
                      and e.delay_until >= (select after_due from job) and e.delay_until <= now() and e.delay_until > '-infinity'
                      and coalesce(e.notify_at > now() + $4, false)
                      and coalesce(e.notify_at <= (select created_at from job) + wakeq.defer_for($5, e.probes), false)
                      and (e.locked_at is null or e.locked_at < clock_timestamp() - $6::interval)
                    order by e.delay_until limit $2 for update skip locked
               ), page as (
                   select id, delay_until from parked union all select id, delay_until from deferred
               ), woken as (
                   update wakeq.events_v2 e
                      set notify_at = wakeq.wake_at(e.delay_until, statement_timestamp(), $3, $4), probes = 0
                    where e.id = any (array(
                        select p.id from parked p where (select held from over) = 'none' or not wakeq.is_shown(p.queue)
                         union all select id from deferred))
                returning e.id, e.canvas_id, e.delay_until
               ), moved as (
                   update wakeq.resume_jobs j
                      set after_id = (select id from page order by id desc limit 1),
                          after_due = (select max(delay_until) from page),
                          back_id = coalesce(j.back_id, j.after_id), back_due = coalesce(j.back_due, j.after_due)
                     from job where j.id = any (array[job.id]) and (select count(*) from page) >= $2
                returning j.id
               ), back as (
                   update wakeq.resume_jobs j
                      set after_id = coalesce(j.back_id, j.after_id), after_due = coalesce(j.back_due, j.after_due),
                          back_id = null, back_due = null
                     from job where j.id = any (array[job.id]) and (select count(*) from page) < $2
               )
               select woken.id as "id?", woken.canvas_id as "canvas_id?",
                      woken.delay_until <= clock_timestamp() + $3 as due_soon,
                      exists (select from moved) as "more!",
                      exists (select from wakeq.resume_jobs where id = $1) and not exists (select from job) as "elsewhere!"
                 from (values (1)) as one left join woken on true"#,
            job,
            ResumePage::EVENTS_MAX,
            interval(self.timing().horizon),
            interval(self.timing().grace),
            interval(self.timing().unknown_handler_wait),
            interval(self.timing().lease)
        );
        session.limit(|connection| query.fetch_all(connection)).await
    }
}

/// A row of a page's answer: an event that was woken, or none.
struct WokenRow {
    id: Option<Uuid>,
    canvas_id: Option<Uuid>,
    due_soon: Option<bool>,
    more: bool,
    elsewhere: bool,
}

fn page(rows: Vec<WokenRow>) -> ResumePage {
    let more = rows.first().is_some_and(|row| row.more);
    let elsewhere = rows.first().is_some_and(|row| row.elsewhere);
    let notifications = rows
        .into_iter()
        .filter(|row| row.due_soon.unwrap_or(false))
        .filter_map(|row| Some(Notification::new(EventId(row.id?), CanvasId(row.canvas_id?))))
        .collect();
    ResumePage { notifications, more, elsewhere, ..ResumePage::default() }
}
