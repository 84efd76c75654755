//! A look after an interruption finds the promises that emits made in it, and nothing else.

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
