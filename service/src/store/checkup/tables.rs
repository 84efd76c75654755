//! Facts about the queue's own tables: how large they are, and whether the minute's work is being
//! done.

use std::time::Duration;

use crate::store::ServiceStore;
use wakeq::{StoreError, Timestamp};

/// The size of a table.
#[derive(Clone, Debug)]
pub(crate) struct TableSize {
    pub(crate) table: String,
    /// Live rows, according to the statistics.
    pub(crate) live: i64,
    /// Rows that vacuum has yet to remove.
    pub(crate) dead: i64,
    /// Including indexes and what is stored outside the rows.
    pub(crate) bytes: i64,
}

/// The state of the minute's work.
#[derive(Clone, Debug)]
pub(crate) struct Chores {
    /// How long ago the next pass was due, in seconds; negative if it is not due yet.
    pub(crate) late_s: f64,
    /// Passes so far.
    pub(crate) passes: i64,
    /// Events whose promise is overdue by more than was asked for; counted up to 1,000.
    pub(crate) overdue: i64,
    /// Open resume jobs; counted up to 1,000.
    pub(crate) jobs: i64,
    /// The age of the oldest one, in seconds.
    pub(crate) oldest_job_s: Option<f64>,
}

/// A handler that some worker did not know lately.
#[derive(Clone, Debug)]
pub(crate) struct UnknownHandler {
    /// Module, name and modifier.
    pub(crate) handler: String,
    pub(crate) last_seen: Timestamp,
}

/// The workers of a release.
#[derive(Clone, Debug)]
pub(crate) struct ReleaseWorkers {
    pub(crate) release: String,
    /// Workers that were seen lately, or sleep.
    pub(crate) seen: i64,
    /// Workers that were not, within a day.
    pub(crate) lost: i64,
}

/// What is stopped as a whole.
#[derive(Clone, Debug, Default)]
pub(crate) struct Switched {
    /// Who blocked everything, and why, if it is blocked.
    pub(crate) everything: Option<String>,
    /// Canvases that are paused or blocked as a whole.
    pub(crate) canvases: i64,
}

/// A limit for which many events wait.
#[derive(Clone, Debug)]
pub(crate) struct CrowdedLimit {
    /// The counted name.
    pub(crate) name: String,
    /// The canvas on which it is counted, in words.
    pub(crate) place: String,
}

impl ServiceStore {
    pub(crate) async fn table_sizes(&self) -> Result<Vec<TableSize>, StoreError> {
        let query = sqlx::query_as!(
            TableSize,
            r#"select schemaname || '.' || relname as "table!", coalesce(n_live_tup, 0) as "live!",
                      coalesce(n_dead_tup, 0) as "dead!", pg_total_relation_size(relid) as "bytes!"
                 from pg_catalog.pg_stat_user_tables where schemaname = 'wakeq' order by 4 desc, 1 limit 100"#
        );
        self.session().await?.all("look at the tables", query).await
    }

    /// The promises that are overdue by more than `after`, and the state of the minute's work.
    pub(crate) async fn chores(&self, after: Duration) -> Result<Chores, StoreError> {
        let query = sqlx::query_as!(
            Chores,
            r#"select extract(epoch from now() - next_at)::float8 as "late_s!", passes as "passes!",
                      (select count(*) from (
                           select from wakeq.events_v2 where notify_at < now() - $1::interval
                            order by notify_at limit 1000) as overdue) as "overdue!",
                      (select count(*) from (select from wakeq.resume_jobs where kind <> 'operation' limit 1000) as jobs) as "jobs!",
                      (select extract(epoch from now() - min(created_at))::float8 from (
                           select created_at from wakeq.resume_jobs where kind <> 'operation' order by id limit 1000) as j) as oldest_job_s
                 from wakeq.chores where name = 'minute'"#,
            wakeq::internals::interval(after)
        );
        self.session().await?.one("look at the chores", query).await
    }

    /// Handlers that a worker did not know within this time, latest first.
    pub(crate) async fn unknown_handlers(&self, within: Duration) -> Result<Vec<UnknownHandler>, StoreError> {
        let query = sqlx::query_as!(
            UnknownHandler,
            r#"select module || '/' || name || '/' || modifier as "handler!", max(last_seen) as "last_seen!"
                 from wakeq.unknown_handlers where last_seen > now() - $1::interval
                group by 1 order by 2 desc limit 20"#,
            wakeq::internals::interval(within)
        );
        self.session().await?.all("look for unknown handlers", query).await
    }

    /// The workers of each release; those that were not seen for this long are lost.
    pub(crate) async fn release_workers(
        &self,
        lost_after: Duration,
    ) -> Result<Vec<ReleaseWorkers>, StoreError> {
        let query = sqlx::query_as!(
            ReleaseWorkers,
            r#"select release as "release!", count(*) filter (where may_sleep or seen_at >= now() - $1::interval) as "seen!",
                      count(*) filter (where not may_sleep and seen_at < now() - $1::interval) as "lost!"
                 from wakeq.workers group by release order by release limit 20"#,
            wakeq::internals::interval(lost_after)
        );
        self.session().await?.all("look for workers", query).await
    }

    /// What is stopped as a whole now.
    pub(crate) async fn switched(&self) -> Result<Switched, StoreError> {
        let query = sqlx::query_as!(
            Switched,
            r#"select min(created_by || coalesce(': ' || reason, '')) filter (
                          where canvas_id = 'ffffffff-ffff-ffff-ffff-ffffffffffff') as everything,
                      count(distinct canvas_id) filter (
                          where canvas_id <> 'ffffffff-ffff-ffff-ffff-ffffffffffff') as "canvases!"
                 from wakeq.scheduling_rules
                where event_space = 'CANVAS' and handler_name = '_' and (until is null or until > now())"#
        );
        self.session().await?.one("look at what is stopped as a whole", query).await
    }
    /// Limits for which more than so many events wait, at most 20, among the first 1,000 for which
    /// any do. They are found by skipping through the index from one to the next.
    pub(crate) async fn crowded_limits(&self, crowd: i64) -> Result<Vec<CrowdedLimit>, StoreError> {
        let query = sqlx::query_as!(
            CrowdedLimit,
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
                    where n.number < 1000
               )
               select n.name as "name!",
                      case n.canvas_id when 'ffffffff-ffff-ffff-ffff-ffffffffffff' then 'all canvases'
                                       else 'canvas ' || n.canvas_id end as "place!"
                 from waited n
                where exists (
                    select from (
                        (select from wakeq.limit_waits w
                          where w.canvas_id = n.canvas_id and w.name = n.name and w.woken_at is null limit $1::bigint + 1)
                         union all
                        (select from wakeq.limit_waits w
                          where w.canvas_id = n.canvas_id and w.name = n.name and w.woken_at is not null limit $1::bigint + 1)
                        ) as halves offset $1)
                order by n.canvas_id, n.name limit 20"#,
            crowd
        );
        self.session().await?.all("look for limits for which many events wait", query).await
    }
}
