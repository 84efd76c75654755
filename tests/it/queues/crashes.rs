//! Queues, while emitters and workers are processes, and die.

use tokio::time::Instant;
use wakeq::notify::Notification;
use wakeq::{CanvasId, EventId};

use crate::support::Statements;
use crate::support::child_processes::{Durations, QUEUE, Role, Work};
use crate::support::crash_scene::{CrashScene, figure, is_full, list, size};

/// Runs, not events: some of those that were cut off are counted once more.
const ENDED: &str = "select count(*) from runs where ended_at is not null";
/// Copies that were pushed, and neither wait nor have a run that ended.
const LOST: &str = "select count(*) from pushed p
    where not exists (select from wakeq.events_v2 e where e.id = p.copy)
      and not exists (select from runs r where r.event = p.copy and r.ended_at is not null)";

async fn register(scene: &CrashScene) {
    let statements = [
        "insert into wakeq.queues (name, in_flight_max, created_by, updated_by) values ($1, 40, 'test', 'test')",
        "insert into wakeq.queue_patterns (queue, pattern) values ($1, ':queued$')",
    ];
    for statement in statements {
        sqlx::query(statement).bind(QUEUE).execute(&scene.pool).await.unwrap();
    }
    // Every copy that an emit commits, whatever becomes of it.
    let pushed = "create table public.pushed (copy uuid primary key);
        create function push() returns trigger language plpgsql as $$
        begin
            insert into public.pushed select id from emitted where queue is not null;
            return null;
        end
        $$;
        create trigger push after insert on wakeq.events_v2 referencing new table as emitted
            for each statement execute function push();";
    sqlx::raw_sql(pushed).execute(&scene.pool).await.unwrap();
    scene.pool.run("update wakeq.queue_registry set version = version + 1").await;
}

/// Emitters and workers are killed, and notifications duplicated: every copy is completed, once
/// except those in flight at a kill.
// Shows: DRV-12
#[tokio::test]
#[ignore = "long: `cargo xtask long` runs it"]
async fn copies_outlive_the_processes() {
    // So many wait for their turns that waking them repeatedly would be the load.
    let calm = Durations { grace_ms: 60_000, backoff_ms: 60_000, ..Durations::crowd() };
    let timing = if is_full() { calm } else { Durations::crowd() };
    let scene = CrashScene::new("queue-kills", timing).await;
    register(&scene).await;
    let (canvases, each, kills) = (size(10, 50), size(25, 500), size(2, 8));
    let count = 4 * canvases * each;
    let since = Instant::now();
    let mut workers = scene.workers(4, 16).await;
    let role = Role::EmitterToQueue { canvases, each, work: Work::lasting(2) };
    let emitters: Vec<_> = (0..4).map(|_| scene.start(&role, None)).collect();
    // How much the killed emitter had emitted is unknown; the others report it.
    scene.until_at_least(ENDED, 20).await;
    scene.kill_9(&emitters[0]).await;
    let mut doubled = 0;
    for kill in 1..=kills {
        scene.until_at_least(ENDED, (count * kill / (2 * kills + 2)) as i64).await;
        scene.kill_9(&workers.remove(kill % workers.len())).await;
        let live: Vec<(uuid::Uuid, uuid::Uuid)> =
            scene.pool.table("select id, canvas_id from wakeq.events_v2 limit 1000").await;
        let notification = |(id, canvas)| Notification::new(EventId(id), CanvasId(canvas));
        let again: Vec<_> = live.into_iter().map(notification).collect();
        // A broker that is too busy for them is disturbed enough.
        doubled += scene.notifier.publish(&again).await.map_or(0, |()| again.len());
        assert_eq!(scene.count(LOST).await, 0);
        workers.push(scene.worker(16).await);
    }
    for emitter in &emitters[1..] {
        emitter.says("emitted").await;
    }
    let took = scene.until_empty().await;
    let completed = scene.completed().await;
    let pushed = scene.count("select count(*) from pushed").await;
    assert_eq!((scene.count(LOST).await, completed), (0, pushed), "pushed = completed, none waits");
    assert!((3 * count / 4..=count).contains(&(pushed as usize)), "{pushed} of {count}");
    assert!(doubled > 0);
    assert_eq!(scene.count("select count(distinct event) from runs").await, completed, "each run ended");
    assert_eq!(scene.count("select count(*) from wakeq.dead_events").await, 0);
    figure("copies pushed", format!("{pushed} of {canvases} canvases, one emitter of four killed"));
    figure("completed", completed);
    figure("kills", kills);
    figure("notifications published again", doubled);
    figure("all of it", format!("{:.1?}", since.elapsed()));
    figure("all complete after the last emit", format!("{took:.1?}"));
    list(&scene.extra_runs().await);
}
