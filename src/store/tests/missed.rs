//! A look after an interruption finds the promises that emits made in it, and nothing else. One
//! after an overflow finds all events that wait.

use std::collections::HashSet;
use std::time::Duration;

use super::Table;
use crate::event::{CanvasId, EventId};
use crate::store::minute::MISSED_PAGE;

/// The first of these events were emitted this long ago, and have their promises a grace later.
const EMITTED: &str = "update wakeq.events_v2 e
        set delay_until = now() - ago, notify_at = now() - ago + interval '30 s', canvas_id = canvas
       from (select n, id, make_interval(secs => $2) as ago,
                    case when n % 2 = 0 then canvas_id else '00000000-0000-0000-0000-000000000007' end as canvas
               from unnest($1::uuid[]) with ordinality as o (id, n) join wakeq.events_v2 using (id)) o
      where e.id = o.id";

impl Table {
    async fn emitted(&self, count: i32, seconds_ago: f64) -> HashSet<EventId> {
        let ids = self.add(count).await;
        let keys: Vec<uuid::Uuid> = ids.iter().map(|id| id.0).collect();
        sqlx::query(EMITTED).bind(keys).bind(seconds_ago).execute(&self.pool).await.unwrap();
        ids.into_iter().collect()
    }
}

#[tokio::test]
async fn events_of_an_interruption_are_found_page_by_page() {
    let table = Table::new().await;
    let other = CanvasId(uuid::Uuid::from_u128(7));
    // Before and in it; of those, some run, and some are to wait.
    table.emitted(40, 300.0).await;
    let in_it = table.emitted(2_500, 20.0).await;
    let held = table.emitted(20, 20.0).await;
    let [runs, waits]: [Vec<uuid::Uuid>; 2] =
        [0, 1].map(|half| held.iter().map(|id| id.0).skip(10 * half).take(10).collect());
    let claimed = "update wakeq.events_v2 set locked_at = now(), claims = 1 where id = any ($1)";
    sqlx::query(claimed).bind(runs).execute(&table.pool).await.unwrap();
    let delayed = "update wakeq.events_v2 set delay_until = now() + interval '10 s' where id = any ($1)";
    sqlx::query(delayed).bind(waits).execute(&table.pool).await.unwrap();

    let (mut found, mut pages, mut after) = (HashSet::new(), 0, None);
    loop {
        let page = table.store.missed_for(Duration::from_secs(60), after).await.unwrap();
        assert!(page.notifications.len() <= MISSED_PAGE);
        let of_other = page.notifications.iter().filter(|found| found.canvas == other).count();
        assert!(of_other * 3 > page.notifications.len(), "each with its canvas");
        found.extend(page.notifications.into_iter().map(|found| found.id));
        (pages, after) = (pages + 1, page.next);
        if after.is_none() {
            break;
        }
    }
    assert_eq!((found == in_it, found.len(), pages), (true, 2_500, 3));
    let none = table.store.missed_for(Duration::from_secs(5), None).await.unwrap();
    assert_eq!(none.notifications, [], "the interruption began later");
}

/// Wherever the promises of what waits are, and however many delayed events are between them. Those
/// of a canvas that has no room are passed over, and nobody reads a promise twice.
#[tokio::test]
#[ignore = "long: `cargo xtask long` runs it"]
async fn events_that_wait_are_found_among_many_delayed_ones() {
    let table = Table::new().await;
    let (other, minutes) = (CanvasId(uuid::Uuid::from_u128(7)), [1, 10, 20]);
    let promised = async |ids: &[EventId], minutes: i32, change: &'static str| {
        // As many probes as a pass has made that promises so far ahead, or more.
        let promise =
            "update wakeq.events_v2 set notify_at = now() + make_interval(mins => $2), probes = $2 / 5
                        where id = any ($1)";
        let ids: Vec<uuid::Uuid> = ids.iter().map(|id| id.0).collect();
        sqlx::query(promise).bind(&ids).bind(minutes).execute(&table.pool).await.unwrap();
        sqlx::query(change).bind(&ids).execute(&table.pool).await.unwrap();
    };
    let (mut waiting, mut of_other) = (HashSet::new(), HashSet::new());
    for ahead in minutes {
        let ids = table.add(700).await;
        promised(&ids, ahead, "select $1::uuid[]").await;
        waiting.extend(ids);
        let ids = table.add(5).await;
        let moved = "update wakeq.events_v2 set canvas_id = '00000000-0000-0000-0000-000000000007' where id = any ($1)";
        promised(&ids, ahead, moved).await;
        of_other.extend(ids);
    }
    let delayed = "update wakeq.events_v2 set delay_until = now() + interval '4 min' where id = any ($1)";
    promised(&table.add(25_000).await, 5, delayed).await;
    let runs = "update wakeq.events_v2 set locked_at = now(), claims = 1 where id = any ($1)";
    promised(&table.add(10).await, 1, runs).await;
    let parked = "update wakeq.events_v2 set notify_at = null where id = any ($1)";
    promised(&table.add(10).await, 1, parked).await;
    let overdue = "update wakeq.events_v2 set notify_at = now() - interval '1 s' where id = any ($1)";
    promised(&table.add(10).await, 1, overdue).await;
    promised(&table.add(10).await, 300, "select $1::uuid[]").await;

    let find = async |without: &[CanvasId]| {
        let (mut found, mut pages, mut after) = (Vec::new(), 0, None);
        loop {
            let page = table.store.waiting_after(after, without).await.unwrap();
            assert!(page.notifications.len() <= MISSED_PAGE && !page.may_be_pulled);
            found.extend(page.notifications);
            (pages, after) = (pages + 1, page.next);
            if after.is_none() {
                return (found, pages);
            }
        }
    };
    let (found, pages) = find(&[]).await;
    let of = |canvas: CanvasId| -> HashSet<EventId> {
        found.iter().filter(|one| one.canvas == canvas).map(|one| one.id).collect()
    };
    assert_eq!((of(CanvasId::DEFAULT), of(other)), (waiting, of_other.clone()));
    assert_eq!((found.len(), pages), (3 * 705, 4), "10,000 are looked at, or 1,000 found");
    let (found, _) = find(&[CanvasId::DEFAULT]).await;
    assert_eq!(found.iter().map(|one| one.id).collect::<HashSet<_>>(), of_other);
}

/// Workers that do not know the handlers of what is found put it off while the look goes on, so
/// that it is ahead again.
#[tokio::test]
async fn events_deferred_during_a_look_for_missed_ones_are_found_once() {
    let table = Table::new().await;
    let waiting: HashSet<EventId> = table.add(3_500).await.into_iter().collect();
    table.run("update wakeq.events_v2 set notify_at = now() + interval '10 min', probes = 1").await;
    let (mut found, mut count, mut after) = (HashSet::new(), 0, None);
    loop {
        let page = table.store.waiting_after(after, &[]).await.unwrap();
        let ids: Vec<EventId> = page.notifications.iter().map(|one| one.id).collect();
        count += ids.len();
        assert!(count <= 3_500, "some are found again");
        table.store.defer(&ids).await.unwrap();
        found.extend(ids);
        after = page.next;
        if after.is_none() {
            break;
        }
    }
    assert!(found == waiting);
    let again = table.store.waiting_after(None, &[]).await.unwrap();
    assert_eq!(again.notifications.len(), MISSED_PAGE, "another look finds them again");
}

#[tokio::test]
async fn missed_events_of_pulled_handlers_are_split_off_by_the_caller() {
    let table = Table::new().await;
    table.add(2).await;
    table.run("update wakeq.events_v2 set notify_at = now() + interval '1 min'").await;
    table
        .run(
            "insert into wakeq.pulled_handlers
                    (canvas_id, module, name, retries, delay_ms, factor, delay_max_ms, halts, created_by, updated_by)
             select canvas_id, module, name, 2, 1000, 1, 1000, false, 'test', 'test' from wakeq.events_v2 limit 1",
        )
        .await;
    let page = table.store.waiting_after(None, &[]).await.unwrap();
    assert!(page.may_be_pulled);
    let split = table.store.split_pulled(&page.notifications).await.unwrap();
    assert_eq!((page.notifications.len(), split.workers.len(), split.pulled.len()), (2, 0, 0));
}
