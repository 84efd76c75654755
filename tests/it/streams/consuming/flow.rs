//! Events flow: each once, in order, from the group's position on.

use std::collections::BTreeMap;
use std::sync::Arc;
use std::time::Duration;

use wakeq::CanvasId;
use wakeq::log::{EventSource, LogEvent, StreamId};
use wakeq_streams::{ConsumerConfig, EventSubscriber, Health};

use super::scene::{Kind, Scene, SilentProvider, category, companies, on_each, woken};
use crate::support::{Looks, OTHER, wait_while};

on_each! {
    new_events_are_handled_in_order_and_the_position_kept;
    a_restart_goes_on_after_the_last_position;
    a_crash_replays_no_more_than_was_not_committed;
    nothing_of_a_withdrawn_source_is_handled;
    a_deposed_consumer_is_refused_and_stops;
    sixteen_partitions_are_shared_by_four;
    the_log_a_category_or_a_stream_is_consumed;
    a_consumer_resumes_at_a_position_that_an_operator_set;
}

// See also SUB-49.
// Shows: SUB-07 as memory::*
// Shows: SUB-10, SUB-11, SUB-14, SUB-39, SUB-57 as postgres::*
async fn new_events_are_handled_in_order_and_the_position_kept(scene: Scene) {
    let (consumer, _, mut handed) = scene.consumer(woken());
    let mut seqs = vec![scene.append("one", 1).await, scene.append("two", 2).await];
    consumer.accept(category(), 1);
    assert_eq!(handed.take(2).await, seqs);
    // An append wakes it, although its poll interval is an hour.
    for payload in 3..6 {
        seqs.push(scene.append("one", payload).await);
        assert_eq!(handed.next().await.seq, *seqs.last().unwrap());
    }
    assert_eq!(consumer.sources(), [category()]);
    consumer.withdraw(&category()).await;
    assert_eq!(scene.position(&category(), 2).await, *seqs.last().unwrap());
    assert_eq!(consumer.sources(), []);
}

// Shows: SUB-16 as postgres::*
// Shows: SUB-17 as memory::*, postgres::*
async fn a_restart_goes_on_after_the_last_position(scene: Scene) {
    let seqs = scene.append_all([1, 2]).await;
    let (consumer, _, mut handed) = scene.consumer(woken());
    consumer.accept(category(), 1);
    assert_eq!(handed.take(2).await, seqs);
    consumer.withdraw(&category()).await;
    let later = scene.append("one", 3).await;
    let (consumer, _, mut handed) = scene.consumer(woken());
    consumer.accept(category(), 2);
    assert_eq!(handed.next().await.seq, later);
    consumer.withdraw(&category()).await;
    assert!(handed.is_empty());
}

// Shows: SUB-15 as postgres::*
async fn a_crash_replays_no_more_than_was_not_committed(scene: Scene) {
    let seqs = scene.append_all(0..40).await;
    let config = ConsumerConfig { commit_every: 10, ..woken() };
    let (consumer, door, mut handed) = scene.behind_a_door(config);
    consumer.accept(category(), 1);
    door.open(25);
    assert_eq!(handed.take(26).await, seqs[..26]);
    // It dies while handling the 26th, and commits nothing more.
    let position = scene.position(&category(), 2).await;
    assert_eq!(position, seqs[19], "the 10th, and the 20th");
    let (next, _, mut again) = scene.consumer(config);
    next.accept(category(), 2);
    assert_eq!(again.take(20).await, seqs[20..]);
    next.withdraw(&category()).await;
}

// Shows: SUB-40 as postgres::*
async fn nothing_of_a_withdrawn_source_is_handled(scene: Scene) {
    scene.append_all(0..3).await;
    let (consumer, door, mut handed) = scene.behind_a_door(woken());
    consumer.accept(category(), 1);
    let first = handed.next().await.seq;
    let withdrawn = category();
    let withdrawing = consumer.withdraw(&withdrawn);
    tokio::pin!(withdrawing);
    assert!(futures_util::poll!(&mut withdrawing).is_pending(), "one is in its hands");
    door.open(3);
    withdrawing.await;
    assert!(handed.is_empty());
    assert_eq!(scene.position(&category(), 2).await, first, "what was in its hands is done with");

    // An event that does not end is cut off after the grace.
    let config = ConsumerConfig { withdraw_grace: Duration::from_millis(20), ..woken() };
    let (consumer, _, mut handed) = scene.behind_a_door(config);
    consumer.accept(category(), 3);
    handed.next().await;
    consumer.withdraw(&category()).await;
    assert!(handed.is_empty());
    assert_eq!(scene.position(&category(), 4).await, first);
}

// Shows: SUB-18, SUB-55 as postgres::*
async fn a_deposed_consumer_is_refused_and_stops(scene: Scene) {
    let seqs = scene.append_all([1, 2]).await;
    let (consumer, door, mut handed) = scene.behind_a_door(ConsumerConfig { commit_every: 1, ..woken() });
    consumer.accept(category(), 1);
    handed.next().await;
    // Another owner takes the source while an event is being handled.
    assert_eq!(scene.position(&category(), 2).await, 0);
    door.open(2);
    wait_while!(!consumer.sources().is_empty(), "it stops");
    assert!(handed.is_empty(), "it handles nothing more");
    assert_eq!(scene.position(&category(), 2).await, 0, "its commit was refused");
    // The same allocation again changes nothing; with a new epoch, it begins.
    consumer.accept(category(), 1);
    assert_eq!(consumer.sources(), []);
    assert_eq!(*consumer.health().borrow(), Health::Healthy);
    door.open(2);
    consumer.accept(category(), 3);
    assert_eq!(handed.take(2).await, seqs);
    consumer.withdraw(&category()).await;
}

// See also SUB-34.
// Shows: SUB-03 as memory::*, postgres::*
async fn sixteen_partitions_are_shared_by_four(scene: Scene) {
    let mut members = Vec::new();
    for member in 0..4 {
        let (consumer, _, handed) = scene.consumer(woken());
        let consumer = consumer.partitioned(16).unwrap();
        let sources = consumer.requests();
        assert_eq!(sources.len(), 16);
        for source in sources.into_iter().skip(member * 4).take(4) {
            consumer.accept(source, 1);
        }
        members.push((consumer, handed));
    }
    for payload in 0..5 {
        for stream in 0..50 {
            scene.append(&format!("company-{stream}"), payload).await;
        }
    }
    let mut owners: BTreeMap<StreamId, usize> = BTreeMap::new();
    let mut positions: BTreeMap<StreamId, i64> = BTreeMap::new();
    let mut count = 0;
    let mut looks = Looks::default();
    while count < 250 {
        for (member, (_, handed)) in members.iter_mut().enumerate() {
            while let Ok(event) = handed.0.try_recv() {
                let LogEvent { stream, position, .. } = event;
                assert_eq!(*owners.entry(stream.clone()).or_insert(member), member, "one member per stream");
                let next = positions.entry(stream).or_default();
                assert_eq!(position, std::mem::replace(next, position + 1), "in the stream's order");
                count += 1;
            }
        }
        looks.pause().await;
    }
    assert!(positions.values().all(|position| *position == 5));
    let used: std::collections::BTreeSet<_> = owners.values().collect();
    assert_eq!(used.len(), 4, "50 streams are on all members");
    for (consumer, _) in &members {
        for source in consumer.sources() {
            consumer.withdraw(&source).await;
        }
    }
}

// Shows: SUB-12 as memory::*, postgres::*
async fn the_log_a_category_or_a_stream_is_consumed(scene: Scene) {
    let places = [
        companies("one"),
        StreamId::new(CanvasId::DEFAULT, "contacts", "one").unwrap(),
        companies("two"),
        StreamId::new(OTHER, "companies", "one").unwrap(),
    ];
    let mut seqs = Vec::new();
    for (payload, place) in places.iter().enumerate() {
        seqs.push(scene.append_to(place, payload).await);
    }
    let log = EventSource::Log { canvas: None };
    let expected = [
        (log.clone(), vec![0, 1, 2, 3]),
        (log.on(OTHER), vec![3]),
        (category(), vec![0, 2, 3]),
        (category().on(CanvasId::DEFAULT), vec![0, 2]),
        (EventSource::Stream(places[2].clone()), vec![2]),
    ];
    for (source, events) in expected {
        let (consumer, _, mut handed) = scene.consumer_of(source.clone(), woken());
        consumer.accept(source.clone(), 1);
        let events: Vec<i64> = events.into_iter().map(|at: usize| seqs[at]).collect();
        assert_eq!(handed.take(events.len()).await, events, "{source}");
        consumer.withdraw(&source).await;
        assert!(handed.is_empty(), "{source}");
    }
}

// SUB-X9
async fn a_consumer_resumes_at_a_position_that_an_operator_set(scene: Scene) {
    let seqs = scene.append_all(0..4).await;
    let (consumer, door, mut handed) = scene.behind_a_door(ConsumerConfig { commit_every: 1, ..woken() });
    consumer.accept(category(), 5);
    door.open(2);
    assert_eq!(handed.take(3).await, seqs[..3]);
    // It is handling the third, and the second is done.
    scene.reset(0).await;
    door.open(9);
    assert_eq!(handed.take(4).await, seqs);
    consumer.withdraw(&category()).await;
    assert_eq!(scene.position(&category(), 5).await, seqs[3]);
}

// Shows: SUB-13
#[tokio::test]
async fn a_consumer_without_sources_is_healthy() {
    let scene = Scene::new(Kind::Memory).await;
    let (consumer, _, mut handed) = scene.consumer(woken());
    scene.append("one", 1).await;
    assert_eq!(*consumer.health().borrow(), Health::Healthy);
    assert_eq!((consumer.sources(), handed.is_empty()), (Vec::new(), true));
}

// Shows: SUB-14, SUB-56
#[tokio::test(start_paused = true)]
async fn polls_when_no_signal_arrives() {
    let mut scene = Scene::new(Kind::Memory).await;
    scene.provider = Arc::new(SilentProvider::new(Arc::clone(&scene.provider)));
    let config = ConsumerConfig { poll_interval: Duration::from_secs(10), ..ConsumerConfig::default() };
    let (consumer, _, mut handed) = scene.consumer(config);
    consumer.accept(category(), 1);
    // On the virtual clock: it looks once and then waits, and part of its period is over.
    tokio::time::sleep(Duration::from_secs(1)).await;
    let seq = scene.append("one", 1).await;
    let appended = tokio::time::Instant::now();
    assert_eq!(handed.next().await.seq, seq);
    let waited = appended.elapsed();
    assert!(waited > Duration::from_secs(5) && waited <= Duration::from_secs(10), "{waited:?}");
}
