//! The workload that both emulators run under: the official client publishes, subscribes and
//! acknowledges.

use std::sync::atomic::{AtomicU32, Ordering};
use std::time::{Duration, Instant};

use futures_util::future::join_all;
use google_cloud_auth::credentials::anonymous;
use google_cloud_pubsub::client::{Publisher, Subscriber};
use google_cloud_pubsub::model::Message;
use google_cloud_pubsub::subscriber::MessageStream;
use tokio::sync::mpsc;
use tonic::transport::{Channel, Endpoint};
use wakeq_emulator::proto::pubsub::publisher_client::PublisherClient;
use wakeq_emulator::proto::pubsub::subscriber_client::SubscriberClient;
use wakeq_emulator::proto::pubsub::{DeleteSubscriptionRequest, DeleteTopicRequest, Subscription, Topic};

const PER_SECOND: u32 = 300;
/// Like a message of a queue or a log.
const DATA_BYTES: usize = 100;
/// Limits that no round reaches: ours enforces them, Google's does not. deltio takes no more.
const OUTSTANDING: i64 = 65_535;
const OUTSTANDING_BYTES: i64 = 1 << 30;
const PUBLISHED_AT_ONCE: usize = 10_000;

pub(crate) struct Client {
    endpoint: String,
    topics: PublisherClient<Channel>,
    subscriptions: SubscriberClient<Channel>,
}

/// A topic and its subscription, for one measurement.
struct Pair {
    topic: String,
    subscription: String,
}

impl Client {
    pub(crate) async fn connect(host: impl AsRef<str>) -> Self {
        let endpoint = format!("http://{}", host.as_ref());
        let channel = Endpoint::from_shared(endpoint.clone()).unwrap().connect().await.unwrap();
        let (topics, subscriptions) = (PublisherClient::new(channel.clone()), SubscriberClient::new(channel));
        Self { endpoint, topics, subscriptions }
    }

    async fn pair(&self) -> Pair {
        static LAST: AtomicU32 = AtomicU32::new(0);
        let number = LAST.fetch_add(1, Ordering::Relaxed);
        let topic = format!("projects/speed/topics/topic-{number}");
        let subscription = format!("projects/speed/subscriptions/subscription-{number}");
        let resource = Topic { name: topic.clone(), ..Topic::default() };
        self.topics.clone().create_topic(resource).await.unwrap();
        let resource = Subscription {
            name: subscription.clone(),
            topic: topic.clone(),
            ack_deadline_seconds: 600,
            ..Subscription::default()
        };
        self.subscriptions.clone().create_subscription(resource).await.unwrap();
        Pair { topic, subscription }
    }

    async fn remove(&self, pair: Pair) {
        let request = DeleteSubscriptionRequest { subscription: pair.subscription };
        self.subscriptions.clone().delete_subscription(request).await.unwrap();
        self.topics.clone().delete_topic(DeleteTopicRequest { topic: pair.topic }).await.unwrap();
    }

    async fn publisher(&self, pair: &Pair, delay: Duration) -> Publisher {
        Publisher::builder(pair.topic.clone())
            .set_message_count_threshold(1_000_u32)
            .set_delay_threshold(delay)
            .with_endpoint(self.endpoint.clone())
            .with_credentials(anonymous::Builder::new().build())
            .build()
            .await
            .unwrap()
    }

    /// Opens a streaming pull on a connection of its own.
    async fn stream(&self, pair: &Pair) -> MessageStream {
        let subscriber = Subscriber::builder()
            .with_endpoint(self.endpoint.clone())
            .with_credentials(anonymous::Builder::new().build())
            .build()
            .await
            .unwrap();
        subscriber
            .subscribe(pair.subscription.clone())
            .set_max_outstanding_messages(OUTSTANDING)
            .set_max_outstanding_bytes(OUTSTANDING_BYTES)
            .build()
    }

    async fn backlog(&self, pair: &Pair, count: usize) {
        let publisher = self.publisher(pair, Duration::from_millis(10)).await;
        let mut left = count;
        while left > 0 {
            let now = left.min(PUBLISHED_AT_ONCE);
            let message = || Message::new().set_data(vec![b'x'; DATA_BYTES]);
            let published = join_all((0..now).map(|_| publisher.publish(message()))).await;
            assert!(published.iter().all(Result::is_ok));
            left -= now;
        }
    }

    /// Publishes messages that are never pulled.
    pub(crate) async fn park(&self, count: usize) {
        let pair = self.pair().await;
        self.backlog(&pair, count).await;
    }

    /// Messages per second at which this many streams drain a backlog, from the first message to
    /// the last, each acknowledged.
    pub(crate) async fn throughput(&self, streams: usize, count: usize) -> f64 {
        let pair = self.pair().await;
        self.backlog(&pair, count).await;
        let (sender, mut arrivals) = mpsc::channel(1_024);
        let mut readers = Vec::new();
        for _ in 0..streams {
            let (mut stream, sender) = (self.stream(&pair).await, sender.clone());
            readers.push(tokio::spawn(async move {
                while let Some(next) = stream.next().await {
                    let (_, handler) = next.unwrap();
                    handler.ack();
                    if sender.send(()).await.is_err() {
                        return;
                    }
                }
            }));
        }
        arrivals.recv().await.unwrap();
        let begin = Instant::now();
        let mut arrived = 1;
        let mut buffer = Vec::with_capacity(1_024);
        while arrived < count {
            arrived += arrivals.recv_many(&mut buffer, 1_024).await;
            buffer.clear();
        }
        let taken = begin.elapsed();
        readers.iter().for_each(tokio::task::JoinHandle::abort);
        self.remove(pair).await;
        (count - 1) as f64 / taken.as_secs_f64()
    }

    /// The 99th percentile of the time from publishing to receiving, in milliseconds, at 300
    /// messages per second.
    pub(crate) async fn p99_ms(&self, count: usize) -> f64 {
        let pair = self.pair().await;
        let publisher = self.publisher(&pair, Duration::from_millis(1)).await;
        let mut stream = self.stream(&pair).await;
        let begin = Instant::now();
        let publishing = tokio::spawn(async move {
            let mut ticks = tokio::time::interval(Duration::from_secs(1) / PER_SECOND);
            let mut published = Vec::with_capacity(count);
            for _ in 0..count {
                ticks.tick().await;
                let now = begin.elapsed().as_nanos().to_string();
                published.push(publisher.publish(Message::new().set_data(now)));
            }
            assert!(join_all(published).await.iter().all(Result::is_ok));
        });
        let mut delays = Vec::with_capacity(count);
        while delays.len() < count {
            let (message, handler) = stream.next().await.unwrap().unwrap();
            let sent: u64 = std::str::from_utf8(&message.data).unwrap().parse().unwrap();
            delays.push(begin.elapsed() - Duration::from_nanos(sent));
            handler.ack();
        }
        publishing.await.unwrap();
        self.remove(pair).await;
        delays.sort();
        delays[count * 99 / 100].as_secs_f64() * 1_000.0
    }
}
