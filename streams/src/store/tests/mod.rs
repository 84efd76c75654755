//! Tests of the statements on a real Postgres, each with a database of its own.

mod cost;
mod entities;
mod groups;
mod isolated;

use std::time::Duration;

use sqlx::PgPool;
use sqlx::postgres::PgPoolOptions;
use wakeq::database::TimingMode;
use wakeq::{Actor, StoreConfig};
use wakeq_testbed::TestDatabase;

use super::Store;

/// A migrated database, the store on it, and connections for the test's own queries.
pub(crate) struct Table {
    pub(crate) store: Store,
    pub(crate) pool: PgPool,
    database: TestDatabase,
}

impl Table {
    /// With a longer lock timeout than the default, since a busy machine is not a defect.
    pub(crate) async fn new() -> Self {
        Self::with(StoreConfig { lock_timeout: Duration::from_secs(4), ..StoreConfig::default() }).await
    }

    /// With one connection, so that the statements it has prepared can be examined.
    async fn of_one_connection() -> Self {
        Self::with(StoreConfig { max_connections: 1, ..StoreConfig::default() }).await
    }

    async fn with(config: StoreConfig) -> Self {
        let state = wakeq::Store::migrations_hash().to_le_bytes();
        let migrate = async |url: String| wakeq::Store::migrate(&url, false).await.map(drop);
        let database = TestDatabase::create(&state, migrate).await.unwrap();
        let pool = PgPoolOptions::new().max_connections(4).connect(database.url()).await.unwrap();
        let store = wakeq::Store::connect(database.url(), fit(config)).await.unwrap().into();
        Self { store, pool, database }
    }

    /// A store whose sessions may only read these tables.
    pub(crate) async fn reader(&self, tables: &[&str]) -> wakeq::Store {
        let role = format!("{}_reader", self.database.name());
        let mut grants =
            vec![format!("create role {role}"), format!("grant usage on schema wakeq to {role}")];
        grants.extend(tables.iter().map(|table| format!("grant select on {table} to {role}")));
        for grant in grants {
            sqlx::raw_sql(sqlx::AssertSqlSafe(grant)).execute(&self.pool).await.unwrap();
        }
        let separator = if self.database.url().contains('?') { '&' } else { '?' };
        let url = format!("{}{separator}options[role]={role}", self.database.url());
        let config = StoreConfig { timing_mode: TimingMode::Unchecked, ..StoreConfig::default() };
        wakeq::Store::connect(&url, fit(config)).await.unwrap()
    }

    /// Runs a statement; returns how many rows it changed.
    pub(crate) async fn run(&self, sql: &'static str) -> u64 {
        sqlx::query(sql).execute(&self.pool).await.unwrap().rows_affected()
    }

    /// The number that a query returns.
    async fn number(&self, sql: &'static str) -> i64 {
        sqlx::query_scalar(sql).fetch_one(&self.pool).await.unwrap()
    }

    /// How many statements are waiting for a lock.
    async fn waiting(&self) -> i64 {
        self.number(
            "select count(*) from pg_stat_activity
              where datname = current_database() and wait_event_type = 'Lock' and state = 'active'",
        )
        .await
    }

    /// Returns once this many statements wait for a lock.
    async fn until_waiting(&self, count: i64) {
        wakeq_testbed::wait_while!(self.waiting().await < count, "nothing waits for a lock");
    }
}

/// Adapts the configuration to this test run: the number of connections in `TEST_POOL`.
fn fit(config: StoreConfig) -> StoreConfig {
    let asked = std::env::var("TEST_POOL").ok().map(|count| count.parse().expect("TEST_POOL is a number"));
    StoreConfig { max_connections: asked.unwrap_or(config.max_connections), ..config }
}

fn tester() -> Actor {
    Actor::user("test")
}
