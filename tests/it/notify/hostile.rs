//! A notifier that loses, duplicates, delays, reorders and forges: every event completes, and
//! completes once.

use std::collections::BTreeMap;
use std::sync::Arc;
use std::time::Duration;

use futures_util::{StreamExt, stream};
use wakeq::machine::Outcome;
use wakeq::notify::{Notifier, PubSub};
use wakeq::testing::{Faults, MemoryNotifier};
use wakeq::{
    Actor, Event, EventId, Execution, HandlerError, Handlers, RetryPolicy, Route, Stop, Timing, WorkerConfig,
};
use wakeq_emulator::broker::FaultCounts;
use wakeq_emulator::{Emulator, Options};

use crate::simulation::world::emulated::add;
use crate::support::brokers::Broker;
use crate::support::crash_scene::{figure, size};
use crate::support::handlers::{Recording, answering};
use crate::support::{Stage, TIMEOUT, quick, scope};

const EVENTS: u64 = 30;
/// How many seeds run at a time.
const AT_ONCE: usize = 8;
/// The same over gRPC.
const AT_ONCE_OVER_GRPC: usize = 4;

/// What is lost is found quickly. No process dies here, so an expired lease would only mean that
/// the machine is slow.
fn hasty() -> Timing {
    let tick = Duration::from_millis(200);
    Timing {
        lease: Duration::from_secs(20),
        grace: tick,
        probe_period: tick,
        probe_backoff: tick,
        probe_backoff_max: Duration::from_millis(800),
        ..quick()
    }
}

/// Each seed has its own mix of faults; one in four has all of them at their worst.
fn faults(seed: u64) -> Faults {
    let share = |shift: u64| ((seed.wrapping_mul(0x9e37_79b9_7f4a_7c15) >> shift) % 100) as f64 / 100.0;
    let worst = seed.is_multiple_of(4);
    let mix = |shift, most: f64| if worst { most } else { most * share(shift) };
    Faults {
        lose: mix(8, 0.5),
        double: mix(16, 0.8),
        delay: mix(24, 0.6),
        reorder: mix(32, 0.9),
        forge: mix(40, 0.5),
        longest_delay: Duration::from_millis(300),
    }
}

/// Events due at once or a little later; every fifth fails the first time; every third has a
/// handler with a concurrency of one.
async fn emit(stage: &Stage) -> Vec<EventId> {
    let events = (0..EVENTS).map(|number| {
        let name = if number.is_multiple_of(3) { "narrow" } else { "wide" };
        let event = Event::new(name, &number).unwrap();
        if number % 4 == 1 { event.after(Duration::from_millis(number * 20)).unwrap() } else { event }
    });
    let emitted = stage.queue.emit_all(events.collect()).await.unwrap();
    emitted.into_iter().map(|emitted| emitted.id).collect()
}

fn fails(event: &Execution) -> bool {
    event.attempt == 1 && event.value::<u64>().unwrap().is_multiple_of(5)
}

fn handlers() -> (Handlers, Recording<Execution>) {
    let (handler, seen) =
        answering(|event| if fails(event) { Err(HandlerError::operational("not yet")) } else { Ok(()) });
    let retry = RetryPolicy { delay: Duration::from_millis(100), ..RetryPolicy::default() };
    let narrow = Route::new("narrow").retry(retry).concurrency(1);
    (Handlers::new().on(narrow, handler.clone()).on(Route::new("wide").retry(retry), handler), seen)
}

async fn check_in_memory(seed: u64) {
    check(seed, Arc::new(MemoryNotifier::hostile(seed, faults(seed)))).await;
}

/// The real notifier and the official client, over gRPC to an emulator that does the same; it also
/// breaks streams and refuses calls. Returns how often it did what.
async fn check_over_grpc(seed: u64) -> FaultCounts {
    let emulator = Emulator::start("127.0.0.1:0".parse().unwrap(), Options::default()).await.unwrap();
    let mut config = Broker::config_at(emulator.host(), "hostile");
    config.create_missing = true;
    let notifier = Arc::new(PubSub::connect(config).await.unwrap());
    let Faults { lose, double, delay, reorder, longest_delay, .. } = faults(seed);
    emulator.set_faults(wakeq_emulator::Faults {
        seed,
        lose,
        duplicate: double,
        delay,
        reorder,
        longest_delay,
        break_streams: lose / 5.0,
        unavailable: lose / 5.0,
        ..wakeq_emulator::Faults::default()
    });
    check(seed, notifier).await;
    let counts = emulator.broker(|broker, _| broker.fault_counts());
    emulator.stop().await;
    counts
}

/// Runs one seed to its end: every event was attempted as often as it should be, at its time, and
/// is gone.
async fn check(seed: u64, notifier: Arc<dyn Notifier>) {
    let stage = Stage::with(notifier, hasty()).await;
    let (handlers, mut seen) = handlers();
    let prefetch = Some((seed % 5) as usize);
    let lot_max = 1 + (seed % 8) as usize * 4;
    let config = WorkerConfig { capacity: 4, prefetch, lot_max, ..WorkerConfig::default() };
    let workers = [(); 2].map(|()| stage.worker_with(handlers.clone(), config.clone()));
    let emitted = emit(&stage).await;
    if seed.is_multiple_of(3) {
        stage.admin.pause(&scope("wide"), &Actor::user("ada"), &Stop::default()).await.unwrap();
        stage.admin.unpause(&scope("wide"), &Actor::user("ada")).await.unwrap();
    }
    let failing = EVENTS.div_ceil(5) as usize;
    let mut ran = Vec::new();
    while ran.len() < emitted.len() + failing {
        match tokio::time::timeout(TIMEOUT / 2, seen.next()).await {
            Ok(event) => ran.push(event),
            Err(_) => panic!("seed {seed}: nothing runs any longer: {}", stage.left().await),
        }
    }
    for worker in workers {
        assert_eq!(worker.counters.outcome(Outcome::LeaseLost), 0, "seed {seed}");
        worker.stop().await;
    }
    ran.extend(seen.rest());
    let mut attempts: BTreeMap<EventId, Vec<u32>> = BTreeMap::new();
    for event in &ran {
        assert!(event.claimed_at >= event.due_at, "seed {seed}: {event:?}");
        attempts.entry(event.id).or_default().push(event.attempt);
    }
    let expected = emitted.iter().zip(0_u64..);
    let expected =
        expected.map(|(id, number)| (*id, if number.is_multiple_of(5) { vec![1, 2] } else { vec![1] }));
    assert_eq!(attempts, expected.collect(), "seed {seed}");
    assert_eq!(stage.rows().await, 0, "seed {seed}");
}

/// See also EV2-29.
// Shows: EV2-15, EV2-18, EV2-24, EV2-44, EV2-52
#[tokio::test]
#[ignore = "long: `cargo xtask long` runs it"]
async fn every_event_completes_once_whatever_the_notifier_does() {
    let wanted = size(16, 48);
    let seeds = stream::iter(0..wanted as u64).map(check_in_memory).buffer_unordered(AT_ONCE);
    assert_eq!(seeds.count().await, wanted);
}

/// EV2-15, EV2-18, EV2-24, EV2-29, EV2-44, EV2-52.
#[tokio::test]
#[ignore = "long: `cargo xtask long` runs it"]
async fn every_event_completes_once_whatever_the_emulator_does() {
    let wanted = size(4, 20);
    let seeds = stream::iter(0..wanted as u64).map(check_over_grpc).buffer_unordered(AT_ONCE_OVER_GRPC);
    let (counts, mut sums) = (seeds.collect::<Vec<_>>().await, FaultCounts::default());
    let played = counts.len();
    counts.into_iter().for_each(|counts| add(&mut sums, counts));
    figure("seeds over gRPC", played);
    figure("faults", format_args!("{sums:?}"));
    assert_eq!(played, wanted);
    let FaultCounts { lost, duplicated, delayed, reordered, broken_streams, refused_calls } = sums;
    let sums = [lost, duplicated, delayed, reordered, broken_streams, refused_calls];
    assert!(sums.into_iter().all(|sum| sum > 0), "too quiet: {sums:?}");
}

/// EV2-15, EV2-01: without any notification, the probe alone suffices.
#[tokio::test]
async fn every_event_completes_though_emits_are_never_published() {
    let notifier = Arc::new(MemoryNotifier::new());
    let stage = Stage::with(notifier.clone(), hasty()).await;
    notifier.break_down("away");
    let emitted = emit(&stage).await;
    notifier.mend();
    assert!(notifier.published().is_empty());
    let (handlers, mut seen) = handlers();
    let worker = stage.worker(handlers);
    let ran = seen.take(emitted.len() + EVENTS.div_ceil(5) as usize).await;
    let mut ran: Vec<_> = ran.iter().filter(|event| !fails(event)).map(|event| event.id).collect();
    ran.sort();
    assert_eq!(ran, emitted);
    worker.stop().await;
}

/// A row exists before its notification does.
// Shows: EV2-18
#[tokio::test]
async fn an_events_row_exists_before_its_notification() {
    let (stage, notifier) = Stage::memory().await;
    let (worker, mut seen) = stage.recording("greet");
    let emits = stream::iter(0..2000).map(|number| stage.queue.emit(Event::new("greet", &number).unwrap()));
    let emitted = emits.buffer_unordered(50).map(Result::unwrap).count().await;
    assert_eq!(seen.take(2000).await.len(), emitted);
    notifier.drained().await;
    assert_eq!(worker.counters.outcome(Outcome::EventMissing), 0);
    assert_eq!(worker.counters.outcome(Outcome::Deleted), 2000);
    worker.stop().await;
}
