//! Carries out operations on one emulator.

use std::collections::BTreeMap;
use std::time::{Duration, SystemTime, UNIX_EPOCH};

use tokio::time::Instant;
use tonic::{Response, Status};
use wakeq_emulator::proto::protobuf::Timestamp;
use wakeq_emulator::proto::pubsub::seek_request::Target;
use wakeq_emulator::proto::pubsub::{
    CreateSnapshotRequest, DeleteSnapshotRequest, DeleteSubscriptionRequest, DeleteTopicRequest,
    GetSubscriptionRequest, GetTopicRequest, ListSnapshotsRequest, ListSubscriptionsRequest,
    ListTopicSubscriptionsRequest, ListTopicsRequest, PubsubMessage, SeekRequest, Subscription, Topic,
};

use super::operation::{IDS, Id, Operation, Seen};
use crate::stage::{Stage, keyed, message, text};

const LEASE_S: i32 = 600;
const HOUR_S: i64 = 3_600;

/// A project on one emulator, and the messages that its client holds.
pub(super) struct Actor {
    stage: Stage,
    /// For how long it waits for messages that the other side has.
    patience: Duration,
    /// By subscription, in the order of their bodies.
    held: BTreeMap<Id, BTreeMap<String, Held>>,
    ordered: BTreeMap<Id, bool>,
}

struct Held {
    ack_id: String,
    has_key: bool,
}

impl Actor {
    pub(super) fn new(stage: &Stage, project: &str, patience: Duration) -> Self {
        let stage = Stage { project: project.to_owned(), ..stage.clone() };
        Self { stage, patience, held: BTreeMap::new(), ordered: BTreeMap::new() }
    }

    /// The bodies of published messages are numbers from `first` on. `expected` is how many
    /// messages a pull brings on the other side.
    pub(super) async fn carry_out(&mut self, operation: &Operation, first: usize, expected: usize) -> Seen {
        match *operation {
            Operation::CreateTopic(_)
            | Operation::DeleteTopic(_)
            | Operation::GetTopic(_)
            | Operation::ListTopics => self.topics(operation).await,
            Operation::Subscribe { .. }
            | Operation::DeleteSubscription(_)
            | Operation::GetSubscription(_)
            | Operation::ListSubscriptions
            | Operation::ListSubscriptionsOf(_) => self.subscriptions(operation).await,
            Operation::Publish { topic, messages, key } => {
                let messages: Vec<_> = (first..first + messages).map(|body| published(body, key)).collect();
                match self.stage.try_publish(&self.topic(topic), &messages).await {
                    Ok(ids) => {
                        assert_eq!(ids.len(), messages.len());
                        Seen::Done
                    }
                    Err(status) => Seen::Refused(status.code()),
                }
            }
            Operation::Pull(subscription) => self.pull(subscription, expected).await,
            Operation::Acknowledge { subscription, mask } => self.settle(subscription, mask, None).await,
            Operation::Nack { subscription, mask } => self.settle(subscription, mask, Some(0)).await,
            Operation::Extend { subscription, mask } => self.settle(subscription, mask, Some(LEASE_S)).await,
            Operation::Snapshot { .. } | Operation::DeleteSnapshot(_) | Operation::ListSnapshots => {
                self.snapshots(operation).await
            }
            Operation::SeekToSnapshot { subscription, snapshot } => {
                let target = Target::Snapshot(self.snapshot(snapshot));
                self.seek(subscription, target).await
            }
            Operation::SeekByAnHour { subscription, back } => {
                let now = SystemTime::now().duration_since(UNIX_EPOCH).unwrap().as_secs() as i64;
                let seconds = if back { now - HOUR_S } else { now + HOUR_S };
                self.seek(subscription, Target::Time(Timestamp { seconds, nanos: 0 })).await
            }
        }
    }

    /// Deletes what may be left.
    pub(super) async fn clean_up(&mut self) {
        for id in 0..IDS {
            self.snapshots(&Operation::DeleteSnapshot(id)).await;
            self.subscriptions(&Operation::DeleteSubscription(id)).await;
            self.topics(&Operation::DeleteTopic(id)).await;
        }
    }

    async fn topics(&self, operation: &Operation) -> Seen {
        let mut publisher = self.stage.publisher.clone();
        if let Operation::CreateTopic(id) = operation {
            let topic = Topic { name: self.topic(*id), ..Topic::default() };
            seen(publisher.create_topic(topic).await, |topic| vec![topic.name])
        } else if let Operation::DeleteTopic(id) = operation {
            let request = DeleteTopicRequest { topic: self.topic(*id) };
            seen(publisher.delete_topic(request).await, |_| Vec::new())
        } else if let Operation::GetTopic(id) = operation {
            let request = GetTopicRequest { topic: self.topic(*id) };
            seen(publisher.get_topic(request).await, |topic| vec![topic.name])
        } else {
            let request = ListTopicsRequest { project: self.project(), ..Default::default() };
            let listed = publisher.list_topics(request).await;
            seen(listed, |list| list.topics.into_iter().map(|topic| topic.name).collect())
        }
    }

    async fn subscriptions(&mut self, operation: &Operation) -> Seen {
        let mut subscriber = self.stage.subscriber.clone();
        let shown = |subscription: Subscription| format!("{} of {}", subscription.name, subscription.topic);
        if let Operation::Subscribe { subscription, topic, ordered, keeps_acknowledged } = operation {
            let wanted = Subscription {
                ack_deadline_seconds: LEASE_S,
                enable_message_ordering: *ordered,
                retain_acked_messages: *keeps_acknowledged,
                ..self.stage.to(&self.topic(*topic), &format!("subscription-{subscription}"))
            };
            let created = subscriber.create_subscription(wanted).await;
            if created.is_ok() {
                self.ordered.insert(*subscription, *ordered);
                self.held.remove(subscription);
            }
            seen(created, |created| vec![shown(created)])
        } else if let Operation::DeleteSubscription(id) = operation {
            let request = DeleteSubscriptionRequest { subscription: self.subscription(*id) };
            self.held.remove(id);
            seen(subscriber.delete_subscription(request).await, |_| Vec::new())
        } else if let Operation::GetSubscription(id) = operation {
            let request = GetSubscriptionRequest { subscription: self.subscription(*id) };
            seen(subscriber.get_subscription(request).await, |got| vec![shown(got)])
        } else if let Operation::ListSubscriptionsOf(id) = operation {
            let request = ListTopicSubscriptionsRequest { topic: self.topic(*id), ..Default::default() };
            let listed = self.stage.publisher.clone().list_topic_subscriptions(request).await;
            seen(listed, |list| list.subscriptions)
        } else {
            let request = ListSubscriptionsRequest { project: self.project(), ..Default::default() };
            let listed = subscriber.list_subscriptions(request).await;
            seen(listed, |list| list.subscriptions.into_iter().map(shown).collect())
        }
    }

    async fn snapshots(&self, operation: &Operation) -> Seen {
        let mut subscriber = self.stage.subscriber.clone();
        if let Operation::Snapshot { snapshot, subscription } = operation {
            let (name, subscription) = (self.snapshot(*snapshot), self.subscription(*subscription));
            let request = CreateSnapshotRequest { name, subscription, ..Default::default() };
            seen(subscriber.create_snapshot(request).await, |made| vec![made.name, made.topic])
        } else if let Operation::DeleteSnapshot(id) = operation {
            let request = DeleteSnapshotRequest { snapshot: self.snapshot(*id) };
            seen(subscriber.delete_snapshot(request).await, |_| Vec::new())
        } else {
            let request = ListSnapshotsRequest { project: self.project(), ..Default::default() };
            let listed = subscriber.list_snapshots(request).await;
            seen(listed, |list| list.snapshots.into_iter().map(|snapshot| snapshot.name).collect())
        }
    }

    /// Pulls until nothing is left, and until as many messages came as on the other side.
    async fn pull(&mut self, id: Id, expected: usize) -> Seen {
        let (name, until) = (self.subscription(id), Instant::now() + self.patience);
        let is_ordered = self.ordered.get(&id).copied().unwrap_or(false);
        let (mut bodies, mut keys) = (Vec::new(), BTreeMap::<String, Vec<String>>::new());
        loop {
            let received = match self.stage.pull_once(&name, 1_000, true).await {
                Ok(received) => received,
                Err(status) => return Seen::Refused(status.code()),
            };
            if received.is_empty() && (bodies.len() >= expected || Instant::now() >= until) {
                bodies.sort_unstable();
                return Seen::Messages { bodies, keys };
            }
            if is_ordered {
                self.stage.acknowledge(&name, &received).await;
            }
            for each in &received {
                let PubsubMessage { data, ordering_key, .. } = message(each);
                let body = String::from_utf8_lossy(data).into_owned();
                bodies.push(body.clone());
                if is_ordered {
                    keys.entry(ordering_key.clone()).or_default().push(body);
                    continue;
                }
                let held = Held { ack_id: each.ack_id.clone(), has_key: !ordering_key.is_empty() };
                self.held.entry(id).or_default().insert(body, held);
            }
            keys.remove("");
        }
    }

    /// Acknowledges messages, or changes their deadlines. Those with a key are not given back: how
    /// they come again is asked in `ordering`.
    async fn settle(&mut self, id: Id, mask: u8, seconds: Option<i32>) -> Seen {
        let held = self.held.entry(id).or_default();
        let chosen = held.iter().enumerate().filter(|(place, (_, held))| {
            mask & (1 << (place % 8)) != 0 && !(seconds == Some(0) && held.has_key)
        });
        let chosen: Vec<String> = chosen.map(|(_, (body, _))| body.clone()).collect();
        if chosen.is_empty() {
            return Seen::Done;
        }
        let ack_ids: Vec<String> = chosen.iter().map(|body| held[body].ack_id.clone()).collect();
        if seconds != Some(LEASE_S) {
            held.retain(|body, _| !chosen.contains(body));
        }
        let name = self.subscription(id);
        let settled = match seconds {
            None => self.stage.try_acknowledge(&name, &ack_ids).await,
            Some(seconds) => self.stage.try_modify(&name, &ack_ids, seconds).await,
        };
        settled.map_or_else(|status| Seen::Refused(status.code()), |()| Seen::Done)
    }

    async fn seek(&mut self, id: Id, target: Target) -> Seen {
        self.settle(id, u8::MAX, None).await;
        let request = SeekRequest { subscription: self.subscription(id), target: Some(target) };
        seen(self.stage.subscriber.clone().seek(request).await, |_| Vec::new())
    }

    fn project(&self) -> String {
        format!("projects/{}", self.stage.project)
    }

    fn topic(&self, id: Id) -> String {
        self.stage.topic_name(&format!("topic-{id}"))
    }

    fn subscription(&self, id: Id) -> String {
        self.stage.subscription_name(&format!("subscription-{id}"))
    }

    fn snapshot(&self, id: Id) -> String {
        self.stage.snapshot_name(&format!("snapshot-{id}"))
    }
}

fn seen<T>(answer: Result<Response<T>, Status>, names: impl FnOnce(T) -> Vec<String>) -> Seen {
    match answer {
        Ok(answer) => {
            let mut names = names(answer.into_inner());
            names.sort_unstable();
            if names.is_empty() { Seen::Done } else { Seen::Names(names) }
        }
        Err(status) => Seen::Refused(status.code()),
    }
}

fn published(body: usize, key: Option<u8>) -> PubsubMessage {
    let body = format!("{body:04}");
    match key {
        Some(key) => keyed(&format!("key-{key}"), &body),
        None => text(&body),
    }
}
