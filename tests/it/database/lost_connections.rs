//! A process whose connections to the database die: it ends when it is told to, and finds what it
//! missed.

use std::sync::Arc;

use sqlx::PgPool;
use tokio::net::TcpListener;
use wakeq::machine::Outcome;
use wakeq::notify::PostgresNotifier;
use wakeq::{Event, Handlers, Queue, QueueConfig, WorkerConfig};

use crate::processes::work::Process;
use crate::support::handlers::recording;
use crate::support::wire::Wire;
use crate::support::{
    OTHER, RunningWorker, Statements, TIMEOUT, connect, database, promised_late, wait_while,
};

const LISTENING: &str = "select count(*) from pg_stat_activity where query like 'LISTEN%' and state = 'idle' and datname = current_database()";

/// Its promise would come later than this test waits.
#[tokio::test]
async fn what_was_missed_in_an_interruption_starts_before_its_promise() {
    let database = database().await;
    let wire = Wire::to(&database).await;
    let store = connect(&wire.url, promised_late()).await;
    let notifier = Arc::new(PostgresNotifier::new(&store));
    let (handler, mut seen) = recording();
    let handlers = Handlers::new().on("greet", handler);
    let mut worker = RunningWorker::start(store, notifier.clone(), handlers, WorkerConfig::default());
    let elsewhere = connect(database.url(), promised_late()).await;
    let emitter = Arc::new(PostgresNotifier::new(&elsewhere));
    let queue = Queue::new(elsewhere, emitter, QueueConfig::default());
    let event = || Event::new("greet", &1).unwrap();
    let sql = PgPool::connect(database.url()).await.unwrap();
    wait_while!(sql.value::<i64>(LISTENING).await == 0, "it listens");
    let first = queue.emit(event()).await.unwrap();
    worker.until(first.id, Outcome::Deleted).await;

    wire.cut();
    let missed = [queue.emit(event()).await.unwrap(), queue.emit(event().canvas(OTHER)).await.unwrap()];
    assert!(missed.iter().all(|emitted| emitted.notified), "nobody could know that it is not heard");
    wire.mend();
    worker.until_all(&missed.map(|emitted| emitted.id), Outcome::Deleted).await;
    seen.take(3).await;
    worker.stop().await;
}

/// However it is dead: connections that were open carry nothing, or new ones neither.
#[tokio::test]
#[ignore = "long: `cargo xtask long` runs it"]
async fn a_process_ends_in_time_whatever_the_database_does() {
    let settings = [
        ("WAKEQ_NOTIFIER", "postgres"),
        ("WAKEQ_BROADCAST", "1"),
        ("PORT", "0"),
        ("WAKEQ_SHUTDOWN_GRACE", "1s"),
    ];
    for (command, dies) in [
        ("work", Wire::freeze as fn(&Wire)),
        ("work", Wire::silence),
        ("all", Wire::freeze),
        ("all", Wire::silence),
    ] {
        let database = database().await;
        let wire = Wire::to(&database).await;
        let mut process = Process::own(command, &wire.url, None, &settings);
        process.says("listening").await;
        process.says("woke the waiting events").await;
        dies(&wire);
        assert_eq!(process.stop().await, Some(0), "{command}");
    }
}

/// The database may accept the connection and never answer, long before there is anything to end.
#[tokio::test]
async fn a_process_that_is_still_starting_ends_as_soon_as_it_is_told_to() {
    let settings = [("WAKEQ_NOTIFIER", "postgres"), ("WAKEQ_TELEMETRY", "off"), ("PORT", "0")];
    for command in ["serve", "work", "all"] {
        let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
        let url = format!("postgres://ada@{}/queue", listener.local_addr().unwrap());
        let process = Process::stock(command, &url, None, &settings);
        let connected = tokio::time::timeout(TIMEOUT, listener.accept()).await;
        let _unanswered = connected.expect("it does not connect").unwrap();
        // If it waited for an answer, it would fail when its patience ends.
        assert_eq!(process.stop().await, Some(0), "{command}");
    }
}
