//! Tests of the statements on a real Postgres, each with a database of its own.

use std::str::FromStr;
use std::time::Duration;

use sqlx::postgres::{PgConnectOptions, PgConnection};
use sqlx::{AssertSqlSafe, Connection, Executor, PgPool};
use wakeq::{Store, StoreConfig};
use wakeq_testbed::TestDatabase;

use super::ServiceStore;

/// A migrated database, the store on it, and connections for the test's own queries.
pub(crate) struct Table {
    pub(crate) store: Store,
    pool: PgPool,
    database: TestDatabase,
}

impl Table {
    pub(crate) async fn new() -> Self {
        let state = Store::migrations_hash().to_le_bytes();
        let migrate = async |url: String| Store::migrate(&url, false).await.map(drop);
        let database = TestDatabase::create(&state, migrate).await.unwrap();
        let connections = std::env::var("TEST_POOL").ok().map(|count| count.parse().unwrap());
        let config = StoreConfig {
            max_connections: connections.unwrap_or(StoreConfig::default().max_connections),
            lock_timeout: Duration::from_secs(4),
            ..StoreConfig::default()
        };
        let store = Store::connect(database.url(), config).await.unwrap();
        let pool = PgPool::connect(database.url()).await.unwrap();
        Self { store, pool, database }
    }

    /// As if all sequence numbers of the first partition of the log were taken.
    pub(crate) async fn fill_first_partition(&self) {
        sqlx::query("select setval('wakeq.log_seq', 5000001)").execute(&self.pool).await.unwrap();
    }

    /// Keeps what comes after this `seq` in the log.
    pub(crate) async fn pin(&self, name: &str, seq: i64) {
        let pin = sqlx::query("insert into wakeq.log_pins (name, seq) values ($1, $2)").bind(name).bind(seq);
        pin.execute(&self.pool).await.unwrap();
    }

    pub(crate) async fn unpin(&self) {
        sqlx::query("delete from wakeq.log_pins").execute(&self.pool).await.unwrap();
    }
}

/// The doctor can say which sessions hold what claims and appends need.
#[tokio::test]
async fn holders_of_locks_are_named() {
    let table = Table::new().await;
    let store = ServiceStore::from(table.store.clone());
    assert_eq!(store.held_locks().await.unwrap(), []);
    let role = format!("{}_stranger", table.database.name());
    let create = format!("create role {role} login password 'stranger'");
    sqlx::raw_sql(AssertSqlSafe(create)).execute(&table.pool).await.unwrap();
    let options = PgConnectOptions::from_str(table.database.url()).unwrap();
    let options = options.username(&role).password("stranger");
    let mut stranger = PgConnection::connect_with(&options).await.unwrap();
    let lock = "select pg_try_advisory_lock((30577::bigint << 48) | 7)";
    assert!(sqlx::query_scalar::<_, bool>(lock).fetch_one(&mut stranger).await.unwrap());
    let mut open = table.pool.begin().await.unwrap();
    (&mut *open).execute("lock table wakeq.claim_gate in access exclusive mode").await.unwrap();
    let held = store.held_locks().await.unwrap();
    let what: Vec<&str> = held.iter().map(|lock| lock.what.as_str()).collect();
    assert_eq!(
        what,
        ["advisory locks with keys of the log's floors", "AccessExclusiveLock on wakeq.claim_gate"]
    );
    assert!(held[0].session.contains("_stranger"), "{held:?}");
    assert!(held.iter().all(|lock| lock.pid.is_some() && lock.open_for.is_some()), "{held:?}");
    open.rollback().await.unwrap();
}
