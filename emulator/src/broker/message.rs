//! A published message: shared by all its subscriptions, never copied.

use std::collections::BTreeMap;

use bytes::Bytes;

use super::Time;
use crate::proto::pubsub::PubsubMessage;

/// A published message, as the broker keeps it.
#[derive(Clone, Debug, Eq, PartialEq)]
pub struct Message {
    /// Unique in the broker, and increasing; in decimal, it is the `message_id`.
    pub id: u64,
    /// When it was published, in whole milliseconds, as the service says it.
    pub published: Time,
    /// The body.
    pub data: Bytes,
    /// The attributes, by key.
    pub attributes: BTreeMap<String, String>,
    /// The ordering key; empty if there is none.
    pub ordering_key: String,
}

impl Message {
    /// The size in bytes that counts for limits and flow control: data, attributes and ordering
    /// key.
    pub fn size(&self) -> usize {
        let attributes: usize = self.attributes.iter().map(|(key, value)| key.len() + value.len()).sum();
        self.data.len() + attributes + self.ordering_key.len()
    }

    /// The message in the form in which it is delivered.
    pub fn to_proto(&self) -> PubsubMessage {
        PubsubMessage {
            data: self.data.clone(),
            attributes: self.attributes.clone(),
            message_id: self.id.to_string(),
            publish_time: Some(self.published.timestamp()),
            ordering_key: self.ordering_key.clone(),
        }
    }
}
