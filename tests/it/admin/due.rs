//! Another due time of one event: earlier, later or at once, with its promise; what runs or has
//! ended keeps its own, and so does what another tenant has.

use std::time::Duration;

use wakeq::events::Due;
use wakeq::machine::Outcome;
use wakeq::{Actor, AdminError, CanvasId, Event, EventId, Handlers};

use crate::support::{OTHER, Stage, Statements};

const HOUR: Duration = Duration::from_secs(3600);

async fn later(stage: &Stage, canvas: CanvasId) -> EventId {
    let event = Event::new("remind", "x").unwrap().after(24 * HOUR).unwrap().canvas(canvas);
    stage.queue.emit(event).await.unwrap().id
}

async fn set(stage: &Stage, id: EventId, due: Due) -> Result<EventId, AdminError> {
    let moved = stage.admin.set_due(CanvasId::DEFAULT, id, due, &Actor::user("ada")).await?;
    assert!(moved.due >= stage.admin.clock().await.unwrap() - Duration::from_secs(30));
    Ok(moved.id)
}

/// Within the horizon it is notified of at once, and beyond it by its promise.
#[tokio::test]
async fn a_waiting_event_gets_another_due_time() {
    let (stage, notifier) = Stage::memory().await;
    let id = later(&stage, CanvasId::DEFAULT).await;
    let theirs = later(&stage, OTHER).await;
    let mine =
        "select delay_until > now() + interval '47 h' and notify_at < delay_until and notify_at > now()
                  from wakeq.events_v2 where canvas_id = '00000000-0000-0000-0000-000000000000'";
    assert_eq!(set(&stage, id, Due::After(48 * HOUR)).await.unwrap(), id);
    assert!(stage.pool.value::<bool>(mine).await);
    assert_eq!(notifier.published().len(), 0, "its promise wakes it");
    let soon =
        "select delay_until < now() + interval '61 s' and delay_until > now() and notify_at >= delay_until
                  from wakeq.events_v2 where canvas_id = '00000000-0000-0000-0000-000000000000'";
    set(&stage, id, Due::After(Duration::from_secs(60))).await.unwrap();
    assert!(stage.pool.value::<bool>(soon).await);
    assert_eq!(notifier.published().iter().map(|told| told.id).collect::<Vec<_>>(), [id]);
    set(&stage, id, Due::At("2020-01-31T08:00:00Z".parse().unwrap())).await.unwrap();
    let due = "select count(*) from wakeq.events_v2 where delay_until <= now() and delay_until > now() - interval '1 h'";
    assert_eq!(stage.pool.value::<i64>(due).await, 1, "a moment that has passed is now");
    let lines =
        "select count(*) from wakeq.audit_log where action = 'set-due' and actor = 'ada' and name = 'remind'
                    and event_id is not null and detail like 'due 20%Z'";
    assert_eq!(stage.pool.value::<i64>(lines).await, 3);
    let kept = "select delay_until > now() + interval '23 h' from wakeq.events_v2
                 where canvas_id <> '00000000-0000-0000-0000-000000000000'";
    assert!(stage.pool.value::<bool>(kept).await, "that of another tenant");
    assert!(
        matches!(set(&stage, theirs, Due::Now).await, Err(AdminError::NotFound(named)) if named == theirs)
    );
    let mut worker = stage.worker(Handlers::new().on("remind", async |_| Ok(())));
    worker.until(id, Outcome::Deleted).await;
    worker.stop().await;
}

/// Also by the id that its caller chose.
#[tokio::test]
async fn what_runs_or_has_ended_is_refused() {
    let (stage, _) = Stage::memory().await;
    let chosen = EventId::new();
    let event = Event::new("remind", "x").unwrap().after(HOUR).unwrap().id(chosen);
    let id = stage.queue.emit(event).await.unwrap().id;
    assert_eq!(set(&stage, chosen, Due::After(2 * HOUR)).await.unwrap(), id);
    let far = [Due::After(Duration::from_secs(101 * 366 * 86_400)), Due::At(wakeq::Timestamp::MAX_UTC)];
    for due in far {
        assert!(matches!(set(&stage, id, due).await, Err(AdminError::Invalid(_))), "{due:?}");
    }
    stage.pool.run("update wakeq.events_v2 set locked_at = now(), claims = 1").await;
    assert!(matches!(set(&stage, id, Due::Now).await, Err(AdminError::NotWaiting(named)) if named == id));
    let died = "with gone as (delete from wakeq.events_v2 returning *)
         insert into wakeq.dead_events (id, canvas_id, module, name, modifier, value, retries, enqueued_at, claims,
                                        losses, last_error, cause)
         select id, canvas_id, module, name, modifier, value, 2, enqueued_at, 3, 1, 'no', 'retries' from gone";
    stage.pool.run(died).await;
    assert!(matches!(set(&stage, id, Due::Now).await, Err(AdminError::HasEnded(named)) if named == id));
    let never = EventId::new();
    assert!(matches!(set(&stage, never, Due::Now).await, Err(AdminError::NotFound(named)) if named == never));
}

/// One that a rule holds is told of, and held again.
#[tokio::test]
async fn a_held_event_stays_held() {
    let (stage, _) = Stage::memory().await;
    let mut worker = stage.worker(Handlers::new().on("remind", async |_| Ok(())));
    let scope = crate::support::scope("remind");
    stage.admin.pause(&scope, &Actor::user("ada"), &wakeq::Stop::default()).await.unwrap();
    let id = later(&stage, CanvasId::DEFAULT).await;
    set(&stage, id, Due::After(Duration::from_millis(100))).await.unwrap();
    worker.until(id, Outcome::RulePaused).await;
    stage.admin.unpause(&scope, &Actor::user("ada")).await.unwrap();
    worker.until(id, Outcome::Deleted).await;
    worker.stop().await;
}
