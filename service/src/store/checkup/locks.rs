//! Facts about sessions that hold the locks that claims, turns and appends need.

use std::time::Duration;

use crate::store::ServiceStore;
use wakeq::StoreError;

/// Maximum number of holders that are listed.
const HOLDERS_MAX: i64 = 20;

/// A lock that other sessions may have to wait for.
#[derive(Clone, Debug, PartialEq)]
pub(crate) struct HeldLock {
    /// The server's process; `None` for a prepared transaction.
    pub(crate) pid: Option<i32>,
    /// The application name, role and state of its session, as far as this role may see them.
    pub(crate) session: String,
    /// The lock.
    pub(crate) what: String,
    /// How long ago its transaction began, or its session last changed state, if this role may see
    /// that.
    pub(crate) open_for: Option<Duration>,
}

impl ServiceStore {
    /// The locks on the schema's tables that claims and appends wait for, the gate of claims
    /// whatever holds it, and advisory locks with keys of the log's floors but without the gate of
    /// the log. The longest open first.
    pub(crate) async fn held_locks(&self) -> Result<Vec<HeldLock>, StoreError> {
        let query = sqlx::query!(
            r#"with held as materialized (
                   select l.pid, l.mode, l.relation, l.locktype, l.virtualtransaction
                     from pg_catalog.pg_locks l
                    where l.granted and l.pid is distinct from pg_backend_pid()
                      and l.database = (select oid from pg_catalog.pg_database where datname = current_database())
                      and (l.locktype = 'relation'
                           or l.locktype = 'advisory' and l.objsubid = 1 and l.classid::bigint >> 16 = 30577)
               ), told (pid, what, always) as (
                   select h.pid, h.mode || ' on wakeq.' || c.relname, h.mode <> 'RowExclusiveLock'
                     from held h join pg_catalog.pg_class c on c.oid = h.relation
                    where c.relnamespace = 'wakeq'::regnamespace and c.relkind in ('r', 'p')
                      and (h.mode in ('ShareLock', 'ShareRowExclusiveLock', 'ExclusiveLock', 'AccessExclusiveLock')
                           or c.oid = 'wakeq.claim_gate'::regclass and h.mode = 'RowExclusiveLock')
                   union
                   select h.pid, 'advisory locks with keys of the log''s floors', true
                     from held h
                    where h.locktype = 'advisory'
                      and not exists (select from held gate
                                       where gate.virtualtransaction = h.virtualtransaction
                                         and gate.relation = 'wakeq.log_gate'::regclass)
               )
               select t.pid,
                      case when t.pid is null then 'a prepared transaction'
                           else format('%s of %s (%s)', coalesce(nullif(s.application_name, ''), 'unnamed'),
                                       coalesce(s.usename, 'nobody'), coalesce(s.state, 'unknown')) end as "who!",
                      t.what as "what!",
                      extract(epoch from clock_timestamp() - coalesce(s.xact_start, s.state_change))::float8 as open_s
                 from told t left join pg_catalog.pg_stat_activity s on s.pid = t.pid
                where t.always or s.xact_start is not null
                order by coalesce(s.xact_start, s.state_change), t.what limit $1"#,
            HOLDERS_MAX
        );
        let rows = self.session().await?.all("look for held locks", query).await?;
        let open_for = |seconds: Option<f64>| {
            seconds.and_then(|seconds| Duration::try_from_secs_f64(seconds.max(0.0)).ok())
        };
        Ok(rows
            .into_iter()
            .map(|row| HeldLock {
                pid: row.pid,
                session: row.who,
                what: row.what,
                open_for: open_for(row.open_s),
            })
            .collect())
    }
}
