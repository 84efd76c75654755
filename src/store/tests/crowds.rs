//! A canvas with many events in front of the few of another, for tests of fairness between
//! canvases.

use super::Table;
use crate::event::{CanvasId, EventId, Notification};

/// The canvas with many events.
pub(crate) const MANY: CanvasId = CanvasId(uuid::Uuid::from_u128(6));
/// The canvas with few events.
pub(crate) const FEW: CanvasId = CanvasId(uuid::Uuid::from_u128(7));

/// Deletes events as if workers had completed them.
pub(crate) struct Completion(sqlx::PgPool);

impl Completion {
    pub(crate) async fn complete(&self, events: &[Notification]) {
        let ids: Vec<_> = events.iter().map(|event| event.id.0).collect();
        let deleted = sqlx::query("delete from wakeq.events_v2 where id = any ($1)").bind(ids);
        deleted.execute(&self.0).await.unwrap();
    }
}

impl Table {
    pub(crate) fn completion(&self) -> Completion {
        Completion(self.pool.clone())
    }

    /// Makes the copies of a queue and the periodic tasks due now.
    pub(crate) async fn copies_due(&self, queue: &str) {
        let due = "update wakeq.events_v2 set notify_at = now() where queue = $1";
        sqlx::query(due).bind(queue).execute(&self.pool).await.unwrap();
        self.run("update wakeq.chores set next_at = now()").await;
    }

    /// Makes every standing lease of the canvas with many events run out.
    pub(crate) async fn end_leases_of_many(&self) {
        let lost = "update wakeq.events_v2 set locked_at = locked_at - interval '1 day'
                     where canvas_id = $1 and locked_at is not null";
        sqlx::query(lost).bind(MANY.0).execute(&self.pool).await.unwrap();
    }

    /// Ends every lease, as if its worker had never claimed.
    pub(crate) async fn end_all_leases(&self) {
        self.run("update wakeq.events_v2 set locked_at = null").await;
    }

    /// Adds this many events of the handler `mail`, which others have, but for the 3,500th.
    pub(crate) async fn mails_of_others(&self, canvas: CanvasId, count: i32) {
        let add = "insert into wakeq.events_v2
                        (id, canvas_id, module, name, modifier, value, delay_until, locked_at, claims)
                   select gen_random_uuid(), $1, 'WORKER', 'mail', '_', '1',
                          now() - interval '1 day' + n * interval '1 s', case when n <> 3500 then now() end, 1
                     from generate_series(1, $2) n";
        sqlx::query(add).bind(canvas.0).bind(count).execute(&self.pool).await.unwrap();
    }

    /// Makes an event one of the handler `mail`.
    pub(crate) async fn make_mail(&self, event: EventId) {
        let rename = "update wakeq.events_v2 set name = 'mail' where id = $1";
        sqlx::query(rename).bind(event.0).execute(&self.pool).await.unwrap();
    }

    /// The events that were told to come since a limit has room, by id.
    pub(crate) async fn told_to_come(&self) -> Vec<EventId> {
        let told = "select event_id from wakeq.limit_waits where woken_at is not null order by event_id";
        let ids: Vec<uuid::Uuid> = sqlx::query_scalar(told).fetch_all(&self.pool).await.unwrap();
        ids.into_iter().map(EventId).collect()
    }

    /// Makes 10,050 limits that are as full as the only one, each with an event that waits.
    pub(crate) async fn many_full_limits(&self) {
        for full in [
            "insert into wakeq.limit_waits (event_id, canvas_id, name, due)
             select gen_random_uuid(), s.canvas_id, 'customer:' || n, now()
               from wakeq.limit_states s, generate_series(1, 10050) n",
            "insert into wakeq.limit_states (canvas_id, name, holders)
             select s.canvas_id, 'customer:' || n, s.holders from wakeq.limit_states s, generate_series(1, 10050) n",
        ] {
            assert_eq!(self.run(full).await, 10_050);
        }
    }

    /// How many events are left.
    pub(crate) async fn left(&self) -> i64 {
        self.number("select count(*) from wakeq.events_v2").await
    }

    /// Adds this many overdue events of one canvas, and three of another that became overdue later.
    pub(crate) async fn crowd(&self, count: i32) {
        self.add(count).await;
        let moved = "update wakeq.events_v2 set canvas_id = $1, notify_at = now() - interval '1 minute'";
        sqlx::query(moved).bind(MANY.0).execute(&self.pool).await.unwrap();
        let few: Vec<_> = self.add(3).await.iter().map(|id| id.0).collect();
        let moved = "update wakeq.events_v2 set canvas_id = $1, notify_at = now() - interval '1 s' where id = any ($2)";
        sqlx::query(moved).bind(FEW.0).bind(few).execute(&self.pool).await.unwrap();
    }

    /// Adds events of both canvases that are due and whose promises are moved by ten minutes, the
    /// few last, after 12,000 delayed ones, which a look passes over in two pages. Returns those
    /// that are due.
    pub(crate) async fn backlog(&self) -> Vec<Notification> {
        self.add(12_000).await;
        self.run(
            "update wakeq.events_v2
                set delay_until = now() + interval '4 min', notify_at = now() + interval '5 min'",
        )
        .await;
        let mut all = Vec::new();
        for (canvas, count) in [(MANY, 5_000), (FEW, 20)] {
            let ids = self.add(count).await;
            let moved =
                "update wakeq.events_v2 set canvas_id = $1, notify_at = now() + interval '10 min', probes = 1
                          where id = any ($2)";
            let keys: Vec<_> = ids.iter().map(|id| id.0).collect();
            sqlx::query(moved).bind(canvas.0).bind(keys).execute(&self.pool).await.unwrap();
            all.extend(ids.into_iter().map(|id| Notification::new(id, canvas)));
        }
        all
    }

    /// Adds an overdue copy of the canvas with many events, in a pulled queue of its own.
    pub(crate) async fn pulled_copy(&self, queue: &str) {
        let add = "with queue as (
                       insert into wakeq.queues (name, created_by, updated_by, in_flight_max, pulled)
                       values ($1, 'test', 'test', 10, true))
                   insert into wakeq.events_v2 (id, canvas_id, module, name, modifier, value, queue, origin)
                   values (gen_random_uuid(), $2, 'WORKER', 'mail', '_', '1', $1, gen_random_uuid())";
        sqlx::query(add).bind(queue).bind(MANY.0).execute(&self.pool).await.unwrap();
    }

    /// Adds another one, of this canvas.
    pub(crate) async fn pulled_copy_of(&self, canvas: CanvasId, queue: &str) {
        let add = "insert into wakeq.events_v2 (id, canvas_id, module, name, modifier, value, queue, origin)
                   values (gen_random_uuid(), $1, 'WORKER', 'mail', '_', '1', $2, gen_random_uuid())";
        sqlx::query(add).bind(canvas.0).bind(queue).execute(&self.pool).await.unwrap();
    }

    /// From now on each look for due copies fails as if the server had cancelled it after its time,
    /// and is counted.
    pub(crate) async fn look_for_too_long(&self) {
        self.run("create sequence public.looks").await;
        self.run(
            "create or replace function wakeq.due_facets(of_queue text, lease interval, after uuid, most integer)
             returns table (canvas_id uuid) language plpgsql stable as $$
             begin
                 perform nextval('public.looks');
                 raise query_canceled using message = 'canceling statement due to statement timeout';
             end $$",
        )
        .await;
    }

    /// How many such looks there were.
    pub(crate) async fn looks(&self) -> i64 {
        self.number("select case when is_called then last_value else 0 end from public.looks").await
    }

    /// Changes the deployment's durations: the grace is a second longer.
    pub(crate) async fn lengthen_grace(&self) {
        self.run("update wakeq.settings set value_us = value_us + 1000000 where name = 'grace'").await;
    }

    /// Puts the canvas of each copy into its queue's rotation.
    pub(crate) async fn enter_rotation(&self) {
        self.run(
            "insert into wakeq.facets (queue, canvas_id, position)
             select queue, canvas_id, nextval('wakeq.facet_seq') from wakeq.events_v2",
        )
        .await;
    }

    /// Adds crons of a canvas that are due now, and then not for years.
    pub(crate) async fn due_crons(&self, canvas: CanvasId, count: i32) {
        let add = "insert into wakeq.cron_records (canvas_id, name, expression, zone, modifier, value, missed, next_at,
                                                   created_by, created_at, changed_at)
                   select $1, 'c' || n, '0 0 29 2 *', 'UTC', '_', '1', 'skip', now(), 'test', now(), now()
                     from generate_series(1, $2) n";
        sqlx::query(add).bind(canvas.0).bind(count).execute(&self.pool).await.unwrap();
    }

    /// How many ticks of a canvas were emitted and have a promise.
    pub(crate) async fn ticks_of(&self, canvas: CanvasId) -> i64 {
        let count = "select count(*) from wakeq.events_v2
                      where canvas_id = $1 and module = 'CRON' and isfinite(notify_at)";
        sqlx::query_scalar(count).bind(canvas.0).fetch_one(&self.pool).await.unwrap()
    }

    /// Takes the lock of a queue, until the transaction ends.
    pub(crate) async fn hold_queue(&self, queue: &str) -> sqlx::Transaction<'static, sqlx::Postgres> {
        let mut held = self.pool.begin().await.unwrap();
        sqlx::query("select wakeq.lock_queue($1)").bind(queue).execute(&mut *held).await.unwrap();
        held
    }

    /// How many facets of a queue are in its rotation, and how many of its copies were promised
    /// for within the grace without counting as lost.
    pub(crate) async fn announced(&self, queue: &str) -> (i64, i64) {
        let look = "select (select count(*) from wakeq.facets where queue = $1 and position is not null),
                           (select count(*) from wakeq.events_v2
                             where queue = $1 and probes = 0 and notify_at < now() + interval '31 s')";
        sqlx::query_as(look).bind(queue).fetch_one(&self.pool).await.unwrap()
    }

    /// Parks all events, with a resume job per canvas.
    pub(crate) async fn lift_all(&self) {
        self.run("update wakeq.events_v2 set notify_at = null").await;
        let jobs = "insert into wakeq.resume_jobs (kind, canvas_id, module, name)
                    select 'lifted', canvas_id, 'WORKER', 'known' from wakeq.events_v2 group by 2 order by 2";
        self.run(jobs).await;
    }

    pub(crate) async fn open_jobs(&self) -> i64 {
        self.number("select count(*) from wakeq.resume_jobs").await
    }

    /// Events that were not counted as lost, with a promise within this many seconds.
    pub(crate) async fn promised_within(&self, seconds: i32) -> i64 {
        let promised = "select count(*) from wakeq.events_v2
                         where probes = 0 and notify_at between now() and now() + $1 * interval '1 s'";
        sqlx::query_scalar(promised).bind(seconds).fetch_one(&self.pool).await.unwrap()
    }

    /// Makes the next pass due, and all promises that were put off.
    pub(crate) async fn all_due(&self) {
        // In the order of a pass, whose last statement may still run after the pass was aborted.
        self.run(
            "with own as (select id from wakeq.events_v2 where probes = 0 order by id for update)
             update wakeq.events_v2 e set notify_at = now() from own where e.id = own.id",
        )
        .await;
        self.run("update wakeq.chores set next_at = now()").await;
    }
}
