//! Looking at the messages of a subscription and at those that a topic keeps, and acknowledging one
//! without holding it.
//!
//! Looking changes nothing, not even when a subscription expires. Each look is bounded.

use std::collections::BTreeMap;
use std::sync::Arc;

use tonic::Code;

use super::delivery::{
    COUNTED_BYTES_MAX, MessagePage, MessageQuery, MessageState, PageSize, Place, PlaceResult,
};
use super::overview::SnapshotOverview;
use super::topics::Topic;
use super::{Answer, Broker, Holder, Message, Refusal, StreamId, SubscriptionOverview, Time};
use crate::proto::pubsub;

/// The most subscriptions and snapshots that are listed with a subscription or a topic.
pub(crate) const LISTED_MAX: usize = 500;

/// A subscription and a page of its messages.
#[derive(Clone, Debug)]
pub struct SubscriptionContents {
    /// Its configuration.
    pub config: pubsub::Subscription,
    /// Its figures.
    pub overview: SubscriptionOverview,
    /// The snapshots of its topic, at most 500.
    pub snapshots: Vec<SnapshotOverview>,
    /// How many snapshots its topic has.
    pub snapshot_count: usize,
    /// The page.
    pub page: MessagePage,
    /// The client ids of the streams that hold messages of the page.
    pub clients: BTreeMap<StreamId, String>,
}

/// A topic, what it feeds, and a page of the messages that it keeps itself.
#[derive(Clone, Debug)]
pub struct TopicContents {
    /// Its configuration.
    pub config: pubsub::Topic,
    /// The subscriptions that it feeds, at most 500.
    pub subscriptions: Vec<SubscriptionOverview>,
    /// How many subscriptions it feeds.
    pub subscription_count: usize,
    /// Its snapshots, at most 500.
    pub snapshots: Vec<SnapshotOverview>,
    /// How many snapshots it has.
    pub snapshot_count: usize,
    /// How many messages it keeps.
    pub retained: usize,
    /// The page, the oldest first.
    pub messages: Vec<Arc<Message>>,
    /// The last message of the page, if another page follows.
    pub next: Option<u64>,
}

impl Broker {
    /// Returns a subscription and a page of its messages.
    ///
    /// ```
    /// use wakeq_emulator::broker::{Broker, Faults, MessageQuery, PageSize, Time};
    ///
    /// let broker = Broker::new(Faults::default());
    /// let size = PageSize { messages: 50, bytes: 1_000_000 };
    /// let query = MessageQuery { after: None, acknowledged: false, size };
    /// assert!(broker.messages(Time::from_secs(0), "projects/p/subscriptions/none", &query).is_err());
    /// ```
    pub fn messages(
        &self,
        now: Time,
        subscription: &str,
        query: &MessageQuery,
    ) -> Answer<SubscriptionContents> {
        let found = self.subscription("subscription", subscription)?;
        let page = found.delivery.page(query);
        let holders = page.messages.iter().filter_map(|view| match view.state {
            MessageState::Outstanding { holder: Holder::Stream(stream), .. } => Some(stream),
            MessageState::Outstanding { holder: Holder::Pull | Holder::Push, .. }
            | MessageState::Available
            | MessageState::Waiting { .. }
            | MessageState::Behind
            | MessageState::Acknowledged => None,
        });
        let clients = holders.filter_map(|stream| Some((stream, self.client_id(stream)?.to_owned())));
        let clients = clients.collect();
        let (snapshots, snapshot_count) =
            self.feeding(found).map(|topic| self.snapshots_of(topic)).unwrap_or_default();
        Ok(SubscriptionContents {
            config: found.config.clone(),
            overview: self.subscription_overview(now, found),
            snapshots,
            snapshot_count,
            page,
            clients,
        })
    }

    /// Returns a topic and a page of the messages that it keeps: those after the message with this
    /// id.
    pub fn topic_contents(
        &self,
        now: Time,
        topic: &str,
        after: u64,
        size: PageSize,
    ) -> Answer<TopicContents> {
        let found = self.topic("topic", topic)?;
        let listed = found.subscriptions.iter().filter_map(|name| self.subscriptions.get(name));
        let subscriptions = listed.take(LISTED_MAX).map(|found| self.subscription_overview(now, found));
        let (snapshots, snapshot_count) = self.snapshots_of(found);
        let mut messages: Vec<Arc<Message>> = Vec::new();
        let (mut bytes, mut next) = (0, None);
        for message in found.kept_after(after) {
            if !messages.is_empty() && (messages.len() >= size.messages || bytes >= size.bytes) {
                next = messages.last().map(|message| message.id);
                break;
            }
            bytes += message.size().min(COUNTED_BYTES_MAX);
            messages.push(Arc::clone(message));
        }
        Ok(TopicContents {
            config: found.config.clone(),
            subscriptions: subscriptions.collect(),
            subscription_count: found.subscriptions.len(),
            snapshots,
            snapshot_count,
            retained: found.kept(),
            messages,
            next,
        })
    }

    /// Acknowledges one message, whoever holds it. With exactly-once delivery and an ordering key,
    /// the earlier ones of the key have to be acknowledged first.
    pub fn acknowledge_message(&mut self, now: Time, subscription: &str, place: Place) -> Answer<()> {
        let found = self.subscription_mut("subscription", subscription)?;
        found.touch(now);
        let result = found.delivery.acknowledge_at(now, place);
        self.settled(now, subscription);
        match result {
            PlaceResult::Acknowledged => Ok(()),
            PlaceResult::Gone => Err(Refusal::new(
                Code::NotFound,
                "The subscription has no such message that is not acknowledged.",
            )),
            PlaceResult::Unordered => Err(Refusal::new(
                Code::FailedPrecondition,
                "An earlier message of the same ordering key has to be acknowledged before this one.",
            )),
        }
    }

    /// The first snapshots of a topic, and how many it has.
    fn snapshots_of(&self, topic: &Topic) -> (Vec<SnapshotOverview>, usize) {
        let found = topic.snapshots.iter().filter_map(|name| self.snapshots.get(name));
        (found.take(LISTED_MAX).map(SnapshotOverview::of).collect(), topic.snapshots.len())
    }
}
