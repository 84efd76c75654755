//! Several workers on one backlog: each takes what it has capacity for, and leaves the rest to the
//! others.

use std::sync::Arc;
use std::time::Duration;

use tokio::sync::{Semaphore, mpsc};
use wakeq::Handlers;
use wakeq::machine::Outcome;

use crate::support::brokers::Broker;
use crate::support::child_processes::{Durations, WORK, Work};
use crate::support::crash_scene::{CrashScene, figure, is_full, list, size};
use crate::support::handlers::Door;
use crate::support::{Stage, Statements, TIMEOUT, capacity, quick, stop_all};

/// EV2-19, EV2-06: one worker is at capacity, and a second one that starts later is at once, too,
/// although nothing has ended.
async fn a_second_worker_has_work_at_once(broker: Broker) {
    let stage = Stage::with(broker.notifier.clone(), quick()).await;
    let (handler, mut door) = Door::new();
    let handlers = Handlers::new().on("greet", handler);
    let config = capacity(4);
    let first = stage.worker_with(handlers.clone(), config.clone());
    stage.emit_many("greet", 60).await;
    door.arrived.take(4).await;
    let mut second = stage.worker_with(handlers, config);
    door.arrived.take(4).await;
    assert_eq!((stage.rows().await, door.left.rest().len(), door.most()), (60, 0, 8), "{}", broker.name);
    // The first one dies; what it held is found by its promises.
    drop(first);
    door.open(60 + 4);
    second.until_count(60, Outcome::Deleted).await;
    assert_eq!(stage.rows().await, 0, "{}", broker.name);
    second.stop().await;
}

#[tokio::test]
async fn a_second_worker_has_work_at_once_in_memory() {
    a_second_worker_has_work_at_once(Broker::memory()).await;
}

#[tokio::test]
#[ignore = "long: `cargo xtask long` runs it"]
async fn a_second_worker_has_work_at_once_over_postgres() {
    a_second_worker_has_work_at_once(Broker::postgres().await).await;
}

// Shows: EV2-19
#[tokio::test]
async fn a_second_worker_has_work_at_once_over_pubsub() {
    a_second_worker_has_work_at_once(Broker::pubsub("second-worker").await).await;
}

/// EV2-10, EV2-19: two processes; the second runs at capacity within a second of its start, the
/// first is killed, and every event completes.
// Shows: EV2-06
#[tokio::test]
#[ignore = "long: `cargo xtask long` runs it"]
async fn a_second_process_runs_at_capacity_within_a_second() {
    let scene = CrashScene::new("second-process", Durations::crowd()).await;
    let (count, lasting_ms) = if is_full() { (600, 2_000) } else { (40, 400) };
    let first = scene.worker(4).await;
    scene.emit_many(WORK, count, Work::lasting(lasting_ms)).await;
    scene.until_at_least("select count(*) from runs", 4).await;
    let second = scene.worker(4).await;
    let since = scene.clock().await;
    let at_work = "select count(*) from (select from runs group by pid having count(*) >= 4) as at_work";
    scene.until_at_least(at_work, 2).await;
    let fourth = "select started_at from runs where pid = $1 order by started_at offset 3 limit 1";
    let at_capacity: wakeq::Timestamp =
        sqlx::query_scalar(fourth).bind(second.pid()).fetch_one(&scene.pool).await.unwrap();
    let within = at_capacity - since;
    figure("at capacity after", within);
    assert!(!is_full() || within < chrono::TimeDelta::seconds(1), "{within}");
    scene.kill_9(&first).await;
    let took = scene.until_empty().await;
    assert_eq!(scene.completed().await, count as i64);
    figure("all complete after the kill", format!("{took:.1?}"));
}

/// Eight workers run equal shares of a backlog. In the full size they run freely; in the small one
/// no event ends before all workers are full, because with so few events chance makes a difference
/// of a tenth.
// Shows: EV2-06
#[tokio::test]
#[ignore = "long: `cargo xtask long` runs it"]
async fn eight_workers_share_a_backlog_evenly() {
    let broker = Broker::pubsub("eight-workers").await;
    let stage = Stage::with(broker.notifier.clone(), wakeq::Timing::default()).await;
    let (count, slots) = (size(2_000, 100_000), size(4, 64));
    let (done, mut ran) = mpsc::channel(count);
    let (begun, may_end) = (Arc::new(Semaphore::new(0)), Arc::new(Semaphore::new(0)));
    let workers = [0_usize, 1, 2, 3, 4, 5, 6, 7].map(|number| {
        let (done, begun, may_end) = (done.clone(), begun.clone(), may_end.clone());
        let handlers = Handlers::new().on("greet", move |_| {
            let (done, begun, may_end) = (done.clone(), begun.clone(), may_end.clone());
            async move {
                begun.add_permits(1);
                may_end.acquire().await?.forget();
                // Simulates the work.
                tokio::time::sleep(Duration::from_millis(20)).await;
                Ok(done.send(number).await?)
            }
        });
        stage.worker_with(handlers, capacity(slots))
    });
    for _ in 0..count / 1_000 {
        stage.emit_many("greet", 1_000).await;
    }
    let (mut left, mut shares) = (count, [0; 8]);
    while left > 0 {
        // The last events may all have been prefetched by some of the workers, up to four times the
        // capacity: those run freely.
        let in_step = !is_full() && left > 5 * 8 * slots;
        let all = u32::try_from(left.min(8 * slots)).unwrap();
        if in_step || left == count {
            let full = tokio::time::timeout(TIMEOUT, begun.acquire_many(all)).await;
            full.expect("each is full").unwrap().forget();
        }
        let ending = if in_step { all as usize } else { left };
        may_end.add_permits(ending);
        for _ in 0..ending {
            let number = tokio::time::timeout(TIMEOUT, ran.recv()).await.expect("it goes on").unwrap();
            shares[number] += 1;
        }
        left -= ending;
    }
    figure("events by worker", format!("{shares:?}"));
    let mean = count / 8;
    assert!(shares.iter().all(|share: &usize| share.abs_diff(mean) <= mean / 10), "{shares:?}");
    stop_all(workers).await;
}

/// Eight processes share a backlog, and one of them is killed half-way: every event completes, and
/// only those in flight at the kill run twice.
// Shows: EV2-06, EV2-10
#[tokio::test]
#[ignore = "long: `cargo xtask long` runs it"]
async fn a_kill_of_one_of_eight_loses_nothing() {
    let scene = CrashScene::new("killed-of-eight", Durations::crowd()).await;
    let (count, processes, capacity) = (size(1_200, 100_000), size(3, 8), size(8, 64));
    let mut workers = scene.workers(processes, capacity).await;
    scene.emit_many(WORK, count, Work::lasting(if is_full() { 20 } else { 50 })).await;
    let half = count as i64 / 2;
    scene.until_at_least("select count(*) from runs where ended_at is not null", half).await;
    scene.kill_9(&workers.remove(processes / 2)).await;
    let left = scene.count("select count(*) from wakeq.events_v2").await;
    assert!(left > 0, "it was killed too late");
    let took = scene.until_empty().await;
    assert_eq!(scene.completed().await, count as i64);
    let shares =
        "select array_agg(ran order by ran) from (select count(*) as ran from runs group by pid) as shares";
    let shares: Vec<i64> = scene.pool.value(shares).await;
    assert_eq!(shares.len(), processes, "each had its part");
    figure("events, left at the kill", format!("{count}, {left}"));
    figure("runs by process, the least first", format!("{shares:?}"));
    figure("all complete after the kill", format!("{took:.1?}"));
    list(&scene.extra_runs().await);
}
