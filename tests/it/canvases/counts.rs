//! What the victim's events died of, and how many it has, beside tenants with the same handlers and
//! errors, and with canvases that come after the victim's.

use sqlx::AssertSqlSafe;
use wakeq::control::{
    ErrorGroup, ErrorGroupFilter, ErrorGroupId, EventFilter, EventState, NewOperation, OperationKind,
};
use wakeq::{EventId, HandlerScope};

use super::Findings;
use super::questions::of_both;
use super::seed::VICTIM;
use super::world::World;

/// An event of each tenant that died of the same error at the same moment. The others know the
/// error, and the victim does not.
const DIED_ALIKE: &str = "
    insert into wakeq.dead_events (id, canvas_id, module, name, modifier, value, retries, enqueued_at, claims, losses, last_error, cause)
    select id, canvas, 'WORKER', 'alike', '_', '1', 2, now(), 3, 0, 'x', 'retries'
      from (values (gen_random_uuid(), 'ATTACKER'::uuid), ('<b9>', 'VICTIM'),
                   (gen_random_uuid(), 'ffffffff-ffff-4fff-bfff-ffffffffffff')) as events (id, canvas);
    insert into wakeq.known_errors (canvas_id, error_group, note, known_by)
    select canvas_id, error_group, 'not of the victim', 'tests' from wakeq.dead_events
     where name = 'alike' and canvas_id <> 'VICTIM';";

/// An event of the victim that is ready, of a handler that the attacker has paused, and that
/// workers have not known there; and the last one of the victim, in the order of handlers, with
/// those of others whose handlers come before.
const WAIT_ALIKE: &str = "
    insert into wakeq.scheduling_rules (rule_type, canvas_id, handler_name, event_space)
    values ('pause', 'ATTACKER', 'alike', 'WORKER');
    insert into wakeq.unknown_handlers (canvas_id, module, name, modifier) values ('ATTACKER', 'WORKER', 'alike', '_');
    insert into wakeq.events_v2 (id, canvas_id, module, name, modifier, value)
    select gen_random_uuid(), canvas, module, name, '_', '1'
      from (values ('VICTIM'::uuid, 'WORKER', 'alike'), ('VICTIM', 'zzz', 'zz'), ('eeeeeeee-eeee-4eee-aeee-eeeeeeeeeeee', 'zzz', 'a'),
                   ('ffffffff-ffff-4fff-bfff-ffffffffffff', 'AAA', 'a')) as events (canvas, module, name);";

pub(super) async fn goes_on(world: &World) -> Findings {
    for alike in [DIED_ALIKE, WAIT_ALIKE] {
        sqlx::raw_sql(AssertSqlSafe(of_both(alike))).execute(&world.service.stage.pool).await.unwrap();
    }
    let mut findings = grouped(world).await;
    findings.extend(counted(world).await);
    findings
}

/// The victim's error group has one event, and is unknown to it.
async fn grouped(world: &World) -> Findings {
    let (admin, canvas) = (&world.service.stage.admin, VICTIM.canvas);
    let handler = HandlerScope::worker(canvas, "alike").unwrap();
    let group = ErrorGroupId::of(&handler, "retries", Some("x"));
    let filter = ErrorGroupFilter { handler: Some(handler), ..ErrorGroupFilter::default() };
    let listed = admin.error_groups(canvas, &filter, None, 10).await.unwrap().page.items;
    let shown = admin.error_group(canvas, group).await.unwrap();

    let died = EventId(of_both("<b9>").parse().unwrap());
    let is_own = |group: &ErrorGroup| group.count == 1 && group.known.is_none() && group.example == died;
    let mut findings = Findings::new();
    if listed.len() != 1 || !listed.iter().all(is_own) {
        findings.push(format!("counts: the victim's error groups are listed as {listed:?}"));
    }
    if !is_own(&shown) {
        findings.push(format!("counts: the victim's error group is shown as {shown:?}"));
    }
    findings
}

/// Operations and counts mean all events of the victim, and what holds those of others holds none
/// of them.
async fn counted(world: &World) -> Findings {
    let (stage, canvas) = (&world.service.stage, VICTIM.canvas);
    let preview = async |filter: EventFilter| {
        let cancel = NewOperation::new(OperationKind::Cancel, filter);
        stage.admin.preview_operation(canvas, &cancel, 10_000).await.unwrap()
    };
    let name = Some("alike".parse().unwrap());
    let states = vec![EventState::Ready];
    let ready = preview(EventFilter { name, states, ..EventFilter::default() }).await;
    let mut findings = Findings::new();
    if (ready.count, ready.looked_at) != (1, 1) {
        findings.push(format!("counts: an operation on the victim's ready event means {ready:?}"));
    }

    let all = "select count(*) from wakeq.events_v2 where canvas_id = $1";
    let all = sqlx::query_scalar::<_, i64>(all).bind(canvas.0).fetch_one(&stage.pool).await.unwrap();
    let counted = stage.admin.count_events(canvas, &EventFilter::default(), None).await.unwrap().count;
    let meant = preview(EventFilter::default()).await.looked_at;
    if [counted, meant] != [all.unsigned_abs(); 2] {
        findings.push(format!(
            "counts: of {all} events of the victim, {counted} are counted, and an operation looks at {meant}"
        ));
    }
    let stats = stage.admin.canvas_stats(canvas).await.unwrap();
    if stats.stopped.iter().chain(&stats.unknown).any(|one| one.scope.name.as_str() == "alike") {
        findings.push(format!("counts: the victim's handler is stopped or unknown: {stats:?}"));
    }
    findings
}
