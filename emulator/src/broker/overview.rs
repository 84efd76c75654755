//! Figures of everything in the broker, for the page, the admin endpoints and tests. It changes
//! nothing.

use std::collections::BTreeMap;

use super::StreamOverview;
use super::delivery::Figures;
use super::snapshots::Snapshot;
use super::subscriptions::Subscription;
use super::unsupported::{self, StoredSetting};
use super::{Broker, PushFigures, Time};

/// Everything in the broker, sorted by name.
#[derive(Clone, Debug, Default, PartialEq, serde::Serialize)]
pub struct Overview {
    /// The topics.
    pub topics: Vec<TopicOverview>,
    /// The subscriptions.
    pub subscriptions: Vec<SubscriptionOverview>,
    /// The snapshots.
    pub snapshots: Vec<SnapshotOverview>,
    /// The schemas.
    pub schemas: Vec<SchemaOverview>,
    /// The open streaming pulls, the oldest first.
    pub streams: Vec<StreamOverview>,
    /// The settings that are stored and returned, and not carried out.
    pub not_carried_out: Vec<StoredSetting>,
}

/// How much there is in the broker.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Counts {
    pub(crate) topics: usize,
    pub(crate) subscriptions: usize,
    /// The messages that are not acknowledged, in all subscriptions.
    pub(crate) backlog: usize,
}

/// A topic.
#[derive(Clone, Debug, PartialEq, serde::Serialize)]
pub struct TopicOverview {
    /// The full name.
    pub name: String,
    /// How many subscriptions it feeds.
    pub subscriptions: usize,
    /// How many snapshots it feeds.
    pub snapshots: usize,
    /// How many messages it keeps itself, for its retention.
    pub retained: usize,
}

/// A subscription and its messages.
#[derive(Clone, Debug, PartialEq, serde::Serialize)]
pub struct SubscriptionOverview {
    /// The full name.
    pub name: String,
    /// The topic's full name, or `_deleted-topic_`.
    pub topic: String,
    /// The state of its pushes, if it pushes.
    pub push: Option<PushFigures>,
    /// Whether it was detached.
    pub detached: bool,
    /// When it expires unless it is used, in seconds since 1970.
    pub expires: Option<i64>,
    /// The figures of its messages.
    pub messages: Figures,
}

/// A snapshot.
#[derive(Clone, Debug, PartialEq, serde::Serialize)]
pub struct SnapshotOverview {
    /// The full name.
    pub name: String,
    /// The topic's full name, or `_deleted-topic_`.
    pub topic: String,
    /// How many messages it keeps.
    pub messages: usize,
}

/// A schema.
#[derive(Clone, Debug, PartialEq, serde::Serialize)]
pub struct SchemaOverview {
    /// The full name.
    pub name: String,
    /// The type: `AVRO` or `PROTOCOL_BUFFER`.
    #[serde(rename = "type")]
    pub kind: &'static str,
    /// The ids of its revisions, the oldest first.
    pub revisions: Vec<String>,
    /// How many topics validate with it.
    pub topics: usize,
}

impl SnapshotOverview {
    pub(super) fn of(snapshot: &Snapshot) -> Self {
        Self {
            name: snapshot.name.to_string(),
            topic: snapshot.config.topic.clone(),
            messages: snapshot.contents.len(),
        }
    }
}

impl Broker {
    /// Returns the figures of everything in the broker.
    pub fn overview(&self, now: Time) -> Overview {
        let topics = self.topics.values().map(|topic| TopicOverview {
            name: topic.name.to_string(),
            subscriptions: topic.subscriptions.len(),
            snapshots: topic.snapshots.len(),
            retained: topic.kept(),
        });
        let subscriptions =
            self.subscriptions.values().map(|subscription| self.subscription_overview(now, subscription));
        let snapshots = self.snapshots.values().map(SnapshotOverview::of);
        Overview {
            topics: topics.collect(),
            subscriptions: subscriptions.collect(),
            snapshots: snapshots.collect(),
            schemas: self.schema_overviews(),
            streams: self.stream_overviews(),
            not_carried_out: self.not_carried_out(),
        }
    }

    /// Returns how much there is, which takes less time than the figures of everything.
    pub(crate) fn counts(&self) -> Counts {
        Counts {
            topics: self.topics.len(),
            subscriptions: self.subscriptions.len(),
            backlog: self.subscriptions.values().map(|subscription| subscription.delivery.backlog()).sum(),
        }
    }

    fn schema_overviews(&self) -> Vec<SchemaOverview> {
        let mut topics: BTreeMap<&str, usize> = BTreeMap::new();
        for settings in self.topics.values().filter_map(|topic| topic.config.schema_settings.as_ref()) {
            *topics.entry(settings.schema.as_str()).or_default() += 1;
        }
        let schemas = self.schemas.values().map(|schema| SchemaOverview {
            name: schema.name.to_string(),
            kind: schema.kind(),
            revisions: schema.revision_ids().map(str::to_owned).collect(),
            topics: topics.get(&*schema.name).copied().unwrap_or_default(),
        });
        schemas.collect()
    }

    fn not_carried_out(&self) -> Vec<StoredSetting> {
        let of_topics = self
            .topics
            .iter()
            .flat_map(|(name, topic)| unsupported::stored(name, unsupported::of_topic(&topic.config)));
        let of_subscriptions = self.subscriptions.iter().flat_map(|(name, subscription)| {
            unsupported::stored(name, unsupported::of_subscription(&subscription.config))
        });
        of_topics.chain(of_subscriptions).collect()
    }

    /// Returns the figures of a subscription.
    pub(super) fn subscription_overview(
        &self,
        now: Time,
        subscription: &Subscription,
    ) -> SubscriptionOverview {
        SubscriptionOverview {
            name: subscription.name.to_string(),
            topic: subscription.config.topic.clone(),
            push: self.push_figures(now, &subscription.name),
            detached: subscription.config.detached,
            expires: subscription.expires().map(|expires| expires.timestamp().seconds),
            messages: subscription.delivery.figures(now),
        }
    }
}
