//! A published message: shared by all the subscriptions it waits in, never copied.

use std::collections::BTreeMap;

use bytes::Bytes;

use super::Time;
use crate::proto::pubsub::PubsubMessage;

/// What was published, as the broker keeps it.
#[derive(Clone, Debug, Eq, PartialEq)]
pub struct Message {
    /// Unique in the broker and rising; its decimal text is the `message_id`.
    pub id: u64,
    /// When.
    pub published: Time,
    /// The body.
    pub data: Bytes,
    /// By key.
    pub attributes: BTreeMap<String, String>,
    /// Empty for none.
    pub ordering_key: String,
}

impl Message {
    /// Its size in bytes as limits and flow control count it: everything that is delivered.
    pub fn size(&self) -> usize {
        let attributes: usize = self.attributes.iter().map(|(key, value)| key.len() + value.len()).sum();
        self.data.len() + attributes + self.ordering_key.len()
    }

    /// As it is delivered.
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
