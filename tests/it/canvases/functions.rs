//! What functions of the database return for the victim's lanes, facets and turns, beside an
//! attacker that has the same ones in another state. They are called directly, because in a
//! worker's normal course one check stands in for another. Also calls whose outcome depends on
//! another tenant being in a particular state.

use sqlx::{AssertSqlSafe, Connection, PgConnection};
use wakeq::control::EventFilter;
use wakeq::order::Lane;
use wakeq::targets::{NewTarget, TargetHeaders};
use wakeq::{Actor, CanvasId, Event, EventId, HandlerScope, Name, Stop};

use super::questions::{PAUSED, Question, ask, of_both};
use super::seed::{ATTACKER, VICTIM};
use super::world::World;
use super::{Findings, batches, bounds, counts, limits, pass};
use crate::support::Statements;
use crate::support::receiver::{address, target};

/// An event and a copy of each tenant, on the same object; the attacker's came first, and its lanes
/// are halted.
const LANES: &str = "
    insert into wakeq.queues (name, tenant_visible, created_by, updated_by) values ('audit', true, 'tests', 'tests');
    insert into wakeq.events_v2 (id, canvas_id, module, name, modifier, value, object, seq, prev, queue, origin) values
    ('a1000000-0000-4000-8000-000000000000', 'ATTACKER', 'audit', 'note', '_', '1', 'lane', 1, 0, null, null),
    ('a2000000-0000-4000-8000-000000000000', 'ATTACKER', 'audit', 'note', '_', '1', 'lane', 2, 0, 'audit', gen_random_uuid()),
    ('b1000000-0000-4000-8000-000000000000', 'VICTIM', 'audit', 'note', '_', '1', 'lane', 3, 0, null, null),
    ('b2000000-0000-4000-8000-000000000000', 'VICTIM', 'audit', 'note', '_', '1', 'lane', 4, 0, 'audit', gen_random_uuid());
    insert into wakeq.halted_lanes (canvas_id, object, module, name, event_id, seq, prev, queue)
    values ('ATTACKER', 'lane', 'audit', 'note', gen_random_uuid(), 1, 0, 'audit'),
           ('ATTACKER', 'lane', 'audit', 'note', gen_random_uuid(), 1, 0, null);";

/// A due copy of each tenant, and a running one of the victim. All copies of the attacker were
/// looked at, and one may run.
const FACETS: &str = "
    insert into wakeq.queues (name, tenant_visible, in_flight_max, created_by, updated_by)
    values ('audit', true, 4, 'tests', 'tests');
    insert into wakeq.events_v2 (id, canvas_id, module, name, modifier, value, delay_until, locked_at, claims, queue, origin) values
    ('a3000000-0000-4000-8000-000000000000', 'ATTACKER', 'audit', 'note', '_', '1', now() - interval '1 hour', null, 0, 'audit', gen_random_uuid()),
    ('b3000000-0000-4000-8000-000000000000', 'VICTIM', 'audit', 'note', '_', '1', now() - interval '1 hour', null, 0, 'audit', gen_random_uuid()),
    ('b4000000-0000-4000-8000-000000000000', 'VICTIM', 'audit', 'note', '_', '1', now() - interval '2 hours', now(), 1, 'audit', gen_random_uuid());
    delete from wakeq.facets where queue = 'audit';
    insert into wakeq.facets (queue, canvas_id, position, head_at, running) values
    ('audit', 'ATTACKER', 1, 'infinity', '{}'),
    ('audit', 'VICTIM', 2, '-infinity', array['b4000000-0000-4000-8000-000000000000']::uuid[]);
    insert into wakeq.facet_settings (queue, canvas_id, in_flight_max) values ('audit', 'ATTACKER', 1);";

/// So many copies of the attacker, already looked at, that a turn of the victim could see nothing
/// else.
const CROWD: &str = "
    insert into wakeq.events_v2 (id, canvas_id, module, name, modifier, value, delay_until, queue, origin)
    select gen_random_uuid(), 'ATTACKER', 'audit', 'note', '_', '1', now() - interval '3 hours', 'audit', gen_random_uuid()
      from generate_series(1, 300);";

/// The rotation is empty; the attacker's copies were looked at, none of the victim's were.
const LOOKED_THROUGH: &str = "
    update wakeq.facets set position = null where queue = 'audit';
    update wakeq.facets set head_at = now() - interval '2 hours' where queue = 'audit' and canvas_id = 'ATTACKER';
    update wakeq.events_v2 set delay_until = now() - interval '3 hours' where queue = 'audit' and canvas_id = 'ATTACKER';";

/// What the attacker had taken from the queue was lost, and all of the victim's copies were looked
/// at.
const LOST: &str = "
    update wakeq.facets set position = null, head_at = 'infinity', running = '{}' where queue = 'audit';
    update wakeq.facets set running = array['a3000000-0000-4000-8000-000000000000']::uuid[]
     where queue = 'audit' and canvas_id = 'ATTACKER';";

const SWITCHED_OFF: &str = "
    insert into wakeq.scheduling_rules (rule_type, canvas_id, handler_name, event_space)
    values ('pause', 'ATTACKER', '_', 'CANVAS');";

const WEIGHS_ONE: &str =
    "insert into wakeq.facet_settings (queue, canvas_id, weight) values ('audit', 'VICTIM', 1)";

const COUNTED: &str = "
    insert into wakeq.objects (canvas_id, object, last_seq) values ('ATTACKER', 'sql:1', 999);";

/// Running events of both tenants on an object: the attacker's lanes and queues sort before and
/// after the victim's.
const HANDS: &str = "
    insert into wakeq.events_v2 (id, canvas_id, module, name, modifier, value, locked_at, claims, worker, object, seq, prev, queue, origin)
    select gen_random_uuid(), canvas::uuid, 'hands', name, '_', '1', now(), 1, worker, 'hands', seq, seq - 1, queue,
           case when queue is not null then gen_random_uuid() end
      from (values ('ATTACKER', 'a', 'attacker', 1, null), ('VICTIM', 'b', 'victim', 2, null), ('ATTACKER', 'c', 'attacker', 3, null),
                   ('ATTACKER', 'd', 'attacker', 4, 'a'), ('VICTIM', 'd', 'victim', 5, 'b'), ('ATTACKER', 'd', 'attacker', 6, 'c'))
           as hands (canvas, name, worker, seq, queue);";

/// An entity of each tenant, with a stored event of the same id that died in another group; the
/// attacker's is to be erased, and the victim's has continued since.
const ENTITIES: &str = "
    insert into wakeq.log (seq, prev, canvas_id, category, stream, position, bucket, id, name, payload, metadata) values
    (9000001, 0, 'ATTACKER', 'entities:note.inbox', 'one', 0, 0, 'c1000000-0000-4000-8000-000000000000', 'add', '1', '{}'),
    (9000002, 0, 'VICTIM', 'entities:note.inbox', 'one', 0, 0, 'c1000000-0000-4000-8000-000000000000', 'add', '1', '{}'),
    (9000003, 0, 'ATTACKER', 'entities:note', 'one', 0, 0, 'c1000000-0000-4000-8000-000000000000', 'add', '1',
     '{\"link\":{\"id\":9000001,\"prev\":0}}'),
    (9000004, 0, 'VICTIM', 'entities:note', 'one', 0, 0, 'c1000000-0000-4000-8000-000000000000', 'add', '1',
     '{\"link\":{\"id\":9000002,\"prev\":0}}'),
    (9000005, 9000001, 'ATTACKER', 'entities:note.inbox', 'one', 1, 0, gen_random_uuid(), 'wakeq.erase', 'null', '{\"erases\":true}');
    insert into wakeq.log_streams (canvas_id, category, stream, position, last_seq)
    values ('ATTACKER', 'entities:note', 'one', 0, 9000003), ('VICTIM', 'entities:note', 'one', 0, 9000004);
    insert into wakeq.entities (entity_type, canvas_id, id, version, last_link)
    values ('note', 'ATTACKER', 'one', 1, 9000001), ('note', 'VICTIM', 'one', 1, 9000009);
    insert into wakeq.entity_events (canvas_id, event_id, correlation_id, entity_type, entity, name, link_id, link_prev)
    values ('ATTACKER', 'c1000000-0000-4000-8000-000000000000', gen_random_uuid(), 'note', 'one', 'add', 9000001, 0),
           ('VICTIM', 'c1000000-0000-4000-8000-000000000000', gen_random_uuid(), 'note', 'one', 'add', 9000002, 0);
    insert into wakeq.consumer_dead (consumer_group, source, seq, id, canvas_id, category, stream, name, payload, attempts, last_error)
    select 'projection', 'category/entities:note', seq, id, canvas_id, category, stream, name, payload, 1, 'no'
      from wakeq.log where category = 'entities:note' and stream = 'one';";

/// An open batch of the victim with a member, and one of the attacker that is over, under one name.
const BATCHES: &str = "
    insert into wakeq.batches (canvas_id, name, event_id, module, handler, modifier, value, over_at) values
    ('ATTACKER', 'joined', gen_random_uuid(), 'WORKER', 'told', '_', '1', now()),
    ('VICTIM', 'joined', gen_random_uuid(), 'WORKER', 'told', '_', '1', null);
    insert into wakeq.events_v2 (id, canvas_id, module, name, modifier, value, options)
    values (gen_random_uuid(), 'VICTIM', 'audit', 'note', '_', '1', '{\"batch\": \"joined\"}');";

/// As many running copies of the attacker as any canvas may have.
const FULL: &str = "
    with runs as (
        insert into wakeq.events_v2 (id, canvas_id, module, name, modifier, value, locked_at, claims, queue, origin)
        select gen_random_uuid(), 'ATTACKER', 'audit', 'note', '_', '1', now(), 1, 'audit', gen_random_uuid()
          from generate_series(1, 4) returning id)
    update wakeq.facets set running = array(select id from runs) where queue = 'audit' and canvas_id = 'ATTACKER';";

const QUESTIONS: [Question; 31] = [
    (
        &[ENTITIES],
        "select wakeq.erase_entity('ATTACKER', 'note', 'one', 9000005, 0, 1000)",
        "(select count(*) filter (where canvas_id = 'VICTIM') = 2 and count(*) filter (where canvas_id = 'ATTACKER') = 1
            from wakeq.log where stream = 'one' and category in ('entities:note', 'entities:note.inbox'))
         and (select count(*) = 1 and min(canvas_id::text) = 'VICTIM' from wakeq.log_streams where category = 'entities:note')
         and (select count(*) = 1 and min(canvas_id::text) = 'VICTIM' from wakeq.entities where entity_type = 'note')
         and (select count(*) = 1 and min(canvas_id::text) = 'VICTIM' from wakeq.entity_events where entity_type = 'note')
         and (select count(*) = 1 and min(canvas_id::text) = 'VICTIM' from wakeq.consumer_dead where category = 'entities:note')",
    ),
    (&[LANES], "", "wakeq.first_without('VICTIM', 'lane', null, 'audit', 'note', '{}') = 'b1000000-0000-4000-8000-000000000000'"),
    (&[LANES], "", "wakeq.first_without('VICTIM', 'lane', 'audit', 'audit', 'note', '{}') = 'b2000000-0000-4000-8000-000000000000'"),
    (&[LANES], "", "wakeq.next_in_lane('VICTIM', 'lane', null, 'audit', 'note', 0) = 'b1000000-0000-4000-8000-000000000000'"),
    (&[LANES], "", "wakeq.next_in_lane('VICTIM', 'lane', 'audit', 'audit', 'note', 0) = 'b2000000-0000-4000-8000-000000000000'"),
    (&[LANES], "", "wakeq.first_of_lane('VICTIM', 'lane', null, 'audit', 'note') = 'b1000000-0000-4000-8000-000000000000'"),
    (&[LANES], "", "wakeq.first_of_lane('VICTIM', 'lane', 'audit', 'audit', 'note') = 'b2000000-0000-4000-8000-000000000000'"),
    (&[LANES], "", "not wakeq.lane_halts('VICTIM', 'lane', 'audit', 'audit', 'note')"),
    (&[LANES], "", "not wakeq.lane_halts('VICTIM', 'lane', null, 'audit', 'note')"),
    (&[BATCHES], "select wakeq.join_batch(e) from wakeq.events_v2 e where e.canvas_id = 'VICTIM' and e.name = 'note'", "true"),
    (&[FACETS], "", "not wakeq.facet_holds('audit', 'VICTIM', '1 minute')"),
    (&[FACETS, FULL], "", "not wakeq.facet_holds('audit', 'VICTIM', '1 minute')"),
    (&[FACETS], "", "not wakeq.is_passed('audit', 'VICTIM', now() - interval '1 hour', '<b3>')"),
    (&[FACETS], "", "not wakeq.facet_was_full('audit', 'VICTIM')"),
    (&[FACETS], "", "array(select wakeq.room_in_facet('audit', 'VICTIM', '1 minute')) = '{<b3>}'"),
    (&[FACETS, PAUSED], "", "array(select wakeq.room_in_facet('audit', 'VICTIM', '1 minute')) = '{<b3>}'"),
    (
        &[FACETS],
        "select wakeq.recall('audit', '{<a3>, <b3>}')",
        "(select recalled = '{}' from wakeq.facets where queue = 'audit' and canvas_id = 'VICTIM')",
    ),
    (&[FACETS, PAUSED], "", "array(select id from <turns>) = '{<b3>}'"),
    (&[SWITCHED_OFF], "", "wakeq.switch_on('VICTIM', null, now()) is null"),
    (&[SWITCHED_OFF], "", "wakeq.rules_hold('VICTIM', 'audit', 'note') = 'none'"),
    (&[PAUSED], "", "wakeq.rules_hold('VICTIM', 'audit', 'note') = 'none'"),
    (&[FACETS, SWITCHED_OFF], "", "array(select wakeq.room_in_facet('audit', 'VICTIM', '1 minute')) = '{<b3>}'"),
    (&[FACETS, SWITCHED_OFF], "", "array(select id from <turns>) = '{<b3>}'"),
    (
        &[FACETS, "update wakeq.facet_settings set weight = 0 where queue = 'audit'"],
        "",
        "array(select id from wakeq.take_turns('audit', '{<a3>, <b3>}', 5, true, '1 minute', 5)) = '{<b3>}'",
    ),
    (&[FACETS, WEIGHS_ONE], "", "array(select id from <turns>) = '{<b3>}'"),
    (
        &[FACETS, "update wakeq.facets set head_at = '-infinity' where queue = 'audit'"],
        "select count(*) from <turns>",
        "(select bool_and(left(head_id::text, 2) = case when canvas_id = 'VICTIM' then 'b3' else 'a3' end)
            from wakeq.facets where queue = 'audit')",
    ),
    (&[FACETS, CROWD], "", "array(select id from <turns>) = '{<b3>}'"),
    (&[FACETS, LOOKED_THROUGH], "", "array(select <due>) = '{VICTIM}'"),
    (&[FACETS, LOST], "", "array(select <due>) = '{ATTACKER}'"),
    (
        &[FACETS, "insert into wakeq.facet_settings (queue, canvas_id, weight) values ('audit', 'VICTIM', 9)"],
        "select wakeq.keep_turns('audit', '{<b3>}')",
        "(select position < 1 and used = 8 from wakeq.facets where queue = 'audit' and canvas_id = 'VICTIM')
         and (select position = 1 and used = 0 from wakeq.facets where queue = 'audit' and canvas_id = 'ATTACKER')",
    ),
    (
        &[COUNTED],
        "select wakeq.emit('note', '1', canvas => 'VICTIM', object => 'sql:1')",
        "(select coalesce(prev, 0) = 0 from wakeq.events_v2 where canvas_id = 'VICTIM' and object = 'sql:1')
         and (select last_seq = 999 from wakeq.objects where canvas_id = 'ATTACKER' and object = 'sql:1')",
    ),
];

pub(super) async fn goes_on(world: &World) -> Findings {
    world.lift_all().await;
    let mut findings = Findings::new();
    let mut connection = PgConnection::connect(world.url()).await.unwrap();
    for (before, done, question) in QUESTIONS.into_iter().chain(limits::QUESTIONS) {
        if let Err(why) = ask(&mut connection, before, done, question).await {
            findings.push(format!("functions: {why}: {done} {question}"));
        }
    }
    connection.close().await.unwrap();
    findings.extend(calls(world).await);
    findings.extend(hands(world).await);
    findings.extend(batches::goes_on(world).await);
    findings.extend(bounds::goes_on(world).await);
    findings.extend(counts::goes_on(world).await);
    findings
}

/// One lane of the attacker is halted, and one of its handlers is paused, and has a target with
/// headers elsewhere; other canvases have events that sort after all of the victim's canvas, with
/// handlers that sort before.
async fn calls(world: &World) -> Findings {
    let (stage, by) = (&world.service.stage, Actor::user("tests"));
    let scope = |canvas: CanvasId| HandlerScope::worker(canvas, "still").unwrap();
    let halted = "insert into wakeq.halted_lanes (canvas_id, object, module, name, event_id, seq, prev)
                  values ($1, 'still', 'WORKER', 'still', gen_random_uuid(), 1, 0)";
    sqlx::query(halted).bind(ATTACKER.canvas.0).execute(&stage.pool).await.unwrap();
    stage.admin.pause(&scope(ATTACKER.canvas), &by, &Stop::default()).await.unwrap();
    let headers = Some(TargetHeaders::new([("x-api-key", "k3y")]).unwrap());
    let elsewhere = NewTarget { headers, ..target("https://elsewhere.example/") };
    stage.admin.put_target(&address(ATTACKER.canvas, "still"), &elsewhere, &by).await.unwrap();
    let others = "insert into wakeq.events_v2 (id, canvas_id, module, name, modifier, value, delay_until, notify_at)
                  select gen_random_uuid(), canvas, module, 'a', '_', '1', now() + interval '1 day', now() + interval '1 day'
                    from (values ('ffffffff-ffff-4fff-bfff-ffffffffffff'::uuid, 'AAA'),
                                 ('eeeeeeee-eeee-4eee-aeee-eeeeeeeeeeee'::uuid, 'zzz')) as others (canvas, module)";
    stage.pool.run(others).await;

    // It died in a lane that continued, so it gets a new place when it is redriven; the attacker's
    // event with the same id halts its own lane.
    let dead = "insert into wakeq.objects (canvas_id, object) values ('VICTIM', 'went-on');
                insert into wakeq.dead_events (id, canvas_id, module, name, modifier, value, retries, enqueued_at, claims, losses,
                                               last_error, cause, object, seq, prev)
                values ('d1000000-0000-4000-8000-000000000000', 'VICTIM', 'WORKER', 'died', '_', '1', 2, now(), 3, 0, 'x', 'retries', 'went-on', 1000000, 0);
                insert into wakeq.halted_lanes (canvas_id, object, module, name, event_id, seq, prev)
                values ('ATTACKER', 'stands', 'WORKER', 'died', 'd1000000-0000-4000-8000-000000000000', 1, 0)";
    sqlx::raw_sql(AssertSqlSafe(of_both(dead))).execute(&stage.pool).await.unwrap();

    let mut findings = Findings::new();
    let died = EventId("d1000000-0000-4000-8000-000000000000".parse().unwrap());
    stage.admin.redrive_one(VICTIM.canvas, died, &by).await.unwrap();
    let place = "select seq <> 1000000 from wakeq.events_v2 where canvas_id = $1 and id = $2";
    let place = sqlx::query_scalar::<_, bool>(place).bind(VICTIM.canvas.0).bind(died.0);
    if place.fetch_optional(&stage.pool).await.unwrap() != Some(true) {
        findings.push("functions: a redriven event of the victim takes the place of one that halts".into());
    }
    let lane = Lane { scope: scope(VICTIM.canvas), object: "still".parse().unwrap(), queue: None };
    if stage.admin.skip(&lane, &by).await.unwrap() {
        findings.push("functions: skipping a lane of the victim lifts one of the attacker".into());
    }
    let (address, target) = (address(VICTIM.canvas, "still"), target("https://target.example/"));
    match stage.admin.put_target(&address, &target, &by).await.map(|registered| registered.still) {
        Ok(None) => {}
        still => findings.push(format!("functions: the victim's target is under the attacker's: {still:?}")),
    }
    let event = Event::new("zz", &1).unwrap().module("zzz").unwrap().canvas(VICTIM.canvas);
    let id = stage.queue.emit(event).await.unwrap().id;
    let listed = stage.admin.events(VICTIM.canvas, &EventFilter::default(), None, 1000).await.unwrap();
    if !listed.items.iter().any(|event| event.id == id) {
        findings.push("functions: the victim's last event is not listed".into());
    }
    findings
}

async fn hands(world: &World) -> Findings {
    let stage = &world.service.stage;
    sqlx::raw_sql(AssertSqlSafe(of_both(HANDS))).execute(&stage.pool).await.unwrap();
    let seen = stage.admin.running(VICTIM.canvas, &"hands".parse().unwrap(), 1000).await.unwrap();
    let workers: Vec<_> = seen.iter().map(|hand| hand.worker.as_ref().map(Name::as_str)).collect();
    if workers == [Some("victim"); 2] {
        return Findings::new();
    }
    vec![format!("functions: who works on the victim's object is said to be {workers:?}")]
}

#[tokio::test]
async fn functions_look_at_one_canvas() {
    let world = World::start().await;
    let findings = goes_on(&world).await;
    world.service.stop().await;
    pass(&findings);
}
