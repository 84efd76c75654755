//! The server: its port, its lifetime, REST, waiting and streams. Only our own emulator; the
//! conformance cases cover the behaviour of Pub/Sub.

mod binary;
mod data;
mod health;
mod life;
mod rest;
mod streaming;
mod waiting;

use std::future::Future;
use std::time::Duration;

use tonic::transport::{Channel, Endpoint};
use wakeq_emulator::proto::pubsub::publisher_client::PublisherClient;
use wakeq_emulator::proto::pubsub::subscriber_client::SubscriberClient;
use wakeq_emulator::proto::pubsub::{
    PublishRequest, PubsubMessage, PullRequest, ReceivedMessage, Subscription, Topic,
};
use wakeq_emulator::{Emulator, Options};

use crate::limited::LimitedEmulator;

const PROJECT: &str = "projects/a-project";
const TOPIC: &str = "projects/a-project/topics/a-topic";
const SUBSCRIPTION: &str = "projects/a-project/subscriptions/a-subscription";

/// An emulator with a topic and a subscription, and clients.
struct Stage {
    emulator: LimitedEmulator,
    publisher: PublisherClient<Channel>,
    subscriber: SubscriberClient<Channel>,
}

impl Stage {
    async fn new() -> Self {
        Self::with(Options::default()).await
    }

    async fn with(options: Options) -> Self {
        let emulator = LimitedEmulator::start(options).await;
        let channel = connect(&emulator).await;
        let mut stage = Self {
            emulator,
            publisher: PublisherClient::new(channel.clone()),
            subscriber: SubscriberClient::new(channel),
        };
        let topic = Topic { name: TOPIC.to_owned(), ..Topic::default() };
        stage.publisher.create_topic(topic).await.unwrap();
        let subscription = Subscription {
            name: SUBSCRIPTION.to_owned(),
            topic: TOPIC.to_owned(),
            ack_deadline_seconds: 10,
            ..Subscription::default()
        };
        stage.subscriber.create_subscription(subscription).await.unwrap();
        stage
    }

    async fn publish(&self, texts: &[&str]) {
        let message = |text: &&str| PubsubMessage { data: (*text).to_owned().into(), ..Default::default() };
        let messages = texts.iter().map(message).collect();
        let request = PublishRequest { topic: TOPIC.to_owned(), messages };
        self.publisher.clone().publish(request).await.unwrap();
    }

    /// One pull, which waits.
    fn pull(&self) -> impl Future<Output = Result<Vec<ReceivedMessage>, tonic::Status>> + use<> {
        let mut subscriber = self.subscriber.clone();
        async move {
            let request =
                PullRequest { subscription: SUBSCRIPTION.to_owned(), max_messages: 10, ..Default::default() };
            Ok(subscriber.pull(request).await?.into_inner().received_messages)
        }
    }

    /// How many messages are leased.
    fn leased(&self) -> usize {
        let overview = self.emulator.broker(|broker, now| broker.overview(now));
        overview.subscriptions[0].messages.leased
    }
}

async fn connect(emulator: &Emulator) -> Channel {
    Endpoint::from_shared(format!("http://{}", emulator.host())).unwrap().connect().await.unwrap()
}

/// Fails after 20 seconds.
async fn soon<T>(future: impl Future<Output = T>) -> T {
    tokio::time::timeout(Duration::from_secs(20), future).await.expect("nothing came")
}

fn texts(received: &[ReceivedMessage]) -> Vec<String> {
    let text = |received: &ReceivedMessage| {
        String::from_utf8_lossy(&received.message.as_ref().unwrap().data).into_owned()
    };
    received.iter().map(text).collect()
}
