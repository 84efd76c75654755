//! Plans: the statements of workers are planned once for a connection, and stay good while the
//! table grows.

use std::sync::Arc;
use std::time::Duration;

use uuid::Uuid;

use super::Table;
use super::cost::{CLAIM, buffers, claim_arguments, plan};
use crate::event::EventId;
use crate::store::Retry;

/// However few events it is about, a statement is soon planned no more.
#[tokio::test]
async fn workers_statements_are_not_planned_at_each_call() {
    let table = Table::of_one_connection().await;
    for _ in 0..30 {
        let ids = table.add(4).await;
        table.store.load(&ids[..1]).await.unwrap();
        let claims = table.claim(&ids).await;
        let retry =
            Retry { claim: claims[0], retries: 1, delay: Duration::ZERO, error: "no".into(), noted: None };
        assert_eq!(table.store.retry(&[Arc::new(retry)]).await.unwrap(), [true]);
        table.store.release(&claims[1..2]).await.unwrap();
        assert_eq!(table.store.complete(&claims[2..3]).await.unwrap(), [true]);
        assert_eq!(table.store.complete_links(&claims[3..]).await.unwrap(), [true]);
    }
    let mut session = table.store.session().await.unwrap();
    let planned = sqlx::query_as::<_, (String, i64, i64)>(
        "select statement, custom_plans, generic_plans from pg_prepared_statements
          where statement ~ 'wakeq.events_v2' and statement !~ 'pg_prepared'",
    );
    let planned = session.limit(|connection| planned.fetch_all(connection)).await;
    let planned = session.answered("list statements", planned).await.unwrap();
    assert_eq!(planned.len(), 6, "{planned:?}");
    for (statement, custom, generic) in planned {
        assert!(custom <= 10 && custom + generic == 30, "{custom} of 30: {statement}");
    }
}

/// A plan for claims that was made while the table was empty reads a few pages for each event after
/// the table has grown.
#[tokio::test]
async fn a_plan_for_an_empty_table_claims_from_a_full_one() {
    let table = Table::of_one_connection().await;
    let emit = async |from: i64, to: i64| {
        sqlx::query(
            "insert into wakeq.events_v2 (id, canvas_id, module, name, modifier, value, object, seq, prev)
             select gen_random_uuid(), '00000000-0000-0000-0000-000000000000', 'WORKER', 'known', '_', '1', 'o' || n,
                    n, 0 from generate_series($1, $2) n",
        )
        .bind(from)
        .bind(to)
        .execute(&table.pool)
        .await
        .unwrap();
    };
    let next = async || -> Vec<EventId> {
        let ids = "select id from wakeq.events_v2 where locked_at is null order by id limit 64";
        let ids: Vec<Uuid> = sqlx::query_scalar(ids).fetch_all(&table.pool).await.unwrap();
        ids.into_iter().map(EventId).collect()
    };
    for event in 1..=8 {
        emit(event, event).await;
        assert_eq!(table.claim(&next().await).await.len(), 1);
    }
    emit(9, 40_000).await;
    let pages = async || buffers(&plan(&table.store, CLAIM, &claim_arguments(&next().await)).await, "");
    let (first, again) = (pages().await, pages().await);
    let claimed = table.number("select count(*) from wakeq.events_v2 where locked_at is not null").await;
    println!("pages for 64 claims among 40,000 events: {first}, {again}");
    assert_eq!(claimed, 8 + 2 * 64);
    assert!(first < 1500 && again < 1500, "{first} and {again} pages");
}
