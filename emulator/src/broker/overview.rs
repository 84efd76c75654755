//! What is in the broker, as figures: for the page, the admin endpoints and tests.

use super::{Broker, Time};

/// Everything in the broker.
#[derive(Clone, Debug, Default, PartialEq, serde::Serialize)]
pub struct Overview {
    /// By name.
    pub topics: Vec<TopicOverview>,
    /// By name.
    pub subscriptions: Vec<SubscriptionOverview>,
    /// By name.
    pub snapshots: Vec<SnapshotOverview>,
    /// How many streaming pulls are open.
    pub streams: usize,
}

/// A topic.
#[derive(Clone, Debug, PartialEq, serde::Serialize)]
pub struct TopicOverview {
    /// Its full name.
    pub name: String,
    /// How many subscriptions it feeds.
    pub subscriptions: usize,
    /// How many messages it keeps itself, for its retention or its snapshots.
    pub retained: usize,
}

/// A subscription and its messages.
#[derive(Clone, Debug, PartialEq, serde::Serialize)]
pub struct SubscriptionOverview {
    /// Its full name.
    pub name: String,
    /// Its topic's, or `_deleted-topic_`.
    pub topic: String,
    /// Where it pushes to, if it does.
    pub push_endpoint: Option<String>,
    /// Whether it was detached.
    pub detached: bool,
}

/// A snapshot.
#[derive(Clone, Debug, PartialEq, serde::Serialize)]
pub struct SnapshotOverview {
    /// Its full name.
    pub name: String,
    /// Its topic's, or `_deleted-topic_`.
    pub topic: String,
    /// How many unacknowledged messages it keeps.
    pub messages: usize,
}

impl Broker {
    /// What is in the broker.
    pub fn overview(&self, _now: Time) -> Overview {
        Overview::default()
    }

    /// Does what is due.
    pub fn advance(&mut self, now: Time) {
        while self.agenda.take(now).is_some() {}
    }

    /// When `advance` should be called next, if at all.
    pub fn next_due(&self) -> Option<Time> {
        self.agenda.next()
    }

    /// Everything is gone, as when Google's emulator is killed.
    pub fn forget_everything(&mut self) {
        let faults = self.faults.clone();
        *self = Self::new(faults);
    }
}
