//! Servers that speak Postgres's protocol and are not one Postgres: which one it is, and why wakeq
//! does not run on it.
//!
//! It asks and judges; its callers refuse.

use std::sync::Arc;
use std::{fmt, io};

use sqlx::{ConnectOptions, Connection};
use tokio::time::timeout;

use super::config::answer_limit;
use super::{Store, StoreError};

/// A database on which wakeq's promises do not hold, although it accepts Postgres's clients.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum ForeignEngine {
    /// CockroachDB.
    Cockroach,
    /// YugabyteDB.
    Yugabyte,
    /// Postgres with Citus, and wakeq's tables distributed or replicated by it.
    Citus {
        /// How many of them.
        tables: i64,
    },
}

impl fmt::Display for ForeignEngine {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Cockroach => formatter.write_str(
                "the server is CockroachDB, which lacks locks of tables and statements with several writes",
            ),
            Self::Yugabyte => formatter
                .write_str("the server is YugabyteDB, which lacks the locks of tables that wakeq takes"),
            Self::Citus { tables } => write!(
                formatter,
                "Citus distributes {tables} tables of wakeq: its commits are not atomic across nodes, so a pause \
                 would not be exact and readers of the log would miss events"
            ),
        }
    }
}

impl ForeignEngine {
    /// Advice on what to do about it.
    pub const ADVICE: &str = "use one Postgres for a wakeq database, and several databases to grow (docs/scaling.md); \
                              with Citus, undistribute the tables of the schema `wakeq`";

    /// Judges a server by its own description and by how many of wakeq's tables Citus distributes.
    fn of(version: &str, distributed: i64) -> Option<Self> {
        if version.starts_with("CockroachDB") {
            Some(Self::Cockroach)
        } else if version.contains("-YB-") {
            Some(Self::Yugabyte)
        } else if distributed > 0 {
            Some(Self::Citus { tables: distributed })
        } else {
            None
        }
    }

    /// Asks a server.
    pub(super) async fn ask(connection: &mut sqlx::PgConnection) -> Result<Option<Self>, sqlx::Error> {
        // Each question by itself: a server that is not Postgres may refuse the second.
        let version: String = sqlx::query_scalar("select version()").fetch_one(&mut *connection).await?;
        if let Some(engine) = Self::of(&version, 0) {
            return Ok(Some(engine));
        }
        let has_citus: bool =
            sqlx::query_scalar("select to_regclass('pg_catalog.pg_dist_partition') is not null")
                .fetch_one(&mut *connection)
                .await?;
        if !has_citus {
            return Ok(None);
        }
        // A table of one node only is listed with the method `n` and without a group of tables.
        let distributed: i64 = sqlx::query_scalar(
            "select count(*) from pg_catalog.pg_dist_partition p join pg_catalog.pg_class c on c.oid = p.logicalrel
              where c.relnamespace = to_regnamespace('wakeq') and (p.partmethod <> 'n' or p.colocationid <> 0)",
        )
        .fetch_one(&mut *connection)
        .await?;
        Ok(Self::of(&version, distributed))
    }
}

impl Store {
    /// Whether the server is one on which wakeq must not run. Asks on a connection without the
    /// settings of a session: a server that is not Postgres refuses some of them.
    ///
    /// Errors say why the server can't be reached.
    #[doc(hidden)]
    pub async fn foreign_engine(&self) -> Result<Option<ForeignEngine>, StoreError> {
        let statement = "look at the engine";
        let after = answer_limit(self.config.statement_timeout);
        let options = self.pool_of_statements().connect_options();
        let connected = timeout(after, options.connect()).await;
        let connected = connected.unwrap_or_else(|_| Err(io::Error::from(io::ErrorKind::TimedOut).into()));
        let mut connection = connected.map_err(|error| StoreError::Unavailable(Arc::new(error)))?;
        let engine = timeout(after, ForeignEngine::ask(&mut connection)).await;
        let engine = engine.map_err(|_| StoreError::TimedOut { statement, after, ended: false })?;
        let engine = engine.map_err(|error| StoreError::from_sqlx(statement, error))?;
        // A connection that can't be closed in order is closed by dropping it.
        let _ = timeout(after, connection.close()).await;
        Ok(engine)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn other_engines_are_known_by_their_version_and_citus_by_its_tables() {
        let postgres =
            "PostgreSQL 15.18 (Debian 15.18-1.pgdg120+1) on x86_64-pc-linux-gnu, compiled by gcc, 64-bit";
        let yugabyte =
            "PostgreSQL 15.12-YB-2025.1.0.0-b168 on x86_64-pc-linux-gnu, compiled by clang, 64-bit";
        let cockroach = "CockroachDB CCL v25.1.2 (x86_64-pc-linux-gnu, built 2025/03/12 15:44:22, go1.22.8)";
        let table = [
            (postgres, 0, None),
            (postgres, 21, Some(ForeignEngine::Citus { tables: 21 })),
            (yugabyte, 0, Some(ForeignEngine::Yugabyte)),
            (cockroach, 0, Some(ForeignEngine::Cockroach)),
            ("PostgreSQL 16.4 (AlloyDB)", 0, None),
        ];
        for (version, distributed, expected) in table {
            assert_eq!(ForeignEngine::of(version, distributed), expected, "{version}");
        }
    }
}
