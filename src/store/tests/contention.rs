//! Locks, limits and lost connections: nothing waits for ever, and nothing deadlocks.

use std::collections::HashMap;
use std::sync::{Arc, Mutex};
use std::time::{Duration, Instant};

use super::{Table, is_skipped, limits, scope, shuffled, tester, told};
use crate::event::{CanvasId, Claim, EventId, RuleKind, Timing};
use crate::store::{Commanded, Retry, Store, StoreConfig, StoreError};

/// The tokens seen last.
type Tokens = Arc<Mutex<HashMap<EventId, i32>>>;

/// Random overlapping batches of everything that locks rows of events, from eight connections. The limit on waiting
/// for a lock lies above Postgres' own search for deadlocks, which would otherwise never find one.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn overlapping_batches_never_deadlock() {
    let timing = Timing { lease: Duration::from_millis(100), ..Timing::default() };
    let table = Table::with(StoreConfig {
        max_connections: 8,
        lock_timeout: Duration::from_secs(20),
        statement_timeout: Duration::from_secs(25),
        timing,
        ..StoreConfig::default()
    })
    .await;
    let ids = table.add(150).await;
    table
        .store
        .add_rule(
            RuleKind::Pause,
            &super::HandlerScope { name: "other".parse().unwrap(), ..scope() },
            None,
            None,
            &tester(),
        )
        .await
        .unwrap();
    let tokens = Tokens::default();
    let mut writers = tokio::task::JoinSet::new();
    for writer in 0..8 {
        let (store, ids, tokens) = (table.store.clone(), ids.clone(), Arc::clone(&tokens));
        writers.spawn(async move {
            for round in 0..40 {
                let batch = shuffled(&ids, writer * 1000 + round)[..80].to_vec();
                write(&store, &batch, &tokens, (writer + round) % 9).await.unwrap();
            }
        });
    }
    writers.join_all().await;
    let deadlocks = "select deadlocks from pg_stat_database where datname = current_database()";
    assert_eq!(table.number(deadlocks).await, 0);
}

async fn write(store: &Store, ids: &[EventId], tokens: &Tokens, kind: u64) -> Result<(), StoreError> {
    let limits = crate::store::ClaimLimits { losses_below: i32::MAX, ..limits() };
    let claims: Vec<Claim> = {
        let tokens = tokens.lock().unwrap();
        ids.iter().filter_map(|id| Some(Claim { id: *id, claims: *tokens.get(id)? })).collect()
    };
    match kind {
        0 | 4 => {
            let claimed = store.claim(&told(ids), &limits).await?;
            tokens
                .lock()
                .unwrap()
                .extend(claimed.into_iter().flatten().map(|event| (event.claim.id, event.claim.claims)));
        }
        1 => drop(store.renew(&claims).await?),
        2 => store.release(&claims).await?,
        3 => {
            let retry =
                |claim| Arc::new(Retry { claim, retries: 1, delay: Duration::ZERO, error: String::new() });
            drop(store.retry(&claims.into_iter().map(retry).collect::<Vec<_>>()).await?);
        }
        5 => drop(store.complete(&claims[..claims.len().min(2)]).await?),
        6 => store.defer(ids).await?,
        7 => drop(store.register(&["WORKER/known/_".into()], &[]).await?),
        _ => {
            // Also the jobs of what was deferred and then registered.
            for (_, job) in store.minute(true).await?.jobs {
                store.resume_page(job).await?;
            }
        }
    }
    Ok(())
}

/// A rule that is put waits for the claims that may not have seen it, for longer than a claim can take: it stands, and its
/// caller is not told otherwise.
#[tokio::test]
async fn a_rule_waits_for_slow_claims() {
    let table = Table::new().await;
    if is_skipped("another session while a transaction is open") {
        return;
    }
    let mut claim = table.pool.begin().await.unwrap();
    sqlx::query("lock table wakeq.claim_gate in row exclusive mode").execute(&mut *claim).await.unwrap();
    let store = table.store.clone();
    let adding =
        tokio::spawn(async move { store.add_rule(RuleKind::Pause, &scope(), None, None, &tester()).await });
    table.until_waiting(1).await;
    let waiting = "select (extract(epoch from query_start) * 1000000)::bigint from pg_stat_activity
                    where datname = current_database() and wait_event_type = 'Lock' and state = 'active'";
    let first = table.number(waiting).await;
    let waits_again = async {
        while !adding.is_finished() {
            let now = sqlx::query_scalar(waiting).fetch_optional(&table.pool).await.unwrap();
            if now.is_some_and(|now: i64| now > first) {
                return;
            }
            tokio::time::sleep(Duration::from_millis(20)).await;
        }
    };
    tokio::time::timeout(Duration::from_secs(20), waits_again).await.expect("one wait has an end");
    claim.rollback().await.unwrap();
    assert!(adding.await.unwrap().unwrap().new);
}

/// A stranger who holds a row's lock costs a statement 200 ms.
#[tokio::test]
async fn a_wait_for_a_lock_ends() {
    let table = Table::with(StoreConfig::default()).await;
    if is_skipped("another session while a transaction is open") {
        return;
    }
    let id = table.add(1).await[0];
    let mut stranger = table.pool.begin().await.unwrap();
    sqlx::query("select from wakeq.events_v2 for update").execute(&mut *stranger).await.unwrap();
    let started = Instant::now();
    let error = table.store.cancel(CanvasId::DEFAULT, id, &tester()).await.unwrap_err();
    assert_eq!(error.code().as_deref(), Some("55P03"));
    assert!(error.is_contention());
    assert!(started.elapsed() < Duration::from_secs(2), "{:?}", started.elapsed());
    stranger.rollback().await.unwrap();
    let cancelled = table.store.cancel(CanvasId::DEFAULT, id, &tester()).await.unwrap();
    assert_eq!(cancelled, (Commanded::Done, None));
}

/// The server ends what takes too long; the connection is good for the next statement.
#[tokio::test]
async fn a_statement_that_takes_too_long_ends() {
    let table = Table::with(StoreConfig {
        max_connections: 1,
        statement_timeout: Duration::from_millis(300),
        lock_timeout: Duration::from_secs(30),
        ..StoreConfig::default()
    })
    .await;
    if is_skipped("another session while a transaction is open") {
        return;
    }
    let id = table.add(1).await[0];
    let mut stranger = table.pool.begin().await.unwrap();
    sqlx::query("select from wakeq.events_v2 for update").execute(&mut *stranger).await.unwrap();
    let connection = "select pid::bigint from pg_stat_activity where application_name = 'wakeq' and datname = current_database()";
    let before = table.number(connection).await;
    let error = table.store.cancel(CanvasId::DEFAULT, id, &tester()).await.unwrap_err();
    assert!(matches!(error, StoreError::TimedOut { .. }), "{error:?}");
    table.store.clock().await.unwrap();
    assert_eq!(table.number(connection).await, before, "the next statement has the same connection");
}

/// Whoever gives a statement up leaves the server busy with it: that connection must not be used for the next one.
#[tokio::test]
async fn the_connection_of_a_statement_given_up_is_closed() {
    let config =
        StoreConfig { max_connections: 1, lock_timeout: Duration::from_secs(30), ..StoreConfig::default() };
    let table = Table::with(config).await;
    if is_skipped("another session while a transaction is open") {
        return;
    }
    let id = table.add(1).await[0];
    let mut stranger = table.pool.begin().await.unwrap();
    sqlx::query("select from wakeq.events_v2 for update").execute(&mut *stranger).await.unwrap();
    let store = table.store.clone();
    let given_up = tokio::spawn(async move { store.cancel(CanvasId::DEFAULT, id, &tester()).await });
    table.until_waiting(1).await;
    given_up.abort();
    assert!(given_up.await.unwrap_err().is_cancelled());
    let started = Instant::now();
    table.store.clock().await.unwrap();
    assert!(
        started.elapsed() < Duration::from_secs(2),
        "the pool's only place stayed taken: {:?}",
        started.elapsed()
    );
    assert_eq!(table.waiting().await, 1, "the server still tries");
}

/// A schema that lacks what this program needs is an error that says what to do.
#[tokio::test]
async fn an_older_schema_is_told_from_a_wrong_statement() {
    let table = Table::new().await;
    let ids = table.add(1).await;
    table.run("alter table wakeq.events_v2 drop column last_error").await;
    let error = table.store.load(&ids).await.unwrap_err();
    assert!(matches!(error, StoreError::NotMigrated(_)), "{error}");
    table.run("drop schema wakeq cascade").await;
    let error = table.store.load(&ids).await.unwrap_err();
    assert!(error.to_string().contains("run `wakeq migrate`"), "{error}");
}

/// Everything works on a pool of one connection, whoever else wants it.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn one_connection_is_enough() {
    let table = Table::with(StoreConfig { max_connections: 1, ..StoreConfig::default() }).await;
    let ids = table.add(200).await;
    let mut workers = tokio::task::JoinSet::new();
    for batch in ids.chunks(20) {
        let (store, batch) = (table.store.clone(), batch.to_vec());
        workers.spawn(async move {
            let claimed = store.claim(&told(&batch), &limits()).await.unwrap();
            let claims: Vec<Claim> = claimed.into_iter().flatten().map(|event| event.claim).collect();
            assert_eq!(store.renew(&claims).await.unwrap(), [true; 20]);
            assert_eq!(store.complete(&claims).await.unwrap(), [true; 20]);
        });
        let store = table.store.clone();
        workers.spawn(async move {
            let other = super::HandlerScope { name: "other".parse().unwrap(), ..scope() };
            store.add_rule(RuleKind::Pause, &other, None, None, &tester()).await.unwrap();
            store.lift_rule(RuleKind::Pause, &other, &tester()).await.unwrap();
            store.minute(false).await.unwrap();
        });
    }
    workers.join_all().await;
    assert_eq!(table.number("select count(*) from wakeq.events_v2").await, 0);
}
