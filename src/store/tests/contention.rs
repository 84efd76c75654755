//! Locks, limits and lost connections: nothing waits for ever.

use std::time::Duration;

use super::{Table, limits, scope, tester, told};
use crate::event::{CanvasId, Claim, RuleKind};
use crate::store::{CommandOutcome, LeftPlaces, Renewal, StoreConfig, StoreError};

impl Table {
    /// A claim that has passed the gate, and goes on until it is rolled back.
    pub(crate) async fn claim_under_way(&self) -> sqlx::Transaction<'static, sqlx::Postgres> {
        let mut claim = self.pool.begin().await.unwrap();
        sqlx::query("lock table wakeq.claim_gate in row exclusive mode").execute(&mut *claim).await.unwrap();
        claim
    }
}

/// A new rule waits for the claims that may not have seen it, for longer than a claim can take: it
/// is in force, and its caller gets no error.
#[tokio::test]
async fn a_rule_waits_for_slow_claims() {
    let table = Table::new().await;
    let claim = table.claim_under_way().await;
    let store = table.store.clone();
    let adding =
        tokio::spawn(async move { store.add_rule(RuleKind::Pause, &scope(), None, None, &tester()).await });
    table.until_waiting(1).await;
    let waiting = "select (extract(epoch from query_start) * 1000000)::bigint from pg_stat_activity
                    where datname = current_database() and wait_event_type = 'Lock' and state = 'active'";
    let first = table.number(waiting).await;
    let waits_again = async || {
        let now = sqlx::query_scalar(waiting).fetch_optional(&table.pool).await.unwrap();
        now.is_some_and(|now: i64| now > first)
    };
    wakeq_testbed::wait_while!(!adding.is_finished() && !waits_again().await, "one wait has an end");
    claim.rollback().await.unwrap();
    assert!(adding.await.unwrap().unwrap().new);
}

/// A claim that waits at the gate sees the rule that was committed meanwhile: its snapshot is taken
/// after the gate, however often the statement was prepared and planned before.
#[tokio::test]
async fn a_claim_that_waited_at_the_gate_sees_the_rule() {
    let config =
        StoreConfig { max_connections: 1, lock_timeout: Duration::from_secs(20), ..StoreConfig::default() };
    let table = Table::with(config).await;
    for planned_before in [0, 20] {
        for _ in 0..planned_before {
            let ids = table.add(1).await;
            assert_eq!(table.claim(&ids).await.len(), 1);
        }
        let ids = table.add(3).await;
        let mut gate = table.pool.begin().await.unwrap();
        sqlx::query("lock table wakeq.claim_gate in share mode").execute(&mut *gate).await.unwrap();
        let (asked, limits) = (told(&ids), limits());
        let (claimed, ()) = tokio::join!(table.store.claim(&asked, &limits), async {
            table.until_waiting(1).await;
            let rule = "insert into wakeq.scheduling_rules (canvas_id, event_space, handler_name, rule_type)
                        values ('00000000-0000-0000-0000-000000000000', 'WORKER', 'known', 'pause')";
            table.run(rule).await;
            gate.rollback().await.unwrap();
        });
        assert!(claimed.unwrap().iter().all(Option::is_none), "the rule was not seen");
        table.run("delete from wakeq.scheduling_rules").await;
        assert_eq!(table.claim(&ids).await.len(), 3);
    }
}

/// A row lock held by another session costs a statement 200 ms.
#[tokio::test]
async fn a_wait_for_a_lock_ends() {
    let table = Table::with(StoreConfig::default()).await;
    let id = table.add(1).await[0];
    let mut stranger = table.pool.begin().await.unwrap();
    sqlx::query("select from wakeq.events_v2 for update").execute(&mut *stranger).await.unwrap();
    let error = table.store.cancel(CanvasId::DEFAULT, id, &tester()).await.unwrap_err();
    assert_eq!(error.code().as_deref(), Some("55P03"));
    assert!(error.is_contention());
    stranger.rollback().await.unwrap();
    let cancelled = table.store.cancel(CanvasId::DEFAULT, id, &tester()).await.unwrap();
    assert_eq!(cancelled, (CommandOutcome::Done, LeftPlaces::default()));
}

/// The server cancels what takes too long; the connection stays usable.
#[tokio::test]
async fn a_statement_that_takes_too_long_ends() {
    let table = Table::with(StoreConfig {
        max_connections: 1,
        statement_timeout: Duration::from_millis(300),
        lock_timeout: Duration::from_secs(30),
        ..StoreConfig::default()
    })
    .await;
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

/// A statement that its caller gives up leaves the server busy with it: that connection must not be
/// used for the next one.
#[tokio::test]
async fn the_connection_of_a_statement_given_up_is_closed() {
    let config =
        StoreConfig { max_connections: 1, lock_timeout: Duration::from_secs(30), ..StoreConfig::default() };
    let table = Table::with(config).await;
    let id = table.add(1).await[0];
    let mut stranger = table.pool.begin().await.unwrap();
    sqlx::query("select from wakeq.events_v2 for update").execute(&mut *stranger).await.unwrap();
    let store = table.store.clone();
    let given_up = tokio::spawn(async move { store.cancel(CanvasId::DEFAULT, id, &tester()).await });
    table.until_waiting(1).await;
    given_up.abort();
    assert!(given_up.await.unwrap_err().is_cancelled());
    table.store.clock().await.unwrap();
    assert_eq!(table.waiting().await, 1, "the server still tries, and the pool's only place is free");
}

/// A schema that lacks what this program needs is an error that says what to do.
#[tokio::test]
async fn an_outdated_schema_is_distinguished_from_a_wrong_statement() {
    let table = Table::new().await;
    let ids = table.add(1).await;
    table.run("alter table wakeq.events_v2 drop column last_error").await;
    let error = table.store.load(&ids).await.unwrap_err();
    assert!(matches!(error, StoreError::NotMigrated(_)), "{error}");
    table.run("drop schema wakeq cascade").await;
    let error = table.store.load(&ids).await.unwrap_err();
    assert!(error.to_string().contains("run `wakeq migrate`"), "{error}");
}

/// Everything works on a pool of one connection, however contended it is.
// Shows: DEV-03
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
            assert_eq!(store.renew(&claims).await.unwrap(), [Renewal::Renewed; 20]);
            assert_eq!(store.complete(&claims).await.unwrap(), [true; 20]);
        });
        let store = table.store.clone();
        workers.spawn(async move {
            let other = super::HandlerScope { name: "other".parse().unwrap(), ..scope() };
            store.add_rule(RuleKind::Pause, &other, None, None, &tester()).await.unwrap();
            store.lift_rule(RuleKind::Pause, &other, &tester()).await.unwrap();
            store.minute(false, None).await.unwrap();
        });
    }
    workers.join_all().await;
    assert_eq!(table.number("select count(*) from wakeq.events_v2").await, 0);
}
