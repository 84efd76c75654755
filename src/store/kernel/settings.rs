//! The durations that all processes of a deployment share: written once, compared by every process
//! when it starts and in its minute's passes.

use std::time::Duration;

use sqlx::{ConnectOptions, Connection};

use super::route::DatabaseRoute;
use super::{Sql, Store, StoreConfig, StoreError, TimingMode};
use crate::event::Timing;

/// The use of the database that a change of the durations would meet.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct DatabaseUse {
    /// Open sessions of wakeq's processes, each with where it comes from and its server process.
    pub sessions: Vec<String>,
    /// Whether an event is claimed under a lease that stands.
    pub is_claimed: bool,
}

impl Store {
    /// The current use of the database. The connection of this call does not count; that of a
    /// [`Store`] does.
    pub async fn database_use(url: &str, config: &StoreConfig) -> Result<DatabaseUse, StoreError> {
        let refused = |error| StoreError::from_sqlx("look for processes at work", error);
        let options: sqlx::postgres::PgConnectOptions = url.parse().map_err(refused)?;
        DatabaseRoute::check(&options, config.allow_unverified_database)?;
        let mut connection = options.application_name("wakeq settings").connect().await.map_err(refused)?;
        let query = sqlx::query!(
            r#"select array(
                   select coalesce(host(client_addr), 'this server') || ', process ' || pid
                     from pg_stat_activity where datname = current_database() and application_name = 'wakeq'
                    order by backend_start limit 20) as "sessions!",
                  exists (select from wakeq.events_v2 where locked_at > clock_timestamp() - (
                      select value_us * interval '1 microsecond' from wakeq.settings where name = 'lease'))
                  as "is_claimed!""#
        );
        let found = query.fetch_one(&mut connection).await.map_err(refused)?;
        connection.close().await.map_err(refused)?;
        Ok(DatabaseUse { sessions: found.sessions, is_claimed: found.is_claimed })
    }

    /// Compares the configured durations with the deployment's, and returns those to use.
    pub(super) async fn settle_timing(&self) -> Result<Timing, StoreError> {
        match self.config.timing_mode {
            TimingMode::Agree => {
                let standing = match self.standing_timing().await? {
                    Some(standing) => standing,
                    None => {
                        self.write_timing(false).await?;
                        self.standing_or_own().await?
                    }
                };
                let ours = self.config.timing.as_ref();
                match ours.and_then(|ours| ours.first_difference(&standing)) {
                    Some((name, ours, deployment)) => Err(StoreError::OtherTiming { name, ours, deployment }),
                    None => Ok(standing),
                }
            }
            TimingMode::Follow => self.standing_or_own().await,
            TimingMode::Unchecked => Ok(self.timing().clone()),
            TimingMode::Replace => {
                self.write_timing(true).await?;
                Ok(self.timing().clone())
            }
        }
    }

    /// The names and values that the minute's statement compares with the deployment's; none if
    /// nothing is to be compared.
    pub(in crate::store) fn compared_timing(&self) -> (Vec<String>, Vec<i64>) {
        match self.config.timing_mode {
            TimingMode::Unchecked => (Vec::new(), Vec::new()),
            TimingMode::Agree | TimingMode::Follow | TimingMode::Replace => {
                self.timing().named().into_iter().unzip()
            }
        }
    }

    /// Waits until it was noticed that the deployment's durations are no longer those of this
    /// process; returns the error that it has to end with.
    #[doc(hidden)]
    pub async fn other_timing(&self) -> StoreError {
        let mut retimed = self.retimed.subscribe();
        let noticed = retimed.wait_for(Option::is_some).await.ok().and_then(|error| (*error).clone());
        match noticed {
            Some(error) => error,
            // This store keeps the sender.
            None => std::future::pending().await,
        }
    }

    /// The error that [`Store::other_timing`] returns, if the change was noticed.
    pub(crate) fn noticed_timing(&self) -> Option<StoreError> {
        self.retimed.borrow().clone()
    }

    async fn standing_or_own(&self) -> Result<Timing, StoreError> {
        Ok(self.standing_timing().await?.unwrap_or_else(|| self.timing().clone()))
    }

    /// The deployment's durations, if they have been written.
    #[doc(hidden)]
    pub async fn standing_timing(&self) -> Result<Option<Timing>, StoreError> {
        let query = sqlx::query!("select name, value_us from wakeq.settings");
        let rows = self.session().await?.all("read the deployment's durations", query).await?;
        if rows.is_empty() {
            return Ok(None);
        }
        let mut timing = Timing::default();
        for row in rows {
            timing.set(&row.name, Duration::from_micros(row.value_us.unsigned_abs()));
        }
        Ok(Some(timing))
    }

    /// Writes all of them in one statement, and records a replacement in the audit log. The order
    /// is fixed, so that of two processes the second waits for the first.
    async fn write_timing(&self, replace: bool) -> Result<(), StoreError> {
        let (names, values): (Vec<String>, Vec<i64>) = self.timing().named().into_iter().unzip();
        let first = sqlx::query!(
            "insert into wakeq.settings (name, value_us)
             select name, value_us from unnest($1::text[], $2::bigint[]) as new (name, value_us)
                 on conflict (name) do nothing",
            &names,
            &values
        );
        // A separate statement: processes have no right to update existing rows.
        let instead = sqlx::query!(
            "with written as (
                 insert into wakeq.settings as s (name, value_us)
                 select name, value_us from unnest($1::text[], $2::bigint[]) as new (name, value_us)
                     on conflict (name) do update set value_us = excluded.value_us, set_at = now()
                             where s.value_us <> excluded.value_us
              returning name, value_us
             )
             insert into wakeq.audit_log (actor, action, outcome, detail)
             select left('database:' || session_user, 200), 'set-timing', 'done',
                    left(string_agg(name || ' ' || value_us || ' us', ', ' order by name), 1000)
               from written having count(*) > 0",
            &names,
            &values
        );
        let query = if replace { instead } else { first };
        self.session().await?.execute("write the deployment's durations", query).await.map(drop)
    }
}

impl Sql<'_> {
    pub(in crate::store) async fn compare_timing(&self) -> Result<(), StoreError> {
        if self.config.timing_mode == TimingMode::Unchecked {
            return Ok(());
        }
        let Some(standing) = self.standing_timing().await? else { return Ok(()) };
        let Some((name, ours, deployment)) = self.timing().first_difference(&standing) else { return Ok(()) };
        let error = StoreError::OtherTiming { name, ours, deployment };
        let is_new = self.retimed.send_replace(Some(error.clone())).is_none();
        if is_new {
            tracing::error!(
                duration = name,
                ?ours,
                ?deployment,
                "the deployment's durations were changed under this process: it has to end and start again with them"
            );
        }
        Err(error)
    }
}
