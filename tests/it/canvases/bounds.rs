//! What a canvas may have, beside an attacker that has as much of it as any canvas may; and what
//! explanations say of an event of the victim while the attacker's run.

use sqlx::AssertSqlSafe;
use wakeq::control::{ErrorGroupId, EventFilter, Explanation, LiveEvent, NewOperation, OperationKind};
use wakeq::limits::NewLimit;
use wakeq::queues::PullPolicy;
use wakeq::{Actor, EventId, HandlerScope, Stop};

use super::Findings;
use super::questions::of_both;
use super::seed::VICTIM;
use super::world::World;
use crate::support::Statements;

/// Limits, pulled handlers, known errors, open operations and rules of the attacker, and newer
/// operations that have ended than the victim's, as many as are kept.
const REACHED: &str = "
    insert into wakeq.limits (canvas_id, name, concurrency, created_by, updated_by)
    select 'ATTACKER', 'bound:' || n, 1, 'tests', 'tests' from generate_series(1, 1000) n;
    insert into wakeq.pulled_handlers (canvas_id, module, name, retries, delay_ms, factor, delay_max_ms, halts, created_by, updated_by)
    select 'ATTACKER', 'bound', 'h' || n, 1, 1, 1, 1, false, 'tests', 'tests' from generate_series(1, 1000) n;
    insert into wakeq.known_errors (canvas_id, error_group, known_by)
    select 'ATTACKER', gen_random_uuid(), 'tests' from generate_series(1, 1000);
    insert into wakeq.operations (canvas_id, id, kind, filter, cut_off, author, job)
    select 'ATTACKER', gen_random_uuid(), 'delete', '{\"name\": \"bound\"}', now(), 'tests', -1000 - n from generate_series(1, 10) n;
    insert into wakeq.operations (canvas_id, id, kind, filter, cut_off, state, author, job, started_at, ended_at)
    select 'ATTACKER'::uuid, gen_random_uuid(), 'delete', '{\"name\": \"bound\"}'::jsonb, now(), 'done', 'tests', 1,
           now() - interval '1 day', now()
      from generate_series(1, 990)
     union all
    select 'VICTIM', '0000b001-0000-4000-8000-000000000000', 'delete', '{\"name\": \"bound\"}', now(), 'done', 'tests', 1,
           now() - interval '2 days', now();
    insert into wakeq.dead_events (id, canvas_id, module, name, modifier, value, retries, enqueued_at, claims, losses, last_error, cause)
    select gen_random_uuid(), canvas, 'WORKER', 'perished', '_', '1', 2, now(), 3, 0, 'x', 'retries'
      from unnest(array['ATTACKER', 'VICTIM']::uuid[]) canvas;
    insert into wakeq.scheduling_rules (rule_type, canvas_id, handler_name, event_space)
    select 'pause', 'ATTACKER', 'bound' || n, 'WORKER' from unnest(array['', '-1', '-2', '-3']) n;
    insert into wakeq.canvas_quotas (canvas_id, quota, most, set_by)
    select 'VICTIM'::uuid, 'rules', count(*) + 1, 'tests' from wakeq.scheduling_rules where canvas_id = 'VICTIM';";

/// An event of the victim that could run while one of its handler runs for the attacker, and one
/// that waits for a limit of all canvases, of which the attacker has the place.
const BUSY: &str = "
    insert into wakeq.limits (canvas_id, name, concurrency, created_by, updated_by)
    values ('ffffffff-ffff-ffff-ffff-ffffffffffff', 'handler:WORKER/shared', 1, 'tests', 'tests');
    insert into wakeq.events_v2 (id, canvas_id, module, name, modifier, value, locked_at, claims, starts_at) values
    ('<a1>', 'ATTACKER', 'WORKER', 'busy', '_', '1', now(), 1, null), ('<b1>', 'VICTIM', 'WORKER', 'busy', '_', '1', null, 0, null),
    ('<a2>', 'ATTACKER', 'WORKER', 'shared', '_', '1', now(), 1, null), ('<b2>', 'VICTIM', 'WORKER', 'shared', '_', '1', null, 0, now());
    insert into wakeq.limit_states (canvas_id, name, holders)
    values ('ffffffff-ffff-ffff-ffff-ffffffffffff', 'handler:WORKER/shared', '{<a2>}');
    insert into wakeq.limit_waits (event_id, canvas_id, name, due)
    values ('<b2>', 'ffffffff-ffff-ffff-ffff-ffffffffffff', 'handler:WORKER/shared', now());";

pub(super) async fn goes_on(world: &World) -> Findings {
    let stage = &world.service.stage;
    let mut findings = reached(world).await;
    sqlx::raw_sql(AssertSqlSafe(of_both(BUSY))).execute(&stage.pool).await.unwrap();
    match explained(world, "<b1>").await {
        Some(event) if event.running == 0 => {}
        event => findings.push(format!("bounds: others run with the victim's event: {event:?}")),
    }
    match explained(world, "<b2>").await.map(|event| event.limited) {
        Some(Some(wait)) if wait.holders.is_empty() => {}
        wait => findings.push(format!("bounds: the victim's event waits for {wait:?}")),
    }
    // The limit is one of all canvases.
    stage.pool.run("delete from wakeq.limits where canvas_id = 'ffffffff-ffff-ffff-ffff-ffffffffffff'").await;
    findings
}

async fn explained(world: &World, id: &str) -> Option<Box<LiveEvent>> {
    let id = EventId(of_both(id).parse().unwrap());
    let explanation = world.service.stage.admin.explain(VICTIM.canvas, id).await.unwrap();
    if let Explanation::Live(event) = explanation { Some(event) } else { None }
}

async fn reached(world: &World) -> Findings {
    let (stage, by) = (&world.service.stage, Actor::user("tests"));
    let (admin, canvas) = (&stage.admin, VICTIM.canvas);
    sqlx::raw_sql(AssertSqlSafe(of_both(REACHED))).execute(&stage.pool).await.unwrap();
    let scope = HandlerScope::worker(canvas, "bound").unwrap();
    let named = |name: &str| EventFilter { name: Some(name.parse().unwrap()), ..EventFilter::default() };
    let limit = NewLimit { concurrency: Some(1), ..NewLimit::default() };

    let mut findings = Findings::new();
    let mut refused = |what: &str, error: Option<String>| {
        findings.extend(error.map(|error| format!("bounds: the victim can't have {what}: {error}")));
    };
    let put = admin.put_limit(canvas, &"bound".parse().unwrap(), &limit, &by).await;
    refused("a limit", put.err().map(|error| error.to_string()));
    let put = admin.put_pulled(&scope, &PullPolicy::default(), &by).await.map(|put| put.still);
    refused("a pulled handler under no rule", (!matches!(put, Ok(None))).then(|| format!("{put:?}")));
    let paused = admin.pause(&scope, &by, &Stop::default()).await;
    refused("a rule", paused.err().map(|error| error.to_string()));
    let perished = HandlerScope::worker(canvas, "perished").unwrap();
    let perished = ErrorGroupId::of(&perished, "retries", Some("x"));
    let known = admin.know_error(canvas, perished, None, &by).await;
    refused("a known error", known.err().map(|error| error.to_string()));
    let delete = NewOperation::new(OperationKind::Delete, named("bound"));
    let begun = admin.begin_operation(canvas, &delete, &by).await;
    refused("an operation", begun.err().map(|error| error.to_string()));

    let kept =
        "select exists (select from wakeq.operations where canvas_id = $1 and id::text like '0000b001%')";
    if !sqlx::query_scalar::<_, bool>(kept).bind(canvas.0).fetch_one(&stage.pool).await.unwrap() {
        findings
            .push("bounds: the victim's operation is forgotten, as if the attacker's were its own".into());
    }
    let forget = NewOperation::new(OperationKind::DeleteDead, named("perished"));
    let preview = admin.preview_operation(canvas, &forget, 1000).await.unwrap();
    if (preview.count, preview.looked_at) != (1, dead(world).await) {
        findings.push(format!("bounds: an operation on the victim's dead events means {preview:?}"));
    }
    findings
}

/// How many dead events the victim has.
async fn dead(world: &World) -> u64 {
    let dead = "select count(*) from wakeq.dead_events where canvas_id = $1";
    let dead = sqlx::query_scalar::<_, i64>(dead).bind(VICTIM.canvas.0);
    dead.fetch_one(&world.service.stage.pool).await.unwrap().unsigned_abs()
}
