//! The cost of a statement, from its plan.

use sqlx::AssertSqlSafe;

use crate::store::Store;

/// Runs a statement that the store has prepared, found by a part of its text, and returns its plan.
pub(super) async fn plan(store: &Store, part: &str, arguments: &str) -> String {
    let mut session = store.session().await.unwrap();
    let name = sqlx::query_scalar(
        "select name from pg_prepared_statements where statement like '%' || $1 || '%' and statement not like '%pg_prepared%'",
    );
    let name: String =
        session.limit(|connection| name.bind(part).fetch_one(connection)).await.unwrap().unwrap();
    let explain =
        AssertSqlSafe(format!("explain (analyze, buffers, timing off) execute \"{name}\" ({arguments})"));
    let lines = session
        .limit(|connection| sqlx::query_scalar::<_, String>(explain).persistent(false).fetch_all(connection))
        .await;
    session.answered("explain", lines).await.unwrap().join("\n")
}

/// Shared buffer pages that the node whose line contains `part` read, including all below it.
pub(super) fn buffers(plan: &str, part: &str) -> i64 {
    let from = plan.lines().skip_while(|line| !line.contains(part));
    let line =
        from.into_iter().find(|line| line.contains("Buffers: shared")).unwrap_or("Buffers: shared hit=0");
    let counted =
        line.split_whitespace().filter_map(|word| word.strip_prefix("hit=").or(word.strip_prefix("read=")));
    counted.map(|count| count.parse::<i64>().unwrap()).sum()
}
