//! The order in which messages of a process are handed out.

use std::pin::Pin;
use std::task::{Context, Poll, Waker};

use super::messages::{RESERVED, TURN};
use super::*;
use crate::event::{CanvasId, EventId};

type BoxedNext<'a> = Pin<Box<dyn Future<Output = Option<Delivery>> + Send + 'a>>;

fn notifications(count: usize) -> Vec<Notification> {
    (0..count).map(|_| Notification::new(EventId::new(), CanvasId::DEFAULT)).collect()
}

async fn next(subscription: &mut dyn Subscription) -> Notification {
    let delivery = subscription.next().await.unwrap();
    let notification = *delivery.notification.as_ref().unwrap();
    delivery.acknowledge();
    notification
}

#[tokio::test(start_paused = true)]
async fn the_reserve_comes_last_and_late_and_from_its_end() {
    let mailbox = Mailbox::new(RESERVED);
    let (all, since) = (notifications(5), Instant::now());
    mailbox.change(|messages| {
        all[..3].iter().for_each(|other| messages.push_reserve(Content::Notification(*other)));
        messages.push(Content::Notification(all[3]));
    });
    let mut subscription = mailbox.subscribe(10).unwrap();
    assert_eq!(next(subscription.as_mut()).await, all[3]);
    assert_eq!(since.elapsed(), Duration::ZERO);
    tokio::time::advance(RESERVED + RESERVED / 2).await;
    mailbox.change(|messages| messages.push_reserve(Content::Notification(all[4])));
    for expected in [2, 1, 0] {
        assert_eq!(next(subscription.as_mut()).await, all[expected]);
    }
    assert!(since.elapsed() >= 2 * RESERVED && since.elapsed() < 3 * RESERVED, "{:?}", since.elapsed());
    assert_eq!(next(subscription.as_mut()).await, all[4]);
    assert!(since.elapsed() >= 3 * RESERVED, "{:?}", since.elapsed());
    assert!(all.iter().all(|notification| !mailbox.read(|messages| messages.names(notification.id))));
}

/// One that asks again at once would otherwise take all of them: it is not the only one that is
/// woken, but the first that asks.
#[tokio::test(start_paused = true)]
async fn subscribers_take_turns() {
    let mailbox = Mailbox::new(RESERVED);
    let all = notifications(4);
    let (mut greedy, mut idle) = (mailbox.subscribe(10).unwrap(), mailbox.subscribe(10).unwrap());
    let mut context = Context::from_waker(Waker::noop());
    let mut ask = |next: &mut BoxedNext<'_>| match next.as_mut().poll(&mut context) {
        Poll::Ready(delivery) => delivery.map(|delivery| *delivery.notification.as_ref().unwrap()),
        Poll::Pending => None,
    };
    let push = |notification: &Notification| {
        mailbox.change(|messages| messages.push(Content::Notification(*notification)));
    };

    let mut waiting = idle.next();
    assert_eq!(ask(&mut waiting), None);
    all[..2].iter().for_each(push);
    let mut asked = greedy.next();
    assert_eq!(ask(&mut asked), None, "the other one asked first");
    assert_eq!(ask(&mut waiting), Some(all[0]));
    assert_eq!(ask(&mut asked), Some(all[1]));
    drop((waiting, asked));

    // One that no longer asks is passed over.
    let mut waiting = idle.next();
    assert_eq!(ask(&mut waiting), None);
    all[2..].iter().for_each(push);
    drop(waiting);
    assert_eq!(ask(&mut greedy.next()), Some(all[2]));
    assert_eq!(ask(&mut greedy.next()), Some(all[3]));
}

/// It stays first until it is polled or dropped, and would hold back every message.
#[tokio::test(start_paused = true)]
async fn a_future_that_is_kept_unpolled_is_passed_over() {
    let mailbox = Mailbox::new(RESERVED);
    let all = notifications(3);
    let (mut idle, mut other) = (mailbox.subscribe(10).unwrap(), mailbox.subscribe(10).unwrap());
    let mut context = Context::from_waker(Waker::noop());
    let mut kept = idle.next();
    assert!(kept.as_mut().poll(&mut context).is_pending());
    mailbox.change(|messages| {
        all.iter().for_each(|notification| messages.push(Content::Notification(*notification)));
    });

    let since = Instant::now();
    assert_eq!(next(other.as_mut()).await, all[0]);
    assert_eq!(next(other.as_mut()).await, all[1]);
    assert!(since.elapsed() >= TURN && since.elapsed() < 2 * TURN, "{:?}", since.elapsed());
    let Poll::Ready(Some(delivery)) = kept.as_mut().poll(&mut context) else { panic!("it has no turn") };
    assert_eq!(*delivery.notification.as_ref().unwrap(), all[2]);
}

#[tokio::test(start_paused = true)]
async fn messages_keep_their_order_when_the_reserve_is_divided_anew() {
    let mailbox = Mailbox::new(RESERVED);
    let all = notifications(6);
    mailbox.change(|messages| {
        for (place, notification) in all.iter().enumerate() {
            let content = Content::Notification(*notification);
            if place % 2 == 0 { messages.push(content) } else { messages.push_reserve(content) }
        }
        messages.divide(|event| event != all[0].id);
    });
    let mut subscription = mailbox.subscribe(10).unwrap();
    for expected in [1, 2, 3, 4, 5, 0] {
        assert_eq!(next(subscription.as_mut()).await, all[expected]);
    }
    assert_eq!(mailbox.read(Messages::waiting), 0);
    assert!(!mailbox.change(Messages::drop_reserve));
}

/// Nobody but the other subscriber looks at the reserve when it is due, and so it tells.
#[tokio::test(start_paused = true)]
async fn an_urgent_message_from_the_reserve_wakes_its_stream() {
    let mailbox = Mailbox::new(RESERVED);
    let told = notifications(1)[0].urgent_if(true);
    let mut ordinary = mailbox.subscribe(10).unwrap();
    let mut urgent = mailbox.subscribe_urgent(10).unwrap();
    // Both futures are kept, so they look only when they are woken.
    let asking = tokio::spawn(async move { next(urgent.as_mut()).await });
    let others = tokio::spawn(async move { ordinary.next().await.is_some() });
    tokio::task::yield_now().await;
    mailbox.change(|messages| messages.push_reserve(Content::Notification(told)));
    let found = timeout(3 * RESERVED, asking).await.expect("it was woken").unwrap();
    assert_eq!((found, mailbox.read(|messages| messages.waiting_of(true))), (told, 0));
    assert!(!others.is_finished(), "it is not theirs");
    others.abort();
}

/// Whatever waits, the subscriber to urgent messages gets those, and the others do not. Without
/// one, they have their place among the others.
#[tokio::test(start_paused = true)]
async fn urgent_messages_have_a_stream_of_their_own() {
    let mailbox = Mailbox::new(RESERVED);
    let mut all = notifications(6);
    all[..3].iter_mut().for_each(|told| told.urgent = true);
    let mut ordinary = mailbox.subscribe(10).unwrap();
    let mut urgent = mailbox.subscribe_urgent(3).unwrap();
    assert!(timeout(TURN, urgent.next()).await.is_err());
    mailbox.change(|messages| all.iter().for_each(|told| messages.push(Content::Notification(*told))));
    assert_eq!(next(ordinary.as_mut()).await, all[3]);
    assert_eq!(next(urgent.as_mut()).await, all[0]);
    let held = [urgent.next().await.unwrap(), urgent.next().await.unwrap()];
    assert_eq!(held.each_ref().map(|held| *held.notification.as_ref().unwrap()), [all[1], all[2]]);
    assert!(timeout(TURN, urgent.next()).await.is_err(), "the others are not urgent");
    assert_eq!([next(ordinary.as_mut()).await, next(ordinary.as_mut()).await], [all[4], all[5]]);
    // Put back, it is delivered again after the delay, and wakes its stream by itself.
    let since = Instant::now();
    held.into_iter().for_each(Delivery::put_back);
    assert_eq!(next(urgent.as_mut()).await, all[1]);
    assert!(since.elapsed() >= RESERVED && since.elapsed() < 2 * RESERVED, "{:?}", since.elapsed());
    drop(urgent);
    mailbox.change(|messages| messages.push(Content::Notification(all[3])));
    assert_eq!([next(ordinary.as_mut()).await, next(ordinary.as_mut()).await], [all[2], all[3]]);
}
