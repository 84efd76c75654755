//! What the tables hold, to see that a request has changed nothing.

use std::collections::BTreeMap;

use sqlx::Row;

use crate::support::service::Service;

/// Every table of the queue, with a checksum of its contents. Records of requests are not a change:
/// the audit log, the last use of keys, and statistics are left out.
pub(super) async fn contents(service: &Service) -> BTreeMap<String, (i64, String)> {
    let pool = &service.stage.pool;
    let tables = "select table_name::text from information_schema.tables where table_schema = 'wakeq'
                  and table_type = 'BASE TABLE' and table_name not in ('audit_log', 'minute_statistics')";
    let tables: Vec<String> = sqlx::query_scalar(tables).fetch_all(pool).await.unwrap();
    let mut contents = BTreeMap::new();
    for table in tables {
        let sum = format!(
            "select count(*), coalesce(md5(string_agg(row, '' order by row)), '')
             from (select (to_jsonb(t) - 'last_used_at')::text as row from wakeq.\"{table}\" t) rows"
        );
        let row = sqlx::query(sqlx::AssertSqlSafe(sum)).fetch_one(pool).await.unwrap();
        contents.insert(table, (row.get(0), row.get(1)));
    }
    assert!(contents.len() >= 6, "{contents:?}");
    contents
}
