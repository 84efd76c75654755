//! Facts about the server, its settings, and what keeps vacuum from its work.

use std::time::Duration;

use crate::store::ServiceStore;
use wakeq::{StoreError, Timestamp};

/// The server's facts about itself and this connection.
#[derive(Clone, Debug)]
pub(crate) struct Server {
    /// As in `150018`.
    pub(crate) version: i32,
    /// As in `15.18`.
    pub(crate) version_name: String,
    pub(crate) database: String,
    pub(crate) role: String,
    /// Whether this is a standby.
    pub(crate) in_recovery: bool,
    pub(crate) clock: Timestamp,
    /// Connections that this role could still open, of those that the server allows.
    pub(crate) free_connections: i64,
    pub(crate) max_connections: i64,
    /// Whether the settings made when connecting are still in effect.
    pub(crate) settings_kept: bool,
    /// Whether this role sees what others do.
    pub(crate) sees_others: bool,
}

/// Settings of the server that decide whether events survive, and whether their table stays small.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Settings {
    pub(crate) fsync: bool,
    pub(crate) synchronous_commit: String,
    pub(crate) full_page_writes: bool,
    pub(crate) autovacuum: bool,
    pub(crate) track_counts: bool,
}

/// An old snapshot that keeps dead rows from being removed.
#[derive(Clone, Debug)]
pub(crate) struct HeldSnapshot {
    /// A process, a prepared transaction or a replication slot.
    pub(crate) holder: String,
    /// For how long, if that is known.
    pub(crate) held_for: Option<Duration>,
    /// How many transactions have begun since.
    pub(crate) transactions: i64,
    /// Whether no process is there that would release it: a replication slot that is not in use.
    pub(crate) abandoned: bool,
}

impl ServiceStore {
    /// Errors say why the server can't be reached, as those of the doctor's first question do.
    pub(crate) async fn server(&self) -> Result<Server, StoreError> {
        let query = sqlx::query_as!(
            Server,
            r#"select current_setting('server_version_num')::integer as "version!",
                      current_setting('server_version') as "version_name!", current_database()::text as "database!",
                      current_user::text as "role!", pg_is_in_recovery() as "in_recovery!",
                      clock_timestamp() as "clock!",
                      least(current_setting('max_connections')::bigint
                                - current_setting('superuser_reserved_connections')::bigint
                                - (select count(*) from pg_catalog.pg_stat_activity
                                    where backend_type = 'client backend'),
                            (select case when rolconnlimit < 0 then null else rolconnlimit end
                               from pg_catalog.pg_roles where rolname = current_user)
                                - (select count(*) from pg_catalog.pg_stat_activity where usename = current_user),
                            (select case when datconnlimit < 0 then null else datconnlimit end
                               from pg_catalog.pg_database where datname = current_database())
                                - (select count(*) from pg_catalog.pg_stat_activity where datname = current_database())
                      ) as "free_connections!",
                      current_setting('max_connections')::bigint as "max_connections!",
                      current_setting('enable_seqscan') = 'off' and current_setting('enable_hashjoin') = 'off'
                          and current_setting('default_transaction_isolation') = 'read committed'
                          and current_setting('lock_timeout') <> '0' as "settings_kept!",
                      pg_has_role('pg_read_all_stats', 'usage') as "sees_others!""#
        );
        self.reach().await?.one("look at the server", query).await
    }

    /// The server processes of two connections of this process: a pooler that lends its connections
    /// per transaction gives both the same.
    pub(crate) async fn backends(&self) -> Result<(i32, i32), StoreError> {
        let ask = || sqlx::query_scalar!(r#"select pg_backend_pid() as "pid!""#);
        let mut one = self.session().await?;
        let first = one.limit(|connection| ask().fetch_one(connection)).await;
        let mut other = self.session().await?;
        let second = other.limit(|connection| ask().fetch_one(connection)).await;
        Ok((
            one.answered("look at the pooler", first).await?,
            other.answered("look at the pooler", second).await?,
        ))
    }

    pub(crate) async fn settings(&self) -> Result<Settings, StoreError> {
        let query = sqlx::query_as!(
            Settings,
            r#"select current_setting('fsync')::boolean as "fsync!",
                      current_setting('synchronous_commit') as "synchronous_commit!",
                      current_setting('full_page_writes')::boolean as "full_page_writes!",
                      current_setting('autovacuum')::boolean as "autovacuum!",
                      current_setting('track_counts')::boolean as "track_counts!""#
        );
        self.session().await?.one("read the settings", query).await
    }

    /// The holders of old snapshots: transactions, prepared transactions, standbys that report
    /// theirs, and replication slots; abandoned ones first, then the oldest; at most 20.
    /// Transactions of other databases hold nothing back here. Those of standbys do; they have no
    /// start time here, only the oldest transaction that they could still see.
    pub(crate) async fn held_snapshots(&self) -> Result<Vec<HeldSnapshot>, StoreError> {
        let query = sqlx::query!(
            r#"with held (who, seconds, transactions, abandoned) as (
                   select format('process %s of %s (%s, %s)', pid, coalesce(usename, 'nobody'),
                                 coalesce(nullif(application_name, ''), 'unnamed'), coalesce(state, 'unknown')),
                          extract(epoch from clock_timestamp() - xact_start),
                          greatest(age(backend_xmin), age(backend_xid)), false
                     from pg_catalog.pg_stat_activity
                    where (backend_xmin is not null or backend_xid is not null)
                      and pid <> pg_backend_pid() and (datname = current_database() or datname is null) and backend_type <> 'autovacuum worker'
                   union all
                   select format('prepared transaction %s of %s', gid, owner),
                          extract(epoch from clock_timestamp() - prepared), age(transaction), false
                     from pg_catalog.pg_prepared_xacts where database = current_database()
                   union all
                   select format('replication slot %s%s', slot_name, case when not active then ', which nobody reads' end),
                          null, greatest(age(xmin), case when not active then age(catalog_xmin) end), not active
                     from pg_catalog.pg_replication_slots
                    where xmin is not null or (not active and catalog_xmin is not null)
               )
               select who as "who!", seconds::float8 as seconds, transactions::bigint as "transactions!",
                      abandoned as "abandoned!"
                 from held order by abandoned desc, transactions desc, seconds desc limit 20"#
        );
        let rows = self.session().await?.all("look for old transactions", query).await?;
        let held_for = |seconds: Option<f64>| Duration::try_from_secs_f64(seconds?.max(0.0)).ok();
        Ok(rows
            .into_iter()
            .map(|row| HeldSnapshot {
                holder: row.who,
                held_for: held_for(row.seconds),
                transactions: row.transactions,
                abandoned: row.abandoned,
            })
            .collect())
    }
}
