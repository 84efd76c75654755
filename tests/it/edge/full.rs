//! Canvases and deployments that have room for no more of something, and the operation that the
//! requests are about.

use sqlx::PgPool;
use uuid::Uuid;
use wakeq::CanvasId;

use crate::support::service::Service;

/// The operation on many events that has ended.
pub(super) const ENDED: Uuid = Uuid::from_u128(0x0000_a001_0000_7000_8000_0000_0000_0001);

const QUEUES: &str = "insert into wakeq.queues (name, created_by, updated_by)
                      select 'full-' || number, 'tests', 'tests' from generate_series(1, 100) as number";
const CRONS: &str = "
    insert into wakeq.cron_records (canvas_id, name, expression, zone, modifier, value, missed, created_by, created_at,
                                    changed_at)
    select '00000000-0000-0000-0000-000000000000', 'full-' || number, '0 0 1 1 *', 'UTC', '_', '1', 'skip', 'tests', now(), now()
      from generate_series(1, 1000) as number";
/// Nobody carries them on.
const OPERATIONS: &str = "
    insert into wakeq.operations (canvas_id, kind, filter, cut_off, author, job)
    select '00000000-0000-0000-0000-000000000000', 'delete', '{\"name\": \"greet\"}', now(), 'tests', -number
      from generate_series(1, 10) as number on conflict do nothing";

/// Adds the operation that has ended, unless it is there.
pub(super) async fn add_ended(pool: &PgPool) {
    let add = "insert into wakeq.operations (canvas_id, id, kind, filter, cut_off, state, author, job, ended_at)
               values ($1, $2, 'delete', '{\"name\": \"greet\"}', now(), 'done', 'tests', 1, now()) on conflict do nothing";
    sqlx::query(add).bind(CanvasId::DEFAULT.0).bind(ENDED).execute(pool).await.unwrap();
}

/// Leaves no room for what this operation of the API adds.
pub(super) async fn fill(service: &Service, operation: &str) {
    let fill = match operation {
        "begin_operation" => OPERATIONS,
        "put_cron" => CRONS,
        "put_queue" => QUEUES,
        other => panic!("say in this file how `{other}` finds no room"),
    };
    service.stage.execute(fill).await;
}
