//! Several processes at work on one queue, and the broker's part in it.

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;

use wakeq::notify::{Notification, Notifier, PubSub, create_topics};
use wakeq::{Actor, AdminError, CanvasId, Handlers, QueueWorker, Stop, Timestamp, WorkerConfig};

use crate::support::brokers::Broker;
use crate::support::child_processes::{Durations, Role, WORK, Work, all_seen};
use crate::support::crash_scene::{CrashScene, figure, size};
use crate::support::{Stage, Statements, TIMEOUT, quick, scope};

// Shows: EV2-06
#[tokio::test]
async fn an_emitter_and_two_workers_are_three_processes() {
    let scene = CrashScene::new("three", Durations::crowd()).await;
    let workers = [scene.worker(8).await, scene.worker(8).await];
    let emitter = scene.start(&Role::Emitter { count: 200, work: Work::lasting(150) }, None);
    emitter.says("emitted 200").await;
    scene.until_at_least("select count(*) from runs where ended_at is not null", 200).await;
    scene.until_empty().await;
    let by_process: Vec<(i32, i64)> =
        scene.pool.table("select pid, count(*) from runs group by pid order by pid").await;
    let mut pids = workers.each_ref().map(crate::support::child_processes::Process::pid);
    pids.sort_unstable();
    assert_eq!(by_process.iter().map(|(pid, _)| *pid).collect::<Vec<_>>(), pids);
    assert_eq!(by_process.iter().map(|(_, runs)| runs).sum::<i64>(), 200, "each ran once");
    assert!(!pids.contains(&emitter.pid()));
    figure("runs by process", format!("{by_process:?}"));
}

// Shows: EV2-24, EV2-44
#[tokio::test]
async fn a_hundred_notifications_of_one_event_to_eight_workers_are_one_run() {
    let timing = Durations { lease_ms: 2_000, ..Durations::production() };
    let scene = CrashScene::new("hundred", timing).await;
    let mut workers = Vec::new();
    for _ in 0..8 {
        workers.push(scene.start(&Role::Worker { capacity: 8, shutdown_grace_ms: 1_000 }, None));
    }
    for worker in &workers {
        worker.says("ready").await;
    }
    let id = scene.emit(WORK, Work::lasting(1_000)).await;
    let real = Notification::new(id, CanvasId::DEFAULT);
    let forged = Notification::new(wakeq::EventId::new(), CanvasId::DEFAULT);
    let all: Vec<Notification> = std::iter::repeat_n([real, forged], 99).flatten().collect();
    scene.notifier.publish(&all).await.unwrap();
    all_seen(&workers, 2 * 99 + 1).await;
    scene.until_empty().await;
    assert_eq!(scene.count("select count(*) from runs").await, 1);
}

/// Exact pause: no claim commits after `pause` has returned.
#[tokio::test]
#[ignore = "long: `cargo xtask long` runs it"]
async fn no_event_is_claimed_after_a_pause_has_returned() {
    let scene = CrashScene::new("pauses", Durations::quick()).await;
    let _workers = [scene.worker(16).await, scene.worker(16).await];
    let (pauses, running) = (size(40, 200), Arc::new(AtomicBool::new(true)));
    let (queue, goes_on) = (scene.queue.clone(), Arc::clone(&running));
    let load = tokio::spawn(async move {
        let mut ticks = tokio::time::interval(Duration::from_millis(20));
        while goes_on.load(Ordering::SeqCst) {
            ticks.tick().await;
            let events = (0..5).map(|_| wakeq::Event::new(WORK, &Work::lasting(10)).unwrap());
            queue.emit_all(events.collect()).await.unwrap();
        }
    });
    let mut stopped: Vec<(Timestamp, Timestamp)> = Vec::new();
    let mut ran = 0;
    for _ in 0..pauses {
        // Events flow again, so there are claims that the next pause could miss.
        scene.until_at_least(RUNS, ran + 3).await;
        scene.admin.pause(&scope(WORK), &Actor::user("test"), &Stop::default()).await.unwrap();
        let since = scene.clock().await;
        let held = claims(&scene).await;
        scene.until_at_least(PARKED, 1).await; // workers have seen the rule
        let new: Vec<_> = claims(&scene).await.into_iter().filter(|claim| !held.contains(claim)).collect();
        assert_eq!(new, [], "claims that appeared under the pause");
        stopped.push((since, scene.clock().await));
        ran = scene.count(RUNS).await;
        match scene.admin.unpause(&scope(WORK), &Actor::user("test")).await {
            // The rule is lifted all the same; the minute's pass wakes the rest.
            Ok(_) | Err(AdminError::Wake(_)) => {}
            Err(error) => panic!("{error:?}"),
        }
    }
    running.store(false, Ordering::SeqCst);
    load.await.unwrap();
    scene.until_empty().await;
    let (since, until): (Vec<_>, Vec<_>) = stopped.into_iter().unzip();
    let late = "select count(*) from runs join unnest($1::timestamptz[], $2::timestamptz[]) as stopped (since, until)
                    on claimed_at > since and claimed_at < until";
    let late: i64 = sqlx::query_scalar(late).bind(&since).bind(&until).fetch_one(&scene.pool).await.unwrap();
    assert_eq!(late, 0, "claims under a pause");
    figure("pauses", pauses);
    figure("events run", scene.completed().await);
    figure("claims after a pause had returned", late);
}

const RUNS: &str = "select count(*) from runs";
const PARKED: &str = "select count(*) from wakeq.events_v2 where notify_at is null";

/// The claims that stand.
async fn claims(scene: &CrashScene) -> Vec<(uuid::Uuid, i32)> {
    scene.pool.table("select id, claims from wakeq.events_v2 where locked_at is not null").await
}

/// In production nothing is created automatically: the worker is not ready, reports what to do, and
/// continues once it is done.
#[tokio::test]
async fn without_its_topic_a_worker_says_what_to_create() {
    let config = Broker::pubsub_config("missing").await;
    let notifier: Arc<dyn Notifier> = Arc::new(PubSub::connect(config.clone()).await.unwrap());
    let stage = Stage::with(notifier.clone(), quick()).await;
    let handlers = Handlers::new().on("greet", |_| async { Ok(()) });
    let worker = QueueWorker::new(stage.store.clone(), notifier, handlers, WorkerConfig::default()).unwrap();
    let (mut trouble, stop) = (worker.trouble(), worker.stop_token());
    let task = tokio::spawn(worker.run());
    let missing =
        |words: &Option<String>| words.as_ref().is_some_and(|words| words.contains("does not exist"));
    let words = tokio::time::timeout(TIMEOUT, trouble.wait_for(missing)).await.unwrap().unwrap().clone();
    let words = words.unwrap();
    assert!(words.contains(&config.subscription) && words.contains("wakeq topics create"), "{words}");
    create_topics(&config).await.unwrap();
    tokio::time::timeout(TIMEOUT, trouble.wait_for(Option::is_none)).await.expect("not ready").unwrap();
    stage.emit("greet").await;
    stage.until_empty().await;
    stop.cancel();
    task.await.unwrap().unwrap();
}
