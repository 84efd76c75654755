//! What workers do on their own, for both tenants at once: the victim's old rows are removed,
//! others stay, and its ticks come once, whatever the attacker has under the same names and ids.

use std::time::Duration;

use sqlx::AssertSqlSafe;

use super::Findings;
use super::questions::of_both;
use super::seed::VICTIM;
use super::world::World;
use crate::support::TIMEOUT;

/// Due at the next minute's pass: objects of which the attacker's can't be removed yet; events of
/// entities with the same ids, of which the attacker's are old; crons of the same name, due at the
/// same moment; in a queue with limits, as many running copies of the attacker as it may have; and
/// batches of the same names (`BATCHES`). No external name is resolved.
const DUE: &str = "
    update wakeq.chores set next_at = now();
    delete from wakeq.http_targets;
    delete from wakeq.canvas_quotas;
    insert into wakeq.idle_marks (at, seq) values (now() - interval '1 year', 0);
    insert into wakeq.objects (canvas_id, object)
    select canvas, 'old:' || kind from unnest(array['ATTACKER', 'VICTIM']::uuid[]) canvas,
           unnest(array['event', 'copy', 'dead', 'halted', 'halted-copy']) kind;
    insert into wakeq.events_v2 (id, canvas_id, module, name, modifier, value, delay_until, notify_at, object, seq, prev, queue, origin)
    select gen_random_uuid(), 'ATTACKER', 'WORKER', 'later', '_', '1', now() + interval '1 day', now() + interval '1 day',
           object, nextval('wakeq.event_seq'), 0, queue, case when queue is not null then gen_random_uuid() end
      from (values ('old:event', null), ('old:copy', 'billing')) as held (object, queue);
    insert into wakeq.dead_events (id, canvas_id, module, name, modifier, value, retries, enqueued_at, claims, losses,
                                   last_error, cause, object, seq, prev)
    values (gen_random_uuid(), 'ATTACKER', 'WORKER', 'later', '_', '1', 2, now(), 3, 0, 'x', 'retries', 'old:dead', 1, 0);
    insert into wakeq.halted_lanes (canvas_id, object, module, name, event_id, seq, prev)
    values ('ATTACKER', 'old:halted', 'WORKER', 'later', gen_random_uuid(), 1, 0);
    insert into wakeq.halted_lanes (canvas_id, object, module, name, event_id, seq, prev, queue)
    values ('ATTACKER', 'old:halted-copy', 'WORKER', 'later', gen_random_uuid(), 1, 0, 'billing');
    insert into wakeq.entity_events (canvas_id, event_id, correlation_id, entity_type, entity, name, link_id, link_prev,
                                     status, ended_at, follow_ups)
    select canvas, event, event, 'tally', 'a', 'n', 1, 0, 'processed',
           case when canvas = 'ATTACKER' then now() - interval '1 year' else now() end,
           case when event = 'f0110000-0000-4000-8000-000000000000' and canvas = 'ATTACKER'
                then array(select id from wakeq.events_v2 where canvas_id = 'ATTACKER' and name = 'later') else '{}' end
      from unnest(array['ATTACKER', 'VICTIM']::uuid[]) canvas,
           unnest(array['f0110000-0000-4000-8000-000000000000', 'e4de0000-0000-4000-8000-000000000000']::uuid[]) event;
    insert into wakeq.cron_records (canvas_id, name, expression, zone, modifier, value, missed, next_at, created_by, created_at, changed_at)
    select canvas, 'twin', '0 0 1 ' || case when canvas = 'VICTIM' then 1 else 2 end || ' *', 'UTC', '_', '1', 'once', now(), 'tests', now(), now()
      from unnest(array['ATTACKER', 'VICTIM']::uuid[]) canvas;
    insert into wakeq.events_v2 (id, canvas_id, module, name, modifier, value, locked_at, claims, notify_at, queue, origin)
    select gen_random_uuid(), 'ATTACKER', 'usage', 'runs', '_', '1', now() + interval '1 hour', 1, now() + interval '1 day',
           'billing', gen_random_uuid() from generate_series(1, 3);
    insert into wakeq.facets (queue, canvas_id, running)
    select 'billing', 'ATTACKER', array_agg(id) from wakeq.events_v2 where canvas_id = 'ATTACKER' and name = 'runs'
        on conflict (queue, canvas_id) do update set running = excluded.running;
    insert into wakeq.emitted_ids (canvas_id, id, due_at)
    values ('VICTIM', 'e0000000-0000-8000-8000-00000000000c', now() - interval '1 year');
    insert into wakeq.idempotency_keys (canvas_id, holder, key, fingerprint, answer, created_at)
    values ('VICTIM', 'tests', 'old', '1', '1', now() - interval '1 year');
    insert into wakeq.events_v2 (id, canvas_id, module, name, modifier, value, delay_until, notify_at, queue, origin)
    values (gen_random_uuid(), 'ATTACKER', 'usage', 'later', '_', '1', now() + interval '1 day', now() + interval '1 day', 'billing',
            'e0000000-0000-8000-8000-00000000000c');
    insert into wakeq.minute_statistics (at, canvas_id, module, name, emitted, completed, failed, retried, dead, wait_us, run_us,
                                         wait_bins, run_bins)
    select date_trunc('hour', now()) - interval '30 hours' + minute * interval '1 minute', canvas, 'WORKER', 'twin',
           case when canvas = 'VICTIM' then 2 else 5 end, 0, 0, 0, 0, 0, 0, '{}', '{}'
      from unnest(array['ATTACKER', 'VICTIM']::uuid[]) canvas, generate_series(0, 1) minute;
    update wakeq.facet_settings set in_flight_max = 2 where queue = 'billing'";

/// Batches, some of which were over a week ago: `held` of the attacker, with a member that is left,
/// and `kept` of the attacker, both open or over since yesterday for the victim; `freed` of the
/// victim, open for the attacker. `long` has more ends than are kept, for both.
const BATCHES: &str = "
    insert into wakeq.batches (canvas_id, name, event_id, module, handler, modifier, value)
    select canvas, name, gen_random_uuid(), 'WORKER', 'told', '_', '1'
      from unnest(array['ATTACKER', 'VICTIM']::uuid[]) canvas, unnest(array['held', 'kept', 'freed', 'long']) name;
    insert into wakeq.events_v2 (id, canvas_id, module, name, modifier, value, delay_until, notify_at, options)
    values (gen_random_uuid(), 'ATTACKER', 'WORKER', 'member', '_', '1', now() + interval '1 day', now() + interval '1 day',
            '{\"batch\": \"held\"}');
    update wakeq.batches set closed_at = now() - interval '8 days', over_at = now() - interval '8 days'
     where canvas_id = 'ATTACKER' and name in ('held', 'kept') or canvas_id = 'VICTIM' and name = 'freed';
    update wakeq.batches set closed_at = now() - interval '1 day', over_at = now() - interval '1 day'
     where canvas_id = 'VICTIM' and name = 'held';
    insert into wakeq.batch_ends (canvas_id, batch, completed) values ('VICTIM', 'kept', 3), ('ATTACKER', 'freed', 4);
    insert into wakeq.batch_ends (canvas_id, batch, completed)
    select canvas, 'long', case when canvas = 'VICTIM' then 1 else 2 end
      from generate_series(1, 1001), unnest(array['ATTACKER', 'VICTIM']::uuid[]) canvas";

/// What must hold for the victim after the pass, and the query for it.
const AFTERWARDS: [(&str, &str); 11] = [
    ("its old objects are gone", "not exists (select from wakeq.objects where canvas_id = $1 and object like 'old:%')"),
    (
        "its old ids are free",
        "not exists (select from wakeq.emitted_ids where canvas_id = $1 and id = 'e0000000-0000-8000-8000-00000000000c')",
    ),
    (
        "what became of its events is still known",
        "(select count(*) = 2 from wakeq.entity_events where canvas_id = $1 and entity_type = 'tally')",
    ),
    ("of that nothing is held", "not exists (select from wakeq.entity_events where canvas_id = $1 and held_at is not null)"),
    (
        "its batch was over yesterday",
        "(select over_at < now() - interval '23 hours' from wakeq.batches where canvas_id = $1 and name = 'held')",
    ),
    (
        "its open batch is there, with its ends",
        "exists (select from wakeq.batches where canvas_id = $1 and name = 'kept')
         and (select sum(completed) = 3 from wakeq.batch_ends where canvas_id = $1 and batch = 'kept')",
    ),
    ("the name of its old batch is free", "not exists (select from wakeq.batches where canvas_id = $1 and name = 'freed')"),
    ("its ends are summed", "(select sum(completed) = 1001 from wakeq.batch_ends where canvas_id = $1 and batch = 'long')"),
    (
        "its cron ticked once",
        "(select ticks = 1 from wakeq.cron_records where canvas_id = $1 and name = 'twin')
         and (select count(*) = 1 from wakeq.events_v2 where canvas_id = $1 and module = 'CRON' and name = 'twin')",
    ),
    (
        "its minutes are an hour",
        "(select sum(emitted) = 4 from wakeq.hour_statistics where canvas_id = $1 and name = 'twin')",
    ),
    (
        "its cron ticks in January",
        "(select to_char(next_at at time zone 'UTC', 'MM-DD') = '01-01' from wakeq.cron_records where canvas_id = $1 and name = 'twin')",
    ),
];

pub(super) async fn make_due(world: &World) {
    for due in [DUE, BATCHES] {
        sqlx::raw_sql(AssertSqlSafe(of_both(due))).execute(&world.service.stage.pool).await.unwrap();
    }
}

/// Findings after the pass of a worker that has been started.
pub(super) async fn findings(world: &World) -> Findings {
    let pool = &world.service.stage.pool;
    let is_so = async |question: &str| {
        let query = sqlx::query_scalar(AssertSqlSafe(format!("select {question}"))).bind(VICTIM.canvas.0);
        query.fetch_one(pool).await.unwrap_or(false)
    };
    // Idempotency keys are the last of what is deleted, and ends are summed in a part of its own.
    let passed = "(select min(next_at) > now() from wakeq.chores)
                  and (select count(*) < 1001 from wakeq.batch_ends where canvas_id = $1 and batch = 'long')
                  and not exists (select from wakeq.idempotency_keys where created_at < now() - interval '300 days')";
    let all = async {
        while !is_so(passed).await {
            // A pass sends no signal when it ends: only its rows show it.
            tokio::time::sleep(Duration::from_millis(20)).await;
        }
    };
    let mut findings = Findings::new();
    if tokio::time::timeout(TIMEOUT, all).await.is_err() {
        findings.push("upkeep: the pass does not end".into());
    }
    for (what, question) in AFTERWARDS {
        if !is_so(question).await {
            findings.push(format!("upkeep: it is not so that {what}"));
        }
    }
    findings
}
