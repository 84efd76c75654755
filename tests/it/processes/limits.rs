//! Limits over worker processes that are killed and frozen, while Postgres is killed as well: what
//! the handlers noted of themselves never shows more of them at a time than a limit allows.
//!
//! What a frozen process holds is not running, and it has lost its claims when it thaws. What it
//! then still writes before its worker cuts it off is counted apart, and not as held back by the
//! limit: no queue can stop a process that does not know yet that it was frozen.

use std::time::Duration;

use tokio::time::sleep;
use wakeq::limits::{LimitName, NewLimit, Rate};
use wakeq::{Actor, CanvasId, Timestamp};

use crate::support::child_processes::{Durations, Process};
use crate::support::crash_scene::{CrashScene, figure, is_full, size};
use crate::support::journal::{self, noted};
use crate::support::{OTHER, Statements, cluster};

const KEY: &str = "customer:7";
const PLACES: u32 = 5;
const COMPLETED: &str = "select count(distinct event) from journal where has_completed";
const STARTED: &str = "select count(*) from journal";
const DEAD: &str = "select count(*) from wakeq.dead_events";
/// Runs without an end, apart from those of processes that died, below zero.
const OPEN: &str = "select -count(*) from journal_runs where ended_at is null";
/// What processes send arrives within this time, also if they are frozen meanwhile.
const IN_FLIGHT: Duration = Duration::from_millis(200);
/// The period of rates, and how many may start at once where a test says nothing else.
const PERIOD: Duration = Duration::from_secs(1);
const BURST: u32 = 1;

fn at_a_time(concurrency: u32) -> NewLimit {
    NewLimit { concurrency: Some(concurrency), ..NewLimit::default() }
}

fn a_second(count: u32, burst: u32) -> NewLimit {
    let rate = Rate { count, period: PERIOD, burst };
    NewLimit { rate: Some(rate), ..NewLimit::default() }
}

async fn put(scene: &CrashScene, canvas: CanvasId, name: &str, limit: &NewLimit) {
    let name: LimitName = name.parse().unwrap();
    scene.admin.put_limit(canvas, &name, limit, &Actor::user("test")).await.unwrap();
}

/// Emits events under a limit, page by page.
async fn emit(scene: &CrashScene, canvas: CanvasId, key: impl Fn(usize) -> String, count: usize, ms: u64) {
    for page in (0..count).collect::<Vec<_>>().chunks(1_000) {
        let events = page.iter().map(|number| noted(canvas, &key(*number), ms)).collect();
        scene.queue.emit_all(events).await.unwrap();
    }
}

/// Kills a process with -9.
async fn kill(scene: &CrashScene, victim: &Process) {
    scene.kill_9(victim).await;
    journal::fault(&scene.pool, victim.pid()).await;
}

/// Freezes a process until its leases have ended and others have taken its events over.
async fn freeze(scene: &CrashScene, victim: &Process) {
    victim.child.freeze();
    sleep(IN_FLIGHT).await; // a statement of its own may still be on its way
    journal::fault(&scene.pool, victim.pid()).await;
    sleep(Duration::from_millis(scene.services.timing.lease_ms) + Duration::from_secs(2)).await;
    victim.child.thaw();
}

/// How long after a fault the places of the dead may be empty: a lease, two passes, and the ten
/// seconds for which a place is kept for an event that a dead worker was to start.
fn recovery(scene: &CrashScene) -> Duration {
    Duration::from_millis(scene.services.timing.lease_ms + 2 * scene.services.timing.probe_ms)
        + Duration::from_secs(10)
}

/// Eight processes and five places. Each of two canvases has its own.
// Shows: LIMIT-01, LIMIT-02, LIMIT-03
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
#[ignore = "long: `cargo xtask long` runs it"]
async fn there_are_never_more_than_the_limit_whatever_is_killed() {
    let Some(mut cluster) = cluster("a test that kills Postgres").await else { return };
    let scene = CrashScene::on("limits", Durations::crowd(), Some(&cluster), None).await;
    journal::create(&scene.pool).await;
    let (count, beside) = (size(120, 20_000), size(30, 2_000));
    let (kills, falls, processes) = (size(4, 30), size(1, 2), size(3, 8));
    let lasting_ms = if is_full() { 300 } else { 50 };
    for canvas in [CanvasId::DEFAULT, OTHER] {
        put(&scene, canvas, "customer", &at_a_time(PLACES)).await;
    }
    let mut workers = scene.workers(processes, 16).await;
    emit(&scene, CanvasId::DEFAULT, |_| KEY.to_owned(), count, lasting_ms).await;
    emit(&scene, OTHER, |_| KEY.to_owned(), beside, lasting_ms).await;
    for kill_number in 1..=kills {
        scene.until_at_least(COMPLETED, ((count + beside) * kill_number / (kills + 1)) as i64).await;
        let victim = workers.remove(0);
        if kill_number % 4 == 0 {
            freeze(&scene, &victim).await;
            workers.push(victim);
        } else {
            kill(&scene, &victim).await;
            workers.push(scene.worker(16).await);
        }
        if kill_number % (kills / falls) == 0 {
            let at = scene.clock().await;
            cluster.kill_9().await.unwrap();
            cluster.start_again().await.unwrap();
            journal::fall(&scene.pool, at).await;
        }
    }
    let took = scene.until_empty().await;
    scene.until_at_least(OPEN, 0).await;
    let (completed, dead) = (scene.count(COMPLETED).await, scene.count(DEAD).await);
    assert_eq!((completed, dead), ((count + beside) as i64, 0), "none is lost");
    let most = journal::most(&scene.pool).await;
    assert!(most <= i64::from(PLACES), "{most} at a time, and the limit is {PLACES}");
    figure("events", format!("{count}, and {beside} of another canvas"));
    figure("kills of workers, a quarter of them frozen", kills);
    figure("kills of Postgres", falls);
    figure("the most at a time on one canvas", most);
    figure("runs that still wrote something when their process thawed", journal::went_on(&scene.pool).await);
    figure("all complete after the last kill", format!("{took:.1?}"));
    let (key, left) = ((CanvasId::DEFAULT, KEY), (size(20, 200) as i64, recovery(&scene)));
    let (share, calm) = journal::used(&scene.pool, key, PLACES as i32, left).await;
    figure("use of the places outside the faults", format!("{:.1} % of {calm:.0?}", share * 100.0));
    if is_full() {
        assert_eq!(most, i64::from(PLACES), "the places were all in use at some time");
        assert!(share >= 0.95, "{share:.3} of the places were in use");
    }
}

/// Ten thousand keys of one family at once, each with one place.
// Shows: LIMIT-04
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
#[ignore = "long: `cargo xtask long` runs it"]
async fn each_of_many_keys_has_a_place_of_its_own_whatever_is_killed() {
    let scene = CrashScene::new("limits-keys", Durations::crowd()).await;
    journal::create(&scene.pool).await;
    let (keys, each) = (size(60, 10_000), 3);
    let (kills, processes) = (size(2, 8), size(3, 8));
    put(&scene, CanvasId::DEFAULT, "work", &at_a_time(1)).await;
    let mut workers = scene.workers(processes, 32).await;
    emit(&scene, CanvasId::DEFAULT, |number| format!("work:{}", number % keys), keys * each, 20).await;
    for kill_number in 1..=kills {
        scene.until_at_least(COMPLETED, (keys * each * kill_number / (kills + 1)) as i64).await;
        kill(&scene, &workers.remove(0)).await;
        workers.push(scene.worker(32).await);
    }
    let took = scene.until_empty().await;
    scene.until_at_least(OPEN, 0).await;
    let (completed, dead) = (scene.count(COMPLETED).await, scene.count(DEAD).await);
    assert_eq!((completed, dead), ((keys * each) as i64, 0), "none is lost");
    assert_eq!(journal::most(&scene.pool).await, 1, "of one key at a time");
    figure("keys, events", format!("{keys}, {}", keys * each));
    figure("kills of workers", kills);
    figure("all complete after the last kill", format!("{took:.1?}"));
}

/// No start comes before the moment that the rate has for it, however many processes there are.
// Shows: LIMIT-05
#[tokio::test]
async fn no_start_comes_before_its_moment() {
    const RATE: i64 = 20;
    const BURST: i64 = 5;
    let scene = CrashScene::new("limits-starts", Durations::crowd()).await;
    journal::create(&scene.pool).await;
    // The other canvas has the same rate again.
    for canvas in [CanvasId::DEFAULT, OTHER] {
        put(&scene, canvas, "provider", &a_second(RATE as u32, BURST as u32)).await;
    }
    let _workers = scene.workers(3, 16).await;
    let since = scene.clock().await;
    for canvas in [CanvasId::DEFAULT, OTHER] {
        emit(&scene, canvas, |_| "provider".to_owned(), 40, 1).await;
    }
    scene.until_empty().await;
    for canvas in [CanvasId::DEFAULT, OTHER] {
        let starts = starts(&scene, canvas).await;
        assert_eq!(starts.len(), 40);
        for (at, number) in starts.into_iter().zip(1..) {
            let earliest_us = (number - BURST).max(0) * 1_000_000 / RATE;
            let after_us = (at - since).num_microseconds().unwrap();
            assert!(after_us >= earliest_us, "{number}: after {after_us} µs, and not before {earliest_us}");
        }
    }
}

async fn starts(scene: &CrashScene, canvas: CanvasId) -> Vec<Timestamp> {
    let starts = "select claimed_at from journal where canvas = $1 order by 1";
    sqlx::query_scalar(starts).bind(canvas.0).fetch_all(&scene.pool).await.unwrap()
}

/// 100 a second for a minute, 10 a second for half of one, and 100 again, each from the first
/// second on; then to 10 and back within one. At the usual size nothing is timed, and it only shows
/// that changes lose no event.
// Shows: LIMIT-06
#[tokio::test]
async fn a_rate_is_kept_and_changed_while_events_wait() {
    const EVENTS: i64 = 150;
    let scene = CrashScene::new("limits-rates", Durations::crowd()).await;
    journal::create(&scene.pool).await;
    put(&scene, CanvasId::DEFAULT, "provider", &a_second(100, BURST)).await;
    let _workers = scene.workers(size(2, 8), 32).await;
    // Enough that events wait until the end.
    emit(&scene, CanvasId::DEFAULT, |_| "provider".to_owned(), size(EVENTS as usize, 16_000), 1).await;
    for (before, rate, lasts_s) in [(None, 100, 60), (Some(100), 10, 30), (Some(10), 100, 30)] {
        if before.is_some() {
            put(&scene, CanvasId::DEFAULT, "provider", &a_second(rate, BURST)).await;
        }
        if is_full() {
            if let Some(before) = before {
                felt(&scene, before, rate).await;
            }
            pace(&scene, rate, lasts_s).await;
        } else {
            // So many have started under this rate, or all that there are: where this process gets
            // no time, the workers start many before it counts.
            let before = scene.count(STARTED).await;
            scene.until_at_least(STARTED, (before + 20).min(EVENTS)).await;
        }
    }
    if is_full() {
        to_and_fro(&scene, 100, 10).await;
        return; // the rest would take as long again and show nothing new
    }
    scene.until_empty().await;
    assert_eq!(scene.count(COMPLETED).await, EVENTS, "none is lost");
}

/// How many have started in each of the periods since then, once they are over and noted.
async fn starts_in<const PERIODS: usize>(scene: &CrashScene, since: Timestamp) -> [i64; PERIODS] {
    let left = (since + PERIOD * (PERIODS as u32 + 1) - scene.clock().await).to_std().unwrap_or_default();
    sleep(left).await;
    let mut counts = [0; PERIODS];
    for (period, count) in (0..).zip(&mut counts) {
        *count = starts_between(scene, since + PERIOD * period, PERIOD).await;
    }
    counts
}

async fn starts_between(scene: &CrashScene, since: Timestamp, lasts: Duration) -> i64 {
    let started = "select count(*) from journal where claimed_at >= $1 and claimed_at < $2";
    sqlx::query_scalar(started).bind(since).bind(since + lasts).fetch_one(&scene.pool).await.unwrap()
}

/// The most that may start in a period: at this rate, at once, and half a second ahead. What was
/// paid for at the rate before starts as well.
fn most_in_a_period(rate: u32, before: u32) -> i64 {
    i64::from(rate + BURST + rate.max(before) / 2)
}

/// A change counts from the first period on: it has no more starts than the new rate allows, and at
/// least half of them.
async fn felt(scene: &CrashScene, before: u32, rate: u32) {
    let since = scene.clock().await;
    let [first, second] = starts_in(scene, since).await;
    let name = format!("starts in the first seconds after a change from {before} to {rate}");
    figure(&name, format!("{first}, {second}"));
    let most = [most_in_a_period(rate, before), most_in_a_period(rate, rate)];
    assert!(first <= most[0] && second <= most[1], "{first} and {second} starts, at most {most:?}");
    let least = i64::from(rate / 2);
    assert!(first.min(second) >= least, "{first} and {second} starts at a rate of {rate}");
}

/// Changes the rate, and back within the same period.
async fn to_and_fro(scene: &CrashScene, rate: u32, meanwhile: u32) {
    let since = scene.clock().await;
    put(scene, CanvasId::DEFAULT, "provider", &a_second(meanwhile, BURST)).await;
    sleep(PERIOD / 4).await;
    put(scene, CanvasId::DEFAULT, "provider", &a_second(rate, BURST)).await;
    let back = scene.clock().await;
    let took = (back - since).to_std().unwrap();
    assert!(took < PERIOD, "two changes took {took:?}: the machine is too slow for this");
    let [first, second] = starts_in(scene, back).await;
    let meanwhile = starts_between(scene, since, took).await;
    let figures = format!("{meanwhile} in {took:.1?}, {first}, {second}");
    figure("starts between two changes, and in the first seconds after", figures);
    let most = most_in_a_period(rate, rate);
    for count in [meanwhile, first, second] {
        assert!(count <= most, "{meanwhile}, {first} and {second} starts, at most {most}");
    }
    let least = i64::from(rate / 2);
    assert!(first.min(second) >= least, "{first} and {second} starts at a rate of {rate}");
    pace(scene, rate, 10).await;
}

/// Lets this many seconds pass, and compares the starts in them with the rate.
async fn pace(scene: &CrashScene, rate: u32, lasts_s: u32) {
    /// Workers that hold events for their moment may start those first, and make up for them.
    const SETTLING: Duration = Duration::from_secs(5);
    sleep(SETTLING).await;
    let since = scene.clock().await;
    let lasts = Duration::from_secs(lasts_s.into());
    sleep(lasts + IN_FLIGHT).await;
    let started = starts_between(scene, since, lasts).await;
    let expected = f64::from(rate * lasts_s);
    let off = (started as f64 - expected) / expected;
    figure(&format!("{rate} a second for {lasts_s} s"), format!("{started} starts, {:+.1} %", off * 100.0));
    assert!(off.abs() <= 0.02, "{started} starts in {lasts_s} s, and the rate is {rate} a second");
    let left: i64 = scene.pool.value("select count(*) from wakeq.events_v2").await;
    assert!(left > 0, "it ran out of events");
}
