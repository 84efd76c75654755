//! The settings of Postgres that statements rely on, made in each session.

use std::time::Duration;

use sqlx::postgres::PgConnection;

use super::config::{StoreConfig, answer_limit};

/// The settings that do not depend on the configuration.
///
/// Sequential and bitmap scans are off because batches over `id = any (..)` deadlock when two of
/// them visit the rows in different orders; index scans visit them in the order of the ids. Hash
/// and merge joins are off because a plan made while the table was small would keep reading all of
/// it after it has grown.
const FIXED: [(&str, &str); 8] = [
    ("enable_seqscan", "off"),
    ("enable_bitmapscan", "off"),
    ("enable_hashjoin", "off"),
    ("enable_mergejoin", "off"),
    ("jit", "off"),
    ("TimeZone", "UTC"),
    ("default_transaction_isolation", "read committed"),
    ("default_transaction_read_only", "off"),
];

/// Its value is 0 in each session over a Unix socket, whatever was set.
const OF_SOCKETS: &str = "tcp_user_timeout";
/// The name by which the sessions of processes are found.
pub(super) const APPLICATION: &str = "wakeq";

/// Names and values, as the view `pg_settings` shows them.
#[derive(Clone)]
pub(super) struct SessionSettings {
    pub(super) names: Vec<&'static str>,
    pub(super) values: Vec<String>,
}

impl SessionSettings {
    /// A process that is stopped or cut off in the middle of a transaction keeps its locks for at
    /// most a second longer than a statement may take.
    pub(super) fn of(config: &StoreConfig) -> Self {
        let ms = |limit: Duration| limit.as_millis().to_string();
        let silence = ms(answer_limit(config.statement_timeout));
        let mut settings = Self { names: Vec::new(), values: Vec::new() };
        settings.add("statement_timeout", ms(config.statement_timeout));
        settings.add("lock_timeout", ms(config.lock_timeout));
        settings.add("idle_in_transaction_session_timeout", silence.clone());
        if !config.transaction_pooler {
            // Behind a pooler, the other end is the pooler.
            settings.add(OF_SOCKETS, silence);
        }
        for (name, value) in FIXED {
            settings.add(name, value.to_owned());
        }
        settings
    }

    /// Those of them that a session shows as they were made, whatever way it was opened.
    pub(super) fn shown(config: &StoreConfig) -> Self {
        let Self { names, values } = Self::of(config);
        let shown = names.into_iter().zip(values).filter(|(name, _)| *name != OF_SOCKETS);
        let (names, values) = shown.unzip();
        Self { names, values }
    }

    fn add(&mut self, name: &'static str, value: String) {
        self.names.push(name);
        self.values.push(value);
    }

    /// Makes them in this session, and names it if it has no name.
    pub(super) async fn make(&self, connection: &mut PgConnection) -> Result<(), sqlx::Error> {
        sqlx::query(
            "select set_config(name, value, false) from unnest($1::text[], $2::text[]) as s(name, value)
             union all
             select set_config('application_name', $3, false) where current_setting('application_name') = ''",
        )
        .bind(&self.names)
        .bind(&self.values)
        .bind(APPLICATION)
        .execute(connection)
        .await?;
        Ok(())
    }
}
