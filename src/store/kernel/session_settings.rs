//! The settings of Postgres that statements rely on: made in each session or, behind a pooler in
//! transaction mode, by the role.

use std::path::PathBuf;
use std::time::Duration;

use sqlx::postgres::{PgConnectOptions, PgConnection};

use super::config::answer_limit;
use super::session::cause;
use super::{Store, StoreConfig, StoreError};

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

/// Names and values, as the view `pg_settings` shows them.
#[derive(Clone)]
pub(super) struct SessionSettings {
    names: Vec<&'static str>,
    values: Vec<String>,
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
            settings.add("tcp_user_timeout", silence);
        }
        for (name, value) in FIXED {
            settings.add(name, value.to_owned());
        }
        settings
    }

    fn add(&mut self, name: &'static str, value: String) {
        self.names.push(name);
        self.values.push(value);
    }

    /// Makes them in this session.
    pub(super) async fn make(&self, connection: &mut PgConnection) -> Result<(), sqlx::Error> {
        sqlx::query(
            "select set_config(name, value, false) from unnest($1::text[], $2::text[]) as s(name, value)",
        )
        .bind(&self.names)
        .bind(&self.values)
        .execute(connection)
        .await?;
        Ok(())
    }
}

impl Store {
    /// The statements that give the role those of the settings that are not in force.
    #[doc(hidden)]
    pub async fn settings_lacking(&self) -> Result<Vec<String>, StoreError> {
        let settings = SessionSettings::of(&self.config);
        let query = sqlx::query_scalar!(
            r#"select format('alter role %I in database %I set %I = %L;',
                             session_user, current_database(), wanted.name, wanted.value) as "statement!"
                 from unnest($1::text[], $2::text[]) with ordinality as wanted(name, value, place)
                 join pg_catalog.pg_settings s on s.name = wanted.name
                where s.setting <> wanted.value order by place"#,
            settings.names.as_slice() as _,
            &settings.values
        );
        self.session().await?.all("look at the settings", query).await
    }

    /// Fails if the role lacks a setting that no session makes.
    pub(super) async fn check_settings(&self) -> Result<(), StoreError> {
        if !self.config.transaction_pooler {
            return Ok(());
        }
        match self.settings_lacking().await?.join(" ") {
            lacking if lacking.is_empty() => Ok(()),
            statements => Err(StoreError::RoleSettings { statements }),
        }
    }

    /// The same for options that are to replace those in use. A new password changes no setting,
    /// and must be taken even while the server can't be reached.
    pub(super) async fn check_settings_of(&self, options: &PgConnectOptions) -> Result<(), StoreError> {
        let used = self.pool_of_statements().connect_options();
        if !self.config.transaction_pooler || role_and_server(options) == role_and_server(&used) {
            return Ok(());
        }
        let other = Self::over(options.clone(), StoreConfig::clone(&self.config));
        let checked = other.check_settings().await;
        other.close().await;
        match checked {
            Ok(()) => Ok(()),
            Err(error) => Err(cause(error, options).await),
        }
    }
}

/// The role and the server, on which settings depend.
fn role_and_server(options: &PgConnectOptions) -> (&str, &str, u16, Option<&PathBuf>) {
    (options.get_username(), options.get_host(), options.get_port(), options.get_socket())
}
