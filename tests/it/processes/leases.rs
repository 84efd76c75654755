//! Who owns a running event: long handlers, and processes that are frozen, stopped, or kill
//! themselves.

use std::collections::HashSet;
use std::time::{Duration, Instant};

use wakeq::{Actor, CanvasId, Event, EventId};

use crate::support::child_processes::{Durations, PILL, Role, WORK, WORK_ONCE, Work};
use crate::support::crash_scene::{CrashScene, figure};
use crate::support::{OTHER, TIMEOUT};

const STARTED: &str = "select count(*) from runs";
const TAKEN_OVER: &str = "select count(*) from runs l where exists (
                              select from runs f where f.event = l.event and f.claimed_at < l.claimed_at)";

/// A run of three leases is one run, and no transaction is open meanwhile.
// Shows: EV2-13, EV2-36
#[tokio::test]
#[ignore = "long: `cargo xtask long` runs it"]
async fn a_handler_of_three_leases_runs_once() {
    let scene = CrashScene::new("long", Durations::quick()).await;
    let (_one, _other) = (scene.worker(4).await, scene.worker(4).await);
    scene.emit(WORK, Work::lasting(3 * scene.services.timing.lease_ms)).await;
    scene.until_at_least(STARTED, 1).await;
    const OPEN: &str = "select count(*) from pg_stat_activity
                         where datname = current_database() and pid <> pg_backend_pid()
                           and (state like 'idle in transaction%'
                                or exists (select from pg_locks l where l.pid = pg_stat_activity.pid
                                                                   and l.locktype in ('tuple', 'advisory')))";
    const RENEWED: &str = "select (extract(epoch from max(e.locked_at - r.claimed_at)) * 1000)::bigint
                             from wakeq.events_v2 e join runs r on r.event = e.id";
    scene.until_at_least(RENEWED, scene.services.timing.lease_ms as i64).await;
    assert_eq!(scene.count(OPEN).await, 0);
    scene.until_empty().await;
    assert_eq!((scene.count(STARTED).await, scene.completed().await), (1, 1));
}

/// EV2-57: what it held was claimed by another worker; it completes, retries and deletes none of
/// it.
// Shows: EV2-10
#[tokio::test]
#[ignore = "long: `cargo xtask long` runs it"]
async fn a_frozen_worker_loses_its_claims() {
    let scene = CrashScene::new("frozen", Durations::quick()).await;
    let frozen = scene.worker(4).await;
    // What the frozen worker would do with each when it continues; its heir takes longer.
    let completes = Work { first_ms: 2_000, later_ms: 20_000, first_fails: false };
    let fails = Work { first_fails: true, ..completes };
    let events = [
        scene.emit(WORK, completes).await,
        scene.emit(WORK, fails).await,
        scene.emit(WORK_ONCE, fails).await,
    ];
    scene.until_at_least(STARTED, 3).await;
    frozen.child.freeze();
    let heir = scene.worker(4).await;
    scene.until_at_least(TAKEN_OVER, 3).await;
    frozen.child.thaw();
    let mut left = HashSet::from(events.map(|event| event.to_string()));
    while !left.is_empty() {
        let line = frozen.says("ended ").await;
        let (event, outcome) = line["ended ".len()..].split_once(' ').unwrap();
        match outcome {
            // The lease was given up; or the handler had ended by then, and its deletion or its
            // retry was refused.
            "LeaseLost" | "FencedOut" | "Exception" => _ = left.remove(event),
            "IsLocked" => {} // another notification of the same event
            other => panic!("{event}: {other}"),
        }
    }
    const UNTOUCHED: &str = "select count(*) from wakeq.events_v2
                              where claims = 2 and losses = 1 and retries = 0 and locked_at is not null
                                and locked_at > clock_timestamp() - interval '2 s' and last_error is null";
    assert_eq!(scene.count(UNTOUCHED).await, 3);
    assert_eq!(scene.count("select count(*) from wakeq.dead_events").await, 0);
    assert!(heir.child.is_running());
}

/// The protocol's rule about suspects: innocent events survive one that kills its process.
#[tokio::test]
#[ignore = "long: `cargo xtask long` runs it"]
async fn an_event_that_kills_its_process_ends_among_the_dead() {
    let timing = Durations { lease_ms: 1_500, grace_ms: 200, probe_ms: 200, backoff_ms: 200 };
    let scene = CrashScene::new("pill", timing).await;
    let innocents = 63;
    scene.emit_many(WORK, innocents, Work { first_ms: 300, later_ms: 50, first_fails: false }).await;
    let pill = scene.emit(PILL, Work::default()).await;
    let mut deaths = 0;
    // A supervisor: a worker that dies is started again.
    let mut worker = scene.start(&Role::Worker { capacity: 64, shutdown_grace_ms: 3_000 }, None);
    loop {
        tokio::select! {
            _ = worker.child.ended() => {
                deaths += 1;
                assert!(deaths < 10, "it never ends:\n{}", worker.child.last_lines());
                scene.died(worker.pid()).await;
                scene.forget_dead_streams().await;
                worker = scene.start(&Role::Worker { capacity: 64, shutdown_grace_ms: 3_000 }, None);
            }
            _ = scene.until_empty() => break,
        }
    }
    let died = "select cause, losses from wakeq.dead_events where id = $1";
    let (cause, losses): (String, i32) =
        sqlx::query_as(died).bind(pill.0).fetch_one(&scene.pool).await.unwrap();
    assert_eq!((cause.as_str(), losses, deaths), ("poison", 5, 5));
    assert_eq!(scene.completed().await, i64::try_from(innocents).unwrap());
    figure("deaths of the worker", deaths);
    figure("extra runs of innocents", scene.extra_runs().await.len() - (deaths - 1));
}

/// The worker is killed before its handler is cut off. No other one starts the event: it is
/// deleted. That of another canvas, which ran at the same worker, runs again.
#[tokio::test]
#[ignore = "long: `cargo xtask long` runs it"]
async fn a_cancelled_event_whose_worker_was_killed_is_deleted() {
    let scene = CrashScene::new("cancelled", Durations::quick()).await;
    let victim = scene.worker(4).await;
    let work = Work { first_ms: 60_000, later_ms: 50, first_fails: false };
    let id = scene.emit(WORK, work).await;
    let theirs = scene.queue.emit(Event::new(WORK, &work).unwrap().canvas(OTHER)).await.unwrap().id;
    scene.until_at_least(STARTED, 2).await;
    let cancelled = scene.admin.cancel_running(CanvasId::DEFAULT, id, &Actor::user("ada")).await.unwrap();
    assert!(cancelled.running);
    scene.kill_9(&victim).await;
    scene.forget_dead_streams().await;
    let _heir = scene.worker(4).await;
    scene.until_empty().await;
    let runs = "select count(*), count(ended_at) from runs where event = $1";
    let runs = async |event: EventId| -> (i64, i64) {
        sqlx::query_as(runs).bind(event.0).fetch_one(&scene.pool).await.unwrap()
    };
    assert_eq!((runs(id).await, runs(theirs).await), ((1, 0), (2, 1)));
    assert_eq!(scene.count("select count(*) from wakeq.dead_events").await, 0);
}

// Shows: EV2-14, EV2-35, CARD-08
#[tokio::test]
#[ignore = "long: `cargo xtask long` runs it"]
async fn sigterm_lets_short_handlers_end_and_cuts_the_long_one() {
    let scene = CrashScene::new("sigterm", Durations::quick()).await;
    let worker = scene.worker(8).await; // with a grace of 3 s
    for _ in 0..3 {
        scene.emit(WORK, Work::lasting(1_500)).await;
    }
    let long = scene.emit(WORK, Work { first_ms: 60_000, later_ms: 0, first_fails: false }).await;
    scene.until_at_least(STARTED, 4).await;
    let since = Instant::now();
    worker.child.stop(TIMEOUT).await.unwrap();
    let took = since.elapsed();
    assert!(worker.child.ended().await.success(), "{}", worker.child.last_lines());
    assert!(took >= Duration::from_secs(3), "it took {took:?}");
    assert_eq!(scene.completed().await, 3);
    assert_eq!(counts(&scene, long).await, (false, 0, 0, 1), "released, and nothing counted");
    scene.forget_dead_streams().await;
    let heir = scene.worker(8).await;
    scene.until_empty().await;
    assert_eq!(scene.completed().await, 4);
    let last = "select attempt, pid from runs where event = $1 order by claimed_at desc limit 1";
    let (attempt, pid): (i32, i32) = sqlx::query_as(last).bind(long.0).fetch_one(&scene.pool).await.unwrap();
    assert_eq!((attempt, pid), (1, heir.pid()), "run elsewhere, without a retry counted");
    figure("exit after SIGTERM", format!("{took:.2?}; the grace is 3 s"));
}

/// Locked, retries, losses, claims.
async fn counts(scene: &CrashScene, id: EventId) -> (bool, i32, i32, i32) {
    let counts = "select locked_at is not null, retries, losses, claims from wakeq.events_v2 where id = $1";
    sqlx::query_as(counts).bind(id.0).fetch_one(&scene.pool).await.unwrap()
}
