//! Batches, while the workers of their members are processes, and die.

use wakeq::Event;
use wakeq::events::EventBatch;

use crate::support::child_processes::{Durations, Role, WORK, Work};
use crate::support::crash_scene::{CrashScene, figure, size};

const OVER: &str = "select count(*) from wakeq.batches where over_at is not null";
/// No worker knows the handler of the event at the end, so that it stays.
const EMITTED: &str = "select count(*) from wakeq.events_v2 where name = 'imported'";
/// How many members are left, below zero.
const FEWER: &str = "select -count(*) from wakeq.events_v2 where name <> 'imported'";
/// Members that have completed, before and after the end of their batch.
const COMPLETED: &str = "select ((select coalesce(sum(completed), 0) from wakeq.batch_ends)
                               + (select coalesce(sum(completed), 0) from wakeq.batches))::bigint";
/// Whether the value of the event at the end has the counts of the batch.
const AGREES: &str =
    "select (bool_and(e.value::jsonb ->> 'total' = (b.completed + b.dead + b.cancelled)::text
                                   and e.value::jsonb ->> 'dead' = b.dead::text
                                   and b.dead = (select count(*) from wakeq.dead_events)))::integer::bigint
                        from wakeq.batches b join wakeq.events_v2 e on e.id = b.event_id";

async fn opened(scene: &CrashScene) -> EventBatch {
    let batch = scene.queue.batch("import").unwrap();
    batch.open(Event::new("imported", &7).unwrap()).await.unwrap();
    batch
}

fn member() -> Event {
    Event::new(WORK, &Work::lasting(1)).unwrap().batch("import").unwrap()
}

/// The last member has ended, and nobody has looked. The pass of another process does.
#[tokio::test]
async fn a_worker_dies_before_it_looks_whether_the_batch_is_over() {
    let scene = CrashScene::new("batch-left", Durations::quick()).await;
    let batch = opened(&scene).await;
    scene.queue.emit(member()).await.unwrap();
    batch.close().await.unwrap();
    let role = Role::Worker { capacity: 8, shutdown_grace_ms: 1_000 };
    let victim = scene.start(&role, Some("batch.left"));
    scene.until_at_least(FEWER, 0).await;
    victim.child.ended().await;
    scene.died(victim.pid()).await;
    assert_eq!((scene.count(OVER).await, scene.count(EMITTED).await), (0, 0));
    let _heir = scene.worker(8).await;
    scene.until_at_least(OVER, 1).await;
    assert_eq!((scene.count(EMITTED).await, scene.count(AGREES).await), (1, 1));
    assert_eq!(batch.progress().await.unwrap().counts.completed, 1);
}

/// One event and right counts, however many workers are killed meanwhile.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
#[ignore = "long: `cargo xtask long` runs it"]
async fn a_batch_ends_once_and_counts_right_while_workers_are_killed() {
    let (members, kills) = (size(1_000, 100_000), size(4, 60));
    let scene = CrashScene::new("batch-kills", Durations::quick()).await;
    let batch = opened(&scene).await;
    let mut workers = scene.workers(2, 32).await;
    for page in (0..members).collect::<Vec<_>>().chunks(500) {
        scene.queue.emit_all(page.iter().map(|_| member()).collect()).await.unwrap();
    }
    batch.close().await.unwrap();
    for kill in 0..kills {
        scene.until_at_least(COMPLETED, (members * kill / (2 * kills)) as i64).await;
        let victim = workers.remove(0);
        scene.kill_9(&victim).await;
        workers.push(scene.worker(32).await);
    }
    scene.until_at_least(FEWER, 0).await;
    scene.until_at_least(OVER, 1).await;
    assert_eq!((scene.count(EMITTED).await, scene.count(AGREES).await), (1, 1));
    let ended = batch.progress().await.unwrap();
    figure("members that died as their workers were killed", ended.counts.dead);
    assert_eq!((ended.counts.total(), ended.left), (members as u64, 0));
}
