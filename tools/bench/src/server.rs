//! The private Postgres and the Pub/Sub emulator, and a database for each trial.
//!
//! It must never make a commit less durable than Postgres does by default.

use std::fmt;
use std::sync::atomic::{AtomicU32, Ordering};
use std::time::Duration;

use anyhow::{Context, Result, ensure};
use sqlx::postgres::PgPoolOptions;
use sqlx::{AssertSqlSafe, PgPool};
use wakeq_testbed::{Cluster, ClusterOptions, OwnEmulator};

/// What a server of this size would have, and no checkpoint in the middle of a trial. Planning is
/// measured as well.
const SETTINGS: [(&str, &str); 4] = [
    ("shared_buffers", "'1GB'"),
    ("max_wal_size", "'16GB'"),
    ("checkpoint_timeout", "'30min'"),
    ("pg_stat_statements.track_planning", "on"),
];
const DURABLE: &str = "select bool_and(setting = 'on') from pg_settings where name in ('fsync', 'synchronous_commit', 'full_page_writes')";

const ANY_WAIT: Duration = Duration::from_secs(600);

/// Everything that trials share.
pub(crate) struct Server {
    cluster: Cluster,
    /// To the database `postgres`, whose statements are not measured.
    admin: PgPool,
    emulator: OwnEmulator,
    version: String,
    databases: AtomicU32,
}

impl Server {
    pub(crate) async fn start() -> Result<Self> {
        let mut cluster = Cluster::start(ClusterOptions::default()).await?;
        let admin = connect(&cluster.url("postgres"), 1).await?;
        for (name, value) in SETTINGS {
            let set = format!("alter system set {name} = {value}");
            sqlx::raw_sql(AssertSqlSafe(set)).execute(&admin).await?;
        }
        admin.close().await;
        cluster.start_again().await?;
        let admin = connect(&cluster.url("postgres"), 1).await?;
        sqlx::raw_sql("create extension pg_stat_statements")
            .execute(&admin)
            .await
            .context("Postgres needs its module pg_stat_statements: install postgresql-contrib")?;
        let is_durable: bool = sqlx::query_scalar(DURABLE).fetch_one(&admin).await?;
        ensure!(is_durable, "the private Postgres is not durable");
        let version = sqlx::query_scalar("show server_version").fetch_one(&admin).await?;
        let emulator = OwnEmulator::start().await?;
        Ok(Self { cluster, admin, emulator, version, databases: AtomicU32::new(0) })
    }

    pub(crate) fn postmaster(&self) -> u32 {
        self.cluster.pid()
    }

    pub(crate) fn admin(&self) -> &PgPool {
        &self.admin
    }

    /// The emulator's `host:port`.
    pub(crate) fn emulator(&self) -> String {
        self.emulator.host()
    }

    pub(crate) fn version(&self) -> &str {
        &self.version
    }

    pub(crate) fn url(&self, database: &str) -> String {
        self.cluster.url(database)
    }

    /// A new database, after a checkpoint.
    pub(crate) async fn database(&self) -> Result<String> {
        let name = format!("trial_{}", self.databases.fetch_add(1, Ordering::Relaxed));
        sqlx::raw_sql(AssertSqlSafe(format!("create database {name}"))).execute(&self.admin).await?;
        sqlx::raw_sql("checkpoint").execute(&self.admin).await?;
        Ok(name)
    }

    pub(crate) async fn drop_database(&self, name: &str) -> Result<()> {
        let drop = format!("drop database {name} with (force)");
        sqlx::raw_sql(AssertSqlSafe(drop)).execute(&self.admin).await?;
        Ok(())
    }

    pub(crate) async fn stop(self) -> Result<()> {
        self.admin.close().await;
        Ok(self.cluster.stop().await?)
    }
}

impl fmt::Display for Server {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(formatter, "{}", self.cluster)
    }
}

/// A pool that opens its connections when they are first needed. Callers wait for one as long as it
/// takes: an overload shows in the latencies.
pub(crate) async fn connect(url: &str, connections: u32) -> Result<PgPool> {
    let options = PgPoolOptions::new().max_connections(connections).acquire_timeout(ANY_WAIT);
    Ok(options.connect(url).await?)
}
