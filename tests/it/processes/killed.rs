//! Processes, Postgres and Pub/Sub are killed with -9 while events run: every event runs, and only
//! those that were in flight run twice.

use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::time::Duration;

use tokio::time::interval;
use wakeq::{Actor, CanvasId, Event, EventId, Stop};
use wakeq_testbed::PubSub;

use crate::support::child_processes::{Durations, Process, Role, WORK, Work};
use crate::support::crash_scene::{CrashScene, figure, is_full, list, size};
use crate::support::{cluster, scope};

const STARTED: &str = "select count(*) from runs";
const PARKED: &str = "select count(*) from wakeq.events_v2 where notify_at is null";
const ENDED: &str = "select count(distinct event) from runs where ended_at is not null";

// Shows: EV2-10
#[tokio::test]
#[ignore = "long: `cargo xtask long` runs it"]
async fn a_worker_is_killed_amid_running_events() {
    let scene = CrashScene::new("kill-worker", Durations::crowd()).await;
    let count = size(100, 2_000);
    let victim = scene.worker(count).await;
    let length_ms = if is_full() { 10_000 } else { 3_000 };
    scene.emit_many(WORK, count, Work { first_ms: length_ms, later_ms: 100, first_fails: false }).await;
    scene.until_at_least(STARTED, count as i64).await;
    let ended = scene.completed().await;
    scene.kill_9(&victim).await;
    scene.forget_dead_streams().await;
    let _heir = scene.worker(count).await;
    let took = scene.until_empty().await;
    assert_eq!(scene.completed().await, count as i64);
    let extra = scene.extra_runs().await;
    assert!(extra.len() as i64 >= count as i64 - ended - 1, "the kill hit nothing");
    figure("events", count);
    figure("running at the kill", count as i64 - ended);
    figure("all complete after", format!("{took:.1?}"));
    list(&extra);
}

/// Every event completes, whatever the moment of the kill.
// Shows: EV2-10
#[tokio::test]
#[ignore = "long: `cargo xtask long` runs it"]
async fn workers_are_killed_at_random_moments() {
    let scene = CrashScene::new("random-kills", Durations::quick()).await;
    let (count, kills) = (size(80, 1_000), size(2, 8));
    let mut workers = vec![scene.worker(16).await, scene.worker(16).await];
    let lasting_ms = if is_full() { 100 } else { 200 };
    scene.emit_many(WORK, count, Work::lasting(lasting_ms)).await;
    let mut random = uuid::Uuid::new_v4().as_u128();
    figure("seed", format!("{random:x}"));
    for kill in 1..=kills {
        // Somewhere within the share of the events that belongs to this kill.
        let (part, within) = (count / (kills + 1), (random % 17) as usize);
        random = random.rotate_right(7);
        scene.until_at_least(ENDED, (part * kill + within * part / 34) as i64).await;
        let victim = workers.remove((random % 2) as usize);
        scene.kill_9(&victim).await;
        workers.push(scene.worker(16).await);
    }
    let took = scene.until_empty().await;
    assert_eq!(scene.completed().await, count as i64);
    figure("events", count);
    figure("kills", kills);
    figure("all complete after the last kill", format!("{took:.1?}"));
    list(&scene.extra_runs().await);
}

/// Pub/Sub may forget everything.
// Shows: EV2-15, EV2-17
#[tokio::test]
#[ignore = "long: `cargo xtask long` runs it"]
async fn the_emulator_is_killed_while_events_flow() {
    let mut emulator = PubSub::to_be_killed().await.unwrap().service;
    let timing = if is_full() { Durations::crowd() } else { Durations::quick() };
    let scene = CrashScene::on("kill-emulator", timing, None, Some(&emulator)).await;
    let worker = scene.worker(64).await;
    let (flow, count) = (Flow::start(&scene), size(300, 5_000));
    flow.until(count / 3).await;
    emulator.kill_9().await.unwrap();
    flow.until(flow.emitted() + count / 10).await;
    emulator.restart().await.unwrap();
    flow.until(count).await;
    flow.ends(&scene, &worker).await;
    assert_eq!(scene.extra_runs().await.len(), 0, "no handler was interrupted");
}

// Shows: EV2-10, EV2-15
#[tokio::test]
#[ignore = "long: `cargo xtask long` runs it"]
async fn postgres_is_killed_while_events_flow() {
    let Some(mut cluster) = cluster("a test that kills Postgres").await else { return };
    let timing = if is_full() { Durations::crowd() } else { Durations::quick() };
    let scene = CrashScene::on("kill-postgres", timing, Some(&cluster), None).await;
    let worker = scene.worker(64).await;
    let (flow, count) = (Flow::start(&scene), size(300, 5_000));
    flow.until(count / 3).await;
    cluster.kill_9().await.unwrap();
    cluster.start_again().await.unwrap();
    scene.died(worker.pid()).await;
    flow.until(count).await;
    flow.ends(&scene, &worker).await;
    list(&scene.extra_runs().await);
}

/// The row is committed, and the process that should publish its notification is dead: the probe
/// does it.
// Shows: ORD-17
#[tokio::test]
async fn an_emitter_dies_between_commit_and_publish() {
    let scene = CrashScene::new("commit-publish", Durations::quick()).await;
    let _worker = scene.worker(4).await;
    let role = Role::Emitter { count: 1, work: Work::default() };
    let emitter = scene.start(&role, Some("emit.committed"));
    assert!(!emitter.child.ended().await.success(), "it should have died");
    scene.until_at_least(ENDED, 1).await;
    let waited_ms =
        scene.count("select (extract(epoch from started_at - enqueued_at) * 1000)::bigint from runs").await;
    // Grace and probe period are a second each; a tenth of the latter is jitter, and the rest is
    // delivery.
    assert!((900..=4_000).contains(&waited_ms), "it ran {waited_ms} ms after its emit");
    figure("ran after its emit", format!("{waited_ms} ms; grace and probe period are 1000 ms each"));
}

/// See also EV2-42.
// Shows: EV2-26
#[tokio::test]
#[ignore = "long: `cargo xtask long` runs it"]
async fn an_admin_is_killed_half_way_through_an_unpause() {
    let scene = CrashScene::new("kill-admin", Durations::crowd()).await;
    let count = size(2_500, 20_000) as i64;
    let worker = scene.worker(64).await;
    scene.admin.pause(&scope(WORK), &Actor::user("test"), &Stop::default()).await.unwrap();
    scene.emit_many(WORK, count as usize, Work::default()).await;
    scene.until_at_least(PARKED, count).await;
    assert_eq!(scene.count(STARTED).await, 0, "it was paused");
    worker.child.freeze(); // it might take the job over, and the admin would be done
    let by_fault = !is_full();
    let admin = scene.start(&Role::Unpause, by_fault.then_some("resume.page"));
    if !by_fault {
        const WOKEN: &str = "select 20000 - count(*) from wakeq.events_v2 where notify_at is null";
        scene.until_at_least(WOKEN, count / 2).await;
        scene.kill_9(&admin).await;
    }
    assert!(!admin.child.ended().await.success(), "it should have died");
    let left = scene.count(PARKED).await;
    assert!(left > 0, "it died too late");
    worker.child.thaw();
    let took = scene.until_empty().await;
    assert_eq!(scene.completed().await, count);
    figure("events", count);
    figure("still parked when the admin was dead", left);
    figure("all complete after", format!("{took:.1?}"));
    let extra = scene.extra_runs().await;
    list(&extra);
    assert_eq!(extra.len(), 0, "no worker was killed");
}

/// The rule is gone and nothing was woken: the job that its deletion left behind does that.
#[tokio::test]
async fn an_admin_dies_between_lifting_a_pause_and_waking_anything() {
    let scene = CrashScene::new("rule-lifted", Durations::quick()).await;
    let _worker = scene.worker(8).await;
    scene.admin.pause(&scope(WORK), &Actor::user("test"), &Stop::default()).await.unwrap();
    scene.emit_many(WORK, 50, Work::default()).await;
    scene.until_at_least(PARKED, 50).await;
    let admin = scene.start(&Role::Unpause, Some("rule.lifted"));
    assert!(!admin.child.ended().await.success(), "it should have died");
    scene.until_empty().await;
    assert_eq!((scene.count(STARTED).await, scene.completed().await), (50, 50));
}

/// The same with the pause of a whole canvas: before its job has made one for the handler, and
/// right after that.
#[tokio::test]
#[ignore = "long: `cargo xtask long` runs it"]
async fn an_admin_dies_while_it_lifts_the_pause_of_a_canvas() {
    for (name, point) in [("canvas-lifted", "rule.lifted"), ("canvas-spread", "resume.page")] {
        let scene = CrashScene::new(name, Durations::quick()).await;
        let _worker = scene.worker(8).await;
        let test = Actor::user("test");
        scene.admin.pause_canvas(CanvasId::DEFAULT, &test, &Stop::default()).await.unwrap();
        scene.emit_many(WORK, 50, Work::default()).await;
        scene.until_at_least(PARKED, 50).await;
        let admin = scene.start(&Role::UnpauseCanvas, Some(point));
        assert!(!admin.child.ended().await.success(), "it should have died");
        scene.until_empty().await;
        assert_eq!((scene.count(STARTED).await, scene.completed().await), (50, 50));
    }
}

/// Emits events one after another, each repeated until Postgres has confirmed it.
struct Flow {
    emitted: Arc<AtomicUsize>,
    stop: tokio_util::sync::CancellationToken,
    task: tokio::task::JoinHandle<Vec<EventId>>,
}

impl Flow {
    fn start(scene: &CrashScene) -> Self {
        let emitted = Arc::new(AtomicUsize::new(0));
        let stop = tokio_util::sync::CancellationToken::new();
        let (queue, counter, stopped) = (scene.queue.clone(), Arc::clone(&emitted), stop.clone());
        let task = tokio::spawn(async move {
            let mut emits = tokio::task::JoinSet::new();
            let mut ids = Vec::new();
            let mut ticks = interval(Duration::from_millis(3));
            while !stopped.is_cancelled() {
                ticks.tick().await;
                while emits.len() >= 50 {
                    ids.extend(emits.join_next().await.transpose().unwrap());
                }
                let (queue, counter) = (queue.clone(), Arc::clone(&counter));
                emits.spawn(async move {
                    let id = EventId::new();
                    let event = || Event::new(WORK, &Work::lasting(20)).unwrap().id(id);
                    while queue.emit(event()).await.is_err() {}
                    counter.fetch_add(1, Ordering::SeqCst);
                    EventId::chosen(CanvasId::DEFAULT, id)
                });
            }
            ids.extend(emits.join_all().await);
            ids
        });
        Self { emitted, stop, task }
    }

    fn emitted(&self) -> usize {
        self.emitted.load(Ordering::SeqCst)
    }

    /// Waits until this many have been emitted.
    async fn until(&self, count: usize) {
        let mut ticks = interval(Duration::from_millis(10)); // a counter, written by many tasks
        let reached = async {
            while self.emitted() < count {
                ticks.tick().await;
            }
        };
        tokio::time::timeout(crate::support::crash_scene::time_limit(), reached)
            .await
            .expect("the flow has stopped");
    }

    /// Ends it; every event ran to its end, and the original worker is still running.
    async fn ends(self, scene: &CrashScene, worker: &Process) {
        self.stop.cancel();
        let emitted = self.task.await.unwrap();
        let took = scene.until_empty().await;
        all_ran(scene, worker, &emitted).await;
        figure("all complete after the last emit", format!("{took:.1?}"));
    }
}

/// Every emitted event ran to its end, and the original worker is still running.
async fn all_ran(scene: &CrashScene, worker: &Process, emitted: &[EventId]) {
    let ids: Vec<uuid::Uuid> = emitted.iter().map(|id| id.0).collect();
    let sql = "select count(*) from unnest($1::uuid[]) as one (id)
                where not exists (select from runs where event = id and ended_at is not null)";
    let missing: i64 = sqlx::query_scalar(sql).bind(&ids).fetch_one(&scene.pool).await.unwrap();
    assert_eq!(missing, 0, "of {} events", emitted.len());
    assert!(worker.child.is_running(), "the worker had to be started again");
    figure("events", emitted.len());
}
