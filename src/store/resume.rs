//! Resume jobs: waking a handler's events, page after page, in work that outlives its worker.

use uuid::Uuid;

use super::session::interval;
use super::{Store, StoreError};
use crate::event::{CanvasId, EventId, Notification};

/// Most events woken by one statement.
pub(crate) const PAGE: i64 = 1000;

/// What a page of a resume job did.
#[derive(Clone, Debug)]
pub(crate) struct ResumePage {
    /// What has to be published now.
    pub(crate) notifications: Vec<Notification>,
    /// Whether there may be more: `false` when the job is done, or another process has it.
    pub(crate) more: bool,
    /// Whether another process has the job: it goes on there.
    pub(crate) elsewhere: bool,
}

impl Store {
    /// Re-arms the next page of a job's events and moves the job's cursor, or ends the job, in one transaction. Rows
    /// that others hold are waited for, not skipped: a skipped one would stay parked for ever.
    ///
    /// The job's columns are asked for one by one, not joined: only then does the page end the scan of the index, and
    /// its cost does not depend on how much else waits.
    pub(crate) async fn resume_page(&self, job: i64) -> Result<ResumePage, StoreError> {
        in_memory!(self, resume_page(job));
        let mut session = self.session().await?;
        let query = sqlx::query!(
            r#"with job as (
                   select id, kind, canvas_id, module, name, after_id, after_due, created_at
                     from wakeq.resume_jobs where id = $1 for update skip locked
               ), parked as (
                   select e.id from wakeq.events_v2 e
                    where e.canvas_id = (select canvas_id from job where kind = 'lifted')
                      and e.module = (select module from job) and e.name = (select name from job)
                      and e.notify_at is null and e.id > (select after_id from job)
                    order by e.id limit $2 for update
               ), deferred as (
                   select e.id from wakeq.events_v2 e
                    where e.canvas_id = (select canvas_id from job where kind = 'registered')
                      and e.module = (select module from job) and e.name = (select name from job)
                      and e.delay_until >= (select after_due from job) and e.delay_until <= now()
                      and e.notify_at > now() + $4 and e.notify_at <= (select created_at from job) + wakeq.defer_for($5, e.probes)
                      and (e.locked_at is null or e.locked_at < clock_timestamp() - $6::interval)
                    order by e.delay_until limit $2 for update
               ), page as (
                   select id from parked union all select id from deferred
               ), woken as (
                   update wakeq.events_v2 e
                      set notify_at = wakeq.wake_at(e.delay_until, clock_timestamp(), $3, $4), probes = 0
                     from page where e.id = page.id
                returning e.id, e.canvas_id, e.delay_until
               ), moved as (
                   update wakeq.resume_jobs j
                      set after_id = (select id from woken order by id desc limit 1),
                          after_due = (select max(delay_until) from woken)
                     from job where j.id = job.id and (select count(*) from page) >= $2
                returning j.id
               ), ended as (
                   delete from wakeq.resume_jobs j using job
                    where j.id = job.id and (select count(*) from page) < $2
                returning j.id
               )
               select woken.id as "id?", woken.canvas_id as "canvas_id?",
                      woken.delay_until <= clock_timestamp() + $3 as due_soon,
                      exists (select from moved) as "more!",
                      exists (select from wakeq.resume_jobs where id = $1) and not exists (select from job) as "elsewhere!"
                 from (values (1)) as one left join woken on true"#,
            job,
            PAGE,
            interval(self.timing().horizon),
            interval(self.timing().grace),
            interval(self.timing().unknown_handler_wait),
            interval(self.timing().lease)
        );
        let rows = session.limit(|connection| query.fetch_all(connection)).await;
        let rows = session.answered("resume a page of events", rows)?;
        let more = rows.first().is_some_and(|row| row.more);
        let elsewhere = rows.first().is_some_and(|row| row.elsewhere);
        let notifications = rows
            .into_iter()
            .filter(|row| row.due_soon.unwrap_or(false))
            .filter_map(|row| notification(row.id?, row.canvas_id?))
            .collect();
        Ok(ResumePage { notifications, more, elsewhere })
    }
}

fn notification(id: Uuid, canvas: Uuid) -> Option<Notification> {
    Some(Notification { id: EventId(id), canvas: CanvasId(canvas) })
}
