//! Urgent events: they start although a backlog holds all other places, over every broker, and
//! whatever publishes them says that they are urgent.

use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;
use std::time::Duration;

use wakeq::control::DeadFilter;
use wakeq::notify::{LocalNotifier, Notifier, PostgresNotifier, PubSub, create_topics};
use wakeq::testing::MemoryNotifier;
use wakeq::workers::WorkerError;
use wakeq::{
    Actor, CanvasId, Event, EventId, HandlerError, Handlers, Queue, QueueConfig, QueueWorker, RetryPolicy,
    Route, Stop, WorkerConfig,
};
use wakeq_nats::{NatsConfig, NatsNotifier};
use wakeq_testbed::NatsServer;

use crate::support::brokers::Broker;
use crate::support::handlers::{Door, answering};
use crate::support::{
    OTHER, Stage, Statements, capacity, connect, database, once, promised_late, scope, until,
};

/// Far more than a worker holds.
const BACKLOG: usize = 300;
/// Urgent events of each of two canvases.
const ALARMS: usize = 5;

fn alarm(number: usize, canvas: CanvasId) -> Event {
    Event::new("alarm", &number).unwrap().canvas(canvas).urgent()
}

/// Events wait behind a door in every place that is not kept. Each urgent event fails once, and
/// completes when it is tried again: all of that happens in the one place that is kept, while the
/// door is closed. At first there is one canvas, so the worker leaves most of its events at the
/// broker and does not look what is behind them.
async fn runs_while_a_backlog_waits(stage: &Stage) {
    let (greet, mut door) = Door::new();
    let (alarms, mut seen) =
        answering(|event| if event.attempt == 1 { Err(HandlerError::operational("again")) } else { Ok(()) });
    let retry = RetryPolicy { retries: 1, delay: Duration::from_millis(1), ..RetryPolicy::default() };
    let handlers = Handlers::new().on("greet", greet).on(Route::new("alarm").retry(retry), alarms);
    stage.emit_many("greet", BACKLOG).await;
    let config = WorkerConfig { urgent_slots: 1, prefetch: Some(4), ..capacity(3) };
    let worker = stage.worker_with(handlers, config);
    door.arrived.take(2).await;
    for canvas in [CanvasId::DEFAULT, OTHER] {
        let events = (0..ALARMS).map(|number| alarm(number, canvas)).collect();
        let emitted = stage.queue.emit_all(events).await.unwrap();
        let ids: BTreeSet<EventId> = emitted.into_iter().map(|emitted| emitted.id).collect();
        let attempts = seen.take(2 * ids.len()).await;
        assert_eq!(attempts.iter().map(|attempt| attempt.id).collect::<BTreeSet<_>>(), ids);
    }
    let waiting = "select count(*) from wakeq.events_v2 where name = 'alarm'";
    until("they complete", async || (stage.count(waiting).await == 0).then_some(())).await;
    assert_eq!((door.most(), stage.rows().await), (2, BACKLOG as i64), "the others left the place free");
    door.open(BACKLOG);
    stage.until_empty().await;
    worker.stop().await;
}

// Shows: URG-01
#[tokio::test]
#[ignore = "long: `cargo xtask long` runs it"]
async fn they_run_while_a_backlog_waits_in_one_process() {
    for notifier in [Arc::new(LocalNotifier::new()) as Arc<dyn Notifier>, Arc::new(MemoryNotifier::new())] {
        runs_while_a_backlog_waits(&Stage::with(notifier, promised_late()).await).await;
    }
}

/// The queue emits with a notifier of its own, as in another process.
// Shows: URG-01
#[tokio::test]
async fn they_run_while_a_backlog_waits_over_postgres() {
    let database = database().await;
    let url = database.url().to_owned();
    let notifier = Arc::new(PostgresNotifier::new(&connect(&url, promised_late()).await));
    let mut stage = Stage::through(database, &url, notifier, promised_late()).await;
    let elsewhere = Arc::new(PostgresNotifier::new(&stage.store));
    stage.queue = Queue::new(stage.store.clone(), elsewhere, QueueConfig::default());
    // From now on, the worker's notifier keeps what it hears.
    let _listening = stage.notifier.subscribe_urgent(1).await.unwrap();
    runs_while_a_backlog_waits(&stage).await;
}

/// Over NATS, with a second stream. `None` if it is not installed.
pub(super) async fn nats(test: &str) -> Option<Arc<dyn Notifier>> {
    let server = NatsServer::shared().await.unwrap()?;
    let client = async_nats::connect(server.url()).await.unwrap();
    let mut config = NatsConfig::default();
    config.stream = format!("{test}-{}", std::process::id());
    config.urgent = true;
    Some(Arc::new(NatsNotifier::open(client, config).await.unwrap()))
}

// Shows: URG-01
#[tokio::test]
#[ignore = "long: `cargo xtask long` runs it"]
async fn they_run_while_a_backlog_waits_over_nats() {
    let Some(notifier) = nats("urgent").await else { return };
    runs_while_a_backlog_waits(&Stage::with(notifier, promised_late()).await).await;
}

/// Over Pub/Sub, with a second subscription. Each is made with its filter, and described without
/// differences.
pub(super) async fn pubsub(test: &str) -> Arc<dyn Notifier> {
    let mut config = Broker::pubsub_config(test).await;
    config.urgent_subscription = Some(format!("{}-urgent", config.subscription));
    for _ in 0..2 {
        let report = create_topics(&config).await.unwrap();
        let urgent = report.urgent.unwrap();
        assert!(urgent.name.ends_with("-urgent"), "{}", urgent.name);
        assert_eq!((report.differences, urgent.differences), (Vec::new(), Vec::new()));
    }
    Arc::new(PubSub::connect(config).await.unwrap())
}

// Shows: URG-01
#[tokio::test]
#[ignore = "long: `cargo xtask long` runs it"]
async fn they_run_while_a_backlog_waits_over_pubsub() {
    runs_while_a_backlog_waits(&Stage::with(pubsub("urgent").await, promised_late()).await).await;
}

/// What was published of this event since then.
fn published(notifier: &MemoryNotifier, since: usize, id: EventId) -> Vec<bool> {
    let all = notifier.published().split_off(since);
    all.into_iter().filter(|told| told.id == id).map(|told| told.urgent).collect()
}

/// An emit, an emit in a transaction, a pass, an operator's command, a lifted pause and a redrive
/// publish an urgent event as one, and the event beside it of another canvas as what it is.
// Shows: URG-03
#[tokio::test]
async fn whatever_publishes_them_says_so() {
    let (stage, notifier) = Stage::memory().await;
    let ada = Actor::user("ada");
    let usual = stage.queue.emit(Event::new("alarm", &1).unwrap().canvas(OTHER)).await.unwrap().id;
    let urgent = stage.queue.emit(alarm(0, CanvasId::DEFAULT)).await.unwrap().id;
    assert_eq!((published(&notifier, 0, usual), published(&notifier, 0, urgent)), (vec![false], vec![true]));
    let mut transaction = stage.pool.begin().await.unwrap();
    let receipt = stage.queue.emit_in(&mut transaction, alarm(2, CanvasId::DEFAULT)).await.unwrap();
    transaction.commit().await.unwrap();
    let inside = receipt.notify().await.id;
    assert_eq!(published(&notifier, 0, inside), [true]);

    let by_sql = r#"select event_id from wakeq.emit('alarm', '1', options => '{"urgent": true}')"#;
    let all = [urgent, inside, EventId(stage.pool.value(by_sql).await)];
    let looks = |what: &str, since: usize| {
        for id in all {
            assert_eq!(published(&notifier, since, id), [true], "{what}");
        }
        assert!(published(&notifier, since, usual).iter().all(|urgent| !urgent), "{what}");
    };
    let since = notifier.published().len();
    assert_eq!(stage.admin.wake(true).await.unwrap().woken, 4);
    looks("a pass", since);
    assert_eq!(published(&notifier, since, usual), [false]);

    let since = notifier.published().len();
    for id in all {
        stage.admin.run_now(CanvasId::DEFAULT, id, &ada).await.unwrap();
    }
    looks("run now", since);

    stage.admin.pause(&scope("alarm"), &ada, &Stop::default()).await.unwrap();
    let park = "update wakeq.events_v2 set notify_at = null where canvas_id = '00000000-0000-0000-0000-000000000000'";
    stage.execute(park).await;
    let since = notifier.published().len();
    stage.admin.unpause(&scope("alarm"), &ada).await.unwrap();
    until("it is woken", async || (notifier.published().len() >= since + 3).then_some(())).await;
    looks("unpause", since);

    let (dies, _) = answering(|_| Err(HandlerError::operational("no")));
    let worker = stage.worker(Handlers::new().on(once("alarm"), dies));
    stage.admin.wake(true).await.unwrap();
    stage.until_empty().await;
    worker.stop().await;
    let since = notifier.published().len();
    assert_eq!(stage.admin.redrive(&DeadFilter::default(), &ada, false).await.unwrap().count, 3);
    looks("a redrive", since);
}

/// The next event of an object is handed over within the worker, as what its row says.
// Shows: URG-03
#[tokio::test]
async fn the_next_of_an_object_is_urgent_if_its_row_is() {
    let (stage, _) = Stage::memory().await;
    let (greet, mut door) = Door::new();
    let mut expected = BTreeMap::new();
    for number in 0..3 {
        let (event, urgent) = (Event::new("greet", &number).unwrap().on("cart").unwrap(), number == 1);
        let emitted = stage.queue.emit(if urgent { event.urgent() } else { event }).await.unwrap();
        expected.insert(emitted.id, urgent);
    }
    let mut worker = stage.worker(Handlers::new().on("greet", greet));
    door.open(3);
    door.arrived.take(3).await;
    // The next event may have run before the look for it, and so the report of the one before it,
    // is over: reports come in no order.
    let mut urgent = BTreeMap::new();
    while urgent.len() < 3 {
        let report = worker.report().await;
        if report.attempt.is_some() {
            urgent.insert(report.notification.id, report.notification.urgent);
        }
    }
    assert_eq!(urgent, expected);
    stage.until_empty().await;
    worker.stop().await;
}

/// The notification does not name the route: the worker looks for it among what waits, of each
/// canvas.
#[tokio::test]
async fn a_route_makes_its_events_urgent_within_the_worker() {
    let (stage, notifier) = Stage::memory_with(promised_late()).await;
    let (greet, mut door) = Door::new();
    let (codes, mut seen) = answering(|_| Ok(()));
    stage.emit_many("greet", 100).await;
    let handlers = Handlers::new().on("greet", greet).on(Route::new("code").urgent(), codes);
    let config = WorkerConfig { urgent_slots: 1, prefetch: Some(1_000), ..capacity(2) };
    let worker = stage.worker_with(handlers, config);
    door.arrived.next().await;
    let mut ids = Vec::new();
    for canvas in [CanvasId::DEFAULT, OTHER] {
        ids.push(stage.queue.emit(Event::new("code", &1).unwrap().canvas(canvas)).await.unwrap().id);
    }
    let mut ran: Vec<EventId> = seen.take(2).await.iter().map(|event| event.id).collect();
    ran.sort();
    assert_eq!((ran, door.most()), (ids, 1), "in the place that is kept");
    assert!(notifier.published().iter().all(|told| !told.urgent));
    door.open(100);
    stage.until_empty().await;
    worker.stop().await;
}

#[tokio::test]
async fn a_worker_needs_places_that_are_not_kept() {
    let (stage, notifier) = Stage::memory().await;
    for (kept, is_refused) in [(0, false), (3, false), (4, true), (5, true)] {
        let config = WorkerConfig { urgent_slots: kept, ..capacity(4) };
        let made = QueueWorker::new(stage.store.clone(), notifier.clone(), Handlers::new(), config);
        match made.err() {
            None => assert!(!is_refused, "{kept}"),
            Some(WorkerError::Config(words)) => assert!(is_refused && words.contains("urgent_slots")),
            Some(other) => panic!("{other}"),
        }
    }
}
