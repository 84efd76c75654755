//! What a worker takes, runs and leaves alone.

use std::sync::Arc;

use tokio::sync::Barrier;
use uuid::Uuid;
use wakeq::machine::Outcome;
use wakeq::notify::{Delivery, Notification, Notifier, Subscription};
use wakeq::workers::Verdict;
use wakeq::{
    CanvasId, Event, EventId, HandlerError, Handlers, QueueWorker, RetryPolicy, Route, Timing, WorkerConfig,
};

use crate::support::handlers::{Door, recording};
use crate::support::{Stage, Statements, capacity, quick, scope, stop_all, wait_while};

/// See also EV2-X11.
// Shows: EV2-24, EV2-50, EV2-53
#[tokio::test]
async fn malformed_notifications_are_acknowledged_and_ignored() {
    let (stage, notifier) = Stage::memory().await;
    let (mut worker, mut seen) = stage.recording("greet");
    for body in [&b""[..], b"{}", b"\xff\xfe", b"[1]", br#"{"id":"1","canvasID":"2"}"#] {
        notifier.inject(body);
    }
    let forged = Notification::new(EventId::new(), CanvasId(Uuid::new_v4()));
    notifier.publish(&[forged; 100]).await.unwrap();
    let id = stage.emit("greet").await;
    let real = Notification::new(id, CanvasId::DEFAULT);
    let of_another_canvas = Notification::new(id, forged.canvas);
    notifier.publish(&[real; 10]).await.unwrap();
    notifier.publish(&[of_another_canvas; 10]).await.unwrap();
    let missing = worker.until_count(100, Outcome::EventMissing).await;
    assert!(missing.iter().all(|report| report.verdict == Verdict::Acknowledged));
    assert_eq!(seen.next().await.id, id);
    notifier.drained().await;
    assert_eq!(worker.counters.malformed(), 5);
    assert_eq!(worker.counters.outcome(Outcome::LockClaimed), 1);
    assert_eq!((stage.rows().await, seen.rest().len()), (0, 0));
    worker.stop().await;
}

// Shows: EV2-04, EV2-33, EV2-50, CARD-04
#[tokio::test]
async fn a_notification_is_two_ids_and_nothing_else() {
    let (stage, notifier) = Stage::memory().await;
    let id: EventId = "01890a5d-ac96-774b-bcce-b302099a8057".parse().unwrap();
    let canvas: CanvasId = "6ba7b810-9dad-41d1-80b4-00c04fd430c8".parse().unwrap();
    let event = Event::new("greet", "value").unwrap().id(id).canvas(canvas);
    stage.queue.emit(event.after(std::time::Duration::from_secs(3)).unwrap()).await.unwrap();
    let bodies: Vec<_> = notifier.published().iter().map(Notification::body).collect();
    let golden =
        br#"{"id":"8ab8a2f3-9a82-8d4d-9893-aae3ba17a425","canvasID":"6ba7b810-9dad-41d1-80b4-00c04fd430c8"}"#;
    assert_eq!(bodies, [golden.to_vec()]);
}

// Shows: EV2-05
#[tokio::test]
async fn each_canvas_has_its_own_handler_of_a_name() {
    let (stage, _) = Stage::memory().await;
    let [one, other, third] = [(); 3].map(|()| CanvasId(Uuid::new_v4()));
    let (handler_of_one, mut seen_by_one) = recording();
    let (handler_of_other, mut seen_by_other) = recording();
    let (handler_of_all, mut seen_by_all) = recording();
    let handlers = Handlers::new()
        .on(Route::new("greet").canvas(one), handler_of_one)
        .on(Route::new("greet").canvas(other), handler_of_other)
        .on("greet", handler_of_all);
    let mut worker = stage.worker(handlers);
    for canvas in [one, other, third].repeat(5) {
        stage.queue.emit(Event::new("greet", "value").unwrap().canvas(canvas)).await.unwrap();
    }
    worker.until_count(15, Outcome::Deleted).await;
    for (canvas, seen) in [(one, &mut seen_by_one), (other, &mut seen_by_other), (third, &mut seen_by_all)] {
        let canvases: Vec<_> = seen.rest().into_iter().map(|event| event.address.scope.canvas).collect();
        assert_eq!(canvases, [canvas; 5]);
    }
    worker.stop().await;
}

/// A canvas's own handler keeps its limit, although the handler for every canvas has none.
#[tokio::test]
async fn a_limit_of_one_canvas_is_kept_beside_an_unlimited_handler_for_all() {
    let (stage, _) = Stage::memory().await;
    let canvas = CanvasId(Uuid::new_v4());
    let (narrow, mut door) = Door::new();
    let (wide, _seen) = recording();
    let handlers =
        Handlers::new().on(Route::new("greet").canvas(canvas).concurrency(1), narrow).on("greet", wide);
    let mut worker = stage.worker(handlers);
    let events = (0..5).map(|index| Event::new("greet", &index).unwrap().canvas(canvas)).collect();
    stage.queue.emit_all(events).await.unwrap();
    door.arrived.next().await;
    door.open(5);
    worker.until_count(5, Outcome::Deleted).await;
    assert_eq!(door.most(), 1);
    worker.stop().await;
}

/// No handler has this modifier; the event waits, is shown as such, and runs once a worker has one.
// Shows: EV2-31
#[tokio::test]
async fn an_event_without_a_handler_waits_for_one() {
    let timing = Timing { unknown_handler_wait: std::time::Duration::from_secs(300), ..quick() };
    let (stage, notifier) = Stage::memory_with(timing).await;
    let (handler, mut seen) = recording();
    let mut worker = stage.worker(Handlers::new().on("greet", handler.clone()));
    let id = stage.queue.emit(Event::new("greet", "x").unwrap().modifier("loud").unwrap()).await.unwrap().id;
    let report = worker.until(id, Outcome::Deferred).await;
    let expected = [
        Outcome::EventPresent,
        Outcome::DelayNone,
        Outcome::LockNone,
        Outcome::RuleNone,
        Outcome::HandlerUnknown,
        Outcome::Deferred,
    ];
    assert_eq!((report.trail.as_slice(), report.verdict), (&expected[..], Verdict::Acknowledged));
    notifier.drained().await;
    let stats = stage.admin.stats(&scope("greet")).await.unwrap().unwrap();
    assert_eq!((stats.waiting, stats.unknown_since.is_some()), (1, true));
    let live = stage.live(CanvasId::DEFAULT, id).await;
    assert!(live.unknown_since.is_some());
    let next = "waits for a worker that has its handler, or for a target to be registered; is retried \
                every few minutes";
    assert_eq!(live.next(), next);
    assert!(seen.rest().is_empty(), "the handler without the modifier is another one");

    // The first one would take half of the notifications, and still lack the handler.
    worker.stop().await;
    let mut other = stage.worker(Handlers::new().on(Route::new("greet").modifier("loud"), handler));
    other.until(id, Outcome::Deleted).await;
    assert_eq!(seen.next().await.id, id);
    assert!(stage.admin.handlers(CanvasId::DEFAULT, None, 10).await.unwrap().items.is_empty());
    other.stop().await;
}

// Shows: EV2-19
#[tokio::test]
async fn a_worker_takes_no_more_than_it_has_room_for() {
    let (stage, notifier) = Stage::memory().await;
    let (handler, mut door) = Door::new();
    stage.emit_many("greet", 15).await;
    let config = WorkerConfig { capacity: 3, prefetch: Some(2), ..Default::default() };
    let mut worker = stage.worker_with(Handlers::new().on("greet", handler), config);
    door.arrived.take(3).await;
    for left in (0..15).rev() {
        assert_eq!(notifier.unanswered() + notifier.pending(), left + 1);
        assert!(notifier.unanswered() <= 5, "nothing is taken while there is no room");
        door.open(1);
        door.left.next().await;
        worker.until_count(1, Outcome::Deleted).await;
    }
    assert_eq!(door.most(), 3);
    worker.stop().await;
}

/// A handler at its limit delays only its own events.
#[tokio::test]
async fn a_full_handler_does_not_hold_up_others() {
    let (stage, notifier) = Stage::memory().await;
    let (narrow, mut door) = Door::new();
    let (wide, mut seen) = recording();
    let handlers = Handlers::new().on(Route::new("narrow").concurrency(2), narrow).on("wide", wide);
    let mut worker = stage.worker_with(handlers, capacity(3));
    stage.emit_many("narrow", 8).await;
    stage.emit_many("wide", 8).await;
    assert_eq!(seen.take(8).await.len(), 8, "all of the other handler's, while this one is full");
    door.arrived.take(2).await;
    door.open(8);
    worker.until_count(16, Outcome::Deleted).await;
    assert_eq!(door.most(), 2);
    notifier.drained().await;
    worker.stop().await;
}

/// A claim is a time in the row, not a transaction or lock of Postgres.
// Shows: EV2-36
#[tokio::test]
async fn a_running_handler_holds_nothing_in_postgres() {
    let (stage, _) = Stage::memory().await;
    let (mut worker, mut door) = stage.door("greet");
    let id = stage.emit("greet").await;
    door.arrived.next().await;
    let held = "select (select count(*) from pg_stat_activity where datname = current_database()
                         and application_name = 'wakeq' and (xact_start is not null or state like 'idle in%'))
                     + (select count(*) from pg_locks l join pg_database d on d.oid = l.database
                         where d.datname = current_database() and l.pid <> pg_backend_pid())";
    // What started with the worker may still be in flight.
    wait_while!(stage.count(held).await > 0, "the worker holds a transaction or a lock");
    door.open(1);
    worker.until(id, Outcome::Deleted).await;
    worker.stop().await;
}

/// The row is written when it is claimed, retried and deleted, and never in between.
// Shows: EV2-20, EV2-37, EV2-46
#[tokio::test]
async fn a_row_is_written_only_by_claim_retry_and_delete() {
    let (stage, _) = Stage::memory().await;
    for statement in [
        "create table writes (at serial, what text, enqueued_at timestamptz)",
        "create function note() returns trigger language plpgsql as $$ begin
             insert into writes (what, enqueued_at) values (tg_op || ' ' || case tg_op when 'DELETE' then '' else
                 new.retries || ' ' || (new.locked_at is not null)::text || ' ' || new.claims end,
                 coalesce(new.enqueued_at, old.enqueued_at));
             return null; end $$",
        "create trigger note after insert or update or delete on wakeq.events_v2 for each row execute function note()",
    ] {
        stage.pool.run(statement).await;
    }
    let retry = RetryPolicy { delay: std::time::Duration::from_millis(50), ..Default::default() };
    let (mut worker, mut door) = stage.door(Route::new("greet").retry(retry));
    let id = stage.emit("greet").await;
    door.arrived.next().await;
    stage.notifier.publish(&[Notification::new(id, CanvasId::DEFAULT); 3]).await.unwrap();
    worker.until_count(3, Outcome::IsLocked).await;
    door.answer(Err(HandlerError::operational("not yet")));
    door.arrived.next().await;
    door.open(1);
    worker.until(id, Outcome::Deleted).await;
    let writes: Vec<String> = stage.pool.values("select what from writes order by at").await;
    let expected = ["INSERT 0 false 0", "UPDATE 0 true 1", "UPDATE 1 false 1", "UPDATE 1 true 2", "DELETE "];
    assert_eq!(writes, expected, "operation, retries, locked, claims");
    assert_eq!(stage.count("select count(distinct enqueued_at) from writes").await, 1);
    worker.stop().await;
}

/// EV2-57: even from several workers at once.
// Shows: EV2-44, EV2-64
#[tokio::test]
async fn many_deliveries_of_one_event_make_one_run() {
    let (stage, notifier) = Stage::memory_with(quick()).await;
    let (handler, mut door) = Door::new();
    let workers: Vec<_> =
        (0..4).map(|_| stage.worker(Handlers::new().on("greet", handler.clone()))).collect();
    let id = stage.emit("greet").await;
    notifier.publish(&[Notification::new(id, CanvasId::DEFAULT); 100]).await.unwrap();
    door.arrived.next().await;
    door.open(2);
    notifier.drained().await;
    let claims: u64 = workers.iter().map(|worker| worker.counters.outcome(Outcome::LockClaimed)).sum();
    assert_eq!((claims, door.arrived.rest().len(), stage.rows().await), (1, 0, 0));
    stop_all(workers).await;
}

// Shows: EV2-06
#[tokio::test]
async fn several_workers_share_the_work() {
    let (stage, _) = Stage::memory().await;
    let both = Arc::new(Barrier::new(2));
    let (handler, mut seen) = recording();
    let meeting = |count: usize| {
        let (both, handler) = (Arc::clone(&both), handler.clone());
        let first = Arc::new(std::sync::Once::new());
        let handlers = Handlers::new().on("greet", move |event| {
            let (both, handler, mut waits) = (Arc::clone(&both), handler.clone(), false);
            first.call_once(|| waits = true);
            async move {
                if waits {
                    both.wait().await;
                }
                handler(event).await
            }
        });
        stage.worker_with(handlers, capacity(count))
    };
    let (one, other) = (meeting(2), meeting(2));
    let emitted = stage.emit_many("greet", 200).await;
    let mut ran: Vec<_> = seen.take(200).await.into_iter().map(|event| event.id).collect();
    ran.sort();
    assert_eq!(ran, emitted);
    one.stop().await;
    other.stop().await;
}

fn dequeuing(stage: &Stage, handlers: Handlers) -> QueueWorker {
    let (store, notifier) = (stage.store.clone(), stage.notifier.clone());
    QueueWorker::new(store, notifier, handlers, WorkerConfig::default()).unwrap()
}

/// `dequeue` fetches one notification and runs the process.
// Shows: EV2-16, EV2-51
#[tokio::test]
async fn dequeue_runs_one_notification() {
    let (stage, notifier) = Stage::memory().await;
    let (handler, mut seen) = recording();
    let worker = dequeuing(&stage, Handlers::new().on("greet", handler));
    let mut subscription = notifier.subscribe(1).await.unwrap();
    notifier.inject(b"no notification");
    let ids = stage.emit_many("greet", 2).await;
    for (left, id) in [(1, ids[0]), (0, ids[1])] {
        let report = worker.dequeue(subscription.as_mut()).await.unwrap();
        assert_eq!((report.notification.id, report.trail.last()), (id, Some(&Outcome::Deleted)));
        assert_eq!(stage.rows().await, left);
        assert_eq!(seen.next().await.id, id);
    }
    notifier.drained().await;
    assert_eq!((worker.counters().malformed(), worker.counters().outcome(Outcome::Deleted)), (1, 2));
}

/// Without a parking lot, an event that is not due is put back, and nothing is lost.
// Shows: EV2-21, EV2-51
#[tokio::test]
async fn dequeue_puts_back_what_has_to_wait() {
    let (stage, notifier) = Stage::memory().await;
    let worker = dequeuing(&stage, Handlers::new().on("greet", recording().0));
    let mut subscription = notifier.subscribe(1).await.unwrap();
    let later = Event::new("greet", "x").unwrap().after(std::time::Duration::from_secs(100)).unwrap();
    let id = stage.queue.emit(later).await.unwrap().id;
    for _ in 0..2 {
        let report = worker.dequeue(subscription.as_mut()).await.unwrap();
        assert_eq!(report.trail, [Outcome::EventPresent, Outcome::DelayNotYet]);
        assert_eq!(notifier.pending(), 1);
    }
    stage.admin.run_now(wakeq::CanvasId::DEFAULT, id, &wakeq::Actor::user("ada")).await.unwrap();
    assert_eq!(worker.dequeue(subscription.as_mut()).await.unwrap().trail.last(), Some(&Outcome::Deleted));
}

/// Dequeuing ends with its subscription.
// Shows: EV2-51
#[tokio::test]
async fn dequeue_ends_with_its_subscription() {
    struct EndedSubscription;

    #[async_trait::async_trait]
    impl Subscription for EndedSubscription {
        async fn next(&mut self) -> Option<Delivery> {
            None
        }
        fn stop(&mut self) {}
        fn trouble(&self) -> Option<String> {
            None
        }
        async fn close(self: Box<Self>, _grace: std::time::Duration) {}
    }

    let (stage, _) = Stage::memory().await;
    assert!(dequeuing(&stage, Handlers::new()).dequeue(&mut EndedSubscription).await.is_none());
}
