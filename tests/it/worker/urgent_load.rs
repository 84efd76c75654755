//! Urgent events under load, over the brokers that have a way of their own for them: they start
//! while a large backlog has every other place, and a flood of them leaves others their share.
//!
//! `WAKEQ_CHAOS=full` makes the same tests large. Only then is time compared with a bound.

use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::time::{Duration, Instant};

use tokio::time::sleep;
use wakeq::{CanvasId, Event, Execution, Handlers, Timing, WorkerConfig};

use super::urgent::{nats, pubsub};
use crate::support::crash_scene::{figure, is_full, size};
use crate::support::handlers::reporting;
use crate::support::{OTHER, Stage, capacity, until};

/// So few that a slow function leaves none of them to others.
const PLACES: usize = 7;
/// Urgent events of each of two canvases.
const ALARMS: usize = 5;
const STARTED_WITHIN: Duration = Duration::from_secs(1);
/// Of four starts at least one is of an event that is not urgent, while any waits.
const SHARE: f64 = 0.25;
/// How many events one call emits.
const PAGE: usize = 5_000;
/// How often a test looks at what handlers count.
const LOOK: Duration = Duration::from_millis(5);

async fn emit(stage: &Stage, count: usize, event: impl Fn(usize) -> Event) {
    for page in (0..count).collect::<Vec<_>>().chunks(PAGE) {
        stage.queue.emit_all(page.iter().map(|number| event(*number)).collect()).await.unwrap();
    }
}

/// Long runs have every place but the one that is kept, and many more wait. Urgent events of the
/// same canvas and of another one start meanwhile, one after the other.
async fn starts_behind_a_backlog(stage: &Stage) {
    let (count, lasts) = (size(200, 100_000), Duration::from_secs(if is_full() { 10 } else { 1 }));
    let running = Arc::new(AtomicUsize::new(0));
    let busy = {
        let running = Arc::clone(&running);
        move |_: Execution| {
            let running = Arc::clone(&running);
            async move {
                running.fetch_add(1, Ordering::SeqCst);
                // Simulates the work.
                sleep(lasts).await;
                running.fetch_sub(1, Ordering::SeqCst);
                Ok(())
            }
        }
    };
    let (alarms, mut seen) = reporting(|event| async move { Ok((event.id, Instant::now())) });
    emit(stage, count, |number| Event::new("busy", &number).unwrap()).await;
    let config = WorkerConfig { urgent_slots: 1, ..capacity(PLACES) };
    let worker = stage.worker_with(Handlers::new().on("busy", busy).on("alarm", alarms), config);
    let mut slowest = Duration::ZERO;
    for canvas in [CanvasId::DEFAULT; ALARMS].into_iter().chain([OTHER; ALARMS]) {
        let are_taken = async || {
            sleep(LOOK).await;
            (running.load(Ordering::SeqCst) == PLACES - 1).then_some(())
        };
        until("all other places are taken", are_taken).await;
        let began = Instant::now();
        let alarm = Event::new("alarm", &1).unwrap().canvas(canvas).urgent();
        let id = stage.queue.emit(alarm).await.unwrap().id;
        let (started, at) = seen.next().await;
        assert_eq!(started, id);
        slowest = slowest.max(at - began);
    }
    let left = stage.count("select count(*) from wakeq.events_v2 where name = 'busy'").await;
    assert!(left >= PLACES as i64, "nothing waited any more");
    figure("others, of which were left", format!("{count}, {left}"));
    figure("the slowest of the urgent events started after", format!("{slowest:.1?}"));
    assert!(!is_full() || slowest <= STARTED_WITHIN, "an urgent event has waited for {slowest:?}");
    worker.stop().await;
}

/// Events of both classes wait when the worker starts, which keeps no place. Those that are not
/// urgent are of two canvases.
async fn leaves_others_their_share(stage: &Stage) {
    let count = size(200, 10_000);
    let (work, mut seen) = reporting(|event: Execution| async move {
        // Simulates the work.
        sleep(Duration::from_millis(2)).await;
        Ok((event.address.scope.canvas, event.address.scope.name.as_str() == "flood"))
    });
    let usual = |number: usize| {
        let canvas = if number.is_multiple_of(2) { CanvasId::DEFAULT } else { OTHER };
        Event::new("usual", &number).unwrap().canvas(canvas)
    };
    emit(stage, count, usual).await;
    emit(stage, count, |number| Event::new("flood", &number).unwrap().urgent()).await;
    let handlers = Handlers::new().on("usual", work.clone()).on("flood", work);
    let worker = stage.worker_with(handlers, capacity(4));
    let ran = seen.take(2 * count).await;
    let first = |urgent: bool| ran.iter().position(|(_, flood)| *flood == urgent).unwrap();
    let mut urgent = ran.iter().enumerate().filter(|(_, (_, flood))| *flood).map(|(at, _)| at);
    let most_are_over = urgent.nth(count * 9 / 10).unwrap();
    let under_flood = &ran[first(true).max(first(false))..most_are_over];
    let others: Vec<CanvasId> =
        under_flood.iter().filter(|(_, flood)| !flood).map(|(canvas, _)| *canvas).collect();
    let share = others.len() as f64 / under_flood.len() as f64;
    figure("share of others under a flood", format!("{share:.3} of {} runs", under_flood.len()));
    // They end in another order than they started in, and a small backlog has hardly begun.
    let least = if is_full() { SHARE * 0.95 } else { SHARE / 2.0 };
    assert!(share >= least, "others have {share:.3}, and are promised {SHARE}");
    let of_one = others.iter().filter(|canvas| **canvas == OTHER).count() as f64 / others.len() as f64;
    assert!(!is_full() || (0.4..=0.6).contains(&of_one), "of two canvases, one has {of_one:.3}");
    worker.stop().await;
}

// Shows: URG-01
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn they_start_behind_a_large_backlog_over_nats() {
    let Some(notifier) = nats("backlog").await else { return };
    starts_behind_a_backlog(&Stage::with(notifier, Timing::default()).await).await;
}

// Shows: URG-01
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn they_start_behind_a_large_backlog_over_pubsub() {
    let notifier = pubsub("backlog").await;
    starts_behind_a_backlog(&Stage::with(notifier, Timing::default()).await).await;
}

// Shows: URG-02
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_flood_leaves_others_their_share_over_nats() {
    let Some(notifier) = nats("flood").await else { return };
    leaves_others_their_share(&Stage::with(notifier, Timing::default()).await).await;
}

// Shows: URG-02
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_flood_leaves_others_their_share_over_pubsub() {
    let notifier = pubsub("flood").await;
    leaves_others_their_share(&Stage::with(notifier, Timing::default()).await).await;
}
