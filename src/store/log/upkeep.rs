//! The partitions of the log's table, and what holds back its readers.

use std::time::Duration;

use crate::store::kernel::{Store, StoreError, interval};

/// For how many sequence numbers ahead partitions are created.
const AHEAD: i64 = 10_000_000;
/// Maximum number of appenders and holders that are listed.
const APPENDERS_MAX: i64 = 20;
const HOLDERS_MAX: i64 = 20;

/// An open transaction that has appended to the log: until it ends, the log can't be read further.
#[derive(Clone, Debug, PartialEq)]
pub struct LogAppender {
    /// The server's process; `None` for a prepared transaction.
    pub pid: Option<i32>,
    /// The application name, user and state of its session, as far as this role may see them.
    pub session: String,
    /// For how long its transaction has been open, if this role may see that.
    pub open_for: Option<Duration>,
    /// While it is open, the log can't be read beyond this sequence number.
    pub floor: i64,
}

/// A holder, which keeps the first partition of the log from being dropped when it is old enough.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct LogHolder {
    /// `group GROUP` or `pin PIN`.
    pub name: String,
    /// Its position: what comes after that is kept.
    pub position: i64,
    /// How many readable sequence numbers come after that.
    pub behind: u64,
    /// Whether any process is working on it.
    pub is_worked_on: bool,
}

impl LogHolder {
    /// The statement that removes a pin that does not belong to a type of entities: it was made by
    /// hand, and no group owns it.
    #[doc(hidden)]
    pub fn unpinning(&self) -> Option<String> {
        let pin = self.name.strip_prefix("pin ").filter(|pin| !pin.starts_with("entities/"))?;
        Some(format!("delete from wakeq.log_pins where name = '{}'", pin.replace('\'', "''")))
    }
}

impl Store {
    /// The holders of the first partition of the log, if that is full; the furthest behind first.
    #[doc(hidden)]
    pub async fn log_holders(&self) -> Result<Vec<LogHolder>, StoreError> {
        let query = sqlx::query!(
            r#"with horizon as (
                   select readable from wakeq.log_horizon()
               ), first as (
                   select (min(substr(relname, 5)::bigint) + 1) * 5000000 as beyond
                     from pg_catalog.pg_class join pg_catalog.pg_inherits on inhrelid = pg_class.oid
                    where inhparent = 'wakeq.log'::regclass and relname ~ '^log_[0-9]{1,12}$'
               ), holder as (
                   select 'group ' || consumer_group as name, consumer_group::text as of, min(position) as position
                     from wakeq.consumer_positions group by consumer_group
                    union all
                   select 'pin ' || name, replace(name, 'entities/', 'entities.'), seq from wakeq.log_pins
               )
               select name as "name!", position as "position!", readable - position as "behind!",
                      exists (select from wakeq.subscribers where subscriber_name = of and expires_at >= clock_timestamp())
                      or exists (select from wakeq.single_groups where consumer_group = of and expires_at >= clock_timestamp())
                      as "is_worked_on!"
                 from holder, first, horizon
                where position < beyond - 1 and beyond <= readable
                order by position, name limit $1"#,
            HOLDERS_MAX
        );
        let rows = self.session().await?.all("find what keeps the log", query).await?;
        let holder = |name, position, behind: i64, is_worked_on| LogHolder {
            name,
            position,
            behind: u64::try_from(behind).unwrap_or_default(),
            is_worked_on,
        };
        Ok(rows.into_iter().map(|row| holder(row.name, row.position, row.behind, row.is_worked_on)).collect())
    }

    /// Creates the partitions that will be needed next; returns how many.
    #[doc(hidden)]
    pub async fn add_log_partitions(&self) -> Result<i32, StoreError> {
        let query = sqlx::query_scalar!(r#"select wakeq.add_log_partitions($1) as "made!""#, AHEAD);
        self.session().await?.one("make partitions of the log", query).await
    }

    /// Drops the first partition, if all of it is older and it is no longer needed; returns its
    /// name.
    pub(crate) async fn drop_log_partition(&self, kept: Duration) -> Result<Option<String>, StoreError> {
        let query = sqlx::query_scalar!("select wakeq.drop_log_partition($1) as part", interval(kept));
        self.session().await?.one("drop a partition of the log", query).await
    }

    /// The open transactions that have appended, those that hold readers back furthest first.
    #[doc(hidden)]
    pub async fn log_appenders(&self) -> Result<Vec<LogAppender>, StoreError> {
        let query = sqlx::query!(
            r#"select a.pid,
                      case when a.pid is null then 'a prepared transaction'
                           else format('%s of %s (%s)', coalesce(nullif(s.application_name, ''), 'unnamed'),
                                       coalesce(s.usename, 'nobody'), coalesce(s.state, 'unknown')) end as "who!",
                      extract(epoch from clock_timestamp() - s.xact_start)::float8 as open_s, a.floor as "floor!"
                 from wakeq.log_appenders a left join pg_catalog.pg_stat_activity s on s.pid = a.pid
                order by a.floor, s.xact_start limit $1"#,
            APPENDERS_MAX
        );
        let rows = self.session().await?.all("find what appends to the log", query).await?;
        let appender = |pid, session, open_s: Option<f64>, floor| LogAppender {
            pid,
            session,
            open_for: open_s.and_then(|seconds| Duration::try_from_secs_f64(seconds.max(0.0)).ok()),
            floor,
        };
        Ok(rows.into_iter().map(|row| appender(row.pid, row.who, row.open_s, row.floor)).collect())
    }
}
