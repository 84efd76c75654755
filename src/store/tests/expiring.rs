//! How long dead events of consumer groups, records of events sent to entities, and chosen ids are
//! kept.

use std::time::Duration;

use uuid::Uuid;

use super::Table;
use super::crowds::{FEW, MANY};
use crate::event::CanvasId;
use crate::store::{ExpiryPart, Retention};

impl Table {
    /// Deletes a page of all that is old; returns whether there may be more of any part.
    pub(super) async fn expire(&self, retention: Retention) -> bool {
        let mut more = false;
        for part in ExpiryPart::ALL {
            more |= self.store.expire(part, retention).await.unwrap();
        }
        more
    }

    /// Adds a row of a canvas to each table from which old rows are deleted, except remembered ids;
    /// and a target and a hook whose previous secrets are no longer valid.
    pub(crate) async fn add_old_rows(&self, canvas: CanvasId) {
        for add in [
            "insert into wakeq.dead_events (id, canvas_id, module, name, modifier, value, retries, enqueued_at, claims, losses,
                                            cause, died_at)
             values (gen_random_uuid(), $1, 'm', 'n', '_', '1', 0, now(), 1, 0, 'poison', now() - interval '1 year')",
            "insert into wakeq.unknown_handlers (canvas_id, module, name, modifier, last_seen)
             values ($1, 'm', 'n', '_', now() - interval '1 year')",
            "insert into wakeq.audit_log (canvas_id, actor, action, outcome, at)
             values ($1, 'ada', 'pause', 'done', now() - interval '1 year')",
            "insert into wakeq.idempotency_keys (canvas_id, holder, key, fingerprint, answer, created_at)
             values ($1, 'ada', 'k', '1', '1', now() - interval '1 year')",
            "insert into wakeq.unique_keys (canvas_id, module, name, key, event_id, until)
             values ($1, 'm', 'n', 'k', gen_random_uuid(), now() - interval '1 s')",
            "insert into wakeq.checkpoints (canvas_id, event_id, claims, value, looked_at)
             values ($1, gen_random_uuid(), 1, '1', now() - interval '1 year')",
            "insert into wakeq.entity_events (canvas_id, event_id, correlation_id, entity_type, entity, name, link_id, link_prev,
                                              status, ended_at)
             values ($1, gen_random_uuid(), gen_random_uuid(), 'account', 'ada', 'deposit', 1, 0, 'failed',
                     now() - interval '1 year')",
            "insert into wakeq.tombstones (canvas_id, object, seq, prev, cause, left_at)
             values ($1, 'o', 2, 1, 'dead', now() - interval '1 year')",
            "insert into wakeq.consumer_dead
                 (consumer_group, source, seq, id, canvas_id, category, stream, name, payload, attempts, last_error, died_at)
             values ('g', 'log', 1, gen_random_uuid(), $1, 'c', 's', 'n', '1', 1, 'no room', now() - interval '1 year')",
            "insert into wakeq.http_targets
                 (canvas_id, module, name, modifier, url, retries, delay_ms, factor, delay_max_ms, timeout_ms, secret, created_by,
                  updated_by, previous_secret, previous_until)
             values ($1, 'm', 'n', '_', 'https://example.com', 1, 1000, 2, 10000, 1000, sha256('1'), 'test', 'test',
                     sha256('2'), now() - interval '1 s')",
            "insert into wakeq.hooks (canvas_id, name, kind, module, handler, modifier, secret, created_by, updated_by,
                                      previous_secret, previous_until)
             values ($1, 'h', 'github', 'm', 'n', '_', sha256('1'), 'test', 'test', sha256('2'), now() - interval '1 s')",
            "insert into wakeq.known_errors (canvas_id, error_group, known_by, looked_at)
             values ($1, gen_random_uuid(), 'ada', now() - interval '1 year')",
            "insert into wakeq.hour_statistics (at, canvas_id, module, name, emitted, completed, failed, retried, dead, wait_us, run_us,
                                                wait_bins, run_bins)
             values (now() - interval '1 year', $1, 'm', 'n', 1, 0, 0, 0, 0, 0, 0, '{}', '{}')",
            "insert into wakeq.programs (canvas_id, module, name, worker, seen_at)
             values ($1, 'm', 'n', 'w', now() - interval '1 year')",
            // Of no canvas: here its id is that of the worker's start.
            "insert into wakeq.workers (name, instance, release, seen_at, capacity, handler_count, handlers, has_targets)
             values ('w', $1, '1', now() - interval '1 year', 1, 0, '{}', false)",
        ] {
            sqlx::query(add).bind(canvas.0).execute(&self.pool).await.unwrap();
        }
    }

    /// How many rows, and previous secrets, are left of [`Table::add_old_rows`].
    pub(crate) async fn old_rows(&self) -> i64 {
        self.number(
            "select (select count(*) from wakeq.dead_events) + (select count(*) from wakeq.unknown_handlers)
                  + (select count(*) from wakeq.audit_log) + (select count(*) from wakeq.idempotency_keys)
                  + (select count(*) from wakeq.unique_keys) + (select count(*) from wakeq.checkpoints)
                  + (select count(*) from wakeq.entity_events) + (select count(*) from wakeq.tombstones)
                  + (select count(*) from wakeq.consumer_dead) + (select count(previous_secret) from wakeq.http_targets)
                  + (select count(previous_secret) from wakeq.hooks)
                  + (select count(*) from wakeq.hour_statistics) + (select count(*) from wakeq.workers)
                  + (select count(*) from wakeq.known_errors) + (select count(*) from wakeq.programs)",
        )
        .await
    }

    /// Adds remembered ids of a canvas that were due long enough ago to be forgotten, each a second
    /// before the next; returns the ids.
    pub(crate) async fn remember_old(&self, canvas: CanvasId, count: i32) -> Vec<Uuid> {
        let add = "insert into wakeq.emitted_ids (canvas_id, id, due_at)
                   select $1, gen_random_uuid(), now() - interval '8 days' + n * interval '1 s'
                     from generate_series(1, $2) n
                returning id";
        sqlx::query_scalar(add).bind(canvas.0).bind(count).fetch_all(&self.pool).await.unwrap()
    }

    /// Adds events with these ids, which wait under a pause.
    pub(crate) async fn add_paused(&self, canvas: CanvasId, ids: &[Uuid]) {
        let add = "insert into wakeq.events_v2 (id, canvas_id, module, name, modifier, value, notify_at)
                   select id, $1, 'WORKER', 'paused', '_', '1', null from unnest($2::uuid[]) id";
        sqlx::query(add).bind(canvas.0).bind(ids).execute(&self.pool).await.unwrap();
    }

    /// How many ids of a canvas are remembered, and how many of them the next look at old ones
    /// finds.
    pub(crate) async fn remembered(&self, canvas: CanvasId) -> (i64, i64) {
        let count = "select count(*), count(*) filter (where due_at < now() - interval '7 days')
                       from wakeq.emitted_ids where canvas_id = $1";
        sqlx::query_as(count).bind(canvas.0).fetch_one(&self.pool).await.unwrap()
    }
    /// Adds dead events of a group from one hour ago, two hours ago, and so on, each on a canvas of
    /// its own; the `seq` is the number of hours.
    pub(crate) async fn add_group_dead(&self, hours: i32) {
        sqlx::query(
            "insert into wakeq.consumer_dead
                 (consumer_group, source, seq, id, canvas_id, category, stream, name, payload, attempts, last_error, died_at)
             select 'g', 'log', hours, gen_random_uuid(), gen_random_uuid(), 'c', 's', 'n', '1', 1, 'no room',
                    now() - make_interval(hours => hours)
               from generate_series(1, $1) hours",
        )
        .bind(hours)
        .execute(&self.pool)
        .await
        .unwrap();
    }

    /// Adds tombstones of objects of a canvas; all but the last are older than any that are kept.
    pub(crate) async fn add_old_tombstones(&self, canvas: CanvasId, count: i32) {
        sqlx::query(
            "insert into wakeq.tombstones (canvas_id, object, seq, prev, cause, left_at)
             select $1, 'o' || number, 2, 1, 'dead', case when number < $2 then timestamptz '2020-01-01' else now() end
               from generate_series(1, $2) number",
        )
        .bind(canvas.0)
        .bind(count)
        .execute(&self.pool)
        .await
        .unwrap();
    }

    /// How many dead events of groups, and how many tombstones there are.
    pub(crate) async fn dead_of_groups_and_tombstones(&self) -> (i64, i64) {
        let dead = self.number("select count(*) from wakeq.consumer_dead").await;
        (dead, self.number("select count(*) from wakeq.tombstones").await)
    }

    /// The `seq`s of a group's dead events, the latest first.
    pub(crate) async fn group_dead_of(&self, group: &str) -> Vec<i64> {
        let seqs = "select seq from wakeq.consumer_dead where consumer_group = $1 order by seq desc";
        sqlx::query_scalar(seqs).bind(group).fetch_all(&self.pool).await.unwrap()
    }
}

/// Dead events of groups are deleted by age, whatever their group.
#[tokio::test]
async fn old_dead_events_of_groups_are_deleted() {
    let table = Table::new().await;
    for (group, canvas, days) in [("a", 6, 31), ("b", 7, 31), ("a", 7, 29)] {
        let canvas = Uuid::from_u128(canvas);
        sqlx::query(
            "insert into wakeq.consumer_dead (consumer_group, source, seq, id, canvas_id, category, stream, name, payload,
                                              attempts, last_error, died_at)
             values ($1, 'log', $3, $2, $2, 'c', 's', 'n', '1', 1, 'no room', now() - make_interval(days => $3))",
        )
        .bind(group)
        .bind(canvas)
        .bind(days)
        .execute(&table.pool)
        .await
        .unwrap();
    }
    let kept = Duration::from_secs(30 * 24 * 3600);
    assert_eq!(table.store.expire_group_dead(kept).await.unwrap(), 2);
    assert_eq!(table.store.expire_group_dead(kept).await.unwrap(), 0);
    assert_eq!(table.group_dead_of("a").await, [29]);
}

/// Outcomes are deleted by age. Events without an outcome stay, however old, and late outcomes are
/// kept as long as any other.
#[tokio::test]
async fn outcomes_are_deleted_by_age() {
    let table = Table::new().await;
    table
        .run(
            "insert into wakeq.entity_events (canvas_id, event_id, correlation_id, entity_type, entity, name, link_id, link_prev,
                                              status, sent_at, ended_at)
             select gen_random_uuid(), gen_random_uuid(), gen_random_uuid(), 'account', 'ada', 'deposit', n, 0,
                    case when n = 1 then 'accepted' else 'failed' end,
                    now() - interval '8 days',
                    case when n > 1 then now() - case when n = 2 then interval '6 days' else interval '8 days' end end
               from generate_series(1, 1202) as n",
        )
        .await;
    assert!(table.expire(Retention::default()).await, "1,000 of 1,200");
    assert!(!table.expire(Retention::default()).await);
    assert_eq!(table.number("select sum(link_id)::bigint from wakeq.entity_events").await, 1 + 2);
}

/// Events that follow from an event may still be answered while they wait, run or are dead: until
/// then it is known that they were asked. Events of another canvas under the same ids do not count.
#[tokio::test]
async fn outcomes_with_open_questions_are_kept() {
    let table = Table::new().await;
    // 1 waits, 2 is dead, 3 and 4 belong to other canvases; 5 has ended.
    table
        .run(
            "insert into wakeq.entity_events (canvas_id, event_id, correlation_id, entity_type, entity, name, link_id, link_prev,
                                              status, sent_at, ended_at, follow_ups)
             select '00000000-0000-0000-0000-000000000000', gen_random_uuid(), gen_random_uuid(), 'account', 'ada', 'top_up', n, 0, 'processed',
                    now() - interval '8 days', now() - interval '8 days',
                    array[gen_random_uuid(), ('00000000-0000-4000-8000-00000000000' || n)::uuid]
               from generate_series(1, 5) as n",
        )
        .await;
    table
        .run(
            "insert into wakeq.events_v2 (id, canvas_id, module, name, modifier, value)
             select ('00000000-0000-4000-8000-00000000000' || n)::uuid,
                    ('00000000-0000-0000-0000-00000000000' || case n when 1 then 0 else 7 end)::uuid, 'WORKER', 'charge', 'm', '1'
               from unnest(array[1, 3]) as n",
        )
        .await;
    table
        .run(
            "insert into wakeq.dead_events (id, canvas_id, module, name, modifier, value, retries, enqueued_at, claims, losses,
                                            last_error, cause)
             select ('00000000-0000-4000-8000-00000000000' || n)::uuid,
                    ('00000000-0000-0000-0000-00000000000' || case n when 2 then 0 else 7 end)::uuid, 'WORKER', 'charge', 'm', '1',
                    2, now(), 3, 0, 'no', 'retries'
               from unnest(array[2, 4]) as n",
        )
        .await;
    let left = "select sum(link_id)::bigint from wakeq.entity_events";
    assert!(!table.expire(Retention::default()).await);
    assert_eq!(table.number(left).await, 1 + 2);
    // They are not examined again at each pass; when they are, those whose follow-ups have ended
    // meanwhile are deleted.
    table.run("delete from wakeq.events_v2").await;
    assert!(!table.expire(Retention::default()).await);
    assert_eq!(table.number(left).await, 1 + 2);
    table.run("update wakeq.entity_events set held_at = held_at - interval '8 days'").await;
    assert!(!table.expire(Retention::default()).await);
    assert_eq!(table.number(left).await, 2);
}

/// Ids of events that wait are looked at once and then again when they are as old once more, a page
/// at a time: however many of them one canvas has, those of another are reached. Events of another
/// canvas under the same ids keep none.
#[tokio::test]
async fn ids_that_are_still_needed_hold_up_no_others() {
    let table = Table::new().await;
    let needed = table.remember_old(MANY, 1_500).await;
    table.add_paused(MANY, &needed).await;
    let twins = "insert into wakeq.emitted_ids (canvas_id, id, due_at)
                 select $1, id, now() - interval '7 days 1 h' from unnest($2::uuid[]) id";
    sqlx::query(twins).bind(FEW.0).bind(&needed[..10]).execute(&table.pool).await.unwrap();
    let page = async || table.store.expire(ExpiryPart::EmittedIds, Retention::default()).await.unwrap();
    assert!(page().await, "there are more than a page");
    assert_eq!((table.remembered(MANY).await, table.remembered(FEW).await), ((1_500, 500), (10, 10)));
    assert!(!page().await);
    assert_eq!((table.remembered(MANY).await, table.remembered(FEW).await), ((1_500, 0), (0, 0)));
    table.run("delete from wakeq.events_v2").await;
    table.run("update wakeq.emitted_ids set due_at = due_at - interval '8 days'").await;
    assert!(page().await && !page().await);
    assert_eq!(table.remembered(MANY).await, (0, 0));
}
