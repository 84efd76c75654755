//! The broker as its callers see it, in virtual time.

mod consistency;
mod consume;
mod inspect;
mod lifetimes;
mod masks;
mod policies;
mod publish;
mod saved;
mod schemas;
mod snapshots;
mod subscriptions;
mod topics;
mod unsupported;

use std::collections::BTreeMap;
use std::time::Duration;

use tonic::Code;

use super::{Answer, Broker, Faults, Refusal, Time};
use crate::proto::protobuf::FieldMask;
use crate::proto::pubsub;

const TOPIC: &str = "projects/p/topics/orders";
const SUBSCRIPTION: &str = "projects/p/subscriptions/billing";
const SNAPSHOT: &str = "projects/p/snapshots/friday";
const MINUTE: u64 = 60;
const HOUR: u64 = 60 * MINUTE;
const DAY: u64 = 24 * HOUR;

/// A broker and its time.
struct World {
    broker: Broker,
    now: Time,
}

impl World {
    fn new() -> Self {
        Self { broker: Broker::new(Faults::default()), now: Time::from_secs(1_700_000_000) }
    }

    /// With a topic and a subscription to it.
    fn with_subscription() -> Self {
        let mut world = Self::new();
        world.topic(TOPIC);
        world.subscribe(subscription());
        world
    }

    fn pass(&mut self, seconds: u64) {
        self.now = self.now + Duration::from_secs(seconds);
        self.broker.advance(self.now);
    }

    fn topic(&mut self, name: &str) {
        self.create_topic(pubsub::Topic { name: name.to_owned(), ..Default::default() }).unwrap();
    }

    fn create_topic(&mut self, topic: pubsub::Topic) -> Answer<pubsub::Topic> {
        self.broker.create_topic(self.now, topic)
    }

    fn delete_topic(&mut self, name: &str) {
        self.broker.delete_topic(self.now, pubsub::DeleteTopicRequest { topic: name.to_owned() }).unwrap();
    }

    fn subscribe(&mut self, subscription: pubsub::Subscription) -> pubsub::Subscription {
        self.create_subscription(subscription).unwrap()
    }

    fn create_subscription(&mut self, subscription: pubsub::Subscription) -> Answer<pubsub::Subscription> {
        self.broker.create_subscription(self.now, subscription)
    }

    fn get_subscription(&mut self, name: &str) -> Answer<pubsub::Subscription> {
        self.broker
            .get_subscription(self.now, pubsub::GetSubscriptionRequest { subscription: name.to_owned() })
    }

    fn update_subscription(
        &mut self,
        subscription: pubsub::Subscription,
        paths: &[&str],
    ) -> Answer<pubsub::Subscription> {
        let request = pubsub::UpdateSubscriptionRequest {
            subscription: Some(subscription),
            update_mask: Some(mask(paths)),
        };
        self.broker.update_subscription(self.now, request)
    }

    fn detach(&mut self, name: &str) {
        let request = pubsub::DetachSubscriptionRequest { subscription: name.to_owned() };
        self.broker.detach_subscription(self.now, request).unwrap();
    }

    fn publish(&mut self, topic: &str, bodies: &[&str]) -> Vec<String> {
        let messages = bodies.iter().map(|body| message(body)).collect();
        self.publish_messages(topic, messages).unwrap()
    }

    fn publish_messages(&mut self, topic: &str, messages: Vec<pubsub::PubsubMessage>) -> Answer<Vec<String>> {
        let request = pubsub::PublishRequest { topic: topic.to_owned(), messages };
        self.broker.publish(self.now, request).map(|response| response.message_ids)
    }

    fn pull(&mut self, subscription: &str) -> Vec<pubsub::ReceivedMessage> {
        self.try_pull(subscription, 1_000).unwrap()
    }

    fn try_pull(&mut self, subscription: &str, most: i32) -> Answer<Vec<pubsub::ReceivedMessage>> {
        let request = pubsub::PullRequest {
            subscription: subscription.to_owned(),
            max_messages: most,
            ..Default::default()
        };
        self.broker.pull(self.now, &request).map(|response| response.received_messages)
    }

    /// The bodies of the pulled messages.
    fn bodies(&mut self, subscription: &str) -> Vec<String> {
        bodies(&self.pull(subscription))
    }

    fn acknowledge(&mut self, subscription: &str, ack_ids: &[String]) -> Answer<()> {
        let request =
            pubsub::AcknowledgeRequest { subscription: subscription.to_owned(), ack_ids: ack_ids.to_vec() };
        self.broker.acknowledge(self.now, &request)
    }

    fn modify_ack_deadline(&mut self, subscription: &str, ack_ids: &[String], seconds: i32) -> Answer<()> {
        let request = pubsub::ModifyAckDeadlineRequest {
            subscription: subscription.to_owned(),
            ack_ids: ack_ids.to_vec(),
            ack_deadline_seconds: seconds,
        };
        self.broker.modify_ack_deadline(self.now, &request)
    }

    /// Takes and acknowledges everything that is available.
    fn drain(&mut self, subscription: &str) -> Vec<String> {
        let received = self.pull(subscription);
        if !received.is_empty() {
            self.acknowledge(subscription, &ack_ids(&received)).unwrap();
        }
        bodies(&received)
    }

    fn seek(&mut self, subscription: &str, target: pubsub::seek_request::Target) -> Answer<()> {
        let request = pubsub::SeekRequest { subscription: subscription.to_owned(), target: Some(target) };
        self.broker.seek(self.now, request).map(|_| ())
    }

    fn seek_to_time(&mut self, subscription: &str, time: Time) {
        self.seek(subscription, pubsub::seek_request::Target::Time(time.timestamp())).unwrap();
    }

    fn snapshot(&mut self, name: &str, subscription: &str) -> Answer<pubsub::Snapshot> {
        let request = pubsub::CreateSnapshotRequest {
            name: name.to_owned(),
            subscription: subscription.to_owned(),
            ..Default::default()
        };
        self.broker.create_snapshot(self.now, request)
    }
}

fn subscription() -> pubsub::Subscription {
    pubsub::Subscription { name: SUBSCRIPTION.to_owned(), topic: TOPIC.to_owned(), ..Default::default() }
}

/// Another subscription to the same topic.
fn another(id: &str) -> pubsub::Subscription {
    pubsub::Subscription { name: named(id), ..subscription() }
}

fn named(id: &str) -> String {
    format!("projects/p/subscriptions/{id}")
}

fn message(body: &str) -> pubsub::PubsubMessage {
    pubsub::PubsubMessage { data: body.to_owned().into(), ..Default::default() }
}

fn attributes(pairs: &[(&str, &str)]) -> BTreeMap<String, String> {
    pairs.iter().map(|(key, value)| ((*key).to_owned(), (*value).to_owned())).collect()
}

fn mask(paths: &[&str]) -> FieldMask {
    FieldMask { paths: paths.iter().map(ToString::to_string).collect() }
}

fn seconds(seconds: u64) -> crate::proto::protobuf::Duration {
    super::limits::proto_duration(Duration::from_secs(seconds))
}

fn bodies(received: &[pubsub::ReceivedMessage]) -> Vec<String> {
    let body = |received: &pubsub::ReceivedMessage| received.message.as_ref().unwrap().data.clone();
    received.iter().map(|received| String::from_utf8(body(received).to_vec()).unwrap()).collect()
}

fn ack_ids(received: &[pubsub::ReceivedMessage]) -> Vec<String> {
    received.iter().map(|received| received.ack_id.clone()).collect()
}

/// A refusal as `CODE: message`.
#[track_caller]
fn refused<T>(answer: Answer<T>) -> String {
    match answer {
        Ok(_) => panic!("this should have been refused"),
        Err(Refusal { code, message, .. }) => format!("{code:?}: {message}"),
    }
}

#[track_caller]
fn code<T>(answer: Answer<T>) -> Code {
    answer.map_or_else(|refusal| refusal.code, |_| Code::Ok)
}
