//! Facts about the roles that may connect and are neither the deployment's nor an administrator's.

use crate::store::ServiceStore;
use wakeq::StoreError;

/// The rights of roles that have no work on the schema's tables.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(crate) struct Strangers {
    /// Every role of the server may connect.
    pub(crate) all_connect: bool,
    /// Every role may take advisory locks, whose memory all share.
    pub(crate) all_lock: bool,
    /// Every role may make temporary tables.
    pub(crate) all_make_tables: bool,
    /// How many roles may connect by a right of their own.
    pub(crate) connecting: i64,
    /// Those of them without a limit of connections, a limit for statements, or one for open
    /// transactions; 100 at most.
    pub(crate) unlimited: Vec<String>,
}

impl ServiceStore {
    /// The rights of roles that are not for wakeq's processes.
    pub(crate) async fn strangers(&self) -> Result<Strangers, StoreError> {
        let query = sqlx::query_as!(
            Strangers,
            r#"with here as (
                   select oid, datdba from pg_catalog.pg_database where datname = current_database()
               ), stranger as (
                   select r.rolname,
                          r.rolconnlimit >= 0 and (
                              select count(distinct split_part(setting, '=', 1)) = 2
                                from pg_catalog.pg_db_role_setting s, unnest(s.setconfig) as setting
                               where s.setrole = r.oid and s.setdatabase in (0, here.oid)
                                 and setting ~ '^(statement_timeout|idle_in_transaction_session_timeout)=.*[1-9]') as is_limited
                     from pg_catalog.pg_roles r, here
                    where r.rolcanlogin and not r.rolsuper and has_database_privilege(r.oid, here.oid, 'connect')
                      and not pg_has_role(r.oid, here.datdba, 'member')
                      and not coalesce(has_table_privilege(r.oid, (
                              select c.oid from pg_catalog.pg_class c join pg_catalog.pg_namespace n on n.oid = c.relnamespace
                               where n.nspname = 'wakeq' and c.relname = 'events_v2'), 'select'), false)
               )
               select has_database_privilege('public', here.oid, 'connect') as "all_connect!",
                      has_database_privilege('public', here.oid, 'temporary') as "all_make_tables!",
                      exists (select from pg_catalog.pg_proc p
                               where p.pronamespace = 'pg_catalog'::regnamespace and p.proname ~ '^pg_(try_)?advisory_'
                                 and has_function_privilege('public', p.oid, 'execute')) as "all_lock!",
                      (select count(*) from stranger) as "connecting!",
                      array(select rolname::text from stranger where not is_limited order by 1 limit 100) as "unlimited!"
                 from here"#
        );
        self.session().await?.one("look at the other roles", query).await
    }
}
