//! A process that stands still in the middle of a transaction: stopped, without a processor, or cut off.

use std::time::Duration;

use super::{Table, is_skipped};
use crate::store::{CronDue, CronStep, StoreConfig, StoreError};

/// Every connection says how long it may keep silent.
#[tokio::test]
async fn connections_may_not_be_silent_for_long() {
    let table =
        Table::with(StoreConfig { statement_timeout: Duration::from_secs(7), ..StoreConfig::default() })
            .await;
    let set =
        "select current_setting('idle_in_transaction_session_timeout'), current_setting('tcp_user_timeout'),
                      inet_client_addr() is not null";
    let store = &table.store;
    for session in [store.session().await, store.renewal_session().await] {
        let mut session = session.unwrap();
        let set = sqlx::query_as::<_, (String, String, bool)>(set);
        let set = session.limit(|connection| set.fetch_one(connection)).await;
        let (idle, unanswered, is_tcp) = session.answered("look", set).unwrap();
        assert_eq!(idle, "8s");
        assert!(!is_tcp || unanswered == "8000", "{unanswered}");
    }
}

/// What it had locked is free soon: the crons that it was about tick elsewhere.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_process_that_stands_still_keeps_no_locks() {
    let table = Table::new().await;
    if is_skipped("two sessions at a time") {
        return;
    }
    table
        .run(
            "insert into wakeq.cron_records (canvas_id, name, expression, zone, modifier, value, missed, next_at, created_by,
                                             created_at, changed_at)
             values (gen_random_uuid(), 'often', '* * * * *', 'UTC', '_', '1', 'skip', now(), 'test', now(), now())",
        )
        .await;
    let quick = StoreConfig { statement_timeout: Duration::from_secs(1), ..StoreConfig::default() };
    let frozen = table.other_store(quick).await;
    let (stands, standing) = tokio::sync::oneshot::channel();
    let (thaw, thawed) = tokio::sync::oneshot::channel::<()>();
    let mut freeze = Some((stands, thawed));
    let freezing = tokio::spawn(async move {
        let step = |_: &CronDue, _, _| {
            let (stands, thawed) = freeze.take().expect("one cron");
            stands.send(()).unwrap();
            tokio::task::block_in_place(|| thawed.blocking_recv().unwrap_err());
            CronStep::Leave
        };
        frozen.tick(None, &[], step).await.map(drop)
    });
    standing.await.unwrap();
    let mut found = 0;
    let ticking = async {
        while found == 0 {
            let step = |_: &CronDue, _, _| {
                found += 1;
                CronStep::Leave
            };
            table.store.tick(None, &[], step).await.unwrap();
            tokio::time::sleep(Duration::from_millis(20)).await;
        }
    };
    tokio::time::timeout(Duration::from_secs(15), ticking).await.expect("the cron is locked for ever");
    drop(thaw);
    assert!(matches!(freezing.await.unwrap(), Err(StoreError::Unavailable(_))));
}
