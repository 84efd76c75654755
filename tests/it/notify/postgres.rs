//! What only Postgres as the notifier has: processes that share the events among themselves, and a
//! connection that breaks.

use std::collections::HashSet;
use std::sync::Arc;
use std::time::Duration;

use serde_json::json;
use sqlx::{Connection, PgConnection};
use tokio::time::{Instant, timeout};
use uuid::Uuid;
use wakeq::listeners::{ListenItem, Signal};
use wakeq::notify::{Notifier, PostgresNotifier, Subscription};
use wakeq::{CanvasId, Event, EventId, Queue, QueueConfig, Timing};
use wakeq_testbed::TestDatabase;

use super::every_notifier::{TIMEOUT, acknowledge_next, next, notifications};
use crate::processes::work::{LOCK, Process};
use crate::support::{Stage, Statements, connect, database, wait_while};

/// Notifiers over one database, each like a process of its own.
struct Processes {
    database: TestDatabase,
    sql: PgConnection,
}

impl Processes {
    async fn new() -> Self {
        let database = database().await;
        let sql = PgConnection::connect(database.url()).await.unwrap();
        Self { database, sql }
    }

    async fn notifier(&self) -> PostgresNotifier {
        PostgresNotifier::new(&connect(self.database.url(), Timing::default()).await)
    }

    /// A worker that the others know, and that knows them: everybody has answered.
    async fn worker(&self) -> (PostgresNotifier, Box<dyn Subscription>) {
        let notifier = self.notifier().await;
        let subscription = notifier.subscribe(10_000).await.unwrap();
        notifier.starts_empty().await;
        (notifier, subscription)
    }

    /// The connections that listen.
    async fn listening(&mut self) -> Vec<i32> {
        let listening =
            "select pid from pg_stat_activity where query like 'LISTEN%' and datname = current_database()";
        sqlx::query_scalar(listening).fetch_all(&mut self.sql).await.unwrap()
    }

    /// Ends a connection.
    async fn interrupt(&mut self, pid: i32) {
        sqlx::query("select pg_terminate_backend($1)").bind(pid).execute(&mut self.sql).await.unwrap();
    }
}

/// Each event is one worker's first. The other looks at it later, in case the first is busy or
/// dead; each canvas's notifications name that canvas.
#[tokio::test]
async fn two_workers_share_what_a_third_process_emits() {
    let processes = Processes::new().await;
    let (_one, mut first) = processes.worker().await;
    let (_two, mut second) = processes.worker().await;
    let emitter = processes.notifier().await;
    let sent: Vec<_> = (0..50).flat_map(|_| notifications(20)).collect();
    emitter.publish(&sent).await.unwrap();

    let (mut of_first, mut of_second) = (Vec::new(), Vec::new());
    while of_first.len() + of_second.len() < sent.len() {
        let (taker, delivery) = tokio::select! {
            delivery = first.next() => (&mut of_first, delivery.unwrap()),
            delivery = second.next() => (&mut of_second, delivery.unwrap()),
        };
        taker.push(*delivery.notification.as_ref().unwrap());
        delivery.acknowledge();
    }
    assert!(!of_first.is_empty() && !of_second.is_empty(), "{} and {}", of_first.len(), of_second.len());
    // Later the first looks at the second's, too.
    let missing = sent.iter().filter(|sent| !of_first.contains(sent));
    let mut left: HashSet<EventId> = missing.map(|sent| sent.id).collect();
    while !left.is_empty() {
        let (id, delivery) = next(&mut *first).await;
        of_first.push(*delivery.notification.as_ref().unwrap());
        delivery.acknowledge();
        left.remove(&id);
    }
    assert!(of_first.iter().chain(&of_second).all(|received| sent.contains(received)), "with its canvas");
}

#[tokio::test]
async fn a_busy_worker_leaves_events_to_another() {
    let processes = Processes::new().await;
    let busy = processes.notifier().await;
    let mut full = busy.subscribe(1).await.unwrap();
    let (_other, mut free) = processes.worker().await;
    busy.publish(&notifications(1)).await.unwrap();
    let _held = next(&mut *full).await;
    let sent = notifications(300);
    busy.publish(&sent).await.unwrap();
    let mut left: HashSet<EventId> = sent.iter().map(|sent| sent.id).collect();
    while !left.is_empty() {
        left.remove(&acknowledge_next(&mut *free).await);
    }
}

/// It learns what waits with the others: a share of it is its own, the rest its reserve.
#[tokio::test]
async fn a_worker_that_comes_later_has_work_at_once() {
    let processes = Processes::new().await;
    let busy = processes.notifier().await;
    let mut full = busy.subscribe(1).await.unwrap();
    assert!(busy.starts_empty().await);
    let sent = notifications(1_000);
    busy.publish(&sent).await.unwrap();
    let held = next(&mut *full).await;
    let late = processes.notifier().await;
    let (mut free, since) = (late.subscribe(10_000).await.unwrap(), Instant::now());
    let mut received = HashSet::new();
    while received.len() < sent.len() - 1 {
        received.insert(acknowledge_next(&mut *free).await);
        if [1, 400].contains(&received.len()) {
            println!("{} of 1,000 after {:?}", received.len(), since.elapsed());
        }
    }
    assert!(!late.starts_empty().await, "the other answered");
    drop(held);
}

/// A worker that stops says so; one that dies is noticed by its silence, and until then its events
/// come from the reserve.
#[tokio::test]
async fn events_of_a_stopped_or_killed_worker_go_to_another() {
    let processes = Processes::new().await;
    for dies in [false, true] {
        let (leaving, mut first) = processes.worker().await;
        let (staying, mut second) = processes.worker().await;
        if dies {
            // Not even a goodbye, and nobody takes what comes to it.
            std::mem::forget(first);
            std::mem::forget(leaving);
        } else {
            first.stop();
            first.close(TIMEOUT).await;
        }
        let sent = notifications(100);
        staying.publish(&sent).await.unwrap();
        let mut left: HashSet<EventId> = sent.iter().map(|sent| sent.id).collect();
        while !left.is_empty() {
            left.remove(&acknowledge_next(&mut *second).await);
        }
        second.close(TIMEOUT).await;
    }
}

#[tokio::test]
async fn a_broken_connection_is_reported_and_repaired() {
    let mut processes = Processes::new().await;
    let (_notifier, mut subscription) = processes.worker().await;
    assert_eq!(subscription.trouble(), None);
    let emitter = processes.notifier().await;
    for _ in 0..3 {
        let before = processes.listening().await;
        assert_eq!(before.len(), 1);
        processes.interrupt(before[0]).await;
        wait_while!(processes.listening().await.iter().all(|pid| before.contains(pid)), "it listens again");
        wait_while!(subscription.trouble().is_some(), "all is well again");
        let sent = notifications(1);
        emitter.publish(&sent).await.unwrap();
        assert_eq!(acknowledge_next(&mut *subscription).await, sent[0].id);
    }
}

/// Only one canvas's listener hears an event, in whatever process; what is too large comes without
/// its value.
#[tokio::test]
async fn broadcasts_and_signals_reach_other_processes() {
    let processes = Processes::new().await;
    let store = connect(processes.database.url(), Timing::default()).await;
    let near = Arc::new(PostgresNotifier::broadcasting(&store));
    let far = PostgresNotifier::broadcasting(&connect(processes.database.url(), Timing::default()).await);
    let broadcasts = far.broadcasts().unwrap();
    let other = CanvasId(Uuid::new_v4());
    let mut heard = broadcasts.subscribe_on(&[CanvasId::DEFAULT], "*").await.unwrap();
    let mut elsewhere = broadcasts.subscribe_on(&[other], "*").await.unwrap();
    let queue = Queue::new(store, near.clone(), QueueConfig::default());
    for value in [json!("small"), json!("x".repeat(8_000)), json!("last")] {
        queue.emit(Event::new("greet", &value).unwrap()).await.unwrap();
    }
    queue.emit(Event::new("greet", &"other's").unwrap().canvas(other)).await.unwrap();
    let mut values = Vec::new();
    while values.len() < 3 {
        match timeout(TIMEOUT, heard.next()).await.unwrap() {
            Some(ListenItem::Event(event)) => values.push(event.value),
            missed => panic!("{missed:?}"),
        }
    }
    assert_eq!(values, [Some("\"small\"".to_owned()), None, Some("\"last\"".to_owned())]);
    let Some(ListenItem::Event(others)) = timeout(TIMEOUT, elsewhere.next()).await.unwrap() else { panic!() };
    assert_eq!(others.value.as_deref(), Some("\"other's\""));

    let mut grown = far.signals().watch(Signal::AnyLog);
    let heard = async {
        // It begins to listen in the background, and misses what is sent before.
        while timeout(Duration::from_millis(50), grown.changed()).await.is_err() {
            near.signals().send(Signal::Log("companies".parse().unwrap()));
        }
    };
    timeout(TIMEOUT, heard).await.expect("the signal crosses");
}

/// Nothing but NOTIFY wakes an event within a minute here.
const POSTGRES: [(&str, &str); 3] =
    [("WAKEQ_NOTIFIER", "postgres"), ("PORT", "0"), ("RUST_LOG", "info,wakeq=debug")];

/// Two workers, a program that emits, and Postgres. An event starts at once, and the work is
/// shared; what was emitted while no worker was there runs with the first.
// Shows: LOCAL-03
#[tokio::test]
async fn processes_without_a_broker_wake_each_other() {
    let processes = Processes::new().await;
    let notifier = Arc::new(processes.notifier().await);
    let url = processes.database.url().to_owned();
    let stage = Stage::through(processes.database, &url, notifier, Timing::default()).await;
    let mut workers: Vec<_> =
        (0..2).map(|_| Process::own("work --capacity 2", &url, None, &POSTGRES)).collect();
    for worker in &mut workers {
        worker.says("listening").await;
    }
    let held = stage.hold(LOCK).await;
    for _ in 0..4 {
        assert!(stage.queue.emit(Event::new("slow", &1).unwrap()).await.unwrap().notified);
    }
    for worker in &mut workers {
        worker.says("begun ").await;
        worker.says("begun ").await;
    }
    let probed: i64 = stage.pool.value("select count(*) from wakeq.events_v2 where probes > 0").await;
    assert_eq!(probed, 0, "the minute's pass woke them, and not NOTIFY");
    held.rollback().await.unwrap();
    for mut worker in workers {
        worker.says("ExecutesToCompletion Deleted").await;
        assert_eq!(worker.stop().await, Some(0));
    }
    assert_eq!(stage.rows().await, 0);

    assert!(stage.queue.emit(Event::new("slow", &2).unwrap()).await.unwrap().notified, "it cannot know");
    let mut worker = Process::own("work", &url, None, &POSTGRES);
    worker.says("woke the waiting events").await;
    worker.says("ExecutesToCompletion Deleted").await;
    assert_eq!(worker.stop().await, Some(0));
}
