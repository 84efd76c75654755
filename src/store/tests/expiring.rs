//! How long dead events of consumer groups, and records of events sent to entities, are kept.

use std::time::Duration;

use uuid::Uuid;

use super::Table;
use crate::event::CanvasId;
use crate::store::Retention;

impl Table {
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
    assert!(table.store.expire(false, Retention::default()).await.unwrap(), "1,000 of 1,200");
    assert!(!table.store.expire(true, Retention::default()).await.unwrap());
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
    assert!(!table.store.expire(false, Retention::default()).await.unwrap());
    assert_eq!(table.number(left).await, 1 + 2);
    // They are not examined again at each pass; when they are, those whose follow-ups have ended
    // meanwhile are deleted.
    table.run("delete from wakeq.events_v2").await;
    assert!(!table.store.expire(true, Retention::default()).await.unwrap());
    assert_eq!(table.number(left).await, 1 + 2);
    table.run("update wakeq.entity_events set held_at = held_at - interval '8 days'").await;
    assert!(!table.store.expire(true, Retention::default()).await.unwrap());
    assert_eq!(table.number(left).await, 2);
}
