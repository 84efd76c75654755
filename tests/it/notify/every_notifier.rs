//! What every notifier must do, checked on each of them.

use std::collections::HashSet;
use std::time::{Duration, Instant};

use tokio::sync::mpsc;
use tokio::task::{JoinSet, yield_now};
use tokio::time::timeout;
use uuid::Uuid;
use wakeq::notify::{Delivery, Notification, Subscription};
use wakeq::{CanvasId, EventId};

use crate::support::brokers::Broker;

/// Far longer than anything here takes; a test that waits this long has failed.
pub(crate) const TIMEOUT: Duration = Duration::from_secs(30);

macro_rules! on_every_broker {
    ($($check:ident),* $(,)?) => {
        mod memory {
            $(#[tokio::test]
            async fn $check() {
                super::$check(super::Broker::memory()).await;
            })*
        }

        mod postgres {
            $(#[tokio::test]
            async fn $check() {
                super::$check(super::Broker::postgres().await).await;
            })*
        }

        mod nats {
            $(#[tokio::test]
            async fn $check() {
                let Some(broker) = super::Broker::nats(stringify!($check)).await else { return };
                super::$check(broker).await;
            })*
        }

        mod pubsub {
            $(#[tokio::test]
            async fn $check() {
                super::$check(super::Broker::pubsub(stringify!($check)).await).await;
            })*
        }

        mod google {
            $(#[tokio::test]
            async fn $check() {
                let Some(broker) = super::Broker::google(stringify!($check)).await else { return };
                super::$check(broker).await;
            })*
        }
    };
}

on_every_broker!(
    carries_2500_notifications,
    an_acknowledged_delivery_is_gone,
    a_delivery_put_back_comes_again,
    a_dropped_delivery_comes_again,
    subscribers_share_the_work,
    a_malformed_message_does_not_affect_others,
    hands_out_no_more_than_max_outstanding,
    a_stopped_subscription_hands_out_what_it_was_sent,
    close_gives_back_what_was_not_handed_out,
    closing_without_deliveries_is_quick,
    a_max_outstanding_of_zero_is_refused,
);

pub(crate) fn notifications(count: usize) -> Vec<Notification> {
    let canvas = CanvasId(Uuid::new_v4());
    (0..count).map(|_| Notification::new(EventId::new(), canvas)).collect()
}

/// The next delivery, with its notification's event.
pub(crate) async fn next(subscription: &mut dyn Subscription) -> (EventId, Delivery) {
    let delivery = next_delivery(subscription).await;
    (delivery.notification.as_ref().expect("a notification").id, delivery)
}

async fn next_delivery(subscription: &mut dyn Subscription) -> Delivery {
    let Ok(delivery) = timeout(TIMEOUT, subscription.next()).await else {
        panic!("nothing delivered in {TIMEOUT:?}; trouble: {:?}", subscription.trouble());
    };
    delivery.expect("the subscription is open")
}

/// Acknowledges the next delivery; returns its event.
pub(crate) async fn acknowledge_next(subscription: &mut dyn Subscription) -> EventId {
    let (id, delivery) = next(subscription).await;
    delivery.acknowledge();
    id
}

fn ids(notifications: &[Notification]) -> HashSet<EventId> {
    notifications.iter().map(|notification| notification.id).collect()
}

async fn carries_2500_notifications(broker: Broker) {
    let mut subscription = broker.notifier.subscribe(3_000).await.unwrap();
    let sent = notifications(2_500);
    let started = Instant::now();
    broker.notifier.publish(&sent).await.unwrap();
    let published_ms = started.elapsed().as_millis();
    let mut received = HashSet::new();
    while received.len() < sent.len() {
        received.insert(acknowledge_next(&mut *subscription).await);
    }
    let all_ms = started.elapsed().as_millis();
    println!("{}: 2,500 published in {published_ms} ms, received after {all_ms} ms", broker.name);
    assert_eq!(received, ids(&sent));
    subscription.close(TIMEOUT).await;
}

async fn an_acknowledged_delivery_is_gone(broker: Broker) {
    let mut first = broker.notifier.subscribe(10).await.unwrap();
    broker.notifier.publish(&notifications(1)).await.unwrap();
    next(&mut *first).await.1.acknowledge();
    // Returns before its grace only if it sent the acknowledgement.
    timeout(TIMEOUT, first.close(2 * TIMEOUT)).await.expect("nothing is unanswered");

    let mut second = broker.notifier.subscribe(10).await.unwrap();
    let mut markers = HashSet::new();
    let (id, delivery) = loop {
        // Google's emulator gives some messages to the closed stream: one of several arrives.
        let marker = notifications(1);
        markers.extend(ids(&marker));
        broker.notifier.publish(&marker).await.unwrap();
        if let Ok(arrived) = timeout(Duration::from_secs(1), next(&mut *second)).await {
            break arrived;
        }
        assert!(markers.len() < 20, "nothing arrives");
    };
    assert!(markers.contains(&id), "what was acknowledged came again");
    delivery.acknowledge();
    second.close(TIMEOUT).await;
}

async fn a_delivery_put_back_comes_again(broker: Broker) {
    comes_again(broker, Delivery::put_back).await;
}

async fn a_dropped_delivery_comes_again(broker: Broker) {
    comes_again(broker, drop).await;
}

/// Only once: the second time, Google's emulator applies the subscription's retry delay of at least
/// 10 s.
async fn comes_again(broker: Broker, give_back: fn(Delivery)) {
    let mut subscription = broker.notifier.subscribe(10).await.unwrap();
    let sent = notifications(1);
    broker.notifier.publish(&sent).await.unwrap();
    give_back(next(&mut *subscription).await.1);
    assert_eq!(acknowledge_next(&mut *subscription).await, sent[0].id);
    subscription.close(TIMEOUT).await;
}

async fn subscribers_share_the_work(broker: Broker) {
    let mut first = broker.notifier.subscribe(100).await.unwrap();
    let mut second = broker.notifier.subscribe(100).await.unwrap();
    // Both streams must be open before the messages arrive, or the first takes them all.
    let mut by_first = HashSet::new();
    let mut by_second = HashSet::new();
    let mut sent = HashSet::new();
    while by_first.is_empty() || by_second.is_empty() || by_first.len() + by_second.len() < sent.len() {
        if by_first.len() + by_second.len() == sent.len() {
            let more = notifications(200);
            sent.extend(ids(&more));
            broker.notifier.publish(&more).await.unwrap();
            assert!(sent.len() < 10_000, "one subscriber took it all");
        }
        let (taker, delivery) = tokio::select! {
            delivery = first.next() => (&mut by_first, delivery),
            delivery = second.next() => (&mut by_second, delivery),
        };
        let delivery = delivery.expect("the subscription is open");
        taker.insert(delivery.notification.as_ref().unwrap().id);
        delivery.acknowledge();
        yield_now().await;
    }
    assert_eq!(by_first.union(&by_second).copied().collect::<HashSet<_>>(), sent);
    first.close(TIMEOUT).await;
    second.close(TIMEOUT).await;
}

async fn a_malformed_message_does_not_affect_others(broker: Broker) {
    let mut subscription = broker.notifier.subscribe(10).await.unwrap();
    broker.publish_nonsense().await;
    let sent = notifications(3);
    broker.notifier.publish(&sent).await.unwrap();
    let mut received = HashSet::new();
    let (mut malformed, expected) = (0, usize::from(broker.hands_out_nonsense()));
    while received.len() < 3 || malformed < expected {
        let delivery = next_delivery(&mut *subscription).await;
        match &delivery.notification {
            Ok(notification) => assert!(received.insert(notification.id)),
            Err(error) => {
                malformed += 1;
                assert_eq!(error.length, 20);
            }
        }
        delivery.acknowledge();
    }
    assert_eq!((received, malformed), (ids(&sent), expected));
    subscription.close(TIMEOUT).await;
}

/// Google's emulator pushes more than that to the client, which Google's service does not; neither
/// hands out more.
async fn hands_out_no_more_than_max_outstanding(broker: Broker) {
    let mut subscription = broker.notifier.subscribe(10).await.unwrap();
    broker.notifier.publish(&notifications(15)).await.unwrap();
    let mut held = Vec::new();
    while held.len() < 10 {
        held.push(next(&mut *subscription).await.1);
    }
    let eleventh = timeout(Duration::from_millis(300), subscription.next()).await;
    assert!(eleventh.is_err(), "an eleventh delivery while ten are unanswered");
    held.pop().unwrap().acknowledge();
    held.push(next(&mut *subscription).await.1);
    for _ in 0..4 {
        held.remove(0).acknowledge();
        held.push(next(&mut *subscription).await.1);
    }
    held.into_iter().for_each(Delivery::acknowledge);
    subscription.close(TIMEOUT).await;
}

/// What it no longer hands out goes to another subscription, and nothing to both. Google's emulator
/// keeps some of it for the closed one, as below.
async fn a_stopped_subscription_hands_out_what_it_was_sent(broker: Broker) {
    let mut first = broker.notifier.subscribe(100).await.unwrap();
    let sent = notifications(1_000);
    broker.notifier.publish(&sent).await.unwrap();
    let mut handed_out = vec![next(&mut *first).await];
    first.stop();
    while let Some(delivery) = timeout(TIMEOUT, first.next()).await.expect("it ends") {
        handed_out.push((delivery.notification.as_ref().unwrap().id, delivery));
    }
    assert!(handed_out.len() <= 100, "{} at once", handed_out.len());
    let mut received: HashSet<EventId> = handed_out.iter().map(|(id, _)| *id).collect();
    handed_out.into_iter().for_each(|(_, delivery)| delivery.acknowledge());
    timeout(TIMEOUT, first.close(2 * TIMEOUT)).await.expect("nothing is unanswered");
    let mut second = broker.notifier.subscribe(100).await.unwrap();
    let expected = if broker.forgets_closed_streams_late() { received.len() } else { sent.len() };
    while received.len() < expected {
        assert!(received.insert(acknowledge_next(&mut *second).await), "it was acknowledged");
    }
    assert!(received.is_subset(&ids(&sent)));
    second.close(TIMEOUT).await;
    broker.forget().await;
}

/// Google's emulator sends what is put back to any stream, even the closed one, where it stays for
/// a lease of 10 s, possibly several times: when another stream gets it is unpredictable. Elsewhere
/// all of it goes to an open stream at once.
async fn close_gives_back_what_was_not_handed_out(broker: Broker) {
    let mut first = broker.notifier.subscribe(100).await.unwrap();
    broker.notifier.publish(&notifications(100)).await.unwrap();
    let mut held = HashSet::new();
    let mut deliveries = Vec::new();
    while deliveries.len() < 10 {
        let (id, delivery) = next(&mut *first).await;
        held.insert(id);
        deliveries.push(delivery);
    }
    let closing = tokio::spawn(first.close(4 * TIMEOUT));
    let started = Instant::now();
    let expected = if broker.forgets_closed_streams_late() { 0 } else { 90 };
    let (sender, mut taken) = mpsc::channel(1000);
    let mut takers = JoinSet::new();
    for _ in 0..5 {
        let mut subscription = broker.notifier.subscribe(100).await.unwrap();
        let sender = sender.clone();
        takers.spawn(async move {
            while let Some(delivery) = subscription.next().await {
                sender.send(delivery.notification.as_ref().unwrap().id).await.unwrap();
                delivery.acknowledge();
            }
        });
    }
    let mut given_back = HashSet::new();
    while given_back.len() < expected {
        given_back.insert(timeout(2 * TIMEOUT, taken.recv()).await.expect("given back").unwrap());
    }
    let (count, elapsed_ms) = (given_back.len(), started.elapsed().as_millis());
    println!("{}: {count} of 90 given back and taken by another in {elapsed_ms} ms", broker.name);
    assert!(given_back.is_disjoint(&held), "what is handed out stays with its holder");
    assert!(!closing.is_finished(), "ten deliveries are unanswered");
    deliveries.into_iter().for_each(Delivery::acknowledge);
    timeout(TIMEOUT, closing).await.expect("all answered").unwrap();
    takers.shutdown().await;
    broker.forget().await;
}

async fn closing_without_deliveries_is_quick(broker: Broker) {
    let subscription = broker.notifier.subscribe(10).await.unwrap();
    timeout(TIMEOUT, subscription.close(2 * TIMEOUT)).await.expect("nothing to wait for");
}

async fn a_max_outstanding_of_zero_is_refused(broker: Broker) {
    let error = broker.notifier.subscribe(0).await.err().expect("refused");
    assert!(error.to_string().contains("max_outstanding is 0"), "{error}");
}
