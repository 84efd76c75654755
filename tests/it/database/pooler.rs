//! A real pgbouncer in transaction mode: each transaction may run in another session.

use std::collections::BTreeMap;
use std::sync::Arc;
use std::time::Duration;

use sqlx::postgres::PgConnectOptions;
use sqlx::{AssertSqlSafe, Connection, PgConnection, PgPool};
use wakeq::database::RoleKind;
use wakeq::notify::{Notifier, PostgresNotifier};
use wakeq::testing::MemoryNotifier;
use wakeq::{
    Actor, Admin, CanvasId, Event, HandlerError, Handlers, Queue, QueueConfig, RetryPolicy, Route, Stop,
    Store, StoreConfig, StoreError, WorkerConfig,
};
use wakeq_testbed::{Cluster, PgBouncer, PgBouncerOptions};

use crate::admin::doctor::doctor;
use crate::support::handlers::answering;
use crate::support::{OTHER, RunningWorker, Statements, cluster, fit, quick, scope, stop_all, until};

const ROLE: &str = "app";
/// The role after a rotation.
const NEXT: &str = "next";
/// Events of each kind and canvas, and the objects that those in order are on.
const EACH: i64 = 200;
const OBJECTS: i64 = 10;
/// Fewer server connections than one store opens.
const OPTIONS: PgBouncerOptions = PgBouncerOptions { pool_size: 3, max_prepared_statements: 200 };

/// A database with a role that may do everything, and a pooler before it.
struct Pooled {
    cluster: Cluster,
    pooler: PgBouncer,
    owner: PgPool,
}

impl Pooled {
    async fn open(options: PgBouncerOptions) -> Option<Self> {
        let cluster = cluster("a test of a pooler").await?;
        let owner = cluster.url("postgres");
        Store::migrate(&owner, false).await.unwrap();
        let pool = PgPool::connect(&owner).await.unwrap();
        pool.run("create role app login").await;
        pool.run("create role next login").await;
        for (role, kind) in [(ROLE, RoleKind::Api), (ROLE, RoleKind::Worker), (NEXT, RoleKind::Api)] {
            Store::grant_rights(&owner, &StoreConfig::default(), role, kind).await.unwrap();
        }
        let pooler = start(&cluster, options).await?;
        Some(Self { cluster, pooler, owner: pool })
    }

    async fn connect(&self) -> Result<Store, StoreError> {
        Store::connect(&self.pooler.url(ROLE, "postgres"), config()).await
    }

    /// Runs the statements of the refusal as the role itself, and lets the pooler connect anew.
    async fn give_settings(mut self) -> Self {
        let Err(StoreError::RoleSettings { statements }) = self.connect().await else {
            panic!("the role has the settings");
        };
        self.give(ROLE, statements).await;
        self
    }

    async fn give(&mut self, role: &str, statements: String) {
        let directly = self.cluster.url("postgres").replace("postgres@", &format!("{role}@"));
        let mut session = PgConnection::connect(&directly).await.unwrap();
        sqlx::raw_sql(AssertSqlSafe(statements)).execute(&mut session).await.unwrap();
        self.pooler = start(&self.cluster, OPTIONS).await.unwrap();
    }

    fn options(&self, role: &str) -> PgConnectOptions {
        self.pooler.url(role, "postgres").parse().unwrap()
    }
}

async fn start(cluster: &Cluster, options: PgBouncerOptions) -> Option<PgBouncer> {
    PgBouncer::start_if_installed(cluster, &[ROLE, NEXT], options, "a test of a pooler").await.unwrap()
}

fn config() -> StoreConfig {
    fit(StoreConfig { transaction_pooler: true, timing: Some(quick()), ..StoreConfig::default() })
}

/// Two workers and an emitter have at most three sessions between them: order, retries, a pause and
/// its end, on two canvases.
#[tokio::test]
#[ignore = "long: `cargo xtask long` runs it"]
async fn workers_run_through_a_pooler_in_transaction_mode() {
    let Some(pooled) = Pooled::open(OPTIONS).await else { return };
    let pooled = pooled.give_settings().await;
    let notifier: Arc<dyn Notifier> = Arc::new(MemoryNotifier::new());
    let store = pooled.connect().await.unwrap();
    assert_eq!(store.settings_lacking().await.unwrap(), [""; 0]);
    let queue = Queue::new(store.clone(), notifier.clone(), QueueConfig::default());
    let admin = Admin::new(store, notifier.clone());

    let (handler, mut seen) = answering(|event| match event.attempt {
        1 => Err(HandlerError::operational("once more")),
        _ => Ok(()),
    });
    let mut workers = Vec::new();
    for _ in 0..2 {
        let at_once = RetryPolicy { delay: Duration::ZERO, ..RetryPolicy::default() };
        let handlers = Handlers::new()
            .on(Route::new("ordered").retry(at_once), handler.clone())
            .on("paused", async |_| Ok(()));
        let store = pooled.connect().await.unwrap();
        workers.push(RunningWorker::start(store, notifier.clone(), handlers, WorkerConfig::default()));
    }
    let ada = Actor::user("ada");
    admin.pause(&scope("paused"), &ada, &Stop::default()).await.unwrap();
    let event = |name, canvas, number: i64| Event::new(name, &number).unwrap().canvas(canvas);
    let mut events = Vec::new();
    for canvas in [CanvasId::DEFAULT, OTHER] {
        let ordered = (0..EACH).map(|number| {
            event("ordered", canvas, number).on(&format!("object-{}", number % OBJECTS)).unwrap()
        });
        events.extend(ordered);
        events.extend((0..EACH).map(|number| event("paused", canvas, number)));
    }
    queue.emit_all(events).await.unwrap();

    // The other canvas is not paused.
    let left = |count: i64| format!("select -abs(count(*) - {count}) from wakeq.events_v2");
    until_zero(&pooled.owner, left(EACH)).await;
    admin.unpause(&scope("paused"), &ada).await.unwrap();
    until_zero(&pooled.owner, left(0)).await;
    let sessions = "select count(*) from pg_stat_activity where usename = 'app'";
    assert!(pooled.owner.value::<i64>(sessions).await <= i64::from(OPTIONS.pool_size));

    let mut last = BTreeMap::new();
    for _ in 0..2 * 2 * EACH {
        let run = seen.next().await;
        let place = run.place.clone().expect("it is on an object");
        let number: i64 = run.value().unwrap();
        let before = last.insert((run.address.scope.canvas, place.object), (number, run.attempt));
        let expected = match run.attempt {
            1 => before.is_none_or(|(before, attempt)| before == number - OBJECTS && attempt == 2),
            _ => before == Some((number, 1)),
        };
        assert!(expected, "{number}, attempt {} after {before:?}", run.attempt);
    }
    assert_eq!(last.len(), 2 * OBJECTS as usize);
    stop_all(workers).await;
}

/// Waits until a count, which must not be positive, is zero.
async fn until_zero(pool: &PgPool, query: String) {
    until("the rows are as expected", async || {
        let found: i64 = sqlx::query_scalar(AssertSqlSafe(query.clone())).fetch_one(pool).await.unwrap();
        (found == 0).then_some(())
    })
    .await;
}

#[tokio::test]
async fn a_role_without_the_settings_that_a_pooler_needs_is_refused() {
    let Some(pooled) = Pooled::open(OPTIONS).await else { return };
    let Err(error @ StoreError::RoleSettings { .. }) = pooled.connect().await else {
        panic!("the role has no settings");
    };
    let words = error.to_string();
    for setting in ["statement_timeout", "lock_timeout", "enable_seqscan", "jit"] {
        let statement = format!("alter role app in database postgres set {setting} = ");
        assert!(words.contains(&statement), "{words}");
    }
    let url = pooled.pooler.url(ROLE, "postgres");
    let error = Store::migrate_with(&url, false, &config()).await.unwrap_err();
    assert!(error.to_string().contains("connect directly"), "{error}");

    let pooled = pooled.give_settings().await;
    let other = StoreConfig { lock_timeout: Duration::from_secs(1), ..config() };
    let Err(StoreError::RoleSettings { statements }) =
        Store::connect(&pooled.pooler.url(ROLE, "postgres"), other).await
    else {
        panic!("the role has another time limit");
    };
    assert_eq!(statements, "alter role app in database postgres set lock_timeout = '1000';");
    let notifier = PostgresNotifier::new(&pooled.connect().await.unwrap());
    let error = notifier.subscribe(10).await.err().expect("it can't listen");
    let reason = std::error::Error::source(&error).expect("the store's reason").to_string();
    assert!(reason.contains("LISTEN"), "{reason}");
}

/// A rotation to another role: its settings are checked before it is used, those of the same role
/// are not again.
#[tokio::test]
#[ignore = "long: `cargo xtask long` runs it"]
async fn another_role_needs_the_settings_as_well() {
    let Some(pooled) = Pooled::open(OPTIONS).await else { return };
    let mut pooled = pooled.give_settings().await;
    let store = pooled.connect().await.unwrap();
    let Err(StoreError::RoleSettings { statements }) = store.set_connect_options(pooled.options(NEXT)).await
    else {
        panic!("the next role has the settings");
    };
    assert!(statements.starts_with("alter role next in database postgres set "), "{statements}");
    let used = "select count(*) from pg_stat_activity where usename = 'next' and query ilike '%insert%'";
    let queue = Queue::new(store.clone(), Arc::new(MemoryNotifier::new()), QueueConfig::default());
    queue.emit(Event::new("rotated", &1).unwrap()).await.unwrap();
    assert_eq!(pooled.owner.value::<i64>(used).await, 0, "nothing was changed");

    pooled.give(NEXT, statements).await;
    store.set_connect_options(pooled.options(NEXT)).await.unwrap();
    // Its connections to the pooler that is gone are replaced as they fail.
    until("the next role emits", async || {
        let _ = queue.emit(Event::new("rotated", &2).unwrap()).await;
        (pooled.owner.value::<i64>(used).await > 0).then_some(())
    })
    .await;
    let password = pooled.options(NEXT).password("another");
    let elsewhere = password.clone().port(1);
    drop(pooled);
    store.set_connect_options(password).await.expect("the password of a role is not checked");
    let error = store.set_connect_options(elsewhere).await.unwrap_err();
    assert!(matches!(error, StoreError::Unavailable(_)), "{error}");
}

#[tokio::test]
async fn the_doctor_goes_on_where_the_role_lacks_settings() {
    let Some(pooled) = Pooled::open(OPTIONS).await else { return };
    let look = async |pooled: &Pooled| {
        doctor(&pooled.pooler.url(ROLE, "postgres"), None, &["--transaction-pooler"]).await
    };
    let found = look(&pooled).await;
    found.says("pooler", "fail", "no process starts");
    for setting in ["statement_timeout", "jit"] {
        let statement = format!("alter role app in database postgres set {setting} = ");
        assert!(found.mend("pooler").contains(&statement), "{}", found.mend("pooler"));
    }
    found.says("connections", "ok", "for the pooler");
    found.says("rights", "ok", "app has what");
    assert_eq!(found.bad("fail"), ["pooler", "Pub/Sub"]);
    let found = look(&pooled.give_settings().await).await;
    found.says("pooler", "ok", "announced");
    assert_eq!(found.bad("fail"), ["Pub/Sub"]);
}

#[tokio::test]
async fn a_pooler_that_forgets_prepared_statements_is_named() {
    // One server connection, or the pooler may open a second one, which has no statement yet.
    let options = PgBouncerOptions { pool_size: 1, max_prepared_statements: 0 };
    let Some(pooled) = Pooled::open(options).await else { return };
    let options = pooled.options(ROLE).extra_float_digits(None);
    let mut first = PgConnection::connect_with(&options).await.unwrap();
    sqlx::query("select 1").execute(&mut first).await.unwrap();
    let error = pooled.connect().await.unwrap_err();
    assert!(
        matches!(error, StoreError::Config(words) if words.contains("max_prepared_statements")),
        "{error}"
    );
}
