//! Batches of both tenants with the same name: each ends with its own members and counts.

use serde_json::Value;
use sqlx::AssertSqlSafe;
use wakeq::Event;

use super::Findings;
use super::questions::of_both;
use super::seed::{ATTACKER, VICTIM};
use super::world::World;

/// A closed batch of the attacker with a member that is left and five that are not.
const TWIN: &str = "
    insert into wakeq.batches (canvas_id, name, event_id, module, handler, modifier, value)
    values ('ATTACKER', 'twin', gen_random_uuid(), 'WORKER', 'told', '_', '\"attacker\"');
    insert into wakeq.events_v2 (id, canvas_id, module, name, modifier, value, delay_until, notify_at, options)
    values (gen_random_uuid(), 'ATTACKER', 'WORKER', 'member', '_', '1', now() + interval '1 day', now() + interval '1 day',
            '{\"batch\": \"twin\"}');
    insert into wakeq.batch_ends (canvas_id, batch, completed) values ('ATTACKER', 'twin', 5);
    update wakeq.batches set closed_at = now() where canvas_id = 'ATTACKER' and name = 'twin';";

pub(super) async fn goes_on(world: &World) -> Findings {
    let stage = &world.service.stage;
    sqlx::raw_sql(AssertSqlSafe(of_both(TWIN))).execute(&stage.pool).await.unwrap();
    let batch = stage.queue.batch("twin").unwrap().canvas(VICTIM.canvas);
    batch.open(Event::new("told", &"victim").unwrap()).await.unwrap();
    let ends = "insert into wakeq.batch_ends (canvas_id, batch, completed) values ($1, 'twin', 2)";
    sqlx::query(ends).bind(VICTIM.canvas.0).execute(&stage.pool).await.unwrap();

    let mut findings = Findings::new();
    if let Err(error) = batch.close().await {
        findings.push(format!("batches: the victim's is not closed: {error}"));
    }
    let told = "select value::text from wakeq.events_v2 where canvas_id = $1 and name = 'told'";
    let told = sqlx::query_scalar::<_, String>(told).bind(VICTIM.canvas.0);
    let told: Vec<Value> =
        told.fetch_all(&stage.pool).await.unwrap().iter().map(|value| value.parse().unwrap()).collect();
    let is_own = |value: &Value| value["value"] == "victim" && value["completed"] == 2 && value["total"] == 2;
    if told.len() != 1 || !told.iter().all(is_own) {
        findings.push(format!("batches: the end of the victim's is told as {told:?}"));
    }
    let kept = "select (select sum(completed) = 5 from wakeq.batch_ends where canvas_id = $1 and batch = 'twin')
                   and exists (select from wakeq.batches where canvas_id = $1 and name = 'twin' and over_at is null)";
    let kept = sqlx::query_scalar::<_, Option<bool>>(kept).bind(ATTACKER.canvas.0);
    if kept.fetch_one(&stage.pool).await.unwrap() != Some(true) {
        findings.push("batches: the attacker's ends with the victim's".to_owned());
    }
    findings
}
