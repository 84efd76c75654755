//! What only NATS shows: a server that is killed, a stream that is deleted, and messages whose time
//! is extended.

use std::collections::HashSet;
use std::sync::Arc;
use std::time::Duration;

use async_nats::Client;
use async_nats::jetstream::{self, consumer, stream};
use tokio::time::timeout;
use wakeq::notify::{Notifier, Subscription};
use wakeq::{CanvasId, Event, EventId};
use wakeq_nats::{NatsConfig, NatsNotifier};
use wakeq_testbed::NatsServer;

use super::every_notifier::{TIMEOUT, acknowledge_next, next, notifications};
use crate::support::{OTHER, Stage, promised_late, wait_while};

const SKIPPED: &str = "a NATS server that is killed";

async fn server() -> Option<(NatsServer, Client)> {
    let server = NatsServer::start_if_installed(SKIPPED).await.unwrap()?;
    let client = async_nats::connect(server.url()).await.unwrap();
    Some((server, client))
}

async fn notifier(client: &Client) -> NatsNotifier {
    NatsNotifier::open(client.clone(), NatsConfig::default()).await.unwrap()
}

/// Takes deliveries until all of these events have come.
async fn all_come(subscription: &mut dyn Subscription, mut left: HashSet<EventId>) {
    while !left.is_empty() {
        left.remove(&acknowledge_next(subscription).await);
    }
}

/// Each canvas's event runs at once, as its own; by its promise it would take longer than a test
/// waits.
#[tokio::test]
async fn a_queue_over_nats_wakes_its_workers() {
    let Some((_server, client)) = server().await else { return };
    let stage = Stage::with(Arc::new(notifier(&client).await), promised_late()).await;
    let (worker, mut seen) = stage.recording("greet");
    for canvas in [CanvasId::DEFAULT, OTHER] {
        let event = Event::new("greet", &1).unwrap().canvas(canvas);
        assert!(stage.queue.emit(event).await.unwrap().notified);
    }
    stage.until_empty().await;
    let canvases: HashSet<_> = seen.take(2).await.iter().map(|event| event.address.scope.canvas).collect();
    assert_eq!(canvases, [CanvasId::DEFAULT, OTHER].into());
    worker.stop().await;
}

#[tokio::test]
#[ignore = "long: `cargo xtask long` runs it"]
async fn a_killed_server_is_reported_and_keeps_what_it_took() {
    let Some((mut server, client)) = server().await else { return };
    let notifier = notifier(&client).await;
    let sent = notifications(100);
    notifier.publish(&sent).await.unwrap();
    let mut subscription = notifier.subscribe(10).await.unwrap();
    let first = acknowledge_next(&mut *subscription).await;
    server.kill_9().await.unwrap();
    wait_while!(subscription.trouble().is_none(), "the trouble is reported");
    let refused = notifier.publish(&notifications(1)).await.unwrap_err();
    assert!(refused.to_string().contains("wakeq.notifications"), "{refused}");
    assert!(notifier.check().await.is_err());

    server.restart().await.unwrap();
    wait_while!(subscription.trouble().is_some(), "all is well again");
    let left = sent.iter().map(|sent| sent.id).filter(|id| *id != first).collect();
    all_come(&mut *subscription, left).await;
    let more = notifications(10);
    notifier.publish(&more).await.unwrap();
    all_come(&mut *subscription, more.iter().map(|sent| sent.id).collect()).await;
    subscription.close(TIMEOUT).await;
}

#[tokio::test]
async fn a_deleted_stream_is_made_again() {
    let Some((_server, client)) = server().await else { return };
    let notifier = notifier(&client).await;
    let streams = jetstream::new(client.clone());
    streams.delete_stream("wakeq").await.unwrap();
    let refused = notifier.publish(&notifications(1)).await.unwrap_err();
    assert!(std::error::Error::source(&refused).is_some());
    let mut subscription = notifier.subscribe(10).await.unwrap();
    wait_while!(notifier.check().await.is_err(), "the stream is there");
    streams.delete_stream("wakeq").await.unwrap();
    wait_while!(notifier.check().await.is_err(), "the stream is back");
    let sent = notifications(10);
    notifier.publish(&sent).await.unwrap();
    all_come(&mut *subscription, sent.iter().map(|sent| sent.id).collect()).await;
    wait_while!(subscription.trouble().is_some(), "all is well again");
    subscription.close(TIMEOUT).await;
}

/// The stream and the consumer were made in advance, with a time of a second for an answer.
#[tokio::test]
#[ignore = "long: `cargo xtask long` runs it"]
async fn a_message_that_is_held_long_is_not_redelivered() {
    let Some((_server, client)) = server().await else { return };
    let streams = jetstream::new(client.clone());
    let own = stream::Config {
        name: "wakeq".to_owned(),
        subjects: vec!["wakeq.notifications".to_owned()],
        retention: stream::RetentionPolicy::WorkQueue,
        ..stream::Config::default()
    };
    let workers = consumer::pull::Config {
        durable_name: Some("workers".to_owned()),
        ack_wait: Duration::from_secs(1),
        ..consumer::pull::Config::default()
    };
    streams.create_stream(own).await.unwrap().create_consumer(workers).await.unwrap();
    let notifier = notifier(&client).await;
    let mut first = notifier.subscribe(1).await.unwrap();
    notifier.publish(&notifications(1)).await.unwrap();
    let (_, held) = next(&mut *first).await;
    let mut second = notifier.subscribe(1).await.unwrap();
    let again = timeout(Duration::from_secs(4), second.next()).await;
    assert!(again.is_err(), "what is held was delivered again");
    held.acknowledge();
    first.close(TIMEOUT).await;
    second.close(TIMEOUT).await;
    let unanswered = streams.get_stream("wakeq").await.unwrap().cached_info().state.messages;
    assert_eq!(unanswered, 0);
}

#[tokio::test]
async fn a_wrong_name_is_refused() {
    let Some((_server, client)) = server().await else { return };
    for stream in ["", "two words", "a.b", "*"] {
        let mut config = NatsConfig::default();
        config.stream = stream.to_owned();
        let refused = NatsNotifier::open(client.clone(), config).await.unwrap_err();
        assert!(refused.to_string().contains("stream"), "{stream}: {refused}");
    }
}

/// Urgent notifications have a stream of their own, in which no others come, and its trouble is
/// reported. A notifier without it sends all of them on the first one's subject.
#[tokio::test]
async fn urgent_notifications_have_a_stream_of_their_own() {
    let Some((_server, client)) = server().await else { return };
    let mut config = NatsConfig::default();
    config.urgent = true;
    let notifier = NatsNotifier::open(client.clone(), config).await.unwrap();
    let mut sent = notifications(4);
    sent[2..].iter_mut().for_each(|told| told.urgent = true);
    notifier.publish(&sent).await.unwrap();
    let mut urgent = notifier.subscribe_urgent(10).await.unwrap().unwrap();
    all_come(&mut *urgent, sent[2..].iter().map(|sent| sent.id).collect()).await;
    let without = self::notifier(&client).await;
    assert!(without.subscribe_urgent(10).await.unwrap().is_none());
    let late = notifications(1).remove(0).urgent_if(true);
    without.publish(&[late]).await.unwrap();
    let mut ordinary = notifier.subscribe(10).await.unwrap();
    let mut left: HashSet<EventId> = sent[..2].iter().chain([&late]).map(|sent| sent.id).collect();
    while !left.is_empty() {
        let (id, delivery) = next(&mut *ordinary).await;
        assert_eq!(delivery.notification.as_ref().unwrap().urgent, id == late.id);
        left.remove(&id);
        delivery.acknowledge();
    }
    let none = timeout(Duration::from_secs(1), urgent.next()).await;
    assert!(none.is_err(), "the others are not in it");
    jetstream::new(client).delete_stream("wakeq-urgent").await.unwrap();
    assert!(notifier.check().await.unwrap_err().to_string().contains("wakeq-urgent"));
    ordinary.close(TIMEOUT).await;
    urgent.close(TIMEOUT).await;
}
