//! The stream of urgent notifications, if there is one. It is asked again only once it has said
//! that there may be something, so while nothing is urgent, it costs a worker next to nothing:
//! asking a stream takes an allocation, and perhaps a lock.

use futures_util::FutureExt;
use futures_util::future::BoxFuture;
use futures_util::stream::{FuturesUnordered, StreamExt};
use tokio_util::sync::CancellationToken;

use crate::notify::{Delivery, Subscription};

/// What a question gave back: the subscription, and the answer, unless it was taken back.
type Asked = (Box<dyn Subscription>, Option<Option<Delivery>>);

pub(super) struct UrgentStream {
    /// One question if there is a stream, which polls it only when it was woken.
    asking: FuturesUnordered<BoxFuture<'static, Asked>>,
    /// Takes the question back.
    recall: CancellationToken,
    trouble: Option<String>,
}

impl UrgentStream {
    pub(super) fn new(subscription: Option<Box<dyn Subscription>>) -> Self {
        let (asking, recall) = (FuturesUnordered::new(), CancellationToken::new());
        let mut stream = Self { asking, recall, trouble: None };
        if let Some(subscription) = subscription {
            stream.ask(subscription);
        }
        stream
    }

    /// Whether there is one.
    pub(super) fn is_open(&self) -> bool {
        !self.asking.is_empty()
    }

    fn ask(&mut self, mut subscription: Box<dyn Subscription>) {
        self.recall = CancellationToken::new();
        let recall = self.recall.clone();
        let question = async move {
            let answer = tokio::select! {
                biased;
                () = recall.cancelled() => None,
                delivery = subscription.next() => Some(delivery),
            };
            (subscription, answer)
        };
        self.asking.push(question.boxed());
    }

    /// The next delivery; `None` once the stream has ended. Cancel safe; must not be called if
    /// there is no stream.
    pub(super) async fn next(&mut self) -> Option<Delivery> {
        loop {
            let (subscription, answer) = self.asking.next().await?;
            self.ask(subscription);
            if let Some(delivery) = answer {
                return delivery;
            }
        }
    }

    /// Why nothing can be received now, or could when it was last looked at.
    pub(super) fn trouble(&mut self) -> Option<String> {
        self.recall.cancel();
        // Without an answer, the question is taken back when it is polled next.
        if let Some(Some((subscription, _))) = self.asking.next().now_or_never() {
            self.trouble = subscription.trouble();
            self.ask(subscription);
        }
        self.trouble.clone()
    }

    /// The subscription, which is not asked any more.
    pub(super) async fn into_subscription(mut self) -> Option<Box<dyn Subscription>> {
        self.recall.cancel();
        self.asking.next().await.map(|(subscription, _)| subscription)
    }
}

#[cfg(test)]
mod tests {
    use std::sync::Arc;
    use std::sync::atomic::{AtomicUsize, Ordering};
    use std::time::Duration;

    use super::*;
    use crate::event::{CanvasId, EventId, Notification};
    use crate::notify::{LocalNotifier, Notifier};

    /// Counts how often it is asked.
    struct Counting(Box<dyn Subscription>, Arc<AtomicUsize>);

    #[async_trait::async_trait]
    impl Subscription for Counting {
        async fn next(&mut self) -> Option<Delivery> {
            self.1.fetch_add(1, Ordering::Relaxed);
            self.0.next().await
        }

        fn stop(&mut self) {
            self.0.stop();
        }

        fn trouble(&self) -> Option<String> {
            Some("counted".to_owned())
        }

        async fn close(self: Box<Self>, grace: Duration) {
            self.0.close(grace).await;
        }
    }

    fn urgent() -> Notification {
        Notification::new(EventId::new(), CanvasId::DEFAULT).urgent_if(true)
    }

    #[tokio::test(start_paused = true)]
    async fn it_is_asked_once_for_each_delivery_and_each_look() {
        let (notifier, asked) = (LocalNotifier::new(), Arc::new(AtomicUsize::new(0)));
        let inner = notifier.subscribe_urgent(10).await.unwrap().unwrap();
        let mut stream = UrgentStream::new(Some(Box::new(Counting(inner, Arc::clone(&asked)))));
        assert!(stream.is_open());
        let others = Notification::new(EventId::new(), CanvasId::DEFAULT);
        for _ in 0..100 {
            notifier.publish(&[others]).await.unwrap();
            assert!(stream.next().now_or_never().is_none());
        }
        assert_eq!(asked.load(Ordering::Relaxed), 1);
        assert_eq!(stream.trouble().as_deref(), Some("counted"));
        let told = urgent();
        notifier.publish(&[told]).await.unwrap();
        let delivery = stream.next().await.unwrap();
        assert_eq!(*delivery.notification.as_ref().unwrap(), told);
        delivery.acknowledge();
        assert!(stream.next().now_or_never().is_none());
        assert_eq!(asked.load(Ordering::Relaxed), 3);
    }

    /// Nothing is taken from the broker by a question that is taken back.
    #[tokio::test(start_paused = true)]
    async fn the_subscription_comes_back_with_all_that_it_has() {
        let notifier = LocalNotifier::new();
        let inner = notifier.subscribe_urgent(10).await.unwrap();
        let mut stream = UrgentStream::new(inner);
        assert!(stream.next().now_or_never().is_none());
        notifier.publish(&[urgent()]).await.unwrap();
        assert_eq!((stream.trouble(), notifier.waiting()), (None, 1));
        let mut subscription = stream.into_subscription().await.unwrap();
        assert_eq!(notifier.waiting(), 1);
        assert!(subscription.next().await.is_some());
        let none = UrgentStream::new(None);
        assert!(!none.is_open() && none.into_subscription().await.is_none());
    }
}
