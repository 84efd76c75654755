//! Whether the tables can be replicated logically.

use super::Table;

/// A publication of all tables, as change data capture and upgrades make, refuses no update and no
/// delete: Postgres has to know by what a row is named, in statements that touch none as well.
#[tokio::test]
async fn a_publication_of_all_tables_refuses_nothing() {
    let table = Table::new().await;
    table.run("create publication everything for all tables").await;
    let tables: Vec<String> = sqlx::query_scalar(
        "select c.relname::text from pg_class c join pg_namespace n on n.oid = c.relnamespace
          where n.nspname = 'wakeq' and c.relkind in ('r', 'p') order by 1",
    )
    .fetch_all(&table.pool)
    .await
    .unwrap();
    assert!(tables.len() > 40, "{tables:?}");
    let mut refused = Vec::new();
    for name in &tables {
        let delete = format!("delete from wakeq.{name} where false");
        let deleted = sqlx::query(sqlx::AssertSqlSafe(delete)).execute(&table.pool).await;
        // Nobody deletes from the log.
        if let Err(error) = deleted.map_err(|error| error.to_string())
            && !error.contains("the log is never changed")
        {
            refused.push(format!("{name}: {error}"));
        }
    }
    assert!(refused.is_empty(), "give each a primary key, or replica identity full: {refused:#?}");
}
