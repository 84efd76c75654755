//! The tools of a case: the generated clients, a project of its own, and the calls that most cases
//! make.

use std::collections::BTreeMap;
use std::future::Future;
use std::time::Duration;

use tokio::time::timeout;
use tonic::transport::{Channel, Endpoint};
use tonic::{Code, Response, Status};
use wakeq_emulator::proto::iam::iam_policy_client::IamPolicyClient;
use wakeq_emulator::proto::pubsub::publisher_client::PublisherClient;
use wakeq_emulator::proto::pubsub::subscriber_client::SubscriberClient;
use wakeq_emulator::proto::pubsub::{
    AcknowledgeRequest, GetSubscriptionRequest, ModifyAckDeadlineRequest, PublishRequest, PubsubMessage,
    PullRequest, ReceivedMessage, Subscription, Topic,
};

/// Nothing is expected to take this long.
const TIMEOUT: Duration = Duration::from_secs(15);
const LARGEST: usize = 64 << 20;

/// The answer to a request.
type Answer<T> = Result<T, Status>;

/// An emulator, and a project that no other case uses.
#[derive(Clone)]
pub(crate) struct Stage {
    pub(crate) publisher: PublisherClient<Channel>,
    pub(crate) subscriber: SubscriberClient<Channel>,
    pub(crate) policies: IamPolicyClient<Channel>,
    pub(crate) channel: Channel,
    pub(crate) host: String,
    pub(crate) project: String,
}

/// Fails if the future takes longer than [`TIMEOUT`].
#[track_caller]
pub(crate) fn soon<T>(what: &str, future: impl Future<Output = T>) -> impl Future<Output = T> {
    let caller = std::panic::Location::caller();
    async move { timeout(TIMEOUT, future).await.unwrap_or_else(|_| panic!("nothing came of: {what} ({caller})")) }
}

impl Stage {
    pub(crate) async fn new(host: String, project: String) -> Self {
        let endpoint = Endpoint::from_shared(format!("http://{host}")).unwrap();
        let channel = soon("connecting", endpoint.connect()).await.unwrap();
        Self {
            publisher: PublisherClient::new(channel.clone()),
            subscriber: SubscriberClient::new(channel.clone()).max_decoding_message_size(LARGEST),
            policies: IamPolicyClient::new(channel.clone()),
            channel,
            host,
            project,
        }
    }

    pub(crate) fn topic_name(&self, id: &str) -> String {
        format!("projects/{}/topics/{id}", self.project)
    }

    pub(crate) fn subscription_name(&self, id: &str) -> String {
        format!("projects/{}/subscriptions/{id}", self.project)
    }

    pub(crate) fn snapshot_name(&self, id: &str) -> String {
        format!("projects/{}/snapshots/{id}", self.project)
    }

    /// Creates a topic; returns its name.
    pub(crate) async fn topic(&self, id: &str) -> String {
        let topic = Topic { name: self.topic_name(id), ..Topic::default() };
        self.publisher.clone().create_topic(topic).await.unwrap().into_inner().name
    }

    /// A subscription to create.
    pub(crate) fn to(&self, topic: &str, id: &str) -> Subscription {
        Subscription { name: self.subscription_name(id), topic: topic.to_owned(), ..Subscription::default() }
    }

    /// Creates a subscription; returns its name.
    pub(crate) async fn subscribe(&self, subscription: Subscription) -> String {
        self.try_subscribe(subscription).await.unwrap().name
    }

    pub(crate) async fn try_subscribe(&self, subscription: Subscription) -> Answer<Subscription> {
        self.subscriber.clone().create_subscription(subscription).await.map(Response::into_inner)
    }

    /// Creates a topic and a subscription with default settings; returns their names.
    pub(crate) async fn pair(&self) -> (String, String) {
        self.pair_with(|_| ()).await
    }

    /// The same with changes to the subscription.
    pub(crate) async fn pair_with(&self, change: impl FnOnce(&mut Subscription)) -> (String, String) {
        let topic = self.topic("a-topic").await;
        let mut subscription = self.to(&topic, "a-subscription");
        change(&mut subscription);
        let subscription = self.subscribe(subscription).await;
        (topic, subscription)
    }

    pub(crate) async fn subscription(&self, name: &str) -> Subscription {
        let request = GetSubscriptionRequest { subscription: name.to_owned() };
        self.subscriber.clone().get_subscription(request).await.unwrap().into_inner()
    }

    /// Publishes in one request; returns the ids.
    pub(crate) async fn publish(&self, topic: &str, messages: &[PubsubMessage]) -> Vec<String> {
        self.try_publish(topic, messages).await.unwrap()
    }

    pub(crate) async fn try_publish(&self, topic: &str, messages: &[PubsubMessage]) -> Answer<Vec<String>> {
        let request = PublishRequest { topic: topic.to_owned(), messages: messages.to_vec() };
        let answer = self.publisher.clone().publish(request).await?;
        Ok(answer.into_inner().message_ids)
    }

    pub(crate) async fn publish_texts(&self, topic: &str, texts: &[&str]) -> Vec<String> {
        let messages: Vec<_> = texts.iter().map(|data| text(data)).collect();
        self.publish(topic, &messages).await
    }

    /// Asserts that a message that is published now is the only one to come.
    pub(crate) async fn expect_only_new(&self, topic: &str, subscription: &str) {
        self.publish_texts(topic, &["next"]).await;
        assert_eq!(texts(&self.pull(subscription, 10).await), ["next"]);
    }

    /// The answer to a single pull.
    #[allow(deprecated, reason = "`return_immediately` is part of the protocol")]
    pub(crate) async fn pull_once(
        &self,
        subscription: &str,
        max_messages: i32,
        return_immediately: bool,
    ) -> Answer<Vec<ReceivedMessage>> {
        let subscription = subscription.to_owned();
        let request = PullRequest { subscription, max_messages, return_immediately };
        Ok(self.subscriber.clone().pull(request).await?.into_inner().received_messages)
    }

    /// Pulls until there is a message.
    pub(crate) async fn pull(&self, subscription: &str, max_messages: i32) -> Vec<ReceivedMessage> {
        soon("a pull", async {
            loop {
                let received = self.pull_once(subscription, max_messages, false).await.unwrap();
                if !received.is_empty() {
                    return received;
                }
            }
        })
        .await
    }

    /// Pulls one message.
    pub(crate) async fn pull_one(&self, subscription: &str) -> ReceivedMessage {
        let mut received = self.pull(subscription, 1).await;
        assert_eq!(received.len(), 1, "{received:?}");
        received.remove(0)
    }

    /// Pulls until it has this many messages, in the order of their arrival.
    pub(crate) async fn pull_all(&self, subscription: &str, count: usize) -> Vec<ReceivedMessage> {
        let mut received = Vec::new();
        while received.len() < count {
            received.extend(self.pull(subscription, (count - received.len()) as i32).await);
        }
        received
    }

    pub(crate) async fn try_acknowledge(&self, subscription: &str, ack_ids: &[String]) -> Answer<()> {
        let request = AcknowledgeRequest { subscription: subscription.to_owned(), ack_ids: ack_ids.to_vec() };
        self.subscriber.clone().acknowledge(request).await.map(drop)
    }

    pub(crate) async fn acknowledge(&self, subscription: &str, messages: &[ReceivedMessage]) {
        self.try_acknowledge(subscription, &ack_ids(messages)).await.unwrap();
    }

    pub(crate) async fn try_modify(
        &self,
        subscription: &str,
        ack_ids: &[String],
        seconds: i32,
    ) -> Answer<()> {
        let (subscription, ack_ids) = (subscription.to_owned(), ack_ids.to_vec());
        let request = ModifyAckDeadlineRequest { subscription, ack_ids, ack_deadline_seconds: seconds };
        self.subscriber.clone().modify_ack_deadline(request).await.map(drop)
    }

    /// Gives messages back.
    pub(crate) async fn nack(&self, subscription: &str, messages: &[ReceivedMessage]) {
        self.try_modify(subscription, &ack_ids(messages), 0).await.unwrap();
    }
}

/// Checks that a request was refused with this code; returns the status.
#[track_caller]
pub(crate) fn refused<T: std::fmt::Debug>(answer: Answer<T>, code: Code) -> Status {
    refused_as("it", answer, code)
}

/// The same for one of several requests, named in the message.
#[track_caller]
pub(crate) fn refused_as<T: std::fmt::Debug>(what: &str, answer: Answer<T>, code: Code) -> Status {
    let status = match answer {
        Ok(answer) => panic!("{what} was not refused: {answer:?}"),
        Err(status) => status,
    };
    assert_eq!(status.code(), code, "{what} was refused with {}: {}", status.code(), status.message());
    status
}

pub(crate) fn text(data: &str) -> PubsubMessage {
    PubsubMessage { data: data.to_owned().into(), ..PubsubMessage::default() }
}

pub(crate) fn keyed(ordering_key: &str, data: &str) -> PubsubMessage {
    PubsubMessage { ordering_key: ordering_key.to_owned(), ..text(data) }
}

pub(crate) fn with(data: &str, attributes: &[(&str, &str)]) -> PubsubMessage {
    PubsubMessage { attributes: map(attributes), ..text(data) }
}

pub(crate) fn map(pairs: &[(&str, &str)]) -> BTreeMap<String, String> {
    pairs.iter().map(|(key, value)| ((*key).to_owned(), (*value).to_owned())).collect()
}

pub(crate) fn seconds(seconds: i64) -> wakeq_emulator::proto::protobuf::Duration {
    wakeq_emulator::proto::protobuf::Duration { seconds, nanos: 0 }
}

pub(crate) fn message(received: &ReceivedMessage) -> &PubsubMessage {
    received.message.as_ref().unwrap()
}

pub(crate) fn ack_ids(received: &[ReceivedMessage]) -> Vec<String> {
    received.iter().map(|received| received.ack_id.clone()).collect()
}

/// The texts of messages, in their order.
pub(crate) fn texts(received: &[ReceivedMessage]) -> Vec<String> {
    received.iter().map(|received| String::from_utf8_lossy(&message(received).data).into_owned()).collect()
}

/// The texts of messages, sorted.
pub(crate) fn sorted(received: &[ReceivedMessage]) -> Vec<String> {
    let mut texts = texts(received);
    texts.sort();
    texts
}
