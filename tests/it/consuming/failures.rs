//! What becomes of events that fail, and of consumers that can't read.

use std::sync::Arc;
use std::time::Duration;

use async_trait::async_trait;
use tokio::sync::watch;
use wakeq::{
    ConsumerConfig, ConsumerError, ErrorStrategy, EventProvider, EventSource, EventSubscriber, Health,
    LogPage, MemoryPositions, PageLimit, PositionKey,
};

use crate::support::PATIENCE;

use super::scene::{Kind, Mute, Scene, Trouble, category, on_each, woken};

on_each! {
    a_consumer_that_fails_is_unhealthy_and_stops_there;
    an_event_that_is_given_up_is_kept_among_the_dead;
}

// SUB-41
async fn a_consumer_that_fails_is_unhealthy_and_stops_there(scene: Scene) {
    let config = ConsumerConfig { on_error: ErrorStrategy::stop(), ..woken() };
    let (consumer, recorder, mut handed) = scene.consumer(config);
    recorder.trouble(2, Trouble::Fails, 1);
    let mut seqs = Vec::new();
    for payload in 1..=3 {
        seqs.push(scene.append("one", payload).await);
    }
    let mut health = consumer.health();
    consumer.accept(category(), 1);
    assert_eq!(handed.take(2).await, seqs[..2]);
    let ill = health.wait_for(|health| *health != Health::Healthy).await.unwrap().clone();
    let Health::Unhealthy(why) = ill else { panic!("{ill:?}") };
    assert!(why.contains("category/companies failed: it was told to fail"), "{why}");
    assert_eq!(consumer.sources(), []);
    assert_eq!(scene.position(&category(), 1).await, seqs[0], "what came before is done with");
    consumer.recover();
    assert_eq!(handed.take(2).await, seqs[1..]);
    assert_eq!(*consumer.health().borrow(), Health::Healthy);
    consumer.withdraw(&category()).await;
}

// SUB-X3
async fn an_event_that_is_given_up_is_kept_among_the_dead(scene: Scene) {
    let config = ConsumerConfig {
        on_error: ErrorStrategy::skip().retrying(1, Duration::from_millis(1)),
        timeout: Duration::from_millis(50),
        ..woken()
    };
    let (consumer, recorder, mut handed) = scene.consumer(config);
    recorder.trouble(1, Trouble::Fails, 1);
    recorder.trouble(2, Trouble::Panics, 2);
    recorder.trouble(3, Trouble::Hangs, 9);
    let mut seqs = Vec::new();
    for payload in 1..=4 {
        seqs.push(scene.append("one", payload).await);
    }
    consumer.accept(category(), 1);
    let tried = [0, 0, 1, 1, 2, 2, 3].map(|at: usize| seqs[at]);
    assert_eq!(handed.take(7).await, tried);
    consumer.withdraw(&category()).await;
    assert_eq!(*consumer.health().borrow(), Health::Healthy);
    assert_eq!(scene.position(&category(), 2).await, seqs[3]);
}

#[tokio::test]
async fn the_dead_of_a_group_are_told_with_their_errors() {
    let stage = crate::support::Stage::memory().await.0;
    let mut scene = Scene::new(Kind::Memory).await;
    scene.positions = Arc::new(stage.store.clone());
    let (consumer, recorder, mut handed) =
        scene.consumer(ConsumerConfig { on_error: ErrorStrategy::skip(), ..woken() });
    recorder.trouble(1, Trouble::Fails, 1);
    let seq = scene.append("one", 1).await;
    scene.append("one", 2).await;
    consumer.accept(category(), 1);
    handed.take(2).await;
    consumer.withdraw(&category()).await;
    let dead: (String, String, i64, String, i32, String) = sqlx::query_as(
        "select consumer_group, source, seq, payload, attempts, last_error from wakeq.consumer_dead",
    )
    .fetch_one(&stage.pool)
    .await
    .unwrap();
    let told = |text: &str| text.to_owned();
    let expected =
        (told("projection"), told("category/companies"), seq, told("1"), 1, told("it was told to fail"));
    assert_eq!(dead, expected);
}

/// A deposed owner gives nothing up either: the event is neither among the dead nor passed over.
#[tokio::test]
async fn who_is_deposed_gives_nothing_up() {
    let positions = Arc::new(MemoryPositions::default());
    let mut scene = Scene::new(Kind::Memory).await;
    scene.positions = positions.clone();
    let config =
        ConsumerConfig { on_error: ErrorStrategy::skip(), timeout: Duration::from_millis(50), ..woken() };
    let (consumer, recorder, mut handed) = scene.consumer(config);
    recorder.trouble(1, Trouble::Hangs, 1);
    scene.append("one", 1).await;
    consumer.accept(category(), 1);
    handed.next().await;
    assert_eq!(scene.position(&category(), 2).await, 0);
    while !consumer.sources().is_empty() {
        tokio::task::yield_now().await;
    }
    let key = PositionKey { group: "projection".parse().unwrap(), source: category() };
    assert_eq!((positions.position(&key), positions.dead(&key)), (0, Vec::new()));
}

#[tokio::test(start_paused = true)]
async fn what_can_t_be_read_now_is_read_later() {
    let mut scene = Scene::new(Kind::Memory).await;
    let mute = Arc::new(Mute::new(Arc::clone(&scene.provider)));
    scene.provider = mute.clone();
    *mute.failures.lock().unwrap() = 3;
    let (consumer, _, mut handed) = scene.consumer(ConsumerConfig::default());
    let seq = scene.append("one", 1).await;
    let begun = tokio::time::Instant::now();
    consumer.accept(category(), 1);
    assert_eq!(handed.next().await.seq, seq);
    let waited = begun.elapsed();
    assert!(waited >= Duration::from_millis(1_400) && waited < Duration::from_secs(2), "{waited:?}");
    assert_eq!(*consumer.health().borrow(), Health::Healthy);
}

/// A provider of somebody's that panics makes the consumer unhealthy, so that its sources move; it does not stand still in silence.
#[tokio::test]
async fn a_provider_that_panics_is_told() {
    let mut scene = Scene::new(Kind::Memory).await;
    scene.provider = Arc::new(Panicking);
    let (consumer, ..) = scene.consumer(woken());
    let mut health = consumer.health();
    consumer.accept(category(), 1);
    let ill = tokio::time::timeout(PATIENCE, health.wait_for(|health| *health != Health::Healthy)).await;
    let ill = ill.unwrap().unwrap().clone();
    assert!(matches!(&ill, Health::Unhealthy(why) if why.contains("panicked")), "{ill:?}");
}

struct Panicking;

#[async_trait]
impl EventProvider for Panicking {
    async fn read(&self, _: &EventSource, _: i64, _: PageLimit) -> Result<LogPage, ConsumerError> {
        panic!("it was told to panic")
    }

    fn watch(&self, _: &EventSource) -> watch::Receiver<u64> {
        watch::channel(0).1
    }
}

/// Among others' events a source is withdrawn at once, and what was looked through is not looked through again.
#[tokio::test]
async fn a_long_way_through_others_events_ends_when_it_is_told_to() {
    let mut scene = Scene::new(Kind::Memory).await;
    scene.provider = Arc::new(OfOthers);
    let (consumer, ..) = scene.consumer(woken());
    consumer.accept(category(), 1);
    while scene.position(&category(), 1).await < 30 {
        tokio::task::yield_now().await;
    }
    tokio::time::timeout(PATIENCE, consumer.withdraw(&category())).await.expect("it ends");
}

/// Endless pages without anything of the source.
struct OfOthers;

#[async_trait]
impl EventProvider for OfOthers {
    async fn read(&self, _: &EventSource, after: i64, _: PageLimit) -> Result<LogPage, ConsumerError> {
        tokio::task::yield_now().await;
        Ok(LogPage { events: Vec::new(), through: after + 10, more: true, held: false })
    }

    fn watch(&self, _: &EventSource) -> watch::Receiver<u64> {
        watch::channel(0).1
    }
}
