//! The journal that handlers of child processes keep of their own runs: when each began and when it
//! ended, by the database's clock, under the key of its limit.
//!
//! Handlers only write it, and the parent judges. Nothing here looks at wakeq's tables.

use std::time::Duration;

use serde::{Deserialize, Serialize};
use sqlx::PgPool;
use tokio::time::{Instant, sleep};
use uuid::Uuid;
use wakeq::{CanvasId, Event, Execution, HandlerResult, Timestamp};

use super::Statements;

/// The handler that keeps the journal. It is retried soon.
pub(crate) const LIMITED: &str = "limited";

/// How often, and after which pauses, the end of a run is written that was cut off while Postgres
/// did not answer.
const TRIES: u32 = 1_000;
const PAUSE: Duration = Duration::from_millis(100);

const TABLES: &str = "
    create table journal (run uuid primary key, canvas uuid not null, key text not null,
                          event uuid not null, pid integer not null, claimed_at timestamptz not null,
                          started_at timestamptz not null default clock_timestamp(), ended_at timestamptz,
                          has_completed boolean not null default false);
    create table faults (pid integer, began_at timestamptz not null);";

/// A run that was killed ended then, and one that was frozen does nothing from then on. A start
/// that was on its way when its process died is of a run that did nothing. A process that thaws has
/// lost its claims, and what it still writes is counted by [`went_on`].
const RUNS: &str = "
    create view journal_runs as
    select j.run, j.canvas, j.key, j.claimed_at, j.started_at,
           case when j.ended_at is not null or cut.at is not null
                then greatest(j.started_at, least(j.ended_at, cut.at)) end as ended_at
      from journal j
      left join lateral (select min(f.began_at) as at from faults f
                          where f.pid = j.pid and f.began_at >= j.claimed_at) as cut on true";

/// The most runs of one key at once, on the canvas where that is most. An end comes before a start
/// at the same moment.
const MOST: &str = "
    with steps as (select canvas, key, started_at as at, 1 as step from journal_runs
                   union all select canvas, key, coalesce(ended_at, 'infinity'), -1 from journal_runs),
         counted as (select sum(step) over (partition by canvas, key order by at, step) as running from steps)
    select coalesce(max(running), 0)::bigint from counted";

/// The share of a key's places that were in use between two moments, without the time after each
/// fault in which leases have to end first. A place is in use from the claim to the handler's end.
const USE: &str = "
    with marks as (select began_at, began_at + $5 as until from faults
                   union all select $3, $3),
         calm as (select until as since, lead(began_at) over (order by began_at) as next
                    from marks where began_at >= $3),
         calms as (select since, least(coalesce(next, $4), $4) as until from calm
                    where since < least(coalesce(next, $4), $4)),
         parts as (select least(r.ended_at, c.until) - greatest(r.claimed_at, c.since) as part
                     from journal_runs r
                     join calms c on r.claimed_at < c.until and r.ended_at > c.since
                    where r.canvas = $1 and r.key = $2),
         used as (select extract(epoch from sum(part)) as seconds from parts)
    select (select seconds from used)::float8
             / nullif($6 * sum(extract(epoch from until - since)), 0)::float8,
           coalesce(sum(extract(epoch from until - since)), 0)::float8
      from calms";

/// What a run is to do, and the key under which it is noted.
#[derive(Clone, Debug, Serialize, Deserialize)]
pub(crate) struct Noted {
    key: String,
    lasting_ms: u64,
}

/// An event under the limit of this key, whose handler takes this long.
pub(crate) fn noted(canvas: CanvasId, key: &str, lasting_ms: u64) -> Event {
    let noted = Noted { key: key.to_owned(), lasting_ms };
    Event::new(LIMITED, &noted).unwrap().canvas(canvas).limit(key).unwrap()
}

/// Makes the tables. Their view is as slow as there are faults for each run.
pub(crate) async fn create(pool: &PgPool) {
    sqlx::raw_sql(TABLES).execute(pool).await.unwrap();
    sqlx::raw_sql(RUNS).execute(pool).await.unwrap();
}

/// Notes that a process was killed or frozen. What it had sent by then has arrived.
pub(crate) async fn fault(pool: &PgPool, pid: i32) {
    let fault = sqlx::query("insert into faults values ($1, clock_timestamp())").bind(pid);
    fault.execute(pool).await.unwrap();
}

/// Notes that Postgres was killed then. That ends no run.
pub(crate) async fn fall(pool: &PgPool, at: Timestamp) {
    sqlx::query("insert into faults values (null, $1)").bind(at).execute(pool).await.unwrap();
}

/// The most runs of one key at once.
pub(crate) async fn most(pool: &PgPool) -> i64 {
    pool.value(MOST).await
}

/// How many runs wrote their end after their process had been frozen longer than its leases.
pub(crate) async fn went_on(pool: &PgPool) -> i64 {
    let late = "select count(*) from journal j join journal_runs r using (run) where j.ended_at > r.ended_at";
    pool.value(late).await
}

/// The share of the `places` of a key that were in use in calm times, and how long these were, from
/// its first claim until `left` of its events had not started.
pub(crate) async fn used(
    pool: &PgPool,
    (canvas, key): (CanvasId, &str),
    places: i32,
    (left, recovery): (i64, Duration),
) -> (f64, Duration) {
    let bounds = "select min(claimed_at), (array_agg(claimed_at order by claimed_at desc))[$3]
                    from journal where canvas = $1 and key = $2";
    let bounds = sqlx::query_as(bounds).bind(canvas.0).bind(key).bind(i32::try_from(left).unwrap());
    let (first, last): (Timestamp, Timestamp) = bounds.fetch_one(pool).await.unwrap();
    let used =
        sqlx::query_as(USE).bind(canvas.0).bind(key).bind(first).bind(last).bind(recovery).bind(places);
    let (share, seconds): (Option<f64>, f64) = used.fetch_one(pool).await.unwrap();
    (share.unwrap_or_default(), Duration::from_secs_f64(seconds))
}

/// The handler: notes its start, takes as long as the event says, and notes its end.
pub(crate) async fn keep(pool: PgPool, event: Execution) -> HandlerResult {
    let noted: Noted = event.value()?;
    let run = Run::begin(&pool, &event, &noted.key).await?;
    sleep(Duration::from_millis(noted.lasting_ms)).await;
    run.end().await?;
    Ok(())
}

/// A run of a handler. If it is cut off, or can't write its end, its end is its start and how long
/// it went on by the clock of its process.
struct Run {
    pool: PgPool,
    id: Uuid,
    began: Option<Instant>,
    has_ended: bool,
}

impl Run {
    async fn begin(pool: &PgPool, event: &Execution, key: &str) -> Result<Self, sqlx::Error> {
        let mut run = Self { pool: pool.clone(), id: Uuid::new_v4(), began: None, has_ended: false };
        let start =
            "insert into journal (run, canvas, key, event, pid, claimed_at) values ($1, $2, $3, $4, $5, $6)";
        sqlx::query(start)
            .bind(run.id)
            .bind(event.address.scope.canvas.0)
            .bind(key)
            .bind(event.id.0)
            .bind(i32::try_from(std::process::id()).unwrap_or(0))
            .bind(event.claimed_at)
            .execute(pool)
            .await?;
        run.began = Some(Instant::now());
        Ok(run)
    }

    async fn end(mut self) -> Result<(), sqlx::Error> {
        let end = "update journal set ended_at = clock_timestamp(), has_completed = true where run = $1";
        sqlx::query(end).bind(self.id).execute(&self.pool).await?;
        self.has_ended = true;
        Ok(())
    }
}

impl Drop for Run {
    fn drop(&mut self) {
        if self.has_ended {
            return;
        }
        let went_on = self.began.map(|began| began.elapsed()).unwrap_or_default().as_secs_f64();
        let (pool, id) = (self.pool.clone(), self.id);
        let Ok(runtime) = tokio::runtime::Handle::try_current() else { return };
        runtime.spawn(async move {
            let end =
                "update journal set ended_at = coalesce(ended_at, started_at + make_interval(secs => $2))
                        where run = $1";
            for _ in 0..TRIES {
                // Postgres may be down. If the start was never committed, nothing is to be written.
                if sqlx::query(end).bind(id).bind(went_on).execute(&pool).await.is_ok() {
                    return;
                }
                sleep(PAUSE).await;
            }
        });
    }
}
