//! One subscription in virtual time.

mod exactly_once;
mod keys;
mod leases;
mod model;
mod properties;
mod replay;

use std::collections::BTreeMap;
use std::sync::Arc;
use std::time::Duration;

use bytes::Bytes;

use super::{Delivery, Fate, Holder, LeasedMessage, RetryPolicy, Settings};
use crate::broker::{Message, StreamId, Time};

pub(super) const LEASE: Duration = Duration::from_secs(10);
pub(super) const RETENTION: Duration = Duration::from_secs(7 * 86_400);
pub(super) const A: Holder = Holder::Stream(StreamId(1));
pub(super) const B: Holder = Holder::Stream(StreamId(2));

/// A delivery, a clock, and a publisher.
pub(super) struct Bench {
    pub(super) delivery: Delivery,
    pub(super) now: Time,
    last: u64,
}

pub(super) fn settings() -> Settings {
    Settings {
        ack_deadline: LEASE,
        ordering: false,
        exactly_once: false,
        retry: None,
        dead_letter_after: None,
        retention: RETENTION,
        retain_acked: false,
    }
}

pub(super) fn ordered() -> Settings {
    Settings { ordering: true, ..settings() }
}

pub(super) fn retry(minimum: u64, maximum: u64) -> Option<RetryPolicy> {
    Some(RetryPolicy { minimum: secs(minimum), maximum: secs(maximum) })
}

pub(super) const fn secs(seconds: u64) -> Duration {
    Duration::from_secs(seconds)
}

pub(super) fn message(id: u64, published: Time, key: &str) -> Arc<Message> {
    Arc::new(Message {
        id,
        published,
        data: Bytes::from(vec![b'x'; 10]),
        attributes: BTreeMap::new(),
        ordering_key: key.to_owned(),
        schema: None,
    })
}

impl Bench {
    pub(super) fn new(settings: Settings) -> Self {
        Self { delivery: Delivery::new(7, settings), now: Time::from_secs(1_700_000_000), last: 0 }
    }

    pub(super) fn publish(&mut self, keys: &[&str]) {
        for key in keys {
            self.publish_with(key, Fate::OnTime);
        }
    }

    pub(super) fn publish_with(&mut self, key: &str, fate: Fate) {
        self.last += 1;
        self.delivery.enqueue(self.now, message(self.last, self.now, key), fate);
    }

    pub(super) fn pass(&mut self, duration: Duration) -> super::AdvanceResult {
        self.now = self.now + duration;
        self.delivery.advance(self.now)
    }

    pub(super) fn take(&mut self, holder: Holder, most: usize) -> Vec<LeasedMessage> {
        self.delivery.take(self.now, holder, most, usize::MAX, LEASE)
    }

    /// The numbers of the messages that are taken.
    pub(super) fn numbers(&mut self, holder: Holder, most: usize) -> Vec<u64> {
        numbers(&self.take(holder, most))
    }

    pub(super) fn ack(&mut self, delivered: &LeasedMessage) -> super::AckResult {
        self.delivery.acknowledge(self.now, std::slice::from_ref(&delivered.ack_id))
    }

    pub(super) fn ack_all(&mut self, delivered: &[LeasedMessage]) -> super::AckResult {
        let ids: Vec<String> = delivered.iter().map(|delivered| delivered.ack_id.clone()).collect();
        self.delivery.acknowledge(self.now, &ids)
    }

    pub(super) fn modify(&mut self, delivered: &LeasedMessage, deadline: Duration) -> super::AckResult {
        self.delivery.modify_deadline(self.now, &[(delivered.ack_id.clone(), deadline)])
    }

    pub(super) fn nack(&mut self, delivered: &LeasedMessage) -> super::AckResult {
        self.modify(delivered, Duration::ZERO)
    }

    pub(super) fn backlog(&self) -> usize {
        self.delivery.figures(self.now).backlog
    }
}

pub(super) fn numbers(delivered: &[LeasedMessage]) -> Vec<u64> {
    delivered.iter().map(|delivered| delivered.message.id).collect()
}
