//! A store on a pool that its program has made, and uses as well.

use std::time::Duration;

use sqlx::PgPool;
use sqlx::postgres::{PgConnectOptions, PgPoolOptions};
use wakeq::control::Quota;
use wakeq::machine::Outcome;
use wakeq::{
    Actor, Admin, CanvasId, EmitError, Event, Handlers, Queue, QueueConfig, Store, StoreConfig, StoreError,
    WorkerConfig,
};

use crate::support::handlers::{Door, recording};
use crate::support::{OTHER, RunningWorker, Stage, Statements, TIMEOUT, fit, quick, wait_while};

/// Longer than any test waits for a statement.
const LONG: Duration = Duration::from_secs(3_600);

/// For a pool that connects directly, whatever the other tests do.
fn config() -> StoreConfig {
    StoreConfig { transaction_pooler: false, ..fit(StoreConfig::default()) }
}

/// A pool with this many connections, and the store on it.
async fn shared(stage: &Stage, config: StoreConfig, connections: u32) -> (PgPool, Store) {
    let options = config.pool_options().max_connections(connections);
    let pool = options.connect(stage.database.url()).await.unwrap();
    let store = Store::from_pool(pool.clone(), config).await.unwrap();
    (pool, store)
}

/// An event is written in the program's transaction, and run by statements on the same connections.
#[tokio::test]
async fn a_queue_works_on_the_pool_of_its_program() {
    let (stage, _) = Stage::memory_with(quick()).await;
    let (pool, store) = shared(&stage, config(), 2).await;
    let queue = Queue::new(store.clone(), stage.notifier.clone(), QueueConfig::default());
    let (handler, mut seen) = recording();
    let handlers = Handlers::new().on("greet", handler);
    let mut worker =
        RunningWorker::start(store.clone(), stage.notifier.clone(), handlers, WorkerConfig::default());
    for canvas in [CanvasId::DEFAULT, OTHER] {
        let mut transaction = pool.begin().await.unwrap();
        let event = Event::new("greet", "Ada").unwrap().canvas(canvas);
        let receipt = queue.emit_in(&mut transaction, event).await.unwrap();
        transaction.commit().await.unwrap();
        receipt.notify().await;
        worker.until_count(1, Outcome::Deleted).await;
        assert_eq!(seen.next().await.address.scope.canvas, canvas);
    }
    worker.stop().await;
    store.close().await;
    assert!(queue.emit(Event::new("greet", "Bo").unwrap()).await.is_ok(), "the pool is open");
    assert_eq!(pool.value::<i32>("select 1").await, 1);
}

/// Nothing is changed in a session that lacks settings: others use it.
#[tokio::test]
async fn a_pool_without_the_settings_is_refused() {
    let (stage, _) = Stage::memory().await;
    let plain = PgPoolOptions::new().max_connections(1).connect(stage.database.url()).await.unwrap();
    let error = Store::from_pool(plain.clone(), config()).await.unwrap_err();
    let words = error.to_string();
    assert!(matches!(error, StoreError::PoolSettings { .. }), "{words}");
    for part in ["lock_timeout is 0, not 200", "enable_seqscan is on, not off", "StoreConfig::pool_options"] {
        assert!(words.contains(part), "{words}");
    }
    let seqscan = "select setting from pg_catalog.pg_settings where name = 'enable_seqscan'";
    assert_eq!(plain.value::<String>(seqscan).await, "on");

    let pool = config().pool_options().connect(stage.database.url()).await.unwrap();
    let other = StoreConfig { lock_timeout: Duration::from_secs(1), ..config() };
    let error = Store::from_pool(pool, other).await.unwrap_err();
    let StoreError::PoolSettings { lacking } = &error else { panic!("{error}") };
    assert_eq!(lacking, "lock_timeout is 200, not 1000");
}

/// A pool may have an `after_connect` of its own, and a name.
#[tokio::test]
async fn a_pool_prepares_its_sessions_itself() {
    let (stage, _) = Stage::memory().await;
    let name = "select current_setting('application_name')";
    for (given, expected) in [(None, "wakeq"), (Some("shop"), "shop")] {
        let options: PgConnectOptions = stage.database.url().parse().unwrap();
        let options = given.into_iter().fold(options, PgConnectOptions::application_name);
        let pool = PgPoolOptions::new().max_connections(1).after_connect(|connection, _| {
            Box::pin(async move {
                sqlx::query("set search_path to app").execute(&mut *connection).await?;
                config().prepare_session(connection).await
            })
        });
        let pool = pool.connect_with(options).await.unwrap();
        let store = Store::from_pool(pool.clone(), config()).await.unwrap();
        let queue = Queue::new(store, stage.notifier.clone(), QueueConfig::default());
        queue.emit(Event::new("greet", "Ada").unwrap()).await.unwrap();
        assert_eq!(pool.value::<String>("select current_setting('search_path')").await, "app");
        assert_eq!(pool.value::<String>(name).await, expected);
    }
    assert_eq!(stage.rows().await, 2);
}

/// The program may hold all connections for longer than a lease.
#[tokio::test]
async fn leases_are_renewed_beside_the_pool() {
    let (stage, _) = Stage::memory_with(quick()).await;
    let (pool, store) = shared(&stage, config(), 2).await;
    let (handler, mut door) = Door::new();
    let handlers = Handlers::new().on("greet", handler);
    let mut worker = RunningWorker::start(store, stage.notifier.clone(), handlers, WorkerConfig::default());
    let id = stage.emit("greet").await;
    let claimed_at = door.arrived.next().await.claimed_at;
    let held = [pool.acquire().await.unwrap(), pool.acquire().await.unwrap()];
    let renewed = async || -> bool {
        let query = sqlx::query_scalar("select locked_at > $2 from wakeq.events_v2 where id = $1");
        query.bind(id.0).bind(claimed_at + quick().lease).fetch_one(&stage.pool).await.unwrap()
    };
    wait_while!(!renewed().await, "the lease was not renewed");
    drop(held);
    door.open(1);
    worker.until(id, Outcome::Deleted).await;
    assert_eq!(door.left.rest(), [true], "it ran once");
    worker.stop().await;
}

/// The transaction in which events are written may have the pool's only connection.
#[tokio::test]
async fn quotas_are_measured_beside_the_pool() {
    let (stage, _) = Stage::memory().await;
    let (pool, store) = shared(&stage, config(), 1).await;
    let queue = Queue::new(store.clone(), stage.notifier.clone(), QueueConfig::default());
    let admin = Admin::new(store.clone(), stage.notifier.clone());
    let event = |canvas| Event::new("greet", "Ada").unwrap().canvas(canvas);
    queue.emit(event(CanvasId::DEFAULT)).await.unwrap();
    // From here on a measurement is needed before anything is added.
    admin.set_quota(CanvasId::DEFAULT, Quota::Events, 1, &Actor::admin("ops")).await.unwrap();
    let mut transaction = pool.begin().await.unwrap();
    let refused = queue.emit_in(&mut transaction, event(CanvasId::DEFAULT)).await;
    let refused = refused.map(|receipt| receipt.id());
    assert!(matches!(refused, Err(EmitError::Store(StoreError::Quota(_)))), "{refused:?}");
    let receipt = queue.emit_in(&mut transaction, event(OTHER)).await.unwrap();
    transaction.commit().await.unwrap();
    receipt.notify().await;
    assert_eq!(stage.rows().await, 2);
    store.close().await;
}

/// However long the pool lets its program wait.
#[tokio::test]
async fn a_statement_waits_for_the_pool_no_longer_than_for_its_answer() {
    let (stage, _) = Stage::memory().await;
    let config = StoreConfig { statement_timeout: Duration::from_secs(1), ..config() };
    let options = config.pool_options().max_connections(1).acquire_timeout(LONG);
    let pool = options.connect(stage.database.url()).await.unwrap();
    let store = Store::from_pool(pool.clone(), config).await.unwrap();
    let queue = Queue::new(store, stage.notifier.clone(), QueueConfig::default());
    let held = pool.acquire().await.unwrap();
    let emitting = queue.emit(Event::new("greet", "Ada").unwrap());
    let emitted =
        tokio::time::timeout(TIMEOUT, emitting).await.expect("it waits as long as the pool lets it");
    let error = emitted.unwrap_err();
    assert!(matches!(error, EmitError::Store(StoreError::Unavailable(_))), "{error}");
    drop(held);
    queue.emit(Event::new("greet", "Ada").unwrap()).await.unwrap();
    assert_eq!(stage.rows().await, 1);
}
