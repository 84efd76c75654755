//! Roles of the database that may only connect, or only emit, where Postgres is the notifier: they
//! hear nothing, and nobody hears them.

use std::sync::Arc;
use std::time::Duration;

use serde_json::json;
use sqlx::postgres::{PgListener, PgPool};
use tokio::time::timeout;
use uuid::Uuid;
use wakeq::listeners::{ListenItem, Listener};
use wakeq::notify::{Notifier, PostgresNotifier};
use wakeq::{CanvasId, Event, Queue, QueueConfig, Timing};
use wakeq_testbed::TestDatabase;

use super::every_notifier::{TIMEOUT, acknowledge_next, notifications};
use crate::support::{OTHER, Statements, connect, database, login, wait_while};

/// What a stranger may guess.
const GUESSES: [&str; 6] =
    ["wakeq", "wakeq_broadcasts", "wakeq_signals", "wakeq_notifications", "notifications", "public"];

/// The names as an administrator sees them; nobody else does.
const NAMES: &str =
    "select distinct substring(query from '^LISTEN \"(wakeq_[0-9a-f]{32})\"$') from pg_stat_activity
     where query ~ '^LISTEN \"wakeq_[0-9a-f]{32}\"$' and datname = current_database()";

/// A deployment with a worker and a listener of another tenant, and two roles that may not hear
/// them: one that connects, one that emits on its own canvas.
struct Deployment {
    database: TestDatabase,
    sql: PgPool,
    queue: Queue,
    notifier: Arc<PostgresNotifier>,
    heard: Listener,
    strangers: Vec<PgPool>,
}

impl Deployment {
    async fn open() -> Self {
        let database = database().await;
        let sql = PgPool::connect(database.url()).await.unwrap();
        let store = connect(database.url(), Timing::default()).await;
        let notifier = Arc::new(PostgresNotifier::broadcasting(&store));
        let queue = Queue::new(store, notifier.clone(), QueueConfig::default());
        let heard = notifier.broadcasts().unwrap().subscribe_on(&[OTHER], "*").await.unwrap();
        let mut strangers = Vec::new();
        for name in ["stranger", "shop"] {
            let (role, url) = login(&database, name).await;
            if name == "shop" {
                let grants = format!(
                    "grant usage on schema wakeq to {role}; grant execute on function wakeq.emit to {role};
                     insert into wakeq.emitters (role, canvas_id) values ('{role}', '{}')",
                    CanvasId::DEFAULT
                );
                sqlx::raw_sql(sqlx::AssertSqlSafe(grants)).execute(&sql).await.unwrap();
            }
            strangers.push(PgPool::connect(&url).await.unwrap());
        }
        Self { database, sql, queue, notifier, heard, strangers }
    }

    /// What the other tenant's listener hears next.
    async fn value(&mut self) -> Option<String> {
        match timeout(TIMEOUT, self.heard.next()).await.unwrap() {
            Some(ListenItem::Event(event)) => event.value,
            missed => panic!("{missed:?}"),
        }
    }

    async fn emit(&self, value: &str) {
        let event = Event::new("pay", &json!({ "card": value })).unwrap().canvas(OTHER);
        self.queue.emit(event).await.unwrap();
    }
}

async fn notify(stranger: &PgPool, channel: &str, payload: &str) {
    sqlx::query("select pg_notify($1, $2)").bind(channel).bind(payload).execute(stranger).await.unwrap();
}

/// All that a stranger hears before this word of its own.
async fn heard_before(listener: &mut PgListener, stranger: &PgPool, word: &str) -> Vec<String> {
    notify(stranger, "marker", word).await;
    let mut heard = Vec::new();
    loop {
        let notification = timeout(TIMEOUT, listener.recv()).await.expect("its own word").unwrap();
        if notification.payload() == word {
            return heard;
        }
        heard.push(notification.payload().to_owned());
    }
}

#[tokio::test]
async fn a_role_that_may_only_connect_or_emit_hears_nothing() {
    let mut deployment = Deployment::open().await;
    let mut subscription = deployment.notifier.subscribe(100).await.unwrap();
    let mut listeners = Vec::new();
    for stranger in &deployment.strangers {
        let mut listener = PgListener::connect_with(stranger).await.unwrap();
        listener.listen_all(GUESSES.into_iter().chain(["marker"])).await.unwrap();
        listeners.push(listener);
        let names: Vec<Option<String>> = sqlx::query_scalar(NAMES).fetch_all(stranger).await.unwrap();
        assert!(names.is_empty(), "it sees what others listen on: {names:?}");
        let secret = sqlx::query("select notice_secret from wakeq.deployment").fetch_one(stranger).await;
        assert!(secret.unwrap_err().to_string().contains("permission denied"));
    }
    for value in ["4111", "4112"] {
        deployment.emit(value).await;
        assert_eq!(deployment.value().await, Some(format!("{{\"card\":\"{value}\"}}")));
        acknowledge_next(&mut *subscription).await;
    }
    let strangers = deployment.strangers.clone();
    for (listener, stranger) in listeners.iter_mut().zip(&strangers) {
        assert_eq!(heard_before(listener, stranger, "the end").await, [""; 0]);
    }
}

/// Even one that learned a name hears only bytes: the ids and values in them are sealed.
#[tokio::test]
async fn a_name_that_leaked_tells_nothing() {
    let mut deployment = Deployment::open().await;
    let mut subscription = deployment.notifier.subscribe(100).await.unwrap();
    let far = connect(deployment.database.url(), Timing::default()).await;
    let far = PostgresNotifier::new(&far);
    let names: Vec<String> = deployment.sql.values(NAMES).await;
    assert_eq!(names.len(), 2, "{names:?}");
    let stranger = deployment.strangers[0].clone();
    let mut listener = PgListener::connect_with(&stranger).await.unwrap();
    listener.listen_all(names.iter().map(String::as_str).chain(["marker"])).await.unwrap();
    let sent = notifications(1);
    far.publish(&sent).await.unwrap();
    acknowledge_next(&mut *subscription).await;
    deployment.emit("4111").await;
    deployment.value().await;
    let heard = heard_before(&mut listener, &stranger, "the end").await;
    assert!(heard.len() >= 2, "{heard:?}");
    for payload in &heard {
        assert!(!payload.contains("4111") && !payload.contains(&sent[0].id.to_string()), "{payload}");
        let is_base64 = |byte: u8| byte.is_ascii_alphanumeric() || b"+/".contains(&byte);
        assert!(payload.bytes().all(is_base64), "{payload}");
    }
}

/// What the messages were before they were sealed, and what a stranger might try.
fn forgeries() -> Vec<String> {
    let (worker, event) = (Uuid::new_v4(), Uuid::new_v4());
    let broadcast = json!({
        "id": event, "canvasID": OTHER, "module": "WORKER", "name": "refund", "modifier": "_",
        "value": { "eur": 1_000_000 },
        "traceparent": "00-4bf92f3577b34da6a3ce929d0e0e4736-00f067aa0ba902b7-01",
    });
    let mut all = vec![broadcast.to_string(), "* not a message".to_owned(), "A".repeat(7_999)];
    all.extend(["hello", "here", "bye"].map(|news| json!({ "from": worker, "news": news }).to_string()));
    all.push(json!({ "from": worker, "news": { "wake": { OTHER.to_string(): [event] } } }).to_string());
    all
}

/// Forged on every name that it can guess, and even on the true ones: nobody hears it, and a flood
/// of it holds up nobody's events.
#[tokio::test]
async fn forged_notices_of_a_stranger_are_not_heard() {
    let mut deployment = Deployment::open().await;
    let mut subscription = deployment.notifier.subscribe(100).await.unwrap();
    let names: Vec<String> = deployment.sql.values(NAMES).await;
    assert_eq!(names.len(), 2, "the notifications and the broadcasts");
    for stranger in &deployment.strangers {
        for channel in GUESSES.into_iter().chain(names.iter().map(String::as_str)) {
            for forgery in forgeries() {
                notify(stranger, channel, &forgery).await;
            }
            let flood = "select count(pg_notify($1, repeat('A', 7000) || g)) from generate_series(1, 300) g";
            sqlx::query(flood).bind(channel).execute(stranger).await.unwrap();
        }
    }
    deployment.emit("4111").await;
    assert_eq!(deployment.value().await, Some("{\"card\":\"4111\"}".to_owned()), "and not the forged one");
    let sent = notifications(50);
    deployment.notifier.publish(&sent).await.unwrap();
    let mut received = Vec::new();
    for _ in 0..51 {
        received.push(acknowledge_next(&mut *subscription).await);
    }
    assert!(sent.iter().all(|sent| received.contains(&sent.id)));
    assert_eq!(subscription.trouble(), None);
    assert!(timeout(Duration::from_millis(50), subscription.next()).await.is_err(), "nothing was forged");
}

/// The secret is replaced while processes listen: with their next connection they know it, and what
/// was made with the old one is nobody's.
#[tokio::test]
async fn the_secret_may_be_replaced() {
    let deployment = Deployment::open().await;
    let mut subscription = deployment.notifier.subscribe(100).await.unwrap();
    let before: Vec<String> = deployment.sql.values(NAMES).await;
    deployment.sql.run("update wakeq.deployment set notice_secret = default").await;
    deployment
        .sql
        .run("select pg_terminate_backend(pid) from pg_stat_activity where query like 'LISTEN%' and datname = current_database()")
        .await;
    wait_while!(
        deployment.sql.values::<String>(NAMES).await.iter().filter(|name| !before.contains(name)).count() < 2,
        "it listens to the new channels"
    );
    let far = connect(deployment.database.url(), Timing::default()).await;
    let sent = notifications(1);
    PostgresNotifier::new(&far).publish(&sent).await.unwrap();
    assert_eq!(acknowledge_next(&mut *subscription).await, sent[0].id);
}
