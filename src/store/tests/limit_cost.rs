//! What limits cost in pages: nothing where there are none, and under a full one the same however
//! many wait.

use super::Table;
use super::cost::{CLAIM, array, buffers, claim_arguments, plan};
use super::crowds::{FEW, MANY};
use super::limits::{of_key, places};
use crate::event::{EventId, Notification};

const KEY: &str = "customer:7";

/// Limits of another canvas are looked at once in a statement, however many events it claims.
#[tokio::test]
async fn limits_of_another_canvas_cost_a_claim_one_look() {
    let table = Table::of_one_connection().await;
    let ids = table.add(300).await;
    table.claim(&ids[..100]).await;
    let claimed = async |ids: &[EventId]| plan(&table.store, CLAIM, &claim_arguments(ids)).await;
    let without = buffers(&claimed(&ids[100..200]).await, "");
    for name in ["canvas", "handler:WORKER/known"] {
        table.limit(FEW, name, places(5)).await;
    }
    let plan = claimed(&ids[200..]).await;
    let beside = buffers(&plan, "");
    println!("pages for 100 claims: {without} without limits, {beside} beside those of another canvas");
    assert_eq!(table.number("select count(*) from wakeq.events_v2 where locked_at is not null").await, 300);
    // With a look for each of them, there would be hundreds more.
    assert!(beside < without + 100, "{without} without limits: {plan}");
}

/// Wakes what has room after these have ended, claims it, and returns it with the pages that both
/// have read.
async fn handed_over(table: &Table, ended: &[EventId]) -> (Vec<EventId>, i64) {
    let after = format!("'{{{MANY}}}', '{{{KEY}}}', '1 min', '30 s', {}", array(ended));
    let woken = "select event_id from wakeq.limit_waits where woken_at is not null order by due, event_id";
    let waking = plan(&table.store, "from wakeq.wake_waiting(", &after).await;
    let ids: Vec<uuid::Uuid> = sqlx::query_scalar(woken).fetch_all(&table.pool).await.unwrap();
    let ids: Vec<EventId> = ids.into_iter().map(EventId).collect();
    let canvases = vec![MANY.to_string(); ids.len()].join(",");
    let asked = format!(
        "{}, '{{{canvases}}}', '{{WORKER/known/_}}', '{{}}', '1 min', 5, 2147483647, '10 min', '30 s', 'w'",
        array(&ids)
    );
    let claiming = plan(&table.store, "from wakeq.claim_limited(", &asked).await;
    (ids, buffers(&waking, "") + buffers(&claiming, ""))
}

/// Five run and 4,000 wait, of which five after five go on.
#[tokio::test]
#[ignore = "long: `cargo xtask long` runs it"]
async fn events_that_go_on_at_a_full_limit_read_few_pages() {
    let table = Table::of_one_connection().await;
    table.limit(MANY, KEY, places(5)).await;
    let told = table.add_keyed(MANY, &[KEY], 4_000).await;
    let mut running = Vec::new();
    for page in told.chunks(250) {
        running.extend(table.claim_some(page).await.into_iter().map(|event| event.claim.id));
    }
    assert_eq!(running, ids(&told[..5]));
    table.store.wake_waiting(&[of_key(MANY, KEY)]).await.unwrap();
    let mut pages = Vec::new();
    for round in 1..=100 {
        let end = "delete from wakeq.events_v2 where id = any ($1)";
        let ended: Vec<uuid::Uuid> = running.iter().map(|id| id.0).collect();
        sqlx::query(end).bind(ended).execute(&table.pool).await.unwrap();
        let (next, read) = handed_over(&table, &running).await;
        assert_eq!(next, ids(&told[5 * round..5 * (round + 1)]), "in their order");
        running = next;
        pages.push(read);
    }
    let last: i64 = pages[90..].iter().sum::<i64>() / 10;
    println!("pages for five events that go on at a full limit: {} at first, {last} later", pages[0]);
    assert!(last < 1_500, "{pages:?}");
}

fn ids(told: &[Notification]) -> Vec<EventId> {
    told.iter().map(|notification| notification.id).collect()
}
