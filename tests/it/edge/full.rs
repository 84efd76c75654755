//! What requests find in the database: as many things as there may be, others in use, or in an odd
//! state.

use reqwest::{Method, RequestBuilder};
use serde_json::json;
use sqlx::PgPool;
use uuid::Uuid;
use wakeq::control::ErrorGroupId;
use wakeq::{CanvasId, EventId};

use crate::support::scope;
use crate::support::service::{Answer, Service};

/// The type and id of the entity of requests.
pub(super) const ENTITY: [&str; 2] = ["account", "ada"];

/// As many targets and pulled handlers as a canvas may have.
const TARGETS: &str = "
    insert into wakeq.http_targets (canvas_id, module, name, modifier, url, retries, delay_ms, factor,
                                    delay_max_ms, timeout_ms, secret, created_by, updated_by)
    select '00000000-0000-0000-0000-000000000000', 'FULL', 'h' || number, '_', 'https://a.example/', 2, 0, 1, 0, 1000,
           decode(repeat('ab', 32), 'hex'), 'test', 'test' from generate_series(1, 1000) as number on conflict do nothing";
const PULLED: &str = "
    insert into wakeq.pulled_handlers (canvas_id, module, name, retries, delay_ms, factor, delay_max_ms, halts,
                                       created_by, updated_by)
    select '00000000-0000-0000-0000-000000000000', 'FULL', 'h' || number, 2, 0, 1, 0, false, 'test', 'test'
      from generate_series(1, 1000) as number on conflict do nothing";
/// As many queues and limits as there may be, as many crons as a canvas may have, and as many open
/// operations, which nobody carries on.
const QUEUES: &str = "insert into wakeq.queues (name, created_by, updated_by)
                      select 'full-' || number, 'tests', 'tests' from generate_series(1, 100) as number";
const CRONS: &str = "
    insert into wakeq.cron_records (canvas_id, name, expression, zone, modifier, value, missed, created_by, created_at,
                                    changed_at)
    select '00000000-0000-0000-0000-000000000000', 'full-' || number, '0 0 1 1 *', 'UTC', '_', '1', 'skip', 'tests', now(), now()
      from generate_series(1, 1000) as number";
const LIMITS: &str = "
    insert into wakeq.limits (canvas_id, name, concurrency, created_by, updated_by)
    select canvas::uuid, 'full-' || number, 5, 'tests', 'tests'
      from generate_series(1, 1000) as number,
           unnest(array['00000000-0000-0000-0000-000000000000', 'ffffffff-ffff-ffff-ffff-ffffffffffff']) as canvas
        on conflict do nothing";
const OPERATIONS: &str = "
    insert into wakeq.operations (canvas_id, kind, filter, cut_off, author, job)
    select '00000000-0000-0000-0000-000000000000', 'delete', '{\"name\": \"greet\"}', now(), 'tests', -number
      from generate_series(1, 10) as number on conflict do nothing";

/// As many known errors as a canvas may have, without that of the requests.
const KNOWN: &str = "
    delete from wakeq.known_errors;
    insert into wakeq.known_errors (canvas_id, error_group, known_by)
    select '00000000-0000-0000-0000-000000000000', gen_random_uuid(), 'tests' from generate_series(1, 1000)";

/// Operations that answer 409 when there is no room for what they add.
pub(super) const FILLED: [&str; 9] = [
    "begin_operation",
    "know_error",
    "put_cron",
    "put_limit",
    "put_operator_limit",
    "put_pull",
    "put_queue",
    "put_target",
    "put_target_of_modifier",
];

/// Leaves no room for what this operation of the API adds.
pub(super) async fn fill(service: &Service, operation: &str) {
    let fill = match operation {
        "begin_operation" => OPERATIONS,
        "know_error" => KNOWN,
        "put_cron" => CRONS,
        "put_limit" | "put_operator_limit" => LIMITS,
        "put_pull" => PULLED,
        "put_queue" => QUEUES,
        "put_target" | "put_target_of_modifier" => TARGETS,
        other => panic!("say in this file how `{other}` finds no room"),
    };
    service.stage.execute(fill).await;
}

/// The idempotency key of [`begin_another`].
pub(super) const USED_KEY: &str = "used";

/// Begins an operation by this request, in the place of those of [`fill`], which have to end first.
pub(super) async fn begin_another(service: &Service, request: RequestBuilder) {
    service.stage.execute("delete from wakeq.operations where job < 0").await;
    let another = json!({"kind": "cancel", "filter": {"name": "another"}});
    Answer::of(request.header("idempotency-key", USED_KEY).json(&another)).await.json();
}

/// The key of an emit, which is another request than any other operation's.
const KEY_OF_AN_EMIT: &str = "used-by-an-emit";

/// A request to run a cron whose key is in use, or was used for another request.
pub(super) async fn run_in_vain(service: &Service, request: RequestBuilder, status: u16) -> RequestBuilder {
    if status == 409 {
        service.stage.execute(HELD_KEY).await;
        return request.header("idempotency-key", "held");
    }
    let emit = service.on_canvas(Method::POST, "/events").header("idempotency-key", KEY_OF_AN_EMIT);
    Answer::of(emit.json(&json!({"name": "another"}))).await.json();
    request.header("idempotency-key", KEY_OF_AN_EMIT)
}

/// The operation on many events that has ended.
pub(super) const ENDED: Uuid = Uuid::from_u128(0x0000_a001_0000_7000_8000_0000_0000_0001);

/// Adds the operation that has ended, unless it is there.
pub(super) async fn add_ended(pool: &PgPool) {
    let add = "insert into wakeq.operations (canvas_id, id, kind, filter, cut_off, state, author, job, ended_at)
               values ($1, $2, 'delete', '{\"name\": \"greet\"}', now(), 'done', 'tests', 1, now()) on conflict do nothing";
    sqlx::query(add).bind(CanvasId::DEFAULT.0).bind(ENDED).execute(pool).await.unwrap();
}

/// The group of the dead events of requests.
pub(super) fn known_error() -> ErrorGroupId {
    ErrorGroupId::of(&scope("greet"), "retries", Some("no"))
}

/// Marks that group as known, unless it is.
pub(super) async fn add_known(pool: &PgPool) {
    let add = "insert into wakeq.known_errors (canvas_id, error_group, known_by) values ($1, $2, 'tests')
               on conflict do nothing";
    sqlx::query(add).bind(CanvasId::DEFAULT.0).bind(known_error().0).execute(pool).await.unwrap();
}

/// Adds a limit of this name to the canvas and to the operator's.
pub(super) async fn add_limits(pool: &PgPool, name: &str) {
    let add = "insert into wakeq.limits (canvas_id, name, concurrency, created_by, updated_by)
               select canvas, $1, 5, 'tests', 'tests' from unnest($2::uuid[]) as canvas";
    let canvases = vec![CanvasId::DEFAULT.0, CanvasId::OF_QUEUES.0];
    sqlx::query(add).bind(name).bind(canvases).execute(pool).await.unwrap();
}

/// Creates an entity, and the status of an event of it with this id.
pub(super) async fn entities(pool: &PgPool, event: EventId) {
    let stored = "insert into wakeq.entities (entity_type, canvas_id, id, version, last_link, state, state_version, state_seq)
                  values ($2, $1, $3, 1, 1, '{}', 1, 2) on conflict do nothing";
    let [entity_type, entity] = ENTITY;
    let stored = sqlx::query(stored).bind(CanvasId::DEFAULT.0).bind(entity_type).bind(entity);
    stored.execute(pool).await.unwrap();
    let sent = "insert into wakeq.entity_events (canvas_id, event_id, correlation_id, entity_type, entity, name, link_id, link_prev)
                values ($1, $4, $4, $2, $3, 'deposit', 1, 0)";
    let sent = sqlx::query(sent).bind(CanvasId::DEFAULT.0).bind(entity_type).bind(entity).bind(event.0);
    sent.execute(pool).await.unwrap();
}

/// Makes one idempotency key appear to be in use by another request.
pub(super) const HELD_KEY: &str = "create or replace function wakeq.hold() returns trigger language plpgsql as $$ begin return null; end $$;
                        create or replace trigger held before insert on wakeq.idempotency_keys for each row
                            when (new.key = 'held') execute function wakeq.hold()";

/// Makes each cron unreadable for this release.
pub(super) const UNREADABLE_CRON: &str = "update wakeq.cron_records
                                  set expression = 'of a later release', next_at = null, paused_at = now(), paused_by = 'tests'";

/// Creates a subscriber of another group, on a live node.
pub(super) const GROUP_AT_WORK: &str = "insert into wakeq.nodes (node_id, heartbeat_timestamp, expires_at)
                          values ('00000000-0000-7000-8000-000000000001', now(), 'infinity');
                      insert into wakeq.subscribers (subscriber_name, subscriber_id, node_id, heartbeat_timestamp, expires_at, requests,
                                                     request_count)
                          values ('worked-on', '00000000-0000-7000-8000-000000000003', '00000000-0000-7000-8000-000000000001', now(),
                                  'infinity', '[{\"type\":\"log\"}]', 1);
                      insert into wakeq.consumer_positions (consumer_group, source) values ('worked-on', 'log')";
