//! What happens to events that fail, and to consumers that can't read.

use std::sync::Arc;
use std::time::Duration;

use async_trait::async_trait;
use tokio::sync::watch;
use wakeq::log::{EventSource, LogPage, PageLimit, StreamId};
use wakeq::{Actor, CanvasId, Name};
use wakeq_streams::consumers::{MemoryPositions, PositionKey};
use wakeq_streams::control::{FailingEvent, GroupDeadCursor};
use wakeq_streams::{
    BrokerBacking, BrokerConfig, ConsumerConfig, ConsumerError, ErrorStrategy, EventBroker, EventProvider,
    EventSubscriber, GroupError, Groups, Health,
};

use super::scene::{Kind, Scene, SilentProvider, Trouble, category, on_each, unhealthy, woken};
use crate::support::spy_log::SpyLog;
use crate::support::{Looks, TIMEOUT, until, wait_while};

on_each! {
    a_consumer_that_fails_is_unhealthy_and_stops_there;
    an_event_that_fails_holds_up_its_source_alone;
    an_event_that_is_given_up_is_kept_among_the_dead;
}

// Shows: SUB-41 as postgres::*
async fn a_consumer_that_fails_is_unhealthy_and_stops_there(scene: Scene) {
    let config = ConsumerConfig { on_error: ErrorStrategy::stop(), ..woken() };
    let (consumer, recorder, mut handed) = scene.consumer(config);
    recorder.trouble(2, Trouble::Fails, 1);
    let seqs = scene.append_all(1..=3).await;
    consumer.accept(category(), 1);
    assert_eq!(handed.take(2).await, seqs[..2]);
    let why = unhealthy(&consumer).await;
    assert!(why.contains("category/companies failed: it was told to fail"), "{why}");
    assert_eq!(consumer.sources(), []);
    assert_eq!(scene.position(&category(), 1).await, seqs[0], "what came before is done with");
    consumer.recover();
    assert_eq!(handed.take(2).await, seqs[1..]);
    assert_eq!(*consumer.health().borrow(), Health::Healthy);
    consumer.withdraw(&category()).await;
}

/// By default, a failed event is retried and holds up its source, but no other source of the
/// consumer; what was handled before it is committed.
// Shows: SUB-41 as postgres::*
async fn an_event_that_fails_holds_up_its_source_alone(scene: Scene) {
    let hour = Duration::from_secs(3600);
    let on_error = ErrorStrategy { backoff: hour, backoff_max: hour, ..ConsumerConfig::default().on_error };
    let (consumer, recorder, mut handed) = scene.consumer(ConsumerConfig { on_error, ..woken() });
    let people = EventSource::category("people").unwrap();
    let consumer = consumer.and(people.clone()).unwrap();
    assert_eq!(consumer.requests(), [category(), people.clone()]);
    recorder.trouble(2, Trouble::Fails, 3);
    let seqs = scene.append_all(1..=3).await;
    consumer.accept(category(), 1);
    assert_eq!(handed.take(2).await, seqs[..2]);
    let person = StreamId::new(CanvasId::DEFAULT, "people", "ada").unwrap();
    let other = scene.append_to(&person, 9).await;
    consumer.accept(people, 1);
    assert_eq!(handed.take(1).await, [other]);
    for _ in 0..2 {
        // It waits for the next attempt only after it has committed its position and the reason.
        wait_while!(scene.position(&category(), 1).await < seqs[0], "it commits them");
        consumer.recover();
        assert_eq!(handed.take(1).await, seqs[1..2]);
    }
    assert_eq!(*consumer.health().borrow(), Health::Healthy);
    assert_eq!(consumer.sources().len(), 2);
    let mut looks = Looks::default();
    let last = async {
        while handed.is_empty() {
            consumer.recover();
            looks.pause().await;
        }
    };
    tokio::time::timeout(TIMEOUT, last).await.expect("it is tried again");
    assert_eq!(handed.take(1).await, seqs[2..]);
    consumer.withdraw(&category()).await;
    assert!(scene.position(&category(), 2).await >= seqs[2]);
}

/// Operators see which event a source waits for and can have it retried, whichever process owns the
/// source and whatever its broker; so too for a consumer that has stopped. Another group does not
/// notice.
// Shows: SUB-41
#[tokio::test]
async fn operators_see_what_fails_and_have_it_tried_again() {
    let stage = crate::support::Stage::memory().await.0;
    let periods = BrokerConfig { heartbeat: Duration::from_millis(100), ..BrokerConfig::default() };
    let backing = || BrokerBacking::Postgres(stage.store.clone());
    let signals = stage.queue.signals().clone();
    let brokers = [
        EventBroker::single(backing(), periods).unwrap(),
        EventBroker::distributed(backing(), signals, periods).unwrap(),
    ];
    let operator = Actor::user("ada");
    for (number, broker) in brokers.into_iter().enumerate() {
        let scene = Scene::over(&stage).await;
        let hour = Duration::from_secs(3600);
        let stops = ErrorStrategy::stop();
        let waits = ErrorStrategy { backoff: hour, backoff_max: hour, ..ErrorStrategy::retry() };
        let names: [Name; 2] = ["waits", "stops"].map(|kind| format!("{kind}-{number}").parse().unwrap());
        let mut all = Vec::new();
        for (name, on_error) in names.iter().zip([waits, stops]) {
            let (consumer, recorder, handed) =
                scene.consumer_named(name.clone(), ConsumerConfig { on_error, ..woken() });
            recorder.trouble(2, Trouble::Fails, 1);
            let consumer = Arc::new(consumer);
            broker.register(consumer.clone()).await.unwrap();
            all.push((consumer, handed));
        }
        let seqs = scene.append_all([1, 2]).await;
        let stop = broker.stop_token();
        let running = tokio::spawn(async move { broker.run().await });
        for (_, handed) in &mut all {
            assert_eq!(handed.take(2).await, seqs);
        }
        let failing = failing(&stage.groups(), &names[0]).await;
        assert_eq!((failing.seq, failing.attempts), (seqs[1], 1));
        assert_eq!(failing.error, "it was told to fail");
        unhealthy(&all[1].0).await;
        for (at, name) in names.iter().enumerate() {
            assert!(all[at].1.is_empty(), "nothing is tried before it is asked for");
            let asked = async {
                while all[at].1.is_empty() {
                    stage.groups().recover_group(name, &operator).await.unwrap();
                    // A member checks with each heartbeat, and only then.
                    tokio::time::sleep(periods.heartbeat).await;
                }
            };
            tokio::time::timeout(TIMEOUT, asked).await.expect("it is tried again");
        }
        let shown = async || stage.groups().group(&names[0]).await.unwrap().sources.remove(0);
        wait_while!(shown().await.failing.is_some(), "it fails no more");
        let busy = stage.groups().remove_group(&names[0], None, &operator).await.unwrap_err();
        assert!(matches!(busy, GroupError::GroupInUse(_)), "{busy}");
        stop.cancel();
        running.await.unwrap().unwrap();
        let removed = stage.groups().remove_group(&names[0], None, &operator).await.unwrap();
        assert_eq!((removed.positions, removed.pins), (1, 0));
        assert!(matches!(stage.groups().group(&names[0]).await, Err(GroupError::NoGroup(_))));
        assert_eq!(stage.groups().group(&names[1]).await.unwrap().sources[0].position, seqs[1]);
    }
}

/// The event that the single source of a group waits for, once it does.
async fn failing(groups: &Groups, group: &Name) -> FailingEvent {
    until("it is seen", async || groups.group(group).await.unwrap().sources.remove(0).failing).await
}

/// A page that takes too long to read is split into smaller reads.
// Shows: ENT-X2
#[tokio::test(start_paused = true)]
async fn a_page_that_takes_too_long_is_read_in_parts() {
    let mut scene = Scene::new(Kind::Memory).await;
    let timing_out = SpyLog::new(Arc::clone(&scene.provider), |limit| {
        let late = ConsumerError::unavailable("it took too long", std::io::Error::other("late"));
        if limit.events > 16 { Err(late) } else { Ok(()) }
    });
    scene.provider = timing_out.clone();
    let (consumer, _, mut handed) = scene.consumer(ConsumerConfig::default());
    let seqs = scene.append_all(0..40).await;
    consumer.accept(category(), 1);
    assert_eq!(handed.take(40).await, seqs);
    assert_eq!(timing_out.limits()[..6], [500, 250, 125, 62, 31, 15]);
}

// See also SUB-X3.
// Shows: SUB-58 as postgres::*
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
    let seqs = scene.append_all(1..=4).await;
    consumer.accept(category(), 1);
    let tried = [0, 0, 1, 1, 2, 2, 3].map(|at: usize| seqs[at]);
    assert_eq!(handed.take(7).await, tried);
    consumer.withdraw(&category()).await;
    assert_eq!(*consumer.health().borrow(), Health::Healthy);
    assert_eq!(scene.position(&category(), 2).await, seqs[3]);
}

#[tokio::test]
async fn the_dead_of_a_group_are_told_with_their_errors() {
    let (stage, scene) = Scene::on_a_stage().await;
    let (consumer, recorder, mut handed) =
        scene.consumer(ConsumerConfig { on_error: ErrorStrategy::skip(), ..woken() });
    recorder.trouble(1, Trouble::Fails, 1);
    let seq = scene.append("one", 1).await;
    scene.append("one", 2).await;
    consumer.accept(category(), 1);
    handed.take(2).await;
    consumer.withdraw(&category()).await;
    let sql = "select consumer_group, source, seq, payload, attempts, last_error from wakeq.consumer_dead";
    let dead: (String, String, i64, String, i32, String) =
        sqlx::query_as(sql).fetch_one(&stage.pool).await.unwrap();
    let owned = |text: &str| text.to_owned();
    let expected =
        (owned("projection"), owned("category/companies"), seq, owned("1"), 1, owned("it was told to fail"));
    assert_eq!(dead, expected);
}

/// An operator can have a dead letter retried: if it is handled, it is no longer dead; if it fails,
/// it is dead again. Another group's dead letter stays.
// Shows: SUB-41
#[tokio::test]
async fn dead_events_are_retried_on_request() {
    let (stage, scene) = Scene::on_a_stage().await;
    let config = ConsumerConfig { on_error: ErrorStrategy::skip(), ..woken() };
    let operator = Actor::user("ada");
    let names: [Name; 2] = ["projection", "other"].map(|name| name.parse().unwrap());
    let mut all = Vec::new();
    for name in &names {
        let (consumer, recorder, handed) = scene.consumer_named(name.clone(), config);
        recorder.trouble(1, Trouble::Fails, 1);
        recorder.trouble(2, Trouble::Fails, 2);
        all.push((consumer, handed));
    }
    let mut seqs = scene.append_all(1..=2).await;
    for (consumer, handed) in &mut all {
        consumer.accept(category(), 1);
        assert_eq!(handed.take(2).await, seqs);
    }
    let dead = async |name: &Name| {
        let dead = stage.groups().group_dead(name, None, 100).await.unwrap();
        dead.items.into_iter().map(|one| (one.seq, one.attempts)).collect::<Vec<_>>()
    };
    let until = async |name: &Name, expected: &[(i64, u32)]| {
        wait_while!(dead(name).await != expected, "it is noted");
    };
    until(&names[0], &[(seqs[1], 1), (seqs[0], 1)]).await;
    let cursor = GroupDeadCursor { seq: seqs[1], source: category() };
    let rest =
        stage.groups().group_dead(&names[0], Some(&cursor.to_string().parse().unwrap()), 100).await.unwrap();
    assert_eq!(rest.items.len(), 1);
    // After giving up an event, the consumer looks once more for redriven ones; withdrawing ends
    // that look.
    all[0].0.withdraw(&category()).await;
    assert_eq!(stage.groups().redrive_group(&names[0], None, None, &operator).await.unwrap().0.count, 2);
    seqs.push(scene.append("one", 3).await);
    all[0].0.accept(category(), 2);
    assert_eq!(all[0].1.take(3).await, [seqs[2], seqs[0], seqs[1]], "after what comes later in the log");
    until(&names[0], &[(seqs[1], 2)]).await;
    let (marked, _) = stage.groups().redrive_group(&names[0], Some(seqs[1]), None, &operator).await.unwrap();
    assert_eq!(marked.count, 1);
    // Any append wakes it.
    seqs.push(scene.append("one", 4).await);
    assert_eq!(all[0].1.take(2).await, [seqs[3], seqs[1]]);
    until(&names[0], &[]).await;
    assert_eq!(dead(&names[1]).await, [(seqs[1], 1), (seqs[0], 1)]);
    let entities: Name = "entities.account".parse().unwrap();
    let refused = stage.groups().redrive_group(&entities, None, None, &operator).await.unwrap_err();
    assert!(refused.to_string().contains("send it to the entity again"), "{refused}");
}

/// Many are retried without a pause in between, however quiet the source is; those of another group
/// stay dead.
#[tokio::test]
async fn several_pages_of_dead_events_are_retried_at_once() {
    const MANY: usize = 230;
    let (stage, scene) = Scene::on_a_stage().await;
    let config = ConsumerConfig { on_error: ErrorStrategy::skip(), ..woken() };
    let names: [Name; 2] = ["projection", "other"].map(|name| name.parse().unwrap());
    let mut all = Vec::new();
    for name in &names {
        let (consumer, recorder, handed) = scene.consumer_named(name.clone(), config);
        (1..=MANY).for_each(|payload| recorder.trouble(payload, Trouble::Fails, 1));
        all.push((consumer, handed));
    }
    let seqs = scene.append_all(1..=MANY).await;
    for (consumer, handed) in &mut all {
        consumer.accept(category(), 1);
        assert_eq!(handed.take(seqs.len()).await, seqs);
        // Once withdrawn, it has recorded all of them.
        consumer.withdraw(&category()).await;
    }
    let dead = async |name: &Name| stage.groups().group_dead(name, None, 1_000).await.unwrap().items.len();
    let given_up = dead(&names[0]).await;
    let (marked, _) = stage.groups().redrive_group(&names[0], None, None, &Actor::user("ada")).await.unwrap();
    assert_eq!((marked.count, marked.more), (given_up as u64, false));
    let (consumer, handed) = &mut all[0];
    consumer.accept(category(), 2);
    // The last one may come once more from the log, if its owner was withdrawn before the failure
    // was recorded.
    assert_eq!(handed.take(given_up).await.len(), given_up);
    wait_while!(dead(&names[0]).await > 0, "all are tried again");
    assert!(given_up > 200 && dead(&names[1]).await > 200);
}

/// A deposed owner gives up no event: the event is neither a dead letter nor skipped.
// Shows: SUB-55
#[tokio::test]
async fn a_deposed_consumer_gives_up_no_event() {
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
    wait_while!(!consumer.sources().is_empty(), "it stops");
    let key = PositionKey { group: "projection".parse().unwrap(), source: category() };
    assert_eq!((positions.position(&key), positions.dead(&key)), (0, Vec::new()));
}

#[tokio::test(start_paused = true)]
async fn retries_reads_that_fail() {
    let mut scene = Scene::new(Kind::Memory).await;
    let mute = Arc::new(SilentProvider::new(Arc::clone(&scene.provider)));
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

/// A panic in a user's provider makes the consumer unhealthy, so that its sources move; it does not
/// stall silently.
#[tokio::test]
async fn a_panicking_provider_makes_the_consumer_unhealthy() {
    let mut scene = Scene::new(Kind::Memory).await;
    scene.provider = SpyLog::new(scene.provider, |_| panic!("it was told to panic"));
    let (consumer, ..) = scene.consumer(woken());
    consumer.accept(category(), 1);
    let why = unhealthy(&consumer).await;
    assert!(why.contains("panicked"), "{why}");
}

/// A source can be withdrawn at once in the middle of others' events, and what was scanned is not
/// scanned again.
#[tokio::test]
async fn a_long_scan_over_foreign_events_stops_when_withdrawn() {
    let mut scene = Scene::new(Kind::Memory).await;
    scene.provider = Arc::new(EmptyPages);
    let (consumer, ..) = scene.consumer(woken());
    consumer.accept(category(), 1);
    wait_while!(scene.position(&category(), 1).await < 30, "it scans");
    tokio::time::timeout(TIMEOUT, consumer.withdraw(&category())).await.expect("it ends");
}

/// Endless pages without any event of the source.
struct EmptyPages;

#[async_trait]
impl EventProvider for EmptyPages {
    async fn read(&self, _: &EventSource, after: i64, _: PageLimit) -> Result<LogPage, ConsumerError> {
        tokio::task::yield_now().await;
        Ok(LogPage { events: Vec::new(), through: after + 10, more: true, held: false })
    }

    fn watch(&self, _: &EventSource) -> watch::Receiver<u64> {
        watch::channel(0).1
    }
}
