//! Questions to the database about both tenants.

use sqlx::{AssertSqlSafe, Connection, PgConnection};

use super::seed::{ATTACKER, VICTIM};

/// Setup, action, and the condition that must hold.
pub(super) type Question = (&'static [&'static str], &'static str, &'static str);

/// A rule of the attacker.
pub(super) const PAUSED: &str = "
    insert into wakeq.scheduling_rules (rule_type, canvas_id, handler_name, event_space)
    values ('pause', 'ATTACKER', 'note', 'audit');";

/// Fills the placeholders in: the tenants, the ids of events, and calls that are made repeatedly.
pub(super) fn of_both(text: &str) -> String {
    let text = text
        .replace("<turns>", "wakeq.take_turns('audit', '{}', 5, false, '1 minute', 5)")
        .replace("<due>", "wakeq.due_facets('audit', '1 minute', '00000000-0000-0000-0000-000000000000', 10)")
        .replace("ATTACKER", &ATTACKER.canvas.to_string())
        .replace("VICTIM", &VICTIM.canvas.to_string());
    let id = regex::Regex::new("<([ab][0-9])>").unwrap();
    id.replace_all(&text, "${1}000000-0000-4000-8000-000000000000").into_owned()
}

/// Asks a question; the error is why the answer is not yes. It leaves nothing behind: the
/// transaction is rolled back, or dropped on an error.
pub(super) async fn ask(
    connection: &mut PgConnection,
    before: &[&str],
    done: &str,
    question: &str,
) -> Result<(), String> {
    let mut transaction = connection.begin().await.unwrap();
    for text in before {
        let set_up = sqlx::raw_sql(AssertSqlSafe(of_both(text))).execute(&mut *transaction).await;
        set_up.map_err(|error| error.to_string())?;
    }
    if !done.is_empty() {
        let done = sqlx::query(AssertSqlSafe(of_both(done))).execute(&mut *transaction).await;
        done.map_err(|error| error.to_string())?;
    }
    let question = AssertSqlSafe(format!("select {}", of_both(question)));
    let is_so = sqlx::query_scalar::<_, Option<bool>>(question).fetch_one(&mut *transaction).await;
    let is_so = is_so.map_err(|error| error.to_string())?;
    transaction.rollback().await.unwrap();
    if is_so == Some(true) { Ok(()) } else { Err("it is not so".to_owned()) }
}
