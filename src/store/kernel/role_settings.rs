//! Behind a pooler in transaction mode no session makes the settings that statements rely on: the
//! role has to have them.

use std::path::PathBuf;

use sqlx::postgres::PgConnectOptions;

use super::session::cause;
use super::session_settings::SessionSettings;
use super::{Store, StoreConfig, StoreError};

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
