//! Database roles: what is granted to the roles of the API and of workers.

use sqlx::postgres::PgConnectOptions;
use sqlx::{ConnectOptions, Connection};

use super::route::DatabaseRoute;
use super::{Store, StoreConfig, StoreError};
use crate::event::displayed_as_text;

/// The kind of processes that log in as a role.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum RoleKind {
    /// `wakeq serve`, and operators' commands. It can't claim events for handlers. It can read the
    /// log and append to it, but change or remove nothing there.
    Api,
    /// `wakeq work`. It can't read keys, nor register targets, queues or crons, nor change events
    /// of the log; it can remove those that are too old or belong to an erased entity.
    Worker,
}

impl RoleKind {
    /// As `wakeq.grant_rights` takes it.
    #[doc(hidden)]
    pub fn as_str(self) -> &'static str {
        match self {
            Self::Api => "api",
            Self::Worker => "worker",
        }
    }
}

displayed_as_text!(RoleKind);

impl Store {
    /// Grants an existing database role the rights that processes of this kind need. A role may be
    /// granted both kinds. Call it as the schema's owner, and again after each migration, to grant
    /// rights on new objects.
    ///
    /// ```no_run
    /// use wakeq::database::RoleKind;
    /// use wakeq::{Store, StoreConfig};
    ///
    /// # async fn example() -> Result<(), wakeq::StoreError> {
    /// let (url, config) = ("postgres://owner@localhost/app", StoreConfig::default());
    /// Store::migrate_with(url, false, &config).await?;
    /// Store::grant_rights(url, &config, "app_api", RoleKind::Api).await?;
    /// Store::grant_rights(url, &config, "app_worker", RoleKind::Worker).await?;
    /// # Ok(())
    /// # }
    /// ```
    pub async fn grant_rights(
        url: &str,
        config: &StoreConfig,
        role: &str,
        kind: RoleKind,
    ) -> Result<(), StoreError> {
        let refused = |error| StoreError::from_sqlx("grant rights", error);
        let options: PgConnectOptions = url.parse().map_err(refused)?;
        DatabaseRoute::check(&options, config.allow_unverified_database)?;
        let mut connection = options.application_name("wakeq migrate").connect().await.map_err(refused)?;
        let query = sqlx::query!(
            "select wakeq.grant_rights($1::text::name, $2)::text as granted",
            role,
            kind.as_str()
        );
        query.fetch_one(&mut connection).await.map_err(refused)?;
        connection.close().await.map_err(refused)
    }
}
