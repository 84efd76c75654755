//! What only the in-memory notifier can do: mistreat messages by a seed, pause, forget.

use std::time::Duration;

use tokio::time::{Instant, timeout};
use wakeq::EventId;
use wakeq::notify::{Notification, Notifier, Subscription};
use wakeq::testing::{Faults, MemoryNotifier};

use super::every_notifier::{next, notifications};

/// The deliveries for these notifications; `None` stands for a message that is not a notification.
async fn delivered(notifier: &MemoryNotifier, sent: &[Notification]) -> Vec<Option<EventId>> {
    notifier.publish(sent).await.unwrap();
    let mut subscription = notifier.subscribe(1).await.unwrap();
    let mut received = Vec::new();
    while notifier.pending() > 0 {
        let delivery = subscription.next().await.unwrap();
        received.push(delivery.notification.as_ref().ok().map(|notification| notification.id));
        delivery.acknowledge();
    }
    received
}

fn some_ids(sent: &[Notification]) -> Vec<Option<EventId>> {
    sent.iter().map(|notification| Some(notification.id)).collect()
}

#[test]
fn the_body_is_as_agreed() {
    let id = "0190aaaa-bbbb-7ccc-8ddd-eeeeffff0000".parse().unwrap();
    let canvas = "11111111-2222-4333-8444-555555555555".parse().unwrap();
    let body = Notification::new(id, canvas).body();
    let expected =
        r#"{"id":"0190aaaa-bbbb-7ccc-8ddd-eeeeffff0000","canvasID":"11111111-2222-4333-8444-555555555555"}"#;
    assert_eq!(String::from_utf8(body).unwrap(), expected);
}

#[tokio::test]
async fn honest_is_first_in_first_out() {
    let sent = notifications(500);
    let notifier = MemoryNotifier::new();
    assert_eq!(delivered(&notifier, &sent).await, some_ids(&sent));
    assert_eq!(notifier.published(), sent);
}

#[tokio::test(start_paused = true)]
async fn the_same_seed_causes_the_same_faults() {
    let sent = notifications(500);
    let faults = Faults { lose: 0.1, double: 0.1, delay: 0.1, reorder: 0.2, forge: 0.1, ..Faults::default() };
    let first = delivered(&MemoryNotifier::hostile(7, faults), &sent).await;
    let again = delivered(&MemoryNotifier::hostile(7, faults), &sent).await;
    let other = delivered(&MemoryNotifier::hostile(8, faults), &sent).await;
    assert_eq!(first, again);
    assert_ne!(first, other);
}

#[tokio::test(start_paused = true)]
async fn each_fault_does_what_it_says() {
    let sent = notifications(100);
    let harmed = async |faults: Faults| delivered(&MemoryNotifier::hostile(1, faults), &sent).await;
    let honest = some_ids(&sent);

    assert_eq!(harmed(Faults { lose: 1.0, ..Faults::default() }).await, []);

    let doubled: Vec<_> = honest.iter().flat_map(|id| [*id, *id]).collect();
    assert_eq!(harmed(Faults { double: 1.0, ..Faults::default() }).await, doubled);

    let reordered = harmed(Faults { reorder: 1.0, ..Faults::default() }).await;
    assert_ne!(reordered, honest);
    let mut sorted = reordered;
    sorted.sort();
    assert_eq!(sorted, honest, "the ids are ordered by time");

    let forged = harmed(Faults { forge: 1.0, ..Faults::default() }).await;
    assert_eq!(forged.len(), 200);
    assert!(forged.contains(&None), "some are no notifications at all");
    let strangers = forged.iter().flatten().filter(|id| !honest.contains(&Some(**id))).count();
    assert!(strangers > 20, "some name events that do not exist");

    let started = Instant::now();
    assert_eq!(harmed(Faults { delay: 1.0, ..Faults::default() }).await.len(), 100);
    assert!(started.elapsed() > Duration::from_millis(500), "{:?}", started.elapsed());
    assert!(started.elapsed() <= Duration::from_secs(1), "{:?}", started.elapsed());
}

#[tokio::test(start_paused = true)]
async fn a_returned_notification_comes_again_after_the_retry_delay() {
    let notifier = MemoryNotifier::new().with_retry_delay(Duration::from_secs(10));
    let mut subscription = notifier.subscribe(1).await.unwrap();
    notifier.publish(&notifications(1)).await.unwrap();
    next(&mut *subscription).await.1.put_back();
    let started = Instant::now();
    next(&mut *subscription).await.1.acknowledge();
    assert!(started.elapsed() >= Duration::from_secs(10));
    notifier.drained().await;
}

#[tokio::test(start_paused = true)]
async fn a_dropped_subscription_gives_back_what_it_holds() {
    let notifier = MemoryNotifier::new();
    let mut first = notifier.subscribe(10).await.unwrap();
    let sent = notifications(2);
    notifier.publish(&sent).await.unwrap();
    let late = next(&mut *first).await.1;
    let kept = next(&mut *first).await.1;
    drop(first);
    assert_eq!((notifier.pending(), notifier.unanswered()), (2, 0));
    late.acknowledge();

    let mut second = notifier.subscribe(10).await.unwrap();
    let (id, delivery) = next(&mut *second).await;
    assert_eq!(id, sent[1].id, "the first was acknowledged, if late");
    kept.put_back();
    assert_eq!(notifier.pending(), 0, "the late answer is not about the second delivery");
    delivery.acknowledge();
    notifier.drained().await;
}

#[tokio::test(start_paused = true)]
async fn paused_it_goes_step_by_step() {
    let notifier = MemoryNotifier::new();
    notifier.pause();
    notifier.publish(&notifications(3)).await.unwrap();
    let mut subscription = notifier.subscribe(10).await.unwrap();
    nothing_comes(&mut *subscription).await;
    notifier.step(1);
    next(&mut *subscription).await.1.acknowledge();
    nothing_comes(&mut *subscription).await;
    notifier.resume();
    next(&mut *subscription).await.1.acknowledge();
    next(&mut *subscription).await.1.acknowledge();
    notifier.drained().await;
}

#[tokio::test(start_paused = true)]
async fn a_broken_notifier_reports_trouble_and_recovers() {
    let notifier = MemoryNotifier::new();
    let mut subscription = notifier.subscribe(10).await.unwrap();
    notifier.break_down("the broker is away");
    assert_eq!(notifier.publish(&notifications(1)).await.unwrap_err().to_string(), "the broker is away");
    assert_eq!(subscription.trouble().as_deref(), Some("the broker is away"));
    notifier.mend();
    assert_eq!(subscription.trouble(), None);
    notifier.publish(&notifications(1)).await.unwrap();
    next(&mut *subscription).await.1.acknowledge();
}

#[tokio::test(start_paused = true)]
async fn a_reset_drops_delivered_and_waiting_notifications() {
    let notifier = MemoryNotifier::new();
    let mut subscription = notifier.subscribe(1).await.unwrap();
    notifier.publish(&notifications(2)).await.unwrap();
    let delivery = next(&mut *subscription).await.1;
    notifier.forget_everything();
    delivery.put_back();
    notifier.drained().await;
    nothing_comes(&mut *subscription).await;
    assert_eq!(notifier.published().len(), 2);
}

#[tokio::test(start_paused = true)]
async fn close_waits_for_answers_no_longer_than_its_grace() {
    let notifier = MemoryNotifier::new();
    let mut subscription = notifier.subscribe(1).await.unwrap();
    notifier.publish(&notifications(1)).await.unwrap();
    let _held = next(&mut *subscription).await.1;
    let started = Instant::now();
    subscription.close(Duration::from_secs(8)).await;
    assert_eq!(started.elapsed().as_secs(), 8);
    assert_eq!((notifier.pending(), notifier.unanswered()), (1, 0), "put back");
}

/// Time is paused: it jumps ahead only when nothing else can happen.
async fn nothing_comes(subscription: &mut dyn Subscription) {
    assert!(timeout(Duration::from_secs(60), subscription.next()).await.is_err());
}
