//! What is said of the event of a cron's last tick: which it is, and what became of it.

use wakeq::control::RuleKind;
use wakeq::crons::{CronEvent, CronEventState};
use wakeq::events::EndedOutcome;
use wakeq::machine::CheckResult;
use wakeq::{Admin, EventId, Timestamp};

use super::ticks::{CANVAS, FakeClockDatabase, ada, name, new};
use crate::support::OTHER;

/// Gives each cron of every canvas a last tick, whose event waits.
pub(crate) const TICKED: &str = "
    with event as (
        insert into wakeq.events_v2 (id, canvas_id, module, name, modifier, value)
        select gen_random_uuid(), canvas_id, 'CRON', name, modifier, value from wakeq.cron_records
     returning id, canvas_id, name
    )
    update wakeq.cron_records c set last_at = now(), last_id = e.id, ticks = c.ticks + 1
      from event e where e.canvas_id = c.canvas_id and e.name = c.name";

/// The events of the default canvas's crons die.
pub(crate) const DIED: &str = "
    with gone as (
        delete from wakeq.events_v2 where canvas_id = '00000000-0000-0000-0000-000000000000' and module = 'CRON' returning *
    )
    insert into wakeq.dead_events (id, canvas_id, module, name, modifier, value, retries, enqueued_at, claims, losses, last_error,
                                   cause)
    select id, canvas_id, module, name, modifier, value, 2, enqueued_at, 3, 0, 'no route', 'retries' from gone";

/// The last tick, and the event of it.
async fn last(admin: &Admin) -> (Option<Timestamp>, Option<CronEvent>) {
    let cron = admin.cron(CANVAS, &name("report")).await.unwrap();
    let listed = admin.crons(CANVAS, None, 10).await.unwrap();
    assert_eq!(
        listed.iter().map(|cron| cron.last_event).collect::<Vec<_>>(),
        [cron.last_event],
        "in the list"
    );
    (cron.last, cron.last_event)
}

async fn last_state(admin: &Admin) -> (CronEventState, i32) {
    let event = last(admin).await.1.unwrap();
    (event.state, event.retries)
}

/// The id of the event that was emitted for a tick.
async fn event_of(clockwork: &FakeClockDatabase, tick: &str) -> EventId {
    let tick: Timestamp = tick.parse().unwrap();
    let id = sqlx::query_scalar("select id from wakeq.events_v2 where delay_until = $1").bind(tick);
    EventId(id.fetch_one(&clockwork.pool).await.unwrap())
}

/// The id is noted when the tick is emitted, ahead of its time or late, and stays the last one
/// while later ticks are ahead.
#[tokio::test]
async fn the_last_tick_names_its_event() {
    let (clockwork, admin) =
        FakeClockDatabase::with_cron("2027-03-01T07:59:00Z", "report", "0 8-9 * * *").await;
    assert_eq!(last(&admin).await, (None, None), "it is ahead");
    let first = event_of(&clockwork, "2027-03-01T08:00:00Z").await;
    let is_last = async |tick: &str, id: EventId| {
        let (at, event) = last(&admin).await;
        assert_eq!((at, event.map(|event| event.id)), (Some(tick.parse().unwrap()), Some(id)));
    };
    clockwork.passes(90).await;
    is_last("2027-03-01T08:00:00Z", first).await;
    assert_eq!(last_state(&admin).await, (CronEventState::Live(CheckResult::Ready), 0));
    // The next tick is emitted ahead.
    clockwork.emits(&admin, 3510, 1).await;
    is_last("2027-03-01T08:00:00Z", first).await;
    assert_eq!(clockwork.number("select count(last_id) from wakeq.cron_records").await, 1, "it is stored");
    let second = event_of(&clockwork, "2027-03-01T09:00:00Z").await;
    clockwork.passes(60).await;
    is_last("2027-03-01T09:00:00Z", second).await;
    // A pause takes back what is ahead, and a tick that has come stays the last one.
    admin.pause_cron(CANVAS, &name("report"), None, &ada()).await.unwrap();
    is_last("2027-03-01T09:00:00Z", second).await;
    admin.unpause_cron(CANVAS, &name("report"), &ada()).await.unwrap();
    // 23 hours later, a pass emits the tick that is half a minute late.
    clockwork.emits(&admin, 23 * 3600 + 30, 1).await;
    is_last("2027-03-02T08:00:00Z", event_of(&clockwork, "2027-03-02T08:00:00Z").await).await;
}

/// Another tenant has a cron and a handler of these names, and events of this id.
#[tokio::test]
async fn the_event_of_the_last_tick_says_what_became_of_it() {
    let (clockwork, admin) =
        FakeClockDatabase::with_cron("2027-03-01T07:59:00Z", "report", "0 8 * * *").await;
    admin.put_cron(OTHER, &new("report", "0 8 * * *", "UTC"), &ada()).await.unwrap();
    clockwork
        .run(
            "insert into wakeq.scheduling_rules (rule_type, canvas_id, handler_name, event_space)
             select 'block', canvas_id, name, 'CRON' from wakeq.cron_records
              where canvas_id <> '00000000-0000-0000-0000-000000000000'",
        )
        .await;
    clockwork.passes(61).await;
    assert_eq!(last_state(&admin).await, (CronEventState::Live(CheckResult::Ready), 0));
    let theirs = admin.cron(OTHER, &name("report")).await.unwrap().last_event.unwrap();
    assert_eq!(theirs.state, CronEventState::Live(CheckResult::Held(RuleKind::Block)));
    assert_ne!(Some(theirs.id), last(&admin).await.1.map(|event| event.id));

    clockwork
        .run("update wakeq.events_v2 set locked_at = moment, worker = 'w', claims = 1 from clockwork.shows")
        .await;
    assert_eq!(last_state(&admin).await, (CronEventState::Live(CheckResult::Running), 0));
    clockwork
        .run("update wakeq.events_v2 set locked_at = null, worker = null, retries = 1, delay_until = delay_until + interval '1 min'")
        .await;
    assert_eq!(last_state(&admin).await, (CronEventState::Live(CheckResult::Delayed), 1));
    clockwork.run(DIED).await;
    assert_eq!(last_state(&admin).await, (CronEventState::Dead, 2));
    // What another tenant has under this id is another event.
    clockwork.run("update wakeq.dead_events set canvas_id = '00000000-0000-0000-0000-0000000000f0'").await;
    assert_eq!(last_state(&admin).await, (CronEventState::Gone, 0));
    clockwork
        .run(
            "insert into wakeq.ended_events (canvas_id, id, kept_until, module, name, modifier, value, outcome, enqueued_at, due_at,
                                             ended_at, claims, retries, losses)
             select canvas.id, c.last_id, moment + canvas.kept, 'CRON', 'report', '_', '1', canvas.outcome, moment, moment, moment, 2, 1, 0
               from clockwork.shows, (values ('00000000-0000-0000-0000-000000000000'::uuid, interval '1 h', 'failed'),
                                             ('00000000-0000-0000-0000-0000000000f0', interval '2 h', 'completed')) as canvas (id, kept, outcome),
                    (select id as last_id from wakeq.dead_events) as c",
        )
        .await;
    assert_eq!(last_state(&admin).await, (CronEventState::Ended(EndedOutcome::Failed), 1));
    clockwork.passes(2 * 3600).await;
    assert_eq!(last_state(&admin).await, (CronEventState::Gone, 0), "its time is over");
}
