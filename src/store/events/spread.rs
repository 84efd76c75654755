//! The resume job of a lifted switch. It wakes nothing itself: it makes a job for each handler of
//! its canvas with parked events or, if the switch was on everything, for each canvas with some.

use uuid::Uuid;

use super::resume::ResumePage;
use crate::event::CanvasId;
use crate::store::kernel::{Sql, StoreError};

/// Maximum number of jobs that one statement makes.
const JOBS_MAX: i32 = 100;

impl Sql<'_> {
    /// A page of it: the next handlers, or canvases, found by skipping through the index of parked
    /// events from one to the next. All that the switch held was parked before it was lifted, so
    /// whatever is parked later is that of another rule, whose own job will find it.
    ///
    /// What another rule still holds is left parked for the same reason. Only copies that their
    /// queue does not show are held by nothing but a switch on everything; where there may be some,
    /// the job of such a switch passes over no rules, as the name `everything` of its canvases'
    /// jobs says. The canvas of zeros is before all others, so it gets a job in any case.
    pub(super) async fn spread_page(&self, job: i64) -> Result<ResumePage, StoreError> {
        let query = sqlx::query!(
            r#"with recursive job as (
                   select id, canvas_id, canvas_id = 'ffffffff-ffff-ffff-ffff-ffffffffffff' as is_all, after_id, after_module, after_name,
                          name = '_' and canvas_id <> 'ffffffff-ffff-ffff-ffff-ffffffffffff'
                          or not exists (select from wakeq.queue_registry where version > 0) as passes_over
                     from wakeq.resume_jobs where id = $1 and module = 'CANVAS' for update skip locked
               ), found as (
                   select after_id as canvas_id, after_module as module, after_name as name, 0 as number from job j
                    where not exists (
                        select from wakeq.scheduling_rules r
                         where r.canvas_id = any (array[j.canvas_id, 'ffffffff-ffff-ffff-ffff-ffffffffffff'])
                           and r.event_space = 'CANVAS' and r.handler_name = '_' and (r.until is null or r.until > clock_timestamp())
                           and (j.passes_over or r.canvas_id = 'ffffffff-ffff-ffff-ffff-ffffffffffff') offset 0)
                    union all
                   select next.canvas_id, next.module, next.name, f.number + 1
                     from found f cross join lateral (
                          (select e.canvas_id, 'CANVAS' as module, '_' as name from wakeq.events_v2 e
                            where (select is_all from job) and e.canvas_id > f.canvas_id and e.notify_at is null
                            order by e.canvas_id limit 1)
                           union all
                          (select e.canvas_id, e.module::text, e.name::text from wakeq.events_v2 e
                            where e.canvas_id = (select canvas_id from job) and (e.module, e.name) > (f.module, f.name)
                              and e.notify_at is null
                            order by e.canvas_id, e.module, e.name limit 1)) as next
                    where f.number < $2
               ), made as (
                   insert into wakeq.resume_jobs (kind, canvas_id, module, name, created_at)
                   select 'lifted', f.canvas_id, case when j.is_all then 'CANVAS' else f.module end,
                          case when j.is_all and not j.passes_over then 'everything' when j.is_all then '_' else f.name end,
                          clock_timestamp()
                     from found f cross join job j
                    where (f.number > 0 or j.is_all and j.after_module = '')
                      and not (j.passes_over and exists (
                          select from wakeq.scheduling_rules r
                           where r.canvas_id = f.canvas_id and r.event_space = case when j.is_all then 'CANVAS' else f.module end
                             and r.handler_name = case when j.is_all then '_' else f.name end
                             and (r.until is null or r.until > clock_timestamp()) offset 0))
                   returning id, canvas_id
               ), moved as (
                   update wakeq.resume_jobs j set after_id = f.canvas_id, after_module = f.module, after_name = f.name
                     from found f where j.id = (select id from job) and f.number >= $2
                   returning j.id
               ), ended as (
                   delete from wakeq.resume_jobs j
                    where j.id = (select id from job) and not exists (select from found where number >= $2)
               )
               select array(select id from made order by id) as "jobs!", array(select canvas_id from made order by id) as "canvases!",
                      exists (select from moved) as "more!",
                      exists (select from wakeq.resume_jobs where id = $1) and not exists (select from job) as "elsewhere!""#,
            job,
            JOBS_MAX
        );
        let row = self.session().await?.one("spread the job of a lifted switch", query).await?;
        let canvases: Vec<Uuid> = row.canvases;
        let jobs = canvases.into_iter().map(CanvasId).zip(row.jobs).collect();
        Ok(ResumePage { jobs, more: row.more, elsewhere: row.elsewhere, ..ResumePage::default() })
    }
}
